use super::ClientCapabilities;
use crate::{Era, ProtocolVersion};
use jsonrpc_core::{ErrorCode, ErrorObject};
use serde_json::json;

/// A request that cannot be understood, or not in the revision it is written in.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The revision in force has no such method, or the server does not offer what it belongs to.
    #[error("method not found: {method}")]
    MethodNotFound {
        /// Method of the request.
        method: String,
    },
    /// The method exists and its parameters do not fit it.
    #[error("invalid params of {method}: {reason}")]
    InvalidParams {
        /// Method of the request.
        method: &'static str,
        /// Description of what did not fit.
        reason: String,
    },
    /// The parameters are no object, as those of every method of the protocol are.
    #[error("invalid params: `params` must be an object")]
    ParamsNoObject,
    /// The request's `_meta` is not what the protocol reserves it for, or lacks what it must have.
    #[error("invalid _meta: {reason}")]
    InvalidMeta {
        /// Description of what did not fit.
        reason: String,
    },
    /// The request names a revision we do not serve without a handshake.
    #[error("unsupported protocol version: {requested}")]
    UnsupportedVersion {
        /// Version that was requested.
        requested: String,
    },
    /// A header says something else than the body, or is missing or malformed.
    #[error("header mismatch: {reason}")]
    HeaderMismatch {
        /// Name of the header, and its expected value.
        reason: String,
    },
    /// The client has not declared something the request needs.
    #[error("the client has not declared a capability that this request needs")]
    MissingClientCapability {
        /// Capabilities that the client would have to declare.
        required: ClientCapabilities,
    },
    /// `initialize` on a session that is open.
    #[error("the session is initialized already")]
    AlreadyInitialized,
}

impl ProtocolError {
    /// Codes the modern revision adds (2026-07-28, basic/index, "Error codes").
    pub const HEADER_MISMATCH: ErrorCode = ErrorCode(-32020);
    /// See [`ProtocolError::MissingClientCapability`].
    pub const MISSING_CLIENT_CAPABILITY: ErrorCode = ErrorCode(-32021);
    /// See [`ProtocolError::UnsupportedVersion`].
    pub const UNSUPPORTED_VERSION: ErrorCode = ErrorCode(-32022);

    /// The error to answer with: the one table from protocol errors to codes.
    pub fn to_error_object(&self) -> ErrorObject {
        let error = |code| ErrorObject::lasting(code, self.to_string());
        match self {
            Self::MethodNotFound { .. } => error(ErrorCode::METHOD_NOT_FOUND),
            Self::InvalidParams { .. } | Self::ParamsNoObject | Self::InvalidMeta { .. } => {
                error(ErrorCode::INVALID_PARAMS)
            }
            Self::AlreadyInitialized => error(ErrorCode::INVALID_REQUEST),
            Self::HeaderMismatch { .. } => error(Self::HEADER_MISMATCH),
            Self::MissingClientCapability { required } => error(Self::MISSING_CLIENT_CAPABILITY)
                .with(&json!({ "requiredCapabilities": required, "retryable": false })),
            Self::UnsupportedVersion { requested } => {
                let supported: Vec<_> = ProtocolVersion::modern()
                    .map(ProtocolVersion::as_str)
                    .collect();
                error(Self::UNSUPPORTED_VERSION).with(
                    &json!({ "supported": supported, "requested": requested, "retryable": false }),
                )
            }
        }
    }

    /// The HTTP status of an answer with this error (2026-07-28, basic/transports). Legacy
    /// revisions answer a request that could be read with 200, whatever the answer is.
    pub fn http_status(&self, era: Era) -> u16 {
        match (era, self) {
            (Era::Legacy, _) => 200,
            (Era::Modern, Self::MethodNotFound { .. }) => 404,
            // Dual-era clients take a 400 that is no error they know for a legacy server's, so
            // parameters that merely do not fit are answered with 200.
            (Era::Modern, Self::InvalidParams { .. }) => 200,
            (Era::Modern, _) => 400,
        }
    }
}
