//! The tracer: begins spans, and holds what they are called with.

use mcp_protocol::TraceContext;
use mcp_service::RequestCx;
use opentelemetry::{
    Context, KeyValue,
    trace::{
        Span as _, SpanContext, SpanId, SpanKind, TraceContextExt, TraceFlags, TraceId, TraceState,
        Tracer as _,
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

/// Settings of tracing.
#[derive(Clone, Debug)]
pub struct Tracing {
    /// Maker of spans.
    pub tracer: SdkTracer,
    /// Contents of messages in spans.
    pub capture: Capture,
}

/// Contents of messages in spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capture {
    /// No arguments, results or texts of errors.
    #[default]
    None,
    /// Arguments, results and texts of errors as the ledger has them: without secrets, and cut.
    Redacted,
}

/// The tracer and its settings.
#[derive(Clone)]
pub(crate) struct Tracer(pub(super) Arc<Inner>);

pub(super) struct Inner {
    tracer: SdkTracer,
    capture: Capture,
    pub(super) redactor: Arc<Redactor>,
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

    pub(super) fn begin(
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

    pub(super) fn captures(&self) -> bool {
        self.0.capture == Capture::Redacted
    }

    /// A text of ours about a failure, if such texts are wanted.
    pub(super) fn text(&self, text: &str) -> String {
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
pub(super) struct RequestSpan {
    pub(super) tracer: Tracer,
    pub(super) context: SpanContext,
    span: Mutex<Span>,
}

impl RequestSpan {
    /// Makes a span of the request, and attaches it for all layers that handle it.
    pub(super) fn enter(tracer: &Tracer, cx: &RequestCx, span: Span) -> Arc<Self> {
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

    pub(super) fn lock(&self) -> MutexGuard<'_, Span> {
        self.span.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Millionths as what they are millionths of.
#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to nine thousand million"
)]
pub(super) fn dollars(micros: governance::Micros) -> f64 {
    micros.0 as f64 / 1e6
}

/// Place of a span, for other processes.
pub(super) fn place_of(context: &SpanContext) -> Option<TraceContext> {
    let state = context.trace_state().header();
    let place = TraceContext::new(
        context.trace_id().to_bytes(),
        context.span_id().to_bytes(),
        context.trace_flags().to_u8(),
    )?;
    Some(place.with_state(Some(&state)))
}

/// The same the other way round, of another system's span.
pub(super) fn context_of(place: &TraceContext) -> SpanContext {
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

pub(super) fn cut(text: &str) -> String {
    beginning(text, MAX_CAPTURED_BYTES).to_owned()
}

/// The first `most` bytes, or fewer so that no character is cut.
pub(super) fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
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
