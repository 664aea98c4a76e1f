use crate::Unauthorized;
use http_client::SendError;
use jsonrpc_core::ErrorObject;
use mcp_protocol::client::{EncodeError, ResultError, ServerError};
use std::{io, time::Duration};

/// Most characters that an error quotes of one of the server's.
const MAX_BRIEF: usize = 1000;

/// Reason why a request of ours has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server has answered with a JSON-RPC error.
    #[error("the server answered: {} ({})", brief(&error.message), error.code.0)]
    Server {
        /// The error as it was sent.
        error: ErrorObject,
        /// The error's meaning in the revision that is spoken.
        meaning: ServerError,
    },
    /// The connection has ended, or was given up because of what the server sent.
    #[error("the connection has ended: {reason}{}", last_words(stderr))]
    Closed {
        /// Reason.
        reason: String,
        /// The last lines that a child has written to standard error; empty for other servers.
        stderr: String,
    },
    /// The request was not sent, since the connection had ended or ended before the request was written.
    #[error("the request was not sent: {reason}{}", last_words(stderr))]
    NotSent {
        /// Reason.
        reason: String,
        /// The last lines that a child has written to standard error; empty for other servers.
        stderr: String,
    },
    /// There was no answer in time. The server was told that none is wanted any more.
    #[error("`{method}` was not answered within {within:?}{}", last_words(note))]
    TimedOut {
        /// The request's method.
        method: &'static str,
        /// The time it had.
        within: Duration,
        /// Notes on what the server has sent instead, and the last lines of a child's standard error.
        note: String,
    },
    /// The program of a child cannot be started.
    #[error("`{program}` cannot be started")]
    Start {
        /// The program.
        program: String,
        /// Reason.
        #[source]
        cause: io::Error,
    },
    /// An address that cannot be dialled.
    #[error("`{url}` cannot be dialled: {reason}")]
    Address {
        /// The address.
        url: String,
        /// Reason why.
        reason: String,
    },
    /// The HTTP request has no answer.
    #[error("the request has failed")]
    Http(#[from] SendError),
    /// The connection of a request broke, or its answer is larger than its bound: HTTP alone.
    #[error("`{method}` has failed")]
    Broken {
        /// The request's method.
        method: &'static str,
        /// Reason.
        #[source]
        cause: SendError,
    },
    /// The HTTP answer says that something is wrong, and is no message.
    #[error("the server answered with HTTP {status}{}", words(body))]
    Status {
        /// The status.
        status: u16,
        /// The beginning of the answer.
        body: String,
        /// Time after which a server that is busy wants to be asked again (`Retry-After`), at most an hour.
        retry_after: Option<Duration>,
    },
    /// The server does not know the legacy session any more, and knows none of a new one either.
    #[error("the server has forgotten the session")]
    SessionLost,
    /// The server wants authorization, and there is none or it was refused.
    #[error("the server wants authorization (HTTP {status}): {reason}")]
    Unauthorized {
        /// 401 or 403.
        status: u16,
        /// Reason why.
        reason: String,
    },
    /// No proof for the request can be had before somebody sets right what it comes from, such as the metadata of an
    /// authorization server, or the registration of the client.
    #[error("the request cannot be authorized: {reason}")]
    AuthorizationMisconfigured {
        /// Reason why.
        reason: String,
        /// Act that helps, in words.
        cure: String,
    },
    /// A proof for the request cannot be had at the moment, such as a token of an authorization server that is out of order.
    #[error("the request cannot be authorized at the moment: {reason}")]
    AuthorizationUnavailable {
        /// Reason why.
        reason: String,
        /// Time after which to try again, if that is known.
        retry_after: Option<Duration>,
    },
    /// The server and we have no revision in common.
    #[error("the server speaks {theirs}, which this client does not")]
    NoCommonVersion {
        /// The revisions it has named.
        theirs: String,
    },
    /// The server has sent something that the protocol does not allow here.
    #[error("the server does not keep to the protocol: {0}")]
    Protocol(String),
    /// The result does not fit the request.
    #[error("the answer cannot be used")]
    Result(#[from] ResultError),
    /// The request cannot be expressed in the revision that the server speaks.
    #[error("the request cannot be made of this server")]
    Encode(#[from] EncodeError),
    /// A named bound of [`Bounds`](crate::Bounds) was reached.
    #[error("the server has reached the bound `{name}` ({most})")]
    Bound {
        /// The field of [`Bounds`](crate::Bounds).
        name: &'static str,
        /// The bound's value.
        most: u64,
    },
    /// The server asks for something that the handlers do not answer.
    #[error("a question of the server's was not answered: {0}")]
    Unanswered(String),
    /// The server has cancelled the task that it had made of a call.
    #[error(
        "the server has cancelled the task that it made of the call{}",
        because(reason)
    )]
    TaskCancelled {
        /// The server's words; empty if it gave none.
        reason: String,
    },
    /// The server does not tell what has become of the task that it had made of a call: it may have ended in any way.
    #[error(
        "the server does not tell of the task that it made of the call: {} ({})",
        brief(&error.message),
        error.code.0
    )]
    TaskUntold {
        /// The server's answer to the request about the task.
        error: ErrorObject,
    },
    /// No server of a [`Toolbox`](crate::Toolbox) has a tool of this name.
    #[error("there is no tool `{0}`")]
    UnknownTool(String),
    /// The arguments of a call are no JSON.
    #[error("the arguments are no JSON")]
    Arguments(#[source] serde_json::Error),
    /// A file of a skill is not what the skill's entry says.
    #[error("the skill's file `{uri}` is not what its entry says: {reason}")]
    Skill {
        /// The file.
        uri: String,
        /// The difference.
        reason: String,
    },
}

/// As much of a text of the server's as an error quotes; the whole is in the error's field.
fn brief(text: &str) -> String {
    let mut brief: String = text.chars().take(MAX_BRIEF).collect();
    if brief.len() < text.len() {
        brief.push('…');
    }
    brief
}

fn because(text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

fn words(body: &str) -> String {
    match body.trim() {
        "" => String::new(),
        body => format!(": {body}"),
    }
}

fn last_words(text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!("; {text}"),
    }
}

impl Error {
    /// True if the request may have had its effect on the server.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Start { .. }
            | Self::NotSent { .. }
            // So many are under way that another one is not begun.
            | Self::Bound { name: "max_open", .. }
            | Self::Address { .. }
            | Self::SessionLost
            | Self::Unauthorized { .. }
            | Self::AuthorizationMisconfigured { .. }
            | Self::AuthorizationUnavailable { .. }
            | Self::NoCommonVersion { .. }
            | Self::Encode(_) => false,
            Self::Http(error) | Self::Broken { cause: error, .. } => error.was_sent(),
            Self::Server { meaning, .. } => !matches!(
                meaning,
                ServerError::Parse | ServerError::InvalidRequest | ServerError::MethodNotFound
            ),
            _ => true,
        }
    }

    /// True if the server has reached the bound of this name, so that the connection was given up or the request failed.
    #[must_use]
    pub fn has_reached(&self, bound: &str) -> bool {
        match self {
            Self::Bound { name, .. } => *name == bound,
            // The reason is the text of the error that has ended the connection.
            Self::Closed { reason, .. } => reason.contains(&format!("the bound `{bound}`")),
            _ => false,
        }
    }

    /// True if the connection has failed, which says nothing about what the server does meanwhile: a task that it has made
    /// may run on.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        match self {
            Self::Closed { .. }
            | Self::NotSent { .. }
            | Self::Http(_)
            | Self::Broken { .. }
            | Self::SessionLost => true,
            Self::Status { status, .. } => 500 <= *status,
            _ => false,
        }
    }

    /// The error of a server that has refused Streamable HTTP with this one, and then failed over HTTP+SSE: what it did
    /// there, unless that was a refusal, too.
    pub(crate) fn beside_old(self, of_old: Self) -> Self {
        match (self, of_old) {
            (
                Self::Status {
                    status,
                    body,
                    retry_after,
                },
                Self::Status { status: old, .. },
            ) => Self::Status {
                status,
                body: format!("{body}; HTTP+SSE is refused, too (HTTP {old})"),
                retry_after,
            },
            (_, of_old) => of_old,
        }
    }

    /// The error of a request that was answered with this status, and is not authorized.
    pub(crate) fn unauthorized(status: u16, why: Unauthorized) -> Self {
        match why {
            Unauthorized::Refused(reason) => Self::Unauthorized { status, reason },
            Unauthorized::Misconfigured { reason, cure } => {
                Self::AuthorizationMisconfigured { reason, cure }
            }
            Unauthorized::Unavailable {
                reason,
                retry_after,
            } => Self::AuthorizationUnavailable {
                reason,
                retry_after,
            },
        }
    }

    /// True if the server may be one that speaks another revision than it was spoken to in.
    pub(crate) fn is_disagreement(&self) -> bool {
        matches!(
            self,
            Self::Server { .. }
                | Self::NoCommonVersion { .. }
                | Self::Status { .. }
                | Self::Protocol(_)
                | Self::Result(_)
        )
    }

    /// Time after which whoever has refused wants to be asked again, if it has said so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. }
            | Self::AuthorizationUnavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The same with the method of the request, where there was a connection.
    pub(crate) fn of_request(self, method: &'static str) -> Self {
        match self {
            Self::Http(
                cause @ (SendError::Broken(_)
                | SendError::Unsent(_)
                | SendError::TooLarge(_)
                | SendError::LongHeaders),
            ) => Self::Broken { method, cause },
            error => error,
        }
    }

    /// The reason for the end of a connection that this error is: its text, without that there is an end.
    pub(crate) fn into_reason(self) -> String {
        match self {
            Self::Closed { reason, .. } | Self::NotSent { reason, .. } => reason,
            error => error.to_string(),
        }
    }

    pub(crate) fn closed(reason: impl Into<String>) -> Self {
        Self::Closed {
            reason: reason.into(),
            stderr: String::new(),
        }
    }

    pub(crate) fn not_sent(reason: impl Into<String>) -> Self {
        Self::NotSent {
            reason: reason.into(),
            stderr: String::new(),
        }
    }

    pub(crate) fn bound(name: &'static str, most: impl TryInto<u64>) -> Self {
        Self::Bound {
            name,
            most: most.try_into().unwrap_or(u64::MAX),
        }
    }
}
