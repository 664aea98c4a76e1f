//! Checks of the repository itself; they are in `tests/`. Here is what they share: which files
//! there are, and what cargo says about our crates.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// The root of the repository.
///
/// # Panics
///
/// If this crate was moved.
#[must_use]
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .expect("this crate is in crates/tidy")
}

/// The files of the repository whose names end in one of `endings` (with the dot), as paths from
/// its root, in order: those git tracks, and those it would if they were added.
///
/// # Panics
///
/// If git cannot be asked.
#[must_use]
pub fn files(endings: &[&str]) -> Vec<PathBuf> {
    let arguments = [
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ];
    let listed = output(Command::new("git").args(arguments));
    let mut files: Vec<PathBuf> = listed
        .split('\0')
        .filter(|name| endings.iter().any(|ending| name.ends_with(ending)))
        .map(PathBuf::from)
        // What was deleted but not yet committed is still listed.
        .filter(|path| root().join(path).is_file())
        .collect();
    files.sort();
    files.dedup();
    files
}

/// The text of a file, by its path from the root.
///
/// # Panics
///
/// If it cannot be read as text.
#[must_use]
pub fn text(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{} cannot be read: {error}", path.display()))
}

/// Output of `cargo metadata` about each member of the workspace.
///
/// # Panics
///
/// If cargo cannot be asked.
#[must_use]
pub fn packages() -> Vec<Value> {
    let arguments = ["metadata", "--no-deps", "--format-version=1", "--offline"];
    let metadata = output(Command::new(env!("CARGO")).args(arguments));
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo speaks JSON");
    metadata["packages"]
        .as_array()
        .cloned()
        .expect("there are packages")
}

/// The part of a markdown text that is prose: the lines, numbered from 1, outside fenced blocks.
pub fn prose(markdown: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    let numbered = markdown
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line));
    numbered.filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn output(command: &mut Command) -> String {
    let output = command
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {complaint}");
    String::from_utf8(output.stdout).expect("the output is text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_blocks_are_no_prose() {
        let text = "a\n```rust\nb\n```\nc\n";
        assert_eq!(prose(text).collect::<Vec<_>>(), [(1, "a"), (5, "c")]);
    }

    #[test]
    fn files_are_found_by_their_ending() {
        let here = Path::new("crates/tidy/src/lib.rs");
        assert!(files(&[".rs"]).iter().any(|path| path == here));
        assert!(!files(&[".md"]).iter().any(|path| path == here));
    }
}
