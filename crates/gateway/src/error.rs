use crate::{
    PromptFailure,
    confirmed::{PendingApproval, Unconfirmed},
    quota_report,
    replay::{BadKey, KeyTaken, TakenBy},
    resources::ReadFailure,
    tasks::rfc3339_millis,
};
use adapter_tools::{InvalidArguments, ToolError};
use governance::{Denial, Reason};
use jsonrpc_core::ErrorCode;
use ledger::{ApprovalState, CallId, Outcome, RecordError, UNKNOWN_CAPABILITY};
use mcp_protocol::{
    Era, ProtocolVersion,
    model::{CallToolResult, Content, ResultMeta},
};
use mcp_service::McpError;
use serde_json::{Value, json};
use std::time::Duration;

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
    /// The server stopped before it was done, and nobody knows how far it came. The ledger has it by
    /// this name, unless it runs without a record.
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

/// What clients are told of failures.
#[derive(Clone, Copy, Debug, Default)]
pub struct ErrorOptions {
    /// Whether failures of tools are errors or results.
    pub style: ErrorStyle,
    /// Whether they are told tracebacks (R9.5).
    pub development: bool,
}

/// Whether wrong arguments and failing handlers are JSON-RPC errors or results that say `isError`
/// (decisions D3 and D4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorStyle {
    /// Results since 2025-11-25, as SEP-1303 has it, and errors before.
    #[default]
    Auto,
    /// Errors everywhere.
    Protocol,
    /// Results everywhere.
    Result,
}

impl ErrorStyle {
    fn wants_result(self, version: ProtocolVersion) -> bool {
        match self {
            Self::Auto => ProtocolVersion::V2025_11_25 <= version,
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

    /// What a client of `version` is told, a result or an error: the one table from failures to
    /// codes. Causes that are no business of a client's stay in the log, in the line of the request.
    ///
    /// # Errors
    ///
    /// The error, where it is one.
    pub(crate) fn to_client(
        &self,
        name: &str,
        version: ProtocolVersion,
        options: ErrorOptions,
    ) -> Result<CallToolResult, McpError> {
        let as_result = options.style.wants_result(version);
        match self {
            // Word for word the same, or one could be told from the other (D28).
            Self::Unknown
            | Self::Denied(Denial {
                reason: Reason::NotVisible,
                ..
            }) => Err(unknown_tool(name, version)),
            Self::Denied(denial) => Err(denied(denial)),
            Self::Unrecorded(_) => Err(denied(&Denial::new(Reason::LedgerUnavailable))),
            Self::Unconfirmed(unconfirmed) => Err(unconfirmed_error(unconfirmed)),
            Self::KeyTaken(taken) => Err(taken_error(taken)),
            Self::BadKey(bad) => {
                let data = json!({ "details": bad.to_string(), "retryable": false });
                Err(error(
                    INVALID_PARAMS,
                    format!("invalid params: {bad}"),
                    &data,
                ))
            }
            Self::Invalid(invalid) | Self::Tool(ToolError::Rejected(invalid)) => {
                let lines = violation_lines(invalid);
                let violations: Vec<_> = invalid
                    .violations()
                    .iter()
                    .map(|it| json!({ "pointer": it.pointer(), "message": it.message() }))
                    .collect();
                if as_result {
                    let error = json!({ "code": INVALID_PARAMS, "violations": violations });
                    return Ok(failed_result(lines.join("\n"), &error));
                }
                let message = format!("invalid arguments: {}", lines.join("; "));
                let data =
                    json!({ "details": lines, "violations": violations, "retryable": false });
                Err(error(INVALID_PARAMS, message, &data))
            }
            Self::TimedOut(_) | Self::Tool(ToolError::TimedOut) => {
                let data = json!({ "details": self.to_string(), "retryable": true });
                Err(error(TIMED_OUT, "the tool did not answer in time", &data))
            }
            Self::Stopped(call) => {
                let data = json!({
                    "details": "it may have been done: its entry in the ledger says how far it came",
                    "retryable": false,
                    "call": call.map(|it| it.to_string()),
                });
                Err(error(TIMED_OUT, self.to_string(), &data))
            }
            Self::Tool(ToolError::Failed(failure)) => {
                let traceback = failure.traceback.as_ref().filter(|_| options.development);
                let details = failure
                    .details
                    .clone()
                    .unwrap_or_else(|| json!(failure.message));
                let mut data = json!({ "details": details, "retryable": false });
                if let Some(traceback) = traceback {
                    data["traceback"] = json!(traceback);
                }
                if as_result {
                    data["code"] = json!(FAILED);
                    return Ok(failed_result(failure.message.clone(), &data));
                }
                Err(error(FAILED, failure.message.clone(), &data))
            }
            Self::Tool(
                tool_error @ ToolError::Crashed {
                    message,
                    retryable,
                    detail,
                },
            ) => {
                let mut data = json!({ "details": tool_error.to_string(), "retryable": retryable });
                if options.development {
                    data["traceback"] = json!(detail);
                }
                Err(error(FAILED, message.clone(), &data))
            }
            Self::Tool(busy @ ToolError::Busy { retry_after }) => {
                let data = json!({
                    "details": busy.to_string(),
                    "retryable": true,
                    "retry_after": quota_report::ceiling_seconds(*retry_after),
                });
                Err(error(FAILED, "the tool is busy", &data))
            }
            Self::Tool(suspended @ ToolError::Suspended { retry_after }) => {
                let data = json!({
                    "details": suspended.to_string(),
                    "retryable": true,
                    "retry_after": quota_report::ceiling_seconds(*retry_after),
                });
                Err(error(FAILED, "the tool is suspended", &data))
            }
            // The runner makes a result of it; getting here is a fault of ours.
            Self::Tool(ToolError::NeedsInput(_)) => {
                Err(McpError::new(ErrorCode::INTERNAL_ERROR, "internal error"))
            }
            Self::Tool(ToolError::Broken(_)) => {
                let data = json!({ "details": "the tool could not run", "retryable": false });
                Err(error(INTERNAL, "internal error", &data))
            }
            Self::Read(failure) => Err(read_error(failure, name, version)),
            Self::Prompt(failure) => Err(prompt_error(failure)),
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
                error(
                    INVALID_PARAMS,
                    format!("unknown prompt: {}", shortened(name)),
                    &data,
                )
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
            }) => unknown_resource(uri, version),
            Self::Read(failure) => read_error(failure, uri, version),
            other => match other.to_client(
                uri,
                version,
                ErrorOptions {
                    style: ErrorStyle::Protocol,
                    development: false,
                },
            ) {
                Err(error) => error,
                Ok(_) => McpError::new(ErrorCode::INTERNAL_ERROR, "internal error"),
            },
        }
    }
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

fn error(code: i32, message: impl Into<std::borrow::Cow<'static, str>>, data: &Value) -> McpError {
    McpError(McpError::new(ErrorCode(code), message).0.with(data))
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

fn unknown_tool(name: &str, version: ProtocolVersion) -> McpError {
    let message = format!("unknown tool: {}", shortened(name));
    let details = json!({ "details": "there is no tool of this name", "retryable": false });
    match version.era() {
        Era::Legacy => error(TOOL_NOT_FOUND, message, &details),
        Era::Modern => {
            let mut data = details;
            data["code"] = json!(TOOL_NOT_FOUND);
            error(INVALID_PARAMS, message, &data)
        }
    }
}

fn unknown_resource(uri: &str, version: ProtocolVersion) -> McpError {
    let message = "resource not found";
    let mut data = json!({ "uri": shortened(uri), "details": "there is no resource at this URI", "retryable": false });
    match version.era() {
        Era::Legacy => error(RESOURCE_NOT_FOUND, message, &data),
        Era::Modern => {
            data["code"] = json!(RESOURCE_NOT_FOUND);
            error(INVALID_PARAMS, message, &data)
        }
    }
}

fn read_error(failure: &ReadFailure, uri: &str, version: ProtocolVersion) -> McpError {
    match failure {
        ReadFailure::NotFound => unknown_resource(uri, version),
        ReadFailure::Range(why) => {
            let data = json!({ "uri": shortened(uri), "details": why, "retryable": false });
            error(INVALID_PARAMS, "the range cannot be read", &data)
        }
        ReadFailure::Unreadable(_) => {
            let data = json!({ "details": "the resource cannot be read", "retryable": false });
            error(INTERNAL, "internal error", &data)
        }
    }
}

fn prompt_error(failure: &PromptFailure) -> McpError {
    match failure {
        PromptFailure::Arguments(why) => {
            let data = json!({ "details": why, "retryable": false });
            error(INVALID_PARAMS, format!("invalid arguments: {why}"), &data)
        }
        // The runner makes a result of it; getting here is a fault of ours.
        PromptFailure::NeedsInput(_) => McpError::new(ErrorCode::INTERNAL_ERROR, "internal error"),
        PromptFailure::Broken(_) => {
            let data = json!({ "details": "the prompt cannot be filled in", "retryable": false });
            error(INTERNAL, "internal error", &data)
        }
    }
}

fn denied(denial: &Denial) -> McpError {
    let mut data = json!({
        "reason": public_reason(denial.reason),
        "details": denial.to_string(),
        "retryable": denial.is_retryable(),
    });
    if let Some(wait) = denial.retry_after {
        data["retry_after"] = json!(quota_report::ceiling_seconds(wait));
    }
    if let Some(remaining) = quota_report::as_json(&denial.remaining) {
        data["remaining"] = remaining;
    }
    error(DENIED, denial.to_string(), &data)
}

/// What the caller is told says what to do, since it is a model that reads it.
fn unconfirmed_error(unconfirmed: &Unconfirmed) -> McpError {
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
    error(DENIED, details, &data)
}

fn taken_error(taken: &KeyTaken) -> McpError {
    let data = json!({
        "reason": "idempotency",
        "state": taken.state.as_str(),
        "call": taken.call.to_string(),
        "details": taken.to_string(),
        "retryable": taken.state == TakenBy::InFlight,
    });
    error(DENIED, taken.to_string(), &data)
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
