//! Ends of calls, as budgets, breakers, metrics and the ledger see them. What follows from a failure
//! is in the table of `failure.rs`.

use crate::invocation::{
    Invoked,
    failure::{Charge, InvocationError},
    verdict::Ended,
};
use governance::Ending;
use mcp_protocol::{
    model::{CallToolResult, Content},
    write_plain_text,
};
use std::borrow::Cow;

/// The answer of a tool, without what the server has added.
pub(crate) fn recorded_result(result: &CallToolResult) -> Cow<'_, str> {
    match &result.structured_content {
        Some(structured) => structured.as_str().into(),
        None => {
            let mut text = Vec::with_capacity(128);
            if write_plain_text(&result.content, &mut text)
                && let Ok(text) = String::from_utf8(text)
            {
                return text.into();
            }
            let text = serde_json::to_string(&result.content);
            text.unwrap_or_default().into()
        }
    }
}

/// About as many bytes as [`recorded_result`] has, where a single text says it all.
pub(crate) fn size_of_result(result: &CallToolResult) -> usize {
    match (&result.structured_content, result.content.as_slice()) {
        (None, [Content::Text { text, .. }]) => text.len(),
        _ => recorded_result(result).len(),
    }
}

/// The cost of a call with this end.
pub(crate) fn charge_of(outcome: &Result<Invoked, InvocationError>) -> Charge {
    match outcome {
        Ok(Invoked::Tool(_) | Invoked::Resource(_) | Invoked::Prompt(_)) => Charge::Estimate,
        // The estimate is for what the call has not done yet.
        Ok(Invoked::NeedsInput(_)) => Charge::Metered,
        Ok(Invoked::NeedsConfirmation(_)) => Charge::Released,
        Err(error) => error.meaning().charge,
    }
}

/// True if a call that was let through has not begun all the same.
pub(crate) fn never_began(outcome: &Result<Invoked, InvocationError>) -> bool {
    charge_of(outcome) == Charge::Released
}

/// The end of a call as breakers see it: the health of what was called.
pub(crate) fn ending_of(outcome: &Result<Invoked, InvocationError>) -> Ending {
    match outcome {
        Ok(Invoked::Tool(result)) if result.is_error => Ending::Failed,
        Ok(Invoked::Tool(_) | Invoked::Resource(_) | Invoked::Prompt(_)) => Ending::Succeeded,
        // The call has not done yet what it was made for.
        Ok(Invoked::NeedsInput(_) | Invoked::NeedsConfirmation(_)) => Ending::NotRun,
        Err(error) => error.meaning().breaker,
    }
}

/// The end of a call as metrics count it.
pub(crate) fn ended_as(outcome: &Result<Invoked, InvocationError>) -> Ended {
    match outcome {
        Ok(Invoked::Tool(result)) if result.is_error => Ended::Error,
        Ok(Invoked::Tool(_) | Invoked::Resource(_) | Invoked::Prompt(_)) => Ended::Ok,
        Ok(Invoked::NeedsInput(_) | Invoked::NeedsConfirmation(_)) => Ended::Asked,
        Err(error) => error.meaning().ended,
    }
}
