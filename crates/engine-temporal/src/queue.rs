//! The side of a server: tasks become workflows.

use crate::{
    connection::{Failed, Lazy, TemporalOptions, standing},
    workflow::CarryOut,
};
use futures::future::BoxFuture;
use governance::PatternSet;
use mcp_server::{CallEnd, QueueError, Standing, TaskCall, TaskQueue, TaskRunner};
use std::{sync::Arc, time::Duration};
use task_store::TaskId;
use temporalio_client::{
    WorkflowCancelOptions, WorkflowIdConflictPolicy, WorkflowIdReusePolicy, WorkflowStartOptions,
    errors::{WorkflowInteractionError, WorkflowStartError},
};

/// The longest time for which Temporal keeps a workflow that no worker ends: ten years.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Time that one request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// Queue of workers, and the tools whose calls wait in it.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// Name of the task queue in Temporal.
    pub name: String,
    /// Names of the tools.
    pub tools: PatternSet,
}

/// Temporal as the runner of tasks: it decides when and where a call is carried out.
#[derive(Clone, Debug)]
pub struct Temporal {
    pub(crate) server: Arc<Lazy>,
    queues: Arc<[QueueOptions]>,
}

impl Temporal {
    /// Tasks of the server at this address. Of two queues that name a tool the first has its calls. A connection
    /// is made when a task needs one.
    pub fn new(options: TemporalOptions, queues: Vec<QueueOptions>) -> Self {
        Self {
            server: Arc::new(Lazy::new(options)),
            queues: queues.into(),
        }
    }

    /// Names of the queues.
    pub fn queues(&self) -> impl Iterator<Item = &str> {
        self.queues.iter().map(|it| it.name.as_str())
    }
}

impl TaskRunner for Temporal {
    fn carry_out(&self, call: TaskCall) -> BoxFuture<'static, CallEnd> {
        Box::pin(call)
    }

    fn queue(&self, tool: &str) -> Option<Arc<dyn TaskQueue>> {
        let queue = self.queues.iter().find(|it| it.tools.matches(tool))?;
        Some(Arc::new(Queue {
            server: Arc::clone(&self.server),
            name: queue.name.clone(),
        }))
    }
}

#[derive(Debug)]
struct Queue {
    server: Arc<Lazy>,
    name: String,
}

impl TaskQueue for Queue {
    fn add(
        &self,
        task: TaskId,
        within: Duration,
    ) -> BoxFuture<'static, Result<Standing, QueueError>> {
        let (server, name) = (Arc::clone(&self.server), self.name.clone());
        Box::pin(within_limit(async move {
            let client = server.client().await?;
            let id = task.as_str();
            let options = WorkflowStartOptions::new(name, id)
                .id_reuse_policy(WorkflowIdReusePolicy::RejectDuplicate)
                .id_conflict_policy(WorkflowIdConflictPolicy::Fail)
                .execution_timeout(within.min(LONGEST))
                .build();
            let started = client.start_workflow(CarryOut::run, id.to_owned(), options);
            match started.await {
                Ok(_) => Ok(Standing::Queued),
                Err(WorkflowStartError::AlreadyStarted { .. }) => standing(&server, id).await,
                Err(error) => Err(error.into()),
            }
        }))
    }

    fn remove(&self, task: TaskId) -> BoxFuture<'static, Result<(), QueueError>> {
        let server = Arc::clone(&self.server);
        Box::pin(within_limit(async move {
            let client = server.client().await?;
            let handle = client.get_workflow_handle::<CarryOut>(task.as_str());
            let options = WorkflowCancelOptions::builder()
                .reason("the task is over")
                .build();
            match handle.cancel(options).await {
                Ok(()) | Err(WorkflowInteractionError::NotFound(_)) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }))
    }
}

async fn within_limit<T>(asked: impl Future<Output = Result<T, Failed>>) -> Result<T, QueueError> {
    match tokio::time::timeout(REQUEST_LIMIT, asked).await {
        Ok(answer) => answer.map_err(QueueError),
        Err(elapsed) => Err(QueueError(elapsed.into())),
    }
}
