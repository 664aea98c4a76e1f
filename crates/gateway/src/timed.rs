use crate::{Admitted, Invocation, InvocationError, Target};
use adapter_tools::ToolError;
use mcp_service::{RequestCx, Service};
use std::time::{Duration, Instant};

/// Gives up on what is not done by its deadline (R5.10, R9.6).
#[derive(Debug)]
pub struct Timed<S> {
    inner: S,
    default_timeout: Duration,
}

impl<S> Timed<S> {
    pub(crate) fn new(inner: S, default_timeout: Duration) -> Self {
        Self {
            inner,
            default_timeout,
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
        let own = match &invocation.target {
            Target::Tool(name) => invocation
                .offer
                .tools()
                .get(name)
                .and_then(|tool| tool.timeout()),
            Target::Resource(_) | Target::Prompt(..) => None,
        };
        let timeout = own.unwrap_or(self.default_timeout);
        // It was let through and is on record: what it can be refused for lies behind it.
        if let Some(handover) = &invocation.handover {
            handover.begin();
        }
        // The handler is told as well: it may be a process that outlives the future.
        let admitted = admitted.until(Instant::now() + timeout);
        match tokio::time::timeout(timeout, self.inner.call(cx, admitted)).await {
            // A handler that noticed first says the same with less to show.
            Ok(Err(InvocationError::Tool(ToolError::TimedOut))) => {
                Err(InvocationError::TimedOut(timeout))
            }
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(InvocationError::TimedOut(timeout)),
        }
    }
}
