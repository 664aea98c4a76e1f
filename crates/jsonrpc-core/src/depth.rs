/// Finds where `text`, taken as JSON, is nested deeper than `max`; the byte offset of the bracket
/// that is one too many.
///
/// Runs before any parser, so that no later stage meets a value that could exhaust a stack, and so
/// that what is refused does not depend on which stage parses what.
pub(crate) fn first_excess(text: &[u8], max: usize) -> Option<usize> {
    // Nearly every frame has fewer brackets than it may have levels. Counting is branch-free and
    // runs many bytes a cycle; only the rest pays for a look at strings and escapes.
    if openers(text) <= max {
        return None;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (offset, byte) in text.iter().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                if max < depth {
                    return Some(offset);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Number of opening brackets in `text`, those in strings included.
fn openers(text: &[u8]) -> usize {
    // What fits into a byte is counted in bytes: so the compiler counts many at once.
    let count = |chunk: &[u8]| {
        chunk.iter().fold(0_u8, |count, byte| {
            count + u8::from(matches!(byte, b'[' | b'{'))
        })
    };
    let (chunks, rest) = text.as_chunks::<64>();
    let whole: usize = chunks.iter().map(|chunk| usize::from(count(chunk))).sum();
    whole + usize::from(count(rest))
}

#[cfg(test)]
mod tests {
    use super::{first_excess, openers};

    #[test]
    fn every_bracket_that_opens_is_counted() {
        for length in [0, 1, 63, 64, 65, 300, 1_000] {
            assert_eq!(openers("[{".repeat(length).as_bytes()), 2 * length);
            assert_eq!(openers("x]}\"Z|\u{5b5b}".repeat(length).as_bytes()), 0);
        }
        assert_eq!(openers(format!("[{}{{", " ".repeat(100)).as_bytes()), 2);
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        assert_eq!(first_excess(br#"{"a":"[[[[\"[["}"#, 2), None);
        assert_eq!(first_excess(br#"[[],[],[]]"#, 2), None);
        assert_eq!(first_excess(br#"[[],[[1]]]"#, 2), Some(5));
    }
}
