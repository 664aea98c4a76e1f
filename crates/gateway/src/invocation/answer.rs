//! Answers to callers of tools.

use crate::invocation::quota_hints;
use crate::invocation::{
    Invoked,
    call_report::Tally,
    failure::{AnswerOptions, InvocationError},
};
use jsonrpc_core::ErrorCode;
use mcp_protocol::model::CallToolResult;
use mcp_service::{McpError, RequestCx};

/// What the caller of a tool is told.
pub(crate) fn tool_result(
    outcome: Result<Invoked, InvocationError>,
    tally: &Tally,
    tool: &str,
    cx: &RequestCx,
    answering: AnswerOptions,
) -> Result<CallToolResult, McpError> {
    let mut result = match outcome {
        Ok(Invoked::Tool(result)) => result,
        Ok(_) => return Err(mixed_up()),
        Err(error) => {
            let result = error.to_client(tool, cx, answering)?;
            tally.told_code(error.founding_code());
            result
        }
    };
    // Results that say what went wrong are results as well (decision D21).
    if let Some(remaining) = tally.remaining().filter(|_| answering.quota_meta) {
        quota_hints::annotate(&mut result.meta, remaining);
    }
    Ok(result)
}

/// One kind of thing was called and another answered, which is a fault of ours.
pub(crate) fn mixed_up() -> McpError {
    McpError::new(ErrorCode::INTERNAL_ERROR, "internal error")
}
