//! `docs/requirements.md` has each criterion once, and the tests it names exist.

use std::{collections::BTreeMap, fs};

use tidy::{root, text};

const TABLE: &str = "docs/requirements.md";
const EDGES: &str = "docs/rough-edges.md";

/// Number of criteria that each of R1 to R15 has.
const CRITERIA: [usize; 15] = [10, 8, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 5, 5, 5];
const PROPERTIES: usize = 12;
/// Decisions that have a row: those that ask for more than the criteria do.
const DECISIONS: [usize; 13] = [3, 4, 5, 7, 8, 15, 21, 23, 28, 35, 38, 39, 40];
/// Items of document 002 that have a row: those of a client of one server, and of the manager of several.
const CLIENT: [&str; 20] = [
    "B2", "B3", "C1", "C2", "C3", "C4", "D1", "D2", "D5", "E1", "P1", "P2", "P3", "P4", "P5", "P6",
    "X4", "X6", "X9", "X10",
];
/// Items of document 003 that have a row.
const REGISTRY: std::ops::RangeInclusive<usize> = 0..=23;
/// Rows of the founding documents' map that have one: those about resources and prompts.
const FOUNDING: [usize; 24] = [
    71, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 112, 113, 114, 115, 116, 117,
    118, 119,
];

#[test]
fn every_criterion_has_one_row() {
    let rows = rows(&text(TABLE)).unwrap_or_else(|wrong| panic!("{TABLE}: {wrong}"));
    let missing: Vec<_> = expected().filter(|name| !rows.contains_key(name)).collect();
    assert!(missing.is_empty(), "{TABLE} has no row for {missing:?}");
    let unknown: Vec<_> = rows
        .keys()
        .filter(|name| !expected().any(|it| it == **name))
        .collect();
    assert!(
        unknown.is_empty(),
        "{TABLE} has rows for {unknown:?}, which do not exist"
    );
}

/// Rows of the founding documents' map about document 004.
const ROWS: std::ops::RangeInclusive<usize> = 1..=135;

#[test]
fn every_row_of_document_004_is_told_once() {
    const DOCUMENT: &str = "docs/document-004.md";
    let document = text(DOCUMENT);
    let told = document.lines().filter_map(|line| {
        let (numbers, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
        let verdict = rest.split(" | ").next().unwrap_or_default();
        let proof = rest.trim_end_matches(" |").rsplit(" | ").next()?;
        numbers
            .starts_with(|it: char| it.is_ascii_digit())
            .then_some((numbers, verdict, proof))
    });
    let mut rows = Vec::new();
    for (numbers, verdict, proof) in told {
        // What works has a test, and what was decided against needs none.
        if !(verdict == "not" && proof == "decided") {
            judge(proof).unwrap_or_else(|wrong| panic!("{DOCUMENT}: {numbers}: {wrong}"));
        }
        assert!(
            ["as it says", "otherwise", "not"].contains(&verdict),
            "{DOCUMENT}: {numbers} is `{verdict}`"
        );
        for part in numbers.split(", ") {
            let (first, last) = part.split_once('–').unwrap_or((part, part));
            let number = |it: &str| {
                it.parse::<usize>()
                    .unwrap_or_else(|_| panic!("{DOCUMENT}: {it}"))
            };
            rows.extend(number(first)..=number(last));
        }
    }
    rows.sort_unstable();
    assert_eq!(rows, ROWS.collect::<Vec<_>>(), "{DOCUMENT}");
}

#[test]
fn every_row_names_tests_that_exist() {
    let rows = rows(&text(TABLE)).unwrap_or_else(|wrong| panic!("{TABLE}: {wrong}"));
    let wrong: Vec<_> = rows
        .iter()
        .filter_map(|(name, proof)| Some(format!("{name}: {}", judge(proof).err()?)))
        .collect();
    assert!(wrong.is_empty(), "{TABLE} is wrong:\n{}", wrong.join("\n"));
}

#[test]
fn what_nothing_proves_is_said_plainly() {
    let rows = rows(&text(TABLE)).unwrap_or_else(|wrong| panic!("{TABLE}: {wrong}"));
    let edges = text(EDGES);
    let untold: Vec<_> = rows
        .iter()
        .filter(|(name, proof)| proof.starts_with("not yet:") && !is_named(name, &edges))
        .map(|(name, _)| name)
        .collect();
    assert!(
        untold.is_empty(),
        "{TABLE} says `not yet` of {untold:?}, of which {EDGES} says nothing"
    );
}

/// Returns true if a text names a criterion, and not one whose number only begins like it.
fn is_named(name: &str, text: &str) -> bool {
    let begins = |character: char| character.is_ascii_alphanumeric();
    text.match_indices(name).any(|(at, _)| {
        !text[at + name.len()..].starts_with(begins) && !text[..at].ends_with(begins)
    })
}

#[test]
fn a_criterion_is_named_by_its_whole_number() {
    for (text, expected) in [
        ("* **R1.1** is missing", true),
        ("of R1.1, R1.2", true),
        ("R1.10 is missing", false),
        ("XR1.1", false),
        ("R1.10 and R1.1.", true),
        ("", false),
    ] {
        assert_eq!(is_named("R1.1", text), expected, "{text}");
    }
}

fn expected() -> impl Iterator<Item = String> {
    let criteria = (1..).zip(CRITERIA);
    let criteria =
        criteria.flat_map(|(group, count)| (1..=count).map(move |it| format!("R{group}.{it}")));
    let properties = (1..=PROPERTIES).map(|it| format!("P{it}"));
    let decisions = DECISIONS.into_iter().map(|it| format!("D{it}"));
    let client = CLIENT.into_iter().map(|it| format!("002-{it}"));
    let founding = FOUNDING.into_iter().map(|it| format!("F{it}"));
    let registry = REGISTRY.map(|it| format!("003-S{it}"));
    let others = client.chain(registry).chain(founding);
    criteria.chain(properties).chain(decisions).chain(others)
}

/// Criterion to what is said to prove it.
fn rows(table: &str) -> Result<BTreeMap<String, String>, String> {
    let mut rows = BTreeMap::new();
    for (number, line) in tidy::prose(table) {
        let Some(line) = line.trim().strip_prefix('|') else {
            continue;
        };
        let cells: Vec<_> = line
            .trim_end_matches('|')
            .split(" | ")
            .map(str::trim)
            .collect();
        let name = cells[0];
        if matches!(name, "Criterion" | "Property" | "Decision") || name.starts_with("---") {
            continue;
        }
        let [_, what, proof] = cells.as_slice() else {
            return Err(format!("line {number} does not have three columns"));
        };
        if what.is_empty() {
            return Err(format!("line {number} does not say what {name} is"));
        }
        if rows.insert(name.to_owned(), (*proof).to_owned()).is_some() {
            return Err(format!("{name} has a second row, line {number}"));
        }
    }
    Ok(rows)
}

/// Checks that a last column is either a list of existing tests, or an excuse with a reason.
fn judge(proof: &str) -> Result<(), String> {
    if let Some(reason) = proof.strip_prefix("not yet:") {
        return match reason.trim() {
            "" => Err("`not yet:` wants a reason".to_owned()),
            _ => Ok(()),
        };
    }
    // An empty column has one part too, and that is no test.
    for part in proof.split(',') {
        let reference = part
            .trim()
            .strip_prefix('`')
            .and_then(|it| it.strip_suffix('`'));
        let (file, test) = reference
            .and_then(|it| it.split_once("::"))
            .ok_or_else(|| format!("{part:?} is not `path/to/file.rs::name_of_test`"))?;
        find(file, test)?;
    }
    Ok(())
}

fn find(file: &str, test: &str) -> Result<(), String> {
    let source = fs::read_to_string(root().join(file)).map_err(|_| format!("no file {file}"))?;
    let found = match file.rsplit_once('.') {
        Some((_, "rs")) => is_rust_test(&source, test)?,
        Some((_, "py")) => is_python_test(&source, test),
        _ => return Err(format!("{file} is neither Rust nor Python")),
    };
    if found {
        Ok(())
    } else {
        Err(format!("{file} has no test {test}"))
    }
}

/// Returns true if there is a function of this name that the test runner runs.
fn is_rust_test(source: &str, test: &str) -> Result<bool, String> {
    let lines: Vec<_> = source.lines().map(str::trim_start).collect();
    let is_it = |line: &str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        let rest = line
            .strip_prefix("fn ")
            .and_then(|line| line.strip_prefix(test));
        rest.is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    for index in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| is_it(line))
        .map(|(index, _)| index)
    {
        let attributes = lines[..index].iter().rev();
        let mut attributes =
            attributes.take_while(|line| line.starts_with('#') || line.starts_with("//"));
        let is_test = |line: &&&str| line.contains("test]") || line.contains("test(");
        if attributes.clone().any(|line| line.starts_with("#[ignore")) {
            return Err(format!("{test} is switched off"));
        }
        if attributes.find(is_test).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_python_test(source: &str, test: &str) -> bool {
    let mut lines = source.lines().map(str::trim_start);
    test.starts_with("test_")
        && lines.any(|line| {
            let line = line.strip_prefix("async ").unwrap_or(line);
            let rest = line
                .strip_prefix("def ")
                .and_then(|line| line.strip_prefix(test));
            rest.is_some_and(|rest| rest.starts_with('('))
        })
}

#[test]
fn a_row_proves_itself_or_gives_a_reason() {
    let here = "crates/tidy/tests/requirements.rs";
    let this = "a_row_proves_itself_or_gives_a_reason";
    for good in [
        format!("`{here}::{this}`"),
        format!("`{here}::{this}`, `{here}::every_criterion_has_one_row`"),
        "not yet: nobody wrote it".to_owned(),
    ] {
        assert_eq!(judge(&good), Ok(()), "{good}");
    }
    for (bad, says) in [
        (String::new(), "is not"),
        ("tests/x.rs".to_owned(), "is not"),
        (format!("`{here}::{this}`,"), "is not"),
        (format!("`{here}::judge`"), "no test judge"),
        (format!("`{here}::a_row`"), "no test a_row"),
        (
            format!("`{here}::{this}`, `{here}::nonsense`"),
            "no test nonsense",
        ),
        ("`crates/tidy/tests/nonsense.rs::x`".to_owned(), "no file"),
        ("`Cargo.toml::x`".to_owned(), "neither"),
        ("not yet: ".to_owned(), "reason"),
    ] {
        let wrong = judge(&bad).expect_err(&bad);
        assert!(wrong.contains(says), "{bad}: {wrong}");
    }
}

#[test]
fn tests_are_told_from_other_functions() {
    let source = "#[tokio::test(start_paused = true)]\n// why\nasync fn a() {}\nfn b() {}\n\
                  proptest! {\n    #[test]\n    fn c(x in 0..9) {}\n}\n#[test]\n#[ignore]\nfn d() {}";
    for (name, expected) in [
        ("a", Ok(true)),
        ("b", Ok(false)),
        ("c", Ok(true)),
        ("e", Ok(false)),
    ] {
        assert_eq!(is_rust_test(source, name), expected, "{name}");
    }
    is_rust_test(source, "d").unwrap_err();
    let source = "class TestX:\n    async def test_a(self): ...\ndef helper(): ...\n";
    assert!(is_python_test(source, "test_a"));
    assert!(!is_python_test(source, "helper") && !is_python_test(source, "test_"));
}

#[test]
fn rows_are_counted_once() {
    let table =
        "| Criterion | What | Proven by |\n|---|---|---|\n| R1.1 | a \\| b | not yet: x |\n";
    assert_eq!(rows(table).unwrap()["R1.1"], "not yet: x");
    let twice = format!("{table}| R1.1 | again | not yet: x |\n");
    assert!(rows(&twice).unwrap_err().contains("second row"));
    assert!(
        rows("| R1.1 | only two |\n")
            .unwrap_err()
            .contains("three columns")
    );
    assert_eq!(
        expected().count(),
        133 + 12 + 13 + 20 + REGISTRY.count() + FOUNDING.len()
    );
}
