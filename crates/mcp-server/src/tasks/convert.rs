//! Tasks as the store has them and as clients see them.

use crate::clock::rfc3339_millis;
use jsonrpc_core::{ErrorCode, ErrorObject, RawJson};
use mcp_protocol::model::{Task, TaskState};
use mcp_service::McpError;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use task_store::{TaskRecord, TaskState as Stored};

/// The state as it is kept: without secrets that the process knows.
pub(crate) fn stored(state: &TaskState) -> Stored {
    let kept = |json: &RawJson| redaction::without_known_json(json.as_str()).into_owned();
    match state {
        TaskState::Working => Stored::Working,
        TaskState::InputRequired { requests } => Stored::InputRequired {
            requests: kept(requests),
        },
        TaskState::Completed { result, is_error } => Stored::Completed {
            result: kept(result),
            is_error: *is_error,
        },
        TaskState::Failed { error } => Stored::Failed { error: kept(error) },
        TaskState::Cancelled => Stored::Cancelled,
    }
}

/// Size of a task's outcome in bytes.
pub(crate) fn size(state: &TaskState) -> usize {
    match state {
        TaskState::InputRequired { requests: text }
        | TaskState::Completed { result: text, .. }
        | TaskState::Failed { error: text } => text.as_str().len(),
        TaskState::Working | TaskState::Cancelled => 0,
    }
}

/// `poll_interval_ms` as for tasks that run.
pub(crate) fn seen(record: TaskRecord, poll_interval_ms: u64) -> Task {
    // What the store has was JSON when it was put there. Lists leave it out.
    let raw = |text: String| match text.is_empty() {
        true => RawJson::NULL,
        false => RawJson::from_serialized(text.into_bytes()),
    };
    Task {
        id: record.id.as_str().to_owned(),
        state: match record.state {
            Stored::Working => TaskState::Working,
            Stored::InputRequired { requests } => TaskState::InputRequired {
                requests: raw(requests),
            },
            Stored::Completed { result, is_error } => TaskState::Completed {
                result: raw(result),
                is_error,
            },
            Stored::Failed { error } => TaskState::Failed { error: raw(error) },
            Stored::Cancelled => TaskState::Cancelled,
        },
        status_message: record.message,
        created_at: rfc3339_millis(record.created_us),
        last_updated_at: rfc3339_millis(record.updated_us),
        ttl_ms: Some(record.expires_us.saturating_sub(record.created_us) / 1_000),
        poll_interval_ms: Some(poll_interval_ms),
    }
}

/// An error as a task has it.
pub(crate) fn error_json(McpError(error): &McpError) -> RawJson {
    #[derive(Serialize)]
    struct Wire<'a> {
        code: i32,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a RawJson>,
    }
    let wire = Wire {
        code: error.code.0,
        message: &error.message,
        data: error.data.as_ref(),
    };
    RawJson::from_value(&wire).expect("strings, integers and JSON serialize")
}

/// The error that a task has.
pub(crate) fn error_of(json: &RawJson) -> McpError {
    #[derive(Deserialize)]
    struct Wire<'a> {
        code: i32,
        message: String,
        #[serde(borrow, default)]
        data: Option<&'a RawValue>,
    }
    match json.parse::<Wire<'_>>() {
        Ok(wire) => McpError(ErrorObject {
            code: ErrorCode(wire.code),
            message: wire.message.into(),
            data: wire.data.map(|data| json.child(data)),
        }),
        Err(error) => McpError::internal(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_come_back_as_they_were() {
        let plain = McpError(ErrorObject::new(ErrorCode(-32_003), "no"));
        let full = McpError(plain.0.clone().with(&json!({ "reason": "budget" })));
        for error in [plain, full] {
            assert_eq!(error_of(&error_json(&error)).0, error.0);
        }
    }
}
