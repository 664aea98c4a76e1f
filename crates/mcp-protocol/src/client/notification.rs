use super::EncodeError;
use crate::encode::{Cancelled, Progress};
use crate::{Era, ProtocolVersion, model::ClientNotification};
use jsonrpc_core::{Notification, RawJson};

/// Writes a notification as revision `version` has it.
///
/// # Errors
///
/// [`EncodeError::NotInRevision`] for all but [`ClientNotification::Cancelled`] in the modern
/// revision, where nothing else is left to tell.
pub fn encode_client_notification(
    version: ProtocolVersion,
    notification: &ClientNotification,
) -> Result<Notification, EncodeError> {
    let method = match notification {
        ClientNotification::Initialized => "notifications/initialized",
        ClientNotification::Cancelled { .. } => "notifications/cancelled",
        ClientNotification::Progress { .. } => "notifications/progress",
        ClientNotification::RootsListChanged => "notifications/roots/list_changed",
    };
    if version.era() == Era::Modern && !matches!(notification, ClientNotification::Cancelled { .. })
    {
        return Err(EncodeError::NotInRevision {
            what: method,
            version,
        });
    }
    let params = match notification {
        ClientNotification::Initialized | ClientNotification::RootsListChanged => {
            RawJson::EMPTY_OBJECT
        }
        ClientNotification::Cancelled { request, reason } => RawJson::from_value(&Cancelled {
            request_id: request,
            reason: reason.as_deref(),
        })?,
        ClientNotification::Progress {
            token,
            progress,
            total,
            message,
        } => RawJson::from_value(&Progress {
            progress_token: token,
            progress: *progress,
            total: *total,
            message: message
                .as_deref()
                .filter(|_| ProtocolVersion::V2025_03_26 <= version),
        })?,
    };
    Ok(Notification {
        method: method.to_owned(),
        params,
    })
}
