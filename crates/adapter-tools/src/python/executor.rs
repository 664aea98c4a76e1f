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
            let subject = (Kind::Tool, Arc::clone(&self.name), self.is_async);
            // The worker needs the text only.
            let text = arguments.raw().clone();
            drop(arguments);
            carry_out(&self.scheduler, subject, text, cx).await
        })
    }
}

/// Has a worker call what is named, which is asynchronous if `subject` says so, or go on with it where it has
/// asked something.
pub(super) async fn carry_out(
    scheduler: &Arc<Scheduler>,
    subject: (Kind, Arc<str>, bool),
    arguments: Bytes,
    cx: ToolCx,
) -> Answer {
    let (answer, answered) = oneshot::channel();
    let (kind, name, is_async) = subject;
    let deadline = cx.deadline;
    let mut answer = Some(answer);
    let id = match scheduler.resume((kind, &name), &cx, &mut answer) {
        Some(resumed) => resumed?,
        None => {
            let Some(answer) = answer.take() else {
                return Err(ToolError::broken("the call was lost"));
            };
            scheduler.submit(Call {
                kind,
                name,
                is_async,
                arguments,
                cx,
                answer,
            })?
        }
    };
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
