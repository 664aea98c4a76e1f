//! Ends of commands: the streams they print to, and the codes they end with.

use std::io::{self, Write};
use std::process::ExitCode;

use config::{Environment, Loaded, Needs, Problem, Rejected, Severity, Source};
use server::{Failure, json_text};

use crate::exact;
use crate::inspect::Interrupted;
use crate::request::Settings;
use crate::terminal::{harmless, is_read, remark, tell};

/// Sections of the configuration that a call from the command line depends on, besides.
pub const CALL: &[&str] = &[
    "app",
    "commands",
    "development",
    "governance",
    "ledger",
    "python",
    "redaction",
    "resources",
    "services",
    "states",
    "tools",
    "workers",
];
/// Exit code of a command that did not do what it was asked for.
pub const FAILED: u8 = 1;
/// The command line, or the configuration, makes no sense.
pub const UNUSABLE: u8 = 2;

/// SIGINT ended the command.
pub const SIGNALLED: u8 = 130;

/// Reason why a command ended early.
#[derive(Debug)]
pub enum Stop {
    /// The configuration cannot be used.
    Rejected(Rejected),
    /// Standard output cannot be written.
    Output(io::Error),
    /// The command failed.
    Failed(Failure),
    /// The command line makes no sense.
    Wrong(Failure),
    /// SIGINT ended the command.
    Signalled,
}

impl From<Interrupted> for Stop {
    fn from(interrupted: Interrupted) -> Self {
        match interrupted {
            Interrupted::Failed(failure) => Self::Failed(failure),
            Interrupted::Output(error) => Self::Output(error),
        }
    }
}

/// Loads the configuration and prints its warnings, if the parts in `needs` can be used.
///
/// # Errors
///
/// When what is needed of the configuration cannot be used.
pub fn load(settings: Settings, needs: Needs) -> Result<Loaded, Stop> {
    usable(try_load(settings, needs)?)
}

/// Loads the configuration for a command that needs only what is at these keys.
///
/// # Errors
///
/// When what is needed of the configuration cannot be used.
pub fn load_for(settings: Settings, keys: &'static [&'static str]) -> Result<Loaded, Stop> {
    load(settings, Needs::Keys(keys))
}

/// Loads the configuration that `settings` name, or returns its problems.
///
/// # Errors
///
/// When there is no current directory.
pub fn try_load(settings: Settings, needs: Needs) -> Result<Result<Loaded, Rejected>, Stop> {
    Ok(source(settings)?.load_for(needs))
}

/// The configuration, once its warnings have been printed.
///
/// # Errors
///
/// When it was rejected.
pub fn usable(result: Result<Loaded, Rejected>) -> Result<Loaded, Stop> {
    let loaded = result.map_err(Stop::Rejected)?;
    complain(&loaded.warnings);
    Ok(loaded)
}

/// Source of this command's configuration.
///
/// # Errors
///
/// When there is no current directory.
pub fn source(settings: Settings) -> Result<Source, Stop> {
    let directory = std::env::current_dir()
        .map_err(|error| Stop::Failed(format!("there is no current directory: {error}").into()))?;
    Ok(Source {
        overrides: settings.into_overrides(),
        environment: Environment::of_process(),
        directory,
        texts: None,
    })
}

/// Prints a text and a line end to standard output.
///
/// # Errors
///
/// When standard output cannot be written.
pub fn print(text: &str) -> Result<ExitCode, Stop> {
    let text = redaction::without_known(text);
    let mut output = io::stdout().lock();
    writeln!(output, "{text}")
        .and_then(|()| output.flush())
        .map_err(Stop::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a text of others: as it is, unless on a terminal, which would obey its control characters.
///
/// # Errors
///
/// When standard output cannot be written.
pub(crate) fn print_text(text: &str) -> Result<ExitCode, Stop> {
    match is_read() {
        true => print(&harmless(text)),
        false => print(text),
    }
}

/// Writes bytes to standard output as they are.
///
/// # Errors
///
/// When standard output cannot be written.
pub fn print_bytes(bytes: &[u8]) -> Result<ExitCode, Stop> {
    let mut output = io::stdout().lock();
    output
        .write_all(bytes)
        .and_then(|()| output.flush())
        .map_err(Stop::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a value as indented JSON.
///
/// # Errors
///
/// When standard output cannot be written.
pub fn print_json(value: &impl serde::Serialize) -> Result<ExitCode, Stop> {
    let text = serde_json::to_string_pretty(value).expect("rows and reports are plain data");
    print(&json_text(&redaction::without_known_json(&text)))
}

/// Prints a JSON text, indented, with each number as it is written there.
///
/// # Errors
///
/// When standard output cannot be written.
pub(crate) fn print_exactly(json: &str) -> Result<ExitCode, Stop> {
    print(&json_text(&exact::indented(json)))
}

/// Prints problems; warnings only if the command is not quiet.
pub fn complain(problems: &[Problem]) {
    for problem in problems {
        let text = format!("{problem}\n");
        match problem.severity {
            Severity::Error => tell(&text),
            Severity::Warning => remark(&text),
        }
    }
}
