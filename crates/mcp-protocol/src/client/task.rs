//! Reading of tasks, in the form that each revision has.

use crate::{
    Era, ProtocolVersion,
    model::{Object, Task, TaskState, or_default, raw_object, raw_object_or_null, whole},
};
use jsonrpc_core::RawJson;
use serde::{Deserialize, Deserializer, de::Error};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    task_id: String,
    status: Status,
    #[serde(default)]
    status_message: Option<String>,
    created_at: String,
    last_updated_at: String,
    #[serde(default, deserialize_with = "whole")]
    ttl_ms: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    ttl: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    poll_interval_ms: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    poll_interval: Option<u64>,
    #[serde(default, deserialize_with = "raw_object_or_null")]
    input_requests: Option<RawJson>,
    #[serde(default, deserialize_with = "raw_object_or_null")]
    result: Option<RawJson>,
    #[serde(default, deserialize_with = "raw_object_or_null")]
    error: Option<RawJson>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

/// A task; `created` if it is one that a call was answered with, which says nothing of what comes
/// of it.
pub(super) fn read(
    version: ProtocolVersion,
    created: bool,
    task: &RawJson,
) -> Result<Task, serde_json::Error> {
    let Object(wire): Object<Wire> = task.parse()?;
    let modern = version.era() == Era::Modern;
    let told = modern && !created;
    let part = |part: Option<RawJson>, name: &str| match part {
        Some(part) if told => Ok(part),
        None if told => Err(serde_json::Error::custom(format!("missing field `{name}`"))),
        _ => Ok(RawJson::NULL),
    };
    let state = match wire.status {
        Status::Working => TaskState::Working,
        Status::Cancelled => TaskState::Cancelled,
        Status::InputRequired => TaskState::InputRequired {
            requests: part(wire.input_requests, "inputRequests")?,
        },
        Status::Completed => {
            let result = part(wire.result, "result")?;
            let is_error = told && result.parse::<Failed>()?.is_error;
            TaskState::Completed { result, is_error }
        }
        Status::Failed => TaskState::Failed {
            error: part(wire.error, "error")?,
        },
    };
    Ok(Task {
        id: wire.task_id,
        state,
        status_message: wire.status_message,
        created_at: wire.created_at,
        last_updated_at: wire.last_updated_at,
        ttl_ms: if modern { wire.ttl_ms } else { wire.ttl },
        poll_interval_ms: match modern {
            true => wire.poll_interval_ms,
            false => wire.poll_interval,
        },
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Failed {
    #[serde(default, deserialize_with = "or_default")]
    is_error: bool,
}

/// The task that a call of 2025-11-25 was answered with, if it was.
pub(super) fn wrapped(result: &RawJson) -> Result<Option<RawJson>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Wrapped {
        #[serde(default, deserialize_with = "one")]
        task: Option<RawJson>,
    }
    result.parse::<Wrapped>().map(|wrapped| wrapped.task)
}

fn one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RawJson>, D::Error> {
    raw_object(deserializer).map(Some)
}
