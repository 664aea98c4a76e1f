//! Notifications and requests of a server.

use crate::{carried, vocabulary::*};
use mcp_protocol::{
    Era, ProtocolError, ProtocolVersion,
    ProtocolVersion::{V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28},
    client::{
        EncodeError, ServerRequest, decode_server_notification, decode_server_request,
        encode_client_notification, encode_input_response,
    },
    decode_notification, encode_input_request, encode_notification,
    model::*,
};
use proptest::{option, prelude::*};
use serde_json::json;

fn server_notification() -> impl Strategy<Value = ServerNotification> {
    let progress = (id(), number(), option::of(number()), option::of(text())).prop_map(
        |(token, progress, total, message)| ServerNotification::Progress {
            token,
            progress,
            total,
            message,
        },
    );
    let log = (log_level(), option::of(text()), any_raw()).prop_map(|(level, logger, data)| {
        ServerNotification::Log {
            level,
            logger,
            data,
        }
    });
    let cancelled = (id(), option::of(text()))
        .prop_map(|(request, reason)| ServerNotification::Cancelled { request, reason });
    prop_oneof![
        progress,
        log,
        cancelled,
        Just(ServerNotification::ToolsListChanged),
        Just(ServerNotification::PromptsListChanged),
        Just(ServerNotification::ResourcesListChanged),
        text().prop_map(|uri| ServerNotification::ResourceUpdated { uri }),
        filter().prop_map(|accepted| ServerNotification::SubscriptionsAcknowledged { accepted }),
        text().prop_map(|id| ServerNotification::ElicitationComplete { elicitation_id: id }),
        task().prop_map(ServerNotification::TaskChanged),
    ]
}

/// As `version` has it; `None` if it does not.
fn carried_notification(
    version: ProtocolVersion,
    mut notification: ServerNotification,
) -> Option<ServerNotification> {
    match &mut notification {
        ServerNotification::Progress { message, .. } if version < V2025_03_26 => *message = None,
        ServerNotification::SubscriptionsAcknowledged { .. } if version != V2026_07_28 => {
            return None;
        }
        ServerNotification::ElicitationComplete { .. } if version != V2025_11_25 => return None,
        ServerNotification::TaskChanged(_) if version < V2025_11_25 => return None,
        ServerNotification::TaskChanged(task) => {
            *task = carried::task(version, false, task.clone());
        }
        _ => {}
    }
    Some(notification)
}

fn client_notification() -> impl Strategy<Value = ClientNotification> {
    let progress = (id(), number(), option::of(number()), option::of(text())).prop_map(
        |(token, progress, total, message)| ClientNotification::Progress {
            token,
            progress,
            total,
            message,
        },
    );
    let cancelled = (id(), option::of(text()))
        .prop_map(|(request, reason)| ClientNotification::Cancelled { request, reason });
    prop_oneof![
        progress,
        cancelled,
        Just(ClientNotification::Initialized),
        Just(ClientNotification::RootsListChanged),
    ]
}

proptest! {
    #[test]
    fn a_client_hears_what_a_server_has_told(
        version in version(),
        notification in server_notification(),
        subscription in option::of(id()),
    ) {
        let subscription = subscription.filter(|_| version.era() == Era::Modern);
        let written = encode_notification(version, &notification, subscription.as_ref());
        let read = decode_server_notification(version, &written.method, &written.params);
        let read = read.unwrap();
        let expected = carried_notification(version, notification);
        prop_assert_eq!(read.as_ref().map(|it| &it.notification), expected.as_ref());
        if let Some(read) = read {
            prop_assert_eq!(read.subscription, subscription);
            prop_assert!(read.meta.is_empty());
        }
    }

    #[test]
    fn a_server_hears_what_a_client_has_told(
        version in version(),
        notification in client_notification(),
    ) {
        let written = encode_client_notification(version, &notification);
        let only_modern = matches!(notification, ClientNotification::Cancelled { .. });
        if version.era() == Era::Modern && !only_modern {
            let refused = matches!(written, Err(EncodeError::NotInRevision { .. }));
            prop_assert!(refused);
            return Ok(());
        }
        let written = written.unwrap();
        let mut expected = notification;
        if let ClientNotification::Progress { message, .. } = &mut expected
            && version < V2025_03_26
        {
            *message = None;
        }
        prop_assert_eq!(decode_notification(&written.method, &written.params), Some(expected));
    }

    #[test]
    fn a_client_understands_what_a_legacy_server_asks(
        version in version(),
        id in id(),
        request in input_request(),
        task in option::of(text()),
    ) {
        let written = encode_input_request(version, id, &request, task.as_deref());
        let read = decode_server_request(version, &written.method, &written.params);
        if version.era() == Era::Modern {
            let not_found = matches!(read, Err(ProtocolError::MethodNotFound { .. }));
            prop_assert!(not_found);
            return Ok(());
        }
        let Some(expected) = carried::input_request(version, request) else {
            prop_assert!(read.is_err());
            return Ok(());
        };
        let read = read.unwrap();
        prop_assert_eq!(read.request, ServerRequest::Input(expected));
        let related = task.map(|id| json!({ "taskId": id }).to_string());
        prop_assert_eq!(read.meta.get(RELATED_TASK).map(|it| it.as_str()), related.as_deref());
    }

    #[test]
    fn a_server_reads_what_a_client_has_answered(
        version in version(),
        response in input_response(),
    ) {
        let request = match &response {
            InputResponse::Elicit(_) => InputRequest::ElicitUrl {
                message: String::new(),
                url: String::new(),
                elicitation_id: String::new(),
            },
            InputResponse::CreateMessage(_) => InputRequest::CreateMessage(json!({})),
            InputResponse::ListRoots(_) => InputRequest::ListRoots,
        };
        match encode_input_response(version, &response) {
            Ok(written) => {
                prop_assert_eq!(InputResponse::of(&request, &written).unwrap(), response);
                let elicited = matches!(request, InputRequest::ElicitUrl { .. });
                prop_assert!(V2025_06_18 <= version || !elicited);
            }
            // Since then there is nothing that could not be said.
            Err(_) => prop_assert!(version < V2025_11_25),
        }
    }
}

#[test]
fn pings_are_asked_until_2025_11_25() {
    let params = jsonrpc_core::RawJson::EMPTY_OBJECT;
    for version in ProtocolVersion::ALL {
        let read = decode_server_request(version, "ping", &params);
        match version.era() {
            Era::Legacy => assert_eq!(read.unwrap().request, ServerRequest::Ping),
            Era::Modern => assert_eq!(read.unwrap_err().to_error_object().code.0, -32601),
        }
        assert!(decode_server_request(version, "tasks/get", &params).is_err());
    }
}
