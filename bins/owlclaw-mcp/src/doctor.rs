//! `doctor`: looks at everything that a server needs, and says what to do about what is missing.

mod application;
mod network;
mod storage;
mod system;

use serde::Serialize;

use crate::config::{Config, Loaded, Needs, Problem, Severity, Source, printable};
use crate::terminal::{self, Tone};

/// How it is with something that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Nothing to do.
    Ok,
    /// A server would run.
    Warning,
    /// A server would not run, or not do what it is there for.
    Error,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at.
    pub(crate) area: &'static str,
    /// How it is.
    pub(crate) state: State,
    /// One sentence.
    pub(crate) message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

impl Finding {
    fn new(area: &'static str, state: State, message: impl Into<String>) -> Self {
        Self {
            area,
            state,
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn ok(area: &'static str, message: impl Into<String>) -> Self {
        Self::new(area, State::Ok, message)
    }

    pub(super) fn warning(area: &'static str, message: impl Into<String>) -> Self {
        Self::new(area, State::Warning, message)
    }

    pub(super) fn error(area: &'static str, message: impl Into<String>) -> Self {
        Self::new(area, State::Error, message)
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    fn is_taken_port(&self) -> bool {
        self.area == "port" && self.state == State::Warning
    }

    /// `ok       area           message`, and a line with what to do.
    fn text(&self) -> String {
        let (word, tone) = match self.state {
            State::Ok => ("ok", Tone::Good),
            State::Warning => ("warning", Tone::Odd),
            State::Error => ("error", Tone::Bad),
        };
        let word = terminal::painted(&format!("{word:<7}"), tone);
        let mut lines = self.message.lines().map(printable);
        let first = lines.next().unwrap_or_default();
        let mut text = format!("{word}  {:<13}  {first}", self.area);
        for line in lines {
            text += &format!("\n{:24}{line}", "");
        }
        if let Some(hint) = &self.hint {
            text += &format!("\n{:24}-> {}", "", printable(hint));
        }
        text
    }
}

/// All that was found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    ok: bool,
    findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing is wrong.
    pub(crate) fn is_ok(&self) -> bool {
        self.ok
    }

    /// A line or more for each, and how many are not as they should be.
    pub(crate) fn text(&self) -> String {
        let count = |state| {
            let found = self.findings.iter().filter(|it| it.state == state);
            match found.count() {
                1 => "1 ".to_owned(),
                count => format!("{count} "),
            }
        };
        let lines: Vec<String> = self.findings.iter().map(Finding::text).collect();
        let (errors, warnings) = (count(State::Error), count(State::Warning));
        format!(
            "{}\n\n{errors}wrong, {warnings}odd, {}as it should be",
            lines.join("\n"),
            count(State::Ok)
        )
    }
}

/// Looks at everything. A configuration that is wrong in places does not keep the rest from being
/// looked at, as it would be without what is wrong.
pub(crate) fn examine(source: &Source, imports: bool) -> Report {
    let mut findings = Vec::new();
    if let Some(loaded) = configuration(source, &mut findings) {
        findings.extend(system::files(&loaded));
        findings.extend(application::findings(&loaded, imports));
        findings.extend(storage::findings(&loaded.config));
        findings.extend(network::findings(&loaded.config));
        findings.extend(system::findings(&loaded.config));
    }
    Report {
        ok: findings.iter().all(|it| it.state != State::Error),
        findings,
    }
}

/// Findings about recorded data that other users can read or replace.
pub(crate) fn exposed(config: &Config) -> Vec<Finding> {
    storage::exposed(config)
}

/// Findings that explain a failed start, in the words of `doctor`.
pub(crate) fn cures(config: &Config) -> Vec<Finding> {
    let mut findings = storage::findings(config);
    findings.extend(network::findings(config));
    // Whoever has the port may be a server that is meant to be there; it keeps this one out.
    findings.retain(|it| it.state == State::Error || it.is_taken_port());
    findings
}

fn configuration(source: &Source, findings: &mut Vec<Finding>) -> Option<Loaded> {
    const AREA: &str = "configuration";
    let (loaded, problems) = match source.load() {
        Ok(loaded) => {
            let problems = loaded.warnings.clone();
            let place = match &loaded.file {
                Some(file) => format!("{} is right", file.display()),
                None => "there is no file: everything has its default".to_owned(),
            };
            if problems.is_empty() {
                findings.push(Finding::ok(AREA, place));
            }
            (Some(loaded), problems)
        }
        Err(rejected) => {
            // What is right in it is still worth looking at.
            let rest = source.load_for(Needs::Keys(&[])).ok();
            (rest, rejected.problems)
        }
    };
    findings.extend(problems.iter().map(|problem| of_problem(AREA, problem)));
    loaded
}

pub(super) fn of_problem(area: &'static str, problem: &Problem) -> Finding {
    let state = match problem.severity {
        Severity::Error => State::Error,
        Severity::Warning => State::Warning,
    };
    let message = format!("{}: {}", problem.origin, problem.message);
    Finding {
        hint: problem.hint.clone(),
        ..Finding::new(area, state, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_a_line_and_what_to_do() {
        let finding = Finding::error("port", "127.0.0.1:80 cannot be had\nsecond").hint("stop it");
        assert_eq!(
            finding.text(),
            "error    port           127.0.0.1:80 cannot be had\n                        second\n                        -> stop it"
        );
        let report = Report {
            ok: false,
            findings: vec![finding],
        };
        assert!(report.text().ends_with("1 wrong, 0 odd, 0 as it should be"));
    }
}
