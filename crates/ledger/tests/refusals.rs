//! Refusals that flood are counted; nothing else is.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod support;

use ledger::{
    CallId, End, HIDDEN_CAPABILITY, Kind, MemoryLedger, NoteKind, Noted, Outcome, Recorder,
    RecorderOptions, Start, UNKNOWN_CAPABILITY,
};
use std::sync::atomic::{AtomicU64, Ordering};
use support::{ends, notes, soon, starts, until};

const SECOND_US: u64 = 1_000_000;

fn record(ledger: &MemoryLedger, now: fn() -> u64) -> Recorder {
    let options = RecorderOptions {
        now,
        max_refusals: 3,
        ..RecorderOptions::default()
    };
    Recorder::spawn(ledger.clone(), options).unwrap()
}

async fn refuse(recorder: &Recorder, at_us: u64, principal: &str, tool: &str, reason: &str) {
    let start = Start {
        policy_version: at_us,
        ..Start::new(CallId::new(at_us), at_us, principal, Kind::Tool, tool)
    };
    let end = End::new(Outcome::Denied { reason });
    soon(recorder.refuse(&start, &end)).await.unwrap();
}

fn aggregated(noted: &Noted) -> (String, String, serde_json::Value) {
    assert_eq!(noted.kind, NoteKind::REFUSALS_AGGREGATED);
    let detail = serde_json::from_str(&noted.detail.text).unwrap();
    (noted.actor.clone(), noted.subject.clone(), detail)
}

#[tokio::test]
async fn what_floods_is_counted_and_told_apart() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger, || 9 * SECOND_US);
    for at_us in 0..10 {
        refuse(&recorder, at_us, "alice", "tool/a", "quo\"te").await;
    }
    refuse(&recorder, 10, "alice", "tool/b", "quo\"te").await;
    refuse(&recorder, 11, "alice", "tool/a", "permission").await;
    refuse(&recorder, 12, "bob", "tool/a", "quo\"te").await;
    soon(recorder.close()).await.unwrap();
    let entries = ledger.entries();
    assert_eq!((starts(&entries).len(), ends(&entries).len()), (6, 6));
    let notes = notes(&entries);
    assert_eq!(notes.len(), 1);
    let detail = serde_json::json!({
        "reason": "quo\"te", "count": 7, "first_us": 3, "last_us": 9
    });
    let expected = ("alice".to_owned(), "tool/a".to_owned(), detail);
    assert_eq!(aggregated(&notes[0]), expected);
    assert_eq!(notes[0].policy_version, 9);
}

/// Callers choose the names of what does not exist, and could take another one each time.
#[tokio::test]
async fn what_does_not_exist_is_counted_together_whatever_it_is_called() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger, || 9 * SECOND_US);
    for at_us in 0..10 {
        let tool = format!("tool/made-up-{at_us}");
        refuse(&recorder, at_us, "alice", &tool, UNKNOWN_CAPABILITY).await;
    }
    refuse(&recorder, 10, "bob", "tool/other", UNKNOWN_CAPABILITY).await;
    soon(recorder.close()).await.unwrap();
    let entries = ledger.entries();
    assert_eq!(starts(&entries).len(), 4);
    let notes = notes(&entries);
    assert_eq!(notes.len(), 1);
    let detail = serde_json::json!({
        "reason": "unknown", "count": 7, "not_visible": 0, "first_us": 3, "last_us": 9
    });
    let expected = ("alice".to_owned(), "*".to_owned(), detail);
    assert_eq!(aggregated(&notes[0]), expected);
}

/// Otherwise each probe of something hidden would be written, and would take as long as that takes.
#[tokio::test]
async fn refusals_of_hidden_and_unknown_tools_are_summed_up_together() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger, || 9 * SECOND_US);
    for at_us in 0..10 {
        let tool = format!("tool/{at_us}");
        let reason = match at_us % 2 {
            0 => UNKNOWN_CAPABILITY,
            _ => HIDDEN_CAPABILITY,
        };
        refuse(&recorder, at_us, "alice", &tool, reason).await;
    }
    soon(recorder.close()).await.unwrap();
    let entries = ledger.entries();
    assert_eq!(starts(&entries).len(), 3);
    let notes = notes(&entries);
    assert_eq!(notes.len(), 1);
    // Operators are told how many were which.
    let detail = serde_json::json!({
        "reason": "unknown", "count": 7, "not_visible": 4, "first_us": 3, "last_us": 9
    });
    let expected = ("alice".to_owned(), "*".to_owned(), detail);
    assert_eq!(aggregated(&notes[0]), expected);
}

#[tokio::test]
async fn a_window_that_is_over_begins_anew() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger, || 0);
    for window in 0..3 {
        for at_us in 0..3 {
            refuse(
                &recorder,
                window * 10 * SECOND_US + at_us,
                "alice",
                "tool/a",
                "quota",
            )
            .await;
        }
    }
    soon(recorder.close()).await.unwrap();
    let entries = ledger.entries();
    assert_eq!((starts(&entries).len(), notes(&entries).len()), (9, 0));
}

static NOW_US: AtomicU64 = AtomicU64::new(0);

#[tokio::test]
async fn what_was_counted_is_written_when_its_time_has_come() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger, || NOW_US.load(Ordering::Relaxed));
    for at_us in 0..5 {
        refuse(&recorder, at_us, "alice", "tool/a", "quota").await;
    }
    assert_eq!(notes(&ledger.entries()), []);
    NOW_US.store(10 * SECOND_US, Ordering::Relaxed);
    until(|| notes(&ledger.entries()).len() == 1).await;
    // And from then on they are written one by one again.
    refuse(&recorder, 10 * SECOND_US, "alice", "tool/a", "quota").await;
    let entries = ledger.entries();
    assert_eq!(starts(&entries).len(), 4);
    soon(recorder.close()).await.unwrap();
    assert_eq!(ledger.entries().len(), entries.len());
}

#[tokio::test]
async fn executions_and_wrong_arguments_are_never_counted_together() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger, || 0);
    for at_us in 0..10 {
        let start = Start::new(CallId::new(at_us), at_us, "alice", Kind::Tool, "tool/a");
        let open = soon(recorder.begin(&start)).await.unwrap();
        soon(open.finish(&End::new(Outcome::Denied { reason: "late" })))
            .await
            .unwrap();
        let start = Start {
            call: CallId::new(at_us),
            ..start
        };
        soon(recorder.refuse(&start, &End::new(Outcome::Invalid)))
            .await
            .unwrap();
    }
    soon(recorder.close()).await.unwrap();
    let entries = ledger.entries();
    assert_eq!((starts(&entries).len(), notes(&entries).len()), (20, 0));
}

#[tokio::test]
async fn names_that_callers_make_up_do_not_fill_the_memory() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger, || 0);
    for at_us in 0..5_000 {
        refuse(
            &recorder,
            at_us,
            "alice",
            &format!("tool/{at_us}"),
            "permission",
        )
        .await;
    }
    // Those that are known already are told apart as before.
    for at_us in 5_000..5_005 {
        refuse(&recorder, at_us, "alice", "tool/7", "permission").await;
    }
    soon(recorder.close()).await.unwrap();
    let entries = ledger.entries();
    let mut told: Vec<_> = notes(&entries).iter().map(aggregated).collect();
    told.sort_by_key(|it| it.1.clone());
    assert_eq!(told.len(), 2);
    assert_eq!((&*told[0].0, &*told[0].1), ("*", "*"));
    assert_eq!(told[1].1, "tool/7");
    let counted: u64 = told.iter().map(|it| it.2["count"].as_u64().unwrap()).sum();
    assert_eq!(counted + starts(&entries).len() as u64, 5_005);
}
