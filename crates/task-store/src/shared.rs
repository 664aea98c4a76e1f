use crate::{StoreError, TaskId, TaskRecord};
use futures_util::{future::BoxFuture, stream::BoxStream};
use std::fmt;

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
    /// As [`TaskStore::update`](crate::TaskStore::update).
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
