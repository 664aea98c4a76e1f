//! Approvals: what is asked for, decided, used, and refused.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod support;

use ledger::{
    ApprovalError, ApprovalId, ApprovalProblem, ApprovalState, Approver, BeginError, Binding,
    Claim, ClaimRefusal, Decision, Durability, End, Entry, LedgerReader, LedgerStore,
    MAX_ARGUMENTS_BYTES, MemoryLedger, NewApproval, NoteKind, OfflineApprovals,
    OfflineApprovalsError, Outcome, PendingBounds, ReadLedger, RecordError, Recorder,
    RecorderOptions, SqliteLedger, Start, Verdict,
};
use rusqlite::Connection;
use std::{
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use support::{
    Held, digest, ends, new_approval, notes, of_approval, of_key, poll_once, soon, start, starts,
    until,
};
use tokio::sync::Semaphore;

fn options() -> RecorderOptions {
    RecorderOptions {
        now: || 100,
        claim_refusal_code: Some(-32003),
        ..RecorderOptions::default()
    }
}

fn record(ledger: &MemoryLedger) -> Recorder {
    Recorder::spawn(ledger.clone(), options()).unwrap()
}

async fn approved(recorder: &Recorder, binding: u8) -> ledger::Approval {
    let new = new_approval(binding, 100);
    let pending = soon(recorder.request_approval(&new)).await.unwrap();
    let decided = recorder.decide_approval(pending.id, Verdict::new(Decision::Approve, "bob", 101));
    soon(decided).await.unwrap()
}

#[tokio::test]
async fn an_approval_is_asked_for_decided_and_used_once_all_on_record() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger);
    let new = new_approval(1, 100);
    let pending = soon(recorder.request_approval(&new)).await.unwrap();
    assert_eq!(
        (pending.id, pending.state),
        (new.id, ApprovalState::Pending)
    );
    let again = soon(recorder.request_approval(&new_approval(1, 105))).await;
    assert_eq!(again.unwrap(), pending, "another one for the same");
    let decided = recorder.decide_approval(new.id, Verdict::new(Decision::Approve, "bob", 110));
    let decided = soon(decided).await.unwrap();
    assert_eq!(decided.state, ApprovalState::Approved);
    let by_bob = Verdict::new(Decision::Approve, "bob", 110);
    assert_eq!(decided.decided, Some(by_bob));
    let again = soon(recorder.request_approval(&new_approval(1, 115))).await;
    assert_eq!(again.unwrap(), decided, "what is approved is told");

    let first = Start {
        approval: Some(new.id),
        ..start(120)
    };
    let open = soon(recorder.begin_claiming(&first, &[of_approval(&decided)]))
        .await
        .unwrap();
    soon(open.finish(&End::new(Outcome::Succeeded)))
        .await
        .unwrap();
    let second = Start {
        approval: Some(new.id),
        ..start(121)
    };
    let refused = soon(recorder.begin_claiming(&second, &[of_approval(&decided)])).await;
    let problem = ClaimRefusal::Approval(ApprovalProblem::Used);
    assert_eq!(refused.unwrap_err(), BeginError::Refused(problem));
    assert_eq!(ledger.approvals()[0].used_by, Some(first.call));
    soon(recorder.close()).await.unwrap();

    let entries = ledger.entries();
    let said: Vec<_> = notes(&entries)
        .into_iter()
        .map(|it| (it.kind, it.actor, it.subject, it.policy_version))
        .collect();
    let name = new.id.to_string();
    assert_eq!(
        said,
        [
            (
                NoteKind::APPROVAL_REQUESTED,
                "alice".to_owned(),
                name.clone(),
                7
            ),
            (NoteKind::APPROVAL_DECIDED, "bob".to_owned(), name, 7),
        ]
    );
    let starts = starts(&entries);
    assert!(starts.iter().all(|(_, it)| it.approval == Some(new.id)));
    let ends = ends(&entries);
    assert_eq!(
        (ends[0].0, &ends[0].1.outcome),
        (first.call, &Outcome::Succeeded)
    );
    let reason = "confirmation".to_owned();
    assert_eq!(
        (ends[1].0, &ends[1].1.outcome),
        (second.call, &Outcome::Denied { reason })
    );
    assert_eq!(ends[1].1.error_code, Some(-32003));
}

#[tokio::test]
async fn what_is_not_exactly_approved_is_refused() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger);
    let pending = soon(recorder.request_approval(&new_approval(1, 100)))
        .await
        .unwrap();
    let good = approved(&recorder, 2).await;
    let denied = soon(recorder.request_approval(&new_approval(3, 100)))
        .await
        .unwrap();
    soon(recorder.decide_approval(denied.id, Verdict::new(Decision::Deny, "bob", 101)))
        .await
        .unwrap();
    let used = approved(&recorder, 4).await;
    drop(
        soon(recorder.begin_claiming(&start(102), &[of_approval(&used)]))
            .await
            .unwrap(),
    );
    let other = Claim::Approval {
        approval: good.id,
        binding: digest(9),
    };
    let missing = Claim::Approval {
        approval: ApprovalId::random(),
        binding: digest(2),
    };
    let rows = [
        (of_approval(&pending), 110, ApprovalProblem::Pending),
        (of_approval(&denied), 110, ApprovalProblem::Denied),
        (of_approval(&used), 110, ApprovalProblem::Used),
        (of_approval(&good), 1_100, ApprovalProblem::Expired),
        (of_approval(&good), u64::MAX, ApprovalProblem::Expired),
        (other, 110, ApprovalProblem::AnotherCall),
        (missing, 110, ApprovalProblem::Missing),
    ];
    for (claim, at_us, problem) in rows {
        let refused = soon(recorder.begin_claiming(&start(at_us), &[claim])).await;
        let expected = BeginError::Refused(ClaimRefusal::Approval(problem));
        assert_eq!(refused.unwrap_err(), expected, "{problem:?}");
    }
    // It was refused so many times, and is good all the same.
    let begun = soon(recorder.begin_claiming(&start(1_099), &[of_approval(&good)])).await;
    drop(begun.unwrap());
    assert_eq!(recorder.health().open_calls, 0);
}

#[tokio::test]
async fn a_call_is_given_all_that_it_claims_or_nothing() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger);
    let good = approved(&recorder, 1).await;
    let pending = soon(recorder.request_approval(&new_approval(2, 100)))
        .await
        .unwrap();
    let claims = [
        of_approval(&good),
        Claim::Key(of_key(1, 110)),
        of_approval(&pending),
    ];
    let refused = soon(recorder.begin_claiming(&start(110), &claims)).await;
    assert!(matches!(refused, Err(BeginError::Refused(_))));
    assert_eq!(soon(recorder.find_key(&of_key(1, 110))).await, Ok(None));
    let claims = [of_approval(&good), Claim::Key(of_key(1, 110))];
    let begun = soon(recorder.begin_claiming(&start(110), &claims)).await;
    drop(begun.unwrap());
}

#[tokio::test]
async fn nobody_decides_who_may_not_and_nothing_twice() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger);
    let for_user = NewApproval {
        needs: Approver::User,
        ..new_approval(1, 100)
    };
    let for_operator = new_approval(2, 100);
    for new in [&for_user, &for_operator] {
        soon(recorder.request_approval(new)).await.unwrap();
    }
    let rows = [
        (
            for_user.id,
            "user:mallory",
            110,
            ApprovalProblem::NotEntitled,
        ),
        (
            for_operator.id,
            "user:alice",
            110,
            ApprovalProblem::NotEntitled,
        ),
        (for_operator.id, "bob", 1_100, ApprovalProblem::Expired),
        (ApprovalId::random(), "bob", 110, ApprovalProblem::Missing),
    ];
    for (id, by, at_us, problem) in rows {
        let refused =
            soon(recorder.decide_approval(id, Verdict::new(Decision::Approve, by, at_us))).await;
        assert_eq!(
            refused.unwrap_err(),
            ApprovalError::Refused(problem),
            "{by}"
        );
    }
    soon(recorder.decide_approval(
        for_user.id,
        Verdict::new(Decision::Approve, "user:alice", 110),
    ))
    .await
    .unwrap();
    soon(recorder.decide_approval(for_operator.id, Verdict::new(Decision::Deny, "bob", 110)))
        .await
        .unwrap();
    for id in [for_user.id, for_operator.id] {
        let refused =
            soon(recorder.decide_approval(id, Verdict::new(Decision::Approve, "bob", 111))).await;
        let expected = ApprovalError::Refused(ApprovalProblem::Decided);
        assert_eq!(refused.unwrap_err(), expected);
    }
    let decided = |it: &ledger::Noted| it.kind == NoteKind::APPROVAL_DECIDED;
    let notes = notes(&ledger.entries());
    assert_eq!(notes.iter().filter(|it| decided(it)).count(), 2);
}

#[tokio::test]
async fn what_an_operator_must_decide_is_not_settled_by_what_a_user_has() {
    let recorder = record(&MemoryLedger::default());
    let easy = NewApproval {
        needs: Approver::User,
        ..new_approval(1, 100)
    };
    soon(recorder.request_approval(&easy)).await.unwrap();
    soon(recorder.decide_approval(easy.id, Verdict::new(Decision::Approve, "user:alice", 101)))
        .await
        .unwrap();
    let hard = new_approval(1, 102);
    let given = soon(recorder.request_approval(&hard)).await.unwrap();
    assert_eq!((given.id, given.state), (hard.id, ApprovalState::Pending));
}

#[tokio::test]
async fn what_is_pending_is_bounded_for_each_and_for_all() {
    let options = RecorderOptions {
        pending_approvals: PendingBounds {
            per_principal: 2,
            total: 3,
        },
        ..options()
    };
    let recorder = Recorder::spawn(MemoryLedger::default(), options).unwrap();
    let ask = async |binding, principal: &str, at_us| {
        let principal = principal.to_owned();
        let new = NewApproval {
            principal,
            ..new_approval(binding, at_us)
        };
        soon(recorder.request_approval(&new)).await
    };
    let too_many = Err(ApprovalError::Refused(ApprovalProblem::TooManyPending));
    let first = ask(1, "alice", 100).await.unwrap();
    ask(2, "alice", 100).await.unwrap();
    assert_eq!(ask(3, "alice", 100).await, too_many);
    ask(4, "carol", 100).await.unwrap();
    assert_eq!(ask(5, "dave", 100).await, too_many);
    soon(recorder.decide_approval(first.id, Verdict::new(Decision::Deny, "bob", 100)))
        .await
        .unwrap();
    ask(6, "alice", 100).await.unwrap();
    // Those that have expired make room, whether or not that has been written down.
    ask(7, "alice", 1_100).await.unwrap();
}

#[tokio::test]
async fn a_claim_given_up_before_its_answer_is_ended_once_it_is_known() {
    for (approve, answered) in [(true, false), (false, false), (true, true), (false, true)] {
        let (ledger, gate) = (MemoryLedger::default(), Arc::new(Semaphore::new(2)));
        let store = Held(ledger.clone(), Arc::clone(&gate));
        let recorder = Recorder::spawn(store, options()).unwrap();
        let new = new_approval(1, 100);
        let asked = soon(recorder.request_approval(&new)).await.unwrap();
        let decision = if approve {
            Decision::Approve
        } else {
            Decision::Deny
        };
        soon(recorder.decide_approval(new.id, Verdict::new(decision, "bob", 101)))
            .await
            .unwrap();
        let (started, claims) = (
            start(110),
            [of_approval(&asked), Claim::Key(of_key(1, 110))],
        );
        {
            let mut begin = pin!(recorder.begin_claiming(&started, &claims));
            assert!(poll_once(begin.as_mut()).await.is_none());
            assert_eq!(recorder.health().open_calls, 1);
            if answered {
                gate.add_permits(1);
                until(|| recorder.health().unwritten_entries == 0).await;
            }
        }
        gate.add_permits(100);
        until(|| recorder.health().open_calls == 0).await;
        assert_eq!(
            soon(recorder.find_key(&of_key(1, 111))).await,
            Ok(None),
            "it never ran"
        );
        soon(recorder.close()).await.unwrap();
        let ends = ends(&ledger.entries());
        let expected = match approve {
            true => Outcome::Abandoned,
            false => Outcome::Denied {
                reason: "confirmation".to_owned(),
            },
        };
        assert_eq!(ends.len(), 1);
        assert_eq!((ends[0].0, &ends[0].1.outcome), (started.call, &expected));
    }
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_never_runs_and_uses_nothing_twice() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger);
    let good = approved(&recorder, 1).await;
    let claims = [of_approval(&good), Claim::Key(of_key(1, 110))];
    ledger.set_failing_after(true);
    let started = start(110);
    let lost = soon(recorder.begin_claiming(&started, &claims)).await;
    assert_eq!(
        lost.unwrap_err(),
        BeginError::Record(RecordError::Unavailable)
    );
    ledger.set_failing_after(false);
    until(|| recorder.is_ok()).await;
    assert_eq!(
        soon(recorder.find_key(&of_key(1, 111))).await,
        Ok(None),
        "it never ran"
    );
    let used = soon(recorder.begin_claiming(&start(111), &claims[..1])).await;
    let problem = ClaimRefusal::Approval(ApprovalProblem::Used);
    assert_eq!(used.unwrap_err(), BeginError::Refused(problem));
    soon(recorder.close()).await.unwrap();
    let ends = ends(&ledger.entries());
    let reason = "ledger_unavailable".to_owned();
    let first = ends.iter().find(|(call, _)| *call == started.call).unwrap();
    assert_eq!(
        (ends.len(), &first.1.outcome),
        (2, &Outcome::Denied { reason })
    );
}

#[tokio::test]
async fn closing_over_a_failing_store_does_not_wait_for_answers() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger);
    ledger.set_failing(true);
    let lost = soon(recorder.begin_claiming(&start(110), &[Claim::Key(of_key(1, 110))])).await;
    assert_eq!(
        lost.unwrap_err(),
        BeginError::Record(RecordError::Unavailable)
    );
    assert_eq!(
        soon(recorder.close()).await.unwrap_err().unwritten_entries,
        1
    );
}

/// A store that knows no operations.
struct Plain(MemoryLedger);

impl LedgerStore for Plain {
    fn tail(&self) -> ledger::Tail {
        self.0.tail()
    }

    async fn append(
        &mut self,
        group: ledger::Group<'_>,
    ) -> Result<ledger::Appended, ledger::StoreError> {
        let group = ledger::Group {
            operations: &[],
            ..group
        };
        self.0.append(group).await
    }
}

#[tokio::test]
async fn over_a_store_that_knows_no_approvals_nothing_that_needs_one_runs() {
    let ledger = MemoryLedger::default();
    let recorder = Recorder::spawn(Plain(ledger.clone()), options()).unwrap();
    let begun = soon(recorder.begin_claiming(&start(110), &[Claim::Key(of_key(1, 110))])).await;
    assert_eq!(
        begun.unwrap_err(),
        BeginError::Record(RecordError::Unsupported)
    );
    let asked = soon(recorder.request_approval(&new_approval(1, 100))).await;
    assert_eq!(
        asked.unwrap_err(),
        ApprovalError::Record(RecordError::Unsupported)
    );
    soon(recorder.close()).await.unwrap();
    let reason = "ledger_unavailable".to_owned();
    assert_eq!(
        ends(&ledger.entries())[0].1.outcome,
        Outcome::Denied { reason }
    );
}

fn entries(path: &Path) -> Vec<Entry> {
    let mut reader = LedgerReader::open(path).unwrap();
    let mut entries = Vec::new();
    let mut from = 1;
    loop {
        let groups = reader.groups(from).unwrap();
        let Some(last) = groups.last() else { break };
        from = last.first_sequence + last.count;
        for group in &groups {
            let of_group = ledger::Group {
                id: uuid::Uuid::nil(),
                count: group.count,
                body: &group.body,
                charges: &[],
                operations: &[],
                durable: false,
            };
            entries.extend(of_group.entries(group.first_sequence).unwrap());
        }
    }
    entries
}

#[tokio::test]
async fn a_decision_can_be_revoked_until_it_is_used_and_the_ledger_records_by_whom() {
    let ledger = MemoryLedger::default();
    let recorder = record(&ledger);
    let of = |decision, by: &str, at_us| Verdict {
        proof: Some("token".to_owned()),
        reason: Some("a\nreason".to_owned()),
        ..Verdict::new(decision, by, at_us)
    };
    let revoke = |at_us| of(Decision::Revoke, "carla", at_us);
    let ask = async |binding| {
        let new = NewApproval {
            needs: Approver::User,
            ..new_approval(binding, 100)
        };
        soon(recorder.request_approval(&new)).await.unwrap().id
    };
    let decide = async |id, verdict| soon(recorder.decide_approval(id, verdict)).await;
    let refused = |outcome: Result<_, _>| match outcome {
        Err(ApprovalError::Refused(problem)) => problem,
        other => panic!("{other:?}"),
    };

    let id = ask(1).await;
    let why = refused(decide(id, revoke(101)).await);
    assert_eq!(why, ApprovalProblem::Pending);
    decide(id, of(Decision::Approve, "bob", 102)).await.unwrap();
    let by_user = of(Decision::Revoke, "user:alice", 103);
    assert_eq!(
        refused(decide(id, by_user).await),
        ApprovalProblem::NotEntitled
    );
    let taken = decide(id, revoke(104)).await.unwrap();
    assert_eq!(taken.state, ApprovalState::Revoked);
    assert_eq!(taken.decided.as_ref().unwrap().by, "bob");
    assert_eq!(taken.revoked.as_ref().unwrap().by, "carla");
    let start = Start {
        approval: Some(id),
        ..start(105)
    };
    let begun = soon(recorder.begin_claiming(&start, &[of_approval(&taken)])).await;
    let Err(BeginError::Refused(refusal)) = begun else {
        panic!("it began");
    };
    assert_eq!(refusal, ClaimRefusal::Approval(ApprovalProblem::Revoked));
    for verdict in [revoke(106), of(Decision::Approve, "bob", 106)] {
        assert_eq!(refused(decide(id, verdict).await), ApprovalProblem::Revoked);
    }
    assert_ne!(ask(1).await, id, "whoever calls again asks anew");

    // A user's no can be taken back as well, and does not count any more.
    let declined = ask(2).await;
    decide(declined, of(Decision::Deny, "user:alice", 102))
        .await
        .unwrap();
    assert_eq!(ask(2).await, declined, "it stays until it is taken back");
    decide(declined, revoke(103)).await.unwrap();
    assert_ne!(ask(2).await, declined);

    let late = ask(3).await;
    decide(late, of(Decision::Deny, "bob", 102)).await.unwrap();
    assert_eq!(
        refused(decide(late, revoke(1_000_000)).await),
        ApprovalProblem::Expired
    );

    soon(recorder.close()).await.unwrap();
    let told: Vec<_> = notes(&ledger.entries())
        .into_iter()
        .filter(|it| it.subject == id.to_string())
        .map(|it| {
            let detail: serde_json::Value = serde_json::from_str(&it.detail.text).unwrap();
            (it.kind, it.actor, detail)
        })
        .collect();
    let [_, (decided, bob, how), (revoked, carla, why)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((decided, &**bob), (&NoteKind::APPROVAL_DECIDED, "bob"));
    assert_eq!(
        (&how["decided"]["proof"], &how["revoked"]),
        (&"token".into(), &().into())
    );
    assert_eq!((revoked, &**carla), (&NoteKind::APPROVAL_REVOKED, "carla"));
    assert_eq!(why["revoked"]["reason"], "a reason", "{why}");
    assert_eq!(why["decided"], how["decided"]);
    assert_eq!(why["state"], "revoked");
}

#[tokio::test]
async fn arguments_too_large_to_be_shown_cannot_be_approved() {
    let recorder = record(&MemoryLedger::default());
    let of = |length| NewApproval {
        arguments: "x".repeat(length),
        ..new_approval(1, 100)
    };
    let refused = soon(recorder.request_approval(&of(MAX_ARGUMENTS_BYTES + 1))).await;
    assert!(matches!(
        refused,
        Err(ApprovalError::Refused(ApprovalProblem::TooLarge))
    ));
    let made = soon(recorder.request_approval(&of(MAX_ARGUMENTS_BYTES)))
        .await
        .unwrap();
    assert_eq!(made.arguments.len(), MAX_ARGUMENTS_BYTES);
    soon(recorder.close()).await.unwrap();
}

/// The time of the test below.
static NOW_US: AtomicU64 = AtomicU64::new(100);

#[tokio::test]
async fn what_is_decided_beside_a_running_server_is_seen_and_put_on_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    assert!(OfflineApprovals::open(&path).is_err(), "there is no ledger");
    let store = SqliteLedger::open(&path, Durability::Strict).unwrap();
    let options = RecorderOptions {
        now: || NOW_US.load(Ordering::Relaxed),
        ..options()
    };
    let recorder = Recorder::spawn(store, options).unwrap();
    let mut desk = OfflineApprovals::open(&path).unwrap();
    let mut ask = Vec::new();
    for binding in 1..=3 {
        let new = new_approval(binding, 100);
        ask.push(soon(recorder.request_approval(&new)).await.unwrap());
    }
    desk.decide(ask[0].id, &Verdict::new(Decision::Approve, "bob", 110))
        .unwrap();
    let again = desk.decide(ask[0].id, &Verdict::new(Decision::Deny, "bob", 110));
    assert!(matches!(
        again,
        Err(OfflineApprovalsError::Refused(ApprovalProblem::Decided))
    ));
    let missing = desk.decide(
        ApprovalId::random(),
        &Verdict::new(Decision::Deny, "bob", 110),
    );
    assert!(matches!(
        missing,
        Err(OfflineApprovalsError::Refused(ApprovalProblem::Missing))
    ));

    // Before a use.
    let started = Start {
        approval: Some(ask[0].id),
        ..start(120)
    };
    let open = soon(recorder.begin_claiming(&started, &[of_approval(&ask[0])]))
        .await
        .unwrap();
    let decided = |entries: &[Entry]| {
        let decided = |it: &ledger::Noted| it.kind == NoteKind::APPROVAL_DECIDED;
        let notes = notes(entries).into_iter().filter(decided);
        notes
            .map(|it| (it.subject, it.actor, it.at_us))
            .collect::<Vec<_>>()
    };
    let first = (ask[0].id.to_string(), "bob".to_owned(), 110);
    assert_eq!(decided(&entries(&path)), std::slice::from_ref(&first));

    // From time to time, without any use; and what expires as well.
    desk.decide(ask[1].id, &Verdict::new(Decision::Deny, "carol", 130))
        .unwrap();
    let second = (ask[1].id.to_string(), "carol".to_owned(), 130);
    until(|| decided(&entries(&path)) == [first.clone(), second.clone()]).await;
    NOW_US.store(1_100, Ordering::Relaxed);
    let expired = || {
        let entries = entries(&path);
        let mut notes = notes(&entries).into_iter();
        notes.any(|it| it.kind == NoteKind::APPROVAL_EXPIRED && it.subject == ask[2].id.to_string())
    };
    until(expired).await;

    soon(open.finish(&End::new(Outcome::Succeeded)))
        .await
        .unwrap();
    soon(recorder.close()).await.unwrap();
    let connection = Connection::open(&path).unwrap();
    let states: Vec<String> = connection
        .prepare("SELECT state FROM approval ORDER BY state")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(states, ["denied", "expired", "used"]);
}

#[test]
fn what_is_over_for_long_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let store = SqliteLedger::open(&path, Durability::Strict).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let recorder = Recorder::spawn(store, options()).unwrap();
        soon(recorder.request_approval(&new_approval(1, 100)))
            .await
            .unwrap();
        let (started, claims) = (start(100), [Claim::Key(of_key(1, 100))]);
        let open = soon(recorder.begin_claiming(&started, &claims))
            .await
            .unwrap();
        soon(open.finish(&End::new(Outcome::Succeeded)))
            .await
            .unwrap();
        soon(recorder.close()).await.unwrap();
        let mut store = SqliteLedger::open(&path, Durability::Strict).unwrap();
        let connection = Connection::open(&path).unwrap();
        let rows = || -> (i64, i64) {
            let count = |table: &str| {
                let sql = format!("SELECT count(*) FROM {table}");
                connection.query_row(&sql, [], |row| row.get(0)).unwrap()
            };
            (count("approval"), count("idempotency_key"))
        };
        let month_us = 30 * 24 * 60 * 60 * 1_000_000;
        for (now_us, expected) in [
            (1_099, (1, 1)),
            (1_100, (1, 0)),
            (1_100 + month_us, (1, 0)),
            (1_101 + month_us, (0, 0)),
        ] {
            while store.tidy(now_us).await.unwrap() {}
            assert_eq!(rows(), expected, "{now_us}");
        }
        let tail = store.tail();
        while store.tidy(u64::MAX).await.unwrap() {}
        assert_eq!(store.tail(), tail, "nothing is said twice");
    });
}

#[test]
fn names_are_read_back_and_nothing_else_is() {
    let id = ApprovalId::random();
    let name = id.to_string();
    assert_eq!((name.len(), name.parse()), (26, Ok(id)));
    let most = ApprovalId(uuid::Uuid::from_u128(u128::MAX));
    assert_eq!(most.to_string().parse(), Ok(most));
    for text in [
        "",
        "apr_",
        &name[1..],
        &name.replace('_', "-"),
        "apr_zzzzzzzzzzzzzzzzzzzzzz",
        "apr_é12345678901234567890",
    ] {
        assert!(text.parse::<ApprovalId>().is_err(), "{text}");
    }
}

#[test]
fn any_difference_makes_another_binding() {
    let binding = Binding {
        principal: "alice",
        capability: "tool/pay",
        definition: digest(1),
        arguments: digest(2),
        policy_version: 3,
    };
    let others = [
        Binding {
            principal: "alicet",
            capability: "ool/pay",
            ..binding
        },
        Binding {
            capability: "tool/paid",
            ..binding
        },
        Binding {
            definition: digest(2),
            arguments: digest(1),
            ..binding
        },
        Binding {
            arguments: digest(3),
            ..binding
        },
        Binding {
            policy_version: 4,
            ..binding
        },
    ];
    for other in others {
        assert_ne!(other.digest(), binding.digest(), "{other:?}");
    }
}
