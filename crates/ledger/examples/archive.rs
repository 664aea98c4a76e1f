//! Archives of a large ledger under load, by processes that are killed: `cargo run --release -p ledger --example
//! archive DIRECTORY [ENTRIES]`.
//!
//! Makes a ledger of a million entries of the thirty days that end now, archives all but two days of it with
//! processes that are killed after random times, while calls are made and timed; then prints what that took, and
//! fails unless each entry is found once and what was used is what it was, to the micro.

use ledger::{
    ArchiveOptions, Archived, Archiver, CallId, DEFAULT_SEGMENT_ENTRIES, Durability, End, Kind,
    LedgerReader, MIN_AGE, Outcome, ReadLedger, Recorder, RecorderOptions, SqliteLedger, Start,
    Trust, Usage, system_now_us, verify,
};
use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, Write},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

type Anything = Box<dyn Error + Send + Sync>;

const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;
const DAYS: u64 = 30;
const DEFAULT_ENTRIES: u64 = 1_000_000;
const CHILD: &str = "--child";
/// Times after which a process is killed, in milliseconds.
const SHORTEST: u64 = 500;
const LONGEST: u64 = 20_000;

fn main() -> Result<(), Anything> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("where?")?;
    if directory == CHILD {
        return archive(Path::new(&arguments.next().ok_or("where?")?));
    }
    let entries = arguments
        .next()
        .map_or(Ok(DEFAULT_ENTRIES), |it| it.parse())?;
    let path = Path::new(&directory).join("ledger.db");
    generate(&path, entries)?;
    measure(&path)
}

fn options() -> RecorderOptions {
    RecorderOptions {
        durability: Durability::Relaxed,
        max_wait: Duration::from_secs(3_600),
        ..RecorderOptions::default()
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

fn generate(path: &Path, entries: u64) -> Result<(), Anything> {
    let (calls, now_us) = (entries / 2, system_now_us());
    let begin_us = now_us - DAYS * DAY_US;
    let recorder = Recorder::spawn(SqliteLedger::open(path, Durability::Relaxed)?, options())?;
    runtime()?.block_on(async {
        for number in 0..calls {
            let at_us = begin_us
                + (u128::from(DAYS * DAY_US) * u128::from(number) / u128::from(calls)) as u64;
            let principal = format!("client-{:03}", number * 7_919 % 200);
            let capability = format!("tool/number-{:02}", number * 104_729 % 40);
            call(&recorder, at_us, &principal, &capability, number % 1_000).await?;
            if number.is_multiple_of(256) {
                tokio::task::yield_now().await;
            }
        }
        recorder.close().await?;
        Ok(())
    })
}

async fn call(
    recorder: &Recorder,
    at_us: u64,
    principal: &str,
    capability: &str,
    cost_micros: u64,
) -> Result<(), Anything> {
    let start = Start {
        request_id: "7",
        method: "tools/call",
        transport: "http",
        protocol_version: "2026-07-28",
        arguments: r#"{"account":"DE02120300000000202051","amount":"12.50"}"#,
        ..Start::new(CallId::new(at_us), at_us, principal, Kind::Tool, capability)
    };
    let end = End {
        result: r#"[{"type":"text","text":"paid"}]"#,
        duration_us: 1_000,
        cost_micros,
        ..End::new(Outcome::Succeeded)
    };
    Ok(recorder.begin(&start).await?.finish(&end).await?)
}

/// The child: archives until nothing is left.
fn archive(path: &Path) -> Result<(), Anything> {
    let now_us = system_now_us();
    let before_us = now_us - MIN_AGE.as_micros() as u64;
    let options = ArchiveOptions {
        directory: path.with_file_name("archive"),
        segment_entries: DEFAULT_SEGMENT_ENTRIES,
        key: None,
        recipients: Vec::new(),
        identities: Vec::new(),
    };
    let mut archiver = Archiver::open(path, options)?;
    loop {
        let begun = Instant::now();
        match archiver.step(before_us, now_us)? {
            Archived::Nothing => return Ok(()),
            Archived::Written { .. } => {}
            // As a server does.
            Archived::TakenOut { .. } => thread::sleep(begun.elapsed() * 4),
        }
    }
}

/// Runs children until one comes to its end; tells how many were killed.
fn archive_and_kill(path: &Path) -> Result<u64, Anything> {
    let (mut killed, mut random) = (0, 0x9e37_79b9_7f4a_7c15_u64);
    loop {
        let mut child = Command::new(std::env::current_exe()?)
            .args([CHILD.as_ref(), path.as_os_str()])
            .spawn()?;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let until =
            Instant::now() + Duration::from_millis(SHORTEST + random % (LONGEST - SHORTEST));
        let ended = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if until < Instant::now() {
                child.kill()?;
                child.wait()?;
                break None;
            }
            thread::sleep(Duration::from_millis(5));
        };
        match ended {
            Some(status) if status.success() => return Ok(killed),
            Some(status) => return Err(format!("a child failed: {status}").into()),
            None => killed += 1,
        }
    }
}

/// Calls and their cost, by principal and capability.
type Used = BTreeMap<(String, String), (u64, u64)>;

/// Use by the calls that were there before.
fn used(reader: &mut LedgerReader) -> Result<Used, Anything> {
    let mut used = BTreeMap::new();
    for Usage {
        principal,
        capability,
        calls,
        cost_micros,
        ..
    } in reader.usage_since(0, Duration::MAX)?
    {
        if principal != "load" {
            let sum: &mut (u64, u64) = used.entry((principal, capability)).or_default();
            (sum.0, sum.1) = (sum.0 + calls, sum.1 + cost_micros);
        }
    }
    Ok(used)
}

fn size(path: &Path) -> Result<u64, Anything> {
    let connection = rusqlite::Connection::open(path)?;
    let pages = "SELECT (page_count - freelist_count) * page_size
        FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
    let bytes: i64 = connection.query_row(pages, [], |row| row.get(0))?;
    Ok(bytes.unsigned_abs() >> 20)
}

fn measure(path: &Path) -> Result<(), Anything> {
    let begun = Instant::now();
    let store = SqliteLedger::open(path, Durability::Relaxed)?;
    say(&format!(
        "opened and indexed in {:.1} s",
        begun.elapsed().as_secs_f64()
    ))?;
    let mut reader = LedgerReader::open(path)?;
    let (before, entries) = (used(&mut reader)?, reader.count()?.entries);
    say(&format!("{entries} entries, {} MiB", size(path)?))?;
    let recorder = Recorder::spawn(store, options())?;
    let is_over = Arc::new(AtomicBool::new(false));
    let archiving = {
        let (path, is_over) = (path.to_owned(), Arc::clone(&is_over));
        thread::spawn(move || {
            let killed = archive_and_kill(&path);
            is_over.store(true, Ordering::Release);
            killed
        })
    };
    let begun = Instant::now();
    let mut times = Vec::new();
    runtime()?.block_on(async {
        while !is_over.load(Ordering::Acquire) {
            let begun = Instant::now();
            call(&recorder, system_now_us(), "load", "tool/load", 1).await?;
            times.push(begun.elapsed());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        recorder.close().await?;
        Ok::<(), Anything>(())
    })?;
    let killed = archiving.join().map_err(|_| "the archiving panicked")??;
    let seconds = begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let time = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    say(&format!(
        "archived in {seconds:.0} s with {killed} kills, beside {} calls: {:.1} ms in the median, {:.1} ms at the 99th \
         percentile, {:.1} ms at most",
        times.len(),
        time(0.5),
        time(0.99),
        time(1.0)
    ))?;
    let mut archive = 0;
    let directory = path.with_file_name("archive");
    for file in std::fs::read_dir(&directory)? {
        archive += file?.metadata()?.len();
    }
    say(&format!(
        "live pages {} MiB, segments {} MiB",
        size(path)?,
        archive >> 20
    ))?;
    let begun = Instant::now();
    drop(SqliteLedger::open(path, Durability::Relaxed)?);
    say(&format!("opened in {:.3} s", begun.elapsed().as_secs_f64()))?;
    let begun = Instant::now();
    let mut reader = LedgerReader::open(path)?;
    let report = verify(&mut reader, Trust::default())?;
    say(&format!(
        "verified in {:.1} s: {:?}",
        begun.elapsed().as_secs_f64(),
        report.first_wrong
    ))?;
    // A note tells of each segment.
    let notes = reader.segments()?.len() as u64;
    let expected = entries + 2 * times.len() as u64 + notes;
    let after = used(&mut reader)?;
    if !report.is_ok() || report.entries != expected || after != before {
        return Err(format!("{} entries of {expected}", report.entries).into());
    }
    let calls: u64 = after.values().map(|(calls, _)| calls).sum();
    let cost: u64 = after.values().map(|(_, cost)| cost).sum();
    Ok(say(&format!("{calls} calls and {cost} micros, as before"))?)
}
