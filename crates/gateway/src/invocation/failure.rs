use crate::invocation::quota_hints;
use crate::{
    clock::rfc3339_millis,
    invocation::refusal::{BadKey, KeyTaken, PendingApproval, TakenBy, Unconfirmed},
    offer::{prompts::PromptFailure, resources::ReadFailure},
};
use adapter_tools::{InvalidArguments, ToolError};
use governance::{Denial, Reason};
use jsonrpc_core::ErrorCode;
use ledger::{ApprovalState, CallId, Outcome, RecordError, UNKNOWN_CAPABILITY};
use mcp_protocol::{
    Era, ProtocolVersion,
    model::{CallToolResult, Content, ResultMeta},
};
use mcp_service::{McpError, RequestCx};
use serde_json::{Value, json};
use std::{borrow::Cow, time::Duration};

/// How an invocation failed, before anybody decides whom to tell what.
///
/// The ledger records it as it is. What a client is told of it depends on its revision.
#[derive(Debug, thiserror::Error)]
pub enum InvocationError {
    /// There is no such tool or resource.
    #[error("there is no such capability")]
    Unknown,
    /// Governance refused.
    #[error("refused")]
    Denied(#[source] Denial),
    /// The ledger cannot be written, so nothing was done.
    #[error("the call cannot be recorded")]
    Unrecorded(#[source] RecordError),
    /// It needs a confirmation that it does not have, so nothing was done.
    #[error("not confirmed")]
    Unconfirmed(#[source] Box<Unconfirmed>),
    /// Its idempotency key cannot be used, so nothing was done.
    #[error("the idempotency key cannot be used")]
    BadKey(#[source] BadKey),
    /// Its idempotency key is taken, so nothing was done.
    #[error("not done again")]
    KeyTaken(#[source] Box<KeyTaken>),
    /// The arguments do not fit the tool's schema, so nothing was done.
    #[error("the arguments do not fit")]
    Invalid(#[source] InvalidArguments),
    /// It was not done by its deadline.
    #[error("not done within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The server stopped before the call had ended; it may have been done. The ledger has it by this
    /// name, unless it runs without a record.
    #[error("the server stopped before the call had ended")]
    Stopped(Option<CallId>),
    /// The tool failed, or could not run.
    #[error("the tool did not answer")]
    Tool(#[source] ToolError),
    /// The resource cannot be read.
    #[error("the resource cannot be read")]
    Read(#[source] ReadFailure),
    /// The prompt cannot be filled in.
    #[error("the prompt cannot be filled in")]
    Prompt(#[source] PromptFailure),
}

/// Options for the answers to callers of tools.
#[derive(Clone, Copy, Debug)]
pub struct AnswerOptions {
    /// Form of failures: errors or results.
    pub style: ErrorStyle,
    /// Whether they are told tracebacks (R9.5).
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

/// The founding codes (R9).
pub(crate) const TOOL_NOT_FOUND: i32 = -32001;
pub(crate) const RESOURCE_NOT_FOUND: i32 = -32002;
pub(crate) const DENIED: i32 = -32003;
const TIMED_OUT: i32 = -32004;
const FAILED: i32 = -32005;
pub(crate) const INVALID_PARAMS: i32 = -32602;
const INTERNAL: i32 = -32603;

impl InvocationError {
    /// Whether a call that was admitted has been refused all the same: it has not begun.
    pub(crate) fn refuses(&self) -> bool {
        matches!(
            self,
            Self::Unrecorded(_) | Self::Unconfirmed(_) | Self::BadKey(_) | Self::KeyTaken(_)
        )
    }

    /// The code of the founding table, whatever revision the caller speaks.
    pub(crate) fn founding_code(&self) -> i32 {
        match self {
            Self::Unknown => TOOL_NOT_FOUND,
            Self::Denied(_) | Self::Unrecorded(_) | Self::Unconfirmed(_) | Self::KeyTaken(_) => {
                DENIED
            }
            Self::BadKey(_) | Self::Invalid(_) | Self::Tool(ToolError::Rejected(_)) => {
                INVALID_PARAMS
            }
            Self::TimedOut(_) | Self::Stopped(_) | Self::Tool(ToolError::TimedOut) => TIMED_OUT,
            Self::Tool(ToolError::Broken(_)) => INTERNAL,
            Self::Tool(_) => FAILED,
            Self::Read(ReadFailure::Range(_)) | Self::Prompt(PromptFailure::Arguments(_)) => {
                INVALID_PARAMS
            }
            Self::Prompt(_) => INTERNAL,
            Self::Read(ReadFailure::NotFound) => RESOURCE_NOT_FOUND,
            Self::Read(ReadFailure::Unreadable(_)) => INTERNAL,
        }
    }

    /// How the ledger calls it.
    pub(crate) fn outcome(&self) -> Outcome<&'static str> {
        match self {
            Self::Unknown => Outcome::Denied {
                reason: UNKNOWN_CAPABILITY,
            },
            Self::Denied(denial) => Outcome::Denied {
                reason: denial.reason.as_str(),
            },
            Self::Unrecorded(_) => Outcome::Denied {
                reason: Reason::LedgerUnavailable.as_str(),
            },
            Self::Unconfirmed(_) => Outcome::Denied {
                reason: Reason::Confirmation.as_str(),
            },
            Self::KeyTaken(taken) => Outcome::Denied {
                reason: taken.reason(),
            },
            // Before anything is counted, so that it is a refusal: many of them are counted together.
            Self::BadKey(_) => Outcome::Denied {
                reason: "idempotency_bad_key",
            },
            Self::Invalid(_) | Self::Tool(ToolError::Rejected(_)) => Outcome::Invalid,
            Self::TimedOut(_) | Self::Tool(ToolError::TimedOut) => Outcome::TimedOut,
            Self::Stopped(_) => Outcome::Cancelled,
            Self::Prompt(PromptFailure::Arguments(_)) => Outcome::Invalid,
            Self::Tool(_) | Self::Read(_) | Self::Prompt(_) => Outcome::Failed,
        }
    }

    /// The whole story, for operators.
    pub(crate) fn for_the_record(&self) -> String {
        let mut text = match self {
            Self::Invalid(invalid) => violation_lines(invalid).join("; "),
            error => error.to_string(),
        };
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            if !matches!(self, Self::Invalid(_)) {
                text.push_str(": ");
                text.push_str(&error.to_string());
            }
            cause = error.source();
        }
        text
    }

    /// The answer to the client that called the tool `name`, a result or an error. Causes that are
    /// internal stay in the log, in the line of the request.
    ///
    /// # Errors
    ///
    /// The error, where it is one.
    pub(crate) fn to_client(
        &self,
        name: &str,
        cx: &RequestCx,
        options: AnswerOptions,
    ) -> Result<CallToolResult, McpError> {
        let AnswerOptions {
            style, development, ..
        } = options;
        if let Self::Invalid(invalid) | Self::Tool(ToolError::Rejected(invalid)) = self
            && style.has_results_for_arguments(cx.version)
        {
            let error = json!({ "code": INVALID_PARAMS, "violations": violations(invalid) });
            return Ok(failed_result(violation_lines(invalid).join("\n"), &error));
        }
        let told = self.told(name, cx.version, development);
        if told.is_for_models && style.has_results_for_failures(cx) {
            return Ok(told.into_result());
        }
        Err(told.into_error())
    }

    /// The one table from failures to codes and words.
    fn told(&self, name: &str, version: ProtocolVersion, development: bool) -> Told {
        match self {
            // Word for word the same, or one could be told from the other (D28).
            Self::Unknown
            | Self::Denied(Denial {
                reason: Reason::NotVisible,
                ..
            }) => unknown_tool(name, version),
            Self::Denied(denial) => denied(denial),
            Self::Unrecorded(_) => denied(&Denial::new(Reason::LedgerUnavailable)),
            Self::Unconfirmed(unconfirmed) => unconfirmed_told(unconfirmed),
            Self::KeyTaken(taken) => taken_told(taken),
            Self::BadKey(bad) => {
                let data = json!({ "details": bad.to_string(), "retryable": false });
                Told::new(INVALID_PARAMS, format!("invalid params: {bad}"), data)
            }
            Self::Invalid(invalid) | Self::Tool(ToolError::Rejected(invalid)) => {
                let lines = violation_lines(invalid);
                let message = format!("invalid arguments: {}", lines.join("; "));
                let violations = violations(invalid);
                let data =
                    json!({ "details": lines, "violations": violations, "retryable": false });
                Told::new(INVALID_PARAMS, message, data)
            }
            Self::TimedOut(_) | Self::Tool(ToolError::TimedOut) => {
                let data = json!({ "details": self.to_string(), "retryable": true });
                Told::new(TIMED_OUT, "the tool did not answer in time", data).for_models()
            }
            Self::Stopped(call) => {
                let data = json!({
                    "details": "it may have been done: its entry in the ledger says how far it came",
                    "retryable": false,
                    "call": call.map(|it| it.to_string()),
                });
                Told::new(TIMED_OUT, self.to_string(), data).for_models()
            }
            Self::Tool(ToolError::Failed(failure)) => {
                let details = failure.details.clone();
                let details = details.unwrap_or_else(|| json!(failure.message));
                let mut data = json!({ "details": details, "retryable": false });
                if let Some(traceback) = failure.traceback.as_ref().filter(|_| development) {
                    data["traceback"] = json!(traceback);
                }
                Told::new(FAILED, failure.message.clone(), data).for_models()
            }
            Self::Tool(ToolError::Crashed {
                message,
                retryable,
                detail,
            }) => {
                let mut data = json!({ "details": message, "retryable": retryable });
                if development {
                    data["traceback"] = json!(detail);
                }
                Told::new(FAILED, message.clone(), data).for_models()
            }
            Self::Tool(
                waits @ (ToolError::Busy { retry_after } | ToolError::Suspended { retry_after }),
            ) => {
                let seconds = quota_hints::ceiling_seconds(*retry_after);
                let details = waits.to_string();
                let message = format!("{details}; try again in {seconds} s");
                let data = json!({ "details": details, "retryable": true, "retry_after": seconds });
                Told::new(FAILED, message, data).for_models()
            }
            // The runner makes a result of it; getting here is a fault of ours.
            Self::Tool(ToolError::NeedsInput(_)) => internal(),
            Self::Tool(ToolError::Broken(_)) => {
                let data = json!({ "details": "the tool could not run", "retryable": false });
                Told::new(INTERNAL, "internal error", data)
            }
            Self::Read(failure) => read_told(failure, name, version),
            Self::Prompt(failure) => prompt_told(failure),
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
                Told::new(INVALID_PARAMS, message, data).into_error()
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
            other => other.told(uri, version, false).into_error(),
        }
    }
}

/// Code, text and data of a failure.
struct Told {
    code: i32,
    message: Cow<'static, str>,
    data: Value,
    is_for_models: bool,
}

impl Told {
    /// Something for programs: an error in every revision.
    fn new(code: i32, message: impl Into<Cow<'static, str>>, data: Value) -> Self {
        Self {
            code,
            message: message.into(),
            data,
            is_for_models: false,
        }
    }

    /// Marks a failure that the model behind a call can act upon (decisions D4 and D40).
    fn for_models(self) -> Self {
        Self {
            is_for_models: true,
            ..self
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

fn internal() -> Told {
    Told::new(INTERNAL, "internal error", json!({ "retryable": false }))
}

fn violations(invalid: &InvalidArguments) -> Vec<Value> {
    let violations = invalid.violations().iter();
    violations
        .map(|it| json!({ "pointer": it.pointer(), "message": it.message() }))
        .collect()
}

fn violation_lines(invalid: &InvalidArguments) -> Vec<String> {
    let mut lines: Vec<_> = invalid
        .violations()
        .iter()
        .map(ToString::to_string)
        .collect();
    if invalid.is_truncated() {
        lines.push("and more".to_owned());
    }
    lines
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

/// What is echoed of a client's text is bounded.
fn shortened(name: &str) -> String {
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

fn read_told(failure: &ReadFailure, uri: &str, version: ProtocolVersion) -> Told {
    match failure {
        ReadFailure::NotFound => unknown_resource(uri, version),
        ReadFailure::Range(why) => {
            let data = json!({ "uri": shortened(uri), "details": why, "retryable": false });
            Told::new(INVALID_PARAMS, "the range cannot be read", data)
        }
        ReadFailure::Unreadable(_) => {
            let data = json!({ "details": "the resource cannot be read", "retryable": false });
            Told::new(INTERNAL, "internal error", data)
        }
    }
}

fn prompt_told(failure: &PromptFailure) -> Told {
    match failure {
        PromptFailure::Arguments(why) => {
            let data = json!({ "details": why, "retryable": false });
            Told::new(INVALID_PARAMS, format!("invalid arguments: {why}"), data)
        }
        // The runner makes a result of it; getting here is a fault of ours.
        PromptFailure::NeedsInput(_) => internal(),
        PromptFailure::Broken(_) => {
            let data = json!({ "details": "the prompt cannot be filled in", "retryable": false });
            Told::new(INTERNAL, "internal error", data)
        }
    }
}

fn denied(denial: &Denial) -> Told {
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
    Told::new(DENIED, denial.to_string(), data).for_models()
}

/// What the caller is told says what to do, since it is a model that reads it.
fn unconfirmed_told(unconfirmed: &Unconfirmed) -> Told {
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
    Told::new(DENIED, details, data).for_models()
}

fn taken_told(taken: &KeyTaken) -> Told {
    let data = json!({
        "reason": "idempotency",
        "state": taken.state.as_str(),
        "call": taken.call.to_string(),
        "details": taken.to_string(),
        "retryable": taken.state == TakenBy::InFlight,
    });
    Told::new(DENIED, taken.to_string(), data).for_models()
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
