//! `POST`: one message, or a legacy batch of them. Decides which era it belongs to.

use crate::{
    error_response::{Handled, about, refusal, refusal_with, refuse},
    headers::{Headers, Single},
    limits::{body_memory::Share, idle::Busy},
    request::{body, connection_cx::ConnectionCx, header_match},
    response::{body::Events, respond},
    session::{
        in_flight::{Event, First, InFlight, Resumption},
        sessions::SessionKind,
    },
};
use http::{HeaderName, HeaderValue, Response, StatusCode, header, request::Parts};
use hyper::body::Incoming;
use jsonrpc_core::{ErrorCode, ErrorObject, Id, Invalid, Message, Notification, Payload, Request};
use mcp_protocol::{
    Era, ProtocolError, ProtocolVersion, Received,
    model::{Initialize, RequestMeta},
};
use mcp_service::{
    Accepted, Answer, Connection, McpService, Outbox, Principal, Reply, TransportKind,
};
use std::{sync::Arc, time::Duration};

/// Outcome of dispatching a message.
enum Dispatched {
    /// The message is answered.
    Reply(Reply),
    /// The message opened a session, and is answered.
    Opened(Arc<str>, Reply),
    /// The message is being handled.
    InFlight(InFlight),
}

pub(crate) async fn handle<S>(
    caller: &ConnectionCx<S>,
    parts: &Parts,
    headers: &Headers<'_>,
    body: &mut Incoming,
    busy: Busy,
) -> Handled<Response<crate::response::body::Body>>
where
    S: McpService,
{
    let principal = match caller.principal(parts).await {
        Ok(principal) => principal,
        Err(refused) => {
            return Err(about(
                refused,
                unread_id(caller, parts, headers, body).await,
            ));
        }
    };
    check_type(headers)?;
    let accept = headers.accept;
    if !accept.json && !accept.stream {
        return refuse(
            StatusCode::NOT_ACCEPTABLE,
            "`Accept` must have application/json or text/event-stream",
        );
    }
    let received = read(caller, body).await?;
    let options = caller.options();
    let id = id_of(&received.payload);
    caller.take_session_up(headers, &principal).await?;
    let dispatched = dispatch(caller, parts, headers, principal, received);
    let mut running = match dispatched.map_err(|refused| about(refused, id))? {
        Dispatched::Reply(reply) => return Ok(respond::reply(reply, accept)),
        Dispatched::Opened(session, reply) => {
            // Its next request may come to another process.
            caller.endpoint().sessions.shared_by_now().await;
            let mut response = respond::reply(reply, accept);
            if let Ok(session) = HeaderValue::from_str(&session) {
                response.headers_mut().insert(MCP_SESSION_ID, session);
            }
            return Ok(response);
        }
        Dispatched::InFlight(running) => running,
    };
    // How it is answered is decided by what comes first, if only a silence. Until then the request
    // runs right here, where hanging up drops it.
    let first = match running.first(options.begin_stream_after).await {
        First::Event(Event::Reply(reply)) => return Ok(respond::reply(reply, accept)),
        First::End => return Ok(respond::reply(Reply::Nothing, accept)),
        First::Event(notification) => Some(notification),
        First::Silence => None,
    };
    running.drive(&caller.listening.detached);
    let events = Events::of_request(first, running, options.keep_alive, busy);
    Ok(respond::events(events))
}

/// The id of a request that has been read; none of several, and of none.
pub(crate) fn id_of(payload: &Payload) -> Option<Id> {
    match payload {
        Payload::Single(Ok(Message::Request(request))) => Some(request.id.clone()),
        _ => None,
    }
}

/// The id of a request whose sender is refused, if its body is small and comes soon. Clients that look for
/// the error by its id drop one without, and with it what says how to come in.
async fn unread_id<S>(
    caller: &ConnectionCx<S>,
    parts: &Parts,
    headers: &Headers<'_>,
    body: &mut Incoming,
) -> Option<Id>
where
    S: McpService,
{
    // A client that waits for leave to send has not begun.
    if parts.headers.contains_key(header::EXPECT) || check_type(headers).is_err() {
        return None;
    }
    let read = read_within(caller, body, body::FINISH_BYTES, body::FINISH).await;
    id_of(&read.ok()?.payload)
}

/// Refuses bodies other than uncompressed JSON, before they are read.
pub(crate) fn check_type(headers: &Headers<'_>) -> Handled<()> {
    if headers.are_of_encoded_body {
        let mut refused = refusal(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "`Content-Encoding` must be identity: bodies are read as they are",
        );
        let identity = HeaderValue::from_static("identity");
        let headers = refused.headers_mut();
        headers.insert(header::ACCEPT_ENCODING, identity);
        return Err(Box::new(refused));
    }
    if headers.say_json() {
        return Ok(());
    }
    refuse(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "`Content-Type` must be application/json",
    )
}

/// The messages of a request's body.
pub(crate) async fn read<S>(caller: &ConnectionCx<S>, body: &mut Incoming) -> Handled<Received>
where
    S: McpService,
{
    let limits = &caller.options().limits;
    read_within(caller, body, limits.max_body_bytes, limits.body_timeout).await
}

async fn read_within<S>(
    caller: &ConnectionCx<S>,
    body: &mut Incoming,
    max: usize,
    timeout: Duration,
) -> Handled<Received>
where
    S: McpService,
{
    let limits = &caller.options().limits;
    let frames = caller.endpoint().engine.limits().frames;
    let max = max.min(limits.max_body_bytes).min(frames.max_frame);
    let share = Share::new(
        &caller.endpoint().held,
        &caller.activity.held,
        limits.max_unfinished_body_bytes,
        max,
    );
    let frame = body::body(body, max, timeout, share).await?;
    Received::decode(&frame, frames).map_err(|error| {
        let error = error.to_error_object();
        Box::new(refusal_with(StatusCode::BAD_REQUEST, error))
    })
}

const MCP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

fn dispatch<S>(
    caller: &ConnectionCx<S>,
    parts: &Parts,
    headers: &Headers<'_>,
    principal: Principal,
    received: Received,
) -> Handled<Dispatched>
where
    S: McpService,
{
    let Received { payload, meta } = received;
    let invalid = |why: &'static str| {
        let error = ErrorObject::lasting(ErrorCode::INVALID_REQUEST, why);
        Ok(done(Answer::error(None, error, 400)))
    };
    match payload {
        Payload::Single(Err(Invalid { id, error })) => Ok(done(Answer::error(id, error, 400))),
        Payload::Single(Ok(Message::Request(request))) => {
            match Received::meta_of(meta, &request.params) {
                Ok(meta) if meta.protocol_version.is_some() || headers.are_modern() => {
                    modern(caller, parts, headers, &principal, request, meta)
                }
                // What names a version, if only badly, must not be mistaken for a legacy request.
                Err(error)
                    if headers.are_modern() || request.params.as_str().contains(VERSION_KEY) =>
                {
                    Ok(done(refused(&request, &error)))
                }
                _ if request.method == "initialize" => {
                    initialize(caller, headers, &principal, request)
                }
                meta => {
                    let received = Received {
                        payload: Payload::Single(Ok(Message::Request(request))),
                        meta: meta.ok(),
                    };
                    legacy(caller, headers, &principal, received)
                }
            }
        }
        Payload::Single(Ok(Message::Notification(notification)))
            if headers.are_modern() || names_a_version(&notification) =>
        {
            // There is none to act on: over HTTP, a modern client cancels by hanging up.
            Ok(Dispatched::Reply(Reply::Nothing))
        }
        Payload::Single(Ok(Message::Response(_))) if headers.are_modern() => {
            invalid("a client sends no responses in this protocol version")
        }
        Payload::Batch(_) if headers.are_modern() => {
            invalid("batches are not part of this protocol version")
        }
        payload => legacy(caller, headers, &principal, payload.into()),
    }
}

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

fn names_a_version(notification: &Notification) -> bool {
    RequestMeta::of(&notification.params).is_ok_and(|meta| meta.protocol_version.is_some())
}

fn done(answer: Answer) -> Dispatched {
    Dispatched::Reply(Reply::One(answer))
}

fn refused(request: &Request, error: &ProtocolError) -> Answer {
    Answer::error(
        Some(request.id.clone()),
        error.to_error_object(),
        error.http_status(Era::Modern),
    )
}

/// A request that is its own session.
fn modern<S>(
    caller: &ConnectionCx<S>,
    parts: &Parts,
    headers: &Headers<'_>,
    principal: &Principal,
    request: Request,
    meta: Box<RequestMeta>,
) -> Handled<Dispatched>
where
    S: McpService,
{
    let options = caller.options();
    let checked = header_match::check(headers, &request, &meta).and_then(|()| {
        match options.header_params.as_deref() {
            Some(check) => {
                header_match::check_params(check, principal, &parts.headers, &request, &meta)
            }
            None => Ok(()),
        }
    });
    if let Err(error) = checked {
        return Ok(done(refused(&request, &error)));
    }
    let listens = request.method == "subscriptions/listen";
    if listens && !headers.accept.stream {
        return refuse(
            StatusCode::NOT_ACCEPTABLE,
            "the answer is a stream, so `Accept` must have text/event-stream",
        );
    }
    // Only a client that asked to hear of it hears of a request before it is answered.
    let wants_to_hear = listens || meta.progress_token.is_some() || meta.log_level.is_some();
    let speaks = wants_to_hear && headers.accept.stream;
    let outbox = speaks.then(|| Outbox::new(options.limits.max_request_queue_bytes));
    let engine = &caller.endpoint().engine;
    let accepted = engine.accept_modern(
        principal,
        TransportKind::Http,
        request,
        meta,
        outbox.clone(),
        headers.trace(),
    );
    Ok(match accepted {
        Accepted::Done(reply) => Dispatched::Reply(reply),
        Accepted::Pending(exchange) => Dispatched::InFlight(InFlight::new(exchange, outbox, None)),
    })
}

/// The handshake of the legacy era.
fn initialize<S>(
    caller: &ConnectionCx<S>,
    headers: &Headers<'_>,
    principal: &Principal,
    request: Request,
) -> Handled<Dispatched>
where
    S: McpService,
{
    let message = Payload::Single(Ok(Message::Request(request)));
    // In a live session it is a second handshake, which is an error; the id of a dead one is what a
    // client that starts anew may still send.
    if let Ok(Some(_)) = caller.session(headers, principal) {
        return legacy(caller, headers, principal, message.into());
    }
    let endpoint = caller.endpoint();
    let session = caller.open_session(SessionKind::Streamable, principal)?;
    let connection = &session.connection;
    match endpoint.engine.accept_payload(
        connection,
        principal,
        message,
        connection.outbox(),
        headers.trace().as_ref(),
    ) {
        Accepted::Done(Reply::One(answer)) if answer.response.outcome.is_ok() => {
            endpoint.sessions.keep(&session);
            let id = Arc::clone(&session.id);
            Ok(Dispatched::Opened(id, Reply::One(answer)))
        }
        accepted => {
            endpoint.sessions.close(&session);
            Ok(match accepted {
                Accepted::Done(reply) => Dispatched::Reply(reply),
                Accepted::Pending(exchange) => {
                    Dispatched::InFlight(InFlight::new(exchange, None, None))
                }
            })
        }
    }
}

/// Handles a message of a legacy session, or of a legacy client without one.
fn legacy<S>(
    caller: &ConnectionCx<S>,
    headers: &Headers<'_>,
    principal: &Principal,
    received: Received,
) -> Handled<Dispatched>
where
    S: McpService,
{
    let limits = &caller.options().limits;
    let outbox = Outbox::new(limits.max_request_queue_bytes);
    let mut resumption = None;
    let connection = match caller.session(headers, principal)? {
        Some(session) => {
            check_version(headers, session.connection.session().version())?;
            resumption = Resumption::of(&session, caller.options().retry);
            Arc::clone(&session.connection)
        }
        None if caller.options().allow_sessionless => {
            check_version(headers, ProtocolVersion::V2025_06_18)?;
            sessionless(headers, principal, &outbox)
        }
        None => return refuse(StatusCode::BAD_REQUEST, "`Mcp-Session-Id` is missing"),
    };
    let engine = &caller.endpoint().engine;
    let trace = headers.trace();
    let accepted = engine.accept_payload(&connection, principal, received, &outbox, trace.as_ref());
    Ok(match accepted {
        Accepted::Done(reply) => Dispatched::Reply(reply),
        Accepted::Pending(exchange) => {
            let detached = Arc::clone(&caller.listening.detached);
            if !headers.accept.stream {
                // Nothing can be said before the answer, so nothing may wait to be heard: a
                // question to the client would wait for as long as questions may.
                outbox.close();
            }
            let outbox = headers.accept.stream.then_some(outbox);
            let running = InFlight::new(exchange, outbox, Some(detached));
            Dispatched::InFlight(running.with_resumption(resumption))
        }
    })
}

/// A connection for one request of a client that never shook hands (decision D14), or lost its
/// session and still names its revision.
fn sessionless(headers: &Headers<'_>, principal: &Principal, outbox: &Outbox) -> Arc<Connection> {
    let connection = Connection::new(principal.clone(), TransportKind::Http, None, outbox.clone());
    if let Some(version) = headers.version.text() {
        let initialize = Initialize {
            protocol_version: version.to_owned(),
            ..Initialize::default()
        };
        if let Err(error) = connection.session().open(&initialize) {
            tracing::debug!(%error, "a new session is not open");
        }
    }
    connection
}

/// A version header that means nothing is refused since the revision that introduced it.
pub(crate) fn check_version(headers: &Headers<'_>, session: ProtocolVersion) -> Handled<()> {
    let known = match headers.version {
        Single::Missing => true,
        Single::One(b"1.0") => true,
        version => version
            .text()
            .is_some_and(|version| version.parse::<ProtocolVersion>().is_ok()),
    };
    if known || session < ProtocolVersion::V2025_06_18 {
        return Ok(());
    }
    refuse(
        StatusCode::BAD_REQUEST,
        "`MCP-Protocol-Version` names no version that is supported",
    )
}
