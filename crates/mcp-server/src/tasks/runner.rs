//! The seam for engines that carry the calls of tasks out elsewhere or later.

use crate::invocation::{Invoked, failure::InvocationError, handover::Handover};
use futures_util::future::BoxFuture;
use mcp_service::Principal;
use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use task_store::TaskId;

/// Decides where and when the calls of tasks are carried out; what a call is, and what becomes of
/// its end, is none of its business.
///
/// `docs/adr/0012-tasks-that-are-begun-again.md` says how an engine with queues and machines of its
/// own fits behind it.
pub trait TaskRunner: fmt::Debug + Send + Sync + 'static {
    /// Carries a call out once, by awaiting it: here or elsewhere, now or later.
    ///
    /// The call passes governance and is put on record when it is carried out, and its deadline
    /// counts from then. A runner that lets it wait says so by [`TaskCall::put_off`]. If it cannot be
    /// carried out at all, its end is [`CallEnd::lost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future means that nobody wants the end of the call any more: the call must be
    /// dropped too, wherever it is, begun or not.
    fn carry_out(&self, call: TaskCall) -> BoxFuture<'static, CallEnd>;

    /// The queue from which workers take the calls of `tool` that are tasks from the start. Without one, they
    /// are [carried out](Self::carry_out) by the process that has accepted them.
    fn queue(&self, tool: &str) -> Option<Arc<dyn TaskQueue>> {
        let _ = tool;
        None
    }
}

/// A queue of tasks outside of this process, which hands each to a worker. It has their ids and nothing else: a
/// worker [takes the call](crate::mcp_server::McpServer::take_queued) from the task store that it shares with the
/// server that accepted it, and what becomes of it is stored there.
///
/// A queue decides when and where. It may hand a task out any number of times, to any number of workers:
/// the store lets one of them carry it out, and no call is made twice that may not be.
pub trait TaskQueue: fmt::Debug + Send + Sync + 'static {
    /// Adds a task, unless it was added before, and tells how it stands. The queue may forget it after `within`, when
    /// the task has expired.
    fn add(
        &self,
        task: TaskId,
        within: Duration,
    ) -> BoxFuture<'static, Result<Standing, QueueError>>;

    /// Removes a task that is over. It is no error if the queue has none of this name.
    fn remove(&self, task: TaskId) -> BoxFuture<'static, Result<(), QueueError>>;
}

/// State of a task in a [`TaskQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A worker has it, or will.
    Queued,
    /// An operator of the queue has cancelled it.
    Cancelled,
    /// The queue hands it to no worker any more.
    GivenUp,
}

/// A queue could not be reached, or has refused what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("the queue of tasks cannot be used")]
pub struct QueueError(#[source] pub Box<dyn Error + Send + Sync>);

/// Carries calls out where they are waited for, and at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunHere;

impl TaskRunner for RunHere {
    fn carry_out(&self, call: TaskCall) -> BoxFuture<'static, CallEnd> {
        call.call
    }
}

/// A call that is a task or may become one: a future, which carries it out.
pub struct TaskCall {
    pub(super) task: Option<TaskId>,
    pub(super) attempt: u64,
    pub(super) tool: String,
    pub(super) principal: Principal,
    pub(super) handover: Option<Arc<Handover>>,
    pub(super) call: BoxFuture<'static, CallEnd>,
}

impl TaskCall {
    /// The task; `None` for a call that may become one and is none yet.
    pub fn task(&self) -> Option<&TaskId> {
        self.task.as_ref()
    }

    /// Number of times the task was begun, this time included. With the task, it names the work for an
    /// engine that must not do the same thing twice.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// The tool that is called.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Principal of the call, for engines that are fair.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Notes that the call has to wait for its turn, so that its caller is answered with a task at once.
    pub fn put_off(&self) {
        if let Some(handover) = &self.handover {
            handover.put_off();
        }
    }
}

impl Future for TaskCall {
    type Output = CallEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallEnd> {
        self.call.as_mut().poll(cx)
    }
}

impl fmt::Debug for TaskCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskCall")
            .field("task", &self.task)
            .field("attempt", &self.attempt)
            .field("tool", &self.tool)
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

/// A call without an end: its handler has panicked, or its runner has lost it. The log has more.
#[derive(Debug)]
pub(crate) struct NoEnd;

/// Result of a [`TaskCall`].
#[derive(Debug)]
pub struct CallEnd(pub(super) Result<Result<Invoked, InvocationError>, NoEnd>);

impl CallEnd {
    /// The end of a call that its runner cannot carry out, or has lost. Its caller gets an internal error.
    pub fn lost() -> Self {
        Self(Err(NoEnd))
    }

    pub(super) fn is_to_be_confirmed(&self) -> bool {
        matches!(self.0, Ok(Ok(Invoked::NeedsConfirmation(_))))
    }
}
