use crate::{Begun, Claimed, Lapsed, Lease, Overseen, TaskId, TaskRecord, record::RecordError};
use futures_util::{future::BoxFuture, stream::BoxStream};
use std::{error::Error, fmt};

/// The most records that [`TaskStore::list`] gives at once.
pub const MAX_LISTED: usize = 100;

/// Storage of records of tasks.
///
/// Any number of threads may use a store at the same time, and of processes where several can open
/// it: each task has one owner among them, for as long as its [`Lease`] lasts. The store has no clock: it gives back what has expired until [`remove_expired`](Self::remove_expired)
/// has been called, which its owner does now and then.
///
/// # Owners
///
/// Who creates a task carries it out, and [renews](Self::renew) the lease while that lasts. A task
/// whose lease has run out has no owner: anybody may [claim](Self::claim) it and begin it again, and
/// one of those who try succeeds. The owner before may be alive all the same, cut off or slow; since
/// a claim is a step of the task's sequence, whatever it still has to say of the task is
/// [told](Self::update) to come too late.
///
/// A store that only one process can have open frees all tasks when it is opened: whoever owned them
/// is gone.
///
/// # Cancel safety
///
/// A change whose future is dropped before it has ended may or may not have happened, as may one
/// that ended with an error. [`create`](Self::create), [`update`](Self::update) and
/// [`claim`](Self::claim) can be called again with the same record.
pub trait TaskStore: fmt::Debug + Send + Sync + 'static {
    /// Adds a task, with what it begins with. Both are durable when this returns.
    ///
    /// Creating the very same record again succeeds and changes nothing.
    ///
    /// # Errors
    ///
    /// [`CreateError::TooMany`] if there are `limits` already, where records that have expired by
    /// the time the new one was created do not count. [`CreateError::Store`] when it cannot be
    /// said that it is stored; when its sequence is not 1, a number of it is too large or its
    /// texts have more than [`MAX_RECORD_BYTES`](crate::MAX_RECORD_BYTES); or when there is
    /// another task of its name.
    fn create(
        &self,
        task: TaskRecord,
        begun: Begun,
        limits: TaskLimits,
    ) -> BoxFuture<'_, Result<(), CreateError>>;

    /// The task of a name, expired or not.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it cannot be read.
    fn get(&self, id: TaskId) -> BoxFuture<'_, Result<Option<TaskRecord>, StoreError>>;

    /// Replaces the record of the same task whose sequence is one less, unless its state is
    /// terminal; returns true if it did. The change is durable when this returns.
    ///
    /// Calling it again with the very same record, after an error, succeeds and changes nothing.
    /// It tells `false` if there is no such task, or if what never changes about it is different.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it cannot be said that the change is stored, or when a number of the
    /// record is too large or its texts have more than
    /// [`MAX_RECORD_BYTES`](crate::MAX_RECORD_BYTES).
    fn update(&self, task: TaskRecord) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// A page of a principal's tasks of one revision of the protocol, expired or not, newest first,
    /// by time of creation and name; those that come after `after` in this order.
    ///
    /// The texts of states (requests, results, errors) are left empty, since a hundred of them
    /// may be large; [`get`](Self::get) gives them. There are at most `most` records, and at
    /// most [`MAX_LISTED`]; fewer only at the end.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when they cannot be read.
    fn list(
        &self,
        principal: String,
        protocol_version: String,
        after: Option<(u64, TaskId)>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<TaskRecord>, StoreError>>;

    /// A page of the tasks of all principals, expired or not, newest first, as [`list`](Self::list) orders them; with
    /// what is left of their leases at `now_us`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when they cannot be read.
    fn oversee(
        &self,
        now_us: u64,
        after: Option<(u64, TaskId)>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<Overseen>, StoreError>>;

    /// Forgets a task, durably. It is no error if there is none of this name.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it cannot be said that it is forgotten.
    fn remove(&self, id: TaskId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes records that have expired by `now_us` (microseconds since the epoch), whatever their
    /// state; returns their number.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it cannot be done; some may have been forgotten.
    fn remove_expired(&self, now_us: u64) -> BoxFuture<'_, Result<usize, StoreError>>;

    /// The tasks that are not in a terminal state and whose leases have run out by `now_us`, oldest
    /// first, expired or not. They are at most as many as [`TaskLimits`] allowed.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when they cannot be read.
    fn lapsed(&self, now_us: u64) -> BoxFuture<'_, Result<Vec<Lapsed>, StoreError>>;

    /// Makes `task` the next record of its task, as [`update`](Self::update) does, gives the task
    /// to the owner of `lease`, and counts one more attempt: if the lease of the owner before has
    /// run out by `now_us`. `None` if it has not, or if another process took the step. It is
    /// durable when this returns.
    ///
    /// Calling it again with the very same record and owner, after an error, gives the same and
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] as for [`update`](Self::update), and if `task` is in a terminal state.
    fn claim(
        &self,
        task: TaskRecord,
        lease: Lease,
        now_us: u64,
    ) -> BoxFuture<'_, Result<Option<Claimed>, StoreError>>;

    /// Replaces what it takes to go on with a task that is not over; does nothing of any other. Durable when it
    /// returns.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    fn keep_call(&self, id: TaskId, call: String) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Has the leases of all tasks of the owner of `lease` last until then, which may be the past:
    /// then they are given up. Returns these tasks, in no order. A task that is not among them is
    /// over, or another owner's. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it cannot be said that it is done.
    fn renew(&self, lease: Lease) -> BoxFuture<'_, Result<Vec<TaskId>, StoreError>>;

    /// The part for processes that share this store; `None` if only one process has it open.
    fn shared(&self) -> Option<&dyn SharedTasks> {
        None
    }
}

/// News of a task that another process has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskNews {
    /// The task is not what it was, or is gone.
    Changed(TaskId),
    /// A client has answered what the task asks: [`SharedTasks::take_answers`].
    Answered(TaskId),
    /// Some news were lost: every task may have changed.
    Missed,
}

/// The part of a store that only processes need which share it: what the process that carries a task out
/// tells the others, and they tell it.
pub trait SharedTasks: fmt::Debug + Send + Sync {
    /// Replaces state, message and time of the last change of the task's record, which has the sequence of
    /// `task`, without a step: so that other processes see how it stands. Returns false, and changes
    /// nothing, if the record has another sequence by now, or is over.
    ///
    /// # Errors
    ///
    /// As [`TaskStore::update`].
    fn show(&self, task: TaskRecord) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Hands answers of a client to the process that carries the task out. Returns false, and keeps nothing,
    /// if the task asks nothing, or if more than `max_bytes` would wait to be taken.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    fn hand_over(
        &self,
        id: TaskId,
        answers: String,
        max_bytes: usize,
    ) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Takes the answers to all tasks of an owner, in the order in which they were handed over.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    fn take_answers(
        &self,
        owner: String,
    ) -> BoxFuture<'_, Result<Vec<(TaskId, String)>, StoreError>>;

    /// News from now on.
    fn news(&self) -> BoxStream<'static, TaskNews>;
}

/// Limits on tasks that have not expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLimits {
    /// Tasks of all principals: 10,000 by default.
    pub max_total: usize,
    /// Of one principal: 1,000 by default.
    pub max_per_principal: usize,
}

impl Default for TaskLimits {
    fn default() -> Self {
        Self {
            max_total: 10_000,
            max_per_principal: 1_000,
        }
    }
}

/// Kind of a reached limit in [`TaskLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Limit of all principals together.
    Total,
    /// Limit of the principal.
    PerPrincipal,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Total => "in all",
            Self::PerPrincipal => "of this principal",
        })
    }
}

/// Reason why a task was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// There are as many as there may be.
    #[error("there may be no more than {max} tasks {what}")]
    TooMany {
        /// Value of the limit.
        max: usize,
        /// Of whom.
        what: LimitKind,
    },
    /// Storage that could not be confirmed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The store has failed.
#[derive(Debug, thiserror::Error)]
#[error("the task store cannot be read or written")]
pub struct StoreError(#[source] pub Box<dyn Error + Send + Sync>);

impl From<RecordError> for StoreError {
    fn from(error: RecordError) -> Self {
        Self(Box::new(error))
    }
}

impl From<RecordError> for CreateError {
    fn from(error: RecordError) -> Self {
        Self::Store(error.into())
    }
}
