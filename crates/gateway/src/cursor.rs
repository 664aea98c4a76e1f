//! Cursors name the last item of the page before, so that they survive a change of the list. To
//! clients they are opaque.

/// The cursor of what comes after the item `key`.
pub(crate) fn after(key: &str) -> String {
    use std::fmt::Write;
    let mut cursor = String::with_capacity(1 + 2 * key.len());
    cursor.push('a');
    for byte in key.bytes() {
        let _ = write!(cursor, "{byte:02x}");
    }
    cursor
}

/// The item a cursor names; `None` for text that is no cursor of ours.
pub(crate) fn read(cursor: &str) -> Option<String> {
    let digits = cursor.strip_prefix('a')?;
    if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return None;
    }
    let bytes = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16));
    String::from_utf8(bytes.collect::<Result<_, _>>().ok()?).ok()
}

/// The page of `keys` that a cursor asks for: where it begins and ends. `None` when the cursor is
/// bad or what it names is no longer there.
pub(crate) fn page<'a>(
    keys: impl ExactSizeIterator<Item = &'a str> + Clone,
    cursor: Option<&str>,
    size: usize,
) -> Option<(std::ops::Range<usize>, Option<String>)> {
    let start = match cursor {
        None => 0,
        Some(cursor) => {
            let last = read(cursor)?;
            keys.clone().position(|key| key == last)? + 1
        }
    };
    let length = keys.len();
    let end = start.saturating_add(size.max(1)).min(length);
    let next = if end < length {
        keys.clone().nth(end - 1).map(after)
    } else {
        None
    };
    Some((start..end, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_without_gap_or_overlap() {
        let keys: Vec<String> = (0..7).map(|n| format!("tool-{n}é")).collect();
        for size in 1..9 {
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let (range, next) =
                    page(keys.iter().map(String::as_str), cursor.as_deref(), size).unwrap();
                seen.extend_from_slice(&keys[range]);
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(seen, keys, "size {size}");
        }
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        let keys = ["a", "b"];
        for bad in ["", "x", "a6", "azz", "a63", "b61", "aé0"] {
            assert_eq!(page(keys.into_iter(), Some(bad), 1), None, "{bad}");
        }
    }
}
