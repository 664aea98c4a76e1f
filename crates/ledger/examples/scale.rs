//! Cost of queries on a large ledger: `cargo run --release -p ledger --example scale DIRECTORY
//! [ENTRIES [DAYS]]`.
//!
//! Makes a ledger of ten million entries in DIRECTORY, or goes on with one, spread over the thirty
//! days that end now, two hundred principals and forty tools; then asks each question that an index
//! answers, first beside a server at rest and then beside one that writes as fast as it can. It takes
//! some 5 GB.

use ledger::{
    Bucket, CallId, CallRecord, Durability, End, Filter, Kind, LedgerReader, Outcome, ReadLedger,
    Recorder, RecorderOptions, SqliteLedger, Start, StatisticsQuery, Trust, system_now_us, verify,
};
use std::{
    error::Error,
    io::{self, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

type Anything = Box<dyn Error>;

const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

const DEFAULT_ENTRIES: u64 = 10_000_000;
const DEFAULT_DAYS: u64 = 30;
const PRINCIPALS: u64 = 200;
const TOOLS: u64 = 40;
const CALLERS: u64 = 256;
const OPEN: u64 = 200;
const RUNS: usize = 7;
const PAGE: usize = 50;

/// Numbers that look random and are the same each time.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Small numbers more often than large ones.
fn skewed(random: u64, bound: u64) -> u64 {
    let part = (random % 10_000) as f64 / 10_000.0;
    (part * part * part * bound as f64) as u64
}

/// The time that calls are spread over, in microseconds since the epoch.
#[derive(Clone, Copy)]
struct Span {
    /// The beginning of a day.
    begin_us: u64,
    end_us: u64,
}

impl Span {
    /// The last `days` days, today among them.
    fn until_now(days: u64) -> Self {
        let end_us = system_now_us();
        let today_us = end_us / DAY_US * DAY_US;
        Self {
            begin_us: today_us.saturating_sub(days.saturating_sub(1) * DAY_US),
            end_us,
        }
    }

    /// Time span of an existing ledger.
    fn of(reader: &mut LedgerReader) -> Result<Self, Anything> {
        let newest = reader.recent(1, Filter::default())?;
        let newest = newest.first().ok_or("there are no calls")?;
        let oldest = reader.indexed_calls(0)?;
        let oldest = oldest.first().ok_or("there are no calls")?;
        Ok(Self {
            begin_us: oldest.started_us / DAY_US * DAY_US,
            end_us: newest.started.at_us + 1,
        })
    }

    /// Time at which call `number` of so many begins.
    fn at(self, number: u64, calls: u64) -> u64 {
        let length = u128::from(self.end_us - self.begin_us);
        self.begin_us + (length * u128::from(number) / u128::from(calls)) as u64
    }
}

async fn one_call(
    recorder: &Recorder,
    span: Span,
    number: u64,
    calls: u64,
) -> Result<(), Anything> {
    let random = mix(number);
    let at_us = span.at(number, calls);
    let principal = format!("client-{:03}", skewed(random, PRINCIPALS));
    let capability = format!("tool/number-{:02}", skewed(mix(random), TOOLS));
    let request_id = format!("{}", number % 100_000);
    let trace_id = format!("{:032x}", u128::from(random) << 64 | u128::from(number));
    let start = Start {
        request_id: &request_id,
        trace_id: number.is_multiple_of(4).then_some(&*trace_id),
        method: "tools/call",
        transport: "http",
        protocol_version: "2026-07-28",
        policy_version: 3,
        arguments: r#"{"account":"DE02120300000000202051","amount":"12.50"}"#,
        estimated_cost_micros: 50,
        ..Start::new(
            CallId::new(at_us),
            at_us,
            &principal,
            Kind::Tool,
            &capability,
        )
    };
    let outcome = match random >> 32 & 0x3ff {
        0..=29 => Outcome::Denied {
            reason: if random & 1 == 0 {
                "rate_minute"
            } else {
                "budget"
            },
        },
        30..=69 => Outcome::Failed,
        70..=74 => Outcome::TimedOut,
        75 => Outcome::Unknown,
        _ => Outcome::Succeeded,
    };
    let end = End {
        result: r#"{"content":[{"type":"text","text":"paid"}]}"#,
        duration_us: 500 + skewed(mix(random ^ 1), 3_000_000),
        cost_micros: 50,
        ..End::new(outcome)
    };
    match outcome {
        Outcome::Denied { .. } => recorder.refuse(&start, &end).await?,
        _ => recorder.begin(&start).await?.finish(&end).await?,
    }
    Ok(())
}

fn options() -> RecorderOptions {
    RecorderOptions {
        durability: Durability::Relaxed,
        max_refusals: u32::MAX,
        // A disk that others want, too, makes it slow and nothing else.
        max_wait: Duration::from_secs(3_600),
        ..RecorderOptions::default()
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn generate(path: &Path, entries: u64, days: u64) -> Result<(), Anything> {
    let (calls, span) = (entries / 2, Span::until_now(days));
    let recorder = Recorder::spawn(SqliteLedger::open(path, Durability::Relaxed)?, options())?;
    let made = LedgerReader::open(path)?.count()?.calls;
    runtime()?.block_on(async {
        for first in (made..calls).step_by(CALLERS as usize) {
            for number in first..calls.min(first + CALLERS) {
                one_call(&recorder, span, number, calls).await?;
            }
            // Where nobody waits, nobody else gets to run.
            tokio::task::yield_now().await;
        }
        recorder.close().await?;
        Ok(())
    })
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// A question, and the number of rows that answer it.
type Question<'a> = (
    &'a str,
    Box<dyn Fn(&mut LedgerReader) -> Result<usize, Anything> + 'a>,
);

fn calls<'a>(name: &'a str, filter: Filter<'a>) -> Question<'a> {
    (
        name,
        Box::new(move |reader| Ok(reader.recent(PAGE, filter)?.len())),
    )
}

fn questions(sample: &CallRecord, span: Span) -> Vec<Question<'_>> {
    let all = Filter::default();
    let started = &sample.started;
    let (principal, capability) = (&*started.principal, &*started.capability);
    let day = started.at_us / DAY_US * DAY_US;
    let deep = Some(sample.cursor());
    let statistics = |since_us, until_us, bucket| StatisticsQuery {
        principal: None,
        capability: None,
        since_us,
        until_us,
        bucket,
    };
    let sums = |name, query: StatisticsQuery<'static>| -> Question<'static> {
        (
            name,
            Box::new(move |reader| Ok(reader.statistics(query)?.len())),
        )
    };
    let mut questions = vec![
        calls("the newest", all),
        calls(
            "by call",
            Filter {
                call: Some(sample.call),
                ..all
            },
        ),
        calls(
            "by request id",
            Filter {
                request_id: Some(&started.request_id),
                ..all
            },
        ),
        calls(
            "by trace id",
            Filter {
                trace_id: started.trace_id.as_deref(),
                ..all
            },
        ),
        calls(
            "by principal",
            Filter {
                principal: Some(principal),
                ..all
            },
        ),
        calls(
            "by principal, from the middle on",
            Filter {
                principal: Some(principal),
                before: deep,
                ..all
            },
        ),
        calls(
            "by principal and tool",
            Filter {
                principal: Some(principal),
                capability: Some(capability),
                ..all
            },
        ),
        calls(
            "by tool",
            Filter {
                capability: Some(capability),
                ..all
            },
        ),
        calls(
            "by outcome: failed",
            Filter {
                outcome: Some("failed"),
                ..all
            },
        ),
        calls(
            "by outcome: succeeded",
            Filter {
                outcome: Some("succeeded"),
                ..all
            },
        ),
        calls(
            "by reason",
            Filter {
                reason: Some("budget"),
                ..all
            },
        ),
        calls(
            "an hour in the middle",
            Filter {
                since_us: Some(day),
                until_us: Some(day + DAY_US / 24),
                ..all
            },
        ),
        calls(
            "failures of a day in the middle",
            Filter {
                outcome: Some("failed"),
                since_us: Some(day),
                until_us: Some(day + DAY_US),
                ..all
            },
        ),
        (
            "open calls",
            Box::new(|reader| Ok(reader.open_calls()?.len())),
        ),
        (
            "unresolved",
            Box::new(|reader| Ok(reader.unresolved(PAGE, None)?.len())),
        ),
        sums(
            "statistics of a day",
            statistics(day, day + DAY_US, Bucket::Day),
        ),
        sums(
            "statistics of everything, whole",
            statistics(span.begin_us, u64::MAX, Bucket::Whole),
        ),
        sums(
            "statistics of everything, by day",
            statistics(span.begin_us, u64::MAX, Bucket::Day),
        ),
        (
            "what the last day used, by minute",
            Box::new(move |reader| {
                let day = span.end_us.saturating_sub(DAY_US)..span.end_us;
                Ok(reader.usage_between(day, Duration::from_secs(60))?.len())
            }),
        ),
        (
            "how much there is",
            Box::new(|reader| Ok(reader.count()?.calls as usize)),
        ),
    ];
    let of_principal = statistics(span.begin_us, u64::MAX, Bucket::Day);
    questions.push((
        "statistics of everything by day, of a principal",
        Box::new(move |reader| {
            let query = StatisticsQuery {
                principal: Some(principal),
                ..of_principal
            };
            Ok(reader.statistics(query)?.len())
        }),
    ));
    questions
}

fn measure(path: &Path, sample: &CallRecord, span: Span) -> Result<(), Anything> {
    let begun = Instant::now();
    let mut reader = LedgerReader::open(path)?;
    reader.recent(1, Filter::default())?;
    say(&format!(
        "| opening and a first question | {:.1} | | |",
        millis(begun.elapsed())
    ))?;
    for (name, ask) in questions(sample, span) {
        let mut times = Vec::new();
        let mut rows = 0;
        for _ in 0..RUNS {
            let begun = Instant::now();
            rows = ask(&mut reader)?;
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        let (median, longest) = (times[RUNS / 2], times[RUNS - 1]);
        say(&format!(
            "| {name} | {:.1} | {:.1} | {rows} |",
            millis(median),
            millis(longest)
        ))?;
    }
    Ok(())
}

/// The most memory that this process has had, where the system tells.
fn say_memory(when: &str) -> Result<(), Anything> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    match status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
        Some(peak) => Ok(say(&format!("{when}: {} at most", peak.trim()))?),
        None => Ok(()),
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn main() -> Result<(), Anything> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("where?")?;
    let entries = arguments
        .next()
        .map_or(Ok(DEFAULT_ENTRIES), |text| text.parse())?;
    let days = arguments
        .next()
        .map_or(Ok(DEFAULT_DAYS), |text| text.parse())?;
    let path = Path::new(&directory).join("scale.sqlite");
    let is_whole = |made: u64| entries / 2 <= made;
    if !path.exists() || !is_whole(LedgerReader::open(&path)?.count()?.calls) {
        let begun = Instant::now();
        generate(&path, entries, days)?;
        say(&format!(
            "written in {:.0} s",
            begun.elapsed().as_secs_f64()
        ))?;
    }
    let begun = Instant::now();
    let store = SqliteLedger::open(&path, Durability::Relaxed)?;
    say(&format!(
        "opened and indexed in {:.0} s",
        begun.elapsed().as_secs_f64()
    ))?;
    say(&format!("{} MiB", std::fs::metadata(&path)?.len() >> 20))?;
    let recorder = Recorder::spawn(store, options())?;
    let runtime = runtime()?;
    let mut reader = LedgerReader::open(&path)?;
    let span = Span::of(&mut reader)?;
    say_memory("opened")?;
    let sample = Filter {
        until_us: Some(span.at(1, 2)),
        ..Filter::default()
    };
    let sample = reader.recent(PAGE, sample)?;
    let sample = sample.into_iter().find(|it| it.started.trace_id.is_some());
    let sample = sample.ok_or("no call has a trace")?;
    let open = runtime.block_on(async {
        let mut open = Vec::new();
        for number in 0..OPEN {
            let at_us = span.end_us + number;
            let start = Start::new(
                CallId::new(at_us),
                at_us,
                "client-000",
                Kind::Tool,
                "tool/slow",
            );
            open.push(recorder.begin(&start).await?);
        }
        Ok::<_, Anything>(open)
    })?;
    while reader.extent()?.indexed_through < reader.extent()?.last_sequence {
        thread::sleep(Duration::from_millis(10));
    }
    say("beside a server at rest: median ms, longest ms, rows")?;
    measure(&path, &sample, span)?;
    let stop = Arc::new(AtomicBool::new(false));
    let writing = {
        let (recorder, stop) = (recorder.clone(), Arc::clone(&stop));
        thread::spawn(move || -> Result<u64, String> {
            let runtime = self::runtime().map_err(|error| error.to_string())?;
            runtime.block_on(async {
                let mut written = 0;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..CALLERS {
                        let number = u64::from(u32::MAX) + written;
                        one_call(&recorder, span, number, u64::from(u32::MAX))
                            .await
                            .map_err(|error| error.to_string())?;
                        written += 1;
                    }
                    tokio::task::yield_now().await;
                }
                Ok(written)
            })
        })
    };
    thread::sleep(Duration::from_secs(5));
    let extent = reader.extent()?;
    let begun = (Instant::now(), system_now_us(), extent.last_sequence);
    say(&format!(
        "beside one that writes; {} entries are not indexed",
        extent.last_sequence - extent.indexed_through
    ))?;
    measure(&path, &sample, span)?;
    let extent = reader.extent()?;
    say(&format!(
        "{:.0} entries a second meanwhile; {} are not indexed",
        (extent.last_sequence - begun.2) as f64 / begun.0.elapsed().as_secs_f64(),
        extent.last_sequence - extent.indexed_through
    ))?;
    stop.store(true, Ordering::Relaxed);
    writing.join().map_err(|_| "the writer panicked")??;
    say_memory("asked")?;
    drop(open);
    runtime.block_on(recorder.close())?;
    let begun = Instant::now();
    let report = verify(&mut reader, Trust::default())?;
    let seconds = begun.elapsed().as_secs_f64();
    say(&format!(
        "verified {} entries in {seconds:.0} s: {:?}",
        report.entries, report.first_wrong
    ))?;
    say_memory("everything")?;
    Ok(())
}
