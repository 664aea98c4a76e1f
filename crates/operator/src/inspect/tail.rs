//! The end of the ledger, as it grows.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use ledger::{CallId, Ended, Event, Noted, ReadLedger, Started};
use serde_json::json;

use super::entries::Entries;
use super::filter::Wanted;
use super::rows::{CallRow, NoteRow};
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
    let mut happenings = Happenings::from(reader, last.saturating_sub(lines) + 1);
    let mut output = io::stdout().lock();
    loop {
        while let Some(happening) = happenings.next()? {
            if let Some(line) = line(&wanted, &happening, format) {
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

/// Entry of the ledger, with what belongs to it.
#[derive(Debug, Clone)]
pub struct Happening {
    /// Number of the entry.
    pub sequence: u64,
    /// Event.
    pub what: What,
}

/// Subject of an entry.
#[derive(Debug, Clone)]
pub enum What {
    /// The start of a call, or with its end the end of one.
    Call(CallId, Box<Started>, Option<Box<Ended>>),
    /// Another event.
    Note(Box<Noted>),
}

/// Entries of the ledger in order, as they come.
pub struct Happenings {
    entries: Entries,
    calls: HashMap<CallId, Started>,
}

impl std::fmt::Debug for Happenings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Happenings").finish_non_exhaustive()
    }
}

impl Happenings {
    /// Entries from the one of number `from` on; the first is 1.
    #[must_use]
    pub fn from(reader: Box<dyn ReadLedger + Send>, from: u64) -> Self {
        Self {
            entries: Entries::from(reader, from),
            calls: HashMap::new(),
        }
    }

    /// The next one; `None` where the ledger ends now. Ends of calls whose start is nowhere are left out.
    ///
    /// # Errors
    ///
    /// When the ledger cannot be read.
    #[expect(clippy::should_implement_trait, reason = "an end may not be the end")]
    pub fn next(&mut self) -> Result<Option<Happening>, Failure> {
        while let Some(entry) = self.entries.next()? {
            let call = entry.call;
            let what = match entry.event {
                Event::Noted(noted) => What::Note(Box::new(noted)),
                Event::Started(started) => {
                    if MAX_REMEMBERED <= self.calls.len() {
                        self.calls.clear();
                    }
                    self.calls.insert(call, started.clone());
                    What::Call(call, Box::new(started), None)
                }
                Event::Ended(ended) => {
                    let started = match self.calls.remove(&call) {
                        Some(started) => Some(started),
                        None => self.entries.reader().call(call)?.map(|it| it.started),
                    };
                    let Some(started) = started else { continue };
                    What::Call(call, Box::new(started), Some(Box::new(ended)))
                }
            };
            let sequence = entry.sequence;
            return Ok(Some(Happening { sequence, what }));
        }
        Ok(None)
    }
}

impl Happening {
    /// `started`, `ended` or `noted`.
    #[must_use]
    pub fn event(&self) -> &'static str {
        match &self.what {
            What::Note(_) => "noted",
            What::Call(_, _, None) => "started",
            What::Call(_, _, Some(_)) => "ended",
        }
    }

    /// The call as it is with this entry, if it is about one.
    #[must_use]
    pub fn call(&self) -> Option<CallRow> {
        match &self.what {
            What::Call(call, started, ended) => {
                let ended = ended.as_deref();
                Some(CallRow::of_parts(*call, self.sequence, started, ended))
            }
            What::Note(_) => None,
        }
    }

    /// The event, if it is not about a call.
    #[must_use]
    pub fn note(&self) -> Option<NoteRow> {
        match &self.what {
            What::Note(noted) => Some(NoteRow::of(self.sequence, noted)),
            What::Call(..) => None,
        }
    }
}

/// Line that shows an entry; `None` if it is not asked for.
fn line(wanted: &Wanted, happening: &Happening, format: LinesFormat) -> Option<String> {
    let (call, started, ended) = match &happening.what {
        What::Note(noted) => {
            let is_wanted = wanted.is_everything();
            return is_wanted.then(|| note(happening.sequence, noted, format));
        }
        What::Call(call, started, ended) => (*call, started, ended.as_deref()),
    };
    if !wanted.takes(started, ended) {
        return None;
    }
    let event = happening.event();
    Some(match format {
        LinesFormat::Json => {
            let row = rows::parts(call, happening.sequence, started, ended);
            let mut line = object(rows::CALL, &row);
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
    })
}

fn note(sequence: u64, noted: &ledger::Noted, format: LinesFormat) -> String {
    match format {
        LinesFormat::Json => {
            let mut line = object(rows::NOTE, &rows::note(sequence, noted));
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
