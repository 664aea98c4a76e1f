//! The end of the ledger, as it grows.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use ledger::{CallId, Entry, Event, Started};
use serde_json::json;

use super::entries::Entries;
use super::filter::Wanted;
use super::sheet::{self, object};
use super::{Interrupted, rows};
use crate::request::when::shown;
use crate::request::{CallFilter, LinesFormat};
use config::{Config, printable};
use server::Failure;
use server::open_reader;

/// Pause before reading again.
const PAUSE: Duration = Duration::from_millis(200);
/// Calls that are remembered from their start to their end; of others the ledger is asked.
const MAX_REMEMBERED: usize = 10_000;

/// `ledger tail`.
pub(crate) fn tail(
    config: &Config,
    filter: CallFilter,
    lines: u64,
    follow: bool,
    format: LinesFormat,
) -> Result<(), Interrupted> {
    let wanted = Wanted::new(filter);
    let mut reader = open_reader(config)?;
    let last = reader.extent().map_err(Failure::from)?.last_sequence;
    let from = last.saturating_sub(lines) + 1;
    let mut entries = Entries::from(reader, from);
    let mut calls = HashMap::new();
    let mut output = io::stdout().lock();
    loop {
        while let Some(entry) = entries.next()? {
            if let Some(line) = line(&mut entries, &mut calls, &wanted, &entry, format)? {
                writeln!(output, "{line}")?;
            }
        }
        output.flush()?;
        if !follow {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Line that shows an entry; `None` if it is not asked for.
fn line(
    entries: &mut Entries,
    calls: &mut HashMap<CallId, Started>,
    wanted: &Wanted,
    entry: &Entry,
    format: LinesFormat,
) -> Result<Option<String>, Failure> {
    let call = entry.call;
    let (event, started, ended) = match &entry.event {
        Event::Noted(noted) => {
            let is_wanted = wanted.is_everything();
            return Ok(is_wanted.then(|| note(entry.sequence, noted, format)));
        }
        Event::Started(started) => {
            if MAX_REMEMBERED <= calls.len() {
                calls.clear();
            }
            calls.insert(call, started.clone());
            ("started", started.clone(), None)
        }
        Event::Ended(ended) => {
            let started = match calls.remove(&call) {
                Some(started) => Some(started),
                None => entries.reader().call(call)?.map(|record| record.started),
            };
            let Some(started) = started else {
                return Ok(None);
            };
            ("ended", started, Some(ended))
        }
    };
    if !wanted.takes(&started, ended) {
        return Ok(None);
    }
    Ok(Some(match format {
        LinesFormat::Json => {
            let row = rows::parts(call, entry.sequence, &started, ended);
            let mut line = object(&rows::CALL, &row);
            line.insert("event", json!(event).into());
            sheet::line(&line)
        }
        LinesFormat::Text => {
            let time = ended.map_or(started.at_us, |ended| {
                started.at_us.saturating_add(ended.duration_us)
            });
            let outcome = ended.map_or(String::new(), |ended| {
                let reason = match &ended.outcome {
                    ledger::Outcome::Denied { reason } => format!(" ({reason})"),
                    _ => String::new(),
                };
                let milliseconds = rows::milliseconds(ended.duration_us);
                format!("  {}{reason} after {milliseconds} ms", ended.outcome)
            });
            let (time, who, what) = (shown(time), &started.principal, &started.capability);
            printable(&format!("{time}  {event:<8}{who}  {what}{outcome}  {call}"))
        }
    }))
}

fn note(sequence: u64, noted: &ledger::Noted, format: LinesFormat) -> String {
    match format {
        LinesFormat::Json => {
            let mut line = object(&rows::NOTE, &rows::note(sequence, noted));
            line.insert("event", json!("noted").into());
            sheet::line(&line)
        }
        LinesFormat::Text => {
            let (time, kind) = (shown(noted.at_us), &noted.kind);
            let (actor, subject, detail) = (&noted.actor, &noted.subject, &noted.detail.text);
            printable(&format!(
                "{time}  noted   {actor}  {kind}  {subject}  {detail}"
            ))
        }
    }
}
