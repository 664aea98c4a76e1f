//! The layer that counts and logs requests.

use crate::{
    invocation::{call_report::CallReport, verdict::Severity},
    observe::{
        calls::Observer,
        log::{RequestLine, answered_by_engine, made_up_trace},
    },
};
use jsonrpc_core::{ErrorCode, RawJson};
use mcp_protocol::Method;
use mcp_protocol::model::{ClientRequest, Page, ServerResult};
use mcp_service::{Answered, McpError, Observe, RequestCx, Service};
use serde_json::json;
use std::sync::Arc;

/// Counts and logs every request, refused ones and given up ones too.
#[derive(Debug)]
pub struct Observed<S> {
    inner: S,
    observer: Observer,
}

impl<S> Observed<S> {
    pub(crate) fn new(inner: S, observer: Observer) -> Self {
        Self { inner, observer }
    }
}

impl<S> Service<ClientRequest> for Observed<S>
where
    S: Service<ClientRequest, Response = ServerResult, Error = McpError>,
{
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, cx: &RequestCx, request: ClientRequest) -> Result<ServerResult, McpError> {
        let method = Method::of(&request);
        let is_logged = self.observer.wants(Severity::Error);
        let (name, params) = match is_logged {
            true => described(&request),
            false => (None, None),
        };
        if is_logged && cx.trace().is_none() {
            // All lines about the request, its calls and its record have one trace id, with or without a
            // collector.
            if let Some(place) = made_up_trace() {
                cx.enter_span(place, Arc::new(()));
            }
        }
        let seen = Seen {
            observer: &self.observer,
            cx,
            method,
            name,
            params,
            is_over: false,
        };
        self.observer.metrics().in_flight().inc();
        let outcome = self.inner.call(cx, request).await;
        seen.answered(&outcome);
        outcome
    }
}

/// A request on its way. Dropping it says that it was given up.
struct Seen<'a> {
    observer: &'a Observer,
    cx: &'a RequestCx,
    method: Method,
    name: Option<String>,
    params: Option<RawJson>,
    is_over: bool,
}

impl Seen<'_> {
    fn answered(mut self, outcome: &Result<ServerResult, McpError>) {
        self.is_over = true;
        let report = self.cx.attached::<CallReport>();
        // A failure counts as what it is, whether its caller hears of it by an error or a result.
        let code = match outcome {
            Ok(result) if failed(result) => report.as_ref().and_then(|it| it.code()),
            Ok(_) => None,
            Err(McpError(error)) => Some(error.code.0),
        };
        let seconds = self.cx.began.elapsed().as_secs_f64();
        let metrics = self.observer.metrics();
        metrics.answered(Some(self.method), code.unwrap_or(0), seconds);
        let least = match outcome {
            Ok(result) if !failed(result) => Severity::Info,
            Ok(_) => Severity::Warning,
            Err(McpError(error)) => severity_of(error.code),
        };
        // What failed may matter more than what it was answered with.
        let fault = report.as_ref().and_then(|it| it.fault());
        let severity = fault.map_or(least, |fault| fault.severity.max(least));
        if !self.observer.wants(severity) {
            return;
        }
        let denied = report.as_ref().and_then(|it| it.verdict());
        let denied = denied.is_some_and(|it| it.decision == "deny");
        let (result, message) = match outcome {
            Ok(result) => (Some(kind_of(result)), None),
            Err(McpError(error)) => (None, Some(&*error.message)),
        };
        let outcome_name = match outcome {
            Ok(result) if !failed(result) => "ok",
            _ if denied => "refused",
            _ => "error",
        };
        let error = code.map(|code| (code, message));
        self.write(severity, outcome_name, result, error, report.as_deref());
    }

    fn write(
        &self,
        severity: Severity,
        outcome: &'static str,
        result: Option<&'static str>,
        error: Option<(i32, Option<&str>)>,
        report: Option<&CallReport>,
    ) {
        let line = RequestLine {
            severity,
            method: self.method.name(),
            name: self.name.as_deref(),
            params: self.params.as_ref(),
            outcome,
            result,
            error,
            took: self.cx.began.elapsed(),
        };
        line.write(self.cx, report, self.observer.redactor());
    }
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        self.observer.metrics().in_flight().dec();
        if self.is_over {
            return;
        }
        let (outcome, severity) = if std::thread::panicking() {
            self.observer.metrics().answered(
                Some(self.method),
                ErrorCode::INTERNAL_ERROR.0,
                self.cx.began.elapsed().as_secs_f64(),
            );
            ("error", Severity::Error)
        } else {
            self.observer.metrics().cancelled(self.method);
            ("cancelled", Severity::Info)
        };
        if self.observer.wants(severity) {
            let report = self.cx.attached::<CallReport>();
            self.write(severity, outcome, None, None, report.as_deref());
        }
    }
}

/// Counts and logs requests that the engine answers by itself like the rest.
#[derive(Debug)]
pub(crate) struct ObservedEngine(pub(crate) Observer);

impl Observe for ObservedEngine {
    fn answered(&self, answered: &Answered<'_>) {
        let code = answered.error.map_or(0, |error| error.code.0);
        let method = answered.method.and_then(Method::named);
        let seconds = answered.took.as_secs_f64();
        self.0.metrics().answered(method, code, seconds);
        let severity = match answered.error {
            None => Severity::Info,
            Some(error) => severity_of(error.code),
        };
        if self.0.wants(severity) {
            answered_by_engine(severity, answered, self.0.redactor());
        }
    }
}

/// Ours are for operators to look after; the others' are not.
fn severity_of(code: ErrorCode) -> Severity {
    if code == ErrorCode::INTERNAL_ERROR {
        Severity::Error
    } else {
        Severity::Warning
    }
}

fn failed(result: &ServerResult) -> bool {
    matches!(result, ServerResult::CallTool(result) if result.is_error)
}

fn kind_of(result: &ServerResult) -> &'static str {
    match result {
        ServerResult::CallTool(result) if result.is_error => "tool_error",
        ServerResult::CallTool(_) => "tool_result",
        ServerResult::CreateTask(_) => "created_task",
        ServerResult::InputRequired(_) => "input_required",
        ServerResult::ReadResource(_) => "resource",
        ServerResult::GetPrompt(_) => "prompt",
        ServerResult::Task(_) => "task",
        ServerResult::Empty => "empty",
        ServerResult::Encoded(_) => "list",
        _ => "result",
    }
}

/// Name and parameters of a request, for its line in the log.
fn described(request: &ClientRequest) -> (Option<String>, Option<RawJson>) {
    let page = |page: &Page| {
        let cursor = page.cursor.as_ref()?;
        RawJson::from_value(&json!({ "cursor": cursor })).ok()
    };
    match request {
        ClientRequest::CallTool(call) => (Some(call.name.clone()), Some(call.arguments.clone())),
        ClientRequest::ReadResource(read) => {
            let range = read
                .range
                .map(|it| json!({ "offset": it.offset, "length": it.length }));
            let params = range.map(|range| RawJson::from_value(&json!({ "range": range })));
            (Some(read.uri.clone()), params.and_then(Result::ok))
        }
        ClientRequest::GetPrompt(get) => (
            Some(get.name.clone()),
            RawJson::from_value(&get.arguments).ok(),
        ),
        ClientRequest::ListResources(list) => {
            let params = json!({
                "category": list.category, "tag": list.tag, "uri": list.uri, "cursor": list.cursor,
            });
            (None, RawJson::from_value(&params).ok())
        }
        ClientRequest::ListTools(it)
        | ClientRequest::ListResourceTemplates(it)
        | ClientRequest::ListSkills(it)
        | ClientRequest::ListPrompts(it)
        | ClientRequest::ListTasks(it) => (None, page(it)),
        ClientRequest::Subscribe(uri)
        | ClientRequest::Unsubscribe(uri)
        | ClientRequest::GetSkill(uri) => (Some(uri.clone()), None),
        ClientRequest::ReadDirectory(read) => (Some(read.uri.clone()), None),
        ClientRequest::GetTask(id)
        | ClientRequest::CancelTask(id)
        | ClientRequest::AwaitTask(id) => (Some(id.clone()), None),
        ClientRequest::Initialize(_)
        | ClientRequest::Discover
        | ClientRequest::Ping
        | ClientRequest::Complete(_)
        | ClientRequest::SetLevel(_)
        | ClientRequest::Listen(_)
        | ClientRequest::UpdateTask(_) => (None, None),
    }
}
