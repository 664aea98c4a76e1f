//! Faults of calls, for operators.

use crate::invocation::{
    failure::{InvocationError, meaning_of_denial},
    verdict::Fault,
};
use adapter_tools::ToolError;
use governance::Denial;

impl Fault {
    pub(crate) fn of(error: &InvocationError) -> Self {
        let mut message = error.for_the_record();
        if let InvocationError::Tool(
            ToolError::Crashed { detail, .. }
            | ToolError::Unavailable { detail, .. }
            | ToolError::Lost { detail, .. },
        ) = error
        {
            message.push_str(": ");
            message.push_str(detail);
        }
        let stack = match error {
            InvocationError::Tool(error) => error.traceback().map(str::to_owned),
            _ => None,
        };
        let meaning = error.meaning();
        Self {
            severity: meaning.severity,
            kind: meaning.kind,
            message,
            stack,
        }
    }

    pub(crate) fn of_denial(denial: &Denial) -> Self {
        let meaning = meaning_of_denial(denial);
        Self {
            severity: meaning.severity,
            kind: meaning.kind,
            message: denial.for_the_record(),
            stack: None,
        }
    }
}
