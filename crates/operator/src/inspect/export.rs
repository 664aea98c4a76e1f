//! The whole ledger, or a part of it, for others.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ledger::{CallId, Ended, Event, Outcome, Started};
use serde_json::json;

use super::entries::Entries;
use super::filter::Wanted;
use super::sheet::{self, CsvSheet, Row, object};
use super::{Interrupted, rows};
use crate::request::{CallFilter, ExportFormat};
use crate::terminal;
use config::Config;
use server::Failure;
use server::open_reader;

/// Entries between two moves of the progress bar.
const STEP: u64 = 1_000;

/// `ledger export`.
pub(crate) fn export(
    config: &Config,
    filter: CallFilter,
    path: Option<&Path>,
    format: ExportFormat,
    servers: ServerNames,
) -> Result<(), Interrupted> {
    let output: Box<dyn Write> = match path {
        Some(path) => Box::new(create(path)?),
        None => Box::new(io::stdout().lock()),
    };
    let is_read = path.is_none() && terminal::is_read();
    let form = (format, servers);
    let exported = export_to(config, filter, output, form, is_read);
    if let (Some(path), Err(_)) = (path, &exported) {
        // A part would look like the whole, and the next export overwrites nothing.
        let _ = std::fs::remove_file(path);
    }
    exported
}

/// Writes calls when they have ended, and at the end those that have not. `is_read` says that the output
/// is a terminal, which obeys control characters.
///
/// # Errors
///
/// When the ledger cannot be read, or the output cannot be written.
pub fn export_to(
    config: &Config,
    filter: CallFilter,
    output: impl Write,
    (format, servers): (ExportFormat, ServerNames),
    is_read: bool,
) -> Result<(), Interrupted> {
    let wanted = Wanted::new(filter);
    let mut reader = open_reader(config)?;
    // What comes after this is for the next export.
    let last = reader.extent().map_err(Failure::from)?.last_sequence;
    let mut lines = Lines::new(BufWriter::new(output), format, servers)?;
    if let Lines::Csv(sheet) = &mut lines {
        sheet.is_read = is_read;
    }
    let bar = bar(last, "entries");
    let mut entries = Entries::from(reader, 1);
    let mut open: HashMap<CallId, Open> = HashMap::new();
    while let Some(entry) = entries.next()? {
        if last < entry.sequence {
            break;
        }
        if entry.sequence % STEP == 0 {
            bar.set_position(entry.sequence);
        }
        match entry.event {
            Event::Started(started) => {
                let call = Open {
                    sequence: entry.sequence,
                    started,
                    ended: None,
                };
                open.insert(entry.call, call);
            }
            Event::Ended(ended) if ended.outcome.plain() == Outcome::Unknown => {
                // A server that was taken for dead may live, and its word counts more.
                if let Some(call) = open.get_mut(&entry.call) {
                    call.ended.get_or_insert(ended);
                }
            }
            Event::Ended(ended) => {
                let Some(Open {
                    sequence, started, ..
                }) = open.remove(&entry.call)
                else {
                    continue;
                };
                if wanted.takes(&started, Some(&ended)) {
                    lines.call(entry.call, sequence, &started, Some(&ended))?;
                }
            }
            Event::Noted(noted) if wanted.is_everything() => {
                lines.note(&rows::note(entry.sequence, &noted))?;
            }
            Event::Noted(_) => {}
        }
    }
    let mut open: Vec<_> = open.into_iter().collect();
    open.sort_by_key(|(_, call)| call.sequence);
    for (id, call) in open {
        let ended = call.ended.as_ref();
        if wanted.takes(&call.started, ended) {
            lines.call(id, call.sequence, &call.started, ended)?;
        }
    }
    lines.finish()?;
    bar.finish_and_clear();
    Ok(())
}

/// A call that has not ended, or whose end is unknown.
struct Open {
    sequence: u64,
    started: Started,
    ended: Option<Ended>,
}

/// Creates the file, readable for its owner alone since it holds what was recorded; an existing
/// file is not overwritten.
fn create(path: &Path) -> Result<std::fs::File, Failure> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|error| format!("{} cannot be made: {error}", path.display()).into())
}

/// Progress bar for a person who watches.
pub(super) fn bar(total: u64, unit: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = format!("{{bar:40}} {{pos}}/{{len}} {unit} {{eta}}");
    let style = ProgressStyle::with_template(&style);
    ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Upstreams and their own names of tools, by the names under which the tools are offered.
pub type ServerNames = HashMap<String, (String, String)>;

/// Output format: a line or a row for each item.
enum Lines<W: Write> {
    Json(W),
    Csv(Box<CsvSheet<W>>),
    Audit(W, ServerNames),
}

impl<W: Write> Lines<W> {
    fn new(output: W, format: ExportFormat, servers: ServerNames) -> Result<Self, Interrupted> {
        Ok(match format {
            ExportFormat::Json => Self::Json(output),
            ExportFormat::Csv => Self::Csv(Box::new(CsvSheet::new(output, rows::CALL)?)),
            ExportFormat::Audit => Self::Audit(output, servers),
        })
    }

    fn call(
        &mut self,
        call: CallId,
        sequence: u64,
        started: &Started,
        ended: Option<&Ended>,
    ) -> Result<(), Interrupted> {
        let row = || rows::parts(call, sequence, started, ended);
        match self {
            Self::Json(output) => write_object(output, "call", rows::CALL, &row()),
            Self::Csv(sheet) => Ok(sheet.write(&row())?),
            Self::Audit(output, servers) => {
                let Some(row) = rows::audit(call, started, ended, servers) else {
                    return Ok(());
                };
                let line = object(&rows::AUDIT, &row);
                Ok(writeln!(output, "{}", sheet::line(&line))?)
            }
        }
    }

    fn note(&mut self, row: &Row) -> Result<(), Interrupted> {
        match self {
            Self::Json(output) => write_object(output, "note", rows::NOTE, row),
            // Notes have other columns.
            Self::Csv(_) | Self::Audit(..) => Ok(()),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Json(mut output) | Self::Audit(mut output, _) => output.flush(),
            Self::Csv(sheet) => sheet.finish(),
        }
    }
}

fn write_object(
    output: &mut impl Write,
    is: &str,
    columns: &[&str],
    row: &Row,
) -> Result<(), Interrupted> {
    let mut line = object(columns, row);
    line.insert("type", json!(is).into());
    Ok(writeln!(output, "{}", sheet::line(&line))?)
}
