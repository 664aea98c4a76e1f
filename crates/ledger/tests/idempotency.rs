//! Idempotency keys: a call that is repeated runs once.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod support;

use ledger::{
    BeginError, Claim, ClaimRefusal, End, Kept, KeyClaim, MAX_KEPT_BYTES, MemoryLedger, OpenCall,
    Outcome, Recorder, RecorderOptions, Start,
};
use support::{ends, of_key, soon, start, starts};

fn record(ledger: &MemoryLedger) -> Recorder {
    let options = RecorderOptions {
        now: || 100,
        ..RecorderOptions::default()
    };
    Recorder::spawn(ledger.clone(), options).unwrap()
}

async fn begin(recorder: &Recorder, claim: KeyClaim) -> Result<OpenCall, BeginError> {
    let at_us = claim.at_us;
    let key = claim.key.clone();
    let started = Start {
        call: claim.call,
        idempotency_key: Some(&key),
        ..start(at_us)
    };
    soon(recorder.begin_claiming(&started, &[Claim::Key(claim)])).await
}

fn refusal(begun: Result<OpenCall, BeginError>) -> ClaimRefusal {
    match begun {
        Err(BeginError::Refused(refusal)) => refusal,
        other => panic!("it was not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_repeated_call_runs_once_and_is_told_what_came_of_it() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger);
    let first = of_key(1, 100);
    let call = first.call;
    assert_eq!(soon(recorder.find_key(&first)).await, Ok(None));
    let open = begin(&recorder, first).await.unwrap();
    let in_flight = ClaimRefusal::InFlight { call };
    assert_eq!(
        soon(recorder.find_key(&of_key(1, 101))).await,
        Ok(Some(in_flight.clone()))
    );
    assert_eq!(refusal(begin(&recorder, of_key(1, 101)).await), in_flight);
    let end = End::new(Outcome::Succeeded);
    soon(open.finish_keeping(&end, Some("42"))).await.unwrap();

    let result = Kept {
        succeeded: true,
        result: Some("42".to_owned()),
    };
    let done = ClaimRefusal::Done { call, result };
    assert_eq!(refusal(begin(&recorder, of_key(1, 102)).await), done);
    let another = ClaimRefusal::AnotherCall { call };
    assert_eq!(
        refusal(begin(&recorder, of_key(2, 103)).await),
        another,
        "other arguments"
    );
    let elsewhere = KeyClaim {
        capability: "tool/other".to_owned(),
        ..of_key(1, 104)
    };
    assert_eq!(refusal(begin(&recorder, elsewhere).await), another);
    let somebody = KeyClaim {
        principal: "bob".to_owned(),
        ..of_key(2, 105)
    };
    drop(begin(&recorder, somebody).await.unwrap());
    // Its time is over.
    assert_eq!(refusal(begin(&recorder, of_key(1, 1_099)).await), done);
    drop(begin(&recorder, of_key(2, 1_100)).await.unwrap());
    soon(recorder.close()).await.unwrap();

    let entries = ledger.entries();
    let starts = starts(&entries);
    assert!(
        starts
            .iter()
            .all(|(_, it)| it.idempotency_key.as_deref() == Some("k-1"))
    );
    let ran = |it: &&(ledger::CallId, ledger::Ended)| it.1.outcome.counts_as_call();
    let ends = ends(&entries);
    assert_eq!(
        (starts.len(), ends.len()),
        (8, 8),
        "all of them are on record"
    );
    assert_eq!(ends.iter().filter(ran).count(), 3);
}

#[tokio::test]
async fn what_a_repetition_is_told_depends_on_how_the_call_ended() {
    let kept = |succeeded, result: Option<&str>| {
        let result = result.map(str::to_owned);
        Some((Kept { succeeded, result }, true))
    };
    let whole = "x".repeat(MAX_KEPT_BYTES);
    let large = "x".repeat(MAX_KEPT_BYTES + 1);
    let unknown = Some((
        Kept {
            succeeded: false,
            result: None,
        },
        false,
    ));
    let rows = [
        (Outcome::Succeeded, Some("42"), kept(true, Some("42"))),
        (Outcome::Succeeded, None, kept(true, None)),
        (Outcome::Succeeded, Some(&*whole), kept(true, Some(&whole))),
        (Outcome::Succeeded, Some(&*large), kept(true, None)),
        (Outcome::Failed, Some("no"), kept(false, Some("no"))),
        // They may have done something, and nobody can say what.
        (Outcome::TimedOut, Some("42"), unknown.clone()),
        (Outcome::Cancelled, None, unknown.clone()),
        (Outcome::Abandoned, None, unknown.clone()),
        (Outcome::Unknown, None, unknown),
        // They never ran.
        (Outcome::Invalid, None, None),
        (Outcome::Denied { reason: "quota" }, None, None),
    ];
    for (outcome, result, expected) in rows {
        let recorder = record(&MemoryLedger::default());
        let open = begin(&recorder, of_key(1, 100)).await.unwrap();
        let call = open.call();
        soon(open.finish_keeping(&End::new(outcome), result))
            .await
            .unwrap();
        let expected = expected.map(|(result, is_known)| match is_known {
            true => ClaimRefusal::Done { call, result },
            false => ClaimRefusal::Unknown { call },
        });
        let found = soon(recorder.find_key(&of_key(1, 101))).await.unwrap();
        assert!(found == expected, "{outcome}");
        assert_eq!(
            begin(&recorder, of_key(1, 101)).await.is_ok(),
            expected.is_none()
        );
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_or_finished_without_a_result_is_remembered() {
    let recorder = record(&MemoryLedger::default());
    let open = begin(&recorder, of_key(1, 100)).await.unwrap();
    let call = open.call();
    drop(open);
    assert_eq!(
        refusal(begin(&recorder, of_key(1, 101)).await),
        ClaimRefusal::Unknown { call }
    );
    let other = |at_us| KeyClaim {
        key: "k-2".to_owned(),
        ..of_key(1, at_us)
    };
    let open = begin(&recorder, other(102)).await.unwrap();
    let call = open.call();
    soon(open.finish(&End::new(Outcome::Succeeded)))
        .await
        .unwrap();
    let result = Kept {
        succeeded: true,
        result: None,
    };
    assert_eq!(
        refusal(begin(&recorder, other(103)).await),
        ClaimRefusal::Done { call, result }
    );
}

#[tokio::test]
async fn a_call_that_outlives_its_key_is_not_run_beside_itself() {
    let recorder = record(&MemoryLedger::default());
    let open = begin(&recorder, of_key(1, 100)).await.unwrap();
    let call = open.call();
    assert_eq!(
        refusal(begin(&recorder, of_key(1, 9_000)).await),
        ClaimRefusal::InFlight { call }
    );
    soon(open.finish(&End::new(Outcome::Succeeded)))
        .await
        .unwrap();
    drop(begin(&recorder, of_key(1, 9_001)).await.unwrap());
}

#[tokio::test]
async fn of_many_that_come_at_once_one_runs() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger);
    let callers: Vec<_> = (0..300)
        .map(|at_us| {
            let recorder = recorder.clone();
            tokio::spawn(async move {
                match begin(&recorder, of_key(1, at_us)).await {
                    Ok(open) => {
                        let end = End::new(Outcome::Succeeded);
                        soon(open.finish_keeping(&end, Some("42"))).await.unwrap();
                        true
                    }
                    Err(BeginError::Refused(_)) => false,
                    Err(error) => panic!("{error:?}"),
                }
            })
        })
        .collect();
    let mut ran = 0;
    for caller in callers {
        ran += u32::from(soon(caller).await.unwrap());
    }
    assert_eq!(ran, 1);
    soon(recorder.close()).await.unwrap();
    assert_eq!(ends(&ledger.entries()).len(), 300);
}
