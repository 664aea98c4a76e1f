use crate::invocation::verdict::Fault;
use crate::invocation::verdict::Severity;
use crate::{
    invocation::failure::InvocationError,
    offer::{prompts::PromptFailure, resources::ReadFailure},
};
use adapter_tools::ToolError;
use governance::{Denial, Reason};

impl Fault {
    pub(crate) fn of(error: &InvocationError) -> Self {
        let mut message = error.for_the_record();
        if let InvocationError::Tool(ToolError::Crashed { detail, .. }) = error {
            message.push_str(": ");
            message.push_str(detail);
        }
        let stack = match error {
            InvocationError::Tool(error) => error.traceback().map(str::to_owned),
            _ => None,
        };
        Self {
            severity: severity(error),
            kind: kind(error),
            message,
            stack,
        }
    }

    pub(crate) fn of_denial(denial: &Denial) -> Self {
        Self {
            severity: severity_of(denial),
            kind: "denied",
            message: denial.to_string(),
            stack: None,
        }
    }

    /// There is nothing of the name.
    pub(crate) fn unknown() -> Self {
        Self {
            severity: Severity::Warning,
            kind: "unknown",
            message: "there is no such capability".to_owned(),
            stack: None,
        }
    }
}

fn severity_of(denial: &Denial) -> Severity {
    match denial.reason {
        Reason::LedgerUnavailable | Reason::StoreUnavailable | Reason::Crowd => Severity::Error,
        _ => Severity::Warning,
    }
}

pub(super) fn severity(error: &InvocationError) -> Severity {
    match error {
        InvocationError::Denied(denial) => severity_of(denial),
        InvocationError::Unrecorded(_)
        | InvocationError::TimedOut(_)
        | InvocationError::Tool(
            ToolError::Crashed { .. } | ToolError::TimedOut | ToolError::Broken(_),
        )
        | InvocationError::Read(ReadFailure::Unreadable(_))
        | InvocationError::Prompt(PromptFailure::Broken(_)) => Severity::Error,
        _ => Severity::Warning,
    }
}

fn kind(error: &InvocationError) -> &'static str {
    match error {
        InvocationError::Unknown => "unknown",
        InvocationError::Denied(_) => "denied",
        InvocationError::Unrecorded(_) => "ledger",
        InvocationError::Unconfirmed(_) => "unconfirmed",
        InvocationError::BadKey(_) | InvocationError::KeyTaken(_) => "idempotency_key",
        InvocationError::Invalid(_)
        | InvocationError::Tool(ToolError::Rejected(_))
        | InvocationError::Prompt(PromptFailure::Arguments(_)) => "invalid_arguments",
        InvocationError::TimedOut(_) | InvocationError::Tool(ToolError::TimedOut) => "timed_out",
        InvocationError::Stopped(_) => "stopped",
        InvocationError::Tool(ToolError::Failed(_)) => "handler",
        InvocationError::Tool(ToolError::Crashed { .. }) => "crashed",
        InvocationError::Tool(ToolError::Busy { .. }) => "busy",
        InvocationError::Tool(ToolError::Suspended { .. }) => "suspended",
        InvocationError::Tool(ToolError::NeedsInput(_))
        | InvocationError::Prompt(PromptFailure::NeedsInput(_)) => "needs_input",
        InvocationError::Tool(ToolError::Broken(_)) => "broken_tool",
        InvocationError::Read(ReadFailure::NotFound) => "not_found",
        InvocationError::Read(ReadFailure::Range(_)) => "invalid_range",
        InvocationError::Read(ReadFailure::Unreadable(_)) => "unreadable_resource",
        InvocationError::Prompt(PromptFailure::Broken(_)) => "broken_prompt",
    }
}
