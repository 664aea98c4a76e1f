//! `docs/wire-checks.md` names tests that exist, for every point.

use std::{fs, path::PathBuf};

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_test(source: &str, name: &str) -> bool {
    let claim = format!("async fn {name}()");
    let Some(at) = source.find(&claim) else {
        return false;
    };
    let before = source[..at].trim_end();
    before.ends_with(']')
        && before
            .lines()
            .next_back()
            .unwrap()
            .starts_with("#[tokio::test")
}

#[test]
fn every_point_has_tests_that_exist() {
    let document = read("../../docs/wire-checks.md");
    let rows: Vec<Vec<&str>> = document
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| Point"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let mut wrong = Vec::new();
    for number in 1..=22 {
        let point = format!("A{number}");
        if !rows.iter().any(|row| row[0] == point) {
            wrong.push(format!("{point} has no row"));
        }
    }
    for row in &rows {
        let (point, tests) = (row[0], row[2]);
        let mut file = None;
        let mut named = 0;
        for name in quoted(tests) {
            if name.ends_with(".rs") {
                file = Some(name);
                continue;
            }
            named += 1;
            let (path, name) = match (file.take(), name.split_once("::")) {
                (Some(file), _) => (format!("tests/{file}"), name),
                (None, Some((module, name))) => (format!("tests/wire/{module}.rs"), name),
                (None, None) => panic!("{point}: no module for {name}"),
            };
            if !is_test(&read(&path), name) {
                wrong.push(format!("{point}: {path} has no test {name}"));
            }
        }
        // One point is proven by others.
        if named == 0 && point != "A20" {
            wrong.push(format!("{point} names no test"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
