use super::{input, meta::SUBSCRIPTION_ID, task};
use crate::{
    Era, ProtocolError, ProtocolVersion,
    model::{
        InputRequest, LoggingLevel, Object, ResultMeta, ServerNotification, SubscriptionFilter,
        or_default, raw,
    },
};
use jsonrpc_core::{Id, RawJson};
use serde::{Deserialize, de::DeserializeOwned};

/// A notification that cannot be understood. It is not answered, and changes nothing.
#[derive(Debug, thiserror::Error)]
#[error("`{method}` does not fit")]
pub struct NotificationError {
    /// Method of the message.
    pub method: &'static str,
    /// Error of the member that does not fit.
    #[source]
    pub cause: serde_json::Error,
}

/// Notification that a server has sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Notification.
    pub notification: ServerNotification,
    /// The id of the `subscriptions/listen` it was sent for; modern revisions alone have it.
    pub subscription: Option<Id>,
    /// The other entries of its `_meta`.
    pub meta: ResultMeta,
}

/// Reads a notification; `None` for one that revision `version` does not have, which is to be
/// ignored.
///
/// # Errors
///
/// [`NotificationError`] when the revision has it and `params` do not fit.
pub fn decode_server_notification(
    version: ProtocolVersion,
    method: &str,
    params: &RawJson,
) -> Result<Option<Told>, NotificationError> {
    let Some(&(method, _, read)) = NOTIFICATIONS
        .iter()
        .find(|(name, exists, _)| *name == method && exists(version))
    else {
        return Ok(None);
    };
    let malformed = |cause| NotificationError { method, cause };
    let Object(Shape { mut meta }) = params.parse().map_err(malformed)?;
    let notification = read(version, params).map_err(malformed)?;
    let mut subscription = None;
    if version.era() == Era::Modern
        && let Some(id) = meta.remove(SUBSCRIPTION_ID)
    {
        subscription = Some(id.parse().map_err(malformed)?);
    }
    Ok(Some(Told {
        notification,
        subscription,
        meta,
    }))
}

#[derive(Deserialize)]
struct Shape {
    #[serde(default, rename = "_meta", deserialize_with = "or_default")]
    meta: ResultMeta,
}

type Exists = fn(ProtocolVersion) -> bool;
type Read = fn(ProtocolVersion, &RawJson) -> Result<ServerNotification, serde_json::Error>;

fn always(_: ProtocolVersion) -> bool {
    true
}

fn modern(version: ProtocolVersion) -> bool {
    version.era() == Era::Modern
}

fn with_legacy_tasks(version: ProtocolVersion) -> bool {
    version == ProtocolVersion::V2025_11_25
}

#[rustfmt::skip]
const NOTIFICATIONS: &[(&str, Exists, Read)] = &[
    ("notifications/progress",                   always, progress),
    ("notifications/message",                    always, log),
    ("notifications/cancelled",                  always, cancelled),
    ("notifications/tools/list_changed",         always, |_, _| Ok(ServerNotification::ToolsListChanged)),
    ("notifications/prompts/list_changed",       always, |_, _| Ok(ServerNotification::PromptsListChanged)),
    ("notifications/resources/list_changed",     always, |_, _| Ok(ServerNotification::ResourcesListChanged)),
    ("notifications/resources/updated",          always, updated),
    ("notifications/subscriptions/acknowledged", modern, acknowledged),
    ("notifications/tasks",                      modern, task_changed),
    ("notifications/tasks/status",               with_legacy_tasks, task_changed),
    ("notifications/elicitation/complete",       with_legacy_tasks, elicited),
];

fn read<T: DeserializeOwned>(params: &RawJson) -> Result<T, serde_json::Error> {
    params.parse()
}

fn progress(_: ProtocolVersion, params: &RawJson) -> Result<ServerNotification, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire {
        progress_token: Id,
        progress: f64,
        #[serde(default)]
        total: Option<f64>,
        #[serde(default)]
        message: Option<String>,
    }
    let wire: Wire = params.parse()?;
    Ok(ServerNotification::Progress {
        token: wire.progress_token,
        progress: wire.progress,
        total: wire.total,
        message: wire.message,
    })
}

fn cancelled(
    _: ProtocolVersion,
    params: &RawJson,
) -> Result<ServerNotification, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire {
        request_id: Id,
        #[serde(default)]
        reason: Option<String>,
    }
    let wire: Wire = params.parse()?;
    Ok(ServerNotification::Cancelled {
        request: wire.request_id,
        reason: wire.reason,
    })
}

fn log(_: ProtocolVersion, params: &RawJson) -> Result<ServerNotification, serde_json::Error> {
    #[derive(Deserialize)]
    struct Wire {
        level: LoggingLevel,
        #[serde(default)]
        logger: Option<String>,
        #[serde(deserialize_with = "raw")]
        data: RawJson,
    }
    let wire: Wire = read(params)?;
    Ok(ServerNotification::Log {
        level: wire.level,
        logger: wire.logger,
        data: wire.data,
    })
}

fn updated(_: ProtocolVersion, params: &RawJson) -> Result<ServerNotification, serde_json::Error> {
    #[derive(Deserialize)]
    struct Wire {
        uri: String,
    }
    let Wire { uri } = read(params)?;
    Ok(ServerNotification::ResourceUpdated { uri })
}

fn acknowledged(
    _: ProtocolVersion,
    params: &RawJson,
) -> Result<ServerNotification, serde_json::Error> {
    #[derive(Deserialize)]
    struct Wire {
        notifications: Object<SubscriptionFilter>,
    }
    let Wire {
        notifications: Object(accepted),
    } = read(params)?;
    Ok(ServerNotification::SubscriptionsAcknowledged { accepted })
}

fn task_changed(
    version: ProtocolVersion,
    params: &RawJson,
) -> Result<ServerNotification, serde_json::Error> {
    task::read(version, false, params).map(ServerNotification::TaskChanged)
}

fn elicited(_: ProtocolVersion, params: &RawJson) -> Result<ServerNotification, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire {
        elicitation_id: String,
    }
    let Wire { elicitation_id } = read(params)?;
    Ok(ServerNotification::ElicitationComplete { elicitation_id })
}

/// Request that a legacy server sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Request.
    pub request: ServerRequest,
    /// Asks for progress notifications.
    pub progress_token: Option<Id>,
    /// The other entries of its `_meta`, such as which task asks.
    pub meta: ResultMeta,
}

/// Requests that a legacy server can send.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerRequest {
    /// Check that the client is there. The answer is the empty object.
    Ping,
    /// Question whose answer the server needs before it can answer itself. The answer is written by
    /// [`encode_input_response`](super::encode_input_response).
    Input(InputRequest),
}

/// Reads a request. Modern servers make none; they ask by results.
///
/// # Errors
///
/// [`ProtocolError::MethodNotFound`] for what a server of revision `version` cannot ask, and
/// [`ProtocolError::InvalidParams`] or [`ProtocolError::InvalidMeta`] for what does not fit. What
/// to answer is [`ProtocolError::to_error_object`].
pub fn decode_server_request(
    version: ProtocolVersion,
    method: &str,
    params: &RawJson,
) -> Result<Asked, ProtocolError> {
    /// Shortens a server's text, so that what is echoed of it is bounded.
    const MOST: usize = 128;
    let not_found = || ProtocolError::MethodNotFound {
        method: method.chars().take(MOST).collect(),
    };
    if version.era() == Era::Modern {
        return Err(not_found());
    }
    let known = match method {
        "ping" => "ping",
        "roots/list" => "roots/list",
        "sampling/createMessage" => "sampling/createMessage",
        "elicitation/create" => "elicitation/create",
        _ => return Err(not_found()),
    };
    let invalid = |reason: serde_json::Error| ProtocolError::InvalidParams {
        method: known,
        reason: reason.to_string(),
    };
    let request = match known {
        "ping" => ServerRequest::Ping,
        _ => ServerRequest::Input(
            input::read(version, known, params)
                .map_err(invalid)?
                .ok_or_else(not_found)?,
        ),
    };
    let invalid_meta = |reason: serde_json::Error| ProtocolError::InvalidMeta {
        reason: reason.to_string(),
    };
    let Object(Shape { mut meta }) = params.parse().map_err(invalid_meta)?;
    let token = meta.remove(super::meta::PROGRESS_TOKEN);
    Ok(Asked {
        request,
        progress_token: token
            .map(|token| token.parse())
            .transpose()
            .map_err(invalid_meta)?,
        meta,
    })
}
