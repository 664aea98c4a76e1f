use super::{LoggingLevel, SubscriptionFilter, Task};
use jsonrpc_core::{Id, RawJson};

/// What a client can tell a server, in any revision.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientNotification {
    /// The client has seen the answer to `initialize`.
    Initialized,
    /// The client does not want the answer to a request any more.
    Cancelled {
        /// Which.
        request: Id,
        /// Why, for people.
        reason: Option<String>,
    },
    /// How far a request of the server's has come; legacy revisions alone have such requests.
    Progress {
        /// The token the server chose for it.
        token: Id,
        /// How far; greater than in the notification before.
        progress: f64,
        /// How far it will have to come, if known.
        total: Option<f64>,
        /// What is going on, for people; since 2025-03-26.
        message: Option<String>,
    },
    /// The list of the client's roots has changed; legacy revisions alone have it.
    RootsListChanged,
}

/// What a server can tell a client, in any revision.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerNotification {
    /// How far a request has come.
    Progress {
        /// The token the client chose for it.
        token: Id,
        /// How far; greater than in the notification before.
        progress: f64,
        /// How far it will have to come, if known.
        total: Option<f64>,
        /// What is going on, for people; since 2025-03-26.
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
        /// Which.
        uri: String,
    },
    /// Something a person who looks into a request may want to know.
    Log {
        /// How bad it is.
        level: LoggingLevel,
        /// Who says it.
        logger: Option<String>,
        /// What; any value.
        data: RawJson,
    },
    /// `subscriptions/listen` is in effect; since 2026-07-28.
    SubscriptionsAcknowledged {
        /// What the client will hear of.
        accepted: SubscriptionFilter,
    },
    /// What the user was sent to a URL for is done; revision 2025-11-25 alone has it.
    ElicitationComplete {
        /// The id of [`InputRequest::ElicitUrl`](super::InputRequest::ElicitUrl).
        elicitation_id: String,
    },
    /// A task has changed; since 2025-11-25.
    TaskChanged(Task),
    /// The server ends a request of the client's by itself.
    Cancelled {
        /// Which.
        request: Id,
        /// Why, for people.
        reason: Option<String>,
    },
}
