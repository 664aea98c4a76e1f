//! Verification of a ledger: whether its entries are unchanged and complete.

use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use ledger::{PublicKey, Report, SigningKey, Trust, verify_telling};
use serde_json::json;

use super::export::bar;
use super::sheet::pretty;
use crate::request::{ReportFormat, when::shown};
use config::Config;
use server::Failure;
use server::{self, Comparison, Stamps, compare_counters, open_reader, sealed_every};

/// Number of attempts to verify a ledger of which segments are archived or deleted meanwhile.
const MAX_DISTURBED: usize = 5;

/// Result of the verification, to be printed.
pub(crate) struct Verified {
    pub is_sound: bool,
    /// True if checkpoints seal the ledger to its end.
    pub is_sealed: bool,
    /// False if segments are encrypted and no identity opens them.
    pub is_read: bool,
    pub text: String,
}

/// The outcome of a verification with the keys and the file of checkpoints that the configuration names:
/// the same object that `ledger verify --format json` prints.
///
/// # Errors
///
/// When the ledger or a key cannot be read, which says nothing about the ledger.
pub fn verified(config: &Config) -> Result<serde_json::Value, Failure> {
    let verified = verify(config, &[], None, ReportFormat::Json)?;
    Ok(serde_json::from_str(&verified.text)?)
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
    // Nor need the one of the configuration: that it is gone is told by what the ledger says that it sealed there.
    let configured = config.ledger.checkpoint.file.as_deref();
    let named = checkpoints.or(configured.filter(|path| path.exists()));
    let is_beside = config.ledger.url.is_none() && beside.exists();
    let file = named.or_else(|| is_beside.then_some(beside.as_path()));
    // It begins with the first checkpoint; one that is gone since then is missed by what the ledger says of it.
    let witness = config.ledger.witness.file.as_deref();
    let mut reader = open_reader(config)?;
    // What cannot be read is told in the report.
    reader.leave_unread();
    let bar = bar(0, "entries");
    let trust = Trust {
        keys: &keys,
        checkpoints: file,
        witness,
        every: sealed_every(config),
    };
    let mut attempt = 1;
    let report = loop {
        // Of a ledger that is damaged they may be unknown, which the report explains.
        let gaps = reader.gaps().ok();
        let report = verify_telling(reader.as_mut(), trust, &mut |done, all| {
            bar.set_length(all);
            bar.set_position(done);
        })?;
        // What was archived or deleted meanwhile and cannot be read is missed where it was.
        let mut is_disturbed = || match (&gaps, reader.gaps()) {
            (Some(before), Ok(after)) => *before != after,
            _ => false,
        };
        if report.is_ok() || !is_disturbed() {
            break report;
        }
        if attempt == MAX_DISTURBED {
            return Err(
                "segments were archived or deleted meanwhile: verify again when that is done"
                    .into(),
            );
        }
        attempt += 1;
    };
    bar.finish_and_clear();
    let stamps = match server::verify_timestamps(config, reader.as_mut()) {
        // What is wrong with the ledger may be why, and is told in any case.
        Err(_) if !report.is_ok() => None,
        stamps => stamps?,
    };
    let is_stamped = stamps.as_ref().is_none_or(|it| it.wrong.is_none());
    let counters = Counters::beside(config, report.is_ok());
    Ok(Verified {
        is_sound: report.is_ok() && is_stamped && counters.are_right(),
        is_sealed: report.is_sealed(),
        is_read: report.unread == 0,
        text: match format {
            ReportFormat::Text => text(
                &report,
                keys.len(),
                (file, witness),
                stamps.as_ref(),
                &counters,
            ),
            ReportFormat::Json => pretty(&json!({
                "sound": report.is_ok() && is_stamped,
                "entries": report.entries,
                "deleted": report.deleted,
                "unread": report.unread,
                "head": HEXLOWER.encode(&report.head),
                "keys": keys.len(),
                "checkpoints": file,
                "checkpoints_checked": report.checkpoints_checked,
                "sealed": report.is_sealed(),
                "sealed_through": report.sealed_through,
                "unsealed": report.unsealed,
                "file_lacks": report.file_lacks,
                "timestamps": stamps.as_ref().map(|it| json!({
                    "file": it.file,
                    "agree": it.agree,
                    "last": it.last.map(|(sequence, at)| json!({
                        "sequence": sequence, "at": shown(at_us(at)),
                    })),
                    "unreadable": it.unreadable,
                    "wrong": it.wrong,
                })),
                "witness": witness,
                "witness_lacks": report.witness_lacks,
                "unreadable_lines": report.unreadable_lines,
                "counters": counters.json(),
                "wrong": report.first_wrong.as_ref().map(|wrong| json!({
                    "sequence": wrong.sequence,
                    "what": wrong.what.to_string(),
                })),
            })),
        },
    })
}

/// The line about the time-stamps of checkpoints.
fn stamped(stamps: &Stamps) -> String {
    let last = match stamps.last {
        Some((sequence, at)) => format!(", the last of {}, of entry {sequence}", shown(at_us(at))),
        None => String::new(),
    };
    let unreadable = match stamps.unreadable {
        0 => String::new(),
        count => format!("; {count} lines cannot be read"),
    };
    format!("timestamps   {} agree{last}{unreadable}", stamps.agree)
}

fn at_us(at: std::time::Duration) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
}

/// Refuses a text for the record that is empty or has control characters.
pub(super) fn one_line(flag: &str, text: &str) -> Result<(), Failure> {
    if text.trim().is_empty() || text.chars().any(char::is_control) {
        return Err(format!("{flag} must be one line of text").into());
    }
    Ok(())
}

/// `ledger accept-rollback`.
pub(crate) fn accept_rollback(config: &Config, by: &str, reason: &str) -> Result<String, Failure> {
    one_line("--by", by)?;
    one_line("--reason", reason)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let accepted = server::accept_rollback(config, by.trim(), reason.trim());
    let (what, aside) = runtime.block_on(accepted)?;
    let mut lines = vec![format!("accepted     {what}")];
    let moved = aside.iter();
    lines.extend(moved.map(|aside| format!("set aside    {}", aside.display())));
    Ok(lines.join("\n"))
}

/// Counters in PostgreSQL, beside the ledger.
enum Counters {
    /// There are none.
    None,
    /// The two cannot be compared, for this reason.
    Unknown(String),
    Compared(Comparison),
}

impl Counters {
    /// Compares them with the table of calls, unless that differs from the entries: nothing would follow from it then.
    fn beside(config: &Config, is_right: bool) -> Self {
        match config.ledger.url {
            Some(_) if !is_right => Self::Unknown("the ledger is damaged".to_owned()),
            _ => Self::of(compare_counters(config)),
        }
    }

    fn of(compared: Result<Option<Comparison>, Failure>) -> Self {
        match compared {
            Ok(None) => Self::None,
            Ok(Some(comparison)) => Self::Compared(comparison),
            Err(failure) => Self::Unknown(server::with_causes(&*failure)),
        }
    }

    fn are_right(&self) -> bool {
        match self {
            Self::None | Self::Unknown(_) => true,
            Self::Compared(found) => !found.is_emptied && found.lower.is_empty(),
        }
    }

    fn json(&self) -> serde_json::Value {
        match self {
            Self::None => json!(null),
            Self::Unknown(why) => json!({ "not_compared": why }),
            Self::Compared(found) => json!({
                "emptied": found.is_emptied,
                "lower": found.lower.iter().map(ToString::to_string).collect::<Vec<_>>(),
            }),
        }
    }

    fn lines(&self) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::Unknown(why) => vec![format!("counters     not compared: {why}")],
            Self::Compared(_) if self.are_right() => {
                vec!["counters     at least what the ledger has".to_owned()]
            }
            Self::Compared(found) => {
                let emptied = found
                    .is_emptied
                    .then(|| "counters     were emptied".to_owned());
                let lower = found.lower.iter().map(|it| format!("lower        {it}"));
                emptied.into_iter().chain(lower).collect()
            }
        }
    }
}

fn text(
    report: &Report,
    keys: usize,
    (file, witness): (Option<&Path>, Option<&Path>),
    stamps: Option<&Stamps>,
    counters: &Counters,
) -> String {
    let mut lines = vec![
        format!("entries      {}", report.entries),
        format!("head         {}", HEXLOWER.encode(&report.head)),
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
    if let Some(witness) = witness {
        lines.insert(4, format!("witness      {}", witness.display()));
    }
    if report.deleted != 0 {
        let count = report.deleted;
        lines.push(format!(
            "deleted      {count} entries, with their segments, as the ledger says"
        ));
    }
    if report.unread != 0 {
        let count = report.unread;
        lines.push(format!(
            "unread       {count} entries of encrypted segments, or deleted as these may say: the files are those that were \
             sealed, and the chain goes through them; what is in them is looked at with --identity FILE"
        ));
    }
    if report.unreadable_lines != 0 {
        let count = report.unreadable_lines;
        lines.push(format!("unreadable   {count} lines of the file"));
    }
    if report.unsealed != 0 {
        lines.push(format!(
            "unsealed     {} entries after entry {} are proved by nothing but the chain",
            report.unsealed, report.sealed_through
        ));
    }
    if let Some(through) = report.file_lacks {
        lines.push(match file {
            Some(_) => format!("lacking      the file once sealed entry {through}: lines are gone"),
            None => {
                format!("lacking      a file that seals entry {through}: name it (--checkpoints)")
            }
        });
    }
    if let Some(through) = report.witness_lacks {
        lines.push(format!(
            "lacking      the file of the witness once sealed entry {through}: lines are gone"
        ));
    }
    lines.extend(stamps.map(stamped));
    let wrong_stamp = stamps.and_then(|it| it.wrong.as_ref());
    lines.extend(counters.lines());
    lines.push(match &report.first_wrong {
        None if let Some(wrong) = wrong_stamp => format!("damaged      a time-stamp: {wrong}"),
        None if !counters.are_right() => {
            "damaged      counters are lower than the ledger says; a server that starts raises them"
                .to_owned()
        }
        None if report.is_sealed() && report.unread == 0 => "sound".to_owned(),
        None if report.is_sealed() => "sound, as far as it could be read".to_owned(),
        None => format!(
            "sound, but sealed through {} of {} only",
            report.sealed_through, report.entries
        ),
        Some(wrong) => format!("damaged      {wrong}"),
    });
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use ledger::{
        CallId, CheckpointOptions, Checkpoints, Durability, End, Kind, Outcome, Recorder,
        RecorderOptions, SqliteLedger, Start, system_now_us,
    };

    use super::*;

    #[tokio::test]
    async fn a_file_of_checkpoints_that_is_gone_leaves_a_sound_ledger_without_its_seal() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.ledger.path = directory.path().join("ledger.db");
        let file = directory.path().join("checkpoints");
        config.ledger.checkpoint.file = Some(file.clone());
        let checkpoints = Checkpoints::new(CheckpointOptions {
            file: Some(file.clone()),
            ..CheckpointOptions::default()
        });
        let store = SqliteLedger::open(&config.ledger.path, Durability::Strict).unwrap();
        let recorder = Recorder::spawn_with_hook(store, RecorderOptions::default(), checkpoints);
        let recorder = recorder.unwrap();
        let at_us = system_now_us();
        let start = Start::new(CallId::new(at_us), at_us, "ana", Kind::Tool, "tool/pay");
        let open = recorder.begin(&start).await.unwrap();
        open.finish(&End::new(Outcome::Succeeded)).await.unwrap();
        recorder.close().await.unwrap();
        let verified = |named| verify(&config, &[], named, ReportFormat::Text);
        let there = verified(None).unwrap();
        assert!(there.is_sound && there.is_sealed, "{}", there.text);
        std::fs::remove_file(&file).unwrap();
        let gone = verified(None).unwrap();
        assert!(gone.is_sound && !gone.is_sealed, "{}", gone.text);
        assert!(gone.text.contains("lacking      "), "{}", gone.text);
        // One that is named for this must be there.
        assert!(verified(Some(&file)).is_err());
    }

    #[test]
    fn damage_is_reported_wherever_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.ledger.path = directory.path().join("ledger.db");
        drop(SqliteLedger::open(&config.ledger.path, Durability::Strict).unwrap());
        let whole = std::fs::read(&config.ledger.path).unwrap();
        let page = usize::from(u16::from_be_bytes([whole[16], whole[17]]));
        let mut found = 0;
        for from in (page..whole.len()).step_by(page) {
            let mut damaged = whole.clone();
            damaged[from..from + page].fill(0xFF);
            std::fs::write(&config.ledger.path, damaged).unwrap();
            // One that cannot be opened at all is told of as that.
            if open_reader(&config).is_err() {
                continue;
            }
            let verified = verify(&config, &[], None, ReportFormat::Text);
            let verified = verified.unwrap_or_else(|error| panic!("page at {from}: {error:?}"));
            assert!(!verified.is_sound, "page at {from}: {}", verified.text);
            found += 1;
        }
        assert_ne!(found, 0);
    }

    #[test]
    fn counters_are_not_held_against_a_ledger_that_is_damaged() {
        let mut config = Config::default();
        config.ledger.url = Some(config::Secret::new("postgres://ana@127.0.0.1:1/none"));
        let counters = Counters::beside(&config, false);
        assert_eq!(
            counters.lines(),
            ["counters     not compared: the ledger is damaged"]
        );
    }
}
