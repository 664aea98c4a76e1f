//! Properties of templates: no argument becomes template code, and nothing panics.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, fs};

use adapter_prompts::{MAX_OUTPUT_BYTES, PromptCatalog, PromptOptions, RenderError};
use proptest::prelude::*;

/// Texts that mean something to the template language, to JSON or to terminals, and any others.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("{{".to_owned()),
        Just("}}".to_owned()),
        Just("{%".to_owned()),
        Just("%}".to_owned()),
        Just("{#".to_owned()),
        Just("{{ other }}".to_owned()),
        Just("{% include '_part.md' %}".to_owned()),
        Just("{{ self }}".to_owned()),
        Just("## assistant\n".to_owned()),
        Just("---\n".to_owned()),
        Just("\0\u{1b}[2J\u{202e}".to_owned()),
        Just("x".repeat(5_000)),
        ".{0,20}",
        "[a-z_|.()'\" ]{0,20}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn sent(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn what_a_client_sends_comes_out_as_it_is(value in hostile(), other in hostile()) {
        let directory = tempfile::tempdir().unwrap();
        let file = "---\narguments:\n- {name: value, required: true}\n- {name: other, required: true}\n\
                    - {name: list, type: array, required: true}\n---\n\
                    [{{ value }}]\n## but no role\n{% include \"_part.md\" %}{{ list[0] }}|{{ list|tojson }}|{{ list }}";
        fs::write(directory.path().join("p.md"), file).unwrap();
        fs::write(directory.path().join("_part.md"), "<{{ other }}>").unwrap();
        let catalog = PromptCatalog::scan(&PromptOptions::new(directory.path()));
        let version = catalog.version("p").unwrap().unwrap();
        let list = serde_json::to_string(&[&value]).unwrap();
        let filled = version.render(&sent(&[("value", &value), ("other", &other), ("list", &list)]));
        let expected = format!("[{value}]\n## but no role\n<{other}>{value}|{list}|{list}");
        match filled {
            Ok(messages) => {
                prop_assert_eq!(messages.len(), 1);
                prop_assert_eq!(&messages[0].text, expected.trim());
            }
            Err(RenderError::Arguments(mistakes)) => {
                prop_assert!(value.len().max(other.len()).max(list.len()) > 64 * 1024, "{:?}", mistakes);
            }
            Err(error) => prop_assert!(expected.len() > 50_000, "{}", error),
        }
    }

    #[test]
    fn any_file_is_a_prompt_or_held(front in hostile(), body in hostile(), part in hostile()) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("p.md"), format!("---\n{front}\n---\n{body}")).unwrap();
        fs::write(directory.path().join("q.md"), format!("---\n---\nx{body}{{% include \"_part.md\" %}}")).unwrap();
        fs::write(directory.path().join("_part.md"), &part).unwrap();
        let catalog = PromptCatalog::scan(&PromptOptions::new(directory.path()));
        for name in ["p", "q"] {
            let read = catalog.version(name).expect("no prompt is lost");
            if let Ok(version) = read
                && let Ok(messages) = version.render(&BTreeMap::new())
            {
                let bytes: usize = messages.iter().map(|it| it.text.len()).sum();
                prop_assert!(bytes <= MAX_OUTPUT_BYTES);
            }
        }
    }

    #[test]
    fn no_name_leads_out_of_the_directory(name in ".{0,40}", path in "(\\.\\./|/|_|[a-z.]){0,12}") {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("_secret"), "secret").unwrap();
        fs::write(parent.path().join("secret.md"), "---\n---\nsecret").unwrap();
        let root = parent.path().join("prompts");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("p.md"), format!("---\n---\nx{{% include \"{path}\" %}}")).unwrap();
        let catalog = PromptCatalog::scan(&PromptOptions::new(&root));
        let is_there = catalog.version(&name).is_some();
        prop_assert_eq!(is_there, name == "p" || name == "p@1");
        prop_assert!(catalog.version("p").unwrap().is_err(), "{}", path);
        prop_assert!(catalog.version("../secret").is_none());
    }
}
