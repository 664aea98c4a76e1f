//! Cursors name the last item of the page before and its place, so that they survive a change of the
//! list. To clients they are opaque.

use data_encoding::HEXLOWER;
use std::cell::Cell;

/// The cursor of what comes after the item `key`.
pub(crate) fn after(key: &str) -> String {
    format!("a{}", HEXLOWER.encode(key.as_bytes()))
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

/// Position that a cursor asks for.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    cursor: Option<&'a str>,
    /// Set if the item that the cursor names is gone: no client was told of such a page.
    is_gone: Cell<bool>,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(cursor: Option<&'a str>) -> Self {
        Self {
            cursor,
            is_gone: Cell::new(false),
        }
    }

    /// False for a page that must not be cached: clients can make up any number of such cursors.
    pub(crate) fn is_shared(&self) -> bool {
        !self.is_gone.get()
    }

    /// The range of the page in `keys`, and the cursor of the next one. `None` for a cursor that this
    /// server did not make. A cursor whose item is gone continues at the item's place: exactly in a
    /// list sorted by its keys, and otherwise if no other item is gone.
    pub(crate) fn page<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = &'k str> + Clone,
        size: usize,
    ) -> Option<(std::ops::Range<usize>, Option<String>)> {
        let length = keys.len();
        let start = match self.cursor {
            None => 0,
            Some(cursor) => {
                let cursor = read(cursor)?;
                let (place, last) = cursor.split_once(':')?;
                let place: usize = place.parse().ok()?;
                match keys.clone().position(|key| key == last) {
                    Some(position) => position + 1,
                    None => {
                        self.is_gone.set(true);
                        match keys.clone().is_sorted() {
                            true => keys.clone().take_while(|key| *key < last).count(),
                            false => place.saturating_sub(1).min(length),
                        }
                    }
                }
            }
        };
        let end = start.saturating_add(size.max(1)).min(length);
        let next = if end < length {
            let last = keys.clone().nth(end - 1);
            last.map(|last| after(&format!("{end}:{last}")))
        } else {
            None
        };
        Some((start..end, next))
    }
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
                let asked = Asked::new(cursor.as_deref());
                let (range, next) = asked.page(keys.iter().map(String::as_str), size).unwrap();
                assert!(asked.is_shared());
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
    fn a_cursor_stays_valid_when_its_item_is_removed() {
        for all in [["a", "b", "c", "d", "e"], ["d", "e", "b", "a", "c"]] {
            let first = Asked::new(None).page(all.into_iter(), 2).unwrap();
            let cursor = first.1.unwrap();
            let asked = Asked::new(Some(&cursor));
            let left: Vec<_> = all.into_iter().filter(|it| *it != all[1]).collect();
            let (range, next) = asked.page(left.iter().copied(), 2).unwrap();
            assert_eq!(left[range], all[2..4]);
            assert!(next.is_some() && !asked.is_shared());
            let none = Asked::new(Some(&cursor)).page([].into_iter(), 2);
            assert_eq!(none, Some((0..0, None)));
        }
        // In the order of keys nothing is told twice or left out, whatever has gone and come.
        let cursor = Asked::new(None).page(["b", "c", "d", "e"].into_iter(), 2);
        let cursor = cursor.unwrap().1.unwrap();
        let now = ["a", "d", "e"];
        let (range, _) = Asked::new(Some(&cursor)).page(now.into_iter(), 2).unwrap();
        assert_eq!(now[range], ["d", "e"]);
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        let keys = ["a", "b"];
        for bad in [
            "", "x", "a6", "azz", "a61", "a3a61", "a783a61", "b313a61", "aé0",
        ] {
            let asked = Asked::new(Some(bad));
            assert_eq!(asked.page(keys.into_iter(), 1), None, "{bad}");
        }
    }
}
