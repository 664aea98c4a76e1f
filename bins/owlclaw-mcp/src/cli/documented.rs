//! Every command that the documentation shows is one: words and flags that were renamed here and not
//! there are found.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use super::{Program, parse};

/// Prefix of a command of this program when it is run from the sources.
const FROM_SOURCES: &str = "cargo run --release -- ";

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for directory in [
        "",
        "docs",
        "examples/clients",
        "examples/retail",
        "deploy/systemd",
        "deploy/compose",
    ] {
        for entry in fs::read_dir(root.join(directory)).expect("it is there") {
            let path = entry.expect("it can be listed").path();
            let ending = path.extension().and_then(|it| it.to_str());
            // What was once true stays in the history of changes.
            let is_history = path.ends_with("CHANGELOG.md");
            if matches!(ending, Some("md" | "service")) && !is_history {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The commands of ours in a document: behind prompts, behind `ExecStart=` and the like, and those in
/// the text that begin with our name.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let joined = text.replace("\\\n", "\0");
    let mut number = 1;
    for line in joined.lines() {
        let here = number;
        number += 1 + line.matches('\0').count();
        let line = line.replace('\0', " ");
        let line = line.trim_start();
        if let Some(shown) = line.strip_prefix("$ ") {
            let shown = shown.replace(FROM_SOURCES, "owlclaw-mcp ");
            if let Some(at) = shown.find("owlclaw-mcp ")
                // Not as a part of a path or of somebody else's arguments.
                && shown[..at].split(' ').all(|it| it.is_empty() || it.contains('=') || it.ends_with('('))
            {
                found.push((here, shown[at..].to_owned()));
            } else if shown.contains(" <(owlclaw-mcp ") {
                let (_, inside) = shown.split_once("<(").expect("it was found");
                found.push((here, inside.trim_end_matches(')').to_owned()));
            }
        } else if let Some((_, command)) = line
            .split_once('=')
            .filter(|(key, _)| key.starts_with("Exec") && !line.starts_with('#'))
        {
            if let Some(at) = command.find("owlclaw-mcp ") {
                found.push((here, command[at..].to_owned()));
            }
        } else if !line.starts_with("//") {
            let inline = line.split('`').skip(1).step_by(2);
            let ours = inline.filter(|it| {
                it.starts_with("owlclaw-mcp ") || it.starts_with("owlclaw mcp-server ")
            });
            // A word in capitals at the place of a word, or an ellipsis, stand for many commands.
            let ours = ours.filter(|it| !it.contains('…') && !it.contains(" WORD"));
            found.extend(ours.map(|it| (here, it.to_owned())));
        }
    }
    found
}

/// The arguments as a shell would have them, up to what it would do with the output, or a comment.
fn arguments(command: &str) -> Vec<OsString> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in command.chars() {
        match (quote, letter) {
            (Some(mark), letter) if mark == letter => quote = None,
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(letter);
            }
            (None, ' ') => found.extend(word.take()),
            (None, '|' | '>' | '&' | ';') => break,
            (None, '#') if word.is_none() => break,
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    found.extend(word);
    found.into_iter().map(OsString::from).collect()
}

/// Returns true for an error that an unfinished command causes: text may quote just the beginning
/// of a command.
fn is_unfinished(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
    )
}

#[test]
fn what_the_documentation_types_is_understood() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in documents() {
        let text = fs::read_to_string(&path).expect("it is text");
        for (line, command) in commands(&text) {
            seen += 1;
            let arguments = arguments(&command);
            let program = match arguments[0] == "owlclaw" {
                true => Program::Owlclaw,
                false => Program::OwlclawMcp,
            };
            if let Err(error) = parse(program, arguments)
                && !is_unfinished(error.kind())
            {
                wrong.push(format!("{}:{line}: {command}\n{error}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Commands that nobody finds any more would all be right.
    assert!(seen > 60, "{seen} were found");
}

#[test]
fn commands_are_found_where_they_are() {
    let text = "\
$ owlclaw-mcp ledger query \\
    --limit 5 | grep x
$ A=b cargo run --release -- tools list
$ source <(owlclaw-mcp completions bash)
$ cargo build -p owlclaw-mcp --bins
ExecStart=/usr/local/bin/owlclaw-mcp start --config x
say `owlclaw-mcp doctor` or `owlclaw-mcp WORD …`";
    let found = commands(text);
    let found: Vec<(usize, &str)> = found
        .iter()
        .map(|(line, it)| (*line, it.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (1, "owlclaw-mcp ledger query      --limit 5 | grep x"),
            (3, "owlclaw-mcp tools list"),
            (4, "owlclaw-mcp completions bash"),
            (6, "owlclaw-mcp start --config x"),
            (7, "owlclaw-mcp doctor"),
        ]
    );
    assert_eq!(
        arguments("owlclaw-mcp tools call x --args '{\"a\": 1}' > out # so"),
        ["owlclaw-mcp", "tools", "call", "x", "--args", "{\"a\": 1}"].map(OsString::from)
    );
}
