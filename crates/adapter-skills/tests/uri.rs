//! Property 3: URIs and paths are each other's inverse.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use adapter_skills::{SkillPattern, SkillUri};
use proptest::prelude::*;

/// Text that can be one component of a path and of a URI, with reserved characters, spaces and
/// other scripts more often than chance would have them.
fn segment() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => "[a-z0-9-]",
        2 => "[ %?#\\[\\]@:*+&=;,~._A-Z!$'()<>{}|^`\"]",
        1 => "[交易监控ñéß🦉]",
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(character, 1..12)
        .prop_map(|parts| parts.concat())
        .prop_filter("one component", |text| {
            !matches!(text.as_str(), "" | "." | "..")
                && !text.contains(['/', '\\'])
                && !text.contains(char::is_control)
        })
}

fn segments() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(segment(), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn path_to_uri_to_path_is_exact(parts in segments(), flat in segment()) {
        let path: PathBuf = parts.iter().collect();
        // The one pair of paths that shares a URI; see `from_relative_directory`.
        prop_assume!(parts.len() != 2 || parts[0] != flat);
        let uri = SkillUri::from_relative_directory(&path, &flat).unwrap();
        prop_assert_eq!(uri.relative_directory(&flat), path.clone());

        let text = uri.to_string();
        let again: SkillUri = text.parse().unwrap();
        prop_assert_eq!(&again, &uri);
        prop_assert_eq!(again.to_string(), text);
        prop_assert_eq!(again.relative_directory(&flat), path);
    }

    #[test]
    fn uri_to_path_to_uri_is_exact(mut parts in segments(), flat in segment()) {
        parts.insert(0, flat.clone());
        let uri = SkillUri::from_segments(parts).unwrap();
        let path = uri.relative_directory(&flat);
        prop_assert_eq!(SkillUri::from_relative_directory(&path, &flat), Ok(uri));
    }

    #[test]
    fn a_written_uri_is_plain_ascii_and_names_its_parts(parts in segments(), flat in segment()) {
        let path: PathBuf = parts.iter().collect();
        let uri = SkillUri::from_relative_directory(&path, &flat).unwrap();
        let text = uri.to_string();
        let rest = text.strip_prefix("skill://").unwrap();
        prop_assert!(rest.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._~%/".contains(&it)));
        prop_assert_eq!(uri.name(), parts.last().unwrap());
        let category = if parts.len() == 1 { flat } else { parts[..parts.len() - 1].join("/") };
        prop_assert_eq!(uri.category(), category);
    }

    #[test]
    fn no_text_makes_a_uri_that_leaves_its_directory(text in "skill://(a|交|\\.|%2[eE]|\\PC)?(/?(a|\\.\\.|\\.|%2[eEfF]|%5[cC]|%00|\\PC)){1,6}") {
        if let Ok(uri) = text.parse::<SkillUri>() {
            for part in uri.segments() {
                let mut components = Path::new(part).components();
                let only = components.next();
                prop_assert!(matches!(only, Some(std::path::Component::Normal(it)) if it == part.as_str()));
                prop_assert!(components.next().is_none());
                prop_assert!(!part.contains(['\\', '\0']));
            }
            prop_assert_eq!(uri.to_string().parse(), Ok(uri));
        }
    }

    #[test]
    fn a_uri_matches_itself_and_the_patterns_around_it(parts in prop::collection::vec(segment(), 2..5)) {
        let uri = SkillUri::from_segments(parts).unwrap();
        let text = uri.to_string();
        let (category, name) = text.strip_prefix("skill://").unwrap().rsplit_once('/').unwrap();
        for pattern in [
            text.clone(),
            "skill://*".to_owned(),
            format!("skill://{category}/*"),
            format!("skill://*/{name}"),
            format!("{text}*"),
        ] {
            let parsed: SkillPattern = pattern.parse().unwrap();
            prop_assert!(parsed.matches(&uri), "{} on {}", pattern, text);
        }
        let other: SkillPattern = format!("skill://{category}-/*").parse().unwrap();
        prop_assert!(!other.matches(&uri));
    }
}
