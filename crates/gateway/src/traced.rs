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
mod errands;
mod handler;

pub(crate) use self::handler::HandlerSpan;

use crate::{Invocation, InvocationError, Invoked, Offer, Tally};
use arc_swap::ArcSwap;
use ledger::Outcome;
use mcp_protocol::{
    TraceContext,
    model::{ClientRequest, ServerResult},
};
use mcp_service::{McpError, RequestCx, Service};
use opentelemetry::{
    Context, KeyValue,
    trace::{
        Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
        TraceState, Tracer as _,
    },
};
use opentelemetry_sdk::trace::{SdkTracer, Span};
use redaction::Redactor;
use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The most bytes of arguments, and of a result, that a span has.
const MAX_CAPTURED_BYTES: usize = 16 * 1024;

/// How requests are traced.
#[derive(Clone, Debug)]
pub struct Tracing {
    /// What makes spans of them.
    pub tracer: SdkTracer,
    /// What spans have of what was said.
    pub capture: Capture,
}

/// What spans have of what was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capture {
    /// Nothing of arguments, results and texts of errors.
    #[default]
    None,
    /// These, as the ledger has them: without secrets, and cut.
    Redacted,
}

/// What spans are made with.
#[derive(Clone)]
pub(crate) struct Tracer(Arc<Inner>);

struct Inner {
    tracer: SdkTracer,
    capture: Capture,
    redactor: Arc<Redactor>,
}

impl Tracer {
    pub(crate) fn new(tracing: Tracing, redactor: Arc<Redactor>) -> Self {
        let Tracing { tracer, capture } = tracing;
        Self(Arc::new(Inner {
            tracer,
            capture,
            redactor,
        }))
    }

    fn begin(
        &self,
        name: impl Into<Cow<'static, str>>,
        kind: SpanKind,
        parent: Option<SpanContext>,
        attributes: Vec<KeyValue>,
    ) -> Span {
        let builder = self.0.tracer.span_builder(name);
        let builder = builder.with_kind(kind).with_attributes(attributes);
        let context = match parent {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        self.0.tracer.build_with_context(builder, &context)
    }

    fn captures(&self) -> bool {
        self.0.capture == Capture::Redacted
    }

    /// A text of ours about a failure, if such texts are wanted.
    fn text(&self, text: &str) -> String {
        match self.0.capture {
            Capture::None => String::new(),
            Capture::Redacted => cut(&self.0.redactor.text(text)),
        }
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer")
            .field("capture", &self.0.capture)
            .finish_non_exhaustive()
    }
}

/// The span of a request, for all that happens in it.
#[derive(Debug)]
struct RequestSpan {
    tracer: Tracer,
    context: SpanContext,
    span: Mutex<Span>,
}

impl RequestSpan {
    /// Makes a span of the request, and says so to everybody who handles it.
    fn enter(tracer: &Tracer, cx: &RequestCx, span: Span) -> Arc<Self> {
        let context = span.span_context().clone();
        let place = place_of(&context);
        let this = Arc::new(Self {
            tracer: tracer.clone(),
            context,
            span: Mutex::new(span),
        });
        if let Some(place) = place {
            cx.enter_span(place, Arc::clone(&this) as _);
        }
        this
    }

    fn lock(&self) -> MutexGuard<'_, Span> {
        self.span.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
        let Some(tracer) = &self.tracer else {
            return self.inner.call(cx, request).await;
        };
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

/// Says of the span of a request what was decided about it and what it has cost.
#[derive(Debug)]
pub struct TracedCalls<S> {
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
        let Some(tracer) = &self.tracer else {
            return self.inner.call(cx, invocation).await;
        };
        // A call that is begun again has no request: its own span is the trace's next.
        let ending = cx.span::<RequestSpan>().is_none().then(|| {
            let (name, attributes) = attributes::of_rerun(cx, &invocation);
            let parent = cx.parent_trace().map(context_of);
            let span = tracer.begin(name, SpanKind::Internal, parent, attributes);
            Ending(RequestSpan::enter(tracer, cx, span))
        });
        let tally = Arc::clone(&invocation.tally);
        let outcome = self.inner.call(cx, invocation).await;
        if let Some(span) = cx.span::<RequestSpan>() {
            note(&mut span.lock(), &outcome, &tally);
        }
        match (ending, &outcome) {
            (Some(ending), Err(error)) => {
                let code = error.founding_code().to_string();
                ending.failed(code.into(), &error.for_the_record());
            }
            (Some(ending), Ok(_)) => ending.succeeded(),
            (None, _) => {}
        }
        outcome
    }
}

fn note(span: &mut Span, outcome: &Result<Invoked, InvocationError>, tally: &Tally) {
    let (decision, reason) = match outcome {
        Ok(Invoked::NeedsConfirmation(_)) => ("confirm", None),
        Ok(_) => ("allow", None),
        Err(error) => match error.outcome() {
            Outcome::Denied { reason } => ("deny", Some(reason)),
            _ => ("allow", None),
        },
    };
    span.set_attribute(KeyValue::new("owlclaw.decision", decision));
    if let Some(reason) = reason {
        span.set_attribute(KeyValue::new("owlclaw.reason", reason));
    }
    if let Some(call) = tally.call() {
        span.set_attribute(KeyValue::new("owlclaw.call.id", call.to_string()));
        // Whoever settles it has asked before.
        let cost = tally.cost(outcome, governance::Micros::ZERO);
        span.set_attribute(KeyValue::new("owlclaw.cost", dollars(cost)));
    }
}

/// Millionths as what they are millionths of.
#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to nine thousand million"
)]
fn dollars(micros: governance::Micros) -> f64 {
    micros.0 as f64 / 1e6
}

/// Where a span is, for those outside.
fn place_of(context: &SpanContext) -> Option<TraceContext> {
    let state = context.trace_state().header();
    let place = TraceContext::new(
        context.trace_id().to_bytes(),
        context.span_id().to_bytes(),
        context.trace_flags().to_u8(),
    )?;
    Some(place.with_state(Some(&state)))
}

/// The same the other way round, of a span of somebody else's.
fn context_of(place: &TraceContext) -> SpanContext {
    let state = place.tracestate();
    let state = state.and_then(|it| it.parse::<TraceState>().ok());
    SpanContext::new(
        TraceId::from_bytes(place.trace_id()),
        SpanId::from_bytes(place.span_id()),
        TraceFlags::new(place.flags()),
        true,
        state.unwrap_or_default(),
    )
}

fn cut(text: &str) -> String {
    beginning(text, MAX_CAPTURED_BYTES).to_owned()
}

/// At most so many bytes of a text that may be long.
fn beginning(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_the_way_there_and_back() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for state in [None, Some("a=1,b=2")] {
            let place = TraceContext::parse(parent, state).unwrap();
            assert_eq!(place_of(&context_of(&place)), Some(place));
        }
        assert_eq!(place_of(&SpanContext::NONE), None);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = "é".repeat(MAX_CAPTURED_BYTES);
        assert_eq!(cut(&long).len(), MAX_CAPTURED_BYTES);
        assert_eq!(cut(&format!("x{long}")).len(), MAX_CAPTURED_BYTES - 1);
    }
}
