//! Durable records of tasks: calls whose results are fetched later.
//!
//! A [`TaskRecord`] says whose a call is, what it calls and how it stands. A [`TaskStore`] keeps
//! records, and knows neither what a call is nor what time it is: [`SqliteTaskStore`] in a file, and
//! [`MemoryTaskStore`] until the process ends.
//!
//! Each change of a record is one more in its [`sequence`](TaskRecord::sequence), and only the
//! first of two who make the same step succeeds. Nothing follows a terminal state. So a result and
//! a cancellation may race: one of the two is told that it came too late.
//!
//! Each task that is not over has an owner with a [`Lease`]; one whose lease has run out may be
//! [claimed](TaskStore::claim) and begun again, with what was [stored](Begun::call) for it.
//!
//! What the users of a store have to do: decide what becomes of tasks that have
//! [lapsed](TaskStore::lapsed), when they start and now and then; [renew](TaskStore::renew) the
//! leases of their own; remove what has [expired](TaskStore::remove_expired); and whenever a task is asked for, look whose it is and
//! whether it has expired, which the store does not.
//!
//! ```
//! use task_store::{
//!     Begun, Lease, MemoryTaskStore, TaskId, TaskLimits, TaskRecord, TaskState, TaskStore,
//! };
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let store = MemoryTaskStore::default();
//! let now_us = 1_790_000_000_000_000;
//! let begun = TaskRecord {
//!     id: TaskId::random(),
//!     principal: "alice".to_owned(),
//!     capability: "tool/report".to_owned(),
//!     protocol_version: "2026-07-28".to_owned(),
//!     created_us: now_us,
//!     updated_us: now_us,
//!     expires_us: now_us + 3_600_000_000,
//!     sequence: 1,
//!     state: TaskState::Working,
//!     message: None,
//! };
//! let lease = Lease { owner: "server 1".to_owned(), until_us: now_us + 30_000_000 };
//! let with = Begun { lease, call: None };
//! store.create(begun.clone(), with, TaskLimits::default()).await?; // alice may be told of it now
//!
//! let result = r#"{"content":[]}"#.to_owned();
//! let completed = TaskRecord {
//!     sequence: begun.sequence + 1,
//!     state: TaskState::Completed { result, is_error: false },
//!     ..begun.clone()
//! };
//! let cancelled = TaskRecord { state: TaskState::Cancelled, ..completed.clone() };
//! assert!(store.update(completed.clone()).await?);
//! assert!(!store.update(cancelled).await?, "it came too late");
//! assert_eq!(store.get(begun.id).await?, Some(completed));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod id;
mod record;
mod store;

mod memory;

mod owner;
mod schema;
mod sqlite;
mod table;

pub use crate::{
    id::{ParseTaskIdError, TaskId},
    memory::MemoryTaskStore,
    record::{
        Begun, Claimed, Lapsed, Lease, MAX_RECORD_BYTES, Overseen, RecordError, Run, TaskRecord,
        TaskState,
    },
    schema::OpenError,
    sqlite::SqliteTaskStore,
    store::{
        CreateError, LimitKind, MAX_LISTED, SharedTasks, StoreError, TaskLimits, TaskNews,
        TaskStore,
    },
};
