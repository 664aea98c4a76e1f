//! Ends of calls, as the ledger, breakers and budgets see them.

use crate::{
    invocation::{Invoked, failure::InvocationError},
    offer::{prompts::PromptFailure, resources::ReadFailure},
};
use adapter_tools::ToolError;
use governance::Ending;
use mcp_protocol::model::CallToolResult;
use std::borrow::Cow;

/// What a tool has answered, without what we have added.
pub(crate) fn recorded_result(result: &CallToolResult) -> Cow<'_, str> {
    match &result.structured_content {
        Some(structured) => structured.as_str().into(),
        None => serde_json::to_string(&result.content)
            .unwrap_or_default()
            .into(),
    }
}

/// Whether a call that was let through has not begun all the same.
pub(crate) fn never_began(outcome: &Result<Invoked, InvocationError>) -> bool {
    match outcome {
        Ok(Invoked::NeedsConfirmation(_)) | Err(InvocationError::Unrecorded(_)) => true,
        Ok(_) => false,
        Err(error) => error.refuses(),
    }
}

/// What the end of a call says of the health of what was called: for breakers.
pub(crate) fn ending_of(outcome: &Result<Invoked, InvocationError>) -> Ending {
    match outcome {
        Ok(Invoked::Tool(result)) if result.is_error => Ending::Failed,
        Ok(Invoked::Tool(_) | Invoked::Resource(_) | Invoked::Prompt(_)) => Ending::Succeeded,
        // It has not done yet what it was called for.
        Ok(Invoked::NeedsInput(_) | Invoked::NeedsConfirmation(_)) => Ending::NotRun,
        Err(
            InvocationError::TimedOut(_)
            | InvocationError::Read(ReadFailure::Unreadable(_))
            | InvocationError::Prompt(PromptFailure::Broken(_)),
        ) => Ending::Failed,
        Err(InvocationError::Tool(error)) => match error {
            ToolError::Failed(_)
            | ToolError::Crashed { .. }
            | ToolError::TimedOut
            | ToolError::Broken(_) => Ending::Failed,
            ToolError::NeedsInput(_)
            | ToolError::Rejected(_)
            | ToolError::Busy { .. }
            | ToolError::Suspended { .. } => Ending::NotRun,
        },
        Err(
            InvocationError::Unknown
            | InvocationError::Denied(_)
            | InvocationError::Unrecorded(_)
            | InvocationError::Unconfirmed(_)
            | InvocationError::BadKey(_)
            | InvocationError::KeyTaken(_)
            | InvocationError::Invalid(_)
            | InvocationError::Read(_)
            | InvocationError::Prompt(_),
        ) => Ending::NotRun,
        Err(InvocationError::Stopped(_)) => Ending::GivenUp,
    }
}
