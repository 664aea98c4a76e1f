//! Any sequence of operations has the answers that a list of records would give.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{block_on, lease, new_sqlite, states, task};
use proptest::{prelude::*, sample::Index};
use std::{cmp::Reverse, collections::HashMap};
use task_store::{
    Begun, Claimed, CreateError, Lapsed, LimitKind, MemoryTaskStore, SqliteTaskStore, TaskId,
    TaskLimits, TaskRecord, TaskState, TaskStore,
};

const IDS: usize = 5;
const PRINCIPALS: [&str; 2] = ["alice", "bob"];
/// Starts of servers that carry tasks out.
const OWNERS: [&str; 3] = ["first", "second", "third"];
const VERSIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

#[derive(Clone, Debug)]
enum Operation {
    /// By whom, until when and with what call.
    Create(Change, TaskLimits, (usize, u64, Option<String>)),
    /// Adds the number to the sequence of what is there.
    Update(Change, u64),
    /// Sends what is there again.
    Repeat(usize),
    Get(usize),
    List(usize, usize, Option<(u64, usize)>, usize),
    Remove(usize),
    RemoveExpired(u64),
    Lapsed(u64),
    /// As an update, and by whom, until when, and at what time.
    Claim(Change, u64, (usize, u64, u64)),
    /// Claims again what is there.
    ClaimAgain(usize, usize),
    Renew(usize, u64),
    /// Closes the file and opens it again.
    Reopen,
}

/// Parts of a record that a step may change.
#[derive(Clone, Debug)]
struct Change {
    id: usize,
    principal: usize,
    version: usize,
    created_us: u64,
    expires_us: u64,
    state: TaskState,
    message: Option<String>,
    /// Of an update: whether what never changes is as the change says, and not as it was.
    is_foreign: bool,
}

#[derive(Debug, PartialEq)]
enum Answer {
    Done,
    Refused(usize, LimitKind),
    Failed,
    Whether(bool),
    One(Option<TaskRecord>),
    Many(Vec<TaskRecord>),
    Count(usize),
    Taken(Option<Claimed>),
    Lapsed(Vec<Lapsed>),
    Names(Vec<TaskId>),
}

/// Does an operation to a store.
type Ask = Box<dyn Fn(&dyn TaskStore) -> Answer>;

/// The records, in no order.
#[derive(Default)]
struct Model(Vec<TaskRecord>, HashMap<TaskId, Run>);

struct Run {
    attempt: u64,
    owner: usize,
    until_us: u64,
    call: Option<String>,
}

impl Model {
    fn get(&self, id: &TaskId) -> Option<&TaskRecord> {
        self.0.iter().find(|task| task.id == *id)
    }

    fn run(&self, id: &TaskId) -> Option<&Run> {
        let task = self.get(id)?;
        let run = self.1.get(id);
        run.filter(|_| !task.state.is_terminal())
    }

    fn create(&mut self, task: TaskRecord, limits: TaskLimits, run: Run) -> Answer {
        if let Some(known) = self.get(&task.id) {
            return match *known == task {
                true => Answer::Done,
                false => Answer::Failed,
            };
        }
        let mut counts = [0, 0];
        for known in &self.0 {
            let counted = task.created_us < known.expires_us;
            counts[0] += usize::from(counted && known.principal == task.principal);
            counts[1] += usize::from(counted);
        }
        if limits.max_per_principal <= counts[0] {
            return Answer::Refused(limits.max_per_principal, LimitKind::PerPrincipal);
        }
        if limits.max_total <= counts[1] {
            return Answer::Refused(limits.max_total, LimitKind::Total);
        }
        self.1.insert(task.id.clone(), run);
        self.0.push(task);
        Answer::Done
    }

    fn update(&mut self, task: TaskRecord) -> Answer {
        let Some(known) = self.0.iter_mut().find(|known| known.id == task.id) else {
            return Answer::Whether(false);
        };
        if *known == task {
            return Answer::Whether(true);
        }
        let fixed = |task: &TaskRecord| {
            (
                task.principal.clone(),
                task.capability.clone(),
                task.protocol_version.clone(),
                task.created_us,
            )
        };
        let follows = matches!(
            known.state,
            TaskState::Working | TaskState::InputRequired { .. }
        ) && known.sequence + 1 == task.sequence
            && fixed(known) == fixed(&task);
        if follows {
            *known = task;
        }
        Answer::Whether(follows)
    }

    fn list(&self, principal: &str, version: &str, after: Option<(u64, TaskId)>) -> Answer {
        let mut tasks = self.0.clone();
        tasks.retain(|task| task.principal == principal && task.protocol_version == version);
        tasks.sort_by_key(|task| Reverse((task.created_us, task.id.clone())));
        if let Some(after) = after {
            tasks.retain(|task| (task.created_us, task.id.clone()) < after);
        }
        for task in &mut tasks {
            match &mut task.state {
                TaskState::Working | TaskState::Cancelled => {}
                TaskState::InputRequired { requests: text }
                | TaskState::Completed { result: text, .. }
                | TaskState::Failed { error: text } => text.clear(),
            }
        }
        Answer::Many(tasks)
    }

    fn lapsed(&self, now_us: u64) -> Answer {
        let mut tasks = self.0.clone();
        tasks.sort_by_key(|task| (task.created_us, task.id.clone()));
        let lapsed = tasks.into_iter().filter_map(|record| {
            let run = self.run(&record.id)?;
            (run.until_us <= now_us).then_some(Lapsed {
                attempt: run.attempt,
                has_call: run.call.is_some(),
                record,
            })
        });
        Answer::Lapsed(lapsed.collect())
    }

    fn claim(&mut self, task: TaskRecord, owner: usize, until_us: u64, now_us: u64) -> Answer {
        if task.state.is_terminal() {
            return Answer::Failed;
        }
        let id = task.id.clone();
        let Some(run) = self.run(&id) else {
            return Answer::Taken(None);
        };
        let is_known = self.get(&id) == Some(&task);
        let (is_free, is_theirs) = (run.until_us <= now_us, run.owner == owner);
        let taken = match is_known {
            true => is_theirs,
            false => is_free && self.update(task) == Answer::Whether(true),
        };
        let run = self.1.get_mut(&id).filter(|_| taken);
        Answer::Taken(run.map(|run| {
            if !is_known {
                run.attempt += 1;
                (run.owner, run.until_us) = (owner, until_us);
            }
            Claimed {
                attempt: run.attempt,
                call: run.call.clone(),
            }
        }))
    }

    fn renew(&mut self, owner: usize, until_us: u64) -> Answer {
        let mut names = Vec::new();
        for task in &self.0 {
            let run = self.1.get_mut(&task.id);
            if let Some(run) = run
                && run.owner == owner
                && !task.state.is_terminal()
            {
                run.until_us = until_us;
                names.push(task.id.clone());
            }
        }
        names.sort();
        Answer::Names(names)
    }

    /// Ends all leases.
    fn free(&mut self) {
        self.1.values_mut().for_each(|run| run.until_us = 0);
    }
}

/// The record that a change makes of what is there.
fn record(change: &Change, ids: &[TaskId], known: Option<&TaskRecord>) -> TaskRecord {
    let fresh = TaskRecord {
        id: ids[change.id].clone(),
        principal: PRINCIPALS[change.principal].to_owned(),
        protocol_version: VERSIONS[change.version].to_owned(),
        expires_us: change.expires_us,
        state: change.state.clone(),
        message: change.message.clone(),
        ..task(change.created_us)
    };
    match known {
        Some(known) if !change.is_foreign => TaskRecord {
            principal: known.principal.clone(),
            protocol_version: known.protocol_version.clone(),
            created_us: known.created_us,
            ..fresh
        },
        _ => fresh,
    }
}

/// Does it to the model and tells what it says, and the same for a store.
fn both(operation: &Operation, ids: &[TaskId], model: &mut Model) -> (Answer, Ask) {
    let id = |index: &usize| ids[*index].clone();
    match operation {
        Operation::Create(change, limits, (owner, until_us, call)) => {
            let (task, limits) = (record(change, ids, None), *limits);
            let run = Run {
                attempt: 1,
                owner: *owner,
                until_us: *until_us,
                call: call.clone(),
            };
            let begun = Begun {
                lease: lease(OWNERS[*owner], *until_us),
                call: call.clone(),
            };
            let expected = model.create(task.clone(), limits, run);
            let create = move |store: &dyn TaskStore| match block_on(store.create(
                task.clone(),
                begun.clone(),
                limits,
            )) {
                Ok(()) => Answer::Done,
                Err(CreateError::TooMany { max, what }) => Answer::Refused(max, what),
                Err(CreateError::Store(_)) => Answer::Failed,
            };
            (expected, Box::new(create))
        }
        Operation::Update(change, step) => {
            let known = model.get(&ids[change.id]);
            let sequence = known.map_or(0, |known| known.sequence) + step;
            let task = TaskRecord {
                sequence,
                ..record(change, ids, known)
            };
            let expected = model.update(task.clone());
            (expected, Box::new(move |store| update(store, &task)))
        }
        Operation::Repeat(index) => match model.get(&ids[*index]).cloned() {
            None => (Answer::Done, Box::new(|_| Answer::Done)),
            Some(task) => {
                let expected = model.update(task.clone());
                (expected, Box::new(move |store| update(store, &task)))
            }
        },
        Operation::Get(index) => {
            let id = id(index);
            let expected = Answer::One(model.get(&id).cloned());
            let get =
                move |store: &dyn TaskStore| Answer::One(block_on(store.get(id.clone())).unwrap());
            (expected, Box::new(get))
        }
        Operation::List(principal, version, after, most) => {
            let (principal, version) = (PRINCIPALS[*principal], VERSIONS[*version]);
            let after = after
                .as_ref()
                .map(|(created_us, index)| (*created_us, id(index)));
            let mut expected = model.list(principal, version, after.clone());
            let most = *most;
            if let Answer::Many(tasks) = &mut expected {
                tasks.truncate(most);
            }
            let list = move |store: &dyn TaskStore| {
                let listed = store.list(
                    principal.to_owned(),
                    version.to_owned(),
                    after.clone(),
                    most,
                );
                Answer::Many(block_on(listed).unwrap())
            };
            (expected, Box::new(list))
        }
        Operation::Remove(index) => {
            let id = id(index);
            model.0.retain(|task| task.id != id);
            let remove = move |store: &dyn TaskStore| {
                block_on(store.remove(id.clone())).unwrap();
                Answer::Done
            };
            (Answer::Done, Box::new(remove))
        }
        Operation::RemoveExpired(now_us) => {
            let (now_us, before) = (*now_us, model.0.len());
            model.0.retain(|task| now_us < task.expires_us);
            let expected = Answer::Count(before - model.0.len());
            let remove = move |store: &dyn TaskStore| {
                Answer::Count(block_on(store.remove_expired(now_us)).unwrap())
            };
            (expected, Box::new(remove))
        }
        Operation::Lapsed(now_us) => {
            let now_us = *now_us;
            let lapsed = move |store: &dyn TaskStore| {
                Answer::Lapsed(block_on(store.lapsed(now_us)).unwrap())
            };
            (model.lapsed(now_us), Box::new(lapsed))
        }
        Operation::Claim(change, step, (owner, until_us, now_us)) => {
            let known = model.get(&ids[change.id]);
            let sequence = known.map_or(0, |known| known.sequence) + step;
            let task = TaskRecord {
                sequence,
                ..record(change, ids, known)
            };
            let (owner, until_us, now_us) = (*owner, *until_us, *now_us);
            let expected = model.claim(task.clone(), owner, until_us, now_us);
            let claim = move |store: &dyn TaskStore| claim(store, &task, owner, until_us, now_us);
            (expected, Box::new(claim))
        }
        Operation::ClaimAgain(index, owner) => match model.get(&ids[*index]).cloned() {
            None => (Answer::Done, Box::new(|_| Answer::Done)),
            Some(task) => {
                let owner = *owner;
                let expected = model.claim(task.clone(), owner, 99, 99);
                let claim = move |store: &dyn TaskStore| claim(store, &task, owner, 99, 99);
                (expected, Box::new(claim))
            }
        },
        Operation::Renew(owner, until_us) => {
            let (owner, until_us) = (*owner, *until_us);
            let renew = move |store: &dyn TaskStore| {
                let renewed = store.renew(lease(OWNERS[owner], until_us));
                let mut names = block_on(renewed).unwrap();
                names.sort();
                Answer::Names(names)
            };
            (model.renew(owner, until_us), Box::new(renew))
        }
        Operation::Reopen => {
            model.free();
            (Answer::Done, Box::new(|_| Answer::Done))
        }
    }
}

fn update(store: &dyn TaskStore, task: &TaskRecord) -> Answer {
    Answer::Whether(block_on(store.update(task.clone())).unwrap())
}

fn claim(
    store: &dyn TaskStore,
    task: &TaskRecord,
    owner: usize,
    until_us: u64,
    now_us: u64,
) -> Answer {
    let lease = lease(OWNERS[owner], until_us);
    match block_on(store.claim(task.clone(), lease, now_us)) {
        Ok(claimed) => Answer::Taken(claimed),
        Err(_) => Answer::Failed,
    }
}

fn changes() -> impl Strategy<Value = Change> {
    let state = any::<Index>().prop_map(|index| index.get(&states()).clone());
    let message = prop_oneof![
        Just(None),
        any::<String>().prop_map(Some),
        Just(Some("\0'; --".to_owned()))
    ];
    let fixed = (0..IDS, 0..2usize, 0..2usize, 0..6u64, 0..12u64);
    (fixed, state, message, prop::bool::weighted(0.2)).prop_map(
        |((id, principal, version, created_us, expires_us), state, message, is_foreign)| Change {
            id,
            principal,
            version,
            created_us,
            expires_us,
            state,
            message,
            is_foreign,
        },
    )
}

fn operations() -> impl Strategy<Value = Operation> {
    let limits = (0..6usize, 0..4usize).prop_map(|(max_total, max_per_principal)| TaskLimits {
        max_total,
        max_per_principal,
    });
    let after = prop::option::of((0..6u64, 0..IDS));
    let call = prop::option::of(Just(r#"{"arguments":{}}"#.to_owned()));
    let with = (0..3usize, 0..12u64, call);
    let by = (0..3usize, 0..12u64, 0..12u64);
    prop_oneof![
        6 => (changes(), limits, with)
            .prop_map(|(change, limits, with)| Operation::Create(change, limits, with)),
        5 => (changes(), prop_oneof![6 => Just(1), 1 => Just(0), 1 => Just(2)], by)
            .prop_map(|(change, step, by)| Operation::Claim(change, step, by)),
        2 => (0..IDS, 0..3usize).prop_map(|(id, owner)| Operation::ClaimAgain(id, owner)),
        2 => (0..3usize, 0..12u64).prop_map(|(owner, until_us)| Operation::Renew(owner, until_us)),
        8 => (changes(), prop_oneof![6 => Just(1), 1 => Just(0), 1 => Just(2)])
            .prop_map(|(change, step)| Operation::Update(change, step)),
        2 => (0..IDS).prop_map(Operation::Repeat),
        4 => (0..IDS).prop_map(Operation::Get),
        3 => (0..2usize, 0..2usize, after, 0..4usize)
            .prop_map(|(principal, version, after, most)| {
                Operation::List(principal, version, after, most)
            }),
        1 => (0..IDS).prop_map(Operation::Remove),
        1 => (0..12u64).prop_map(Operation::RemoveExpired),
        2 => (0..12u64).prop_map(Operation::Lapsed),
        1 => Just(Operation::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_stores_answer_like_the_model(
        operations in prop::collection::vec(operations(), 1..60)
    ) {
        let ids: Vec<_> = (0..IDS).map(|_| TaskId::random()).collect();
        let (mut model, memory) = (Model::default(), MemoryTaskStore::new());
        let (mut sqlite, directory) = new_sqlite();
        for operation in &operations {
            if matches!(operation, Operation::Reopen) {
                drop(sqlite);
                sqlite = SqliteTaskStore::open(directory.path().join("tasks.sqlite")).unwrap();
            }
            let (expected, ask) = both(operation, &ids, &mut model);
            if matches!(operation, Operation::Reopen) {
                // As if it had a file.
                for owner in OWNERS {
                    block_on(memory.renew(lease(owner, 0))).unwrap();
                }
            }
            prop_assert_eq!(&ask(&memory), &expected, "in memory: {:?}", operation);
            prop_assert_eq!(&ask(&sqlite), &expected, "in a file: {:?}", operation);
        }
    }
}
