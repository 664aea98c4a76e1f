//! Answers to browsers before and after a page calls us. The guard has decided before which pages
//! may call.

use crate::{
    options::HttpOptions,
    response::{body::Body, respond},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use std::fmt::Write;

/// The methods of the endpoint.
pub(crate) const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");

const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Mcp-Session-Id, MCP-Protocol-Version, RateLimit, RateLimit-Policy, \
     X-OwlClaw-Budget-Remaining, Retry-After, WWW-Authenticate, ETag, Content-Range",
);

const ALLOWED: &str = "Content-Type, Accept, Authorization, Last-Event-ID, Mcp-Session-Id, \
     MCP-Protocol-Version, Mcp-Method, Mcp-Name, X-MCP-Client-ID, X-API-Key, If-None-Match, \
     Range, traceparent, tracestate";

/// The answer to `OPTIONS`. A request without an origin is no preflight, and its answer only lists
/// the methods.
pub(crate) fn preflight(
    options: &HttpOptions,
    request: &HeaderMap,
    is_page: bool,
) -> Response<Body> {
    let mut response = respond::empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, METHODS);
    if !options.cors || !is_page || !request.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
        return response;
    }
    let methods: Vec<_> = options
        .cors_allowed_methods
        .iter()
        .map(Method::as_str)
        .collect();
    if let Ok(methods) = HeaderValue::from_str(&methods.join(", ")) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    if let Ok(allowed) = HeaderValue::from_str(&allowed_headers(options, request)) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        options.cors_max_age.as_secs().into(),
    );
    headers.append(
        header::VARY,
        HeaderValue::from_static("Access-Control-Request-Headers"),
    );
    response
}

/// Headers that a page may send: fixed ones, and those of `Mcp-Param-*` it asks for.
fn allowed_headers(options: &HttpOptions, request: &HeaderMap) -> String {
    let mut allowed = ALLOWED.to_owned();
    let asked = request
        .get_all(header::ACCESS_CONTROL_REQUEST_HEADERS)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| name.as_str().starts_with("mcp-param-"));
    let configured = options.cors_allowed_headers.iter().cloned();
    // Those of the fixed list are there already, in another spelling.
    let fixed = |name: &HeaderName| {
        ALLOWED
            .split(", ")
            .any(|it| it.eq_ignore_ascii_case(name.as_str()))
    };
    for name in configured.filter(|name| !fixed(name)).chain(asked) {
        // Writing to a string cannot fail.
        let _ = write!(allowed, ", {name}");
    }
    allowed
}

/// Lets the page of `origin` read a response.
pub(crate) fn allow(response: &mut Response<Body>, origin: &[u8], method: &Method) {
    let headers = response.headers_mut();
    if let Ok(origin) = HeaderValue::from_bytes(origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if method != Method::OPTIONS {
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
}
