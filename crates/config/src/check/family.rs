//! Families of addresses, as templates (RFC 6570) name them, compared with the patterns of rules.

/// Part of a template.
#[derive(Clone, Copy)]
enum Part {
    Byte(u8),
    /// Any text without a `/`, a `?` or a `#`: the value of `{name}`.
    Segment,
    /// Any text: the value of an expression of another kind.
    Any,
}

/// Tests if a pattern of a rule, in which `*` stands for any text, matches an address of a family. What a handler
/// makes of an address is not looked at.
pub fn pattern_meets_template(pattern: &str, template: &str) -> bool {
    let pattern = pattern.as_bytes();
    let parts = parts(template);
    // Whether the rest of the pattern from a place meets the rest of the template: at first for no rest of that.
    let end = pattern.iter().rposition(|&byte| byte != b'*');
    let end = end.map_or(0, |last| last + 1);
    let mut meets: Vec<bool> = (0..=pattern.len()).map(|at| end <= at).collect();
    for part in parts.iter().rev() {
        let mut now = vec![false; meets.len()];
        for at in (0..meets.len()).rev() {
            now[at] = match (pattern.get(at), part) {
                // A star takes the whole part, or nothing of it.
                (Some(b'*'), _) => meets[at] || now[at + 1],
                (Some(byte), Part::Byte(own)) => byte == own && meets[at + 1],
                (Some(b'/' | b'?' | b'#'), Part::Segment) => meets[at],
                (Some(_), Part::Segment | Part::Any) => meets[at] || now[at + 1],
                (None, Part::Byte(_)) => false,
                (None, Part::Segment | Part::Any) => meets[at],
            };
        }
        meets = now;
    }
    meets[0]
}

fn parts(template: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((text, expression, after)) = next_expression(rest) {
        parts.extend(text.bytes().map(Part::Byte));
        let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        parts.push(match expression.chars().all(is_name) {
            true => Part::Segment,
            false => Part::Any,
        });
        rest = after;
    }
    parts.extend(rest.bytes().map(Part::Byte));
    parts
}

fn next_expression(template: &str) -> Option<(&str, &str, &str)> {
    let (text, rest) = template.split_once('{')?;
    let (expression, after) = rest.split_once('}')?;
    Some((text, expression, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_meets_the_addresses_that_a_template_can_have() {
        for (pattern, template, expected) in [
            ("data://secret*", "data://{id}", true),
            ("data://secret", "data://{id}", true),
            ("data://*", "data://{id}", true),
            ("data://*-old", "data://{id}", true),
            ("*://x", "data://{id}", true),
            ("date://secret*", "data://{id}", false),
            ("data://a/b", "data://{id}", false),
            ("data://a/b", "data://{+path}", true),
            ("data://a/b", "data://{path*}", true),
            ("data://a/*", "data://{id}/log", true),
            ("data://a/*", "data://{id}", false),
            ("data://a/lag", "data://{id}/log", false),
            ("data://*/log", "data://{id}/log", true),
            ("data://{id}", "data://{id}", true),
            ("data://x?day=1", "data://x{?day}", true),
            ("data://x", "data://x{?day}", true),
            ("data://x", "data://x", true),
            ("data://x", "data://y", false),
            ("data://", "data://{id}", true),
            ("", "data://{id}", false),
            ("*", "", true),
            ("data://{", "data://{", true),
        ] {
            assert_eq!(
                pattern_meets_template(pattern, template),
                expected,
                "{pattern} {template}"
            );
        }
        let long = format!("data://{}", "a*".repeat(500));
        assert!(!pattern_meets_template(&long, &"{x}".repeat(500)));
    }
}
