//! Refusals of requests, with a JSON-RPC error as their body.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use jsonrpc_core::{ErrorCode, ErrorObject, Frame, Id, Response as RpcResponse};
use serde_json::json;
use std::borrow::Cow;

/// A response whose body is at hand.
pub type PlainResponse = Response<Bytes>;

/// A response that refuses a request before its sender is known: the body is a JSON-RPC error
/// without id unless that has been read, so that a client that looks for one finds it. Only
/// [`StatusCode::REQUEST_TIMEOUT`] is worth another try, which the error says (R9.9); for others,
/// see [`refusal_with`].
pub fn refusal(status: StatusCode, why: impl Into<Cow<'static, str>>) -> PlainResponse {
    let error = if status == StatusCode::REQUEST_TIMEOUT {
        ErrorObject::new(ErrorCode::INVALID_REQUEST, why).with(&json!({ "retryable": true }))
    } else {
        ErrorObject::lasting(ErrorCode::INVALID_REQUEST, why)
    };
    refusal_with(status, error)
}

/// As [`refusal`], with an error that says more.
pub fn refusal_with(status: StatusCode, error: ErrorObject) -> PlainResponse {
    let mut response = Response::new(body(None, &error));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, APPLICATION_JSON);
    response.extensions_mut().insert(error);
    response
}

/// A response, or the refusal that takes its place. Boxed, because it is rare and large.
pub(crate) type Handled<T> = Result<T, Box<PlainResponse>>;

/// Refuses a request.
pub(crate) fn refuse<T>(status: StatusCode, why: impl Into<Cow<'static, str>>) -> Handled<T> {
    Err(Box::new(refusal(status, why)))
}

/// Refuses the method of a request, and names those that are allowed.
pub(crate) fn method_not_allowed(allowed: HeaderValue) -> Box<PlainResponse> {
    let mut response = refusal(
        StatusCode::METHOD_NOT_ALLOWED,
        "this method is not allowed here",
    );
    response.headers_mut().insert(header::ALLOW, allowed);
    Box::new(response)
}

/// The same refusal of a request that has been read: it has an id to be told by.
pub(crate) fn about(mut refused: Box<PlainResponse>, id: Option<Id>) -> Box<PlainResponse> {
    if let (Some(id), Some(error)) = (id, refused.extensions().get::<ErrorObject>()) {
        *refused.body_mut() = body(Some(id), error);
    }
    refused
}

fn body(id: Option<Id>, error: &ErrorObject) -> Bytes {
    let outcome = Err(error.clone());
    Frame::response(&RpcResponse { id, outcome }).into_bytes()
}

pub(crate) const APPLICATION_JSON: HeaderValue = HeaderValue::from_static("application/json");
