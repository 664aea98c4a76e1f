//! A store that does not answer keeps nobody waiting for ever.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod support;

use ledger::{
    Appended, BeginError, Claim, Durability, End, Group, LedgerStore, MemoryLedger, Outcome,
    RecordError, Recorder, RecorderOptions, StoreError, Tail,
};
use std::{
    cell::Cell,
    pin::pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use support::{LONG, ends, of_key, poll_once, soon, start, until};

/// Blocks its thread for as long as somebody holds the lock, as a disk does that hangs.
struct Stuck(MemoryLedger, Arc<Mutex<()>>);

impl LedgerStore for Stuck {
    fn tail(&self) -> Tail {
        self.0.tail()
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        drop(self.1.lock());
        self.0.append(group).await
    }
}

#[test]
fn calls_are_refused_while_the_store_hangs_and_begin_again_when_it_does_not() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for durability in [Durability::Strict, Durability::Relaxed] {
        let (ledger, disk) = (MemoryLedger::default(), Arc::new(Mutex::new(())));
        let max_wait = Duration::from_millis(200);
        let options = RecorderOptions {
            durability,
            max_wait,
            max_unwritten: 3,
            ..RecorderOptions::default()
        };
        let recorder = Recorder::spawn(Stuck(ledger.clone(), Arc::clone(&disk)), options).unwrap();
        let hanging = disk.lock().unwrap();
        let waited = runtime.block_on(async {
            let begun = Instant::now();
            let stuck = soon(recorder.begin_durably(&start(1))).await;
            assert_eq!(stuck.unwrap_err(), RecordError::Unavailable);
            let waited = begun.elapsed();
            // From then on nobody waits.
            let (next, claims) = (start(2), [Claim::Key(of_key(1, 2))]);
            for _ in 0..9 {
                let refused = poll_once(pin!(recorder.begin(&next))).await;
                assert_eq!(refused.unwrap().unwrap_err(), RecordError::Unavailable);
                let refused = poll_once(pin!(recorder.begin_claiming(&next, &claims))).await;
                let expected = BeginError::Record(RecordError::Unavailable);
                assert_eq!(refused.unwrap().unwrap_err(), expected);
            }
            assert!(
                recorder
                    .health()
                    .last_error
                    .unwrap()
                    .contains("not answered")
            );
            waited
        });
        assert!(max_wait <= waited && waited < LONG / 2, "{waited:?}");
        drop(hanging);
        runtime.block_on(async {
            until(|| recorder.is_ok()).await;
            let open = soon(recorder.begin(&start(3))).await.unwrap();
            soon(open.finish(&End::new(Outcome::Succeeded)))
                .await
                .unwrap();
            soon(recorder.close()).await.unwrap();
        });
        let ends = ends(&ledger.entries());
        let reason = "ledger_unavailable".to_owned();
        assert_eq!(ends[0].1.outcome, Outcome::Denied { reason });
        assert_eq!((ends.len(), &ends[1].1.outcome), (2, &Outcome::Succeeded));
    }
}

#[test]
fn whoever_waits_for_room_hears_of_a_hanging_store() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let disk = Arc::new(Mutex::new(()));
    let options = RecorderOptions {
        durability: Durability::Relaxed,
        max_wait: Duration::from_millis(100),
        max_unwritten: 1,
        ..RecorderOptions::default()
    };
    let store = Stuck(MemoryLedger::default(), Arc::clone(&disk));
    let recorder = Recorder::spawn(store, options).unwrap();
    let hanging = disk.lock().unwrap();
    runtime.block_on(async {
        let open = soon(recorder.begin(&start(1))).await.unwrap();
        let waiting = soon(recorder.begin(&start(2))).await;
        assert_eq!(waiting.unwrap_err(), RecordError::Unavailable);
        drop(open);
    });
    drop(hanging);
    runtime.block_on(soon(recorder.close())).unwrap();
}

/// A known fault stays known while the entries wait on: that they wait too long says less.
#[tokio::test]
async fn why_the_store_fails_is_not_forgotten_while_it_does() {
    let ledger = MemoryLedger::default();
    let max_wait = Duration::from_millis(20);
    let options = RecorderOptions {
        max_wait,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::spawn(ledger.clone(), options).unwrap();
    let open = soon(recorder.begin(&start(1))).await.unwrap();
    ledger.set_failing(true);
    // Its end waits from now on.
    drop(open);
    until(|| !recorder.is_ok()).await;
    // Before the store's first word nothing is known but that it is waited for.
    let has_said = Cell::new(false);
    until(|| {
        let health = recorder.health();
        let told = health.last_error.unwrap_or_default();
        if told.contains("the disk is full") {
            has_said.set(true);
        } else {
            assert!(!has_said.get(), "{told}");
        }
        50 * max_wait <= health.lag
    })
    .await;
    let last = recorder.health().last_error.unwrap();
    assert!(last.contains("the disk is full"), "{last}");
    ledger.set_failing(false);
    until(|| recorder.is_ok()).await;
    soon(recorder.close()).await.unwrap();
}
