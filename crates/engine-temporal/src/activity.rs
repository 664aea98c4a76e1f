//! The activity of a workflow: a task is carried out here, until it is over.

use crate::connection::{Lazy, standing};
use futures::future::BoxFuture;
use mcp_server::{Standing, TakenUp, TaskAtWork};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use task_store::{StoreError, TaskId};
use temporalio_common::error::ApplicationFailure;
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

/// Pause between two heartbeats.
const BEAT: Duration = Duration::from_secs(1);

/// Pause before a task is asked for again that cannot be had, or Temporal is asked again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The server whose calls a worker carries out.
pub trait WorkerServer: fmt::Debug + Send + Sync + 'static {
    /// Takes a task out of its queue ([`McpServer::take_queued`](mcp_server::McpServer::take_queued)).
    fn take(&self, task: TaskId) -> BoxFuture<'_, Result<TakenUp, StoreError>>;

    /// Cancels a task that an operator of Temporal has cancelled
    /// ([`McpServer::cancel_queued`](mcp_server::McpServer::cancel_queued)).
    fn cancel(&self, task: TaskId) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// Activities of a worker.
pub(crate) struct Activities(pub(crate) Worker);

#[activities]
impl Activities {
    #[activity(name = "owlclaw-call")]
    pub(crate) async fn call(
        self: Arc<Self>,
        ctx: ActivityContext,
        task: String,
    ) -> Result<String, ActivityError> {
        self.0.carry_out(&ctx, &task).await
    }
}

/// State that the activities of a worker share.
pub(crate) struct Worker {
    pub(crate) at: Arc<dyn WorkerServer>,
    pub(crate) server: Arc<Lazy>,
    pub(crate) stopping: Arc<AtomicBool>,
}

impl Worker {
    /// Carries a task out, if that is left to be done, and returns when it is over. An error has Temporal hand it to
    /// another worker.
    async fn carry_out(&self, ctx: &ActivityContext, task: &str) -> Result<String, ActivityError> {
        let Ok(id) = task.parse::<TaskId>() else {
            let why = "the input of the workflow is no id of a task";
            return Err(ActivityError::application(
                ApplicationFailure::non_retryable(why),
            ));
        };
        loop {
            match self.at.take(id.clone()).await {
                Ok(TakenUp::Over) => return Ok("over".to_owned()),
                Ok(TakenUp::Begun(work)) => return self.follow(ctx, &id, &work).await,
                Ok(TakenUp::NotNow) => {}
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        task,
                        "a task cannot be taken out of its queue; it is tried again"
                    );
                }
            }
            if self.stopping.load(Ordering::Acquire) {
                return Err(retry("the worker stops"));
            }
            ctx.record_heartbeat("waiting").await?;
            tokio::select! {
                () = tokio::time::sleep(TRY_AGAIN) => {}
                () = ctx.cancelled() => {
                    self.cancelled(task).await;
                    // Another worker may have it; that one hears of it through the store.
                    if let Err(error) = self.at.cancel(id.clone()).await {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            task,
                            "a cancellation could not be stored"
                        );
                    }
                    return Err(ActivityError::cancelled());
                }
            }
        }
    }

    /// Waits for a task that is carried out here, telling Temporal how it stands.
    async fn follow(
        &self,
        ctx: &ActivityContext,
        id: &TaskId,
        work: &TaskAtWork,
    ) -> Result<String, ActivityError> {
        let ended = work.ended();
        let cancelled_there = async {
            ctx.cancelled().await;
            self.cancelled(id.as_str()).await;
        };
        let (mut ended, mut cancelled_there) =
            (std::pin::pin!(ended), std::pin::pin!(cancelled_there));
        let mut is_cancelled = false;
        loop {
            ctx.record_heartbeat(work.message().unwrap_or_default())
                .await?;
            tokio::select! {
                is_over = &mut ended => {
                    return match (is_over, is_cancelled) {
                        (true, true) => Err(ActivityError::cancelled()),
                        (true, false) => Ok("over".to_owned()),
                        (false, _) => Err(retry("the worker has left the task to another one")),
                    };
                }
                () = &mut cancelled_there, if !is_cancelled => {
                    is_cancelled = true;
                    work.cancel();
                }
                () = tokio::time::sleep(BEAT) => {}
            }
        }
    }

    /// Resolves if the task was cancelled in Temporal. That an activity is cancelled may mean as well that
    /// Temporal heard nothing of it for too long, which is no reason to end a call.
    async fn cancelled(&self, task: &str) {
        loop {
            match standing(&self.server, task).await {
                Ok(Standing::Cancelled) => return,
                Ok(_) => std::future::pending().await,
                Err(error) => {
                    tracing::warn!(
                        error = &*error,
                        task,
                        "Temporal cannot be asked about a task"
                    );
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        }
    }
}

fn retry(why: &'static str) -> ActivityError {
    ActivityError::application(ApplicationFailure::new(why))
}
