//! Tasks of all clients, as operators look at them and end them.

use crate::tasks::{
    found::{Found, found_in_store},
    registry::Tasks,
    running::Stop,
};
use mcp_protocol::model::TaskState;
use std::time::Duration;
use task_store::{Overseen, StoreError, TaskId, TaskRecord, TaskState as Stored};

/// The longest time that a task which is carried on here may take to end.
const MAX_CANCEL: Duration = Duration::from_secs(5);

/// Outcome of an operator's cancellation.
#[derive(Clone, Debug, PartialEq)]
pub enum CancelledTask {
    /// The task is cancelled.
    Cancelled,
    /// The task was told to end, and has not yet.
    Ending,
    /// The task was over already.
    Over,
}

impl Tasks {
    /// A page of the tasks of all clients that have not expired, the newest first, after the one of this time and name.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when they cannot be read.
    pub async fn oversee(
        &self,
        after: Option<(u64, TaskId)>,
        most: usize,
    ) -> Result<Vec<Overseen>, StoreError> {
        let mut page = self.store.oversee((self.clock)(), after, most).await?;
        // How a task of this process stands between its steps is in the store only where others read it.
        for Overseen { record, run } in &mut page {
            let Some(live) = run.as_ref().and_then(|_| self.live(&record.id)) else {
                continue;
            };
            let (_, task) = live.seen();
            record.state = match task.state {
                TaskState::Working => Stored::Working,
                TaskState::InputRequired { .. } => Stored::InputRequired {
                    requests: String::new(),
                },
                // Its end counts once it is stored.
                _ => continue,
            };
            record.updated_us = live.updated_us();
            let message = task.status_message.as_deref();
            record.message = message.map(|it| redaction::without_known(it).into_owned());
        }
        Ok(page)
    }

    /// The task of this name, whoever its client is.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it cannot be read.
    pub async fn record_of(&self, id: &TaskId) -> Result<Option<TaskRecord>, StoreError> {
        match self.live(id) {
            Some(live) => Ok(Some(live.record.clone())),
            None => self.store.get(id.clone()).await,
        }
    }

    /// Name under which this process owns tasks.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Cancels a task by an operator's word; `None` if there is none of this name.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it cannot be said that it is cancelled.
    pub async fn cancel(&self, id: &TaskId) -> Result<Option<CancelledTask>, StoreError> {
        let found = match self.live(id) {
            Some(live) => Found::Live(live),
            None => match self.store.get(id.clone()).await? {
                Some(record) => found_in_store(record),
                None => return Ok(None),
            },
        };
        Ok(Some(match self.cancel_elsewhere(found).await? {
            Found::Over(_) => CancelledTask::Over,
            Found::Elsewhere(record) if matches!(record.state, Stored::Cancelled) => {
                CancelledTask::Cancelled
            }
            Found::Elsewhere(_) => CancelledTask::Ending,
            Found::Live(live) => {
                live.stop(Stop::Cancelled);
                let over = tokio::time::timeout(MAX_CANCEL, live.over()).await;
                let (_, task) = live.seen();
                match over {
                    Err(_) => CancelledTask::Ending,
                    Ok(()) if task.state == TaskState::Cancelled => CancelledTask::Cancelled,
                    Ok(()) => CancelledTask::Over,
                }
            }
        }))
    }
}
