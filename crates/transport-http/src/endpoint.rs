//! From a request to a response.

use crate::{
    Authenticate, HttpOptions, Peer, PlainResponse, SideRequest,
    accepting::Accepting,
    activity::{Activity, Busy},
    admission::Admission,
    body::{Body, Events},
    budget::Held,
    cors,
    counts::Counts,
    expiry::Expiry,
    forwarded,
    guard::Guard,
    headers::Headers,
    leftovers::Leftovers,
    old_sse, post, receive,
    refusal::{refusal, refusal_with},
    replay::{EventId, OWN_STREAM},
    respond,
    running::Resumption,
    sessions::{Session, SessionKind, Sessions},
    upgrade,
};
use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header, request::Parts,
};
use http_body::Body as _;
use hyper::body::Incoming;
use jsonrpc_core::{ErrorCode, ErrorObject};
use mcp_protocol::model::{ClientRequest, ServerResult};
use mcp_service::{Engine, McpError, Principal, Service};
use serde_json::json;
use std::{
    convert::Infallible,
    sync::{Arc, atomic::AtomicUsize},
};

/// What all listeners of a server share.
#[derive(Debug)]
pub(crate) struct Endpoint<S> {
    pub(crate) engine: Arc<Engine<S>>,
    pub(crate) options: HttpOptions,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) admission: Arc<Admission>,
    /// What those are told who come by TLS, if anything.
    pub(crate) strict_transport_security: Option<HeaderValue>,
    pub(crate) listeners: AtomicUsize,
    pub(crate) counts: Arc<Counts>,
    /// What is held of bodies that are being read.
    pub(crate) held: Held,
    pub(crate) accepting: Accepting,
}

/// What the connections of one listener share.
#[derive(Debug)]
pub(crate) struct Listening<S> {
    pub(crate) endpoint: Arc<Endpoint<S>>,
    pub(crate) guard: Guard,
    pub(crate) leftovers: Arc<Leftovers>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Caller<S> {
    pub(crate) listening: Arc<Listening<S>>,
    pub(crate) peer: Peer,
    /// Whether it is a proxy that is trusted, and so may speak for others.
    pub(crate) via_proxy: bool,
    pub(crate) activity: Arc<Activity>,
}

/// A response, or the refusal that takes its place. Boxed, because it is rare and large.
pub(crate) type Handled<T = Response<Body>> = Result<T, Box<PlainResponse>>;

/// Refuses a request.
pub(crate) fn refuse<T>(
    status: StatusCode,
    why: impl Into<std::borrow::Cow<'static, str>>,
) -> Handled<T> {
    Err(Box::new(refusal(status, why)))
}

/// Answers one request. Dropped when the client hangs up.
pub(crate) async fn handle<S>(
    caller: Arc<Caller<S>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible>
where
    S: Service<ClientRequest, Response = ServerResult, Error = McpError> + 'static,
{
    let (parts, mut body) = request.into_parts();
    let caller = caller.behind(&parts);
    let mut response = answer(&caller, &parts, &mut body).await;
    if !body.is_end_stream() {
        let _busy = caller.activity.begin();
        // Whoever has taken too long already is not waited for.
        let waits = response.status() != StatusCode::REQUEST_TIMEOUT;
        receive::finish(&parts.headers, body, waits).await;
    }
    let strict = caller.endpoint().strict_transport_security.as_ref();
    let counts = &caller.endpoint().counts;
    counts.answered(response.status());
    if let Body::Events(events) = response.body_mut() {
        events.count(counts.stream());
    }
    response.body_mut().keep_busy(|| caller.activity.begin());
    respond::secure(&mut response, strict.filter(|_| caller.peer.is_encrypted()));
    Ok(response)
}

async fn answer<S>(caller: &Caller<S>, parts: &Parts, body: &mut Incoming) -> Response<Body>
where
    S: Service<ClientRequest, Response = ServerResult, Error = McpError> + 'static,
{
    let busy = caller.activity.begin();
    let max = caller.options().limits.max_header_bytes;
    if parts.version == Version::HTTP_2 && max < head_length(parts) {
        let why = format!("the head of the request is too long; at most {max} bytes are accepted");
        return respond::plain(refusal(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, why));
    }
    let headers = Headers::read(&parts.headers);
    let origin = match caller.listening.guard.check(&parts.uri, &headers) {
        Ok(origin) => origin,
        Err(refused) => return respond::plain(*refused),
    };
    let options = caller.options();
    let handled = match parts.method {
        Method::OPTIONS => Ok(cors::preflight(options, &parts.headers, origin.is_some())),
        _ if parts.uri.path() != options.path => match old_sse::route(options, parts.uri.path()) {
            Some(route) => old_sse::handle(caller, route, parts, &headers, body, busy).await,
            None => match upgrade::route(caller, parts) {
                Some(upgrade) => upgrade::handle(caller, upgrade, parts).await,
                None => side_route(caller, parts).await,
            },
        },
        Method::POST => post::handle(caller, parts, &headers, body, busy).await,
        Method::GET => stream(caller, parts, &headers, busy).await,
        Method::DELETE => end_session(caller, parts, &headers).await,
        _ => Err(method_not_allowed(cors::METHODS)),
    };
    let mut response = handled.unwrap_or_else(|refused| respond::plain(*refused));
    if let Some(origin) = origin.filter(|_| options.cors) {
        cors::allow(&mut response, origin, &parts.method);
    }
    response
}

/// Length of the head of an HTTP/2 request, as RFC 9113 §6.5.2 counts.
fn head_length(parts: &Parts) -> usize {
    const OF_EACH: usize = 32;
    let headers = parts.headers.iter();
    let lengths = headers.map(|(name, value)| name.as_str().len() + value.len() + OF_EACH);
    let target = parts.uri.path_and_query().map_or(0, |it| it.as_str().len());
    lengths.sum::<usize>() + target
}

impl<S> Caller<S> {
    /// Whoever a proxy speaks for in a request, if this is one that may.
    fn behind(self: Arc<Self>, parts: &Parts) -> Arc<Self> {
        if !self.via_proxy {
            return self;
        }
        let options = self.options();
        let (read, trusted) = (options.forwarded_header, &options.trusted_proxies);
        Arc::new(Self {
            listening: Arc::clone(&self.listening),
            peer: forwarded::speaker(&parts.headers, read, &self.peer, trusted),
            via_proxy: false,
            activity: Arc::clone(&self.activity),
        })
    }

    pub(crate) fn endpoint(&self) -> &Endpoint<S> {
        &self.listening.endpoint
    }

    pub(crate) fn options(&self) -> &HttpOptions {
        &self.listening.endpoint.options
    }

    pub(crate) async fn principal(&self, parts: &Parts) -> Handled<Principal> {
        let authenticate = &self.options().authenticate;
        authenticate.authenticate(parts, &self.peer).outcome().await
    }

    /// The live session the headers name, which must be `principal`'s; `None` if they name none.
    pub(crate) fn session(
        &self,
        headers: &Headers<'_>,
        principal: &Principal,
    ) -> Handled<Option<Arc<Session>>> {
        if headers.session.is_missing() {
            return Ok(None);
        }
        let id = headers.session.text().unwrap_or_default();
        self.session_of(SessionKind::Streamable, id, principal)
            .map(Some)
    }

    /// The live session `id`, which must be of this kind and `principal`'s.
    pub(crate) fn session_of(
        &self,
        kind: SessionKind,
        id: &str,
        principal: &Principal,
    ) -> Handled<Arc<Session>> {
        match self.endpoint().sessions.find(kind, id, principal) {
            Some(session) => Ok(session),
            None => refuse(
                StatusCode::NOT_FOUND,
                "there is no such session, or not any more; initialize a new one",
            ),
        }
    }

    /// A new session for `principal`.
    pub(crate) fn open_session(
        &self,
        kind: SessionKind,
        principal: &Principal,
    ) -> Handled<Arc<Session>> {
        self.endpoint()
            .sessions
            .open(kind, principal)
            .map_err(|error| {
                tracing::warn!(%principal, %error, "a session was refused");
                let error = ErrorObject::new(ErrorCode::INTERNAL_ERROR, error.to_string())
                    .with(&json!({ "retryable": true }));
                Box::new(refusal_with(StatusCode::SERVICE_UNAVAILABLE, error))
            })
    }
}

async fn side_route<S>(caller: &Caller<S>, parts: &Parts) -> Handled {
    let options = caller.options();
    let authenticate: &dyn Authenticate = &*options.authenticate;
    let request = SideRequest::new(parts, &caller.peer, authenticate);
    match options
        .side_routes
        .as_ref()
        .and_then(|routes| routes.handle(request))
    {
        Some(response) => Ok(respond::plain(response.await)),
        None => refuse(
            StatusCode::NOT_FOUND,
            format!("there is nothing here; MCP is spoken at {}", options.path),
        ),
    }
}

/// `GET`: the stream of a legacy session.
async fn stream<S>(
    caller: &Caller<S>,
    parts: &Parts,
    headers: &Headers<'_>,
    busy: Busy,
) -> Handled {
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
async fn end_session<S>(caller: &Caller<S>, parts: &Parts, headers: &Headers<'_>) -> Handled {
    let (session, _) = legacy_session(caller, parts, headers).await?;
    let sessions = &caller.endpoint().sessions;
    sessions.close(&session);
    sessions.settled().await;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// The session that a request names, and who has sent this one.
async fn legacy_session<S>(
    caller: &Caller<S>,
    parts: &Parts,
    headers: &Headers<'_>,
) -> Handled<(Arc<Session>, Principal)> {
    if headers.are_modern() {
        return Err(method_not_allowed(HeaderValue::from_static(
            "POST, OPTIONS",
        )));
    }
    let principal = caller.principal(parts).await?;
    match caller.session(headers, &principal)? {
        Some(session) => Ok((session, principal)),
        None => refuse(StatusCode::BAD_REQUEST, "`Mcp-Session-Id` is missing"),
    }
}

pub(crate) fn method_not_allowed(allowed: HeaderValue) -> Box<PlainResponse> {
    let mut response = refusal(
        StatusCode::METHOD_NOT_ALLOWED,
        "this method is not allowed here",
    );
    response.headers_mut().insert(header::ALLOW, allowed);
    Box::new(response)
}
