//! Agreement of the descriptions of the configuration with its types: the schema for editors, the
//! reference, the file to begin with, and the example in the documentation.

use std::path::{Path, PathBuf};

use config::{Environment, Overrides, STARTER};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares with what is in the repository, or with `REGENERATE=1` writes it there.
#[track_caller]
fn is_current(path: &str, expected: &str) {
    let path = root().join(path);
    if std::env::var_os("REGENERATE").is_some() {
        std::fs::write(&path, expected).expect("it can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is out of date: REGENERATE=1 cargo test -p config --test described",
        path.display()
    );
}

#[test]
fn the_schema_in_the_repository_is_current() {
    let schema = serde_json::to_string_pretty(&config::schema()).expect("it is plain data");
    is_current("mcp-server.schema.json", &format!("{schema}\n"));
}

#[test]
fn the_reference_in_the_documentation_is_current() {
    is_current("docs/config-reference.md", &config::reference());
}

/// The problems that loading finds, warnings too.
fn problems(text: &str) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("mcp-server.yaml"), text).expect("it can be written");
    // All that is referred to is there.
    let variables: Vec<&str> = text
        .split("${")
        .skip(1)
        .filter_map(|part| part.split_once('}').map(|(name, _)| name))
        .collect();
    let mut environment = Vec::new();
    for name in variables {
        let value = match name.ends_with("_URL") {
            true => "https://example.com/x",
            false => "a-text-that-is-as-long-as-secrets-should-be",
        };
        environment.push((name, value));
    }
    let environment: Environment = environment.into_iter().collect();
    let found = match config::load(&Overrides::default(), &environment, directory.path()) {
        Ok(loaded) => loaded.warnings,
        Err(rejected) => rejected.problems,
    };
    found.iter().map(ToString::to_string).collect()
}

/// Violations that a validator independent of our own code finds by the schema.
fn violations(text: &str) -> Vec<String> {
    let value = serde_saphyr::from_str::<Value>(text).expect("it is YAML");
    let schema = jsonschema::validator_for(&config::schema()).expect("it is a schema");
    let errors = schema.iter_errors(&value);
    errors
        .map(|error| format!("{} at {}", error, error.instance_path()))
        .collect()
}

/// The starter with every setting in it that is a comment.
fn everything_in_the_starter() -> String {
    let lines = STARTER.lines().map(|line| match line.strip_prefix('#') {
        // Two spaces, since settings are below `mcp_server:`; but what is said stands behind one.
        Some(setting) if setting.starts_with("  ") && !setting.starts_with("   owl") => setting,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The documents of the repository that show configurations.
fn documents() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md")];
    let docs = std::fs::read_dir(root().join("docs")).expect("it is there");
    let docs = docs.map(|entry| entry.expect("it can be listed").path());
    found.extend(docs.filter(|path| path.extension().is_some_and(|it| it == "md")));
    found.sort();
    found
}

/// The whole configurations that a document shows, each with the number of its first line.
fn configurations(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        if line.trim() != "```yaml" {
            continue;
        }
        // In a list a block is moved to the right as a whole.
        let margin = line.len() - line.trim_start().len();
        let inside: Vec<(usize, &str)> = lines
            .by_ref()
            .take_while(|(_, line)| line.trim() != "```")
            .map(|(number, line)| (number, line.get(margin..).unwrap_or_default()))
            .collect();
        if let Some((number, first)) = inside.first()
            && *first == "mcp_server:"
        {
            let block: Vec<&str> = inside.iter().map(|(_, line)| *line).collect();
            found.push((number + 1, block.join("\n")));
        }
    }
    found
}

#[test]
fn the_starter_is_right_as_it_is_and_with_everything_in_it() {
    for text in [STARTER.to_owned(), everything_in_the_starter()] {
        assert_eq!(problems(&text), [""; 0], "{text}");
        assert_eq!(violations(&text), [""; 0], "{text}");
    }
    let more = everything_in_the_starter();
    for section in [
        "  commands:",
        "  http:",
        "      ci:",
        "  ledger:",
        "  logging:",
    ] {
        assert!(
            more.lines().any(|line| line == section),
            "{section}\n{more}"
        );
    }
}

#[test]
fn the_configurations_in_the_documentation_are_right() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in documents() {
        let text = std::fs::read_to_string(&path).expect("it is text");
        for (line, block) in configurations(&text) {
            seen += 1;
            for problem in problems(&block).into_iter().chain(violations(&block)) {
                wrong.push(format!("{}:{line}: {problem}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Blocks that nobody finds any more would all be right.
    assert!(seen > 10, "{seen} were found");
}

#[test]
fn the_schema_knows_references_and_mistakes() {
    let right = [
        "mcp_server:\n",
        "mcp_server: {http: {port: '${PORT}'}, transport: '${HOW}'}",
        "mcp_server: {http: , logging: {level: DEBUG}}",
        "mcp_server: {governance: {default_quota: {monthly_budget: 0.5, max_calls_per_day: '${N}'}}}",
        "mcp_server: {commands: {x: {run: [a, [b, c]], input_schema: {city: string}}}}",
        "mcp_server: {app: null, development: true}",
    ];
    for text in right {
        assert_eq!(violations(text), [""; 0], "{text}");
    }
    let wrong = [
        "mcp_server: {http: {prot: 1}}",
        "mcp_server: {http: {port: 65536}}",
        "mcp_server: {http: {port: eighty}}",
        "mcp_server: {transport: carrier-pigeon}",
        "mcp_server: {development: maybe}",
        "mcp_server: {governance: {clients: {a: {quota: {max_calls: 1}}}}}",
        "server: {}",
    ];
    for text in wrong {
        assert!(!violations(text).is_empty(), "{text}");
    }
}
