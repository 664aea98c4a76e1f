use super::scheduler::{Answer, Call, Kind, Scheduler};
use crate::{Arguments, Executor, ToolCx, ToolError, ToolOutput};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::oneshot;

/// One handler of a Python application as an executor.
#[derive(Debug)]
pub(super) struct Handler {
    pub(super) name: Arc<str>,
    pub(super) is_async: bool,
    pub(super) scheduler: Arc<Scheduler>,
}

impl Executor for Handler {
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let deadline = cx.deadline;
            let call = Call {
                kind: Kind::Tool,
                name: Arc::clone(&self.name),
                is_async: self.is_async,
                arguments: arguments.raw().clone(),
                cx,
                answer,
            };
            // The worker needs the text only.
            drop(arguments);
            carry_out(&self.scheduler, call, deadline, answered).await
        })
    }
}

/// Asks the application's provider of a state, which `is_async` if it is known to be.
pub(super) async fn read_state(
    scheduler: &Scheduler,
    name: &str,
    is_async: bool,
    cx: ToolCx,
) -> Answer {
    let (answer, answered) = oneshot::channel();
    let deadline = cx.deadline;
    let call = Call {
        kind: Kind::State,
        name: name.into(),
        is_async,
        arguments: Bytes::new(),
        cx,
        answer,
    };
    carry_out(scheduler, call, deadline, answered).await
}

async fn carry_out(
    scheduler: &Scheduler,
    call: Call,
    deadline: Option<std::time::Instant>,
    answered: oneshot::Receiver<Answer>,
) -> Answer {
    let id = scheduler.submit(call)?;
    let mut waiting = Waiting {
        scheduler,
        id,
        is_over: false,
    };
    let answer = match deadline {
        None => answered.await,
        Some(deadline) => match tokio::time::timeout_at(deadline.into(), answered).await {
            Ok(answer) => answer,
            Err(_) => return Err(ToolError::TimedOut),
        },
    };
    waiting.is_over = true;
    answer.unwrap_or_else(|_| Err(ToolError::broken("the call was lost")))
}

/// A call that is waited for. When it is given up before it is over, the worker is told.
struct Waiting<'a> {
    scheduler: &'a Scheduler,
    id: u64,
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.scheduler.abandon(self.id);
        }
    }
}
