//! How what is said to people looks: in colour or not, how wide, and how much of it.
//!
//! Colours are for terminals. `NO_COLOR` and `CLICOLOR=0` switch them off there, `CLICOLOR_FORCE=1`
//! on elsewhere, and `--color` decides against all of them.

use std::env;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;

/// Whether what is no error is left unsaid.
static QUIET: AtomicBool = AtomicBool::new(false);
static COLOR_OUTPUT: AtomicBool = AtomicBool::new(false);
static COLOR_MESSAGES: AtomicBool = AtomicBool::new(false);

/// When to use colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On terminals, unless the environment says otherwise
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Settles it for this process, as the command line has it.
pub(crate) fn settle(is_quiet: bool, color: ColorWhen) {
    QUIET.store(is_quiet, Ordering::Relaxed);
    let variable = |name: &str| env::var(name).ok();
    let wanted = |is_terminal| is_colored(color, is_terminal, variable);
    COLOR_OUTPUT.store(wanted(io::stdout().is_terminal()), Ordering::Relaxed);
    COLOR_MESSAGES.store(wanted(io::stderr().is_terminal()), Ordering::Relaxed);
}

fn is_colored(
    when: ColorWhen,
    is_terminal: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> bool {
    match when {
        ColorWhen::Always => return true,
        ColorWhen::Never => return false,
        ColorWhen::Auto => {}
    }
    let is = |name: &str, unset: &str| variable(name).unwrap_or_else(|| unset.to_owned());
    if !is("NO_COLOR", "").is_empty() {
        return false;
    }
    if !matches!(is("CLICOLOR_FORCE", "0").as_str(), "0" | "") {
        return true;
    }
    is_terminal && is("CLICOLOR", "1") != "0" && is("TERM", "dumb") != "dumb"
}

/// Whether only errors are told.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// How many columns standard output has, if it is a terminal.
pub(crate) fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(usize::from(columns)).filter(|columns| *columns != 0)
}

/// True if standard output is a terminal, which obeys control characters.
pub(crate) fn is_read() -> bool {
    io::stdout().is_terminal()
}

/// JSON with misleading characters as escapes, which leaves its value as it is. Line ends between values
/// stay.
pub(crate) fn json_text(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            character if character.is_ascii() && character != '\u{7f}' => text.push(character),
            character if redaction::is_misleading(character) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = fmt::Write::write_fmt(&mut text, format_args!("\\u{unit:04x}"));
                }
            }
            character => text.push(character),
        }
    }
    text
}

/// What a text is, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Heads of tables.
    Head,
    /// It works.
    Good,
    /// It is odd.
    Odd,
    /// It does not work.
    Bad,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Head => "1",
            Self::Good => "32",
            Self::Odd => "33",
            Self::Bad => "31;1",
        }
    }
}

/// A text for standard output, which is in colour if that is.
pub(crate) fn painted(text: &str, tone: Tone) -> String {
    match COLOR_OUTPUT.load(Ordering::Relaxed) {
        true => colored(text, tone),
        false => text.to_owned(),
    }
}

fn colored(text: &str, tone: Tone) -> String {
    format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code())
}

/// An error, to standard error; there is nobody left to tell if that fails.
pub(crate) fn tell(message: &str) {
    let mut output = io::stderr().lock();
    let _ = match COLOR_MESSAGES.load(Ordering::Relaxed) {
        true => writeln!(output, "{}", with_colored_words(message)),
        false => writeln!(output, "{message}"),
    };
}

/// What helps and is no error, unless only errors are told.
pub(crate) fn remark(message: &str) {
    if !is_quiet() {
        tell(message);
    }
}

/// The words that say what a message is, at the beginnings of its lines.
fn with_colored_words(message: &str) -> String {
    const WORDS: [(&str, Tone); 3] = [
        ("error:", Tone::Bad),
        ("warning:", Tone::Odd),
        ("hint:", Tone::Good),
    ];
    let lines = message.split('\n').map(|line| {
        let word = WORDS.iter().find(|(word, _)| line.starts_with(word));
        match word {
            Some((word, tone)) => format!("{}{}", colored(word, *tone), &line[word.len()..]),
            None => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_unless_somebody_decides_otherwise() {
        use ColorWhen::{Always, Auto, Never};
        type Variables = [(&'static str, &'static str)];
        let rows: [(ColorWhen, bool, &Variables, bool); 12] = [
            (Auto, true, &[("TERM", "xterm")], true),
            (Auto, false, &[("TERM", "xterm")], false),
            (Auto, true, &[("TERM", "dumb")], false),
            (Auto, true, &[], false),
            (Auto, true, &[("TERM", "xterm"), ("NO_COLOR", "1")], false),
            (Auto, true, &[("TERM", "xterm"), ("NO_COLOR", "")], true),
            (Auto, true, &[("TERM", "xterm"), ("CLICOLOR", "0")], false),
            (Auto, false, &[("CLICOLOR_FORCE", "1")], true),
            (Auto, false, &[("CLICOLOR_FORCE", "0")], false),
            (
                Auto,
                true,
                &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")],
                false,
            ),
            (Always, false, &[("NO_COLOR", "1")], true),
            (Never, true, &[("CLICOLOR_FORCE", "1")], false),
        ];
        for (when, is_terminal, variables, expected) in rows {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let found = is_colored(when, is_terminal, variable);
            assert_eq!(found, expected, "{when:?} {is_terminal} {variables:?}");
        }
    }

    #[test]
    fn json_with_escaped_characters_has_the_same_value() {
        let json = "{\n  \"a\u{9b}2J\u{7f}\": \"\u{202e}é😀\u{e0041}\"\n}";
        let text = json_text(json);
        assert_eq!(
            text,
            "{\n  \"a\\u009b2J\\u007f\": \"\\u202eé😀\\udb40\\udc41\"\n}"
        );
        let value = |text| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&text), value(json));
    }

    #[test]
    fn only_words_that_say_what_a_line_is_are_coloured() {
        let text = with_colored_words("error: an error: x\n  hint: y\nhint: z");
        assert_eq!(
            text,
            "\u{1b}[31;1merror:\u{1b}[0m an error: x\n  hint: y\n\u{1b}[32mhint:\u{1b}[0m z"
        );
    }
}
