//! The layer that ends calls at their deadline.

use crate::{
    invocation::{Invocation, call_report::CallReport, failure::InvocationError},
    pipeline::governed::Admitted,
};
use adapter_tools::ToolError;
use mcp_service::{GivingUp, RequestCx, Service};
use std::{
    sync::Arc,
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
        let admitted = admitted.until(Instant::now() + timeout);
        let report = Arc::clone(&admitted.inner().report);
        let handover = admitted.inner().handover.clone();
        let was_task = admitted.inner().task.is_some();
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
        let called = tokio::time::timeout(timeout, self.inner.call(cx, admitted));
        let called = tokio::select! {
            // What is ready at once costs no look at the other.
            biased;
            called = called => called,
            () = stopped => {
                has_ended(&report).await;
                return Err(InvocationError::Stopped(report.call()));
            }
        };
        match called {
            // A handler that noticed first says the same with less to show.
            Ok(Err(InvocationError::Tool(ToolError::TimedOut))) | Err(_) => {
                has_ended(&report).await;
                Err(InvocationError::TimedOut(timeout))
            }
            Ok(outcome) => outcome,
        }
    }
}

/// The time that a handler has to notice that its call was given up, before the call is answered.
const NOTICING: Duration = Duration::from_millis(200);

/// Waits for a call that was given up to end, for what it meters meanwhile. Not for long: the
/// caller waits.
async fn has_ended(report: &CallReport) {
    let _ = tokio::time::timeout(NOTICING, report.meter().unused()).await;
}
