//! Any sequence of operations has the answers that a list of records would give.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{block_on, new_sqlite, states, task};
use proptest::{prelude::*, sample::Index};
use std::cmp::Reverse;
use task_store::{
    CreateError, LimitKind, MemoryTaskStore, SqliteTaskStore, TaskId, TaskLimits, TaskRecord,
    TaskState, TaskStore,
};

const IDS: usize = 5;
const PRINCIPALS: [&str; 2] = ["alice", "bob"];
const VERSIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

#[derive(Clone, Debug)]
enum Operation {
    Create(Change, TaskLimits),
    /// Adds the number to the sequence of what is there.
    Update(Change, u64),
    /// Sends what is there again.
    Repeat(usize),
    Get(usize),
    List(usize, usize, Option<(u64, usize)>, usize),
    Remove(usize),
    RemoveExpired(u64),
    Unfinished,
    /// Closes the file and opens it again.
    Reopen,
}

/// What a record is made of.
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
}

/// Does an operation to a store.
type Ask = Box<dyn Fn(&dyn TaskStore) -> Answer>;

/// The records, in no order.
#[derive(Default)]
struct Model(Vec<TaskRecord>);

impl Model {
    fn get(&self, id: &TaskId) -> Option<&TaskRecord> {
        self.0.iter().find(|task| task.id == *id)
    }

    fn create(&mut self, task: TaskRecord, limits: TaskLimits) -> Answer {
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

    fn unfinished(&self) -> Answer {
        let mut tasks = self.0.clone();
        tasks.retain(|task| {
            matches!(
                task.state,
                TaskState::Working | TaskState::InputRequired { .. }
            )
        });
        tasks.sort_by_key(|task| (task.created_us, task.id.clone()));
        Answer::Many(tasks)
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
        Operation::Create(change, limits) => {
            let (task, limits) = (record(change, ids, None), *limits);
            let expected = model.create(task.clone(), limits);
            let create =
                move |store: &dyn TaskStore| match block_on(store.create(task.clone(), limits)) {
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
        Operation::Unfinished => {
            let unfinished =
                |store: &dyn TaskStore| Answer::Many(block_on(store.unfinished()).unwrap());
            (model.unfinished(), Box::new(unfinished))
        }
        Operation::Reopen => (Answer::Done, Box::new(|_| Answer::Done)),
    }
}

fn update(store: &dyn TaskStore, task: &TaskRecord) -> Answer {
    Answer::Whether(block_on(store.update(task.clone())).unwrap())
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
    prop_oneof![
        6 => (changes(), limits).prop_map(|(change, limits)| Operation::Create(change, limits)),
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
        2 => Just(Operation::Unfinished),
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
            prop_assert_eq!(&ask(&memory), &expected, "in memory: {:?}", operation);
            prop_assert_eq!(&ask(&sqlite), &expected, "in a file: {:?}", operation);
        }
    }
}
