//! Archives of the ledger, and holds that keep them.

use std::path::Path;

use data_encoding::HEXLOWER;
use ledger::{Hold, HoldFilter, backup_checkpoint, system_now_us};
use serde_json::{Value, json};

use super::export::bar;
use super::sheet::{Row, Sheet, pretty, row};
use super::verify::one_line;
use crate::request::when::shown;
use crate::request::{ReportFormat, RowsFormat, When, Whose};
use config::Config;
use server::{Failure, open_archiver, open_holds, open_reader};

const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// `ledger archive`. `deleter` is the person who deletes what is old enough, if anything is to be deleted.
pub(crate) fn archive(
    config: &Config,
    (before, keep): (Option<When>, Option<u64>),
    deleter: Option<&str>,
    format: ReportFormat,
) -> Result<String, Failure> {
    if let Some(by) = deleter {
        one_line("--by", by)?;
    }
    let now_us = system_now_us();
    let days_ago = |days: u64| now_us.saturating_sub(days.saturating_mul(DAY_US));
    let settings = &config.ledger.archive;
    let before_us = before
        .map(|when| when.0)
        .or(keep.or(settings.after_days).map(days_ago));
    let before_us = before_us.ok_or(
        "say what to archive: --before TIME or --keep DAYS, or set ledger.archive.after_days",
    )?;
    let mut archiver = open_archiver(config)?;
    let entries = open_reader(config)?.extent()?;
    let bar = bar(entries.last_sequence, "entries");
    let mut report = server::archive(&mut archiver, before_us, &mut |report| {
        bar.set_position(report.taken_out);
        true
    })?;
    bar.finish_and_clear();
    if let Some(by) = deleter {
        let days = settings.delete_after_days;
        let days = days.ok_or("--delete needs ledger.archive.delete_after_days")?;
        report.deleted = archiver.delete(days_ago(days), now_us, by.trim())?;
    }
    let written = report.written.iter().map(|path| path.display().to_string());
    Ok(match format {
        ReportFormat::Json => pretty(&json!({
            "before": shown(before_us),
            "entries": report.taken_out,
            "segments": written.collect::<Vec<_>>(),
            "deleted": report.deleted,
        })),
        ReportFormat::Text => {
            let mut lines = vec![format!(
                "archived     {} entries of calls that began before {}",
                report.taken_out,
                shown(before_us)
            )];
            lines.extend(written.map(|path| format!("segment      {path}")));
            let deleted = report.deleted.iter();
            lines.extend(deleted.map(|file| format!("deleted      {file}")));
            lines.join("\n")
        }
    })
}

/// `ledger backup`.
pub(crate) fn backup(config: &Config, to: &Path, format: ReportFormat) -> Result<String, Failure> {
    let checkpoint = server::backup(config, to)?;
    let sealed = backup_checkpoint(to);
    Ok(match format {
        ReportFormat::Json => pretty(&json!({
            "backup": to,
            "checkpoint": sealed,
            "last_sequence": checkpoint.sequence,
            "head": HEXLOWER.encode(&checkpoint.hash),
            "signed": checkpoint.signature.is_some(),
        })),
        ReportFormat::Text => format!(
            "backup       {}, which ends with entry {}\ncheckpoint   {}",
            to.display(),
            checkpoint.sequence,
            sealed.display()
        ),
    })
}

/// `ledger restore`.
pub(crate) fn restore(
    config: &Config,
    from: &Path,
    accepted: Option<(&str, &str)>,
    format: ReportFormat,
) -> Result<String, Failure> {
    if let Some((by, reason)) = accepted {
        one_line("--by", by)?;
        one_line("--reason", reason)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let accepted = accepted.map(|(by, reason)| (by.trim(), reason.trim()));
    let (checkpoint, aside) = runtime.block_on(server::restore(config, from, accepted))?;
    let path = &config.ledger.path;
    Ok(match format {
        ReportFormat::Json => pretty(&json!({
            "ledger": path,
            "last_sequence": checkpoint.sequence,
            "head": HEXLOWER.encode(&checkpoint.hash),
            "set_aside": aside.first(),
            "all_set_aside": aside,
        })),
        ReportFormat::Text => {
            let mut lines = vec![format!(
                "restored     {}, which ends with entry {}",
                path.display(),
                checkpoint.sequence
            )];
            lines.extend(
                aside
                    .iter()
                    .map(|aside| format!("set aside    {}", aside.display())),
            );
            lines.join("\n")
        }
    })
}

/// `ledger hold`.
pub(crate) fn hold(
    config: &Config,
    who: &Whose,
    (since, until): (Option<When>, Option<When>),
    by: &str,
    reason: &str,
) -> Result<String, Failure> {
    one_line("--by", by)?;
    one_line("--reason", reason)?;
    let of = HoldFilter {
        principal: who.client.clone(),
        capability: who.capability(),
        since_us: since.map(|when| when.0),
        until_us: until.map(|when| when.0),
    };
    let set = open_holds(config)?.set(&of, by.trim(), reason.trim(), system_now_us())?;
    Ok(format!("held         by hold {set}"))
}

/// `ledger lift-hold`.
pub(crate) fn lift_hold(
    config: &Config,
    number: u64,
    by: &str,
    reason: &str,
) -> Result<String, Failure> {
    one_line("--by", by)?;
    one_line("--reason", reason)?;
    let lifted = open_holds(config)?.lift(number, by.trim(), reason.trim(), system_now_us())?;
    lifted.ok_or_else(|| format!("there is no hold {number}"))?;
    Ok(format!("lifted       hold {number}"))
}

const COLUMNS: [&str; 8] = [
    "hold",
    "client",
    "capability",
    "since",
    "until",
    "by",
    "reason",
    "time",
];
const SHOWN: [(&str, &str); 8] = [
    ("hold", "HOLD"),
    ("client", "CLIENT"),
    ("capability", "CAPABILITY"),
    ("since", "SINCE"),
    ("until", "UNTIL"),
    ("by", "BY"),
    ("reason", "REASON"),
    ("time", "TIME"),
];

/// `ledger holds`.
pub(crate) fn holds(config: &Config, format: RowsFormat) -> Result<String, Failure> {
    let holds = open_holds(config)?.all()?;
    let sheet = Sheet {
        columns: &COLUMNS,
        shown: &SHOWN,
        rows: holds.iter().map(cells).collect(),
    };
    Ok(sheet.print(format)?)
}

fn cells(hold: &Hold) -> Row {
    let time = |us: Option<u64>| us.map(shown).map_or(Value::Null, Value::from);
    row![
        json!(hold.number),
        json!(hold.of.principal),
        json!(hold.of.capability),
        time(hold.of.since_us),
        time(hold.of.until_us),
        json!(hold.by),
        json!(hold.reason),
        json!(shown(hold.at_us)),
    ]
}
