//! Lines in the log: what is in them, and what they are called.

use crate::invocation::{
    Invocation,
    call_report::CallReport,
    quota_hints,
    verdict::{Ended, Severity, Verdict},
};
use governance::{Micros, Remaining};
use jsonrpc_core::{Id, RawJson};
use mcp_protocol::{Method, TraceContext};
use mcp_service::{Answered, RequestCx};
use redaction::Redactor;
use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The most bytes of parameters in a line; the ledger has more of them.
const MAX_PARAMS_BYTES: usize = 1_024;
/// Above this size only the length of parameters is logged: to take the secrets out of a beginning, all
/// of it has to be read, which is too much work for a line of the log.
const MAX_READ_BYTES: usize = 64 * 1024;
/// The most bytes of the id that a client has given a request.
const MAX_ID_BYTES: usize = 256;

/// The most bytes of anything else that clients and handlers say.
const MAX_TEXT_BYTES: usize = 2_048;

/// Target of lines about requests.
macro_rules! requests {
    () => {
        "owlclaw_mcp::requests"
    };
}

/// Target of lines about decisions.
macro_rules! decisions {
    () => {
        "owlclaw_mcp::decisions"
    };
}

/// One event at a level that is only known when it happens.
macro_rules! event {
    ($severity:expr, target: $target:expr, $($fields:tt)+) => {
        match $severity {
            Severity::Info => tracing::info!(target: $target, $($fields)+),
            Severity::Warning => tracing::warn!(target: $target, $($fields)+),
            Severity::Error => tracing::error!(target: $target, $($fields)+),
        }
    };
}

pub(super) fn is_enabled(severity: Severity) -> bool {
    match severity {
        Severity::Info => tracing::enabled!(target: requests!(), tracing::Level::INFO),
        Severity::Warning => tracing::enabled!(target: requests!(), tracing::Level::WARN),
        Severity::Error => tracing::enabled!(target: requests!(), tracing::Level::ERROR),
    }
}

/// A request and what it was answered, or that it was not.
pub(crate) struct RequestLine<'a> {
    pub(crate) severity: Severity,
    pub(crate) method: &'a str,
    /// The name or URI that is called or read.
    pub(crate) name: Option<&'a str>,
    /// The parameters as they were sent.
    pub(crate) params: Option<&'a RawJson>,
    /// `ok`, `error`, `refused` or `cancelled`.
    pub(crate) outcome: &'static str,
    /// Kind of the result.
    pub(crate) result: Option<&'static str>,
    /// The code of the failure it was answered with, and what was said if that was an error.
    pub(crate) error: Option<(i32, Option<&'a str>)>,
    pub(crate) took: Duration,
}

impl RequestLine<'_> {
    /// `is_harmless` is what the ledger has found out about the arguments of a call already, which is
    /// most of what a line costs.
    fn parameters(&self, is_harmless: bool, redactor: &Redactor) -> Option<String> {
        self.params.map(|params| {
            let length = params.as_str().len();
            if MAX_READ_BYTES < length {
                return format!("({length} bytes)");
            }
            // By the rules of what is called; what does not exist has none of its own.
            const CALL: &str = Method::CallTool.name();
            let params = match (self.method, self.name) {
                (CALL, Some(_)) if is_harmless => params.as_str().into(),
                (CALL, Some(tool)) => {
                    redactor.json(&crate::names::tool_capability(tool), params.as_str())
                }
                _ => redactor.json_for_any(params.as_str()),
            };
            shortened(&params, MAX_PARAMS_BYTES)
        })
    }

    /// A request that was handled by the service.
    pub(crate) fn write(&self, cx: &RequestCx, report: Option<&CallReport>, redactor: &Redactor) {
        let name = self
            .name
            .map(|name| redactor.text(cut(name, MAX_PARAMS_BYTES)));
        let params = self.parameters(report.is_some_and(CallReport::is_harmless), redactor);
        let verdict = report.and_then(CallReport::verdict);
        let remaining = report.and_then(CallReport::remaining);
        let remaining = remaining.or_else(|| verdict.as_ref()?.remaining.as_deref().copied());
        let fault = report.and_then(CallReport::fault);
        let (code, message) = self.error.unzip();
        let message = match fault {
            Some(fault) => Some(shortened(&fault.message, MAX_TEXT_BYTES)),
            None => message
                .flatten()
                .map(|text| shortened(&redactor.text(text), MAX_TEXT_BYTES)),
        };
        let call = report.and_then(|it| it.call());
        let call = call.or_else(|| verdict.as_ref()?.call);
        event!(
            self.severity,
            target: requests!(),
            id = id_of(&cx.id),
            method = self.method,
            transport = cx.transport.as_str(),
            version = cx.version.as_str(),
            principal = cx.principal.as_str(),
            session = cx.session.as_deref(),
            name = name.as_deref(),
            params,
            duration_ms = milliseconds(self.took),
            outcome = self.outcome,
            result = self.result,
            result_bytes = report.and_then(CallReport::result_bytes),
            code,
            error_type = fault.map(|fault| fault.kind),
            error = message,
            stack = fault.and_then(|fault| fault.stack.as_deref()),
            decision = verdict.as_ref().map(|it| it.decision),
            reason = verdict.as_ref().and_then(|it| it.reason),
            remaining = remaining.as_ref().and_then(left),
            cost = report.and_then(CallReport::settled_cost).map(|it| it.to_string()),
            call = call.map(|it| it.to_string()),
            trace_id = trace_of(cx),
            "request"
        );
    }
}

/// A request that the engine has answered, or refused to read.
pub(crate) fn answered_by_engine(severity: Severity, answered: &Answered<'_>, redactor: &Redactor) {
    let code = answered.error.map(|error| error.code.0);
    let message = answered
        .error
        .map(|error| shortened(&redactor.text(&error.message), MAX_TEXT_BYTES));
    let method = answered.method.map(|it| shortened(it, MAX_PARAMS_BYTES));
    event!(
        severity,
        target: requests!(),
        id = answered.id.map(id_of),
        method,
        transport = answered.transport.as_str(),
        version = answered.version.map(|it| it.as_str()),
        principal = answered.principal.as_str(),
        session = answered.session,
        duration_ms = milliseconds(answered.took),
        outcome = if code.is_some() { "error" } else { "ok" },
        code,
        error_type = code.map(|_| "protocol"),
        error = message,
        trace_id = answered
            .trace
            .map(TraceContext::trace_id_text)
            .or_else(|| Some(made_up_trace()?.trace_id_text())),
        "request"
    );
}

pub(super) fn allowed(
    cx: &RequestCx,
    invocation: &Invocation,
    verdict: &Verdict,
    policy_version: u64,
    estimate: Micros,
) {
    tracing::info!(
        target: decisions!(),
        id = id_of(&cx.id),
        principal = cx.principal.as_str(),
        session = cx.session.as_deref(),
        capability = &*invocation.capability,
        decision = verdict.decision,
        estimate = estimate.to_string(),
        remaining = verdict.remaining.as_deref().and_then(left),
        policy_version,
        trace_id = trace_of(cx),
        "decision"
    );
}

pub(super) fn refused(
    cx: &RequestCx,
    capability: &str,
    verdict: &Verdict,
    policy_version: u64,
    severity: Severity,
    redactor: &Redactor,
) {
    // What does not exist is called anything that a client likes to say.
    let capability = shortened(&redactor.text(capability), MAX_PARAMS_BYTES);
    event!(
        severity,
        target: decisions!(),
        id = id_of(&cx.id),
        principal = cx.principal.as_str(),
        session = cx.session.as_deref(),
        capability,
        decision = verdict.decision,
        reason = verdict.reason,
        remaining = verdict.remaining.as_deref().and_then(left),
        policy_version,
        call = verdict.call.map(|it| it.to_string()),
        trace_id = trace_of(cx),
        "decision"
    );
}

/// The end of a call that its request does not tell of: it was answered with a task.
pub(super) fn task_ended(
    cx: &RequestCx,
    report: &CallReport,
    capability: &str,
    task: &str,
    outcome: Ended,
    seconds: f64,
) {
    let fault = report.fault();
    event!(
        fault.map_or(Severity::Info, |fault| fault.severity),
        target: requests!(),
        id = id_of(&cx.id),
        principal = cx.principal.as_str(),
        session = cx.session.as_deref(),
        capability,
        task,
        duration_ms = seconds * 1_000.0,
        outcome = outcome.as_str(),
        result_bytes = report.result_bytes(),
        error_type = fault.map(|fault| fault.kind),
        error = fault.map(|fault| shortened(&fault.message, MAX_TEXT_BYTES)),
        stack = fault.and_then(|fault| fault.stack.as_deref()),
        remaining = report.remaining().as_ref().and_then(left),
        cost = report.settled_cost().map(|it| it.to_string()),
        call = report.call().map(|it| it.to_string()),
        trace_id = trace_of(cx),
        "call of a task ended"
    );
}

/// The id as its sender wrote it, cut: it may be megabytes long.
fn id_of(id: &Id) -> String {
    shortened(&id.to_string(), MAX_ID_BYTES)
}

/// A place in a trace of its own, for log lines and the record alone. Handlers, programs and services do
/// not get it: a sampler takes the word of a parent that is not recorded, and records nothing. A random half that is this process's, and a
/// number.
pub(crate) fn made_up_trace() -> Option<TraceContext> {
    static PROCESS: LazyLock<[u8; 8]> = LazyLock::new(|| {
        let mut half = [0; 8];
        // Without randomness the number alone tells requests of this process apart.
        let _ = getrandom::fill(&mut half);
        half[0] |= 1;
        half
    });
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&*PROCESS);
    id[8..].copy_from_slice(&number);
    TraceContext::new(id, number, 0)
}

/// True for a place that [`made_up_trace`] gave, in this process or another: its span is the number in its id.
pub(crate) fn is_made_up(place: &TraceContext) -> bool {
    place.flags() == 0 && place.trace_id()[8..] == place.span_id()
}

fn trace_of(cx: &RequestCx) -> Option<String> {
    cx.trace().map(TraceContext::trace_id_text)
}

/// The remaining quota as JSON; `None` where nothing is limited.
fn left(remaining: &Remaining) -> Option<String> {
    Some(quota_hints::report(remaining)?.as_str().to_owned())
}

fn milliseconds(took: Duration) -> f64 {
    took.as_secs_f64() * 1_000.0
}

/// The first `most` bytes, or fewer so that no character is cut.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// The same, and a sign that something is missing.
fn shortened(text: &str, most: usize) -> String {
    let kept = cut(text, most);
    if kept.len() == text.len() {
        return kept.to_owned();
    }
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcd", 3), "abc…");
        assert_eq!(shortened("aéb", 2), "a…");
    }

    #[test]
    fn an_id_takes_little_room_whatever_its_client_makes_of_it() {
        assert_eq!(id_of(&Id::Number(7)), Id::Number(7).to_string());
        let long = id_of(&Id::String("\u{1}".repeat(4_000_000).into()));
        assert!(long.len() <= MAX_ID_BYTES + "…".len(), "{}", long.len());
    }

    #[test]
    fn of_long_parameters_only_the_length_is_told() {
        let redactor = crate::pipeline::recorded::redactor_of_this_process();
        let told_of = |text: String, is_harmless: bool| {
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let params = RawJson::from_value(&value).unwrap();
            let line = RequestLine {
                severity: Severity::Info,
                method: "tools/call",
                name: Some("t"),
                params: Some(&params),
                outcome: "ok",
                result: None,
                error: None,
                took: Duration::ZERO,
            };
            line.parameters(is_harmless, &redactor).unwrap()
        };
        let told = |text| told_of(text, false);
        let short = told(r#"{"password":"hunter22","a":1}"#.to_owned());
        assert!(
            short.contains(r#""a":1"#) && !short.contains("hunter22"),
            "{short}"
        );
        let long = format!(
            r#"{{"password":"{}"}}"#,
            "hunter22".repeat(MAX_READ_BYTES / 8)
        );
        assert_eq!(told(long.clone()), format!("({} bytes)", long.len()));
        // Whoever has looked already is believed.
        let looked_through = r#"{"a":1,"password":"hunter22"}"#;
        assert_eq!(told_of(looked_through.to_owned(), true), looked_through);
    }
}
