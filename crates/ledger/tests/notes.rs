//! Notes, and whoever witnesses what is stored.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod support;

use ledger::{
    Appended, Clipped, CommitHook, Delivery, Durability, End, Ended, Event, Group, LedgerStore,
    MAX_DETAIL_BYTES, MemoryLedger, Note, NoteKind, Noted, Outcome, RecordError, Recorder,
    RecorderOptions, StoreError, Tail,
};
use std::{
    pin::pin,
    sync::{Arc, Mutex, OnceLock},
    task::{Context, Poll, Waker},
    time::Duration,
};
use support::{Held, ends, notes, poll_once, soon, start, until};
use tokio::sync::Semaphore;

fn note(detail: &str) -> Note<'_> {
    Note {
        actor: "bob",
        subject: "rules.yaml",
        policy_version: u64::MAX,
        detail,
        ..Note::new(7, NoteKind::POLICY_CHANGED)
    }
}

#[tokio::test]
async fn notes_stand_among_the_calls_and_wait_as_they_do() {
    let (ledger, gate) = (MemoryLedger::default(), Arc::new(Semaphore::new(0)));
    let store = Held(ledger.clone(), Arc::clone(&gate));
    let recorder = Recorder::spawn(store, RecorderOptions::default()).unwrap();
    let long = "x".repeat(MAX_DETAIL_BYTES + 1);
    let noted = note(&long);
    {
        let mut waiting = pin!(recorder.note(&noted));
        assert!(poll_once(waiting.as_mut()).await.is_none());
        gate.add_permits(1);
        soon(waiting).await.unwrap();
    }
    recorder.note_later(&note("{}")).unwrap();
    gate.add_permits(100);
    let open = soon(recorder.begin(&start(8))).await.unwrap();
    soon(open.finish(&End::new(Outcome::Succeeded)))
        .await
        .unwrap();
    soon(recorder.close()).await.unwrap();
    let entries = ledger.entries();
    assert!(matches!(entries[1].event, Event::Noted(_)));
    assert_ne!(
        entries[0].call, entries[1].call,
        "each has a name of its own"
    );
    let notes = notes(&entries);
    assert_eq!((notes.len(), entries.len()), (2, 4));
    assert_eq!(
        (&*notes[1].actor, &*notes[1].subject),
        ("bob", "rules.yaml")
    );
    assert_eq!((notes[1].policy_version, notes[1].at_us), (u64::MAX, 7));
    let cut = notes[0].detail.cut.unwrap();
    assert_eq!(cut.whole_bytes, MAX_DETAIL_BYTES as u64 + 1);
}

#[tokio::test]
async fn what_is_noted_while_the_store_fails_is_stored_later_within_bounds() {
    let ledger = MemoryLedger::default();
    let options = RecorderOptions {
        max_unwritten_bytes: 4_000,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::spawn(ledger.clone(), options).unwrap();
    ledger.set_failing(true);
    let waits = soon(recorder.note(&note("{}"))).await;
    assert_eq!(waits, Err(RecordError::Unavailable));
    let mut taken = 0;
    while recorder.note_later(&note("{}")).is_ok() {
        taken += 1;
        assert!(taken < 1_000, "there is no end to it");
    }
    assert!(10 < taken);
    ledger.set_failing(false);
    until(|| recorder.health().unwritten_entries == 0).await;
    assert_eq!(notes(&ledger.entries()).len(), taken + 1);
    soon(recorder.close()).await.unwrap();
    assert_eq!(recorder.note_later(&note("{}")), Err(RecordError::Stopped));
}

/// Says of each group where it ended, and at the end that it was the end.
struct Everywhere(Arc<Mutex<Vec<Tail>>>);

fn said(kind: &str, tail: Tail) -> Option<Noted> {
    Some(Noted {
        at_us: 1,
        kind: NoteKind::named(kind),
        actor: "system".to_owned(),
        subject: tail.next_sequence.to_string(),
        policy_version: 0,
        detail: Clipped::default(),
    })
}

impl CommitHook for Everywhere {
    fn stored(&mut self, tail: Tail, _: u64) -> Option<Noted> {
        self.0.lock().unwrap().push(tail);
        // Of calls, and not of its own notes, or it would go on for ever.
        (tail.next_sequence == 2)
            .then(|| said("seen", tail))
            .flatten()
    }

    fn closing(&mut self, tail: Tail, _: u64) -> Option<Noted> {
        said("last", tail)
    }
}

#[tokio::test]
async fn a_witness_sees_every_group_and_has_the_last_word() {
    let (ledger, seen) = (MemoryLedger::default(), Arc::default());
    let hook = Everywhere(Arc::clone(&seen));
    let options = RecorderOptions {
        max_refusals: 0,
        now: || 0,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::spawn_with_hook(ledger.clone(), options, hook).unwrap();
    let open = soon(recorder.begin(&start(8))).await.unwrap();
    until(|| notes(&ledger.entries()).len() == 1).await;
    let refused = End::new(Outcome::Denied { reason: "quota" });
    soon(recorder.refuse(&start(9), &refused)).await.unwrap();
    soon(open.finish(&End::new(Outcome::Succeeded)))
        .await
        .unwrap();
    soon(recorder.close()).await.unwrap();
    let told: Vec<_> = notes(&ledger.entries())
        .into_iter()
        .map(|it| (it.kind.to_string(), it.subject))
        .collect();
    let note = |kind: &str, subject: &str| (kind.to_owned(), subject.to_owned());
    assert_eq!(
        told,
        [
            note("seen", "2"),
            note("refusals_aggregated", "tool/pay"),
            note("last", "5")
        ]
    );
    let seen = seen.lock().unwrap();
    assert!(seen.is_sorted_by_key(|tail| tail.next_sequence));
    assert_eq!(recorder.health().tail, seen.last().copied());
    assert_eq!(seen.last().unwrap().next_sequence, 6);
}

#[tokio::test]
async fn an_end_is_told_on_three_levels() {
    let ledger = MemoryLedger::default();
    let recorder = Recorder::spawn(ledger.clone(), RecorderOptions::default()).unwrap();
    let none = End::new(Outcome::Succeeded);
    let denied = Outcome::Denied { reason: "quota" };
    use Delivery::{Answered, GivenUp, Unknown};
    let rows = [
        (none, (Answered, None, Some(false))),
        (
            End {
                outcome: Outcome::Failed,
                is_error: true,
                ..none
            },
            (Answered, None, Some(true)),
        ),
        (
            End {
                outcome: Outcome::Failed,
                error_code: Some(-32603),
                ..none
            },
            (Answered, Some(-32603), None),
        ),
        (
            End {
                outcome: denied,
                error_code: Some(-32003),
                ..none
            },
            (Answered, Some(-32003), None),
        ),
        (
            End {
                outcome: Outcome::Cancelled,
                ..none
            },
            (GivenUp, None, None),
        ),
        (
            End {
                outcome: Outcome::Abandoned,
                ..none
            },
            (GivenUp, None, None),
        ),
        (
            End {
                outcome: Outcome::Unknown,
                ..none
            },
            (Unknown, None, None),
        ),
    ];
    for (end, _) in &rows {
        let open = soon(recorder.begin(&start(8))).await.unwrap();
        soon(open.finish(end)).await.unwrap();
    }
    soon(recorder.close()).await.unwrap();
    let levels = |it: &Ended| (it.transport(), it.protocol(), it.tool());
    for ((_, ended), (_, expected)) in ends(&ledger.entries()).iter().zip(rows) {
        assert_eq!(levels(ended), expected, "{ended:?}");
    }
}

#[tokio::test]
async fn relaxed_waits_for_the_disk_where_it_is_told_to() {
    let (ledger, gate) = (MemoryLedger::default(), Arc::new(Semaphore::new(0)));
    let store = Held(ledger.clone(), Arc::clone(&gate));
    let options = RecorderOptions {
        durability: Durability::Relaxed,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::spawn(store, options).unwrap();
    let relaxed = soon(recorder.begin(&start(1))).await.unwrap();
    recorder.note(&note("{}")).await.unwrap();
    let durable = start(2);
    let mut waiting = pin!(recorder.begin_durably(&durable));
    assert!(poll_once(waiting.as_mut()).await.is_none());
    assert_eq!(ledger.entries().len(), 0);
    gate.add_permits(100);
    let durable = soon(waiting).await.unwrap();
    assert!(2 < ledger.entries().len());
    drop((relaxed, durable));
    soon(recorder.close()).await.unwrap();
}

/// A store whose groups take a while, and which tells what was done in which order.
#[derive(Debug)]
struct Slow(MemoryLedger, Arc<Mutex<Vec<&'static str>>>);

impl LedgerStore for Slow {
    fn tail(&self) -> Tail {
        self.0.tail()
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        // So long that it is time to tidy.
        std::thread::sleep(Duration::from_millis(1_100));
        self.1.lock().unwrap().push("append");
        self.0.append(group).await
    }

    async fn tidy(&mut self, _: u64) -> Result<bool, StoreError> {
        self.1.lock().unwrap().push("tidy");
        Ok(false)
    }
}

fn waiting() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Has more happen while the last word is said.
struct Interrupting(Arc<OnceLock<Recorder>>);

impl CommitHook for Interrupting {
    fn stored(&mut self, _: Tail, _: u64) -> Option<Noted> {
        None
    }

    fn closing(&mut self, tail: Tail, _: u64) -> Option<Noted> {
        let recorder = self.0.get().unwrap();
        let refused = End::new(Outcome::Denied { reason: "quota" });
        let start = start(9);
        let counted = pin!(recorder.refuse(&start, &refused)).poll(&mut waiting());
        assert_eq!(counted, Poll::Ready(Ok(())));
        let noted = recorder.note_later(&note("{}"));
        assert_eq!(noted, Err(RecordError::Closed));
        said("last", tail)
    }
}

#[tokio::test]
async fn nothing_comes_after_the_last_word() {
    let (ledger, done, recorder) = (MemoryLedger::default(), Arc::default(), Arc::default());
    let store = Slow(ledger.clone(), Arc::clone(&done));
    let hook = Interrupting(Arc::clone(&recorder));
    let options = RecorderOptions {
        max_refusals: 0,
        now: || 0,
        ..RecorderOptions::default()
    };
    let spawned = Recorder::spawn_with_hook(store, options, hook).unwrap();
    let recorder = recorder.get_or_init(|| spawned);
    soon(recorder.note(&note("{}"))).await.unwrap();
    soon(recorder.close()).await.unwrap();
    let kinds: Vec<_> = notes(&ledger.entries())
        .into_iter()
        .map(|it| it.kind.to_string())
        .collect();
    assert_eq!(kinds.last().map(String::as_str), Some("last"), "{kinds:?}");
    assert_eq!(done.lock().unwrap().last(), Some(&"append"));
}
