//! Reasons for having no client, and no answer.

use crate::BadUrl;
use std::{error::Error, io};

/// Most bytes of the headers of an answer.
pub const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Reason why a client cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The authorities that were given are no certificates.
    #[error("the certificates of the configured authorities cannot be read")]
    Authorities(#[source] Box<dyn Error + Send + Sync>),
    /// There are none in what was given.
    #[error("there is no certificate among the configured authorities")]
    NoAuthorities,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// Reason why a request got no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// A URL that no request can be sent to.
    #[error("no request can be sent to the URL: {0}")]
    BadAddress(BadUrl),
    /// A request that would have gone unencrypted, which
    /// [`ClientOptions::https_only`](crate::ClientOptions) forbids.
    #[error("the request would not be encrypted")]
    NotEncrypted,
    /// A host, or an address of it, outside of the client's reach.
    #[error("the service's address may not be connected to")]
    Forbidden(#[source] Box<dyn Error + Send + Sync>),
    /// No connection, and nothing of the request was sent: there is no such host, no server listens
    /// there, or its certificate does not name the host.
    #[error("the service cannot be reached")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
    /// A connection that had ended before anything of the request was sent.
    #[error("the connection had ended before the request was sent")]
    Unsent(#[source] Box<dyn Error + Send + Sync>),
    /// A connection that broke; the part of the request that was sent may have had its effect.
    #[error("the connection broke before the service had answered")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    /// No answer in time; the part of the request that was sent may have had its effect.
    #[error("the service did not answer in time")]
    TimedOut,
    /// The answer's body has more bytes.
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    /// The answer's headers have more bytes than [`MAX_HEADER_BYTES`].
    #[error("the answer's headers have more than {max} bytes", max = MAX_HEADER_BYTES)]
    LongHeaders,
}

impl SendError {
    /// Returns true if the server may have received the request.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        match self {
            Self::BadAddress(_)
            | Self::NotEncrypted
            | Self::Forbidden(_)
            | Self::Unreachable(_)
            | Self::Unsent(_) => false,
            Self::Broken(_) | Self::TimedOut | Self::TooLarge(_) | Self::LongHeaders => true,
        }
    }

    /// Returns true if the server has closed the connection before it had answered, as it may with one that was kept.
    #[must_use]
    pub fn is_hang_up(&self) -> bool {
        let Self::Broken(cause) = self else {
            return false;
        };
        let mut cause: Option<&(dyn Error + 'static)> = Some(&**cause);
        while let Some(error) = cause {
            let is_incomplete = error.downcast_ref::<hyper::Error>();
            if is_incomplete.is_some_and(hyper::Error::is_incomplete_message) {
                return true;
            }
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset
                        | io::ErrorKind::ConnectionAborted
                        | io::ErrorKind::BrokenPipe
                        | io::ErrorKind::UnexpectedEof
                );
            }
            cause = error.source();
        }
        false
    }

    /// Kind of the error, in a word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::BadAddress(_) | Self::NotEncrypted | Self::Forbidden(_) => "forbidden",
            Self::Unreachable(_) => "unreachable",
            Self::Broken(_) | Self::Unsent(_) => "broken",
            Self::TimedOut => "timeout",
            Self::TooLarge(_) | Self::LongHeaders => "too_large",
        }
    }
}
