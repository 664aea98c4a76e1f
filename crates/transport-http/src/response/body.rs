//! Bodies of responses, whole or streamed.

use crate::{
    limits::{idle::Busy, stats::Stream},
    session::{
        expiry::Expiry,
        in_flight::{Event, InFlight, Resumption, answers},
        replay::{self, EventId, Reader},
        resumable::Resumable,
        sessions::Streaming,
    },
};
use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame as HttpFrame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use jsonrpc_core::Frame;
use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt::Write,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep};

/// The body of a response.
pub(crate) enum Body {
    /// No more bytes.
    Empty,
    /// One piece.
    Whole(Bytes),
    /// Several pieces, sent from where they lie: the length is known, nothing is copied.
    Pieces(VecDeque<Bytes>),
    /// Events, as they come.
    Events(Box<Events>),
    /// The stream of the old transport, or of a side route.
    Streamed(UnsyncBoxBody<Bytes, Infallible>),
}

impl Body {
    /// One message as it is.
    pub(crate) fn json(frame: Frame) -> Self {
        let mut pieces = frame.pieces();
        match (pieces.next(), pieces.next()) {
            (None, _) => Self::Empty,
            (Some(whole), None) => Self::Whole(whole),
            (Some(first), Some(second)) => {
                Self::Pieces([first, second].into_iter().chain(pieces).collect())
            }
        }
    }

    /// One message as the only event of a stream.
    pub(crate) fn event(frame: Frame) -> Self {
        Self::Pieces(event(frame))
    }

    /// Keeps its connection busy until what is large of it is written. Nothing is held by the body
    /// itself: it is gone when its last piece waits to be written.
    pub(crate) fn keep_busy(&mut self, begin: impl Fn() -> Busy) {
        let pieces = match self {
            Self::Whole(whole) => std::slice::from_mut(whole),
            Self::Pieces(pieces) => pieces.make_contiguous(),
            Self::Empty | Self::Events(_) | Self::Streamed(_) => return,
        };
        for piece in pieces {
            // Less than that the system takes at once.
            if CHUNK <= piece.len() {
                *piece = Bytes::from_owner(Unwritten {
                    bytes: std::mem::take(piece),
                    _busy: begin(),
                });
            }
        }
    }
}

/// Bytes that keep a connection busy until they are written.
struct Unwritten {
    bytes: Bytes,
    _busy: Busy,
}

impl AsRef<[u8]> for Unwritten {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<HttpFrame<Bytes>, Infallible>>> {
        let next = match &mut *self {
            Self::Empty => None,
            Self::Whole(_) => match std::mem::replace(&mut *self, Self::Empty) {
                Self::Whole(bytes) => Some(bytes),
                _ => None,
            },
            Self::Pieces(pieces) => pieces.pop_front(),
            Self::Events(events) => match events.poll_bytes(cx) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            },
            Self::Streamed(body) => return Pin::new(body).poll_frame(cx),
        };
        Poll::Ready(next.map(|bytes| Ok(HttpFrame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(_) => false,
            Self::Pieces(pieces) => pieces.is_empty(),
            Self::Events(events) => events.source.is_none() && events.ready.is_empty(),
            Self::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = match self {
            Self::Empty => 0,
            Self::Whole(bytes) => bytes.len(),
            Self::Pieces(pieces) => pieces.iter().map(Bytes::len).sum(),
            Self::Events(_) | Self::Streamed(_) => return SizeHint::default(),
        };
        SizeHint::with_exact(length as u64)
    }
}

/// A stream of events. Dropped when the client hangs up, and with it what feeds it.
pub(crate) struct Events {
    /// Pieces ready to be sent.
    ready: VecDeque<Bytes>,
    /// Source of further events; `None` at the end.
    source: Option<Source>,
    /// Expiry of the proof of identity with which it was opened.
    expiry: Expiry,
    alarm: Pin<Box<Sleep>>,
    keep_alive: Duration,
    /// True if an event was sent since the alarm was set. The alarm is not set anew for each event.
    spoken: bool,
    _busy: Busy,
    counted: Option<Stream>,
}

#[expect(clippy::large_enum_variant, reason = "most streams are requests")]
enum Source {
    /// A request: what is said about it, and its answer.
    Request(InFlight),
    /// A request whose client may come back for it on another connection.
    Resumable(Arc<Resumable>),
    /// A legacy session's own stream: what it is owed, and what comes.
    Session {
        streaming: Streaming,
        owed: VecDeque<(EventId, Bytes)>,
        /// True if events have names.
        named: bool,
    },
    /// The rest of a request's stream.
    Rest(Reader),
}

/// Bytes that are gathered before they are handed to the connection.
const CHUNK: usize = 64 * 1024;

/// Pieces from here on are not copied into a chunk.
const LARGE: usize = 8 * 1024;

impl Events {
    /// A request that begins to speak, with `first` if there is something to say already.
    pub(crate) fn of_request(
        first: Option<Event>,
        running: InFlight,
        keep_alive: Duration,
        busy: Busy,
    ) -> Box<Self> {
        let mut running = running;
        let mut out = BytesMut::with_capacity(256);
        let mut ready = VecDeque::new();
        if let Some((id, retry)) = running.begin_stream() {
            put_beginning(id, retry, &mut out);
        }
        let goes_on = first.is_none_or(|first| put(&running, first, &mut out, &mut ready));
        if !out.is_empty() {
            ready.push_back(out.freeze());
        }
        let source = if running.is_recorded() {
            Source::Resumable(Resumable::new(running))
        } else {
            Source::Request(running)
        };
        let mut events = Self::new(source, keep_alive, busy);
        events.ready = ready;
        if !goes_on {
            events.source = None;
        }
        events
    }

    /// A legacy session's own stream. `resumption` says that events have names, and `after` where
    /// the client comes back from.
    pub(crate) fn of_session(
        streaming: Streaming,
        resumption: Option<&Resumption>,
        after: Option<EventId>,
        keep_alive: Duration,
        busy: Busy,
    ) -> Box<Self> {
        let replay = Arc::clone(&streaming.session.replay);
        let source = Source::Session {
            streaming,
            owed: after.map(|id| replay.after(id)).unwrap_or_default(),
            named: resumption.is_some(),
        };
        let mut events = Self::new(source, keep_alive, busy);
        let beginning = after.unwrap_or_else(|| replay.own_position());
        events.begin(beginning, resumption);
        events
    }

    /// The rest of a request's stream, which a client comes back for.
    pub(crate) fn of_rest(
        reader: Reader,
        resumption: &Resumption,
        keep_alive: Duration,
        busy: Busy,
    ) -> Box<Self> {
        let beginning = reader.position();
        let mut events = Self::new(Source::Rest(reader), keep_alive, busy);
        events.begin(beginning, Some(resumption));
        events
    }

    /// Ends the stream at `expiry`, if it has not ended before. Events that are not sent by then
    /// wait for a client that comes back.
    #[must_use]
    pub(crate) fn until(mut self: Box<Self>, expiry: Expiry) -> Box<Self> {
        self.expiry = expiry;
        self
    }

    /// Stats it for as long as it is open.
    pub(crate) fn count(&mut self, stream: Stream) {
        self.counted = Some(stream);
    }

    fn begin(&mut self, beginning: EventId, resumption: Option<&Resumption>) {
        if let Some(retry) = resumption.and_then(|it| it.retry) {
            let mut out = BytesMut::new();
            put_beginning(beginning, retry, &mut out);
            self.ready.push_back(out.freeze());
        }
    }

    fn new(source: Source, keep_alive: Duration, busy: Busy) -> Box<Self> {
        Box::new(Self {
            ready: VecDeque::new(),
            source: Some(source),
            expiry: Expiry::never(),
            alarm: Box::pin(tokio::time::sleep(keep_alive)),
            keep_alive,
            spoken: true,
            _busy: busy,
            counted: None,
        })
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ready.is_empty() {
            // First, since there may always be something to say.
            if self.expiry.is_over(cx) {
                self.end();
            }
            self.gather(cx);
        }
        if let Some(bytes) = self.ready.pop_front() {
            self.spoken = true;
            return Poll::Ready(Some(bytes));
        }
        if self.source.is_none() {
            return Poll::Ready(None);
        }
        while self.alarm.as_mut().poll(cx).is_ready() {
            self.alarm.as_mut().reset(Instant::now() + self.keep_alive);
            if !std::mem::take(&mut self.spoken) {
                return Poll::Ready(Some(COMMENT));
            }
        }
        Poll::Pending
    }

    /// Writes what there is, so that much that comes at once goes out at once.
    fn gather(&mut self, cx: &mut Context<'_>) {
        let (mut out, mut pieces) = (BytesMut::new(), VecDeque::new());
        let end = match &mut self.source {
            None => return,
            Some(Source::Request(running)) => gather_request(running, cx, &mut out, &mut pieces),
            Some(Source::Resumable(connected)) => {
                let waker = cx.waker().clone();
                let gather =
                    |running: &mut InFlight| gather_request(running, cx, &mut out, &mut pieces);
                match connected.with(waker, gather) {
                    Some(end) => end,
                    // What was said meanwhile is read elsewhere.
                    None => return self.end(),
                }
            }
            // Its client reads elsewhere.
            Some(Source::Session { streaming, .. }) if !streaming.is_current() => {
                return self.end();
            }
            Some(Source::Session {
                streaming,
                owed,
                named,
            }) => gather_events(&mut out, &mut pieces, || {
                if let Some((id, frame)) = owed.pop_front() {
                    return Poll::Ready(Some((Some(id), frame)));
                }
                let session = &streaming.session;
                session.connection.outbox().poll_next(cx).map(|frame| {
                    let frame = frame?;
                    let record = || session.replay.record(replay::OWN_STREAM, frame.clone());
                    Some((named.then(record), frame))
                })
            }),
            Some(Source::Rest(reader)) => gather_events(&mut out, &mut pieces, || {
                let next = reader.poll_next(cx);
                next.map(|event| event.map(|(id, frame)| (Some(id), frame)))
            }),
        };
        if end.is_ready() {
            self.end();
        }
        if !out.is_empty() {
            pieces.push_back(out.freeze());
        }
        self.ready = pieces;
    }

    fn end(&mut self) {
        self.source = None;
    }
}

/// Lets a request go on, and writes what it has to say. Ready at the end of its stream.
fn gather_request(
    running: &mut InFlight,
    cx: &mut Context<'_>,
    out: &mut BytesMut,
    pieces: &mut VecDeque<Bytes>,
) -> Poll<()> {
    running.advance(cx);
    while out.len() < CHUNK {
        match running.poll_event(cx) {
            Poll::Ready(Some(event)) => {
                if !put(running, event, out, pieces) {
                    return Poll::Ready(());
                }
            }
            Poll::Ready(None) => return Poll::Ready(()),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Pending
}

/// Writes messages as they are. Ready at the end of them.
fn gather_events(
    out: &mut BytesMut,
    pieces: &mut VecDeque<Bytes>,
    mut next: impl FnMut() -> Poll<Option<(Option<EventId>, Bytes)>>,
) -> Poll<()> {
    while out.len() < CHUNK {
        match next() {
            Poll::Ready(Some((id, frame))) => put_event(id, Frame::whole(frame), out, pieces),
            Poll::Ready(None) => return Poll::Ready(()),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Pending
}

/// Writes what a request has to say; whether its stream goes on here.
fn put(running: &InFlight, event: Event, out: &mut BytesMut, pieces: &mut VecDeque<Bytes>) -> bool {
    match event {
        Event::Notification(frame) => {
            let id = running.record(&frame);
            put_event(id, Frame::whole(frame), out, pieces);
        }
        Event::Reply(reply) => {
            for answer in answers(reply) {
                let (mut id, mut frame) = (None, answer.frame());
                if running.is_recorded() {
                    let whole = frame.into_bytes();
                    id = running.record_answer(&answer, &whole);
                    frame = Frame::whole(whole);
                }
                put_event(id, frame, out, pieces);
            }
        }
        // Dropped here, it goes on where its client can come back for it.
        Event::Interrupted => return false,
    }
    true
}

/// Appends the beginning of a stream whose client may have to come back: the place to continue at,
/// and the time after which to return.
fn put_beginning(id: EventId, retry: Duration, out: &mut BytesMut) {
    // Writing to a buffer that grows cannot fail.
    let _ = write!(out, "id: {id}\nretry: {}\ndata:\n\n", retry.as_millis());
}

/// Sent when there is nothing else to send; clients ignore it.
pub(crate) const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// One message as one event.
pub(crate) fn event(frame: Frame) -> VecDeque<Bytes> {
    let mut pieces = VecDeque::new();
    let mut out = BytesMut::with_capacity(frame.len().min(CHUNK) + 32);
    put_event(None, frame, &mut out, &mut pieces);
    pieces.push_back(out.freeze());
    pieces
}

/// Writes one event to `out`; a large piece goes to `pieces` as it is, after what `out` held.
fn put_event(id: Option<EventId>, frame: Frame, out: &mut BytesMut, pieces: &mut VecDeque<Bytes>) {
    if let Some(id) = id {
        // As above.
        let _ = writeln!(out, "id: {id}");
    }
    out.put_slice(b"event: message\ndata: ");
    for piece in frame.pieces() {
        if memchr::memchr2(b'\n', b'\r', &piece).is_some() {
            // A field ends with its line. In JSON, line ends are only ever space between tokens:
            // inside of strings they are escaped.
            let blank = |byte: &u8| {
                if matches!(byte, b'\n' | b'\r') {
                    b' '
                } else {
                    *byte
                }
            };
            out.extend(piece.iter().map(blank));
        } else if LARGE <= piece.len() {
            pieces.push_back(out.split().freeze());
            pieces.push_back(piece);
        } else {
            out.put_slice(&piece);
        }
    }
    out.put_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonrpc_core::{RawJson, Response};

    fn text(mut body: Body) -> (String, usize) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let (mut text, mut pieces) = (String::new(), 0);
        let promised = body.size_hint().exact().unwrap();
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut cx) {
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
            pieces += 1;
        }
        assert!(body.is_end_stream());
        assert_eq!(promised, text.len() as u64);
        (text, pieces)
    }

    fn response(result: &str) -> Frame {
        Frame::response(&Response {
            id: Some(7.into()),
            outcome: Ok(RawJson::from_bytes(result.to_owned().into()).unwrap()),
        })
    }

    #[test]
    fn a_message_is_one_event_whatever_space_is_in_it() {
        let (event, _) = text(Body::event(response("{\n\"a\":\r\n \"b\\n\"}")));
        assert_eq!(
            event,
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{ \"a\":   \"b\\n\"}}\n\n"
        );
    }

    #[test]
    fn a_connection_is_busy_until_what_is_large_is_written() {
        let long = format!("\"{}\"", "x".repeat(100_000));
        for kind in [Body::json, Body::event] {
            let activity = Arc::new(crate::limits::idle::Activity::default());
            let mut seen = 0;
            let mut body = kind(response(&long));
            body.keep_busy(|| activity.begin());
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let mut unwritten = Vec::new();
            while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut cx) {
                unwritten.push(frame.into_data().unwrap());
            }
            drop(body);
            activity.has_stalled(&mut seen);
            assert!(!activity.has_stalled(&mut seen));
            unwritten.clear();
            activity.has_stalled(&mut seen);
            assert!(activity.has_stalled(&mut seen));
        }
    }

    #[test]
    fn what_is_large_is_not_copied() {
        let long = format!("\"{}\"", "x".repeat(100_000));
        let whole = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{long}}}");
        assert_eq!(text(Body::json(response(&long))), (whole.clone(), 3));
        let (event, pieces) = text(Body::event(response(&long)));
        assert_eq!(event, format!("event: message\ndata: {whole}\n\n"));
        assert_eq!(pieces, 3);
        assert_eq!(text(Body::json(response("1"))).1, 1);
    }
}
