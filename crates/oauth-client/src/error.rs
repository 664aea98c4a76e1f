//! Reasons for having no token.

use http_client::SendError;
use std::{error::Error, fmt, sync::Arc, time::Duration};

/// More characters of what a server says are not repeated.
const MAX_TEXT: usize = 300;

/// Reason why there is no token for a server. Clones share their cause. No variant has a token or a secret.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorizationError {
    /// An address in the options, or the key of a client, cannot be used.
    #[error("{0}")]
    Options(String),
    /// An address that a server named may not be used.
    #[error("`{address}`, which {named_by} names, may not be used: {why}")]
    Address {
        /// The address.
        address: String,
        /// The document or person that named it.
        named_by: &'static str,
        /// The rule that forbids it.
        why: &'static str,
    },
    /// A document or an endpoint did not answer.
    #[error("there is no answer from {address}")]
    Send {
        /// The address that the request was sent to.
        address: String,
        /// [`AuthorizationError`], the reason why there is none.
        #[source]
        source: Arc<SendError>,
    },
    /// A document or an endpoint is out of order, or something in front of it is.
    #[error("{address} is out of order: {why}")]
    OutOfOrder {
        /// The address that the request was sent to.
        address: String,
        /// The answer, in words.
        why: String,
        /// Time after which it wants to be asked again, if it tells.
        retry_after: Option<Duration>,
    },
    /// There is no usable metadata where it should be.
    #[error("there is no metadata at {address}: {why}")]
    Metadata {
        /// The place that tells most.
        address: String,
        /// The document's fault.
        why: String,
    },
    /// The metadata of the authorization server is that of another (RFC 8414, section 3.3).
    #[error("the metadata at {address} is of the issuer `{named}` and not of `{expected}`")]
    WrongIssuer {
        /// Address of the metadata.
        address: String,
        /// The issuer that it names.
        named: String,
        /// The one that was asked for.
        expected: String,
    },
    /// The answer to a sign-in is from another authorization server, or does not say from which (RFC 9207).
    #[error("the sign-in failed: the answer {why}")]
    WrongAnswer {
        /// The answer's fault.
        why: String,
        /// The authorization server that the person was sent to.
        expected: String,
    },
    /// The metadata of the protected resource is that of another.
    #[error("the metadata at {address} is for the resource `{resource}` and not for `{server}`")]
    OtherResource {
        /// Address of the metadata.
        address: String,
        /// The resource that it names.
        resource: String,
        /// The server.
        server: String,
    },
    /// The server names other authorization servers than the one that the client belongs to.
    #[error(
        "the server wants tokens of {offered}; the configured client is registered at `{expected}`, and \
         its credentials go nowhere else"
    )]
    OtherIssuer {
        /// The issuers that the server names.
        offered: String,
        /// The issuer of the client.
        expected: String,
    },
    /// The authorization server does not say that it supports PKCE with S256.
    #[error("`{0}` does not support PKCE with S256, without which a code could be stolen")]
    NoPkce(String),
    /// The authorization server cannot do what the grant needs.
    #[error("`{issuer}` {lacks}")]
    Unsupported {
        /// The authorization server.
        issuer: String,
        /// The missing ability.
        lacks: &'static str,
    },
    /// There is no client identifier, and no way to get one.
    #[error(
        "there is no client for `{0}`: it registers none, so give a client identifier that is registered \
         there"
    )]
    NoClient(String),
    /// The authorization server refuses to register the client.
    #[error("`{address}` does not register the client: {why}")]
    Registration {
        /// The endpoint.
        address: String,
        /// Error of the server, in words.
        why: String,
    },
    /// The authorization server refuses a sign-in where a person would sign in.
    #[error("`{issuer}` refuses the sign-in: {why}")]
    Denied {
        /// The authorization server.
        issuer: String,
        /// The error's code, as RFC 6749 has it.
        code: String,
        /// Error of the server, in words.
        why: String,
    },
    /// An endpoint refuses to give a token, or gives none that can be used.
    #[error("`{address}` gives no token: {why}")]
    Token {
        /// The endpoint.
        address: String,
        /// The error's code, as RFC 6749 has it; empty for a token that cannot be used.
        code: String,
        /// Error of the server, in words.
        why: String,
    },
    /// Tokens are not revoked where they were given.
    #[error("`{address}` does not revoke the tokens: {why}")]
    Revocation {
        /// The authorization server, or its endpoint.
        address: String,
        /// Error of the server, in words.
        why: String,
    },
    /// A person would have to sign in, and there is no browser to do so.
    #[error(
        "`{0}` wants a person to sign in, and none can be asked here: run `owlclaw-mcp client login`"
    )]
    LoginNeeded(String),
    /// The sign-in did not end well.
    #[error("the sign-in failed: {0}")]
    Login(String),
    /// The server refuses a token that was fresh.
    #[error("the server refuses the token that it was just given: {0}")]
    Rejected(String),
    /// The server wants scopes that were asked for and not granted, or wants more again and again.
    #[error("the server wants the scope `{0}`, which was asked for and did not help")]
    Scope(String),
    /// The proof of a workload or a user cannot be had.
    #[error("there is no assertion to show: {0}")]
    Assertion(String),
    /// The store fails.
    #[error("the store of tokens fails: {0}")]
    Store(String),
    /// The store cannot be held, so that nothing can be renewed without another process renewing it, too.
    #[error("the token cannot be renewed: the store of tokens cannot be held for it: {0}")]
    Held(String),
    /// The system gives no random numbers, or the key does not sign.
    #[error("there are no random numbers or signatures to be had")]
    Cryptography,
}

impl AuthorizationError {
    /// Returns true if the same may succeed later without another login.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Send { source, .. } => matches!(
                **source,
                SendError::Unreachable(_)
                    | SendError::Unsent(_)
                    | SendError::Broken(_)
                    | SendError::TimedOut
            ),
            // Where there was metadata once, it says nothing about a grant that there is none now.
            Self::OutOfOrder { .. } | Self::Metadata { .. } | Self::Held(_) | Self::Store(_) => {
                true
            }
            Self::Denied { code, .. } => is_passing(code),
            _ => false,
        }
    }

    /// Act of somebody before which the same cannot succeed. `None` where it may pass, and where a sign-in helps.
    #[must_use]
    pub fn cure(&self) -> Option<String> {
        let operator = |what: &str| Some(format!("whoever operates it has to {what}"));
        match self {
            Self::Options(_) => Some("correct the settings of the client".to_owned()),
            Self::Address { named_by, .. } => Some(format!(
                "{named_by} has to name an address of https in a network that may be reached"
            )),
            Self::Send { .. } if !self.is_temporary() => operator("see to its answers"),
            Self::WrongIssuer {
                named, expected, ..
            } => Some(format!(
                "the server has to name `{named}` as its authorization server, or that has to call itself `{expected}`, \
                 character for character: whoever operates them decides which"
            )),
            Self::WrongAnswer { expected, .. } => Some(format!(
                "sign in at `{expected}` and nowhere else; if that does not help, whoever operates it has to correct `iss` in \
                 its answers"
            )),
            Self::OtherResource { resource, .. } => Some(format!(
                "connect to `{resource}` if that is the same server; otherwise whoever operates it has to correct \
                 `resource` in its metadata"
            )),
            Self::OtherIssuer { offered, .. } => {
                Some(format!("use a client that is registered at {offered}"))
            }
            Self::NoPkce(_) => {
                operator("list `S256` in `code_challenge_methods_supported` of its metadata")
            }
            Self::Unsupported { .. } => operator("change that, or there can be no tokens of it"),
            Self::NoClient(_) | Self::Registration { .. } => {
                Some("have a client registered there, and use its identifier".to_owned())
            }
            Self::Token { code, .. } | Self::Denied { code, .. } => {
                cure_of(code).map(str::to_owned)
            }
            _ => None,
        }
    }

    /// Code of the authorization server's error, as RFC 6749 has it, if it has given one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Token { code, .. } | Self::Denied { code, .. } => {
                Some(code.as_str()).filter(|it| !it.is_empty())
            }
            _ => None,
        }
    }

    /// Time after which whoever is out of order wants to be asked again, if that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::OutOfOrder { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The same with another time after which to ask again.
    pub(crate) fn after(self, rest: Duration) -> Self {
        match self {
            Self::OutOfOrder { address, why, .. } => Self::OutOfOrder {
                address,
                why,
                retry_after: Some(rest),
            },
            error => error,
        }
    }

    /// Returns true if the authorization server's error is `code`.
    pub(crate) fn is_code(&self, code: &str) -> bool {
        self.code() == Some(code)
    }
}

/// True for an error of an authorization server that says nothing about what was asked.
pub(crate) fn is_passing(code: &str) -> bool {
    matches!(
        code,
        "temporarily_unavailable" | "server_error" | "slow_down"
    )
}

/// Act that sets right what has led to an authorization server's error with this code; `None` if another sign-in may do.
fn cure_of(code: &str) -> Option<&'static str> {
    Some(match code {
        "invalid_client" => {
            "see whether the client's identifier, and its secret or key, are those that are registered there: they may have \
             expired or been replaced"
        }
        "unauthorized_client" | "unsupported_grant_type" | "unsupported_response_type" => {
            "have the client allowed this way to tokens where it is registered"
        }
        "invalid_scope" => "ask for scopes that the client may have there (`scope`)",
        "invalid_target" => {
            "have the server's address made known there as one to give tokens for (`resource`, RFC 8707)"
        }
        "invalid_request" => "look into the log of the authorization server for what it misses",
        "" => "whoever operates it has to correct what it gives",
        _ => return None,
    })
}

/// Text of a server as far as it can be shown in a message: printable ASCII, and not too much.
pub(crate) fn said(text: &str) -> String {
    let plain = |it: char| if (' '..='~').contains(&it) { it } else { '?' };
    text.chars().take(MAX_TEXT).map(plain).collect()
}

/// `error` and its causes.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = fmt::Write::write_fmt(&mut text, format_args!(": {error}"));
        cause = error.source();
    }
    text
}
