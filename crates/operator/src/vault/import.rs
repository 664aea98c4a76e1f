//! Secrets of files of others, taken into the vault.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;

use config::printable;
use serde_json::json;

use super::spans::{Text, strings};
use super::{failed, keep, open, shown};
use crate::on_record::RecordedVault;
use crate::output::{Stop, print, print_json};
use crate::request::ReportFormat;
use crate::rewrite::{Lock, rewrite};
use crate::secrets::Secrets;
use crate::secrets::remarks;

/// Changes of a text: what stands in the place of what.
type Changes = Vec<(Range<usize>, String)>;

/// Shows the secrets of a file, or puts them into the vault and writes the file anew.
pub(super) fn import(
    vault: RecordedVault,
    path: &Path,
    writes: bool,
    format: ReportFormat,
) -> Result<ExitCode, Stop> {
    let place = vault.place.clone();
    let name = path.display().to_string();
    let unreadable = |error: std::io::Error| failed(format!("{name} cannot be read: {error}"));
    let path = path.canonicalize().map_err(unreadable)?;
    let lock = Lock::of(&name, &path).map_err(failed)?;
    let text = regular_file::read_text(&path, regular_file::MAX_BYTES).map_err(unreadable)?;
    let mut secrets = Secrets::into_vault(&open(&place)?);
    let mut told = Vec::new();
    let changes = match strings(&text) {
        Some(strings) => of_host(&strings, &mut secrets),
        None if text.trim_start().starts_with('{') => {
            return Err(failed(format!("{name} is no JSON: it was left as it is")));
        }
        None => of_variables(&text, &mut secrets, &mut told),
    };
    let is_written = writes && !changes.is_empty();
    if is_written {
        let kept = keep(vault, &secrets)?;
        let written = rewrite(&lock, &name, &path, &text, &changed(&text, changes));
        let written = written.map_err(|why| {
            failed(format!(
                "{why}; the secrets are in the file still, and not in the vault"
            ))
        });
        kept.unless(written)?;
    }
    let moved: BTreeMap<String, Vec<&str>> =
        secrets
            .moved()
            .fold(BTreeMap::new(), |mut all, (secret, _, place)| {
                all.entry(secret.to_string())
                    .or_insert_with(Vec::new)
                    .push(place);
                all
            });
    if let ReportFormat::Json = format {
        let moved = moved
            .iter()
            .map(|(name, places)| json!({ "name": name, "stood_in": places }));
        return print_json(&json!({
            "file": path,
            "vault": place.path,
            "written": is_written,
            "secrets": moved.collect::<Vec<_>>(),
            "kept": secrets.kept(),
            "too_short": secrets.short(),
            "told": told,
        }));
    }
    let mut out = String::new();
    for line in &told {
        let _ = writeln!(out, "note: {}", printable(line));
    }
    if moved.is_empty() {
        let _ = writeln!(
            out,
            "{name} has nothing that is a secret by its name or its looks"
        );
        out.push_str(&remarks(&secrets));
        return print(out.trim_end());
    }
    let vault = shown(&place);
    let _ = writeln!(
        out,
        "{}",
        match is_written {
            true => format!("in {vault} now, and no longer in {name}:"),
            false => format!("would go into {vault}, with a reference in the place of each:"),
        }
    );
    for (name, places) in &moved {
        let _ = writeln!(out, "  {name}  ({})", printable(&places.join(", ")));
    }
    out.push_str(&remarks(&secrets));
    out.push_str(match is_written {
        true => "copies of the file, such as backups, still have them",
        false => "nothing is changed; --write does it",
    });
    print(&out)
}

fn changed(text: &str, mut changes: Changes) -> String {
    changes.sort_by_key(|(place, _)| place.start);
    let mut out = String::new();
    let mut copied = 0;
    for (place, new) in changes {
        out.push_str(&text[copied..place.start]);
        out.push_str(&new);
        copied = place.end;
    }
    out.push_str(&text[copied..]);
    out
}

/// Secrets of the servers of a host's file.
fn of_host(strings: &[Text], secrets: &mut Secrets) -> Changes {
    let mut changes = Changes::new();
    let mut arguments: BTreeMap<&str, Vec<&Text>> = BTreeMap::new();
    let mut put = |text: &Text, new: String| {
        if new != text.said {
            // A string is always written.
            let literal = serde_json::to_string(&new).unwrap_or_default();
            changes.push((text.place.clone(), literal));
        }
    };
    for text in strings {
        let path: Vec<&str> = text.path.iter().map(String::as_str).collect();
        let path = match &path[..] {
            ["mcp", rest @ ..] => rest,
            all => all,
        };
        let (["mcpServers", rest @ ..] | ["servers", rest @ ..]) = path else {
            continue;
        };
        match rest {
            [server, "env", name] => put(text, secrets.variable(server, name, &text.said)),
            [server, "headers", name] => put(text, secrets.header(server, name, &text.said)),
            [server, "url" | "serverUrl" | "httpUrl"] => put(text, secrets.url(server, &text.said)),
            [server, "args", _] => arguments.entry(server).or_default().push(text),
            _ => {}
        }
    }
    for (server, texts) in arguments {
        let said: Vec<String> = texts.iter().map(|it| it.said.clone()).collect();
        for (text, new) in texts.iter().zip(secrets.arguments(server, &said)) {
            put(text, new);
        }
    }
    changes
}

/// Secrets of a file of variables: of those by whose names or looks they are some.
fn of_variables(text: &str, secrets: &mut Secrets, told: &mut Vec<String>) -> Changes {
    let mut changes = Changes::new();
    let mut start = 0;
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        let line = whole.trim_end_matches(['\r', '\n']);
        let place = start..start + line.len();
        start += whole.len();
        let trimmed = line.trim();
        let assignment = trimmed
            .strip_prefix("export ")
            .unwrap_or(trimmed)
            .trim_start();
        if assignment.is_empty() || assignment.starts_with('#') {
            continue;
        }
        let Some((name, value)) = assignment.split_once('=') else {
            told.push(format!("line {} is no variable, and stays", index + 1));
            continue;
        };
        let name = name.trim();
        let Some(value) = unquoted(value.trim()) else {
            told.push(format!(
                "`{name}` in line {} goes on in the next lines, and stays: `owlclaw-mcp vault set {name} --file PATH`",
                index + 1
            ));
            continue;
        };
        let new = secrets.of_file(name, &value);
        if let Some(reference) = new
            .strip_prefix("${vault:")
            .and_then(|it| it.strip_suffix('}'))
        {
            changes.push((
                place,
                format!("# {name} is in the vault of owlclaw-mcp as {reference}"),
            ));
        }
    }
    changes
}

/// The value behind `NAME=`; `None` if it does not end in this line.
fn unquoted(value: &str) -> Option<String> {
    let inner = |quote: char| value.strip_prefix(quote)?.split_once(quote);
    match value.chars().next() {
        Some('\'') => inner('\'').map(|(it, _)| it.to_owned()),
        Some('"') => {
            let mut out = String::new();
            let mut rest = value[1..].chars();
            loop {
                match rest.next()? {
                    '"' => return Some(out),
                    '\\' => match rest.next()? {
                        'n' => out.push('\n'),
                        other => out.push(other),
                    },
                    other => out.push(other),
                }
            }
        }
        _ => {
            let end = value.find(" #").unwrap_or(value.len());
            Some(value[..end].trim_end().to_owned())
        }
    }
}
