//! Names and versions of prompts.

use std::cmp::Ordering;

/// The longest name of a prompt, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 128;
/// The longest version, in bytes.
const MAX_VERSION_BYTES: usize = 64;

/// Letters, digits, `.`, `_` and `-`, of which the first is a letter or a digit.
pub(crate) fn is_name(name: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.as_bytes()[0].is_ascii_alphanumeric()
        && name.bytes().all(is_sign)
}

/// The same with `+`, as semantic versions have it.
pub(crate) fn is_version(version: &str) -> bool {
    version.len() <= MAX_VERSION_BYTES && is_name(&version.replace('+', "-"))
}

/// Compares two versions: number by number, and what has a `-` comes before the same without one, as in
/// semantic versions. Versions that say the same are ordered as texts.
#[must_use]
pub fn compare(a: &str, b: &str) -> Ordering {
    let parts = |version: &str| {
        let (release, before) = version.split_once('-').unwrap_or((version, ""));
        (release.to_owned(), before.to_owned())
    };
    let ((a_release, a_before), (b_release, b_before)) = (parts(a), parts(b));
    dotted(&a_release, &b_release)
        .then_with(|| a_before.is_empty().cmp(&b_before.is_empty()))
        .then_with(|| dotted(&a_before, &b_before))
        .then_with(|| a.cmp(b))
}

fn dotted(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            // `1` and `1.0` say the same.
            (Some(part), None) => part.trim_matches('0').cmp(""),
            (None, Some(part)) => "".cmp(part.trim_matches('0')),
            (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                // Numbers come before words.
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => a.cmp(b),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_number_by_number() {
        let ordered = [
            "0.9",
            "1.0-alpha",
            "1.0-rc.1",
            "1.0-rc.2",
            "1.0",
            "1.0.0",
            "1.0.1",
            "1.2",
            "1.10",
            "2",
            "10",
            "2026-11",
            "latest",
        ];
        for pair in ordered.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(compare("1.0", "1.0"), Ordering::Equal);
    }

    #[test]
    fn names_and_versions_are_plain() {
        for (name, expected) in [
            ("email.reply", true),
            ("a", true),
            ("2-b_c", true),
            ("", false),
            (".hidden", false),
            ("_part", false),
            ("a@1", false),
            ("a/b", false),
            ("ä", false),
            ("a b", false),
        ] {
            assert_eq!(is_name(name), expected, "{name}");
        }
        assert!(is_version("1.0.0-rc.1+build.5"));
        assert!(!is_version("1.0@2"));
        assert!(!is_version(&"1".repeat(65)));
    }
}
