//! Requirements for the manifest of every crate.

use tidy::{packages, root};

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for manifest in manifests() {
        let text = std::fs::read_to_string(&manifest).unwrap();
        assert!(
            takes_lints(&text),
            "{manifest} needs:\n[lints]\nworkspace = true"
        );
    }
}

#[test]
fn every_crate_says_what_it_is_and_is_never_published() {
    let packages = packages();
    assert!(
        packages.len() > 10,
        "cargo names only {} packages",
        packages.len()
    );
    for package in packages {
        let name = &package["name"];
        assert_eq!(
            package["publish"],
            serde_json::json!([]),
            "{name} could be published"
        );
        let description = package["description"].as_str().unwrap_or_default();
        assert!(!description.is_empty(), "{name} has no description");
    }
}

#[test]
fn every_crate_is_a_member() {
    let members: Vec<_> = manifests();
    // They have dependencies that nothing else has.
    let own = [
        "fuzz/Cargo.toml",
        "tests/client-cost/rmcp/Cargo.toml",
        "tests/clients/servers/rmcp/Cargo.toml",
    ];
    let own = own.map(std::path::Path::new);
    for manifest in tidy::files(&["Cargo.toml"]) {
        let absolute = root().join(&manifest).display().to_string();
        let workspace = manifest.as_os_str() == "Cargo.toml";
        let known = workspace || own.contains(&manifest.as_path()) || members.contains(&absolute);
        assert!(known, "{} is in no workspace", manifest.display());
    }
}

/// The manifests of all members.
fn manifests() -> Vec<String> {
    let path = |package: &serde_json::Value| package["manifest_path"].as_str().map(str::to_owned);
    packages().iter().filter_map(path).collect()
}

/// Returns true if a manifest has the table `[lints]` with nothing but `workspace = true`.
fn takes_lints(manifest: &str) -> bool {
    let after = manifest.split_once("[lints]\n").map(|(_, rest)| rest);
    let table = after.and_then(|rest| rest.split("\n[").next());
    table.is_some_and(|table| table.trim() == "workspace = true")
}

#[test]
fn missing_lints_are_seen() {
    assert!(takes_lints(
        "[package]\n\n[lints]\nworkspace = true\n\n[dependencies]\n"
    ));
    assert!(!takes_lints("[package]\n"));
    assert!(!takes_lints("[lints]\nworkspace = false\n"));
    assert!(!takes_lints("[lints.rust]\nworkspace = true\n"));
}
