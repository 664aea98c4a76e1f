//! Reading any file yields a configuration or a list of problems.

use config::{Environment, Overrides, load};
use proptest::prelude::*;

const FILE: &str = "\
mcp_server:
  transport: http
  app: ${APP}
  http: {host: \"::1\", port: 0x10, allowed_origins: [&o 'https://a.example', *o]}
  governance:
    default_quota: {monthly_budget: 12.50, max_calls_per_day: 7}
    clients:
      \"team é\": {tools: {allow: [\"a*\", b], deny: []}, quota: {<<: {max_calls_per_day: 1}}}
  logging: {level: !!str debug, format: |
    text}
";

fn piece() -> impl Strategy<Value = String> {
    let pieces = [
        "\n",
        " ",
        "  ",
        "\t",
        ":",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "'",
        "\"",
        "\\",
        "#",
        "&a ",
        "*a",
        "<<: ",
        "!!binary ",
        "!x ",
        "|",
        ">",
        "?",
        "${",
        "}",
        "$${",
        "~",
        "---\n",
        "%",
        "@",
        "\u{feff}",
        "\u{85}",
        "é",
        "🦉",
        "\0",
        "\u{1b}",
        "-1",
        "1e9",
        ".nan",
        "9999999999999999999999",
        "mcp_server",
        "http",
        "null",
    ];
    prop_oneof![
        4 => prop::sample::select(pieces.to_vec()).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn characters(text: &str) -> Vec<char> {
    text.chars().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_file_makes_us_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..8_usize, piece()), 0..6)
    ) {
        let mut file = characters(FILE);
        for (at, removed, inserted) in edits {
            let start = at.index(file.len() + 1);
            let end = (start + removed).min(file.len());
            file.splice(start..end, inserted.chars());
        }
        let file: String = file.into_iter().collect();
        let directory = tempfile::tempdir().expect("a directory can be made");
        std::fs::write(directory.path().join("mcp-server.yaml"), &file).expect("writable");
        let environment = Environment::from([("APP", "shop:app")]);
        if let Err(rejected) = load(&Overrides::default(), &environment, directory.path()) {
            prop_assert!(!rejected.problems.is_empty());
            for problem in rejected.problems {
                let shown = problem.to_string();
                prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
                // The message, its place in four lines, the hint.
                prop_assert!(shown.lines().count() <= 6, "{shown}");
            }
        }
    }
}
