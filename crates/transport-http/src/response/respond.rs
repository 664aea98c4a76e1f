//! Replies to responses.

use crate::{
    error_response::{APPLICATION_JSON, PlainResponse},
    headers::Accept,
    limits::idle::Busy,
    response::body::{Body, Events},
    seams::side_routes::SideBody,
};
use futures_util::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header, header::Entry};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use mcp_service::Reply;
use std::cell::Cell;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// The most headers that there is room for in [`SPARE`].
const MOST_SPARE: usize = 48;

thread_local! {
    /// Headers of a request of this thread that was answered, emptied: the next response needs no memory of its own.
    static SPARE: Cell<HeaderMap> = Cell::default();
}

/// Number of headers that most answers have beside hints: those of their type, and those that
/// [`secure`] adds.
const FURTHER: usize = 4;
const NO: HeaderValue = HeaderValue::from_static("no");

/// Keeps the memory of the headers of a request that was answered for the next response.
pub(crate) fn recycle(mut headers: HeaderMap) {
    if headers.capacity() <= MOST_SPARE {
        headers.clear();
        SPARE.set(headers);
    }
}

/// The response for a reply that nothing came before.
pub(crate) fn reply(reply: Reply, accept: Accept) -> Response<Body> {
    let (frame, status, hints) = match reply {
        Reply::One(answer) => (
            Some(answer.frame()),
            StatusCode::from_u16(answer.http_status).unwrap_or(StatusCode::OK),
            answer.hints,
        ),
        reply => (reply.into_frame(), StatusCode::OK, Vec::new()),
    };
    let Some(frame) = frame else {
        // Only notifications, or a request that was cancelled meanwhile.
        return empty(StatusCode::ACCEPTED);
    };
    let mut response = if !accept.json && accept.stream && status == StatusCode::OK {
        event_stream(Body::event(frame))
    } else {
        let mut response = Response::new(Body::json(frame));
        let headers = response.headers_mut();
        *headers = SPARE.take();
        headers.reserve(hints.len() + FURTHER);
        headers.insert(header::CONTENT_TYPE, APPLICATION_JSON);
        response
    };
    for (name, value) in hints {
        // A hint is a service's; what does not fit into a header is left out.
        match (name_of(name), HeaderValue::from_maybe_shared(value)) {
            (Some(name), Ok(value)) => {
                response.headers_mut().append(name, value);
            }
            _ => tracing::debug!(name, "a hint does not fit into a header"),
        }
    }
    with_status(status, response)
}

/// Name of a hint as a header. Names that every call has need not be parsed first.
fn name_of(hint: &'static str) -> Option<HeaderName> {
    const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
    const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
    const BUDGET: HeaderName = HeaderName::from_static("x-owlclaw-budget-remaining");
    match hint {
        "ratelimit" => Some(RATE_LIMIT),
        "ratelimit-policy" => Some(RATE_LIMIT_POLICY),
        "x-owlclaw-budget-remaining" => Some(BUDGET),
        other => HeaderName::from_bytes(other.as_bytes()).ok(),
    }
}

/// The response that streams `events`.
pub(crate) fn events(events: Box<Events>) -> Response<Body> {
    event_stream(Body::Events(events))
}

pub(crate) fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, EVENT_STREAM);
    headers.insert(header::CACHE_CONTROL, NO_CACHE);
    headers.insert(X_ACCEL_BUFFERING, NO);
    response
}

/// A response whose body is at hand, as one of ours.
pub(crate) fn plain(response: PlainResponse) -> Response<Body> {
    response.map(|bytes| {
        if bytes.is_empty() {
            Body::Empty
        } else {
            Body::Whole(bytes)
        }
    })
}

/// The response of a side route. What streams keeps its connection `busy`.
pub(crate) fn side(response: Response<SideBody>, busy: Busy) -> Response<Body> {
    response.map(|body| match body {
        SideBody::Whole(bytes) if bytes.is_empty() => Body::Empty,
        SideBody::Whole(bytes) => Body::Whole(bytes),
        SideBody::Stream(pieces) => {
            let frames = pieces.map(move |piece| {
                let _ = &busy;
                Ok(Frame::data(piece))
            });
            Body::Streamed(StreamBody::new(frames).boxed_unsync())
        }
    })
}

/// A response without body.
pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    with_status(status, Response::new(Body::Empty))
}

/// Adds the headers that every response has, for the browsers among clients.
pub(crate) fn secure(response: &mut Response<Body>, strict: Option<&HeaderValue>) {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
    if let Entry::Vacant(entry) = headers.entry(header::CACHE_CONTROL) {
        entry.insert(NO_STORE);
    }
    if let Some(strict) = strict {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, strict.clone());
    }
}

fn with_status(status: StatusCode, mut response: Response<Body>) -> Response<Body> {
    *response.status_mut() = status;
    response
}
