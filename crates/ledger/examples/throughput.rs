//! Cost of a recorded call: `cargo run --release -p ledger --example throughput [SECONDS]`.
//!
//! Sixty-four callers on one thread begin and finish calls as fast as they can. The same recorder
//! writes to stores that differ in how a group is kept: not at all, as one row, as a row for each
//! entry; in a file, or in a PostgreSQL of its own where that is installed. Beginning waits for one
//! commit, if durability is strict, and so does finishing.

use ledger::{
    Appended, CallId, Durability, End, Event, Group, Kind, LedgerStore, MemoryLedger, Outcome,
    PostgresLedger, PostgresOptions, Recorder, RecorderOptions, SqliteLedger, Start, StoreError,
    Tail, system_now_us,
};
use rusqlite::{Connection, params};
use std::{
    fs,
    io::{self, Write},
    path::Path,
    time::{Duration, Instant},
};

const CALLERS: usize = 64;

/// Ticks of `/proc/self/stat` in a second, on every Linux there is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Keeps nothing.
struct Nowhere(Tail);

impl LedgerStore for Nowhere {
    fn tail(&self) -> Tail {
        self.0
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        self.0 = self.0.after(group.body, group.count);
        Ok(Appended::at(self.0))
    }
}

/// Keeps a row for each entry, with the indexes that queries need.
struct Rows(Connection, Tail);

impl Rows {
    fn open(path: &Path, synchronous: &str) -> Self {
        let connection = Connection::open(path).expect("the directory is writable");
        connection
            .execute_batch(&format!(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous};
                 CREATE TABLE entry (sequence INTEGER PRIMARY KEY, call BLOB, at_us INTEGER,
                    principal TEXT, capability TEXT, method TEXT, arguments TEXT, outcome TEXT,
                    result TEXT, cost INTEGER, duration INTEGER);
                 CREATE INDEX by_call ON entry (call);
                 CREATE INDEX by_principal ON entry (principal, at_us);"
            ))
            .expect("a new database can be set up");
        Self(connection, Tail::default())
    }
}

impl LedgerStore for Rows {
    fn tail(&self) -> Tail {
        self.1
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        let failed = |error: rusqlite::Error| StoreError(Box::new(error));
        let entries = group
            .entries(self.1.next_sequence)
            .map_err(|error| StoreError(Box::new(error)))?;
        let transaction = self.0.transaction().map_err(failed)?;
        let mut insert = transaction
            .prepare_cached("INSERT INTO entry VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)")
            .map_err(failed)?;
        for entry in &entries {
            let (sequence, call) = (entry.sequence as i64, entry.call.0.as_bytes());
            let none: Option<&str> = None;
            match &entry.event {
                Event::Started(start) => insert.execute(params![
                    sequence,
                    call,
                    start.at_us as i64,
                    start.principal,
                    start.capability,
                    start.method,
                    start.arguments.text,
                    none,
                    none,
                    none,
                    none,
                ]),
                Event::Ended(end) => insert.execute(params![
                    sequence,
                    call,
                    none,
                    none,
                    none,
                    none,
                    none,
                    end.outcome.as_str(),
                    end.result.text,
                    end.cost_micros as i64,
                    end.duration_us as i64,
                ]),
                // Nobody notes anything here.
                Event::Noted(_) => Ok(0),
            }
            .map_err(failed)?;
        }
        drop(insert);
        transaction.commit().map_err(failed)?;
        self.1 = self.1.after(group.body, group.count);
        Ok(Appended::at(self.1))
    }
}

fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum();
    ticks / TICKS_PER_SECOND
}

/// Tells how long it took to begin.
async fn one_call(recorder: &Recorder) -> Result<Duration, ledger::RecordError> {
    let at_us = system_now_us();
    let start = Start {
        request_id: "12345",
        method: "tools/call",
        transport: "http",
        protocol_version: "2026-07-28",
        policy_version: 3,
        arguments: r#"{"account":"DE02120300000000202051","amount":"12.50","text":"March rent"}"#,
        estimated_cost_micros: 50_000,
        ..Start::new(
            CallId::new(at_us),
            at_us,
            "client-of-the-benchmark",
            Kind::Tool,
            "tool/pay",
        )
    };
    let asked = Instant::now();
    let open = recorder.begin(&start).await?;
    let took = asked.elapsed();
    let end = End {
        result: r#"{"content":[{"type":"text","text":"paid"}],"structuredContent":{"ok":true}}"#,
        duration_us: 17,
        cost_micros: 50_000,
        ..End::new(Outcome::Succeeded)
    };
    open.finish(&end).await?;
    Ok(took)
}

fn measure(
    name: &str,
    store: impl LedgerStore,
    durability: Durability,
    seconds: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let recorder = Recorder::spawn(
        store,
        RecorderOptions {
            durability,
            ..RecorderOptions::default()
        },
    )?;
    let (cpu, begun) = (cpu_seconds(), Instant::now());
    let until = begun + Duration::from_secs_f64(seconds);
    let mut waits: Vec<Duration> = runtime.block_on(async {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let recorder = recorder.clone();
                tokio::spawn(async move {
                    let mut waits = Vec::new();
                    while Instant::now() < until {
                        match one_call(&recorder).await {
                            Ok(took) => waits.push(took),
                            Err(_) => break,
                        }
                        if durability == Durability::Relaxed {
                            tokio::task::yield_now().await;
                        }
                    }
                    waits
                })
            })
            .collect();
        let mut all = Vec::new();
        for caller in callers {
            all.extend(caller.await.unwrap_or_default());
        }
        all
    });
    waits.sort_unstable();
    let calls = waits.len();
    let percentile = |percent: usize| {
        let wait = waits.get((calls * percent / 100).min(calls.saturating_sub(1)));
        wait.copied().unwrap_or_default().as_micros()
    };
    let health = recorder.health();
    runtime.block_on(recorder.close())?;
    let (cpu, elapsed) = (cpu_seconds() - cpu, begun.elapsed().as_secs_f64());
    writeln!(
        io::stdout(),
        "{name:32} {:9.0} calls/s {:6.2} us CPU/call {:7.1} entries/group, \
         begun in p50 {} p99 {} us",
        calls as f64 / elapsed,
        cpu * 1e6 / calls as f64,
        health.committed_entries as f64 / health.committed_groups.max(1) as f64,
        percentile(50),
        percentile(99),
    )?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args()
        .nth(1)
        .map_or(Ok(2.0), |seconds| seconds.parse())?;
    let directory = tempfile::tempdir_in(".")?;
    let file = |name: &str| directory.path().join(name);
    use Durability::{Relaxed, Strict};
    measure("nowhere, strict", Nowhere(Tail::default()), Strict, seconds)?;
    measure(
        "nowhere, relaxed",
        Nowhere(Tail::default()),
        Relaxed,
        seconds,
    )?;
    measure("memory, strict", MemoryLedger::default(), Strict, seconds)?;
    measure(
        "group row, strict",
        SqliteLedger::open(file("a"), Strict)?,
        Strict,
        seconds,
    )?;
    measure(
        "group row, relaxed",
        SqliteLedger::open(file("b"), Relaxed)?,
        Relaxed,
        seconds,
    )?;
    measure(
        "row per entry, strict",
        Rows::open(&file("c"), "FULL"),
        Strict,
        seconds,
    )?;
    measure(
        "row per entry, relaxed",
        Rows::open(&file("d"), "NORMAL"),
        Relaxed,
        seconds,
    )?;
    in_postgres(seconds)
}

/// CPU time is that of this process alone: the database has processes of its own.
#[cfg(target_os = "linux")]
fn in_postgres(seconds: f64) -> Result<(), Box<dyn std::error::Error>> {
    let Some(postgres) = testkit::Postgres::start() else {
        return Ok(());
    };
    for (name, durability) in [
        ("PostgreSQL, strict", Durability::Strict),
        ("PostgreSQL, relaxed", Durability::Relaxed),
    ] {
        let options = PostgresOptions::new(&postgres.fresh_database())?;
        let store = PostgresLedger::open(&options.with_durability(durability))?;
        measure(name, store, durability, seconds)?;
    }
    let options = PostgresOptions::new(&postgres.fresh_database())?;
    std::thread::scope(|scope| {
        let nodes = [
            "PostgreSQL, strict, node 1 of 2",
            "PostgreSQL, strict, node 2 of 2",
        ];
        for name in nodes {
            let options = &options;
            scope.spawn(move || {
                let store = PostgresLedger::open(options).expect("the database is there");
                measure(name, store, Durability::Strict, seconds).expect("it can be measured");
            });
        }
    });
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn in_postgres(_seconds: f64) -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}
