//! Promises of every store, tried on each of them.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use ledger::{
    Appended, ApprovalProblem, ApprovalState, Approver, BeginError, Binding, CallId, Claim,
    ClaimRefusal, Decision, Durability, End, Entry, Event, Group, KeyClaim, Kind, LedgerReader,
    LedgerStore, MAX_KEPT_BYTES, MemoryLedger, NewApproval, Note, NoteKind, Operation,
    OperationOutcome, Outcome, PendingBounds, PostgresLedger, PostgresOptions, PostgresReader,
    ReadLedger, Recorder, RecorderOptions, SqliteLedger, Start, StoreError, Tail, Verdict,
};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use testkit::Postgres;
use uuid::Uuid;

/// A place where a ledger is kept, empty at first.
trait Place {
    type Store: LedgerStore;
    fn open(&self) -> Self::Store;
    /// All entries of the ledger.
    fn entries(&self) -> Vec<Entry>;
    /// Reader of the ledger, where there is more to read than its entries.
    fn reader(&self) -> Option<Box<dyn ReadLedger>>;
    /// Changes the answers that are kept, where somebody else can.
    fn change_answers(&self, set: &str) -> bool;
}

struct InMemory(MemoryLedger);

impl Place for InMemory {
    type Store = MemoryLedger;
    fn open(&self) -> MemoryLedger {
        self.0.clone()
    }
    fn entries(&self) -> Vec<Entry> {
        self.0.entries()
    }
    fn reader(&self) -> Option<Box<dyn ReadLedger>> {
        None
    }
    fn change_answers(&self, _: &str) -> bool {
        false
    }
}

struct InFile {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Place for InFile {
    type Store = SqliteLedger;
    fn open(&self) -> SqliteLedger {
        SqliteLedger::open(&self.path, Durability::Strict).unwrap()
    }
    fn entries(&self) -> Vec<Entry> {
        all(&mut LedgerReader::open(&self.path).unwrap())
    }
    fn reader(&self) -> Option<Box<dyn ReadLedger>> {
        Some(Box::new(LedgerReader::open(&self.path).unwrap()))
    }
    fn change_answers(&self, set: &str) -> bool {
        let connection = rusqlite::Connection::open(&self.path).unwrap();
        let sql = format!("UPDATE idempotency_key SET {set}");
        connection.execute(&sql, []).unwrap();
        true
    }
}

struct InPostgres(PostgresOptions, String);

impl Place for InPostgres {
    type Store = PostgresLedger;
    fn open(&self) -> PostgresLedger {
        PostgresLedger::open(&self.0).unwrap()
    }
    fn entries(&self) -> Vec<Entry> {
        all(&mut PostgresReader::open(&self.0).unwrap())
    }
    fn reader(&self) -> Option<Box<dyn ReadLedger>> {
        Some(Box::new(PostgresReader::open(&self.0).unwrap()))
    }
    fn change_answers(&self, set: &str) -> bool {
        let (_, database) = self.1.rsplit_once('/').unwrap();
        let postgres = Postgres::shared().unwrap();
        let sql = format!("UPDATE owlclaw_ledger.idempotency_key SET {set}");
        postgres.sql_in(database, &sql);
        true
    }
}

/// All entries of a ledger, which must be one chain.
fn all(reader: &mut dyn ReadLedger) -> Vec<Entry> {
    let (mut entries, mut tail) = (Vec::new(), Tail::default());
    loop {
        let groups = reader.groups(tail.next_sequence).unwrap();
        if groups.is_empty() {
            assert_eq!(
                reader.extent().unwrap().last_sequence + 1,
                tail.next_sequence
            );
            return entries;
        }
        for group in groups {
            assert_eq!(group.first_sequence, tail.next_sequence);
            tail = tail.after(&group.body, group.count);
            assert_eq!(tail.hash, group.hash);
            let body = self::group(Uuid::nil(), &group.body, group.count);
            entries.extend(body.entries(group.first_sequence).unwrap());
        }
    }
}

/// Makes a test of each claim for each place.
macro_rules! every_store {
    ($($claim:ident),* $(,)?) => {
        mod memory {
            $(#[test] fn $claim() {
                super::wait(super::$claim(&super::InMemory(super::MemoryLedger::default())));
            })*
        }
        mod sqlite {
            $(#[test] fn $claim() {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("ledger.sqlite");
                super::wait(super::$claim(&super::InFile { path, _directory: directory }));
            })*
        }
        mod postgres {
            $(#[test] fn $claim() {
                let Some(postgres) = super::Postgres::shared() else { return };
                let url = postgres.fresh_database();
                let options = super::PostgresOptions::new(&url).unwrap().with_now(|| 1);
                super::wait(super::$claim(&super::InPostgres(options, url)));
            })*
        }
    };
}

every_store!(
    what_is_appended_is_read_back_in_order,
    a_group_that_is_tried_again_is_stored_once,
    operations_that_are_tried_again_are_carried_out_once,
    an_approval_is_asked_for_decided_and_used_once,
    approvals_that_do_not_fit_are_refused,
    what_waits_for_a_decision_is_bounded,
    a_key_runs_one_call,
    a_key_comes_free_and_is_forgotten,
    large_results_are_not_kept,
    an_answer_that_somebody_has_changed_is_not_given,
    what_expires_is_noted,
    a_ledger_goes_on_where_it_ended,
    calls_are_found,
    strange_texts_come_back_as_they_were,
);

fn wait(claim: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async { tokio::time::timeout(Duration::from_secs(60), claim).await })
        .unwrap();
}

fn group(id: Uuid, body: &[u8], count: u64) -> Group<'_> {
    Group {
        id,
        count,
        body,
        charges: &[],
        operations: &[],
        durable: false,
    }
}

/// Keeps what a recorder hands over, as it is.
#[derive(Clone, Default)]
struct Caught(Arc<Mutex<(Vec<u8>, u64)>>);

impl LedgerStore for Caught {
    fn tail(&self) -> Tail {
        Tail::default()
    }
    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        let mut caught = self.0.lock().unwrap();
        caught.0.extend_from_slice(group.body);
        caught.1 += group.count;
        Ok(Appended::at(Tail::default()))
    }
}

/// The bytes of a call and how many entries they are.
async fn bytes_of(start: &Start<'_>, end: &End<'_>) -> (Vec<u8>, u64) {
    let caught = Caught::default();
    let recorder = Recorder::spawn(caught.clone(), RecorderOptions::default()).unwrap();
    let call = recorder.begin(start).await.unwrap();
    call.finish(end).await.unwrap();
    recorder.close().await.unwrap();
    caught.0.lock().unwrap().clone()
}

fn start(principal: &str, at_us: u64) -> Start<'_> {
    Start {
        arguments: r#"{"to":"bob"}"#,
        estimated_cost_micros: 5,
        ..Start::new(CallId::new(at_us), at_us, principal, Kind::Tool, "tool/pay")
    }
}

fn done() -> End<'static> {
    End {
        result: r#"{"paid":true}"#,
        duration_us: 40,
        cost_micros: 3,
        ..End::new(Outcome::Succeeded)
    }
}

async fn what_is_appended_is_read_back_in_order(place: &impl Place) {
    let mut store = place.open();
    assert_eq!(store.tail(), Tail::default());
    let (mut tail, mut calls) = (Tail::default(), Vec::new());
    for at_us in 0..20 {
        let start = start("alice", at_us);
        let (body, count) = bytes_of(&start, &done()).await;
        let appended = store.append(group(Uuid::new_v4(), &body, count)).await;
        tail = tail.after(&body, count);
        assert_eq!(appended.unwrap(), Appended::at(tail));
        assert_eq!(store.tail(), tail);
        calls.extend([start.call, start.call]);
        if at_us == 10 {
            while store.tidy(at_us).await.unwrap() {}
        }
    }
    let entries = place.entries();
    let sequences: Vec<u64> = entries.iter().map(|entry| entry.sequence).collect();
    assert_eq!(sequences, (1..=40).collect::<Vec<_>>());
    let found: Vec<CallId> = entries.iter().map(|entry| entry.call).collect();
    assert_eq!(found, calls);
    let Event::Started(started) = &entries[0].event else {
        panic!("a call begins");
    };
    assert_eq!(started.arguments.text, r#"{"to":"bob"}"#);
}

async fn a_group_that_is_tried_again_is_stored_once(place: &impl Place) {
    let mut store = place.open();
    let (body, count) = bytes_of(&start("alice", 1), &done()).await;
    let id = Uuid::new_v4();
    store.append(group(id, &body, count)).await.unwrap();
    drop(store);
    // As after a failure: it is opened anew, and does not know.
    let mut store = place.open();
    let again = store.append(group(id, &body, count)).await;
    if place_remembers(place) {
        assert_eq!(again.unwrap().tail, Tail::default().after(&body, count));
        assert_eq!(place.entries().len(), 2);
    }
}

/// A file is looked at anew only after a failure, which the tests of its own cause.
fn place_remembers<P: Place>(_: &P) -> bool {
    std::any::TypeId::of::<P::Store>() != std::any::TypeId::of::<SqliteLedger>()
}

async fn operations_that_are_tried_again_are_carried_out_once(place: &impl Place) {
    let mut store = place.open();
    let claim = key("alice", "k", 1);
    let (body, count) = bytes_of(&start("alice", 1), &done()).await;
    let operations = [
        Operation::RequestApproval {
            approval: approval("alice", 1),
            bounds: PendingBounds::default(),
        },
        Operation::Claim {
            call: claim.call,
            at_us: 1,
            claims: vec![Claim::Key(claim)],
            refusal_code: None,
        },
    ];
    let group = Group {
        operations: &operations,
        ..group(Uuid::new_v4(), &body, count)
    };
    let first = store.append(group).await.unwrap();
    assert!(matches!(
        first.outcomes[..],
        [OperationOutcome::Approval(_), OperationOutcome::Claimed]
    ));
    if place_remembers(place) {
        assert_eq!(store.append(group).await.unwrap(), first);
        // The call, and the note about the approval.
        assert_eq!(place.entries().len(), 3);
    }
}

fn binding(principal: &str) -> [u8; 32] {
    let binding = Binding {
        principal,
        capability: "tool/pay",
        definition: [1; 32],
        arguments: [2; 32],
        policy_version: u64::MAX,
    };
    binding.digest()
}

fn approval(principal: &str, at_us: u64) -> NewApproval {
    NewApproval {
        id: ledger::ApprovalId::random(),
        binding: binding(principal),
        principal: principal.to_owned(),
        capability: "tool/pay".to_owned(),
        arguments: r#"{"to":"bob"}"#.to_owned(),
        policy_version: u64::MAX,
        reason: "it costs money".to_owned(),
        needs: Approver::User,
        requested_us: at_us,
        expires_us: at_us + 1_000,
    }
}

/// Time stands still at the beginning of it, where these tests are: at ours, what has expired by now
/// would be removed by the first look after a second, which a slow machine gets to.
fn recorder(store: impl LedgerStore) -> Recorder {
    let options = RecorderOptions {
        now: || 1,
        ..RecorderOptions::default()
    };
    Recorder::spawn(store, options).unwrap()
}

fn uses(approval: ledger::ApprovalId, principal: &str) -> [Claim; 1] {
    [Claim::Approval {
        approval,
        binding: binding(principal),
    }]
}

fn refusal(begun: Result<ledger::OpenCall, BeginError>) -> ClaimRefusal {
    match begun {
        Err(BeginError::Refused(refusal)) => refusal,
        other => panic!("it should have been refused: {other:?}"),
    }
}

async fn an_approval_is_asked_for_decided_and_used_once(place: &impl Place) {
    let recorder = recorder(place.open());
    let asked = recorder
        .request_approval(&approval("alice", 1))
        .await
        .unwrap();
    assert_eq!(asked.state, ApprovalState::Pending);
    assert_eq!(asked.policy_version, u64::MAX);
    // Whoever asks again gets the same.
    let again = recorder
        .request_approval(&approval("alice", 2))
        .await
        .unwrap();
    assert_eq!(again, asked);
    let early = recorder
        .begin_claiming(&start("alice", 3), &uses(asked.id, "alice"))
        .await;
    let pending = ClaimRefusal::Approval(ApprovalProblem::Pending);
    assert_eq!(refusal(early), pending);
    let decided = recorder
        .decide_approval(asked.id, Verdict::new(Decision::Approve, "olga", 4))
        .await
        .unwrap();
    assert_eq!(decided.state, ApprovalState::Approved);
    assert_eq!(decided.decided.unwrap().by, "olga");
    let begun = start("alice", 5);
    let call = recorder
        .begin_claiming(&begun, &uses(asked.id, "alice"))
        .await
        .unwrap();
    call.finish(&done()).await.unwrap();
    let late = recorder
        .begin_claiming(&start("alice", 6), &uses(asked.id, "alice"))
        .await;
    assert_eq!(refusal(late), ClaimRefusal::Approval(ApprovalProblem::Used));
    recorder.close().await.unwrap();

    let entries = place.entries();
    let notes: Vec<_> = entries
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::Noted(noted) => Some((noted.kind.as_str(), noted.actor.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(
        notes,
        [
            ("approval_requested", "alice"),
            ("approval_decided", "olga")
        ]
    );
    let denied = |entry: &&Entry| {
        matches!(&entry.event, Event::Ended(ended)
            if matches!(&ended.outcome, Outcome::Denied { reason } if reason == "confirmation"))
    };
    assert_eq!(entries.iter().filter(denied).count(), 2);
}

async fn approvals_that_do_not_fit_are_refused(place: &impl Place) {
    let recorder = recorder(place.open());
    let claim = |id, principal| uses(id, principal);
    let try_it = async |claims: &[Claim], at_us| {
        let begun = recorder
            .begin_claiming(&start("alice", at_us), claims)
            .await;
        match refusal(begun) {
            ClaimRefusal::Approval(problem) => problem,
            other => panic!("{other:?}"),
        }
    };
    let missing = claim(ledger::ApprovalId::random(), "alice");
    assert_eq!(try_it(&missing, 1).await, ApprovalProblem::Missing);

    let asked = recorder
        .request_approval(&approval("alice", 1))
        .await
        .unwrap();
    let user = recorder
        .decide_approval(asked.id, Verdict::new(Decision::Approve, "user:mallory", 2))
        .await;
    assert_eq!(problem(user), ApprovalProblem::NotEntitled);
    recorder
        .decide_approval(asked.id, Verdict::new(Decision::Approve, "user:alice", 2))
        .await
        .unwrap();
    let twice = recorder
        .decide_approval(asked.id, Verdict::new(Decision::Deny, "olga", 3))
        .await;
    assert_eq!(problem(twice), ApprovalProblem::Decided);
    let other = claim(asked.id, "mallory");
    assert_eq!(try_it(&other, 3).await, ApprovalProblem::AnotherCall);
    let same = claim(asked.id, "alice");
    assert_eq!(try_it(&same, 5_000).await, ApprovalProblem::Expired);

    let denied = recorder
        .request_approval(&approval("bob", 1))
        .await
        .unwrap();
    recorder
        .decide_approval(denied.id, Verdict::new(Decision::Deny, "olga", 2))
        .await
        .unwrap();
    let denied = claim(denied.id, "bob");
    assert_eq!(try_it(&denied, 3).await, ApprovalProblem::Denied);
    recorder.close().await.unwrap();
}

fn problem(refused: Result<ledger::Approval, ledger::ApprovalError>) -> ApprovalProblem {
    match refused {
        Err(ledger::ApprovalError::Refused(problem)) => problem,
        other => panic!("it should have been refused: {other:?}"),
    }
}

async fn what_waits_for_a_decision_is_bounded(place: &impl Place) {
    let mut store = place.open();
    let bounds = PendingBounds {
        per_principal: 2,
        total: 3,
    };
    let ask = |principal: &str, number: u8| {
        let mut new = approval(principal, 1);
        new.binding = [number; 32];
        Operation::RequestApproval {
            approval: new,
            bounds,
        }
    };
    let operations = [
        ask("alice", 1),
        ask("alice", 2),
        ask("alice", 3),
        ask("bob", 4),
        ask("carol", 5),
        ask("alice", 1),
    ];
    let group = Group {
        operations: &operations,
        ..group(Uuid::new_v4(), &[], 0)
    };
    let outcomes = store.append(group).await.unwrap().outcomes;
    let refused = OperationOutcome::ApprovalRefused(ApprovalProblem::TooManyPending);
    let was_refused: Vec<bool> = outcomes.iter().map(|outcome| *outcome == refused).collect();
    assert_eq!(was_refused, [false, false, true, false, true, false]);
    assert_eq!(outcomes[5], outcomes[0]);
    // An operator's answer makes room, and the client's own does not, until it expires.
    let decide = |outcome: &OperationOutcome, by: &str| {
        let OperationOutcome::Approval(it) = outcome else {
            panic!("it was refused");
        };
        Operation::DecideApproval {
            approval: it.id,
            verdict: Verdict::new(Decision::Deny, by, 2),
        }
    };
    let mut later = approval("alice", 1_000_000_000);
    later.binding = [7; 32];
    let operations = [
        decide(&outcomes[0], "user:alice"),
        ask("alice", 5),
        decide(&outcomes[1], "bob"),
        ask("alice", 6),
        Operation::RequestApproval {
            approval: later,
            bounds,
        },
    ];
    let group = Group {
        operations: &operations,
        ..self::group(Uuid::new_v4(), &[], 0)
    };
    let outcomes = store.append(group).await.unwrap().outcomes;
    let was_refused: Vec<bool> = outcomes.iter().map(|outcome| *outcome == refused).collect();
    assert_eq!(was_refused, [false, true, false, false, false]);
}

fn key(principal: &str, key: &str, at_us: u64) -> KeyClaim {
    KeyClaim {
        principal: principal.to_owned(),
        key: key.to_owned(),
        capability: "tool/pay".to_owned(),
        digest: [7; 32],
        call: CallId::new(at_us),
        at_us,
        until_us: at_us + 1_000,
    }
}

async fn a_key_runs_one_call(place: &impl Place) {
    let recorder = recorder(place.open());
    let begin = async |claim: KeyClaim, at_us| {
        let start = Start {
            call: claim.call,
            ..start("alice", at_us)
        };
        recorder.begin_claiming(&start, &[Claim::Key(claim)]).await
    };
    let first = begin(key("alice", "k", 1), 1).await.unwrap();
    let call = first.call();
    assert_eq!(
        refusal(begin(key("alice", "k", 2), 2).await),
        ClaimRefusal::InFlight { call }
    );
    let other = KeyClaim {
        digest: [8; 32],
        ..key("alice", "k", 3)
    };
    assert_eq!(
        refusal(begin(other, 3).await),
        ClaimRefusal::AnotherCall { call }
    );
    // Everybody has keys of their own.
    let theirs = begin(key("bob", "k", 4), 4).await.unwrap();
    theirs.finish(&done()).await.unwrap();
    first
        .finish_keeping(&done(), Some("paid\u{0}"))
        .await
        .unwrap();
    let again = key("alice", "k", 5);
    let expected = ClaimRefusal::Done {
        call,
        result: ledger::Kept {
            succeeded: true,
            result: Some("paid\u{0}".to_owned()),
        },
    };
    assert_eq!(
        recorder.find_key(&again).await.unwrap(),
        Some(expected.clone())
    );
    assert_eq!(refusal(begin(again, 5).await), expected);
    // A call that was given up may have done it, or not.
    let given_up = begin(key("alice", "lost", 6), 6).await.unwrap();
    let lost = given_up.call();
    drop(given_up);
    assert_eq!(
        refusal(begin(key("alice", "lost", 7), 7).await),
        ClaimRefusal::Unknown { call: lost }
    );
    recorder.close().await.unwrap();
}

async fn a_key_comes_free_and_is_forgotten(place: &impl Place) {
    let recorder = recorder(place.open());
    let begin = async |at_us| {
        let claim = key("alice", "k", at_us);
        let start = Start {
            call: claim.call,
            ..start("alice", at_us)
        };
        recorder.begin_claiming(&start, &[Claim::Key(claim)]).await
    };
    let first = begin(1).await.unwrap();
    first.finish(&End::new(Outcome::Invalid)).await.unwrap();
    let second = begin(2).await.expect("the first never ran");
    second.finish(&done()).await.unwrap();
    assert!(matches!(refusal(begin(3).await), ClaimRefusal::Done { .. }));
    let third = begin(5_000).await.expect("its time is over");
    third.finish(&done()).await.unwrap();
    recorder.close().await.unwrap();
}

async fn large_results_are_not_kept(place: &impl Place) {
    let recorder = recorder(place.open());
    for (name, bytes, is_kept) in [
        ("fits", MAX_KEPT_BYTES, true),
        ("large", MAX_KEPT_BYTES + 1, false),
    ] {
        let claim = key("alice", name, 1);
        let start = Start {
            call: claim.call,
            ..start("alice", 1)
        };
        let claims = [Claim::Key(claim.clone())];
        let call = recorder.begin_claiming(&start, &claims).await.unwrap();
        let result = "x".repeat(bytes);
        call.finish_keeping(&done(), Some(&result)).await.unwrap();
        match recorder.find_key(&claim).await.unwrap() {
            Some(ClaimRefusal::Done { result, .. }) => assert_eq!(result.result.is_some(), is_kept),
            other => panic!("{other:?}"),
        }
    }
    recorder.close().await.unwrap();
}

async fn an_answer_that_somebody_has_changed_is_not_given(place: &impl Place) {
    let made = recorder(place.open());
    let claim = key("alice", "k", 1);
    let start = Start {
        call: claim.call,
        idempotency_key: Some("k"),
        ..start("alice", 1)
    };
    let claims = [Claim::Key(claim.clone())];
    let call = made.begin_claiming(&start, &claims).await.unwrap();
    call.finish_keeping(&done(), Some("paid 1")).await.unwrap();
    made.close().await.unwrap();
    drop(made);
    let same = "result = result";
    for (set, is_given) in [
        (same, true),
        ("state = 'failed'", false),
        ("state = 'succeeded'", true),
        ("result = replace(result, 'paid 1', 'paid 2')", false),
        ("result = 'paid 2'", false),
        ("result = '0123456789abcdef0123456789abcdef paid 2'", false),
    ] {
        if !place.change_answers(set) {
            return;
        }
        let again = recorder(place.open());
        let told = again.find_key(&claim).await.unwrap();
        let expected = match is_given {
            true => ClaimRefusal::Done {
                call: claim.call,
                result: ledger::Kept {
                    succeeded: true,
                    result: Some("paid 1".to_owned()),
                },
            },
            false => ClaimRefusal::Unknown { call: claim.call },
        };
        assert_eq!(told, Some(expected.clone()), "{set}");
        let claims = [Claim::Key(claim.clone())];
        let next = Start {
            call: CallId::new(2),
            ..start
        };
        assert_eq!(
            refusal(again.begin_claiming(&next, &claims).await),
            expected,
            "{set}"
        );
        again.close().await.unwrap();
        drop(again);
        let verified = ledger::verify(&mut *place.reader().unwrap(), ledger::Trust::default());
        assert_eq!(verified.unwrap().first_wrong.is_none(), is_given, "{set}");
    }
}

async fn what_expires_is_noted(place: &impl Place) {
    let mut store = place.open();
    let operations = [Operation::RequestApproval {
        approval: approval("alice", 1),
        bounds: PendingBounds::default(),
    }];
    let group = Group {
        operations: &operations,
        ..group(Uuid::new_v4(), &[], 0)
    };
    store.append(group).await.unwrap();
    while store.tidy(500).await.unwrap() {}
    let kinds = || -> Vec<NoteKind> {
        let entries = place.entries().into_iter();
        entries
            .filter_map(|entry| match entry.event {
                Event::Noted(noted) => Some(noted.kind),
                _ => None,
            })
            .collect()
    };
    // In PostgreSQL somebody else tidies, too, and by the real time it has long expired.
    assert_eq!(kinds()[0], NoteKind::APPROVAL_REQUESTED);
    while store.tidy(5_000).await.unwrap() {}
    assert_eq!(
        kinds(),
        [NoteKind::APPROVAL_REQUESTED, NoteKind::APPROVAL_EXPIRED]
    );
}

async fn a_ledger_goes_on_where_it_ended(place: &impl Place) {
    for round in 0..3 {
        let recorder = recorder(place.open());
        recorder
            .note(&Note::new(round, NoteKind::SERVER_STARTED))
            .await
            .unwrap();
        let call = recorder.begin(&start("alice", round)).await.unwrap();
        call.finish(&done()).await.unwrap();
        recorder.close().await.unwrap();
    }
    // Whether it is one chain is looked at where it is read.
    assert_eq!(place.entries().len(), 9);
}

async fn calls_are_found(place: &impl Place) {
    let recorder = recorder(place.open());
    let mut calls = Vec::new();
    for at_us in 1..=10 {
        let start = Start {
            request_id: "7",
            trace_id: (at_us == 4).then_some("t4"),
            ..start(if at_us % 2 == 0 { "even" } else { "odd" }, at_us)
        };
        let call = recorder.begin(&start).await.unwrap();
        let end = End {
            duration_us: at_us * 10,
            ..done()
        };
        call.finish(&end).await.unwrap();
        calls.push(start.call);
    }
    let denied = start("odd", 11);
    let end = End::new(Outcome::Denied { reason: "budget" });
    recorder.refuse(&denied, &end).await.unwrap();
    let open_start = start("even", 12);
    let open = recorder.begin(&open_start).await.unwrap();
    let Some(mut reader) = place.reader() else {
        return;
    };
    let all = ledger::Filter::default();
    let mut count = |filter| reader.recent(99, filter).unwrap().len();
    use ledger::Filter;
    assert_eq!(count(all), 12);
    assert_eq!(
        count(Filter {
            principal: Some("odd"),
            ..all
        }),
        6
    );
    assert_eq!(
        count(Filter {
            principal: Some("odd' OR true --"),
            ..all
        }),
        0
    );
    assert_eq!(
        count(Filter {
            capability: Some("tool/pay"),
            kind: Some(Kind::Tool),
            ..all
        }),
        12
    );
    assert_eq!(
        count(Filter {
            kind: Some(Kind::Resource),
            ..all
        }),
        0
    );
    assert_eq!(
        count(Filter {
            outcome: Some("denied"),
            ..all
        }),
        1
    );
    assert_eq!(
        count(Filter {
            outcome: Some("no such"),
            ..all
        }),
        0
    );
    assert_eq!(
        count(Filter {
            outcome: Some("succeeded"),
            principal: Some("odd"),
            ..all
        }),
        5
    );
    assert_eq!(
        count(Filter {
            reason: Some("budget"),
            ..all
        }),
        1
    );
    assert_eq!(
        count(Filter {
            request_id: Some("7"),
            ..all
        }),
        10
    );
    assert_eq!(
        count(Filter {
            trace_id: Some("t4"),
            ..all
        }),
        1
    );
    assert_eq!(
        count(Filter {
            min_duration_us: Some(95),
            ..all
        }),
        1
    );
    assert_eq!(
        count(Filter {
            since_us: Some(3),
            until_us: Some(5),
            ..all
        }),
        2
    );
    assert_eq!(
        count(Filter {
            since_us: Some(u64::MAX),
            ..all
        }),
        0
    );
    assert_eq!(
        count(Filter {
            call: Some(calls[2]),
            ..all
        }),
        1
    );

    let (mut paged, mut before) = (Vec::new(), None);
    loop {
        let page = reader.recent(5, Filter { before, ..all }).unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.cursor());
        paged.extend(page.into_iter().map(|record| record.call));
    }
    paged.reverse();
    calls.extend([denied.call, open_start.call]);
    assert_eq!(paged, calls);
    let first = reader.call(calls[0]).unwrap().unwrap();
    assert_eq!(first.started.arguments.text, r#"{"to":"bob"}"#);
    assert_eq!(first.ended.unwrap().result.text, r#"{"paid":true}"#);
    assert_eq!(reader.open_calls().unwrap()[0].call, open_start.call);
    assert_eq!(reader.unresolved(9, None).unwrap(), []);
    let counted = reader.count().unwrap();
    assert_eq!(
        (counted.entries, counted.calls, counted.open_calls),
        (23, 12, 1)
    );

    let usage = reader.usage_between(0..u64::MAX, Duration::MAX).unwrap();
    let usage: Vec<_> = usage
        .iter()
        .map(|it| {
            (
                it.principal.as_str(),
                it.calls,
                it.cost_micros,
                it.open_micros,
                it.latest_us,
            )
        })
        .collect();
    assert_eq!(usage, [("even", 6, 20, 5, 12), ("odd", 5, 15, 0, 9)]);
    let query = ledger::StatisticsQuery {
        principal: None,
        capability: None,
        since_us: 0,
        until_us: u64::MAX,
        bucket: ledger::Bucket::Day,
    };
    let statistics = reader.statistics(query).unwrap();
    assert_eq!(statistics.len(), 2);
    let (even, odd) = (&statistics[0].tally, &statistics[1].tally);
    assert_eq!((even.open, even.succeeded, even.cost_micros), (1, 5, 20));
    assert_eq!((odd.succeeded, odd.refused["budget"]), (5, 1));
    let median = odd.durations.percentile(50).unwrap().as_micros();
    assert!((48..=52).contains(&median), "{median}");
    open.finish(&done()).await.unwrap();
    recorder.close().await.unwrap();
    assert_eq!(reader.open_calls().unwrap(), []);
}

async fn strange_texts_come_back_as_they_were(place: &impl Place) {
    let recorder = recorder(place.open());
    let strange = "a\u{0}b\u{E000}c\u{FFFF}'\"\\ \u{202E}é会";
    let begun = Start {
        request_id: strange,
        trace_id: Some(strange),
        arguments: strange,
        ..Start::new(CallId::new(1), 1, strange, Kind::Other, strange)
    };
    let end = End {
        message: Some(strange),
        result: strange,
        ..End::new(Outcome::Denied { reason: strange })
    };
    let call = recorder.begin(&begun).await.unwrap();
    call.finish(&end).await.unwrap();
    recorder.close().await.unwrap();
    assert_eq!(place.entries().len(), 2);
    let Some(mut reader) = place.reader() else {
        return;
    };
    let filter = ledger::Filter {
        principal: Some(strange),
        capability: Some(strange),
        reason: Some(strange),
        request_id: Some(strange),
        ..ledger::Filter::default()
    };
    let found = reader.recent(2, filter).unwrap().remove(0);
    assert_eq!(found.started.principal, strange);
    assert_eq!(found.started.arguments.text, strange);
    let indexed = reader.indexed_call(begun.call).unwrap();
    if place_remembers(place) {
        let indexed = indexed.unwrap();
        assert_eq!(indexed.principal, strange);
        assert_eq!(indexed.trace_id.as_deref(), Some(strange));
        assert_eq!(indexed.end.unwrap().reason.as_deref(), Some(strange));
    }
    let usage = reader.usage_between(0..9, Duration::MAX).unwrap();
    assert_eq!(usage, []);
}
