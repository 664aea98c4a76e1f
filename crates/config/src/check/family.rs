//! Families of addresses, as templates (RFC 6570) name them, compared with the patterns of rules.

use governance::{Template, TemplatePart};

/// Tests if a pattern of a rule, in which `*` stands for any text, matches an address of a family. What a handler
/// makes of an address is not looked at.
pub fn pattern_meets_template(pattern: &str, template: &str) -> bool {
    if pattern == template {
        return true;
    }
    let pattern = pattern.as_bytes();
    let parts = Template::new(template);
    let whole = [TemplatePart::Text(template.into())];
    let parts = parts.as_ref().map_or(&whole[..], Template::parts);
    // Whether the rest of the pattern from a place meets the rest of the template: at first for no rest of that.
    let end = pattern.iter().rposition(|&byte| byte != b'*');
    let end = end.map_or(0, |last| last + 1);
    let mut meets: Vec<bool> = (0..=pattern.len()).map(|at| end <= at).collect();
    for part in parts.iter().rev() {
        meets = match part {
            TemplatePart::Text(text) => {
                let bytes = text.bytes().rev();
                bytes.fold(meets, |meets, byte| step(pattern, &meets, |it| it == byte))
            }
            TemplatePart::Segment => values(pattern, &meets, |it| !b"/?#".contains(&it)),
            TemplatePart::Any => values(pattern, &meets, |_| true),
            TemplatePart::Begun(sign) => {
                let value = values(pattern, &meets, |_| true);
                let begun = step(pattern, &value, |it| it == *sign);
                begun
                    .iter()
                    .zip(&meets)
                    .map(|(one, other)| *one || *other)
                    .collect()
            }
        };
    }
    meets[0]
}

/// One byte of the template: the places of the pattern at which it fits, and the rest after it.
fn step(pattern: &[u8], meets: &[bool], fits: impl Fn(u8) -> bool) -> Vec<bool> {
    let mut now = vec![false; meets.len()];
    for at in (0..pattern.len()).rev() {
        now[at] = match pattern[at] {
            // A star takes the byte, or nothing of it.
            b'*' => meets[at] || now[at + 1],
            byte => fits(byte) && meets[at + 1],
        };
    }
    now
}

/// Any bytes that `goes_on` lets through, or none.
fn values(pattern: &[u8], meets: &[bool], goes_on: impl Fn(u8) -> bool) -> Vec<bool> {
    let mut now = meets.to_vec();
    for at in (0..pattern.len()).rev() {
        now[at] |= match pattern[at] {
            b'*' => now[at + 1],
            byte => goes_on(byte) && now[at + 1],
        };
    }
    now
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
            ("data://xy", "data://x{?day}", false),
            ("data://x*", "data://x{?day}", true),
            ("data://x*=1", "data://x{?day}", true),
            ("data://x{?day}", "data://x{?day}", true),
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
