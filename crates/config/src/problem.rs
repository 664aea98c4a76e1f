//! Problems of a configuration, each with its place and a cure.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

/// The longest part of a source line that a snippet shows, in characters.
const MAX_SNIPPET_CHARACTERS: usize = 100;

/// Severity of a problem: whether it keeps the server from starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// The configuration is used all the same.
    Warning,
}

/// A place in the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Position {
    /// The file as the operator named it.
    pub file: String,
    /// Counted from 1; 0 where the file as a whole is meant.
    pub line: usize,
    /// Counted from 1, in characters; 0 where the file as a whole is meant.
    pub column: usize,
    /// The line itself, for display only.
    #[serde(skip)]
    pub(crate) snippet: Option<Snippet>,
}

/// The layer that a value, or a mistake, came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Default value, set by no source.
    Default,
    /// The configuration file.
    File(Position),
    /// An environment variable, by name.
    Environment(String),
    /// A command line flag, with its dashes.
    CommandLine(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(Position { file, line: 0, .. }) => f.write_str(file),
            Origin::File(at) => write!(f, "{}:{}:{}", at.file, at.line, at.column),
            Origin::Environment(name) => write!(f, "environment variable {name}"),
            Origin::CommandLine(flag) => write!(f, "command line flag {flag}"),
        }
    }
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Severity: an error is fatal.
    pub severity: Severity,
    /// One sentence.
    pub message: String,
    /// The key it concerns, without the leading `mcp_server.`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Origin of the mistake.
    pub origin: Origin,
    /// Advice, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The key that was probably meant, where the one that stands there is unknown; empty where that
    /// may be any.
    #[serde(skip)]
    pub(crate) meant: Option<String>,
}

impl Problem {
    /// A mistake, by which the configuration cannot be used.
    pub fn error(origin: Origin, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            key: None,
            origin,
            hint: None,
            meant: None,
        }
    }

    /// An oddity, with which the configuration can be used.
    pub fn warning(origin: Origin, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(origin, message)
        }
    }

    /// The same problem as a mistake.
    pub fn as_error(self) -> Self {
        Self {
            severity: Severity::Error,
            ..self
        }
    }

    /// Names the key that the problem is about.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self {
            key: Some(key.into()),
            ..self
        }
    }

    /// Adds the cure.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    #[cfg(test)]
    pub(crate) fn meant(self, key: impl Into<String>) -> Self {
        Self {
            meant: Some(key.into()),
            ..self
        }
    }

    /// Keeps the place, and drops the text of the line.
    pub fn without_line(mut self) -> Self {
        if let Origin::File(at) = &mut self.origin {
            at.snippet = None;
        }
        self
    }

    /// The same, if it stands on one of these lines.
    pub(crate) fn hide_lines(&mut self, lines: &BTreeSet<usize>) {
        if let Origin::File(at) = &mut self.origin
            && lines.contains(&at.line)
        {
            at.snippet = None;
        }
    }

    /// Adds the cure, if there is one.
    pub fn hint_if(self, hint: Option<String>) -> Self {
        Self {
            hint: hint.or(self.hint),
            ..self
        }
    }
}

/// `error: …`, the place with its line, `hint: …`; several lines, no newline at the end.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}", printable(&self.message))?;
        match &self.origin {
            Origin::Default => {}
            Origin::File(Position {
                snippet: Some(snippet),
                line,
                ..
            }) => {
                let gutter = line.to_string().len();
                write!(f, "\n{:gutter$}--> {}", "", self.origin)?;
                write!(f, "\n{:gutter$} |", "")?;
                write!(f, "\n{line} | {}", snippet.text)?;
                let (before, width) = (snippet.before, snippet.width);
                write!(f, "\n{:gutter$} | {:before$}{:^<width$}", "", "", "")?;
            }
            origin => write!(f, "\n --> {origin}")?,
        }
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {}", printable(hint)),
            None => Ok(()),
        }
    }
}

/// A line of the file, cut to what fits, with the part that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snippet {
    text: String,
    /// Characters before the marked part.
    before: usize,
    /// Characters marked; at least 1.
    width: usize,
}

impl Snippet {
    /// `column` counts from 1; `width` is clipped to the line.
    pub(crate) fn new(line: &str, column: usize, width: usize) -> Self {
        let characters: Vec<char> = line.trim_end().chars().collect();
        let start = column.saturating_sub(1).min(characters.len());
        // A long line is shown from a little before the mistake.
        let from = if characters.len() <= MAX_SNIPPET_CHARACTERS {
            0
        } else {
            start.saturating_sub(MAX_SNIPPET_CHARACTERS / 2)
        };
        let to = characters.len().min(from + MAX_SNIPPET_CHARACTERS);
        let text: String = characters[from..to].iter().collect();
        let room = to.saturating_sub(start).max(1);
        Self {
            text: printable(&text),
            before: start - from,
            width: width.clamp(1, room),
        }
    }
}

/// Texts in backquotes, one after another.
pub(crate) fn quoted(texts: &[String], between: &str) -> String {
    let quoted: Vec<_> = texts.iter().map(|it| format!("`{it}`")).collect();
    quoted.join(between)
}

/// Control characters would let a file paint over the terminal that shows the message, and line
/// ends would let it invent messages. As many characters as before, so that marks stay in place.
pub fn printable(text: &str) -> String {
    let shown = |c| match c {
        '\t' | '\n' | '\r' => ' ',
        c if redaction::is_misleading(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shown_in_another_order_than_it_has() {
        let text = "to\n\u{202e}ecila\u{202c} and \u{2066}x\u{9b}2J\u{1b} é 漢";
        assert_eq!(
            printable(text),
            "to \u{fffd}ecila\u{fffd} and \u{fffd}x\u{fffd}2J\u{fffd} é 漢"
        );
    }

    #[test]
    fn a_problem_shows_the_line_and_marks_the_word() {
        let snippet = Some(Snippet::new("    prot: 9000", 5, 4));
        let at = Position {
            file: "mcp-server.yaml".into(),
            line: 12,
            column: 5,
            snippet,
        };
        let problem = Problem::error(Origin::File(at), "unknown key `http.prot`").hint("look");
        let shown = "error: unknown key `http.prot`
  --> mcp-server.yaml:12:5
   |
12 |     prot: 9000
   |     ^^^^
hint: look";
        assert_eq!(problem.to_string(), shown);
    }

    #[test]
    fn long_lines_are_cut_around_the_mistake_and_stay_harmless() {
        let line = format!("{}\u{1b}[31mhere{}", "x".repeat(400), "y".repeat(400));
        let snippet = Snippet::new(&line, 406, 4);
        assert_eq!(snippet.text.chars().count(), MAX_SNIPPET_CHARACTERS);
        assert!(!snippet.text.contains('\u{1b}'));
        let marked: String = snippet
            .text
            .chars()
            .skip(snippet.before)
            .take(snippet.width)
            .collect();
        assert_eq!(marked, "here");
    }

    #[test]
    fn a_mark_beyond_the_end_of_the_line_is_one_character() {
        assert_eq!(
            Snippet::new("a: ", 40, 7),
            Snippet {
                text: "a:".into(),
                before: 2,
                width: 1
            }
        );
    }
}
