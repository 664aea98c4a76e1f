//! Promises of the recorder, seen from outside.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use ledger::{
    Appended, CallId, CloseError, Durability, End, Entry, Event, Group, Interrupted, Kind,
    LedgerStore, MemoryLedger, Outcome, RecordError, Recorder, RecorderOptions, Start, StoreError,
    Tail,
};
use proptest::prelude::*;
use std::{
    collections::HashMap,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

const LONG: Duration = Duration::from_secs(30);

/// A store that stores a group only when a permit says so.
struct Held(MemoryLedger, Arc<Semaphore>);

impl LedgerStore for Held {
    fn tail(&self) -> Tail {
        self.0.tail()
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        self.1
            .acquire()
            .await
            .map_err(|error| StoreError(error.into()))?
            .forget();
        self.0.append(group).await
    }
}

/// A store that tells when it has been given a group.
struct Noticed(Held, Arc<AtomicBool>);

impl LedgerStore for Noticed {
    fn tail(&self) -> Tail {
        self.0.tail()
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        self.1.store(true, Ordering::Release);
        self.0.append(group).await
    }
}

fn options(durability: Durability, max_unwritten: usize) -> RecorderOptions {
    RecorderOptions {
        durability,
        max_unwritten,
        now: || 1_000,
        ..RecorderOptions::default()
    }
}

fn start(call: CallId) -> Start<'static> {
    Start {
        estimated_cost_micros: 70,
        ..Start::new(call, 400, "alice", Kind::Tool, "tool/x")
    }
}

fn fresh() -> Start<'static> {
    start(CallId::new(400))
}

fn succeeded() -> End<'static> {
    End {
        result: "1",
        cost_micros: 5,
        ..End::new(Outcome::Succeeded)
    }
}

/// Output of a future if it is ready at its first poll.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

async fn until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG, "it never became true");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LONG, future)
        .await
        .expect("it takes too long")
}

fn outcomes(entries: &[Entry]) -> Vec<(CallId, Option<Outcome<String>>)> {
    let outcome = |entry: &Entry| match &entry.event {
        Event::Started(_) => None,
        Event::Ended(ended) => Some(ended.outcome.clone()),
        Event::Noted(noted) => panic!("nobody notes {noted:?}"),
    };
    entries
        .iter()
        .map(|entry| (entry.call, outcome(entry)))
        .collect()
}

#[tokio::test]
async fn strict_waits_for_the_store() {
    let (ledger, gate) = (MemoryLedger::default(), Arc::new(Semaphore::new(0)));
    let store = Held(ledger.clone(), Arc::clone(&gate));
    let recorder = Recorder::spawn(store, options(Durability::Strict, 8)).unwrap();
    let first = fresh();
    let mut begin = pin!(recorder.begin(&first));
    assert!(poll_once(begin.as_mut()).await.is_none());
    assert_eq!(ledger.entries().len(), 0);
    gate.add_permits(1);
    let open = soon(begin).await.unwrap();
    assert_eq!(ledger.entries().len(), 1);
    let mut finished = pin!(open.finish(&succeeded()));
    assert!(poll_once(finished.as_mut()).await.is_none());
    gate.add_permits(1);
    soon(finished).await.unwrap();
    assert_eq!(ledger.entries().len(), 2);
    let invalid = End::new(Outcome::Invalid);
    let mut refuse = pin!(recorder.refuse(&first, &invalid));
    assert!(poll_once(refuse.as_mut()).await.is_none());
    gate.add_permits(1);
    soon(refuse).await.unwrap();
    assert_eq!(ledger.entries().len(), 4);
}

#[tokio::test]
async fn relaxed_does_not_wait_for_the_store() {
    let (ledger, gate) = (MemoryLedger::default(), Arc::new(Semaphore::new(0)));
    let store = Held(ledger.clone(), Arc::clone(&gate));
    let recorder = Recorder::spawn(store, options(Durability::Relaxed, 8)).unwrap();
    let open = recorder.begin(&fresh()).await.unwrap();
    open.finish(&succeeded()).await.unwrap();
    recorder
        .refuse(&fresh(), &End::new(Outcome::Denied { reason: "budget" }))
        .await
        .unwrap();
    assert_eq!(ledger.entries().len(), 0);
    gate.add_permits(9);
    soon(recorder.close()).await.unwrap();
    assert_eq!(ledger.entries().len(), 4);
}

#[tokio::test]
async fn a_dropped_call_is_recorded_as_abandoned_at_its_estimate() {
    let ledger = MemoryLedger::default();
    let recorder = Recorder::spawn(ledger.clone(), options(Durability::Strict, 8)).unwrap();
    drop(recorder.begin(&fresh()).await.unwrap());
    soon(recorder.close()).await.unwrap();
    let entries = ledger.entries();
    let Event::Ended(ended) = &entries[1].event else {
        panic!("it did not end")
    };
    assert_eq!(ended.outcome, Outcome::Abandoned);
    assert_eq!((ended.cost_micros, ended.duration_us), (70, 600));
}

#[tokio::test]
async fn no_more_calls_are_open_than_there_is_room_for() {
    let ledger = MemoryLedger::default();
    let recorder = Recorder::spawn(ledger.clone(), options(Durability::Strict, 1)).unwrap();
    let first = recorder.begin(&fresh()).await.unwrap();
    let (second, third) = (fresh(), fresh());
    {
        let mut given_up = pin!(recorder.begin(&second));
        assert!(poll_once(given_up.as_mut()).await.is_none());
    }
    let mut waiting = pin!(recorder.begin(&third));
    assert!(poll_once(waiting.as_mut()).await.is_none());
    assert_eq!(recorder.health().open_calls, 1);
    first.finish(&succeeded()).await.unwrap();
    let third = soon(waiting).await.unwrap();
    third.finish(&succeeded()).await.unwrap();
    soon(recorder.close()).await.unwrap();
    assert_eq!(
        ledger.entries().len(),
        4,
        "the one that gave up has left nothing"
    );
}

#[tokio::test]
async fn the_queue_is_bounded_in_bytes_and_giving_up_gives_the_room_back() {
    let (ledger, gate) = (MemoryLedger::default(), Arc::new(Semaphore::new(0)));
    let held = Arc::new(AtomicBool::new(false));
    let store = Noticed(Held(ledger.clone(), Arc::clone(&gate)), Arc::clone(&held));
    // After four calls of more than a thousand bytes each a fifth must wait.
    let calls = 4;
    let options = RecorderOptions {
        max_unwritten_bytes: 4_000,
        ..options(Durability::Relaxed, calls + 2)
    };
    let recorder = Recorder::spawn(store, options).unwrap();
    // The writer holds this one, so that all others are in one buffer.
    let mut open = vec![recorder.begin(&fresh()).await.unwrap()];
    until(|| held.load(Ordering::Acquire)).await;
    let arguments = "x".repeat(1_000);
    for _ in 0..calls {
        let start = Start {
            arguments: &arguments,
            ..fresh()
        };
        open.push(recorder.begin(&start).await.unwrap());
    }
    let next = fresh();
    {
        let mut begin = pin!(recorder.begin(&next));
        assert!(
            poll_once(begin.as_mut()).await.is_none(),
            "there is room, but not for its bytes"
        );
    }
    gate.add_permits(1_000);
    let next = fresh();
    open.push(soon(recorder.begin(&next)).await.unwrap());
    drop(open);
    soon(recorder.close()).await.unwrap();
    assert_eq!(ledger.entries().len(), 2 * (calls + 2));
}

#[tokio::test]
async fn a_failing_store_lets_no_call_begin_and_loses_nothing() {
    for durability in [Durability::Strict, Durability::Relaxed] {
        let ledger = MemoryLedger::default();
        let recorder = Recorder::spawn(ledger.clone(), options(durability, 3)).unwrap();
        let (running, dropped) = (fresh(), fresh());
        let open = recorder.begin(&running).await.unwrap();
        let other = recorder.begin(&dropped).await.unwrap();
        ledger.set_failing(true);
        let failed = start(CallId::new(500));
        match (durability, soon(recorder.begin(&failed)).await) {
            (Durability::Strict, begun) => assert_eq!(begun.unwrap_err(), RecordError::Unavailable),
            // This one was handed over before anybody knew.
            (Durability::Relaxed, begun) => drop(begun.unwrap()),
        }
        until(|| !recorder.health().is_ok()).await;
        let health = recorder.health();
        assert!(health.last_error.unwrap().contains("the disk is full"));
        assert_eq!(health.failing_since_us, Some(1_000));
        for _ in 0..9 {
            assert_eq!(
                recorder.begin(&fresh()).await.unwrap_err(),
                RecordError::Unavailable
            );
            let denied = End::new(Outcome::Denied {
                reason: "permission",
            });
            let refused = recorder.refuse(&fresh(), &denied).await;
            assert_eq!(refused.unwrap_err(), RecordError::Unavailable);
        }
        // What is open can end: its room was kept.
        let finished = open.finish(&succeeded()).await;
        assert_eq!(finished.is_err(), durability == Durability::Strict);
        drop(other);
        assert!(2 < recorder.health().unwritten_entries);
        ledger.set_failing(false);
        until(|| recorder.health().is_ok()).await;
        recorder
            .begin(&fresh())
            .await
            .unwrap()
            .finish(&succeeded())
            .await
            .unwrap();
        soon(recorder.close()).await.unwrap();
        let entries = ledger.entries();
        let ends: HashMap<_, _> = outcomes(&entries)
            .into_iter()
            .filter_map(|(call, end)| Some((call, end?)))
            .collect();
        assert_eq!((entries.len(), ends.len()), (8, 4), "{durability:?}");
        assert_eq!(ends[&running.call], Outcome::Succeeded);
        assert_eq!(ends[&dropped.call], Outcome::Abandoned);
        let expected = match durability {
            Durability::Strict => Outcome::Denied {
                reason: "ledger_unavailable".to_owned(),
            },
            Durability::Relaxed => Outcome::Abandoned,
        };
        assert_eq!(ends[&failed.call], expected);
    }
}

#[tokio::test]
async fn whoever_waits_for_room_hears_of_a_failing_store() {
    let ledger = MemoryLedger::default();
    let recorder = Recorder::spawn(ledger.clone(), options(Durability::Strict, 1)).unwrap();
    let open = recorder.begin(&fresh()).await.unwrap();
    let second = fresh();
    let mut waiting = pin!(recorder.begin(&second));
    assert!(poll_once(waiting.as_mut()).await.is_none());
    ledger.set_failing(true);
    drop(open);
    assert_eq!(soon(waiting).await.unwrap_err(), RecordError::Unavailable);
}

#[tokio::test]
async fn closing_waits_for_open_calls_and_lets_none_begin() {
    let ledger = MemoryLedger::default();
    let recorder = Recorder::spawn(ledger.clone(), options(Durability::Relaxed, 8)).unwrap();
    let open = recorder.begin(&fresh()).await.unwrap();
    {
        let mut close = pin!(recorder.close());
        assert!(poll_once(close.as_mut()).await.is_none());
    }
    assert_eq!(
        recorder.begin(&fresh()).await.unwrap_err(),
        RecordError::Closed
    );
    open.finish(&succeeded()).await.unwrap();
    soon(recorder.close()).await.unwrap();
    assert_eq!(ledger.entries().len(), 2);
    soon(recorder.close()).await.unwrap();
}

#[tokio::test]
async fn closing_over_a_failing_store_tells_what_is_lost() {
    let ledger = MemoryLedger::default();
    let recorder = Recorder::spawn(ledger.clone(), options(Durability::Strict, 8)).unwrap();
    let open = recorder.begin(&fresh()).await.unwrap();
    ledger.set_failing(true);
    assert!(open.finish(&succeeded()).await.is_err());
    let lost = soon(recorder.close()).await.unwrap_err();
    assert_eq!(
        lost,
        CloseError {
            unwritten_entries: 1
        }
    );
}

/// Tells when the writer has let go of it.
struct Dropped(MemoryLedger, Option<tokio::sync::oneshot::Sender<()>>);

impl LedgerStore for Dropped {
    fn tail(&self) -> Tail {
        self.0.tail()
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        self.0.append(group).await
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.1.take().map(|sender| sender.send(()));
    }
}

#[tokio::test]
async fn the_writer_ends_with_the_last_recorder_and_open_call() {
    let ledger = MemoryLedger::default();
    let (sender, dropped) = tokio::sync::oneshot::channel();
    let store = Dropped(ledger.clone(), Some(sender));
    let recorder = Recorder::spawn(store, options(Durability::Strict, 8)).unwrap();
    let open = recorder.clone().begin(&fresh()).await.unwrap();
    drop(recorder);
    drop(open);
    soon(dropped).await.unwrap();
    assert_eq!(ledger.entries().len(), 2);
}

/// Keeps nothing, and says so.
struct Keepless(MemoryLedger);

impl LedgerStore for Keepless {
    fn tail(&self) -> Tail {
        self.0.tail()
    }

    fn keeps_entries(&self) -> bool {
        false
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        self.0.append(group).await
    }
}

#[tokio::test]
async fn no_entries_are_made_of_calls_for_a_store_that_keeps_none() {
    let ledger = MemoryLedger::default();
    let store = Keepless(ledger.clone());
    let recorder = Recorder::spawn(store, options(Durability::Strict, 1)).unwrap();
    assert!(!recorder.keeps_entries());
    // More than may be unwritten.
    for _ in 0..3 {
        let open = recorder.begin(&fresh()).await.unwrap();
        let ended = End::new(Outcome::Succeeded);
        open.finish(&ended).await.unwrap();
        drop(recorder.begin_durably(&fresh()).await.unwrap());
    }
    let denied = End::new(Outcome::Denied { reason: "policy" });
    recorder.refuse(&fresh(), &denied).await.unwrap();
    recorder.close().await.unwrap();
    assert!(ledger.entries().is_empty());
    let refused = recorder.begin(&fresh()).await.map(drop);
    assert!(refused.is_err(), "{refused:?}");
}

struct Panics;

impl LedgerStore for Panics {
    fn tail(&self) -> Tail {
        Tail::default()
    }

    async fn append(&mut self, _: Group<'_>) -> Result<Appended, StoreError> {
        panic!("this store is broken")
    }
}

#[tokio::test]
async fn a_writer_that_dies_refuses_everybody() {
    let recorder = Recorder::spawn(Panics, options(Durability::Strict, 8)).unwrap();
    assert_eq!(
        soon(recorder.begin(&fresh())).await.unwrap_err(),
        RecordError::Stopped
    );
    assert_eq!(
        soon(recorder.begin(&fresh())).await.unwrap_err(),
        RecordError::Stopped
    );
    assert!(recorder.health().stopped);
    assert!(soon(recorder.close()).await.is_err());
}

struct Interruptions(MemoryLedger, Vec<Interrupted>);

impl LedgerStore for Interruptions {
    fn tail(&self) -> Tail {
        self.0.tail()
    }

    fn interrupted(&self) -> &[Interrupted] {
        &self.1
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        self.0.append(group).await
    }
}

#[tokio::test]
async fn what_an_earlier_process_left_open_ends_as_unknown_without_taking_room() {
    let ledger = MemoryLedger::default();
    let left: Vec<_> = (0..5)
        .map(|at_us| Interrupted {
            call: CallId::new(at_us),
            at_us,
            principal: "alice".to_owned(),
            capability: "tool/x".to_owned(),
            estimated_cost_micros: 70,
        })
        .collect();
    let store = Interruptions(ledger.clone(), left.clone());
    let recorder = Recorder::spawn(store, options(Durability::Strict, 1)).unwrap();
    recorder
        .begin(&fresh())
        .await
        .unwrap()
        .finish(&succeeded())
        .await
        .unwrap();
    soon(recorder.close()).await.unwrap();
    let ends = outcomes(&ledger.entries());
    for (left, end) in left.iter().zip(&ends) {
        assert_eq!(*end, (left.call, Some(Outcome::Unknown)));
    }
    assert_eq!(ends.len(), 7);
}

#[derive(Clone, Debug)]
enum Step {
    Begin,
    /// Begin, and give up after one look.
    GiveUp,
    Finish(usize),
    Drop(usize),
    Refuse,
    Failing(bool),
    Yield,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Begin),
        2 => Just(Step::GiveUp),
        3 => any::<usize>().prop_map(Step::Finish),
        2 => any::<usize>().prop_map(Step::Drop),
        1 => Just(Step::Refuse),
        1 => any::<bool>().prop_map(Step::Failing),
        2 => Just(Step::Yield),
    ]
}

/// Carries the steps out. Tells the calls that were begun and finished with success.
async fn carry_out(
    recorder: &Recorder,
    ledger: &MemoryLedger,
    steps: Vec<Step>,
) -> (Vec<CallId>, Vec<CallId>) {
    let (mut open, mut begun, mut finished) = (Vec::new(), Vec::new(), Vec::new());
    for step in steps {
        let next = fresh();
        match step {
            // With as many open as there is room for, it would wait for ever.
            Step::Begin if open.len() < 4 => {
                if let Ok(call) = soon(recorder.begin(&next)).await {
                    begun.push(next.call);
                    open.push(call);
                }
            }
            Step::GiveUp => {
                let mut begin = pin!(recorder.begin(&next));
                drop(poll_once(begin.as_mut()).await);
            }
            Step::Finish(index) if !open.is_empty() => {
                let call = open.swap_remove(index % open.len());
                finished.push(call.call());
                drop(call.finish(&succeeded()));
            }
            Step::Drop(index) if !open.is_empty() => drop(open.swap_remove(index % open.len())),
            Step::Refuse if open.len() < 4 => {
                let end = End::new(Outcome::Denied { reason: "budget" });
                let _ = soon(recorder.refuse(&next, &end)).await;
            }
            Step::Failing(failing) => ledger.set_failing(failing),
            Step::Yield => tokio::task::yield_now().await,
            _ => {}
        }
    }
    (begun, finished)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn whatever_begins_ends_exactly_once_and_nothing_is_lost(
        steps in proptest::collection::vec(step(), 0..40),
        strict: bool,
    ) {
        let durability = if strict { Durability::Strict } else { Durability::Relaxed };
        let ledger = MemoryLedger::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (begun, finished) = runtime.block_on(async {
            let recorder = Recorder::spawn(ledger.clone(), options(durability, 5)).unwrap();
            let calls = carry_out(&recorder, &ledger, steps).await;
            ledger.set_failing(false);
            soon(recorder.close()).await.unwrap();
            calls
        });
        let entries = ledger.entries();
        let mut ends: HashMap<CallId, Option<Outcome<String>>> = HashMap::new();
        for (sequence, entry) in (1..).zip(&entries) {
            prop_assert_eq!(entry.sequence, sequence);
        }
        for (call, outcome) in outcomes(&entries) {
            match outcome {
                None => prop_assert!(ends.insert(call, None).is_none(), "two starts"),
                Some(outcome) => {
                    let end = ends.get_mut(&call).expect("the start comes first");
                    prop_assert!(end.replace(outcome).is_none(), "two ends");
                }
            }
        }
        prop_assert!(ends.values().all(Option::is_some), "a call has not ended");
        for call in &begun {
            let expected = if finished.contains(call) { Outcome::Succeeded } else { Outcome::Abandoned };
            prop_assert_eq!(ends[call].as_ref(), Some(&expected));
        }
    }
}

#[test]
fn many_threads_share_a_recorder() {
    const THREADS: usize = 4;
    const CALLS: usize = 500;
    let ledger = MemoryLedger::default();
    let recorder = Recorder::spawn(ledger.clone(), options(Durability::Strict, 3)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    for _ in 0..CALLS {
                        let open = soon(recorder.begin(&fresh())).await.unwrap();
                        soon(open.finish(&succeeded())).await.unwrap();
                    }
                });
            });
        }
    });
    let health = recorder.health();
    assert_eq!(health.committed_entries, (THREADS * CALLS * 2) as u64);
    assert_eq!((health.open_calls, health.unwritten_entries), (0, 0));
    assert_eq!(ledger.entries().len(), THREADS * CALLS * 2);
}
