//! The drawing in `docs/architecture.md` is the code's: who may use whom is decided there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use serde_json::Value;
use tidy::{packages, root, text};

const DRAWING: &str = "docs/architecture.md";

/// Never shipped: nothing shipped may depend on them, and they are not drawn.
const FOR_TESTS: [&str; 2] = ["testkit", "tidy"];

type Edges = BTreeMap<String, BTreeSet<String>>;

#[test]
fn layers_are_as_drawn() {
    let actual = actual();
    assert!(
        root().join(DRAWING).is_file(),
        "{DRAWING} is to have a block that begins with ```layers and says:\n\n{}",
        draw(&actual)
    );
    let drawn = drawn(&text(DRAWING)).unwrap_or_else(|wrong| {
        panic!(
            "{DRAWING}: {wrong}\nThe code would be drawn as:\n\n{}",
            draw(&actual)
        )
    });
    let differences = differences(&drawn, &actual);
    assert!(
        differences.is_empty(),
        "The code and {DRAWING} disagree:\n{}\nMend the code, or, if the new edge is meant, \
         the drawing, in a commit that gives the reason. The code would be drawn as:\n\n{}",
        differences.join("\n"),
        draw(&actual)
    );
}

#[test]
fn nothing_shipped_depends_on_what_only_tests_need() {
    for package in packages() {
        let from = name(&package);
        if FOR_TESTS.contains(&from.as_str()) {
            continue;
        }
        let needless: Vec<_> = below(&package)
            .filter(|it| FOR_TESTS.contains(&it.as_str()))
            .collect();
        assert!(
            needless.is_empty(),
            "{from} needs {needless:?} outside of its tests"
        );
    }
}

/// Reads the drawing. Each line may only name crates of lines above it, so what is drawn has no
/// cycle.
fn drawn(document: &str) -> Result<Edges, String> {
    let block = document
        .split_once("```layers\n")
        .and_then(|(_, rest)| rest.split_once("```"))
        .map(|(block, _)| block)
        .ok_or("there is no block that begins with ```layers")?;
    let mut edges = Edges::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let (upper, lower) = line.split_once("->").unwrap_or((line, ""));
        let upper = upper.trim();
        let lower: BTreeSet<_> = lower.split_whitespace().map(str::to_owned).collect();
        if let Some(unknown) = lower.iter().find(|lower| !edges.contains_key(*lower)) {
            return Err(format!("{unknown} has no line above that of {upper}"));
        }
        if edges.insert(upper.to_owned(), lower).is_some() {
            return Err(format!("{upper} has two lines"));
        }
    }
    Ok(edges)
}

/// Edges in the manifests: normal dependencies among our crates, for shipped code.
fn actual() -> Edges {
    let packages = packages();
    let shipped = packages.iter().filter(|package| {
        let manifest = package["manifest_path"]
            .as_str()
            .expect("a package has a manifest");
        let examples = root().join("examples");
        !FOR_TESTS.contains(&name(package).as_str())
            && !std::path::Path::new(manifest).starts_with(examples)
    });
    let shipped: BTreeMap<_, _> = shipped.map(|package| (name(package), package)).collect();
    let edges = shipped.iter().map(|(upper, package)| {
        let lower = below(package)
            .filter(|lower| shipped.contains_key(lower))
            .collect();
        (upper.clone(), lower)
    });
    edges.collect()
}

fn name(value: &Value) -> String {
    value["name"]
        .as_str()
        .expect("everything has a name")
        .to_owned()
}

fn below(package: &Value) -> impl Iterator<Item = String> {
    let dependencies = package["dependencies"]
        .as_array()
        .expect("a package has dependencies");
    dependencies
        .iter()
        .filter(|dependency| dependency["kind"].is_null())
        .map(name)
}

fn differences(drawn: &Edges, actual: &Edges) -> Vec<String> {
    let none = BTreeSet::new();
    let crates: BTreeSet<_> = drawn.keys().chain(actual.keys()).collect();
    let mut differences = Vec::new();
    for upper in crates {
        match (drawn.contains_key(upper), actual.contains_key(upper)) {
            (false, true) => differences.push(format!("- {upper} is not drawn")),
            (true, false) => differences.push(format!("- {upper} is drawn, but does not exist")),
            _ => {}
        }
        let drawn = drawn.get(upper).unwrap_or(&none);
        let actual = actual.get(upper).unwrap_or(&none);
        for lower in actual.difference(drawn) {
            differences.push(format!("- {upper} uses {lower}, which is not drawn"));
        }
        for lower in drawn.difference(actual) {
            differences.push(format!("- {upper} does not use {lower}, which is drawn"));
        }
    }
    differences
}

/// The edges as the block would have them, lowest first.
fn draw(edges: &Edges) -> String {
    let width = edges.keys().map(String::len).max().unwrap_or(0);
    let mut left: Vec<_> = edges.iter().collect();
    let mut above = BTreeSet::new();
    let mut block = String::new();
    while let Some(next) = left.iter().position(|(_, lower)| lower.is_subset(&above)) {
        let (upper, lower) = left.remove(next);
        above.insert(upper.clone());
        let lower: Vec<_> = lower.iter().map(String::as_str).collect();
        let line = match lower.is_empty() {
            true => upper.clone(),
            false => format!("{upper:width$} -> {}", lower.join(" ")),
        };
        writeln!(block, "{line}").expect("a string takes everything");
    }
    block
}

#[test]
fn a_drawing_is_read_and_compared() {
    let document = "x\n```layers\na\nb -> a\nc -> a b\n```\n";
    let edges = drawn(document).unwrap();
    assert_eq!(draw(&edges), "a\nb -> a\nc -> a b\n");
    assert_eq!(differences(&edges, &edges), Vec::<String>::new());
    let fewer = drawn("```layers\na\nb\nd\n```").unwrap();
    let expected = [
        "- b uses a, which is not drawn",
        "- c is not drawn",
        "- c uses a, which is not drawn",
        "- c uses b, which is not drawn",
        "- d is drawn, but does not exist",
    ];
    assert_eq!(differences(&fewer, &edges), expected);
}

#[test]
fn a_drawing_that_could_hide_a_cycle_is_refused() {
    for (block, says) in [
        ("a -> b\nb", "b has no line above that of a"),
        ("a -> a", "a has no line above that of a"),
        ("a\na", "two lines"),
    ] {
        let wrong = drawn(&format!("```layers\n{block}\n```")).unwrap_err();
        assert!(wrong.contains(says), "{wrong}");
    }
    drawn("no block").unwrap_err();
}
