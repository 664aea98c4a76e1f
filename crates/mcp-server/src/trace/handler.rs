//! The span of a tool that runs.

use crate::{
    invocation::{
        Invocation, Invoked,
        call_report::CallReport,
        failure::InvocationError,
        handover::Handover,
        outcome::{charge_of, recorded_result},
    },
    trace::{
        attributes,
        client_spans::ClientSpans,
        tracer::{RequestSpan, Tracer, cut, dollars, place_of},
    },
};
use adapter_tools::ToolCx;
use governance::Micros;
use mcp_service::RequestCx;
use opentelemetry::{
    KeyValue,
    trace::{Span as _, SpanContext, SpanKind, Status},
};
use opentelemetry_sdk::trace::Span;
use serde_json::json;
use std::{sync::Arc, time::Instant};

/// The span of a tool that runs. It is over when that is, which may be long after the request was
/// answered; dropped before, it says that the call was given up.
#[derive(Debug)]
pub(crate) struct HandlerSpan {
    tracer: Tracer,
    context: SpanContext,
    span: Span,
    capability: Arc<str>,
    report: Arc<CallReport>,
    estimate: Micros,
    deadline: Option<Instant>,
    /// The way to become a task, if the call is none yet.
    handover: Option<Arc<Handover>>,
    is_over: bool,
}

impl HandlerSpan {
    /// Begins it, if the request is traced. `estimate` is the cost of the call unless a better
    /// figure is known.
    pub(crate) fn begin(
        cx: &RequestCx,
        invocation: &Invocation,
        name: &str,
        estimate: Micros,
        deadline: Option<Instant>,
    ) -> Option<Box<Self>> {
        let request = cx.span::<RequestSpan>()?;
        let tracer = request.tracer.clone();
        let attributes = attributes::of_handler(cx, invocation, name);
        let parent = Some(request.context.clone());
        let title = format!("execute_tool {name}");
        let mut span = tracer.begin(title, SpanKind::Internal, parent, attributes);
        // Once: what is said twice is there twice.
        let task = invocation.task();
        if let Some(task) = task {
            span.set_attribute(task_id(task));
        }
        if tracer.captures() && span.is_recording() {
            let sent = invocation.arguments.as_str();
            let arguments = cut(&tracer.0.redactor.json(&invocation.capability, sent));
            span.set_attribute(KeyValue::new(
                "gen_ai.tool.call.arguments",
                arguments.clone(),
            ));
            span.set_attribute(KeyValue::new("langfuse.observation.input", arguments));
        }
        Some(Box::new(Self {
            context: span.span_context().clone(),
            tracer,
            span,
            capability: invocation.capability.clone(),
            report: Arc::clone(&invocation.report),
            estimate,
            deadline,
            handover: invocation.handover.clone().filter(|_| task.is_none()),
            is_over: false,
        }))
    }

    /// Places the tool, and its requests of other systems, below this span.
    pub(crate) fn around(&self, tool_cx: ToolCx) -> ToolCx {
        let Some(place) = place_of(&self.context) else {
            return tool_cx;
        };
        let errands = ClientSpans::below(&self.tracer, &self.context);
        tool_cx
            .with_trace(place.traceparent(), place.tracestate())
            .with_errands(Arc::new(errands))
    }

    /// Ends the span with the call.
    pub(crate) fn ended(mut self, outcome: &Result<Invoked, InvocationError>) {
        self.is_over = true;
        if !self.span.is_recording() {
            return;
        }
        self.say_task();
        let cost = self.report.cost(charge_of(outcome), self.estimate);
        self.say_cost(cost);
        match outcome {
            Ok(Invoked::Tool(result)) => {
                if self.tracer.captures() {
                    let redactor = &self.tracer.0.redactor;
                    let text = cut(&recorded_result(result, &self.capability, redactor));
                    let copy = KeyValue::new("gen_ai.tool.call.result", text.clone());
                    self.span.set_attribute(copy);
                    self.span
                        .set_attribute(KeyValue::new("langfuse.observation.output", text));
                }
                if result.is_error {
                    self.fail("tool_error", "");
                }
            }
            Ok(_) => {}
            Err(error) => {
                let text = error.for_the_record();
                self.fail(error.meaning().span, &text);
            }
        }
    }

    /// The task that it has become since it began.
    fn say_task(&mut self) {
        if let Some(task) = self.handover.as_ref().and_then(|it| it.task()) {
            self.span.set_attribute(task_id(task));
        }
    }

    fn fail(&mut self, kind: &'static str, text: &str) {
        let text = self.tracer.text(text);
        self.span.set_attribute(KeyValue::new("error.type", kind));
        self.span.set_status(Status::error(text));
    }

    /// On this span alone as Langfuse reads it, or it would count it twice.
    fn say_cost(&mut self, cost: Micros) {
        let total = dollars(cost);
        let mut say = |attribute| self.span.set_attribute(attribute);
        say(KeyValue::new("owlclaw.cost", total));
        let details = json!({ "total": total }).to_string();
        say(KeyValue::new("langfuse.observation.cost_details", details));
        let meter = self.report.meter();
        let (tokens_in, tokens_out) = meter.tokens();
        let counts = [
            ("gen_ai.usage.input_tokens", tokens_in),
            ("gen_ai.usage.output_tokens", tokens_out),
        ];
        for (key, count) in counts.into_iter().filter(|(_, count)| *count != 0) {
            say(KeyValue::new(key, i64::try_from(count).unwrap_or(i64::MAX)));
        }
        if let Some(model) = meter.model() {
            say(KeyValue::new("gen_ai.response.model", model.to_owned()));
        }
    }
}

impl Drop for HandlerSpan {
    /// The span itself ends with it.
    fn drop(&mut self) {
        if self.is_over || !self.span.is_recording() {
            return;
        }
        let is_late = self.deadline.is_some_and(|it| it <= Instant::now());
        let kind = match is_late {
            _ if std::thread::panicking() => "panic",
            true => "timeout",
            false => "cancelled",
        };
        self.say_task();
        let cost = self.report.cost_given_up(self.estimate);
        self.say_cost(cost);
        self.fail(kind, "");
    }
}

fn task_id(task: &str) -> KeyValue {
    KeyValue::new("owlclaw.task.id", task.to_owned())
}
