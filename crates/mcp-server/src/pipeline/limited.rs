//! The layer that shortens results which are too long for their clients.

use crate::{
    invocation::{Invocation, Invoked, failure::InvocationError},
    offer::results::ResultLimits,
    pipeline::governed::Admitted,
};
use mcp_service::{RequestCx, Service};
use redaction::Redactor;
use std::sync::Arc;

/// Shortens results of tools, and keeps the whole of them. Everything outside, the ledger included, has the result as the
/// client gets it; the record of the call has the digest of the whole.
#[derive(Debug)]
pub(crate) struct Limited<S> {
    inner: S,
    results: Option<Arc<ResultLimits>>,
    redactor: Arc<Redactor>,
}

impl<S> Limited<S> {
    pub(crate) fn new(
        inner: S,
        results: Option<Arc<ResultLimits>>,
        redactor: Arc<Redactor>,
    ) -> Self {
        Self {
            inner,
            results,
            redactor,
        }
    }
}

impl<S> Service<Admitted<Invocation>> for Limited<S>
where
    S: Service<Admitted<Invocation>, Response = Invoked, Error = InvocationError>,
{
    type Response = Invoked;
    type Error = InvocationError;

    async fn call(
        &self,
        cx: &RequestCx,
        admitted: Admitted<Invocation>,
    ) -> Result<Invoked, InvocationError> {
        match &self.results {
            None => self.inner.call(cx, admitted).await,
            Some(results) => Box::pin(self.call_limited(cx, admitted, results)).await,
        }
    }
}

impl<S> Limited<S>
where
    S: Service<Admitted<Invocation>, Response = Invoked, Error = InvocationError>,
{
    async fn call_limited(
        &self,
        cx: &RequestCx,
        admitted: Admitted<Invocation>,
        results: &ResultLimits,
    ) -> Result<Invoked, InvocationError> {
        let invocation = admitted.inner();
        let limited = invocation.limited_by(cx, results);
        let report = Arc::clone(&invocation.report);
        let outcome = self.inner.call(cx, admitted).await;
        let Some(limited) = limited else {
            return outcome;
        };
        let (outcome, whole) = match outcome {
            Ok(Invoked::Tool(result)) => {
                let shortened = results.shorten(cx, &limited, &self.redactor, result);
                let (result, whole) = shortened.await;
                (Ok(Invoked::Tool(result)), whole)
            }
            Err(InvocationError::Tool(error)) => {
                let shortened = results.shorten_failure(cx, &limited, &self.redactor, error);
                let (error, whole) = shortened.await;
                (Err(InvocationError::Tool(error)), whole)
            }
            outcome => (outcome, None),
        };
        if let Some(whole) = whole {
            report.shortened(whole);
        }
        outcome
    }
}
