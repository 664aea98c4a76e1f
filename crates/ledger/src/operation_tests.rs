//! Invariants of operations under every order of steps: an approval is used at most once, a key
//! runs at most once in its lifetime, and the entries agree with the rows.

use crate::{
    query::ReadLedger,
    record::{
        approval::{
            Approval, ApprovalId, ApprovalState, Approver, Decision, NewApproval, PendingBounds,
            Verdict,
        },
        codec,
        entry::{Digest, End, Entry, Event, Kind, Outcome, Start},
        id::CallId,
        note::NoteKind,
        operation::{Claim, ClaimRefusal, KeyClaim, Operation, OperationOutcome},
    },
    recorder::Durability,
    sqlite::{SqliteLedger, offline_approvals::OfflineApprovals, reader::LedgerReader},
    store::{Appended, Group, LedgerStore, claims::at_once, entries, memory::MemoryLedger},
};
use proptest::prelude::*;
use rusqlite::Connection;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
};
use tempfile::TempDir;
use uuid::Uuid;

const BOUNDS: PendingBounds = PendingBounds {
    per_principal: 3,
    total: 4,
};

#[derive(Clone, Debug)]
enum Step {
    Request(u8),
    Decide(usize, Decision),
    /// By another process.
    DecideBeside(usize, Decision),
    Claim {
        approval: Option<usize>,
        binding: u8,
        key: Option<u8>,
        arguments: u8,
    },
    Finish(usize, Outcome<()>),
    Pass(u64),
    Tidy,
    /// The process ends, and another opens what it left.
    Crash,
}

/// Fault while a group is stored.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    /// The group is not stored, and tried again.
    Before,
    /// The group is stored, its caller is not told, and it is tried again.
    After,
}

fn decision() -> impl Strategy<Value = Decision> {
    prop_oneof![
        6 => Just(Decision::Approve),
        2 => Just(Decision::Deny),
        3 => Just(Decision::Revoke),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        Just(Outcome::Succeeded),
        Just(Outcome::Failed),
        Just(Outcome::Invalid),
        Just(Outcome::Cancelled),
    ];
    prop_oneof![
        3 => (0..3_u8).prop_map(Step::Request),
        3 => (any::<usize>(), decision()).prop_map(|(it, decision)| Step::Decide(it, decision)),
        2 => (any::<usize>(), decision())
            .prop_map(|(it, decision)| Step::DecideBeside(it, decision)),
        6 => (
            prop::option::weighted(0.7, any::<usize>()),
            0..3_u8,
            prop::option::weighted(0.6, 0..2_u8),
            0..2_u8,
        )
            .prop_map(|(approval, binding, key, arguments)| Step::Claim {
                approval,
                binding,
                key,
                arguments,
            }),
        4 => (any::<usize>(), outcome).prop_map(|(it, outcome)| Step::Finish(it, outcome)),
        2 => (1..40_u64).prop_map(Step::Pass),
        1 => Just(Step::Tidy),
        1 => Just(Step::Crash),
    ]
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        6 => Just(Trouble::None),
        1 => Just(Trouble::Before),
        2 => Just(Trouble::After),
    ]
}

enum Store {
    Memory(MemoryLedger),
    Sqlite(Box<SqliteLedger>, PathBuf, TempDir),
}

impl Store {
    fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.sqlite");
        let store = SqliteLedger::open(&path, Durability::Relaxed).unwrap();
        Self::Sqlite(Box::new(store), path, directory)
    }

    async fn append(
        &mut self,
        body: &[u8],
        count: u64,
        operation: Operation,
        trouble: Trouble,
    ) -> OperationOutcome {
        let operations = [operation];
        let group = Group {
            id: Uuid::new_v4(),
            count,
            body,
            charges: &[],
            operations: &operations,
            durable: false,
        };
        let appended = match self {
            Self::Memory(store) => match trouble {
                Trouble::None => store.append(group).await.unwrap(),
                Trouble::Before => {
                    store.set_failing(true);
                    store.append(group).await.unwrap_err();
                    store.set_failing(false);
                    store.append(group).await.unwrap()
                }
                Trouble::After => {
                    store.set_failing_after(true);
                    store.append(group).await.unwrap_err();
                    store.set_failing_after(false);
                    store.append(group).await.unwrap()
                }
            },
            Self::Sqlite(store, ..) => match trouble {
                Trouble::None => store.append(group).await.unwrap(),
                Trouble::Before => {
                    store.disconnect(store.tail());
                    store.append(group).await.unwrap()
                }
                Trouble::After => {
                    let before = store.tail();
                    let first = store.append(group).await.unwrap();
                    store.disconnect(before);
                    let again = store.append(group).await.unwrap();
                    assert_eq!(again, first, "another answer to the same group");
                    again
                }
            },
        };
        let Appended { tail, mut outcomes } = appended;
        let stored = match self {
            Self::Memory(store) => store.tail(),
            Self::Sqlite(store, ..) => store.tail(),
        };
        assert_eq!(tail, stored);
        assert_eq!(outcomes.len(), 1);
        outcomes.remove(0)
    }

    async fn tidy(&mut self, now_us: u64) {
        match self {
            Self::Memory(store) => while store.tidy(now_us).await.unwrap() {},
            Self::Sqlite(store, ..) => while store.tidy(now_us).await.unwrap() {},
        }
    }

    /// Tells the calls that the process has left open.
    fn crash(self) -> (Self, Vec<CallId>) {
        match self {
            Self::Sqlite(store, path, directory) => {
                drop(store);
                let store = SqliteLedger::open(&path, Durability::Relaxed).unwrap();
                let left = store.interrupted().iter().map(|it| it.call).collect();
                (Self::Sqlite(Box::new(store), path, directory), left)
            }
            memory @ Self::Memory(_) => (memory, Vec::new()),
        }
    }

    fn entries(&self) -> Vec<Entry> {
        match self {
            Self::Memory(store) => store.entries(),
            Self::Sqlite(_, path, _) => {
                let connection = Connection::open(path).unwrap();
                let mut select = connection
                    .prepare("SELECT first_sequence, body FROM entry_group ORDER BY 1")
                    .unwrap();
                let groups = select
                    .query_map([], |row| {
                        let first: i64 = row.get(0)?;
                        Ok((first.unsigned_abs(), row.get::<_, Vec<u8>>(1)?))
                    })
                    .unwrap();
                groups
                    .flat_map(|group| {
                        let (first, body) = group.unwrap();
                        entries(&body, first).unwrap()
                    })
                    .collect()
            }
        }
    }

    fn approvals(&self) -> Vec<Approval> {
        match self {
            Self::Memory(store) => store.approvals(),
            Self::Sqlite(_, path, _) => {
                let connection = Connection::open(path).unwrap();
                let mut select = connection.prepare("SELECT * FROM approval").unwrap();
                let rows = select.query_map([], crate::sqlite::rows::approval).unwrap();
                rows.map(Result::unwrap).collect()
            }
        }
    }
}

/// Of a key: the arguments, the call, the end of its lifetime, and what has become of it.
type Held = (u8, CallId, u64, Option<Outcome<()>>);

/// Expected state, worked out in another way.
#[derive(Default)]
struct Model {
    now_us: u64,
    /// Binding, expiry and state, without expiry having been looked at.
    approvals: Vec<(ApprovalId, u8, u64, ApprovalState)>,
    keys: BTreeMap<u8, Held>,
    open: Vec<(CallId, Option<u8>)>,
    claimed_by: HashMap<ApprovalId, CallId>,
    decided: HashSet<ApprovalId>,
    revoked: HashSet<ApprovalId>,
}

impl Model {
    fn is_live(&self, index: usize) -> bool {
        let (_, _, expires_us, state) = self.approvals[index];
        state.can_change() && self.now_us < expires_us
    }

    fn may_claim(&self, approval: Option<(usize, u8)>, key: Option<(u8, u8)>) -> bool {
        let approved = approval.is_none_or(|(index, binding)| {
            let (_, its, _, state) = self.approvals[index];
            its == binding && state == ApprovalState::Approved && self.is_live(index)
        });
        let free = key.is_none_or(|(key, _)| match self.keys.get(&key) {
            None => true,
            Some((_, _, _, None)) => false,
            Some((_, _, until_us, Some(_))) => *until_us <= self.now_us,
        });
        approved && free
    }
}

fn binding(number: u8) -> Digest {
    [number; 32]
}

fn key_claim(key: u8, arguments: u8, call: CallId, now_us: u64) -> KeyClaim {
    KeyClaim {
        principal: "alice".to_owned(),
        key: key.to_string(),
        capability: "tool/pay".to_owned(),
        digest: binding(arguments),
        call,
        at_us: now_us,
        until_us: now_us + 60,
    }
}

async fn carry_out(mut store: Store, steps: Vec<(Step, Trouble)>) {
    let mut model = Model {
        now_us: 1_000,
        ..Model::default()
    };
    for (step, trouble) in steps {
        match step {
            Step::Request(number) => {
                let new = NewApproval {
                    id: ApprovalId::random(),
                    binding: binding(number),
                    principal: "alice".to_owned(),
                    capability: "tool/pay".to_owned(),
                    arguments: "{}".to_owned(),
                    policy_version: u64::MAX,
                    reason: "financial".to_owned(),
                    needs: Approver::Operator,
                    requested_us: model.now_us,
                    expires_us: model.now_us + 50,
                };
                let lasting = |it: &&(ApprovalId, u8, u64, ApprovalState)| {
                    let is_over = matches!(it.3, ApprovalState::Used | ApprovalState::Revoked);
                    model.now_us < it.2 && !is_over
                };
                let lasting: Vec<_> = model.approvals.iter().filter(lasting).collect();
                let pending = lasting
                    .iter()
                    .filter(|it| it.3 == ApprovalState::Pending)
                    .count();
                // What was denied stays so.
                let same: Vec<_> = lasting.iter().filter(|it| it.1 == number).collect();
                let request = Operation::RequestApproval {
                    approval: new.clone(),
                    bounds: BOUNDS,
                };
                match store.append(&[], 0, request, trouble).await {
                    OperationOutcome::Approval(given) if same.is_empty() => {
                        assert_eq!(*given, Approval::from(new));
                        assert!((pending as u64) < BOUNDS.per_principal);
                        let state = ApprovalState::Pending;
                        let expires_us = given.expires_us;
                        model.approvals.push((given.id, number, expires_us, state));
                    }
                    OperationOutcome::Approval(given) => {
                        assert!(
                            same.iter()
                                .any(|it| (it.0, it.3) == (given.id, given.state))
                        );
                    }
                    OperationOutcome::ApprovalRefused(problem) => {
                        assert_eq!(
                            problem,
                            crate::record::approval::ApprovalProblem::TooManyPending
                        );
                        assert!(same.is_empty() && BOUNDS.per_principal <= pending as u64);
                    }
                    other => panic!("{other:?}"),
                }
            }
            Step::Decide(index, decision) | Step::DecideBeside(index, decision)
                if !model.approvals.is_empty() =>
            {
                let index = index % model.approvals.len();
                let (id, _, expires_us, state) = model.approvals[index];
                let possible = model.now_us < expires_us
                    && match decision {
                        Decision::Revoke => {
                            matches!(state, ApprovalState::Approved | ApprovalState::Denied)
                        }
                        Decision::Approve | Decision::Deny => state == ApprovalState::Pending,
                    };
                let verdict = Verdict::new(decision, "bob", model.now_us);
                let decided = match (&mut store, &step) {
                    (Store::Sqlite(_, path, _), Step::DecideBeside(..)) => {
                        let mut desk = OfflineApprovals::open(path).unwrap();
                        desk.decide(id, &verdict).is_ok()
                    }
                    _ => {
                        let decide = Operation::DecideApproval {
                            approval: id,
                            verdict,
                        };
                        let outcome = store.append(&[], 0, decide, trouble).await;
                        matches!(outcome, OperationOutcome::Approval(_))
                    }
                };
                assert_eq!(decided, possible);
                if decided {
                    model.approvals[index].3 = match decision {
                        Decision::Approve => ApprovalState::Approved,
                        Decision::Deny => ApprovalState::Denied,
                        Decision::Revoke => ApprovalState::Revoked,
                    };
                    match decision {
                        Decision::Revoke => model.revoked.insert(id),
                        _ => model.decided.insert(id),
                    };
                }
            }
            Step::Claim {
                approval,
                binding: number,
                key,
                arguments,
            } => {
                let approval = approval
                    .filter(|_| !model.approvals.is_empty())
                    .map(|index| index % model.approvals.len());
                let call = CallId::new(model.now_us);
                let mut claims = Vec::new();
                if let Some(key) = key {
                    claims.push(Claim::Key(key_claim(key, arguments, call, model.now_us)));
                }
                if let Some(index) = approval {
                    claims.push(Claim::Approval {
                        approval: model.approvals[index].0,
                        binding: binding(number),
                    });
                }
                let start = Start {
                    approval: approval.map(|index| model.approvals[index].0),
                    ..Start::new(call, model.now_us, "alice", Kind::Tool, "tool/pay")
                };
                let mut body = Vec::new();
                codec::encode_start(&start, &mut body);
                let claim = Operation::Claim {
                    call,
                    at_us: model.now_us,
                    claims,
                    refusal_code: None,
                };
                let expected = model.may_claim(
                    approval.map(|index| (index, number)),
                    key.map(|key| (key, arguments)),
                );
                let outcome = store.append(&body, 1, claim, trouble).await;
                assert_eq!(
                    outcome == OperationOutcome::Claimed,
                    expected,
                    "{outcome:?}"
                );
                if expected {
                    if let Some(index) = approval {
                        let id = model.approvals[index].0;
                        model.approvals[index].3 = ApprovalState::Used;
                        assert_eq!(model.claimed_by.insert(id, call), None, "used twice");
                    }
                    if let Some(key) = key {
                        let until_us = model.now_us + 60;
                        model.keys.insert(key, (arguments, call, until_us, None));
                    }
                    model.open.push((call, key));
                }
            }
            Step::Finish(index, outcome) if !model.open.is_empty() => {
                let (call, key) = model.open.swap_remove(index % model.open.len());
                let mut body = Vec::new();
                let end = match outcome {
                    Outcome::Succeeded => End::new(Outcome::Succeeded),
                    Outcome::Failed => End::new(Outcome::Failed),
                    Outcome::Invalid => End::new(Outcome::Invalid),
                    _ => End::new(Outcome::Cancelled),
                };
                codec::encode_end(call, &end, &mut body);
                let keep = Operation::KeepResult {
                    call,
                    outcome,
                    result: Some("42".to_owned()),
                };
                store.append(&body, 1, keep, trouble).await;
                if let Some(key) = key {
                    match outcome {
                        Outcome::Invalid => drop(model.keys.remove(&key)),
                        other => model.keys.get_mut(&key).unwrap().3 = Some(other),
                    }
                }
            }
            Step::Pass(time_us) => model.now_us += time_us,
            Step::Tidy => store.tidy(model.now_us).await,
            Step::Crash => {
                let left;
                (store, left) = store.crash();
                let mut expected: Vec<_> = model.open.iter().map(|(call, _)| *call).collect();
                if let Store::Sqlite(..) = store {
                    expected.sort();
                    assert_eq!(left, expected);
                    // As the recorder does first of all.
                    for (call, key) in std::mem::take(&mut model.open) {
                        if let Some(key) = key {
                            // Nobody can say already.
                            let claim = key_claim(key, model.keys[&key].0, call, model.now_us);
                            let find = Operation::FindKey(claim);
                            let found = store.append(&[], 0, find, Trouble::None).await;
                            let unknown = Some(ClaimRefusal::Unknown { call });
                            let expired = model.keys[&key].2 <= model.now_us;
                            let expected = unknown.filter(|_| !expired);
                            assert_eq!(found, OperationOutcome::Key(expected));
                        }
                        let mut body = Vec::new();
                        codec::encode_end(call, &End::new(Outcome::Unknown), &mut body);
                        let keep = Operation::KeepResult {
                            call,
                            outcome: Outcome::Unknown,
                            result: None,
                        };
                        store.append(&body, 1, keep, Trouble::None).await;
                        if let Some(key) = key {
                            model.keys.get_mut(&key).unwrap().3 = Some(Outcome::Unknown);
                        }
                    }
                }
            }
            _ => {}
        }
    }
    store.tidy(model.now_us).await;
    compare(&store, &model);
}

/// Compares entries, rows and model.
fn compare(store: &Store, model: &Model) {
    let rows: HashMap<_, _> = store
        .approvals()
        .into_iter()
        .map(|it| (it.id, it))
        .collect();
    for (index, (id, _, _, state)) in model.approvals.iter().enumerate() {
        let expected = match state.can_change() && !model.is_live(index) {
            true => ApprovalState::Expired,
            false => *state,
        };
        assert_eq!(rows[id].state, expected);
        assert_eq!(rows[id].used_by, model.claimed_by.get(id).copied());
    }
    assert_eq!(rows.len(), model.approvals.len());
    let (mut starts, mut ends, mut decided) = (HashMap::new(), HashMap::new(), Vec::new());
    let (mut revoked, mut told_with) = (Vec::new(), HashSet::new());
    for (sequence, entry) in (1..).zip(store.entries()) {
        assert_eq!(entry.sequence, sequence);
        match entry.event {
            Event::Started(started) => {
                assert!(starts.insert(entry.call, started).is_none(), "two starts");
            }
            Event::Ended(ended) => {
                assert!(starts.contains_key(&entry.call), "an end without a start");
                assert!(ends.insert(entry.call, ended).is_none(), "two ends");
            }
            Event::Noted(noted) if noted.kind == NoteKind::APPROVAL_DECIDED => {
                decided.push(noted.subject.parse::<ApprovalId>().unwrap());
            }
            Event::Noted(noted) if noted.kind == NoteKind::APPROVAL_REVOKED => {
                let id = noted.subject.parse::<ApprovalId>().unwrap();
                let detail: serde_json::Value = serde_json::from_str(&noted.detail.text).unwrap();
                assert_eq!(detail["decided"]["by"], "bob");
                told_with.insert(id);
                revoked.push(id);
            }
            Event::Noted(_) => {}
        }
    }
    // Each decision is noted once, whoever has made it, or with its being taken back, if both happened
    // beside the server between two looks.
    let noted: HashSet<_> = decided.iter().copied().collect();
    assert_eq!(noted.len(), decided.len());
    assert!(noted.is_subset(&model.decided));
    let noted: HashSet<_> = noted.union(&told_with).copied().collect();
    assert_eq!(noted, model.decided);
    let noted: HashSet<_> = revoked.iter().copied().collect();
    assert_eq!((noted.len(), noted), (revoked.len(), model.revoked.clone()));
    let mut users = HashMap::new();
    for (call, started) in &starts {
        let denied = ends
            .get(call)
            .is_some_and(|ended| matches!(ended.outcome, Outcome::Denied { .. }));
        if let Some(approval) = started.approval
            && !denied
        {
            assert_eq!(users.insert(approval, *call), None, "used twice");
        }
    }
    assert_eq!(users, model.claimed_by);
    let open: HashSet<_> = starts
        .keys()
        .filter(|call| !ends.contains_key(call))
        .collect();
    assert_eq!(open, model.open.iter().map(|(call, _)| call).collect());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn approvals_and_keys_are_used_once_in_a_file(
        steps in prop::collection::vec((step(), trouble()), 0..50),
    ) {
        at_once(carry_out(Store::sqlite(), steps));
    }

    #[test]
    fn approvals_and_keys_are_used_once_in_memory(
        steps in prop::collection::vec((step(), trouble()), 0..50),
    ) {
        at_once(carry_out(Store::Memory(MemoryLedger::default()), steps));
    }
}

#[test]
fn a_file_of_version_1_is_read_and_continued() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let old = include_bytes!("../tests/fixtures/version-1.sqlite");
    std::fs::write(&path, old).unwrap();
    assert!(
        OfflineApprovals::open(&path).is_err(),
        "it has no approvals yet"
    );
    let mut reader = LedgerReader::open(&path).unwrap();
    let before = reader.recent(9, crate::query::Filter::default()).unwrap();
    assert_eq!(before.len(), 4);
    let start = &before[3].started;
    assert_eq!(start.arguments.text, r#"{"to":"bob"}"#);
    assert_eq!(
        (start.arguments_digest, start.policy_version),
        (Some([9; 32]), 3)
    );
    assert_eq!((start.approval, start.task.as_deref()), (None, None));
    assert!(before[1].started.arguments.cut.is_some());
    assert!(before[0].ended.is_none());
    drop(reader);

    let mut store = SqliteLedger::open(&path, Durability::Strict).unwrap();
    let left: Vec<_> = store.interrupted().iter().map(|it| it.call).collect();
    assert_eq!(left, [before[0].call]);
    let tail = store.tail();
    assert_eq!(tail.next_sequence, 8);
    let mut body = Vec::new();
    let call = CallId::new(1);
    codec::encode_start(&Start::new(call, 1, "a", Kind::Tool, "tool/x"), &mut body);
    let group = Group {
        id: Uuid::new_v4(),
        count: 1,
        body: &body,
        charges: &[],
        operations: &[],
        durable: true,
    };
    let appended = at_once(store.append(group)).unwrap();
    assert_eq!(appended.tail, tail.after(&body, 1));
    drop(store);
    // A second opening changes nothing.
    drop(SqliteLedger::open(&path, Durability::Strict).unwrap());
    let mut reader = LedgerReader::open(&path).unwrap();
    let after = reader.recent(9, crate::query::Filter::default()).unwrap();
    assert_eq!(after.len(), before.len() + 1);
    assert!(before.iter().all(|record| after.contains(record)));
    OfflineApprovals::open(&path).unwrap();
}
