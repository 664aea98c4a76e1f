/// Finds where `text`, taken as JSON, is nested deeper than `max`; the byte offset of the bracket
/// that is one too many.
///
/// Runs before any parser, so that no later stage meets a value that could exhaust a stack, and so
/// that what is refused does not depend on which stage parses what.
pub(crate) fn first_excess(text: &[u8], max: usize) -> Option<usize> {
    // Nearly every frame has fewer brackets than it may have levels. Counting is branch-free and
    // runs many bytes a cycle; only the rest pays for a look at strings and escapes.
    let openers = text
        .iter()
        .filter(|byte| matches!(byte, b'[' | b'{'))
        .count();
    if openers <= max {
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

#[cfg(test)]
mod tests {
    use super::first_excess;

    #[test]
    fn brackets_in_strings_do_not_nest() {
        assert_eq!(first_excess(br#"{"a":"[[[[\"[["}"#, 2), None);
        assert_eq!(first_excess(br#"[[],[],[]]"#, 2), None);
        assert_eq!(first_excess(br#"[[],[[1]]]"#, 2), Some(5));
    }
}
