//! Errors that are sent to clients.

use jsonrpc_core::{ErrorCode, ErrorObject};
use std::borrow::Cow;

/// Error for a client, with nothing that is not for the client: causes stay in the log.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub struct McpError(pub ErrorObject);

impl McpError {
    /// An error that repeating the request does not mend, without further data.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self(ErrorObject::lasting(code, message))
    }

    /// An internal error. The cause is logged, and not sent.
    pub fn internal(cause: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = cause, "internal error");
        Self::new(ErrorCode::INTERNAL_ERROR, "internal error")
    }
}

impl From<ErrorObject> for McpError {
    fn from(error: ErrorObject) -> Self {
        Self(error)
    }
}
