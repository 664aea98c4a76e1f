use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use jsonrpc_core::{ErrorCode, ErrorObject, Frame, Response as RpcResponse};
use std::borrow::Cow;

/// A response whose body is at hand.
pub type PlainResponse = Response<Bytes>;

/// A response that refuses a request before it was anybody's: the body is a JSON-RPC error without
/// id, so that a client that looks for one finds it.
pub fn refusal(status: StatusCode, why: impl Into<Cow<'static, str>>) -> PlainResponse {
    refusal_with(status, ErrorObject::new(ErrorCode::INVALID_REQUEST, why))
}

/// As [`refusal`], with an error that says more.
pub fn refusal_with(status: StatusCode, error: ErrorObject) -> PlainResponse {
    let frame = Frame::response(&RpcResponse {
        id: None,
        outcome: Err(error),
    });
    let mut response = Response::new(frame.into_bytes());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, APPLICATION_JSON);
    response
}

pub(crate) const APPLICATION_JSON: HeaderValue = HeaderValue::from_static("application/json");
