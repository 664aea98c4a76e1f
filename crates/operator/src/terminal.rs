//! Look of messages to people: colour, width, and amount.
//!
//! Colours are for terminals. `NO_COLOR` and `CLICOLOR=0` switch them off there, `CLICOLOR_FORCE=1`
//! on elsewhere, and `--color` decides against all of them.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use config::printable;

pub(crate) mod relay;

/// True while everything but errors is left out.
static QUIET: AtomicBool = AtomicBool::new(false);
static COLOR_OUTPUT: AtomicBool = AtomicBool::new(false);
static COLOR_MESSAGES: AtomicBool = AtomicBool::new(false);

/// Use of colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On terminals, unless the environment says otherwise
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Settles it for this process, as the command line has it.
pub fn settle(is_quiet: bool, color: ColorWhen) {
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

/// Returns true if only errors are printed.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Number of columns of standard output, if it is a terminal.
pub fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(usize::from(columns)).filter(|columns| *columns != 0)
}

/// True if standard output is a terminal, which obeys control characters.
pub fn is_read() -> bool {
    io::stdout().is_terminal()
}

/// Tone of a text, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Heads of tables.
    Head,
    /// A good result.
    Good,
    /// An odd result.
    Odd,
    /// A bad result.
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
pub fn painted(text: &str, tone: Tone) -> String {
    match COLOR_OUTPUT.load(Ordering::Relaxed) {
        true => colored(text, tone),
        false => text.to_owned(),
    }
}

fn colored(text: &str, tone: Tone) -> String {
    format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code())
}

/// Prints an error to standard error; a failure to do so is ignored, since it could not be
/// reported.
pub fn tell(message: &str) {
    match relay::get() {
        Some(relay) => relay.tell(line(message)),
        None => write(&line(message)),
    }
}

/// A message as it is written, with the end of its line.
fn line(message: &str) -> String {
    let message: &str = &redaction::without_known(message);
    // A message may quote others, whom a terminal must not obey.
    let shown;
    let message = match io::stderr().is_terminal() {
        true => {
            shown = harmless(message);
            &shown
        }
        false => message,
    };
    match COLOR_MESSAGES.load(Ordering::Relaxed) {
        true => with_colored_words(message) + "\n",
        false => format!("{message}\n"),
    }
}

fn write(line: &str) {
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// The lines of a text with each character replaced that a terminal would obey, or that misleads.
pub(crate) fn harmless(text: &str) -> String {
    let lines = text.split('\n').map(|line| match line.contains('\t') {
        true => line
            .split('\t')
            .map(printable)
            .collect::<Vec<_>>()
            .join("\t"),
        false => printable(line),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Prints a remark that is no error, unless only errors are printed.
pub fn remark(message: &str) {
    match relay::get() {
        _ if is_quiet() => {}
        Some(relay) => relay.remark(|| line(message)),
        None => tell(message),
    }
}

/// Colours the words that name the kind of a message, at the beginnings of its lines.
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
    fn a_text_of_others_keeps_its_lines_and_commands_no_terminal() {
        let evil = "\u{1b}[2J\u{1b}]0;pwn\u{7}a\r\n\tb\u{202e}c\n\n";
        assert_eq!(
            harmless(evil),
            "\u{fffd}[2J\u{fffd}]0;pwn\u{fffd}a \n\tb\u{fffd}c\n\n"
        );
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
