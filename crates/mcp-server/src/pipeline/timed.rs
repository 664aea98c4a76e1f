//! The layer that ends calls at their deadline.

use crate::{
    invocation::{Invocation, call_report::CallReport, failure::InvocationError},
    pipeline::governed::Admitted,
};
use adapter_tools::ToolError;
use mcp_service::{GivingUp, RequestCx, Service};
use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

/// Gives up on what is not done by its deadline (R5.10, R9.6), or when the server stops or the client has
/// left and what still runs has had its time.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    inner: S,
    default_timeout: Duration,
    giving_up: Arc<GivingUp>,
}

impl<S> Timed<S> {
    pub(crate) fn new(inner: S, default_timeout: Duration, giving_up: Arc<GivingUp>) -> Self {
        Self {
            inner,
            default_timeout,
            giving_up,
        }
    }
}

impl<S> Service<Admitted<Invocation>> for Timed<S>
where
    S: Service<Admitted<Invocation>, Error = InvocationError>,
    S::Response: Send,
{
    type Response = S::Response;
    type Error = InvocationError;

    async fn call(
        &self,
        cx: &RequestCx,
        admitted: Admitted<Invocation>,
    ) -> Result<S::Response, InvocationError> {
        let invocation = admitted.inner();
        let own = invocation.tool.as_ref();
        let timeout = own
            .and_then(|it| it.tool.timeout())
            .unwrap_or(self.default_timeout);
        // It was let through and is on record: what it can be refused for lies behind it.
        if let Some(handover) = &invocation.handover {
            handover.begin();
        }
        // The handler is told as well: it may be a process that outlives the future.
        let deadline = Instant::now() + timeout;
        let admitted = admitted.until(deadline);
        let report = Arc::clone(&admitted.inner().report);
        let handover = admitted.inner().handover.clone();
        let was_task = admitted.inner().task.is_some();
        let ended = {
            let mut calling = pin!(self.inner.call(cx, admitted));
            // What is ready at once costs no timer and no look at anything else.
            match poll_fn(|cx| Poll::Ready(calling.as_mut().poll(cx))).await {
                Poll::Ready(outcome) => Ended::Done(outcome),
                Poll::Pending => {
                    let stopped = async {
                        tokio::select! {
                            () = self.giving_up.given_up() => {}
                            () = cx.given_up() => {}
                        }
                        // Nobody waits for a task: it ends with the server, and may be begun again.
                        if was_task || handover.is_some_and(|it| it.task().is_some()) {
                            std::future::pending::<()>().await;
                        }
                    };
                    let left = deadline.saturating_duration_since(Instant::now());
                    // It was polled just now: a handler that yields is to wait for its turn.
                    let mut was_polled = true;
                    let called = poll_fn(|cx| match std::mem::take(&mut was_polled) {
                        true => Poll::Pending,
                        false => calling.as_mut().poll(cx),
                    });
                    tokio::select! {
                        biased;
                        outcome = called => Ended::Done(outcome),
                        () = tokio::time::sleep(left) => Ended::Late,
                        () = stopped => Ended::Stopped,
                    }
                }
            }
        };
        // The call is dropped by now, which is how its handler notices.
        match ended {
            // A handler that noticed first says the same with less to show.
            Ended::Done(Err(InvocationError::Tool(ToolError::TimedOut))) | Ended::Late => {
                has_ended(&report).await;
                Err(InvocationError::TimedOut(timeout))
            }
            Ended::Done(outcome) => outcome,
            Ended::Stopped => {
                has_ended(&report).await;
                Err(InvocationError::Stopped {
                    call: report.call(),
                    has_begun: true,
                })
            }
        }
    }
}

/// End of a call, or of the time for it.
enum Ended<T> {
    Done(T),
    /// The deadline has passed.
    Late,
    /// The server stops, or the client has left.
    Stopped,
}

/// The time that a handler has to notice that its call was given up, before the call is answered.
const NOTICING: Duration = Duration::from_millis(200);

/// Waits for a call that was given up to end, for what it meters meanwhile. Not for long: the
/// caller waits.
async fn has_ended(report: &CallReport) {
    let _ = tokio::time::timeout(NOTICING, report.meter().unused()).await;
}
