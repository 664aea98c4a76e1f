//! HTTP with SSE, the transport of 2024-11-05: one stream for all messages to a client, and a path
//! to which it posts its own. The stream is the session: without it no answer could be delivered.

use crate::{
    error_response::{Handled, about, method_not_allowed, refuse},
    headers::{Accept, Headers},
    limits::idle::Busy,
    options::HttpOptions,
    request::{connection_cx::ConnectionCx, post},
    response::{
        body::{Body, COMMENT, event},
        respond,
    },
    session::{
        expiry::Expiry,
        sessions::{Debt, SessionKind, Sessions, Streaming},
    },
};
use async_stream::stream;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, request::Parts};
use http_body::Frame as HttpFrame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use jsonrpc_core::{Frame, Message, Payload};
use mcp_protocol::{Received, model::RequestMeta};
use mcp_service::{Accepted, McpService, OutboxError, Principal, Reply};
use std::{convert::Infallible, future::poll_fn, sync::Arc, task::Poll, time::Duration};

/// One of the two places of this transport.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route {
    /// Path at which a stream is opened.
    Stream,
    /// Path to which messages are posted.
    Messages,
}

/// Route of `path`, if it belongs to this transport.
pub(crate) fn route(options: &HttpOptions, path: &str) -> Option<Route> {
    if options.old_sse_paths.iter().any(|known| known == path) {
        return Some(Route::Stream);
    }
    let is_served = !options.old_sse_paths.is_empty();
    (is_served && path == options.old_sse_messages_path).then_some(Route::Messages)
}

pub(crate) async fn handle<S>(
    caller: &ConnectionCx<S>,
    route: Route,
    parts: &Parts,
    headers: &Headers<'_>,
    body: &mut Incoming,
    busy: Busy,
) -> Handled<Response<Body>>
where
    S: McpService,
{
    match (route, &parts.method) {
        (Route::Stream, &Method::GET) => open(caller, parts, headers, busy).await,
        (Route::Messages, &Method::POST) => take(caller, parts, headers, body).await,
        (Route::Stream, _) => Err(method_not_allowed(HeaderValue::from_static("GET, OPTIONS"))),
        (Route::Messages, _) => Err(method_not_allowed(HeaderValue::from_static(
            "POST, OPTIONS",
        ))),
    }
}

/// `GET`: opens a session, whose stream begins with where to post.
async fn open<S>(
    caller: &ConnectionCx<S>,
    parts: &Parts,
    headers: &Headers<'_>,
    busy: Busy,
) -> Handled<Response<Body>> {
    refuse_modern(headers)?;
    let principal = caller.principal(parts).await?;
    if !headers.accept.stream {
        return refuse(
            StatusCode::NOT_ACCEPTABLE,
            "there is a stream here, so `Accept` must have text/event-stream",
        );
    }
    let session = caller.open_session(SessionKind::OldSse, &principal)?;
    let options = caller.options();
    let endpoint = format!(
        "event: endpoint\ndata: {}?{SESSION_ID}={}\n\n",
        options.old_sse_messages_path, session.id
    );
    let streaming = caller.endpoint().sessions.stream(session);
    let expiry = Expiry::of(&principal);
    let events = events(endpoint.into(), streaming, expiry, options.keep_alive, busy);
    Ok(respond::event_stream(Body::Streamed(events.boxed_unsync())))
}

/// The one parameter of the place where messages are posted.
const SESSION_ID: &str = "sessionId";

/// Events of a session until it expires, in the order in which they were sent. Dropping the stream
/// ends the session.
fn events(
    endpoint: Bytes,
    streaming: Streaming,
    mut expiry: Expiry,
    keep_alive: Duration,
    busy: Busy,
) -> impl http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static {
    StreamBody::new(stream! {
        let _busy = busy;
        let outbox = streaming.session.connection.outbox();
        yield Ok(HttpFrame::data(endpoint));
        loop {
            // First, since there may always be something to say.
            let next = poll_fn(|cx| match expiry.is_over(cx) {
                true => Poll::Ready(None),
                false => outbox.poll_next(cx),
            });
            match tokio::time::timeout(keep_alive, next).await {
                Ok(Some(frame)) => {
                    for piece in event(Frame::whole(frame)) {
                        yield Ok(HttpFrame::data(piece));
                    }
                }
                Ok(None) => break,
                Err(_silent) => yield Ok(HttpFrame::data(COMMENT)),
            }
        }
    })
}

/// `POST`: takes a message, whose answer comes on the stream.
async fn take<S>(
    caller: &ConnectionCx<S>,
    parts: &Parts,
    headers: &Headers<'_>,
    body: &mut Incoming,
) -> Handled<Response<Body>>
where
    S: McpService,
{
    refuse_modern(headers)?;
    let principal = caller.principal(parts).await?;
    let Some(id) = session_id(parts) else {
        return refuse(
            StatusCode::BAD_REQUEST,
            "`sessionId` must be in the query, once",
        );
    };
    caller.session_of(SessionKind::OldSse, id, &principal)?;
    post::check_type(headers)?;
    let received = post::read(caller, body).await?;
    let message = post::id_of(&received.payload);
    accept(caller, headers, &principal, id, received).map_err(|refused| about(refused, message))
}

/// Takes a message that has been read, for the session `id`.
fn accept<S>(
    caller: &ConnectionCx<S>,
    headers: &Headers<'_>,
    principal: &Principal,
    id: &str,
    received: Received,
) -> Handled<Response<Body>>
where
    S: McpService,
{
    let names_a_version = match (&received.payload, &received.meta) {
        (_, Some(meta)) => meta.protocol_version.is_some(),
        (Payload::Single(Ok(Message::Request(request))), None) => {
            RequestMeta::of(&request.params).is_ok_and(|meta| meta.protocol_version.is_some())
        }
        _ => false,
    };
    if names_a_version {
        return refuse(
            StatusCode::BAD_REQUEST,
            "this transport is not part of the protocol version that the request names",
        );
    }
    // The body may have taken a while.
    let session = caller.session_of(SessionKind::OldSse, id, principal)?;
    let connection = Arc::clone(&session.connection);
    post::check_version(headers, connection.session().version())?;
    let Some(debt) = session.owe() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping");
    };
    let endpoint = caller.endpoint();
    let teller = Teller {
        debt,
        sessions: Arc::clone(&endpoint.sessions),
        max_waiting: endpoint.options.limits.max_unread_answer_bytes,
    };
    let outbox = connection.outbox();
    let accepted = endpoint.engine.accept_payload(
        &connection,
        principal,
        received,
        outbox,
        headers.trace().as_ref(),
    );
    match accepted {
        // What answers nothing in particular tells the client nothing, unless it is told here.
        Accepted::Done(Reply::One(answer)) if answer.response.id.is_none() => {
            return Ok(respond::reply(Reply::One(answer), Accept::default()));
        }
        Accepted::Done(reply) => teller.tell(reply),
        // The stream ended while this was accepted: dropping it is its cancellation.
        Accepted::Pending(_) if outbox.is_closed() => {
            return refuse(StatusCode::NOT_FOUND, "the session's stream has ended");
        }
        Accepted::Pending(exchange) => caller.listening.detached.carry_on(async move {
            teller.tell(exchange.await);
        }),
    }
    Ok(respond::empty(StatusCode::ACCEPTED))
}

/// Puts an answer on the stream it is owed on.
struct Teller {
    debt: Debt,
    sessions: Arc<Sessions>,
    max_waiting: usize,
}

impl Teller {
    fn tell(self, reply: Reply) {
        let answers = match reply {
            Reply::Nothing => return,
            Reply::One(answer) => vec![answer],
            // Clients of this transport read one message from one event.
            Reply::Batch(answers) => answers,
        };
        let session = self.debt.session();
        for answer in answers {
            let frame = Frame::response(&answer.response).into_bytes();
            let outbox = session.connection.outbox();
            match outbox.push_answer(frame, self.max_waiting) {
                Ok(()) => {}
                Err(OutboxError::Closed) => return,
                Err(error) => {
                    // Left out, it would be waited for: better that the client learns of it.
                    tracing::warn!(
                        principal = %session.connection.principal(),
                        %error,
                        "an answer did not fit, so its session was ended"
                    );
                    self.sessions.close(session);
                    return;
                }
            }
        }
    }
}

fn refuse_modern(headers: &Headers<'_>) -> Handled<()> {
    if headers.are_modern() {
        return refuse(
            StatusCode::BAD_REQUEST,
            "this transport is not part of the protocol version that the headers name",
        );
    }
    Ok(())
}

fn session_id(parts: &Parts) -> Option<&str> {
    let query = parts.uri.query()?;
    let mut named = query.split('&').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        (name == SESSION_ID).then_some(value)
    });
    let id = named.next()?;
    named.next().is_none().then_some(id)
}
