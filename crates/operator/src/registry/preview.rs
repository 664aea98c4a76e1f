//! A published server as an operator sees it before anything of it is written or started.

use std::fmt::Write as _;

use config::printable;
use registry::{Answers, Entry, Launch, Plan, Way, Words, plan};
use serde_json::{Value, json};

use super::Taken;

/// A value with the names of its secrets in their places.
fn shown(words: &Words) -> String {
    words.written(|name, _| format!("<secret {name}>"))
}

/// The command or the address of a plan.
fn launch(plan: &Plan) -> Vec<(&'static str, String)> {
    match &plan.launch {
        Launch::Program {
            program,
            arguments,
            environment,
            directory,
        } => {
            let mut line = program.clone();
            for argument in arguments {
                let argument = shown(argument);
                match argument.is_empty() || argument.contains([' ', '"', '\'', '\\']) {
                    true => drop(write!(line, " {argument:?}")),
                    false => drop(write!(line, " {argument}")),
                }
            }
            let mut lines = vec![("would run", line)];
            if let Some(directory) = directory {
                lines.push(("in", directory.display().to_string()));
            }
            for (name, words) in environment {
                lines.push(("with", format!("{name}={}", shown(words))));
            }
            lines
        }
        Launch::Address { url, headers, .. } => {
            let mut lines = vec![("would ask", shown(url))];
            for (name, words) in headers {
                lines.push(("with", format!("{name}: {}", shown(words))));
            }
            lines
        }
        Launch::Bundle { url, sha256 } => {
            vec![("would fetch", url.clone()), ("sha256", sha256.clone())]
        }
    }
}

fn lines_of(plan: &Plan) -> Vec<(&'static str, String)> {
    let mut lines = vec![("by", plan.from.clone())];
    lines.extend(launch(plan));
    for it in &plan.asked {
        let mut line = it.name.clone();
        let mut say = |text: &str| {
            line.push_str(", ");
            line.push_str(text);
        };
        say(if it.is_required {
            "required"
        } else {
            "optional"
        });
        if it.is_secret {
            say("secret");
        }
        if it.is_given {
            say("given");
        }
        if let Some(default) = &it.default {
            say(&format!("default `{default}`"));
        }
        if !it.choices.is_empty() {
            say(&format!("one of {}", it.choices.join(", ")));
        }
        if let Some(description) = &it.description {
            let _ = write!(line, ": {}", registry::shown(description));
        }
        lines.push(("asks for", line));
    }
    lines.extend(plan.warnings.iter().map(|it| ("warning", it.clone())));
    lines.extend(plan.refused.iter().map(|it| ("refused", it.clone())));
    lines
}

fn laid_out(head: &str, lines: &[(&str, String)]) -> String {
    let mut out = printable(head);
    for (name, text) in lines {
        let _ = write!(out, "\n{name:<12}{}", printable(text));
    }
    out
}

/// A server that would be taken in.
pub(super) fn text(taken: &Taken) -> String {
    let mut lines = Vec::new();
    let head = match (&taken.server, &taken.bundle) {
        (Some(server), _) => {
            lines.push(("says", server.description.clone()));
            format!(
                "{} {}, as the upstream `{}`",
                server.name, server.version, taken.name
            )
        }
        (None, Some(bundle)) => {
            let manifest = &bundle.manifest;
            lines.push(("says", registry::shown(&manifest.description)));
            lines.push(("author", format!("{} (not verified)", manifest.author)));
            format!(
                "{} {}, as the upstream `{}`",
                manifest.name, manifest.version, taken.name
            )
        }
        (None, None) => taken.name.clone(),
    };
    lines.push(("from", taken.source.clone()));
    if let Some(bundle) = &taken.bundle {
        lines.push((
            "bundle",
            format!("{} files, {} bytes unpacked", bundle.files, bundle.bytes),
        ));
        lines.push(("sha256", bundle.sha256.clone()));
        lines.push(("signature", bundle.signature.to_string()));
    }
    lines.extend(lines_of(&taken.plan));
    laid_out(&head, &lines)
}

/// The same for programs.
pub(super) fn json(taken: &Taken) -> Value {
    let plan = &taken.plan;
    let asked = plan.asked.iter().map(|it| {
        json!({
            "name": it.name,
            "description": it.description,
            "required": it.is_required,
            "secret": it.is_secret,
            "default": it.default,
            "choices": it.choices,
            "given": it.is_given,
        })
    });
    let runs = launch(plan)
        .into_iter()
        .map(|(name, text)| json!([name, text]));
    json!({
        "upstream": taken.name,
        "source": taken.source,
        "server": taken.server.as_ref().map(|it| json!({ "name": it.name, "version": it.version })),
        "bundle": taken.bundle.as_ref().map(|it| json!({
            "name": it.manifest.name,
            "version": it.manifest.version,
            "sha256": it.sha256,
            "files": it.files,
            "bytes": it.bytes,
            "signature": it.signature.to_string(),
        })),
        "by": plan.from,
        "launch": runs.collect::<Vec<_>>(),
        "asked": asked.collect::<Vec<_>>(),
        "missing": plan.missing,
        "warnings": plan.warnings,
        "refused": plan.refused,
    })
}

/// An entry of the catalogue.
pub(super) fn entry(entry: &Entry) -> String {
    let server = &entry.server;
    let mut lines = vec![
        ("says", server.description.clone()),
        ("from", entry.source.clone()),
        ("added", entry.added.to_string()),
        ("sha256", entry.sha256.clone()),
    ];
    match plan(server, &Way::First, &Answers::new()) {
        Ok(plan) => lines.extend(lines_of(&plan)),
        Err(error) => lines.push(("refused", error.to_string())),
    }
    laid_out(&format!("{} {}", server.name, server.version), &lines)
}
