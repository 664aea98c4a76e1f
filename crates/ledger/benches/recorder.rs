//! Cost of recording calls: `cargo bench -p ledger --bench recorder`.
//!
//! Sixty-four callers on one thread begin and finish calls, into a file on the disk of the working
//! directory. Criterion tells entries per second; how long a call waited to begin (half of them at
//! most, and all but one in a hundred) is written below each.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ledger::{
    CallId, Claim, Durability, End, KeyClaim, Kind, OpenCall, Outcome, Recorder, RecorderOptions,
    SqliteLedger, Start, system_now_us,
};
use std::{
    io::{self, Write},
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

const CALLERS: u64 = 64;

/// Calls of each caller in one iteration.
const CALLS: u64 = 32;

/// Way in which a call begins.
#[derive(Clone, Copy)]
enum Way {
    Plainly,
    /// Waiting for the disk whatever the durability.
    Durably,
    /// With an idempotency key.
    WithKey,
}

async fn begin(recorder: &Recorder, way: Way) -> OpenCall {
    let at_us = system_now_us();
    let call = CallId::new(at_us);
    let start = Start {
        request_id: "12345",
        method: "tools/call",
        transport: "http",
        protocol_version: "2026-07-28",
        policy_version: 3,
        arguments: r#"{"account":"DE02120300000000202051","amount":"12.50","text":"March rent"}"#,
        estimated_cost_micros: 50_000,
        ..Start::new(
            call,
            at_us,
            "client-of-the-benchmark",
            Kind::Tool,
            "tool/pay",
        )
    };
    let begun = match way {
        Way::Plainly => recorder.begin(&start).await,
        Way::Durably => recorder.begin_durably(&start).await,
        Way::WithKey => {
            let claim = KeyClaim {
                principal: start.principal.to_owned(),
                key: call.to_string(),
                capability: start.capability.to_owned(),
                digest: [7; 32],
                call,
                at_us,
                until_us: at_us + 1_000_000,
            };
            let begun = recorder.begin_claiming(&start, &[Claim::Key(claim)]).await;
            return begun.expect("no key comes twice");
        }
    };
    begun.expect("the disk works")
}

async fn calls(recorder: Recorder, way: Way) -> Vec<Duration> {
    let mut waits = Vec::new();
    for _ in 0..CALLS {
        let asked = Instant::now();
        let open = begin(&recorder, way).await;
        waits.push(asked.elapsed());
        let end = End {
            result: r#"{"content":[{"type":"text","text":"paid"}],"structuredContent":{"ok":true}}"#,
            duration_us: 17,
            cost_micros: 50_000,
            ..End::new(Outcome::Succeeded)
        };
        open.finish(&end).await.expect("the disk works");
        tokio::task::yield_now().await;
    }
    waits
}

/// As many calls as `iterations` say, by all callers at once; what they waited goes to `waits`.
fn run(
    runtime: &Runtime,
    recorder: &Recorder,
    way: Way,
    iterations: u64,
    waits: &mut Vec<Duration>,
) -> Duration {
    let begun = Instant::now();
    runtime.block_on(async {
        for _ in 0..iterations {
            let callers: Vec<_> = (0..CALLERS)
                .map(|_| tokio::spawn(calls(recorder.clone(), way)))
                .collect();
            for caller in callers {
                waits.extend(caller.await.expect("no caller panics"));
            }
        }
    });
    begun.elapsed()
}

fn recorder(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let directory = tempfile::tempdir_in(".").expect("the working directory is writable");
    let mut group = criterion.benchmark_group("recorder");
    group.throughput(Throughput::Elements(2 * CALLERS * CALLS));
    group.sample_size(20);
    for (name, durability, way) in [
        ("strict", Durability::Strict, Way::Plainly),
        ("relaxed", Durability::Relaxed, Way::Plainly),
        ("relaxed, durable starts", Durability::Relaxed, Way::Durably),
        ("strict, with keys", Durability::Strict, Way::WithKey),
    ] {
        let path = directory.path().join(name);
        let store = SqliteLedger::open(path, durability).expect("a ledger can be made");
        let options = RecorderOptions {
            durability,
            ..RecorderOptions::default()
        };
        let recorder = Recorder::spawn(store, options).expect("a thread can be started");
        let mut waits = Vec::new();
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|iterations| run(&runtime, &recorder, way, iterations, &mut waits));
        });
        runtime
            .block_on(recorder.close())
            .expect("everything is stored");
        waits.sort_unstable();
        let at = |hundredths: usize| waits.get(waits.len() * hundredths / 100).copied();
        // Nobody listens if this fails.
        let _ = writeln!(
            io::stdout(),
            "{name}: a call waited {:?} (50 of 100), {:?} (99 of 100)\n",
            at(50).unwrap_or_default(),
            at(99).unwrap_or_default(),
        );
    }
    group.finish();
}

criterion_group!(benches, recorder);
criterion_main!(benches);
