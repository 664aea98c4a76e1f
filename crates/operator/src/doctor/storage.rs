//! Checks of the ledger's storage.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use ledger::{Filter, ReadLedger, SigningKey, system_now_us};

use config::Config;
use server::Finding;
use server::{compare_counters, continuity, database, exposed, open_reader};

const MINUTE_US: u64 = 60_000_000;
/// Bytes of the file that tests for room: if they do not fit, the disk is full.
const PROBE_BYTES: usize = 256 * 1024;

pub(super) fn findings(config: &Config) -> Vec<Finding> {
    match &config.ledger.url {
        Some(_) => in_database(config),
        None => in_file(config),
    }
}

fn in_database(config: &Config) -> Vec<Finding> {
    const AREA: &str = "database";
    let hint = "is it running, reachable from here, and is `ledger.url` right?";
    if let Err(error) = database(config) {
        return vec![Finding::error(AREA, error.to_string()).hint(hint)];
    }
    let began = Instant::now();
    match open_reader(config) {
        Ok(mut reader) => {
            let took = began.elapsed().as_millis();
            let mut findings = vec![Finding::ok(AREA, format!("it answers ({took} ms)"))];
            let hint = "no server starts with it: see docs/postgres.md, What a start refuses";
            if let Some(fault) = fault(AREA, &mut *reader) {
                findings.push(fault.hint(hint));
                return findings;
            }
            // Each server has its own, made at its first start.
            findings.extend(redaction_key(AREA, config, false));
            findings.extend(signing_key(AREA, config));
            findings.extend(continued(AREA, config));
            let beside = server::witness_beside(config);
            let hint = "name a file on another volume, or another machine (ledger.witness)";
            findings.extend(beside.map(|it| Finding::warning(AREA, it).hint(hint)));
            findings.extend(clock(&mut *reader));
            drop(reader);
            findings.extend(counters(AREA, config));
            findings
        }
        Err(failure) => {
            let why = server::with_causes(&*failure);
            vec![Finding::error(AREA, why).hint(hint)]
        }
    }
}

/// A finding if what stands beside the entries does not fit them.
fn fault(area: &'static str, reader: &mut dyn ReadLedger) -> Option<Finding> {
    match reader.fault() {
        Ok(fault) => fault.map(|it| Finding::error(area, it.to_string())),
        Err(error) => Some(Finding::error(area, server::with_causes(&error))),
    }
}

/// Findings if counters are lower than the ledger says.
fn counters(area: &'static str, config: &Config) -> Vec<Finding> {
    let hint = "they were changed; the next start of a server raises them, and records that";
    match compare_counters(config) {
        Ok(None) => Vec::new(),
        Ok(Some(found)) => {
            let emptied = found
                .is_emptied
                .then(|| "the counters were emptied".to_owned());
            let lower = found
                .lower
                .iter()
                .map(|it| format!("a counter is too low: {it}"));
            let told = emptied.into_iter().chain(lower);
            told.map(|what| Finding::warning(area, what).hint(hint))
                .collect()
        }
        Err(failure) => {
            let why = server::with_causes(&*failure);
            vec![Finding::warning(
                area,
                format!("the counters cannot be compared: {why}"),
            )]
        }
    }
}

fn in_file(config: &Config) -> Vec<Finding> {
    const AREA: &str = "ledger";
    let path = &config.ledger.path;
    let place = path.display();
    let mut findings: Vec<_> = signing_key(AREA, config).into_iter().collect();
    match path.parent() {
        Some(directory) if directory.is_dir() => findings.extend(writable(AREA, directory)),
        Some(directory) => findings.extend(can_be_made(AREA, directory)),
        None => {}
    }
    if !path.exists() {
        findings.extend(continued(AREA, config));
        // All of them would keep a server from starting.
        if findings.is_empty() {
            let begins = format!("{place} will be made at the first start");
            findings.push(Finding::ok(AREA, begins));
        }
        return findings;
    }
    findings.extend(exposed(config));
    match open_reader(config) {
        Ok(mut reader) => {
            findings.push(Finding::ok(AREA, format!("{place} can be read")));
            let hint = "a server that starts makes the index anew from the entries; `ledger verify` compares all of it";
            findings.extend(fault(AREA, &mut *reader).map(|it| it.hint(hint)));
            findings.extend(redaction_key(AREA, config, true));
            findings.extend(continued(AREA, config));
            findings.extend(clock(&mut *reader));
        }
        Err(failure) => findings.push(Finding::error(AREA, server::with_causes(&*failure)).hint(
            "see docs/ledger.md; keep the file, and let the server begin a new one elsewhere",
        )),
    }
    findings
}

/// A finding if the key of redaction cannot be used, or is missing although it `must_exist`.
fn redaction_key(area: &'static str, config: &Config, must_exist: bool) -> Option<Finding> {
    let path = &config.ledger.path;
    match server::has_redaction_key(path) {
        Ok(exists) if exists || !must_exist => None,
        Ok(_) => {
            let place = path.display();
            let missing = format!("the key of redaction beside {place} is missing");
            let hint = "put it back from a backup: the next start makes a new one";
            Some(Finding::warning(area, missing).hint(hint))
        }
        Err(failure) => {
            let hint = "put the key back from a backup";
            Some(Finding::error(area, server::with_causes(&*failure)).hint(hint))
        }
    }
}

/// A finding if the key that signs checkpoints cannot be used: no server starts then.
fn signing_key(area: &'static str, config: &Config) -> Option<Finding> {
    let path = config.ledger.checkpoint.key.as_ref()?;
    let error = SigningKey::load(path).err()?;
    let why = server::with_causes(&error);
    let hint =
        "put the key back, or make one with `owlclaw-mcp ledger keygen` (ledger.checkpoint.key)";
    Some(Finding::error(area, why).hint(hint))
}

/// A finding if a server would refuse to continue this ledger.
fn continued(area: &'static str, config: &Config) -> Option<Finding> {
    let failure = continuity(config).err()?;
    Some(Finding::error(area, server::with_causes(&*failure)))
}

/// Finding if a file cannot be made in `directory` or finds no room, tried by making one.
fn writable(area: &'static str, directory: &Path) -> Option<Finding> {
    let name = format!(".owlclaw-doctor-{}", std::process::id());
    let path = directory.join(name);
    let made = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path);
    match made {
        Ok(mut file) => {
            let filled = file
                .write_all(&[0; PROBE_BYTES])
                .and_then(|()| file.sync_all());
            // What cannot be removed was still made.
            let _ = fs::remove_file(&path);
            filled.err().map(|error| {
                let place = directory.display();
                Finding::error(area, format!("{place} has no room for a file: {error}"))
                    .hint("make room: calls that cannot be recorded are refused")
            })
        }
        Err(error) => Some(
            Finding::error(
                area,
                format!("{} cannot be written to: {error}", directory.display()),
            )
            .hint("let the server's user own the directory, or set ledger.path"),
        ),
    }
}

/// Finding if a missing directory cannot be made below its parent.
fn can_be_made(area: &'static str, directory: &Path) -> Option<Finding> {
    let above = directory.ancestors().find(|it| it.exists())?;
    writable(area, above)
}

/// Finding if the clock has gone back, which shows in entries recorded in its future. Limits go by
/// the clock.
fn clock(reader: &mut dyn ledger::ReadLedger) -> Option<Finding> {
    const AREA: &str = "clock";
    let newest = reader.recent(1, Filter::default()).ok()?;
    let newest = newest.first()?.started.at_us;
    let now = system_now_us();
    Some(if now.saturating_add(MINUTE_US) < newest {
        let minutes = (newest - now) / MINUTE_US;
        let message = format!("the newest call is {minutes} minutes in the future");
        Finding::error(AREA, message).hint("set the clock right; limits count what is recorded")
    } else {
        Finding::ok(AREA, "it is not behind what is recorded")
    })
}
