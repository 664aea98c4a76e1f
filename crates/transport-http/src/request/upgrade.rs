//! Answers to requests for another protocol.

use crate::{
    error_response::{Handled, refuse},
    request::connection_cx::ConnectionCx,
    response::{body::Body, respond},
    seams::upgrade::{Upgrade, UpgradeRequest},
};
use http::{HeaderValue, Request, Response, StatusCode, Version, header, request::Parts};
use std::sync::Arc;

/// Upgrade that `parts` asks for, if its path is not the endpoint's.
pub(crate) fn route<'a, S>(caller: &'a ConnectionCx<S>, parts: &Parts) -> Option<&'a dyn Upgrade> {
    let upgrade = caller.options().upgrade.as_deref()?;
    (parts.uri.path() == upgrade.path()).then_some(upgrade)
}

/// Answers a request for it.
pub(crate) async fn handle<S>(
    caller: &ConnectionCx<S>,
    upgrade: &dyn Upgrade,
    parts: &Parts,
) -> Handled<Response<Body>> {
    let principal = caller.principal(parts).await?;
    if parts.version != Version::HTTP_11 {
        return refuse(
            StatusCode::BAD_REQUEST,
            "a connection goes on with another protocol from HTTP/1.1 alone",
        );
    }
    let length = parts.headers.get(header::CONTENT_LENGTH);
    if parts.headers.contains_key(header::TRANSFER_ENCODING)
        || length.is_some_and(|length| length != "0")
    {
        // It could be taken for the beginning of what comes afterwards.
        return refuse(
            StatusCode::BAD_REQUEST,
            "a request for another protocol has no body here",
        );
    }
    let mut request = Request::new(());
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = parts.uri.clone();
    *request.version_mut() = parts.version;
    *request.headers_mut() = parts.headers.clone();
    let upgraded = upgrade.begin(UpgradeRequest {
        principal,
        parts: request.into_parts().0,
        peer: caller.peer.again(),
        authenticate: Arc::clone(&caller.options().authenticate),
    })?;
    let mut response = respond::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.extend(upgraded.headers.clone());
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, upgraded.protocol.clone());
    caller.activity.change.set(upgraded);
    Ok(response)
}
