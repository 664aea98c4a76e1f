//! Encoding of tasks, in the form that each revision has.

use super::views::Asked;
use crate::{
    Era, ProtocolVersion,
    model::{InputRequest, ListTasksResult, Task, TaskState, TaskSupport},
};
use jsonrpc_core::RawJson;
use serde::Serialize;
use std::collections::BTreeMap;

/// A task as revision `version` has it: the names of its members differ, what it has come to is a
/// part of it in the extension alone, and the extension alone tells a tool's failure from others.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskView<'a> {
    task_id: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<&'a str>,
    created_at: &'a str,
    last_updated_at: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_interval_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_interval: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_requests: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RawJson>,
}

/// A task that was just created: nothing has come of it yet.
pub(super) fn created_view(version: ProtocolVersion, task: &Task) -> TaskView<'_> {
    TaskView {
        input_requests: None,
        result: None,
        error: None,
        ..task_view(version, task)
    }
}

/// A task with what has come of it.
pub(super) fn task_view(version: ProtocolVersion, task: &Task) -> TaskView<'_> {
    let modern = version.era() == Era::Modern;
    let status = match &task.state {
        TaskState::Working => "working",
        TaskState::InputRequired { .. } => "input_required",
        TaskState::Completed { is_error: true, .. } if !modern => "failed",
        TaskState::Completed { .. } => "completed",
        TaskState::Failed { .. } => "failed",
        TaskState::Cancelled => "cancelled",
    };
    let (mut input_requests, mut result, mut error) = (None, None, None);
    match &task.state {
        TaskState::InputRequired { requests } => input_requests = Some(requests),
        TaskState::Completed { result: it, .. } => result = Some(it),
        TaskState::Failed { error: it } => error = Some(it),
        TaskState::Working | TaskState::Cancelled => {}
    }
    TaskView {
        task_id: &task.id,
        status,
        status_message: task.status_message.as_deref(),
        created_at: &task.created_at,
        last_updated_at: &task.last_updated_at,
        ttl_ms: modern.then_some(task.ttl_ms),
        ttl: (!modern).then_some(task.ttl_ms),
        poll_interval_ms: task.poll_interval_ms.filter(|_| modern),
        poll_interval: task.poll_interval_ms.filter(|_| !modern),
        input_requests: input_requests.filter(|_| modern),
        result: result.filter(|_| modern),
        error: error.filter(|_| modern),
    }
}

/// Revision 2025-11-25 wraps the task that a call is answered with.
#[derive(Serialize)]
pub(super) struct Wrapped<'a> {
    pub(super) task: TaskView<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskList<'a> {
    tasks: Vec<TaskView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<&'a str>,
}

impl<'a> TaskList<'a> {
    pub(super) fn new(version: ProtocolVersion, list: &'a ListTasksResult) -> Self {
        Self {
            tasks: list.tasks.iter().map(|it| task_view(version, it)).collect(),
            next_cursor: list.next_cursor.as_deref(),
        }
    }
}

/// Revision 2025-11-25 alone tells clients of it, and takes none to be said for never.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Execution {
    task_support: TaskSupport,
}

pub(super) fn execution_view(version: ProtocolVersion, support: TaskSupport) -> Option<Execution> {
    let said = version == ProtocolVersion::V2025_11_25 && support != TaskSupport::Forbidden;
    said.then_some(Execution {
        task_support: support,
    })
}

/// Questions to a modern client by their keys, as results and tasks have them.
pub fn encode_input_requests(requests: &BTreeMap<String, InputRequest>) -> RawJson {
    let views: BTreeMap<_, _> = requests
        .iter()
        .map(|(key, request)| (key, Asked::from(request)))
        .collect();
    RawJson::from_value(&views).expect("a tree of values serializes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Encoder, encode_notification,
        model::{Implementation, RELATED_TASK, ServerNotification, ServerResult},
    };
    use jsonrpc_core::Id;
    use serde_json::{Value, json};

    const MODERN: ProtocolVersion = ProtocolVersion::V2026_07_28;
    const LEGACY: ProtocolVersion = ProtocolVersion::V2025_11_25;

    fn task(state: TaskState) -> Task {
        Task {
            id: "t".to_owned(),
            state,
            status_message: None,
            created_at: "2026-11-21T10:00:00Z".to_owned(),
            last_updated_at: "2026-11-21T10:00:01Z".to_owned(),
            ttl_ms: Some(60_000),
            poll_interval_ms: Some(500),
        }
    }

    fn raw(value: Value) -> RawJson {
        RawJson::from_value(&value).unwrap()
    }

    fn encoded(version: ProtocolVersion, result: &ServerResult) -> Value {
        let encoder = Encoder::new(&Implementation::default());
        let mut value: Value = encoder.result(version, result).unwrap().parse().unwrap();
        if version == MODERN {
            value.as_object_mut().unwrap().remove("_meta");
        }
        value
    }

    #[test]
    fn the_two_forms_have_their_own_names() {
        let state = TaskState::Completed {
            result: raw(json!({ "content": [] })),
            is_error: true,
        };
        let result = ServerResult::Task(Box::new(task(state)));
        assert_eq!(
            encoded(MODERN, &result),
            json!({
                "resultType": "complete", "taskId": "t", "status": "completed",
                "createdAt": "2026-11-21T10:00:00Z", "lastUpdatedAt": "2026-11-21T10:00:01Z",
                "ttlMs": 60_000, "pollIntervalMs": 500, "result": { "content": [] },
            })
        );
        assert_eq!(
            encoded(LEGACY, &result),
            json!({
                "taskId": "t", "status": "failed",
                "createdAt": "2026-11-21T10:00:00Z", "lastUpdatedAt": "2026-11-21T10:00:01Z",
                "ttl": 60_000, "pollInterval": 500,
            })
        );
    }

    #[test]
    fn a_created_task_says_nothing_of_what_comes_of_it() {
        let asking = task(TaskState::InputRequired {
            requests: raw(json!({ "k": {} })),
        });
        let modern = encoded(MODERN, &ServerResult::CreateTask(Box::new(asking.clone())));
        assert_eq!(modern["resultType"], "task");
        assert_eq!(modern["status"], "input_required");
        assert_eq!(modern.get("inputRequests"), None);
        let legacy = encoded(LEGACY, &ServerResult::CreateTask(Box::new(asking)));
        assert_eq!(legacy["task"]["taskId"], "t");
        assert_eq!(legacy["_meta"][RELATED_TASK]["taskId"], "t");
    }

    #[test]
    fn changes_are_told_by_the_name_the_revision_has_for_them() {
        let failed = task(TaskState::Failed {
            error: raw(json!({ "code": -32603, "message": "m" })),
        });
        let notification = ServerNotification::TaskChanged(failed);
        let modern = encode_notification(MODERN, &notification, Some(&Id::Number(7)));
        assert_eq!(modern.method, "notifications/tasks");
        let params: Value = modern.params.parse().unwrap();
        assert_eq!(params["error"]["code"], -32603);
        assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
        let legacy = encode_notification(LEGACY, &notification, None);
        assert_eq!(legacy.method, "notifications/tasks/status");
        let params: Value = legacy.params.parse().unwrap();
        assert_eq!(params["status"], "failed");
        assert_eq!(params.get("error"), None);
    }
}
