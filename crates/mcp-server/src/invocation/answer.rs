//! Answers to callers about failures, and results of tools.

use crate::{
    clock::rfc3339_millis,
    filter::Phase,
    invocation::{
        Invoked, Target,
        call_report::CallReport,
        failure::{
            DENIED, Form, INVALID_PARAMS, InvocationError, Meaning, RESOURCE_NOT_FOUND,
            TOOL_NOT_FOUND, violation_lines,
        },
        quota_hints,
        refusal::{KeyTaken, PendingApproval, TakenBy, Unconfirmed},
    },
    offer::{Offer, prompts::PromptFailure, resources::ReadFailure},
};
use adapter_tools::{InvalidArguments, Repeat, RiskClass, Tool, ToolError};
use governance::{Denial, Reason};
use jsonrpc_core::{ErrorCode, ErrorObject};
use ledger::ApprovalState;
use mcp_protocol::{
    Era, ProtocolError, ProtocolVersion,
    model::{CallToolResult, Content, Effect, ResultMeta},
};
use mcp_service::{McpError, RequestCx};
use serde_json::{Value, json};
use std::borrow::Cow;

/// Options for the answers to callers of tools.
#[derive(Clone, Copy, Debug)]
pub struct AnswerOptions {
    /// Form of failures: errors or results.
    pub style: ErrorStyle,
    /// True if tracebacks are sent to callers (R9.5).
    pub development: bool,
    /// Adds what is left of quotas to `_meta` of results, which some frameworks show to models.
    pub quota_meta: bool,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        Self {
            style: ErrorStyle::default(),
            development: false,
            quota_meta: true,
        }
    }
}

/// Form of failures and refusals of a visible tool: JSON-RPC errors, or results with `isError`
/// (decisions D3, D4 and D40).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorStyle {
    /// Wrong arguments are results since 2025-11-25, as SEP-1303 has it; refusals and failures are
    /// results in every dated revision, since agent frameworks show models nothing else.
    #[default]
    Auto,
    /// Errors everywhere.
    Protocol,
    /// Results everywhere.
    Result,
}

impl ErrorStyle {
    fn has_results_for_arguments(self, version: ProtocolVersion) -> bool {
        match self {
            Self::Auto => ProtocolVersion::V2025_11_25 <= version,
            Self::Protocol => false,
            Self::Result => true,
        }
    }

    fn has_results_for_failures(self, cx: &RequestCx) -> bool {
        match self {
            Self::Auto => !cx.is_founding(),
            Self::Protocol => false,
            Self::Result => true,
        }
    }
}

/// The code of a prompt that does not exist, or that its caller may not see.
const UNKNOWN_PROMPT: i32 = INVALID_PARAMS;

/// The code of what does not exist, or what its caller may not see, in the founding table.
pub(crate) fn unknown_code(target: &Target) -> i32 {
    match target {
        Target::Tool(_) => TOOL_NOT_FOUND,
        Target::Resource(_) => RESOURCE_NOT_FOUND,
        Target::Prompt(..) => UNKNOWN_PROMPT,
    }
}

impl InvocationError {
    /// The answer to the client that called the tool `name`, a result or an error. Causes that are
    /// internal stay in the log, in the line of the request. A deadline and a crash invite to call again what
    /// `can_be_repeated` alone: the call may have been done.
    ///
    /// # Errors
    ///
    /// The error, where it is one.
    pub(crate) fn to_client(
        &self,
        (name, can_be_repeated): (&str, bool),
        cx: &RequestCx,
        options: AnswerOptions,
    ) -> Result<CallToolResult, McpError> {
        let AnswerOptions {
            style, development, ..
        } = options;
        let meaning = self.meaning();
        if let Self::Invalid(invalid) | Self::Tool(ToolError::Rejected(invalid)) = self
            && style.has_results_for_arguments(cx.version)
        {
            let error = json!({ "code": meaning.code, "violations": violations(invalid) });
            return Ok(failed_result(violation_lines(invalid).join("\n"), &error));
        }
        let mut told = self.told(name, cx.version, development);
        let may_be_done = matches!(
            self,
            Self::TimedOut(_)
                | Self::Tool(
                    ToolError::TimedOut
                        | ToolError::Crashed {
                            repeat: Repeat::IfIdempotent,
                            ..
                        }
                )
        );
        if may_be_done && !can_be_repeated {
            let message = &told.message;
            told.message =
                format!("{message}. The outcome of the call is unknown: it may have been done")
                    .into();
            told.data["retryable"] = json!(false);
            told.data["outcome"] = json!("unknown");
        }
        if meaning.form == Form::Result && style.has_results_for_failures(cx) {
            return Ok(told.into_result());
        }
        Err(told.into_error())
    }

    /// The words of every failure, with the code of its row in the table.
    fn told(&self, name: &str, version: ProtocolVersion, development: bool) -> Told {
        let Meaning { code, .. } = self.meaning();
        match self {
            // Word for word the same, or one could be told from the other (D28).
            Self::Unknown
            | Self::Denied(Denial {
                reason: Reason::NotVisible,
                ..
            }) => unknown_tool(name, version),
            Self::Denied(denial) => denied(code, denial),
            Self::Unrecorded(_) => denied(code, &Denial::new(Reason::LedgerUnavailable)),
            Self::Unconfirmed(unconfirmed) => unconfirmed_told(code, unconfirmed),
            Self::KeyTaken(taken) => taken_told(code, taken),
            Self::BadKey(bad) => {
                let data = json!({ "details": bad.to_string(), "retryable": false });
                Told::new(code, format!("invalid params: {bad}"), data)
            }
            Self::Invalid(invalid) | Self::Tool(ToolError::Rejected(invalid)) => {
                let lines = violation_lines(invalid);
                let message = format!("invalid arguments: {}", lines.join("; "));
                let violations = violations(invalid);
                let data =
                    json!({ "details": lines, "violations": violations, "retryable": false });
                Told::new(code, message, data)
            }
            Self::TooGrave(grave) => {
                let details = grave.to_string();
                let data =
                    json!({ "details": details, "call_by": grave.call_by(), "retryable": false });
                Told::new(code, details, data)
            }
            Self::Filtered(refusal) => {
                let message = match refusal.phase {
                    Phase::Request => refusal.to_string(),
                    Phase::Response => format!("{refusal}. The call was carried out"),
                };
                let data = json!({
                    "details": refusal.why,
                    "reason": "filter",
                    "filter": refusal.filter,
                    "phase": refusal.phase.as_str(),
                    "retryable": false,
                });
                Told::new(code, message, data)
            }
            Self::TimedOut(_) | Self::Tool(ToolError::TimedOut) => {
                let data = json!({ "details": self.to_string(), "retryable": true });
                Told::new(code, "the tool did not answer in time", data)
            }
            Self::AsksForEver => {
                let data = json!({ "details": self.to_string(), "retryable": false });
                Told::new(code, self.to_string(), data)
            }
            Self::Stopped { call, has_begun } => {
                let details = match has_begun {
                    true => "it may have been done: its entry in the ledger says how far it came",
                    false => "it waited to be confirmed, and nothing was done",
                };
                let data = json!({
                    "details": details,
                    "retryable": !has_begun,
                    "call": call.map(|it| it.to_string()),
                });
                Told::new(code, self.to_string(), data)
            }
            Self::Tool(ToolError::Failed(failure)) => {
                let details = failure.details.clone();
                let details = details.unwrap_or_else(|| json!(failure.message));
                let mut data = json!({ "details": details, "retryable": false });
                if let Some(traceback) = failure.traceback.as_ref().filter(|_| development) {
                    data["traceback"] = json!(traceback);
                }
                Told::new(code, failure.message.clone(), data)
            }
            Self::Tool(ToolError::Crashed {
                message,
                repeat,
                detail,
            }) => {
                let retryable = *repeat != Repeat::Never;
                let mut data = json!({ "details": message, "retryable": retryable });
                if development {
                    data["traceback"] = json!(detail);
                }
                Told::new(code, message.clone(), data)
            }
            Self::Tool(ToolError::Unavailable {
                message,
                retry_after,
                ..
            }) => {
                let seconds = retry_after.map(quota_hints::ceiling_seconds);
                let mut data = json!({ "details": message, "retryable": seconds.is_some() });
                if let Some(seconds) = seconds {
                    data["retry_after"] = json!(seconds);
                }
                Told::new(code, message.clone(), data)
            }
            Self::Tool(ToolError::Lost { message, .. }) => {
                let data = json!({ "details": message, "retryable": false, "outcome": "unknown" });
                Told::new(code, message.clone(), data)
            }
            Self::Tool(
                waits @ (ToolError::Busy { retry_after } | ToolError::Suspended { retry_after }),
            ) => {
                let seconds = quota_hints::ceiling_seconds(*retry_after);
                let details = waits.to_string();
                let message = format!("{details}; try again in {seconds} s");
                let data = json!({ "details": details, "retryable": true, "retry_after": seconds });
                Told::new(code, message, data)
            }
            // The runner makes a result of it; getting here is a fault of ours.
            Self::Tool(ToolError::NeedsInput(_)) => internal(code),
            Self::Tool(ToolError::Held(_)) => denied(code, &Denial::new(Reason::Held)),
            Self::Tool(ToolError::Broken(_)) => {
                let data = json!({ "details": "the tool could not run", "retryable": false });
                Told::new(code, "internal error", data)
            }
            Self::Read(failure) => read_told(code, failure, name, version),
            Self::Prompt(failure) => prompt_told(code, failure),
        }
    }

    /// The same for a prompt, whose failures are always errors, and always of the same codes.
    pub(crate) fn to_prompter(&self, name: &str, version: ProtocolVersion) -> McpError {
        match self {
            Self::Unknown
            | Self::Denied(Denial {
                reason: Reason::NotVisible,
                ..
            }) => {
                let data =
                    json!({ "details": "there is no prompt of this name", "retryable": false });
                let message = format!("unknown prompt: {}", shortened(name));
                Told::new(UNKNOWN_PROMPT, message, data).into_error()
            }
            other => other.to_reader(name, version),
        }
    }

    /// The same for a resource, whose failures are always errors.
    pub(crate) fn to_reader(&self, uri: &str, version: ProtocolVersion) -> McpError {
        match self {
            Self::Unknown
            | Self::Read(ReadFailure::NotFound)
            | Self::Denied(Denial {
                reason: Reason::NotVisible,
                ..
            }) => unknown_resource(uri, version).into_error(),
            Self::TimedOut(_) | Self::Tool(ToolError::TimedOut) => {
                let mut told = self.told(uri, version, false);
                told.message = "there was no answer in time".into();
                told.into_error()
            }
            other => other.told(uri, version, false).into_error(),
        }
    }
}

/// Code, text and data of a failure.
struct Told {
    code: i32,
    message: Cow<'static, str>,
    data: Value,
}

impl Told {
    fn new(code: i32, message: impl Into<Cow<'static, str>>, data: Value) -> Self {
        Self {
            code,
            message: message.into(),
            data,
        }
    }

    fn of(McpError(error): McpError) -> Self {
        let data = error.data.and_then(|data| data.parse().ok());
        Self {
            code: error.code.0,
            message: error.message,
            data: data.unwrap_or_else(|| json!({})),
        }
    }

    fn into_error(self) -> McpError {
        McpError(
            McpError::new(ErrorCode(self.code), self.message)
                .0
                .with(&self.data),
        )
    }

    /// Frameworks exist that show models all of `_meta` as well, so what the text says of a refusal
    /// is not said there again.
    fn into_result(mut self) -> CallToolResult {
        self.data["code"] = json!(self.code);
        if self.code == DENIED
            && let Some(data) = self.data.as_object_mut()
        {
            data.remove("details");
            if let Some(Value::Object(approval)) = data.get_mut("approval") {
                approval.remove("how");
            }
        }
        failed_result(self.message.into_owned(), &self.data)
    }
}

fn internal(code: i32) -> Told {
    Told::new(code, "internal error", json!({ "retryable": false }))
}

fn violations(invalid: &InvalidArguments) -> Vec<Value> {
    let violations = invalid.violations().iter();
    violations
        .map(|it| json!({ "pointer": it.pointer(), "message": it.message() }))
        .collect()
}

fn failed_result(text: String, detail: &Value) -> CallToolResult {
    let mut meta = ResultMeta::default();
    meta.insert("io.owlclaw/error", detail);
    CallToolResult {
        content: vec![Content::text(text)],
        structured_content: None,
        is_error: true,
        meta,
    }
}

/// A text of a client, cut to what is echoed.
pub(crate) fn shortened(name: &str) -> String {
    const MOST: usize = 256;
    name.chars().take(MOST).collect()
}

fn unknown_tool(name: &str, version: ProtocolVersion) -> Told {
    let message = format!("unknown tool: {}", shortened(name));
    let data = json!({ "details": "there is no tool of this name", "retryable": false });
    unknown(TOOL_NOT_FOUND, message, data, version)
}

fn unknown_resource(uri: &str, version: ProtocolVersion) -> Told {
    let data = json!({ "uri": shortened(uri), "details": "there is no resource at this URI", "retryable": false });
    unknown(RESOURCE_NOT_FOUND, "resource not found", data, version)
}

fn unknown(
    code: i32,
    message: impl Into<Cow<'static, str>>,
    mut data: Value,
    version: ProtocolVersion,
) -> Told {
    match version.era() {
        Era::Legacy => Told::new(code, message, data),
        Era::Modern => {
            data["code"] = json!(code);
            Told::new(INVALID_PARAMS, message, data)
        }
    }
}

fn read_told(code: i32, failure: &ReadFailure, uri: &str, version: ProtocolVersion) -> Told {
    match failure {
        ReadFailure::NotFound => unknown_resource(uri, version),
        ReadFailure::Range(why) => {
            let data = json!({ "uri": shortened(uri), "details": why, "retryable": false });
            Told::new(code, "the range cannot be read", data)
        }
        ReadFailure::Values(why) => {
            let data = json!({ "uri": shortened(uri), "details": why, "retryable": false });
            Told::new(code, format!("invalid params: {why}"), data)
        }
        // The runner makes a result of it; getting here is a fault of ours.
        ReadFailure::NeedsInput(_) => internal(code),
        ReadFailure::Held(_) => denied(code, &Denial::new(Reason::Held)),
        ReadFailure::Told(why) => told_by_handler(code, why),
        // The runner makes the failure of a tool of it.
        ReadFailure::Handler(_) | ReadFailure::TimedOut(_) => internal(code),
        ReadFailure::Unreadable(_) => {
            let data = json!({ "details": "the resource cannot be read", "retryable": false });
            Told::new(code, "internal error", data)
        }
    }
}

/// Words of a handler's for its caller.
fn told_by_handler(code: i32, why: &str) -> Told {
    let data = json!({ "details": why, "retryable": false });
    Told::new(code, why.to_owned(), data)
}

fn prompt_told(code: i32, failure: &PromptFailure) -> Told {
    match failure {
        PromptFailure::Arguments(why) => {
            let data = json!({ "details": why, "retryable": false });
            Told::new(code, format!("invalid arguments: {why}"), data)
        }
        // The runner makes a result of it; getting here is a fault of ours.
        PromptFailure::NeedsInput(_) => internal(code),
        PromptFailure::Held(_) => denied(code, &Denial::new(Reason::Held)),
        PromptFailure::Told(why) => told_by_handler(code, why),
        // The runner makes the failure of a tool of it.
        PromptFailure::Handler(_) => internal(code),
        PromptFailure::Broken(_) => {
            let data = json!({ "details": "the prompt cannot be filled in", "retryable": false });
            Told::new(code, "internal error", data)
        }
    }
}

fn denied(code: i32, denial: &Denial) -> Told {
    let mut data = json!({
        "reason": public_reason(denial.reason),
        "details": denial.to_string(),
        "retryable": denial.is_retryable(),
    });
    if let Some(wait) = denial.retry_after {
        data["retry_after"] = json!(quota_hints::ceiling_seconds(wait));
    }
    if let Some(remaining) = quota_hints::as_json(&denial.remaining) {
        data["remaining"] = remaining;
    }
    Told::new(code, denial.to_string(), data)
}

/// Words for a call that is not confirmed. They say what to do, since a model reads them.
fn unconfirmed_told(code: i32, unconfirmed: &Unconfirmed) -> Told {
    let mut data = json!({ "reason": Reason::Confirmation.as_str(), "retryable": false });
    let mut details = unconfirmed.to_string();
    if let Some(approval) = &unconfirmed.approval {
        let PendingApproval {
            id,
            state,
            expires_us,
        } = approval;
        let expires_at = rfc3339_millis(*expires_us);
        data["approval"] = json!({
            "id": id.to_string(),
            "state": state.as_str(),
            "expires_at": expires_at,
        });
        if *state == ApprovalState::Pending {
            let how = format!(
                "an operator approves it with `owlclaw-mcp approvals approve {id} --by NAME`; \
                 make the same call again afterwards, with the same arguments"
            );
            details = format!("{details} until {expires_at}: {how}");
            data["approval"]["how"] = json!(how);
        }
    }
    data["details"] = json!(details);
    Told::new(code, details, data)
}

fn taken_told(code: i32, taken: &KeyTaken) -> Told {
    let data = json!({
        "reason": "idempotency",
        "state": taken.state.as_str(),
        "call": taken.call.to_string(),
        "details": taken.to_string(),
        "retryable": taken.state == TakenBy::InFlight,
    });
    Told::new(code, taken.to_string(), data)
}

/// The reasons that clients are told are a closed set (decision D5).
fn public_reason(reason: Reason) -> &'static str {
    match reason {
        // The counters are part of the same record-keeping as far as a client can tell.
        Reason::StoreUnavailable => Reason::LedgerUnavailable.as_str(),
        // Never gets here; and if it did it must not be told.
        Reason::NotVisible => Reason::Permission.as_str(),
        reason => reason.as_str(),
    }
}

/// A call of a tool, for its answer.
#[derive(Clone, Copy)]
pub(crate) struct Called<'a> {
    pub(crate) tool: &'a str,
    pub(crate) offer: &'a Offer,
    /// As in [`Invocation`](crate::Invocation).
    pub(crate) at_most: Option<Effect>,
}

impl Called<'_> {
    /// The schema of the arguments, for a caller that was not told of it by a list.
    fn needed(&self) -> Option<String> {
        self.at_most?;
        let tool = self.offer.tools().get(self.tool)?;
        Some(needed_arguments(tool))
    }

    /// True if the tool, or the operator, says that calling it twice does no more than calling it once.
    fn can_be_repeated(&self) -> bool {
        let tool = self.offer.tools().get(self.tool);
        tool.is_some_and(|it| it.can_be_called_again() || it.risk() == Some(RiskClass::ReadOnly))
    }
}

/// Words for the arguments that a tool takes.
pub(crate) fn needed_arguments(tool: &Tool) -> String {
    let schema = tool.input_schema_text();
    format!(
        "The arguments of {} are described by this schema: {schema}",
        tool.name()
    )
}

/// The result or error for the caller of a tool.
pub(crate) fn tool_result(
    outcome: Result<Invoked, InvocationError>,
    report: &CallReport,
    called: Called<'_>,
    cx: &RequestCx,
    answering: AnswerOptions,
) -> Result<CallToolResult, McpError> {
    let mut result = match outcome {
        Ok(Invoked::Tool(result)) => result,
        Ok(_) => return Err(mixed_up()),
        Err(error) => {
            let is_invalid = matches!(
                error,
                InvocationError::Invalid(_) | InvocationError::Tool(ToolError::Rejected(_))
            );
            let needed = is_invalid.then(|| called.needed()).flatten();
            let told = error.to_client((called.tool, called.can_be_repeated()), cx, answering);
            let mut result = told.map_err(|error| match &needed {
                Some(needed) => {
                    let message = format!("{}. {needed}", error.0.message);
                    McpError(ErrorObject {
                        message: message.into(),
                        ..error.0
                    })
                }
                None => error,
            })?;
            result.content.extend(needed.map(Content::text));
            report.told_code(error.meaning().code);
            result
        }
    };
    annotate(&mut result, report, answering);
    Ok(result)
}

/// The result or error for the caller of a tool whose questions were not answered. `error` is what the caller of
/// anything else is told.
pub(crate) fn unanswered_result(
    error: McpError,
    report: &CallReport,
    cx: &RequestCx,
    answering: AnswerOptions,
) -> Result<CallToolResult, McpError> {
    // 2026-07-28 demands that error.
    let is_demanded = error.0.code == ProtocolError::MISSING_CLIENT_CAPABILITY;
    if is_demanded || !answering.style.has_results_for_failures(cx) {
        return Err(error);
    }
    report.told_code(error.0.code.0);
    let mut result = Told::of(error).into_result();
    annotate(&mut result, report, answering);
    Ok(result)
}

/// Adds what is left of quotas. Results that say what went wrong are results as well (decision D21).
fn annotate(result: &mut CallToolResult, report: &CallReport, answering: AnswerOptions) {
    if let Some(remaining) = report.remaining().filter(|_| answering.quota_meta) {
        quota_hints::annotate(&mut result.meta, &remaining);
    }
    if let Some(call) = report.unrecorded() {
        let told = json!({ "state": "pending", "call": call.to_string() });
        result.meta.insert("io.owlclaw/record", &told);
    }
}

/// One kind of thing was called and another answered, which is a fault of ours.
pub(crate) fn mixed_up() -> McpError {
    McpError::new(ErrorCode::INTERNAL_ERROR, "internal error")
}
