//! No trailing blanks, no tabs, no names that do not belong into the repository, and no doc comment
//! whose first word hides its subject.

use std::collections::BTreeMap;
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

/// First words of doc comments that do not name the subject. "Whether it is open" leaves the reader to
/// find out what the item is; "Returns true if the connection is open" says it.
const REFUSED: &str = "What Whatever Whether Which Whichever Who Whoever Whom Whose Where Wherever \
    When Whenever Why How However It Its It's That This These Those They Nobody Nothing Somebody \
    Someone Something Everybody Everyone Everything Anybody Anyone Anything";

/// Doc comments that begin with such a word, for each directory that still has some. The numbers
/// only shrink.
const STILL: &[(&str, usize)] = &[];

/// First words of the doc comments in `source`, each with the number of its line.
fn first_words(source: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut before = None;
    for (index, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let marker = ["///", "//!"].into_iter().find(|it| line.starts_with(it));
        let text = marker.and_then(|marker| line.strip_prefix(marker));
        // Four slashes are a rule across the page.
        let text = text.filter(|text| !text.starts_with('/'));
        let marker = marker.filter(|_| text.is_some());
        if let Some(text) = text
            && marker != before
        {
            let letter = |it: char| it.is_alphabetic() || it == '\'';
            let text = text.trim_start_matches(|it: char| !letter(it));
            let end = text.find(|it: char| !letter(it)).unwrap_or(text.len());
            found.push((index + 1, &text[..end]));
        }
        before = marker;
    }
    found
}

/// The first two parts of a path: `crates/ledger`, `bins/owlclaw-mcp`.
fn directory(path: &Path) -> String {
    let parts: Vec<_> = path.iter().take(2).map(|it| it.to_string_lossy()).collect();
    parts.join("/")
}

#[test]
fn doc_comments_begin_with_a_noun_phrase_or_an_imperative() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files(&[".rs"]) {
        for (line, word) in first_words(&text(&path)) {
            if REFUSED.split_whitespace().any(|refused| refused == word) {
                let place = format!("{}:{line}: {word}", path.display());
                found.entry(directory(&path)).or_default().push(place);
            }
        }
    }
    let mut wrong = Vec::new();
    for (directory, places) in &found {
        let still = STILL.iter().find(|(name, _)| name == directory);
        if places.len() > still.map_or(0, |(_, count)| *count) {
            wrong.push(places.join("\n"));
        }
    }
    assert!(
        wrong.is_empty(),
        "these doc comments do not name their subject:\n{}",
        wrong.join("\n")
    );
    for (directory, count) in STILL {
        let left = found.get(*directory).map_or(0, Vec::len);
        assert_eq!(left, *count, "{directory} has fewer now: lower its number");
    }
}

#[test]
fn the_first_word_of_each_doc_comment_is_seen() {
    let source = "//! `Page` of the crate.\n//! Whether\n\n//// no\n/// **Whether** so.\n/// It\n\
                  fn a() {}\n    /// It's\n//! That\n// What\n///\n";
    let expected = [
        (1, "Page"),
        (5, "Whether"),
        (8, "It's"),
        (9, "That"),
        (11, ""),
    ];
    assert_eq!(first_words(source), expected);
}
