//! No trailing blanks, no tabs, no names that do not belong into the repository.

use std::path::Path;

use tidy::{files, text};

/// Written in two parts, so that this file does not contain them.
const FORBIDDEN: [(&str, &str); 11] = [
    ("crates", ".io"),
    ("pypi", ".org"),
    ("python", "hosted.org"),
    ("npmjs", ".org"),
    ("npmjs", ".com"),
    ("proxy.golang", ".org"),
    ("deb.debian", ".org"),
    ("archive.ubuntu", ".com"),
    ("/wo", "rk/main"),
    ("/wo", "rk/shared"),
    ("FIX", "ME"),
];

#[test]
fn lines_end_cleanly_and_have_no_tabs() {
    let untidy = each_line(&[".rs", ".md"], |line| {
        if line.contains('\t') {
            return Some("a tab".to_owned());
        }
        let trailing = line.ends_with(char::is_whitespace);
        trailing.then(|| "a blank at the end".to_owned())
    });
    assert!(untidy.is_empty(), "untidy lines:\n{}", untidy.join("\n"));
}

#[test]
fn files_end_with_one_newline() {
    let wrong: Vec<_> = checked(&[".rs", ".md"])
        .into_iter()
        .filter(|path| {
            let text = text(path);
            !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n"))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "these do not end with exactly one newline: {wrong:?}"
    );
}

#[test]
fn forbidden_words_are_absent() {
    let endings = [
        ".rs", ".md", ".py", ".toml", ".yaml", ".yml", ".json", ".sh",
    ];
    let found = each_line(&endings, forbidden);
    assert!(
        found.is_empty(),
        "these do not belong here:\n{}",
        found.join("\n")
    );
}

fn forbidden(line: &str) -> Option<String> {
    let words = FORBIDDEN.iter().map(|(start, end)| format!("{start}{end}"));
    words.into_iter().find(|word| line.contains(word.as_str()))
}

/// The official schemas are kept byte for byte.
fn checked(endings: &[&str]) -> Vec<std::path::PathBuf> {
    let official = Path::new("crates/testkit/mcp-schema");
    files(endings)
        .into_iter()
        .filter(|path| !path.starts_with(official))
        .collect()
}

fn each_line(endings: &[&str], check: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for path in checked(endings) {
        for (index, line) in text(&path).split('\n').enumerate() {
            if let Some(what) = check(line) {
                found.push(format!("{}:{}: {what}", path.display(), index + 1));
            }
        }
    }
    found
}

#[test]
fn a_forbidden_word_is_seen() {
    for (start, end) in FORBIDDEN {
        let line = format!("see {start}{end} there");
        assert_eq!(forbidden(&line), Some(format!("{start}{end}")));
    }
    assert_eq!(forbidden("an innocent line"), None);
}
