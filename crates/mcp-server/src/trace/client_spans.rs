//! Spans of a tool's outgoing requests: of HTTP, and of other MCP servers.

use crate::trace::tracer::{Tracer, place_of};
use adapter_tools::{Errand, Hop, OpenErrand, TraceErrands};
use opentelemetry::{
    KeyValue,
    trace::{Span as _, SpanContext, SpanKind, Status},
};
use opentelemetry_sdk::trace::Span;

/// Makes spans of what a tool asks of HTTP services, by the conventions for HTTP clients. Paths and
/// queries are left out: they hold arguments.
pub(super) struct ClientSpans {
    tracer: Tracer,
    parent: SpanContext,
}

impl ClientSpans {
    pub(super) fn below(tracer: &Tracer, parent: &SpanContext) -> Self {
        Self {
            tracer: tracer.clone(),
            parent: parent.clone(),
        }
    }
}

impl TraceErrands for ClientSpans {
    fn begin(&self, errand: &Errand<'_>) -> Box<dyn OpenErrand> {
        let default_port = match errand.scheme {
            "https" => 443,
            _ => 80,
        };
        let port = errand.port.unwrap_or(default_port);
        let mut attributes = vec![
            KeyValue::new("http.request.method", errand.method.to_owned()),
            KeyValue::new("url.scheme", errand.scheme.to_owned()),
            KeyValue::new("server.address", errand.host.to_owned()),
            KeyValue::new("server.port", i64::from(port)),
        ];
        if errand.resent != 0 {
            let resent = i64::from(errand.resent);
            attributes.push(KeyValue::new("http.request.resend_count", resent));
        }
        let name = errand.method.to_owned();
        let parent = Some(self.parent.clone());
        Box::new(Open {
            span: self
                .tracer
                .begin(name, SpanKind::Client, parent, attributes),
            is_over: false,
        })
    }

    /// By the conventions for MCP clients.
    fn begin_hop(&self, hop: &Hop<'_>) -> Option<Box<dyn OpenErrand>> {
        let transport = if hop.is_child { "pipe" } else { "tcp" };
        let mut attributes = vec![
            KeyValue::new("mcp.method.name", hop.method),
            KeyValue::new("mcp.protocol.version", hop.revision),
            KeyValue::new("network.transport", transport),
            KeyValue::new("owlclaw.upstream.name", hop.upstream.to_owned()),
        ];
        let mut name = hop.method.to_owned();
        if let Some(item) = hop.item {
            let key = match hop.method {
                "prompts/get" => "gen_ai.prompt.name",
                _ => "gen_ai.tool.name",
            };
            attributes.push(KeyValue::new(key, item.to_owned()));
            name = format!("{name} {item}");
        }
        let parent = Some(self.parent.clone());
        let span = self
            .tracer
            .begin(name, SpanKind::Client, parent, attributes);
        Some(Box::new(Open {
            span,
            is_over: false,
        }))
    }
}

struct Open {
    span: Span,
    is_over: bool,
}

impl Open {
    fn fail(&mut self, kind: impl Into<opentelemetry::Value>) {
        self.is_over = true;
        self.span
            .set_attribute(KeyValue::new("error.type", kind.into()));
        self.span.set_status(Status::error(""));
    }
}

impl OpenErrand for Open {
    fn traceparent(&self) -> String {
        let place = place_of(self.span.span_context());
        place.map(|it| it.traceparent()).unwrap_or_default()
    }

    fn tracestate(&self) -> Option<String> {
        let place = place_of(self.span.span_context())?;
        place.tracestate().map(str::to_owned)
    }

    fn answered(mut self: Box<Self>, status: u16) {
        self.is_over = true;
        if status == 0 {
            return;
        }
        let code = KeyValue::new("http.response.status_code", i64::from(status));
        self.span.set_attribute(code);
        if 400 <= status {
            self.fail(status.to_string());
        }
    }

    fn failed(mut self: Box<Self>, kind: &'static str) {
        self.fail(kind);
    }
}

impl Drop for Open {
    /// The span itself ends with it.
    fn drop(&mut self) {
        if !self.is_over {
            self.fail("cancelled");
        }
    }
}
