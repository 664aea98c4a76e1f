//! Encoding of notifications and requests that a server sends to its peer.

use super::tasks::task_view;
use crate::{
    Era, ProtocolVersion,
    model::{InputRequest, LoggingLevel, RELATED_TASK, ServerNotification},
};
use jsonrpc_core::{Id, Notification, RawJson, Request};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Progress of a request. Not a tree of values, which would lose digits of large tokens.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Progress<'a> {
    pub(crate) progress_token: &'a Id,
    pub(crate) progress: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<&'a str>,
}

/// Not a tree of values either, for what is told may be nested deeper than those are read.
#[derive(Serialize)]
struct Log<'a> {
    level: LoggingLevel,
    #[serde(skip_serializing_if = "Option::is_none")]
    logger: Option<&'a str>,
    data: &'a RawJson,
}

/// A request that is not wanted any more.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cancelled<'a> {
    pub(crate) request_id: &'a Id,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'a str>,
}

/// Encodes a notification; `subscription` is the id of the `subscriptions/listen` request it is sent
/// for, which modern revisions demand.
pub fn encode_notification(
    version: ProtocolVersion,
    notification: &ServerNotification,
    subscription: Option<&Id>,
) -> Notification {
    #[derive(Serialize)]
    struct Params<'a, T> {
        #[serde(flatten)]
        own: T,
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<Subscription<'a>>,
    }
    #[derive(Serialize)]
    struct Subscription<'a> {
        #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
        id: &'a Id,
    }
    fn of<T: Serialize>(method: &str, own: T, subscription: Option<&Id>) -> Notification {
        Notification {
            method: method.to_owned(),
            params: RawJson::from_value(&Params {
                own,
                meta: subscription.map(|id| Subscription { id }),
            })
            .expect("strings, numbers and trees of values serialize"),
        }
    }
    let make = |method: &str, own: Value| of(method, own, subscription);
    match notification {
        ServerNotification::Progress {
            token,
            progress,
            total,
            message,
        } => {
            let message = message.as_deref();
            let params = Progress {
                progress_token: token,
                progress: *progress,
                total: *total,
                message: message.filter(|_| ProtocolVersion::V2025_03_26 <= version),
            };
            of("notifications/progress", params, subscription)
        }
        ServerNotification::ToolsListChanged => make("notifications/tools/list_changed", json!({})),
        ServerNotification::PromptsListChanged => {
            make("notifications/prompts/list_changed", json!({}))
        }
        ServerNotification::Log {
            level,
            logger,
            data,
        } => {
            let params = Log {
                level: *level,
                logger: logger.as_deref(),
                data,
            };
            of("notifications/message", params, subscription)
        }
        ServerNotification::ResourcesListChanged => {
            make("notifications/resources/list_changed", json!({}))
        }
        ServerNotification::ResourceUpdated { uri } => {
            make("notifications/resources/updated", json!({ "uri": uri }))
        }
        ServerNotification::SubscriptionsAcknowledged { accepted } => make(
            "notifications/subscriptions/acknowledged",
            json!({ "notifications": accepted }),
        ),
        ServerNotification::ElicitationComplete { elicitation_id } => make(
            "notifications/elicitation/complete",
            json!({ "elicitationId": elicitation_id }),
        ),
        ServerNotification::TaskChanged(task) => {
            let method = match version.era() {
                Era::Modern => "notifications/tasks",
                Era::Legacy => "notifications/tasks/status",
            };
            of(method, task_view(version, task), subscription)
        }
        ServerNotification::Cancelled { request, reason } => {
            let params = Cancelled {
                request_id: request,
                reason: reason.as_deref(),
            };
            of("notifications/cancelled", params, subscription)
        }
    }
}

/// A question to a legacy client, as a request of the server's own with the id `id`; `task` is the
/// id of the task that asks, which 2025-11-25 demands.
pub fn encode_input_request(
    version: ProtocolVersion,
    id: Id,
    request: &InputRequest,
    task: Option<&str>,
) -> Request {
    let mut params = request.params();
    if let InputRequest::CreateMessage(_) = request
        && version < ProtocolVersion::V2025_11_25
    {
        // Sampling with tools came with 2025-11-25.
        params.members.remove("tools");
        params.members.remove("toolChoice");
    }
    if let Some(task) = task {
        // A handler may have put anything there.
        let mut meta = match params.members.remove("_meta") {
            Some(Value::Object(meta)) => meta,
            _ => Map::new(),
        };
        meta.insert(RELATED_TASK.to_owned(), json!({ "taskId": task }));
        params
            .members
            .insert("_meta".to_owned(), Value::Object(meta));
    }
    Request {
        id,
        method: request.method().to_owned(),
        params: RawJson::from_value(&params).expect("members of objects serialize"),
    }
}
