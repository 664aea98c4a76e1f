//! Tasks that clients ask for: carried on here, carried on elsewhere, or over.

use crate::tasks::{convert, registry::Tasks, run::CANCELLED, running::RunningTask};
use futures_util::future::{Either, select};
use jsonrpc_core::ErrorCode;
use mcp_protocol::model::Task;
use mcp_service::McpError;
use serde_json::json;
use std::{pin::pin, sync::Arc};
use task_store::{StoreError, TaskRecord, TaskState as Stored};

/// The most times a task may change hands while it is being cancelled.
const MAX_CANCEL_STEPS: usize = 4;

/// A task that its client may know of.
pub(crate) enum Found {
    Live(Arc<RunningTask>),
    Over(TaskRecord),
    /// Another process carries it on, or it waits for one to do so.
    Elsewhere(TaskRecord),
}

impl Found {
    pub(crate) fn record(&self) -> &TaskRecord {
        match self {
            Self::Live(live) => &live.record,
            Self::Over(record) | Self::Elsewhere(record) => record,
        }
    }

    /// The task as clients see it, and the number of its changes; the largest number if it is over.
    pub(crate) fn seen(self, tasks: &Tasks) -> (u64, Task) {
        match self {
            Self::Live(live) => tasks.seen(&live),
            Self::Over(record) => (u64::MAX, convert::seen(record, tasks.poll_interval_ms())),
            Self::Elsewhere(record) => {
                let number = match tasks.store.shared() {
                    Some(_) => record.updated_us,
                    // Whatever may come of it is news.
                    None => 0,
                };
                (number, convert::seen(record, tasks.poll_interval_ms()))
            }
        }
    }
}

pub(crate) fn found_in_store(record: TaskRecord) -> Found {
    match record.state.is_terminal() {
        true => Found::Over(record),
        false => Found::Elsewhere(record),
    }
}

impl Tasks {
    /// Cancels a task that is not carried on here: the process that carries it on comes too late
    /// then. It may be taken up here meanwhile, or end.
    pub(crate) async fn cancel_elsewhere(&self, mut found: Found) -> Result<Found, StoreError> {
        for _ in 0..MAX_CANCEL_STEPS {
            let Found::Elsewhere(record) = found else {
                break;
            };
            let cancelled = TaskRecord {
                updated_us: (self.clock)().max(record.updated_us),
                sequence: record.sequence + 1,
                state: Stored::Cancelled,
                message: Some(CANCELLED.to_owned()),
                ..record.clone()
            };
            if self.store.update(cancelled.clone()).await? {
                self.unqueue(&cancelled);
                return Ok(Found::Elsewhere(cancelled));
            }
            found = match (
                self.live(&record.id),
                self.store.get(record.id.clone()).await?,
            ) {
                (Some(live), _) => Found::Live(live),
                (None, Some(record)) => found_in_store(record),
                // It has been forgotten since it was found.
                (None, None) => Found::Over(record),
            };
        }
        Ok(found)
    }

    /// Has the queue of a task, if it has one, forget it: in the background, since no worker gets it any more.
    fn unqueue(&self, record: &TaskRecord) {
        let tool = record.capability.strip_prefix("tool/").unwrap_or_default();
        let Some(queue) = self.runner.queue(tool) else {
            return;
        };
        let id = record.id.clone();
        self.runtime.spawn(async move {
            if let Err(error) = queue.remove(id.clone()).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    task = ?id,
                    "the queue of a cancelled task could not be told; its worker will find out"
                );
            }
        });
    }

    /// Gives the process that carries a task on some time.
    pub(crate) async fn look_again_later(&self) -> Result<(), McpError> {
        let mut closing = self.closing.subscribe();
        let closes = pin!(closing.wait_for(|closing| *closing));
        let later = pin!(tokio::time::sleep(self.options.poll_interval));
        match select(later, closes).await {
            Either::Left(_) => Ok(()),
            Either::Right(_) => {
                let why = "the server is stopping, and the task goes on when it has started again";
                let error = McpError::new(ErrorCode::INTERNAL_ERROR, why);
                Err(McpError(error.0.with(&json!({ "retryable": true }))))
            }
        }
    }

    pub(crate) fn poll_interval_ms(&self) -> u64 {
        u64::try_from(self.options.poll_interval.as_millis()).unwrap_or(u64::MAX)
    }
}
