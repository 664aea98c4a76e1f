//! Whether a ledger is what it was.

use std::path::{Path, PathBuf};

use ledger::{PublicKey, Report, SigningKey, Trust, verify_telling};
use serde_json::json;

use super::export::bar;
use super::rows::hex;
use super::sheet::pretty;
use crate::Failure;
use crate::cli::ReportFormat;
use crate::config::Config;
use crate::serve::open_reader;

/// What was found, to be printed.
pub(crate) struct Verified {
    pub(crate) is_sound: bool,
    pub(crate) text: String,
}

/// `ledger verify`.
pub(crate) fn verify(
    config: &Config,
    keys: &[PathBuf],
    checkpoints: Option<&Path>,
    format: ReportFormat,
) -> Result<Verified, Failure> {
    let own = config.ledger.checkpoint.key.as_deref();
    let own = own.map(SigningKey::public_path).filter(|_| keys.is_empty());
    let keys = keys.iter().chain(&own).map(|path| PublicKey::load(path));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    // One that is named must be there; the one beside a ledger need not be.
    let beside = config.ledger.checkpoints_file();
    let named = checkpoints.or(config.ledger.checkpoint.file.as_deref());
    let is_beside = config.ledger.url.is_none() && beside.exists();
    let file = named.or_else(|| is_beside.then_some(beside.as_path()));
    let mut reader = open_reader(config)?;
    let bar = bar(0, "entries");
    let trust = Trust {
        keys: &keys,
        checkpoints: file,
    };
    let report = verify_telling(reader.as_mut(), trust, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    Ok(Verified {
        is_sound: report.is_ok(),
        text: match format {
            ReportFormat::Text => text(&report, keys.len(), file),
            ReportFormat::Json => pretty(&json!({
                "sound": report.is_ok(),
                "entries": report.entries,
                "head": hex(&report.head),
                "keys": keys.len(),
                "checkpoints": file,
                "checkpoints_checked": report.checkpoints_checked,
                "sealed_through": report.sealed_through,
                "unreadable_lines": report.unreadable_lines,
                "wrong": report.first_wrong.as_ref().map(|wrong| json!({
                    "sequence": wrong.sequence,
                    "what": wrong.what.to_string(),
                })),
            })),
        },
    })
}

fn text(report: &Report, keys: usize, file: Option<&Path>) -> String {
    let mut lines = vec![
        format!("entries      {}", report.entries),
        format!("head         {}", hex(&report.head)),
        format!(
            "checkpoints  {} agree, the last seals entry {}",
            report.checkpoints_checked, report.sealed_through
        ),
        match file {
            Some(path) => format!("file         {}", path.display()),
            None => "file         none: a ledger cut short may go unnoticed".to_owned(),
        },
        match keys {
            0 => "signatures   not looked at, since no key is given".to_owned(),
            keys => format!("signatures   held against {keys} keys"),
        },
    ];
    if report.unreadable_lines != 0 {
        let count = report.unreadable_lines;
        lines.push(format!("unreadable   {count} lines of the file"));
    }
    lines.push(match &report.first_wrong {
        None => "sound".to_owned(),
        Some(wrong) => format!("damaged      {wrong}"),
    });
    lines.join("\n")
}
