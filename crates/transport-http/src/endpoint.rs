//! Routes of the endpoint: from a request to a response.

use crate::{
    error_response::{Handled, PlainResponse, method_not_allowed, refusal, refuse},
    headers::Headers,
    limits::{body_memory::Share, idle::Busy},
    old_sse,
    request::{body, connection_cx::ConnectionCx, cors, post, upgrade as upgrading},
    response::{
        body::{Body, Events},
        respond,
    },
    seams::{authenticate::Authenticate, side_routes::SideRequest},
    session::{
        expiry::Expiry,
        in_flight::Resumption,
        replay::{EventId, OWN_STREAM},
        sessions::Session,
    },
};
use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, request::Parts,
};
use http_body::Body as _;
use hyper::body::Incoming;
use mcp_protocol::TraceContext;
use mcp_service::{McpService, Principal};
use std::{convert::Infallible, sync::Arc};

/// Answers one request. Dropped when the client hangs up.
pub(crate) async fn handle<S>(
    caller: Arc<ConnectionCx<S>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible>
where
    S: McpService,
{
    let (parts, mut body) = request.into_parts();
    let caller = caller.behind(&parts);
    let mut response = answer(&caller, &parts, &mut body).await;
    if !body.is_end_stream() {
        let _busy = caller.activity.begin();
        // Whoever has taken too long already is not waited for.
        let waits = response.status() != StatusCode::REQUEST_TIMEOUT;
        body::finish(&parts.headers, body, waits).await;
    }
    let strict = caller.endpoint().strict_transport_security.as_ref();
    let counts = &caller.endpoint().counts;
    counts.answered(response.status());
    if let Body::Events(events) = response.body_mut() {
        events.count(counts.stream());
    }
    response.body_mut().keep_busy(|| caller.activity.begin());
    respond::secure(&mut response, strict.filter(|_| caller.peer.is_encrypted()));
    respond::recycle(parts.headers);
    Ok(response)
}

async fn answer<S>(caller: &ConnectionCx<S>, parts: &Parts, body: &mut Incoming) -> Response<Body>
where
    S: McpService,
{
    let busy = caller.activity.begin();
    let max = caller.options().limits.max_header_bytes;
    if parts.version == Version::HTTP_2 && max < head_length(parts) {
        let why = format!("the head of the request is too long; at most {max} bytes are accepted");
        let refused = refusal(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, why);
        return respond::plain(logged(caller, parts, refused));
    }
    let headers = Headers::read(&parts.headers);
    let origin = match caller.listening.guard.check(&parts.uri, &headers) {
        Ok(origin) => origin,
        Err(refused) => return respond::plain(logged(caller, parts, *refused)),
    };
    let options = caller.options();
    let handled = match parts.method {
        Method::OPTIONS => Ok(cors::preflight(options, &parts.headers, origin.is_some())),
        _ if parts.uri.path() != options.path => match old_sse::route(options, parts.uri.path()) {
            Some(route) => old_sse::handle(caller, route, parts, &headers, body, busy).await,
            None => match upgrading::route(caller, parts) {
                Some(upgrade) => upgrading::handle(caller, upgrade, parts).await,
                None => side_route(caller, parts, body, busy).await,
            },
        },
        Method::POST => post::handle(caller, parts, &headers, body, busy).await,
        Method::GET => stream(caller, parts, &headers, busy).await,
        Method::DELETE => end_session(caller, parts, &headers).await,
        _ => Err(method_not_allowed(cors::METHODS)),
    };
    let mut response =
        handled.unwrap_or_else(|refused| respond::plain(logged(caller, parts, *refused)));
    if let Some(origin) = origin.filter(|_| options.cors) {
        cors::allow(&mut response, origin, &parts.method);
    }
    response
}

/// A refusal of HTTP itself, of which no line about a request of the protocol tells, once it is in the log.
/// Nothing of what the client has sent is in the line but its method and path, cut.
fn logged<S>(caller: &ConnectionCx<S>, parts: &Parts, refused: PlainResponse) -> PlainResponse {
    const MAX_PATH_CHARS: usize = 200;
    if tracing::enabled!(target: REQUESTS, tracing::Level::WARN) {
        let path: String = parts.uri.path().chars().take(MAX_PATH_CHARS).collect();
        let body: Option<serde_json::Value> = serde_json::from_slice(refused.body()).ok();
        let error = body.as_ref().and_then(|it| it.pointer("/error/message"));
        tracing::warn!(
            target: REQUESTS,
            http_method = parts.method.as_str(),
            path,
            status = refused.status().as_u16(),
            peer = caller.peer.address().map(|it| it.to_string()),
            error = error.and_then(serde_json::Value::as_str),
            trace_id = parts
                .headers
                .get(TRACEPARENT)
                .and_then(|it| TraceContext::parse(it.to_str().ok()?, None))
                .map(|it| it.trace_id_text()),
            "request refused by HTTP"
        );
    }
    refused
}

/// Target of lines about requests.
const REQUESTS: &str = "owlclaw_mcp::requests";
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Length of the head of an HTTP/2 request, as RFC 9113 §6.5.2 counts.
fn head_length(parts: &Parts) -> usize {
    const OF_EACH: usize = 32;
    let headers = parts.headers.iter();
    let lengths = headers.map(|(name, value)| name.as_str().len() + value.len() + OF_EACH);
    let target = parts.uri.path_and_query().map_or(0, |it| it.as_str().len());
    lengths.sum::<usize>() + target
}

async fn side_route<S>(
    caller: &ConnectionCx<S>,
    parts: &Parts,
    body: &mut Incoming,
    busy: Busy,
) -> Handled<Response<Body>> {
    let options = caller.options();
    let nothing = || {
        let why = match options.path.as_str() {
            "" => "there is nothing here".into(),
            path => format!("there is nothing here; MCP is spoken at {path}"),
        };
        refuse(StatusCode::NOT_FOUND, why)
    };
    let Some(routes) = &options.side_routes else {
        return nothing();
    };
    let content = match routes.max_body(parts) {
        0 => Bytes::new(),
        max => {
            let share = Share::new(
                &caller.endpoint().held,
                &caller.activity.held,
                options.limits.max_unfinished_body_bytes,
                max,
            );
            body::body(body, max, options.limits.body_timeout, share).await?
        }
    };
    let authenticate: &dyn Authenticate = &*options.authenticate;
    let request = SideRequest::new(parts, &content, &caller.peer, authenticate);
    let Some(response) = routes.handle(request) else {
        return nothing();
    };
    Ok(respond::side(response.await, busy))
}

/// `GET`: the stream of a legacy session.
async fn stream<S>(
    caller: &ConnectionCx<S>,
    parts: &Parts,
    headers: &Headers<'_>,
    busy: Busy,
) -> Handled<Response<Body>>
where
    S: McpService,
{
    let (session, principal) = legacy_session(caller, parts, headers).await?;
    if !headers.accept.stream {
        return refuse(
            StatusCode::NOT_ACCEPTABLE,
            "there is a stream here, so `Accept` must have text/event-stream",
        );
    }
    let keep_alive = caller.options().keep_alive;
    let resumption = Resumption::of(&session, caller.options().retry);
    let after = match (parts.headers.get(LAST_EVENT_ID), &resumption) {
        (Some(last), Some(resumption)) => {
            let Some(last) = last.to_str().ok().and_then(|last| last.parse().ok()) else {
                return refuse(StatusCode::BAD_REQUEST, "`Last-Event-ID` names no event");
            };
            let EventId { stream, .. } = last;
            if stream != OWN_STREAM {
                let Some(reader) = session.replay.resume(last) else {
                    return refuse(
                        StatusCode::BAD_REQUEST,
                        "nothing is kept of the stream that `Last-Event-ID` names",
                    );
                };
                let rest = Events::of_rest(reader, resumption, keep_alive, busy);
                return Ok(respond::events(rest.until(Expiry::of(&principal))));
            }
            Some(last)
        }
        _ => None,
    };
    let streaming = caller.endpoint().sessions.stream(session);
    let events = Events::of_session(streaming, resumption.as_ref(), after, keep_alive, busy);
    Ok(respond::events(events.until(Expiry::of(&principal))))
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// `DELETE`: ends a legacy session.
async fn end_session<S>(
    caller: &ConnectionCx<S>,
    parts: &Parts,
    headers: &Headers<'_>,
) -> Handled<Response<Body>>
where
    S: McpService,
{
    let (session, _) = legacy_session(caller, parts, headers).await?;
    let sessions = &caller.endpoint().sessions;
    sessions.close(&session);
    sessions.settled().await;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// The session that a request names, and who has sent this one.
async fn legacy_session<S>(
    caller: &ConnectionCx<S>,
    parts: &Parts,
    headers: &Headers<'_>,
) -> Handled<(Arc<Session>, Principal)>
where
    S: McpService,
{
    if headers.are_modern() {
        return Err(method_not_allowed(HeaderValue::from_static(
            "POST, OPTIONS",
        )));
    }
    let principal = caller.principal(parts).await?;
    caller.take_session_up(headers, &principal).await?;
    match caller.session(headers, &principal)? {
        Some(session) => Ok((session, principal)),
        None => refuse(StatusCode::BAD_REQUEST, "`Mcp-Session-Id` is missing"),
    }
}
