//! The innermost layer: checks arguments and carries calls out.

use crate::{
    input::rounds::askable,
    invocation::{Invocation, Invoked, Target, failure::InvocationError},
    observe::log::is_made_up,
    offer::{
        OfferedTool,
        prompts::{PromptCx, PromptFailure},
        resources::ReadFailure,
    },
    pipeline::governed::Admitted,
    trace::handler::HandlerSpan,
};
use adapter_tools::{
    About, Content, LogLevel, LogSink, Needed, Progress, ResourceBody, ToolCx, ToolError,
    ToolOutput,
};
use governance::Denial;
use jsonrpc_core::RawJson;
use mcp_protocol::model::{self, CallToolResult, LoggingLevel, ResultMeta};
use mcp_service::{LogReporter, ProgressReporter, RequestCx, Service};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// Carries out admitted invocations.
#[derive(Debug)]
pub(crate) struct Runner {
    progress_after: Duration,
}

impl Runner {
    /// A runner that reports progress by itself for calls that take longer than `progress_after`
    /// (R5.8), and every so often after that.
    pub(crate) fn new(progress_after: Duration) -> Self {
        Self { progress_after }
    }

    async fn call_tool(
        &self,
        cx: &RequestCx,
        admitted: &Admitted<Invocation>,
        name: &str,
    ) -> Result<Invoked, InvocationError> {
        let invocation = admitted.inner();
        let OfferedTool { tool, .. } =
            &**invocation.tool.as_ref().ok_or(InvocationError::Unknown)?;
        // There is no other way to arguments than this check, so no tool runs without (D3).
        let arguments = tool
            .check(invocation.arguments.clone().into_bytes())
            .map_err(InvocationError::Invalid)?;
        let mut tool_cx = context_of(cx, admitted);
        if let Some(release) = cx.stream_release() {
            tool_cx = tool_cx.with_stream_release(Arc::new(move || release.close_stream()));
        }
        if let Some(handover) = &invocation.handover {
            tool_cx = tool_cx.with_task(Arc::clone(handover) as Arc<dyn adapter_tools::TaskHandle>);
        }
        let span = HandlerSpan::begin(
            cx,
            invocation,
            name,
            admitted.estimate(),
            admitted.deadline(),
        );
        if let Some(span) = &span {
            tool_cx = span.around(tool_cx);
        } else {
            tool_cx = traced(cx, tool_cx);
        }
        let reporter = cx.progress_reporter();
        // Nothing of it is there for a call whose progress nobody hears of.
        let spoken = (reporter.is_some() || invocation.handover.is_some())
            .then(|| Arc::new(AtomicBool::new(false)));
        if let Some(spoken) = &spoken {
            let (reporter, spoken) = (reporter.clone(), Arc::clone(spoken));
            let handover = invocation.handover.clone();
            tool_cx = tool_cx.with_progress(Arc::new(move |it: Progress| {
                if let Some(handover) = &handover {
                    handover.report(&it);
                }
                // What is not sent, because it is less than the seconds so far, tells the client
                // nothing.
                if let Some(reporter) = &reporter
                    && reporter.report(it.progress, it.total, it.message.as_deref())
                {
                    spoken.store(true, Ordering::Relaxed);
                }
            }));
        }
        let call = tool.execute(tool_cx, arguments);
        let output = match (&reporter, &spoken) {
            (Some(reporter), Some(spoken)) => {
                with_sign_of_life(call, reporter, spoken, self.progress_after).await
            }
            _ => call.await,
        };
        let outcome = match output {
            Ok(output) => Ok(Invoked::Tool(shaped(output))),
            Err(ToolError::NeedsInput(needed)) => asks(invocation, needed),
            Err(ToolError::Held(why)) => Err(InvocationError::Denied(Denial::held(why))),
            Err(error) => Err(InvocationError::Tool(error)),
        };
        if let Some(span) = span {
            span.ended(&outcome);
        }
        outcome
    }
}

impl Service<Admitted<Invocation>> for Runner {
    type Response = Invoked;
    type Error = InvocationError;

    async fn call(
        &self,
        cx: &RequestCx,
        admitted: Admitted<Invocation>,
    ) -> Result<Invoked, InvocationError> {
        let invocation = admitted.inner();
        match &invocation.target {
            Target::Tool(name) => self.call_tool(cx, &admitted, name).await,
            Target::Resource(read) => {
                let resources = Arc::clone(invocation.offer.resources());
                let call = reporting(cx, traced(cx, context_of(cx, &admitted)));
                match resources.read_for(call, (**read).clone()).await {
                    Ok(result) => Ok(Invoked::Resource(result)),
                    Err(ReadFailure::NeedsInput(needed)) => asks(invocation, needed),
                    Err(ReadFailure::Held(why)) => Err(InvocationError::Denied(Denial::held(why))),
                    // As late as a tool is, and as busy.
                    Err(ReadFailure::Handler(error)) => Err(InvocationError::Tool(error)),
                    Err(ReadFailure::TimedOut(limit)) => Err(InvocationError::TimedOut(limit)),
                    Err(failure) => Err(InvocationError::Read(failure)),
                }
            }
            Target::Prompt(name, arguments) => {
                let prompts = invocation.offer.prompts();
                check_required(prompts.entries(), name, arguments)
                    .map_err(InvocationError::Prompt)?;
                let prompt = PromptCx {
                    name: name.clone(),
                    arguments: arguments.clone(),
                    askable: askable(cx),
                    answers: invocation.answers.clone().unwrap_or_default(),
                    call: reporting(cx, traced(cx, context_of(cx, &admitted))),
                };
                match prompts.get(prompt).await {
                    Ok(result) => Ok(Invoked::Prompt(result)),
                    Err(PromptFailure::NeedsInput(needed)) => asks(invocation, needed),
                    Err(PromptFailure::Held(why)) => {
                        Err(InvocationError::Denied(Denial::held(why)))
                    }
                    Err(PromptFailure::Handler(error)) => Err(InvocationError::Tool(error)),
                    Err(failure) => Err(InvocationError::Prompt(failure)),
                }
            }
        }
    }
}

/// A call that asks. In its last round that is its end, and what waits for the answers is given up.
fn asks(invocation: &Invocation, needed: Needed) -> Result<Invoked, InvocationError> {
    match invocation.may_ask {
        true => Ok(Invoked::NeedsInput(needed)),
        false => Err(InvocationError::AsksForEver),
    }
}

/// The context of a call as its handler has it, apart from progress and traces.
fn context_of(cx: &RequestCx, admitted: &Admitted<Invocation>) -> ToolCx {
    let invocation = admitted.inner();
    let (principal, meter) = (cx.principal.name(), invocation.report.meter());
    let mut context = ToolCx::metered(Arc::clone(principal), cx.id.to_shared(), Arc::clone(meter))
        .with_roles(cx.principal.shared_roles().cloned())
        .with_answers(askable(cx), invocation.answers.clone())
        .with_session(cx.session.clone())
        .with_transport(cx.transport.as_str())
        .with_headers(cx.principal.shared_headers().cloned())
        .with_subject_token(cx.principal.token().cloned())
        .with_request_meta(cx.meta.whole.clone().map(RawJson::into_bytes));
    if let Some(reads) = &invocation.reads {
        context = context.with_resources(Arc::clone(reads));
    }
    if let Some(reporter) = cx.log_reporter() {
        context = context.with_log(log_sink(reporter));
    }
    if let Some(deadline) = admitted.deadline() {
        context = context.with_deadline(deadline);
    }
    context
}

/// A context that says where in a distributed trace its request is.
fn traced(cx: &RequestCx, context: ToolCx) -> ToolCx {
    match cx.trace().filter(|it| !is_made_up(it)) {
        Some(trace) => context.with_trace(trace.traceparent(), trace.tracestate()),
        None => context,
    }
}

/// A context whose progress goes to the client, if it wants that.
fn reporting(cx: &RequestCx, context: ToolCx) -> ToolCx {
    match cx.progress_reporter() {
        Some(reporter) => context.with_progress(Arc::new(move |it: Progress| {
            reporter.report(it.progress, it.total, it.message.as_deref());
        })),
        None => context,
    }
}

/// No prompt is filled in without what it says it needs.
fn check_required(
    entries: &[model::Prompt],
    name: &str,
    arguments: &BTreeMap<String, String>,
) -> Result<(), PromptFailure> {
    let entry = entries.iter().find(|entry| entry.name == name);
    let mut needed = entry.into_iter().flat_map(|entry| &entry.arguments);
    let missing = needed.find(|it| it.required && !arguments.contains_key(&it.name));
    missing.map_or(Ok(()), |it| {
        let why = format!("the argument `{}` is missing", it.name);
        Err(PromptFailure::Arguments(why))
    })
}

fn log_sink(reporter: LogReporter) -> LogSink {
    Arc::new(move |level, logger, data| {
        let level = match level {
            LogLevel::Debug => LoggingLevel::Debug,
            LogLevel::Info => LoggingLevel::Info,
            LogLevel::Notice => LoggingLevel::Notice,
            LogLevel::Warning => LoggingLevel::Warning,
            LogLevel::Error => LoggingLevel::Error,
            LogLevel::Critical => LoggingLevel::Critical,
            LogLevel::Alert => LoggingLevel::Alert,
            LogLevel::Emergency => LoggingLevel::Emergency,
        };
        if let Ok(data) = RawJson::from_value(data) {
            reporter.log(level, logger, data);
        }
    })
}

/// Reports the seconds gone by, as long as the tool does not report anything itself: the two would
/// count in different units.
async fn with_sign_of_life<T>(
    call: impl Future<Output = T>,
    reporter: &ProgressReporter,
    spoken: &AtomicBool,
    every: Duration,
) -> T {
    let began = Instant::now();
    let mut call = pin!(call);
    loop {
        match tokio::time::timeout(every, call.as_mut()).await {
            Ok(output) => return output,
            Err(_elapsed) if spoken.load(Ordering::Relaxed) => {}
            Err(_elapsed) => {
                let seconds = began.elapsed().as_secs_f64();
                reporter.report(seconds, None, Some("still running; seconds so far"));
            }
        }
    }
}

fn shaped(output: ToolOutput) -> CallToolResult {
    let mut meta = ResultMeta::default();
    for (key, value) in &output.meta {
        meta.insert(key.clone(), value);
    }
    CallToolResult {
        content: output.content.into_iter().map(block).collect(),
        structured_content: output
            .structured
            .map(|raw| RawJson::from_serialized(String::from(Box::<str>::from(raw)).into_bytes())),
        is_error: output.is_error,
        meta,
    }
}

fn block(content: Content) -> model::Content {
    match content {
        Content::Text { text, about } => {
            let (annotations, meta) = said(about);
            model::Content::Text {
                text,
                annotations: annotations.map(Box::new),
                meta,
            }
        }
        Content::Image {
            data,
            mime_type,
            about,
        } => {
            let (annotations, meta) = said(about);
            model::Content::Image {
                data,
                mime_type,
                annotations: annotations.map(Box::new),
                meta,
            }
        }
        Content::Audio {
            data,
            mime_type,
            about,
        } => {
            let (annotations, meta) = said(about);
            model::Content::Audio {
                data,
                mime_type,
                annotations: annotations.map(Box::new),
                meta,
            }
        }
        Content::ResourceLink(link) => {
            let (annotations, meta) = said(link.about);
            let annotations = annotations.unwrap_or_default();
            let icons = link.icons.into_iter().filter_map(understood);
            model::Content::ResourceLink(Box::new(model::Resource {
                uri: link.uri,
                name: link.name,
                title: link.title,
                description: link.description,
                mime_type: link.mime_type,
                size: link.size,
                last_modified: annotations.last_modified,
                audience: annotations.audience,
                priority: annotations.priority,
                icons: icons.collect(),
                meta,
            }))
        }
        Content::Resource { resource, about } => {
            let (annotations, meta) = said(about);
            let (text, blob) = match resource.body {
                ResourceBody::Text(text) => (Some(text), None),
                ResourceBody::Blob(blob) => (None, Some(blob)),
            };
            let about = resource.meta.map(|meta| RawJson::from_value(&meta));
            let resource = model::ResourceContents {
                uri: resource.uri,
                mime_type: resource.mime_type,
                text,
                blob,
                meta: about.and_then(Result::ok),
            };
            model::Content::Resource {
                resource,
                annotations: annotations.map(Box::new),
                meta,
            }
        }
    }
}

/// The members that every block has.
fn said(about: About) -> (Option<model::Annotations>, ResultMeta) {
    let annotations = about
        .annotations
        .map(|it| Value::Object(*it))
        .and_then(understood);
    let mut meta = ResultMeta::default();
    for (key, value) in about.meta.into_iter().flat_map(|it| *it) {
        meta.insert(key, &value);
    }
    (annotations, meta)
}

/// A value as the protocol has it; `None`, with a line in the log, of what it has not.
fn understood<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value)
        .inspect_err(
            |error| tracing::warn!(%error, "what a tool says about a block of content is left out"),
        )
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn blocks_keep_what_a_tool_says_about_them() {
        let about =
            json!({"annotations": {"audience": ["user"], "priority": 0.5}, "_meta": {"a/b": 1}});
        let blocks = [
            json!({"type": "text", "text": "t"}),
            json!({"type": "image", "data": "AA==", "mimeType": "image/png"}),
            json!({"type": "audio", "data": "AA==", "mimeType": "audio/wav"}),
            json!({"type": "resource_link", "uri": "data://x", "name": "x", "title": "X", "description": "d",
                   "mimeType": "text/html", "size": 5, "icons": [{"src": "https://shop.example/x.png"}]}),
            json!({"type": "resource", "resource": {"uri": "data://x", "mimeType": "text/html", "text": "t", "_meta": {"c/d": 2}}}),
        ];
        for mut expected in blocks {
            let members = about.as_object().unwrap().clone();
            expected.as_object_mut().unwrap().extend(members);
            let said: Content = serde_json::from_value(expected.clone()).unwrap();
            assert_eq!(serde_json::to_value(block(said)).unwrap(), expected);
        }
        let said = json!({"type": "text", "text": "t", "annotations": {"priority": "high"}});
        let shown = block(serde_json::from_value(said).unwrap());
        assert_eq!(shown, model::Content::text("t"));
    }
}
