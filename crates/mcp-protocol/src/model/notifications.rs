use super::{LoggingLevel, SubscriptionFilter, Task};
use jsonrpc_core::{Id, RawJson};

/// Notifications of a client, in any revision.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientNotification {
    /// The client has seen the answer to `initialize`.
    Initialized,
    /// The client does not want the answer to a request any more.
    Cancelled {
        /// Id of the request.
        request: Id,
        /// Reason, for people.
        reason: Option<String>,
    },
    /// Progress of a request of the server; legacy revisions alone have such requests.
    Progress {
        /// The token the server chose for it.
        token: Id,
        /// Progress so far; greater than in the notification before.
        progress: f64,
        /// Progress at the end, if known.
        total: Option<f64>,
        /// Description of the current work, for people; since 2025-03-26.
        message: Option<String>,
    },
    /// The list of the client's roots has changed; legacy revisions alone have it.
    RootsListChanged,
}

/// Notifications of a server, in any revision.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerNotification {
    /// Progress of a request.
    Progress {
        /// The token the client chose for it.
        token: Id,
        /// Progress so far; greater than in the notification before.
        progress: f64,
        /// Progress at the end, if known.
        total: Option<f64>,
        /// Description of the current work, for people; since 2025-03-26.
        message: Option<String>,
    },
    /// The list of tools has changed.
    ToolsListChanged,
    /// The list of prompts has changed.
    PromptsListChanged,
    /// The list of resources has changed.
    ResourcesListChanged,
    /// A resource has changed.
    ResourceUpdated {
        /// URI of the resource.
        uri: String,
    },
    /// Log message for a person who looks into a request.
    Log {
        /// Severity.
        level: LoggingLevel,
        /// Name of the logger.
        logger: Option<String>,
        /// Message; any value.
        data: RawJson,
    },
    /// `subscriptions/listen` is in effect; since 2026-07-28.
    SubscriptionsAcknowledged {
        /// Changes that the client will be told of.
        accepted: SubscriptionFilter,
    },
    /// End of the interaction at a URL that the user was sent to; revision 2025-11-25 alone has it.
    ElicitationComplete {
        /// The id of [`InputRequest::ElicitUrl`](super::InputRequest::ElicitUrl).
        elicitation_id: String,
    },
    /// A task has changed; since 2025-11-25.
    TaskChanged(Task),
    /// The server ends a request of the client's by itself.
    Cancelled {
        /// Id of the request.
        request: Id,
        /// Reason, for people.
        reason: Option<String>,
    },
}
