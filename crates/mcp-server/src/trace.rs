//! Requests as spans: one for each request, one for each tool that runs for it, and one for each
//! request that the tool makes of an HTTP service.
//!
//! Names and attributes are those of OpenTelemetry's conventions for MCP and for generative AI, with
//! ours under `owlclaw.` and Langfuse's under `langfuse.`; `docs/telemetry.md` lists them. Nothing of
//! arguments and results is in any of them unless [`Capture::Redacted`] says so, texts of errors
//! included, which may quote them.
//!
//! Without a tracer none of this does anything.

mod attributes;
mod client_spans;
pub(crate) mod handler;
pub(crate) mod tracer;

use crate::{
    invocation::{
        Invocation, Invoked, call_report::CallReport, failure::InvocationError, outcome::charge_of,
    },
    offer::Offer,
    trace::tracer::{RequestSpan, Tracer, context_of, dollars},
};
use arc_swap::ArcSwap;
use ledger::Outcome;
use mcp_protocol::model::{ClientRequest, ServerResult};
use mcp_service::{McpError, RequestCx, Service};
use opentelemetry::{
    KeyValue,
    trace::{Span as _, SpanKind, Status},
};
use opentelemetry_sdk::trace::Span;
use std::{borrow::Cow, sync::Arc};

/// Ends the span of a request; as one that was given up, if nothing else is said.
struct Ending(Arc<RequestSpan>);

impl Ending {
    fn failed(&self, kind: Cow<'static, str>, text: &str) {
        let text = self.0.tracer.text(text);
        let mut span = self.0.lock();
        span.set_attribute(KeyValue::new("error.type", kind));
        span.set_status(Status::error(text));
        span.end();
    }

    fn succeeded(&self) {
        self.0.lock().end();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut span = self.0.lock();
        // Not once it has ended.
        if span.is_recording() {
            let kind = match std::thread::panicking() {
                true => "panic",
                false => "cancelled",
            };
            span.set_attribute(KeyValue::new("error.type", kind));
            span.set_status(Status::error(""));
            span.end();
        }
    }
}

/// Makes a span of each request.
#[derive(Debug)]
pub struct TracedRequests<S> {
    inner: S,
    tracer: Option<Tracer>,
    offer: Arc<ArcSwap<Offer>>,
}

impl<S> TracedRequests<S> {
    pub(crate) fn new(inner: S, tracer: Option<Tracer>, offer: Arc<ArcSwap<Offer>>) -> Self {
        Self {
            inner,
            tracer,
            offer,
        }
    }

    fn enter(&self, tracer: &Tracer, cx: &RequestCx, request: &ClientRequest) -> Ending {
        let (name, attributes) = attributes::of_request(cx, request, &self.offer.load());
        let parent = cx.parent_trace().map(context_of);
        let mut span = tracer.begin(name, SpanKind::Server, parent, attributes);
        // What carried the request is in a trace of its own, if it says so.
        if let (Some(own), Some(carrier)) = (&cx.meta.trace, &cx.carrier)
            && own != carrier
        {
            span.add_link(context_of(carrier), Vec::new());
        }
        Ending(RequestSpan::enter(tracer, cx, span))
    }
}

impl<S> Service<ClientRequest> for TracedRequests<S>
where
    S: Service<ClientRequest, Response = ServerResult, Error = McpError>,
{
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, cx: &RequestCx, request: ClientRequest) -> Result<ServerResult, McpError> {
        match &self.tracer {
            None => self.inner.call(cx, request).await,
            Some(tracer) => Box::pin(self.call_traced(cx, request, tracer)).await,
        }
    }
}

impl<S> TracedRequests<S>
where
    S: Service<ClientRequest, Response = ServerResult, Error = McpError>,
{
    async fn call_traced(
        &self,
        cx: &RequestCx,
        request: ClientRequest,
        tracer: &Tracer,
    ) -> Result<ServerResult, McpError> {
        let ending = self.enter(tracer, cx, &request);
        let outcome = self.inner.call(cx, request).await;
        match &outcome {
            Ok(ServerResult::CallTool(result)) if result.is_error => {
                ending.failed("tool_error".into(), "");
            }
            Ok(ServerResult::CreateTask(task)) => {
                let id = KeyValue::new("owlclaw.task.id", task.id.clone());
                ending.0.lock().set_attribute(id);
                ending.succeeded();
            }
            Ok(_) => ending.succeeded(),
            Err(McpError(error)) => {
                let code = error.code.0.to_string();
                let status = KeyValue::new("rpc.response.status_code", code.clone());
                ending.0.lock().set_attribute(status);
                ending.failed(code.into(), &error.message);
            }
        }
        outcome
    }
}

/// Adds the decision about a call, and its cost, to the span of its request.
#[derive(Debug)]
pub(crate) struct TracedCalls<S> {
    inner: S,
    tracer: Option<Tracer>,
}

impl<S> TracedCalls<S> {
    pub(crate) fn new(inner: S, tracer: Option<Tracer>) -> Self {
        Self { inner, tracer }
    }
}

impl<S> Service<Invocation> for TracedCalls<S>
where
    S: Service<Invocation, Response = Invoked, Error = InvocationError>,
{
    type Response = Invoked;
    type Error = InvocationError;

    async fn call(
        &self,
        cx: &RequestCx,
        invocation: Invocation,
    ) -> Result<Invoked, InvocationError> {
        match &self.tracer {
            None => self.inner.call(cx, invocation).await,
            Some(tracer) => Box::pin(self.call_traced(cx, invocation, tracer)).await,
        }
    }
}

impl<S> TracedCalls<S>
where
    S: Service<Invocation, Response = Invoked, Error = InvocationError>,
{
    async fn call_traced(
        &self,
        cx: &RequestCx,
        invocation: Invocation,
        tracer: &Tracer,
    ) -> Result<Invoked, InvocationError> {
        // A call that is begun again has no request: its own span is the trace's next.
        let ending = cx.span::<RequestSpan>().is_none().then(|| {
            let (name, attributes) = attributes::of_rerun(cx, &invocation);
            let parent = cx.parent_trace().map(context_of);
            let span = tracer.begin(name, SpanKind::Internal, parent, attributes);
            Ending(RequestSpan::enter(tracer, cx, span))
        });
        let report = Arc::clone(&invocation.report);
        let outcome = self.inner.call(cx, invocation).await;
        if let Some(span) = cx.span::<RequestSpan>() {
            note(&mut span.lock(), &outcome, &report);
        }
        match (ending, &outcome) {
            (Some(ending), Err(error)) => {
                let code = error.meaning().code.to_string();
                ending.failed(code.into(), &error.for_the_record());
            }
            (Some(ending), Ok(_)) => ending.succeeded(),
            (None, _) => {}
        }
        outcome
    }
}

fn note(span: &mut Span, outcome: &Result<Invoked, InvocationError>, report: &CallReport) {
    let (decision, reason) = match outcome {
        Ok(Invoked::NeedsConfirmation(_)) => ("confirm", None),
        Ok(_) => ("allow", None),
        Err(error) => match error.meaning().outcome {
            Outcome::Denied { reason } => ("deny", Some(reason)),
            _ => ("allow", None),
        },
    };
    span.set_attribute(KeyValue::new("owlclaw.decision", decision));
    if let Some(reason) = reason {
        span.set_attribute(KeyValue::new("owlclaw.reason", reason));
    }
    if let Some(call) = report.call() {
        span.set_attribute(KeyValue::new("owlclaw.call.id", call.to_string()));
        // Whoever settles it has asked before.
        let cost = report.cost(charge_of(outcome), governance::Micros::ZERO);
        span.set_attribute(KeyValue::new("owlclaw.cost", dollars(cost)));
    }
}
