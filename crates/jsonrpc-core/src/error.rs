use crate::RawJson;
use serde::Serialize;
use std::{borrow::Cow, fmt};

/// A JSON-RPC error code.
///
/// An open set, hence a newtype with constants rather than an enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i32);

impl ErrorCode {
    /// The frame was not JSON.
    pub const PARSE_ERROR: Self = Self(-32700);
    /// The frame was JSON but no JSON-RPC message.
    pub const INVALID_REQUEST: Self = Self(-32600);
    /// No such method in the protocol version in force.
    pub const METHOD_NOT_FOUND: Self = Self(-32601);
    /// The method exists and its parameters do not fit it.
    pub const INVALID_PARAMS: Self = Self(-32602);
    /// A fault on our side.
    pub const INTERNAL_ERROR: Self = Self(-32603);

    /// The code, or the nearest of 32 bits: JSON-RPC 2.0 names no range.
    #[must_use]
    pub fn nearest(code: i64) -> Self {
        let nearest = if code < 0 { i32::MIN } else { i32::MAX };
        Self(i32::try_from(code).unwrap_or(nearest))
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The `error` member of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorObject {
    /// Kind of the error.
    pub code: ErrorCode,
    /// One sentence for people.
    pub message: Cow<'static, str>,
    /// Machine-readable detail, if any.
    pub data: Option<RawJson>,
}

impl ErrorObject {
    /// An error without data.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// Adds detail for machines.
    #[must_use]
    pub fn with_data(self, data: RawJson) -> Self {
        Self {
            data: Some(data),
            ..self
        }
    }

    /// An error that will be the same however often the request is repeated, and says so in its data
    /// (R9.9).
    pub fn lasting(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code, message).with_data(RawJson::from_static(br#"{"retryable":false}"#))
    }

    /// Adds detail for machines, serialized. Detail that cannot be is left out: an error must not
    /// fail for its trimmings.
    #[must_use]
    pub fn with<T: Serialize + ?Sized>(self, data: &T) -> Self {
        match RawJson::from_value(data) {
            Ok(data) => self.with_data(data),
            Err(_) => self,
        }
    }
}
