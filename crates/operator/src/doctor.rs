//! `doctor`: checks everything that a server needs, and says how to mend what is missing.

mod application;
mod network;
mod storage;
mod system;
mod upstreams;

use serde::Serialize;
use server::{Finding, State};

use crate::terminal::{self, Tone};
use config::{Config, Loaded, Needs, Problem, Severity, Source, printable};

/// Text of a finding for people.
trait Shown {
    fn is_taken_port(&self) -> bool;
    fn text(&self) -> String;
}

impl Shown for Finding {
    fn is_taken_port(&self) -> bool {
        self.area == "port" && self.state == State::Warning
    }

    /// One line `ok       area           message`, and one with the advice, if there is any.
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
pub struct Report {
    ok: bool,
    findings: Vec<Finding>,
}

impl Report {
    /// Returns true if nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.ok
    }

    /// A line or more for each, and the numbers of errors, warnings and passed checks.
    pub fn text(&self) -> String {
        let count = |state, what: &str| {
            let found = self.findings.iter().filter(|it| it.state == state);
            match found.count() {
                1 => format!("1 {what}"),
                count => format!("{count} {what}s"),
            }
        };
        let lines: Vec<String> = self.findings.iter().map(Finding::text).collect();
        format!(
            "{}\n\n{}, {}, {} passed",
            lines.join("\n"),
            count(State::Error, "error"),
            count(State::Warning, "warning"),
            count(State::Ok, "check"),
        )
    }
}

/// Checks everything. A mistake in one part of the configuration does not keep the others from
/// being checked, as if that part were correct.
pub fn examine(source: &Source, imports: bool) -> Report {
    let mut findings = Vec::new();
    if let Some(loaded) = configuration(source, &mut findings) {
        findings.extend(references(&loaded));
        findings.extend(system::files(&loaded));
        findings.extend(application::findings(&loaded, imports));
        findings.extend(upstreams::findings(&loaded.config));
        findings.extend(storage::findings(&loaded.config));
        findings.extend(network::findings(&loaded.config));
        findings.extend(system::findings(&loaded.config));
    }
    Report {
        ok: findings.iter().all(|it| it.state != State::Error),
        findings,
    }
}

/// Findings that explain a failed start, in the words of `doctor`.
pub fn cures(config: &Config) -> Vec<Finding> {
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
                Some(file) => format!("{} is valid", file.display()),
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

/// Sources of the values that references stand for.
fn references(loaded: &Loaded) -> Vec<Finding> {
    const AREA: &str = "secrets";
    let place = loaded.config.environment.vault_used();
    let opened = place.map(|(path, why)| match why {
        None => Finding::ok(AREA, format!("the vault {} can be opened", path.display())),
        Some(why) => Finding::error(AREA, why),
    });
    let mut sources: Vec<String> = loaded
        .references()
        .map(|(key, it)| format!("{key}: {} from {}", it.reference, it.source))
        .collect();
    sources.sort();
    let found = (!sources.is_empty()).then(|| Finding::ok(AREA, sources.join("\n")));
    opened.into_iter().chain(found).collect()
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
        assert!(
            report
                .text()
                .ends_with("1 error, 0 warnings, 0 checks passed")
        );
    }
}
