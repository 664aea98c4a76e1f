//! Names and attributes of spans.

use crate::{
    invocation::{Invocation, Target},
    offer::Offer,
    trace::tracer::beginning,
};
use mcp_protocol::{Method, model::ClientRequest};
use mcp_service::{RequestCx, TransportKind};
use opentelemetry::KeyValue;
use std::sync::Arc;

/// The most bytes of what a client may have chosen: ids, and addresses of resources.
const MAX_CHOSEN_BYTES: usize = 256;

/// The span of a request. What it is of is named only if there is such a thing: names would be as
/// many as clients like.
pub(super) fn of_request(
    cx: &RequestCx,
    request: &ClientRequest,
    offer: &Offer,
) -> (String, Vec<KeyValue>) {
    let method = Method::of(request).name();
    let mut attributes = of_anything(cx);
    attributes.push(KeyValue::new("mcp.method.name", method));
    attributes.push(KeyValue::new("mcp.protocol.version", cx.version.as_str()));
    attributes.push(text("jsonrpc.request.id", &cx.id.to_string()));
    let transport = match cx.transport {
        TransportKind::Stdio => "pipe",
        TransportKind::Http | TransportKind::WebSocket => "tcp",
    };
    attributes.push(KeyValue::new("network.transport", transport));
    match cx.transport {
        TransportKind::Stdio => {}
        transport @ (TransportKind::Http | TransportKind::WebSocket) => {
            let name = transport.as_str();
            attributes.push(KeyValue::new("network.protocol.name", name));
        }
    }
    attributes.push(KeyValue::new("langfuse.observation.type", "span"));
    let mut name = method.to_owned();
    match request {
        ClientRequest::CallTool(call) => {
            attributes.push(KeyValue::new("gen_ai.operation.name", "execute_tool"));
            if offer.tools().get(&call.name).is_some() {
                attributes.push(KeyValue::new("gen_ai.tool.name", call.name.clone()));
                name = format!("{method} {}", call.name);
            }
        }
        ClientRequest::GetPrompt(get) => {
            let mut entries = offer.prompts().entries().iter();
            if entries.any(|it| it.name == get.name) {
                attributes.push(KeyValue::new("gen_ai.prompt.name", get.name.clone()));
                name = format!("{method} {}", get.name);
            }
        }
        ClientRequest::ReadResource(read) => {
            if let Some(uri) = offer.resources().canonical(&read.uri) {
                attributes.push(text("mcp.resource.uri", &uri));
            }
        }
        ClientRequest::Subscribe(uri) | ClientRequest::Unsubscribe(uri) => {
            if let Some(uri) = offer.resources().canonical(uri) {
                attributes.push(text("mcp.resource.uri", &uri));
            }
        }
        _ => {}
    }
    (name, attributes)
}

/// The span of a call that is begun again without a request.
pub(super) fn of_rerun(cx: &RequestCx, invocation: &Invocation) -> (String, Vec<KeyValue>) {
    let mut attributes = of_anything(cx);
    attributes.push(KeyValue::new("langfuse.observation.type", "span"));
    attributes.push(KeyValue::new("owlclaw.rerun", invocation.is_rerun));
    if let Some(task) = invocation.task() {
        attributes.push(KeyValue::new("owlclaw.task.id", task.to_owned()));
    }
    let name = match &invocation.target {
        Target::Tool(name) if invocation.exists() => {
            attributes.push(KeyValue::new("gen_ai.tool.name", Arc::clone(name)));
            format!("{} {name}", invocation.method().name())
        }
        _ => invocation.method().name().to_owned(),
    };
    (name, attributes)
}

/// The span of a tool that runs.
pub(super) fn of_handler(cx: &RequestCx, invocation: &Invocation, name: &str) -> Vec<KeyValue> {
    let mut attributes = of_anything(cx);
    attributes.push(KeyValue::new("gen_ai.operation.name", "execute_tool"));
    attributes.push(KeyValue::new("gen_ai.tool.name", name.to_owned()));
    attributes.push(KeyValue::new("langfuse.observation.type", "tool"));
    if let Some(call) = invocation.report.call() {
        attributes.push(KeyValue::new("owlclaw.call.id", call.to_string()));
    }
    attributes
}

/// Caller and session: attributes of every span, since Langfuse finds spans by them and not traces.
fn of_anything(cx: &RequestCx) -> Vec<KeyValue> {
    let principal = cx.principal.as_str();
    // As many as a span of a request has.
    let mut attributes = Vec::with_capacity(16);
    attributes.push(KeyValue::new("owlclaw.principal", principal.to_owned()));
    attributes.push(KeyValue::new("user.id", principal.to_owned()));
    if let Some(session) = &cx.session {
        attributes.push(text("mcp.session.id", session));
        attributes.push(text("session.id", session));
    }
    attributes
}

fn text(key: &'static str, value: &str) -> KeyValue {
    KeyValue::new(key, beginning(value, MAX_CHOSEN_BYTES).to_owned())
}
