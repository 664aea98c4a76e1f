use std::{sync::Arc, time::SystemTime};
use tokio::sync::watch;

/// The most bytes in a principal's name. What would be longer is refused, never cut: two names must
/// not become one.
pub const MAX_PRINCIPAL: usize = 256;

/// The most roles that one identity may assert; of a token that has more, none is believed.
pub(crate) const MAX_ROLES: usize = 256;

/// Proven identity of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name that quotas, sessions and the ledger go by.
    pub principal: Arc<str>,
    /// The roles that come with the proof, beside those that rules give to the name.
    pub roles: Arc<[Arc<str>]>,
    /// Means by which it was proved.
    pub means: Means,
    /// Time at which the proof expires; `None` if it does not.
    pub expires: Option<SystemTime>,
    /// Signal of the revocation; `None` for a proof that cannot be revoked while it is used.
    pub revocation: Option<Revocation>,
    /// Thumbprint of the key that a token is bound to (`cnf.jkt`, RFC 9449, section 6): without a proof of that key the token
    /// proves nothing. `None` for what is bound to none.
    pub bound_to: Option<Arc<str>>,
}

/// Expiry of a proof that may be revoked before.
#[derive(Clone, Debug)]
pub struct Revocation(Arc<[watch::Receiver<Option<SystemTime>>]>);

impl Revocation {
    /// One, and who says when it ends: by a time, or at once by being dropped.
    pub(crate) fn until(end: Option<SystemTime>) -> (watch::Sender<Option<SystemTime>>, Self) {
        let (keeper, kept) = watch::channel(end);
        (keeper, Self(Arc::new([kept])))
    }

    /// Until when the proof is good, `None` for no end, as it is known now. It was taken back when the
    /// other half has been dropped.
    #[must_use]
    pub fn watched(&self) -> &Arc<[watch::Receiver<Option<SystemTime>>]> {
        &self.0
    }
}

/// Two are the same if they follow the same proof.
impl PartialEq for Revocation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Revocation {}

/// Means that proved an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Means {
    /// The API key of this id, which is no secret.
    ApiKey {
        /// Id of the key.
        id: Arc<str>,
    },
    /// A token.
    Jwt {
        /// The name that the operator has given its issuer.
        issuer: Arc<str>,
    },
    /// A token that its issuer was asked about.
    Introspection {
        /// The name that the operator has given its issuer.
        issuer: Arc<str>,
    },
    /// A client certificate.
    Certificate,
}

impl Means {
    /// Name in logs and metrics.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::ApiKey { .. } => "api_key",
            Self::Jwt { .. } => "jwt",
            Self::Introspection { .. } => "introspection",
            Self::Certificate => "certificate",
        }
    }
}

/// Reason why a caller's credentials are refused. No variant has anything in it that the caller
/// sent, so that all of them can be logged and answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// There is no proof at all. HTTP: 401.
    #[error("credentials are needed")]
    Missing,
    /// Credentials that do not have the form of any proof. HTTP: 400.
    #[error("{why}")]
    Malformed {
        /// A sentence.
        why: &'static str,
    },
    /// Credentials that prove nothing, or no longer do. HTTP: 401 with `invalid_token`.
    #[error("{why}")]
    Invalid {
        /// A sentence.
        why: &'static str,
    },
    /// A token that is bound to a key, without a good proof of that key (RFC 9449). HTTP: 401 with `invalid_dpop_proof`.
    #[error("{why}")]
    Unproved {
        /// A sentence.
        why: &'static str,
    },
    /// A proof of a key without a nonce of this server, or with one that is over. HTTP: 401 with `use_dpop_nonce`.
    #[error("the proof needs a nonce of this server")]
    NeedsNonce,
    /// Valid credentials whose scopes do not allow the call. HTTP: 403.
    #[error("the token lacks a scope")]
    InsufficientScope {
        /// Scopes that would suffice, separated by spaces.
        needed: Arc<str>,
    },
    /// Credentials that cannot be verified at present. HTTP: 503.
    #[error("{why}")]
    Unavailable {
        /// A sentence.
        why: &'static str,
    },
    /// Too many failed attempts from the caller's address. HTTP: 429.
    #[error("too many credentials from this address were wrong; try again later")]
    TooManyAttempts,
}

impl Rejection {
    /// Name in logs and metrics.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed { .. } => "malformed",
            Self::Invalid { .. } => "invalid",
            Self::Unproved { .. } => "unproved",
            Self::NeedsNonce => "needs_nonce",
            Self::InsufficientScope { .. } => "insufficient_scope",
            Self::Unavailable { .. } => "unavailable",
            Self::TooManyAttempts => "too_many_attempts",
        }
    }

    pub(crate) fn invalid<T>(why: &'static str) -> Result<T, Self> {
        Err(Self::Invalid { why })
    }

    pub(crate) fn malformed<T>(why: &'static str) -> Result<T, Self> {
        Err(Self::Malformed { why })
    }
}

/// Returns true if `name` can be the name of a principal or a role: such names are written to logs,
/// headers and terminals.
pub(crate) fn is_decent_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_PRINCIPAL
        && name.trim() == name
        && !name.chars().any(is_deceptive)
}

/// Returns true for a character that is invisible, or that makes a text look like another.
fn is_deceptive(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
