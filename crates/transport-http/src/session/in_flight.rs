//! An in-flight request whose response, JSON or a stream, is not decided yet.

use crate::session::{
    detached::{DetachedRequests, Work},
    replay::{EventId, Replay, Writer},
    resumable::Resumable,
    sessions::Session,
};
use bytes::Bytes;
use jsonrpc_core::{ErrorCode, ErrorObject, Frame, RawJson, Response};
use mcp_protocol::ProtocolVersion;
use mcp_service::{Answer, Exchange, Outbox, Reply};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;
use std::{
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// A request being handled, what is said about it meanwhile, and what happens to it when its client
/// hangs up.
pub(crate) struct InFlight {
    work: Option<Work>,
    outbox: Option<Outbox>,
    reply: Option<Reply>,
    /// Place for the rest of a legacy request: for it, hanging up is no cancellation. A modern
    /// request has none; dropping its exchange is its cancellation.
    detached: Option<Arc<DetachedRequests>>,
    /// Means by which its client can come back for the rest; `None` where it cannot.
    resumption: Option<Resumption>,
    /// The stream it has, if it can be resumed and has one.
    writer: Option<Writer>,
}

/// Options for resuming the streams of a legacy session.
#[derive(Clone)]
pub(crate) struct Resumption {
    replay: Arc<Replay>,
    /// Time after which a client is to come back, if its revision knows that streams may end early.
    /// Before, events without data were not foreseen, and neither was a server that hangs up.
    pub(crate) retry: Option<Duration>,
}

/// Beginning of a request's response.
#[derive(Debug)]
pub(crate) enum First {
    /// Event to send.
    Event(Event),
    /// No event, for so long that the client is given a way back.
    Silence,
    /// No event, and none will come.
    End,
}

/// Event to send.
#[derive(Debug)]
pub(crate) enum Event {
    /// A notification, encoded.
    Notification(Bytes),
    /// The answer; the last there is.
    Reply(Reply),
    /// The client is to come back for the rest.
    Interrupted,
}

impl Resumption {
    /// Options for resuming the streams of `session`; `None` where revisions have no resumption,
    /// and where no events are kept.
    pub(crate) fn of(session: &Session, retry: Duration) -> Option<Self> {
        let version = session.connection.session().version();
        let is_resumable = ProtocolVersion::V2025_03_26 <= version && session.replay.has_room();
        is_resumable.then(|| Self {
            replay: Arc::clone(&session.replay),
            retry: (ProtocolVersion::V2025_11_25 <= version).then_some(retry),
        })
    }
}

impl InFlight {
    pub(crate) fn new(
        exchange: Exchange,
        outbox: Option<Outbox>,
        detached: Option<Arc<DetachedRequests>>,
    ) -> Self {
        Self {
            work: Some(Work::Here(exchange)),
            outbox,
            reply: None,
            detached,
            resumption: None,
            writer: None,
        }
    }

    /// The same, of a client that can come back.
    pub(crate) fn with_resumption(mut self, resumption: Option<Resumption>) -> Self {
        self.resumption = resumption;
        self
    }

    /// Lets the request go on whether its client reads or not, which a connection that sends a stream
    /// does not: what waits to be sent is bounded, and only that waits.
    pub(crate) fn drive(&mut self, detached: &DetachedRequests) {
        self.work = self.work.take().map(|work| work.drive(detached));
    }

    /// Begins its stream. What the stream begins with for a client that may have to come back: where
    /// from, and how soon.
    pub(crate) fn begin_stream(&mut self) -> Option<(EventId, Duration)> {
        let resumption = self.resumption.as_ref()?;
        let writer = self.writer.insert(resumption.replay.begin());
        Some((writer.beginning(), resumption.retry?))
    }

    /// Keeps what is sent, if it can be asked for again, and gives it a name.
    pub(crate) fn record(&self, frame: &Bytes) -> Option<EventId> {
        Some(self.writer.as_ref()?.record(frame.clone()))
    }

    /// The same of an answer, whose encoding is `frame`.
    pub(crate) fn record_answer(&self, answer: &Answer, frame: &Bytes) -> Option<EventId> {
        let instead = || not_kept(&answer.response);
        Some(self.writer.as_ref()?.record_answer(frame.clone(), instead))
    }

    /// Lets who comes back for its stream take it over from `connected`.
    pub(crate) fn carried_by(&self, connected: &Arc<Resumable>) {
        if let Some(writer) = &self.writer {
            writer.carried_by(connected);
        }
    }

    /// Returns true if its events are kept.
    pub(crate) fn is_recorded(&self) -> bool {
        self.writer.is_some()
    }

    /// Goes on without a client, for one that may come back.
    async fn carry_on(mut self) {
        let finished = poll_fn(|cx| {
            self.advance(cx);
            loop {
                match self.poll_event(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Ready(Some(Event::Notification(frame))) => {
                        self.record(&frame);
                    }
                    Poll::Ready(Some(Event::Reply(reply))) => {
                        for answer in answers(reply) {
                            self.record_answer(&answer, &answer.frame().into_bytes());
                        }
                    }
                    Poll::Ready(Some(Event::Interrupted)) => {}
                }
            }
        });
        finished.await;
    }

    /// Lets the request go on, if it is not finished.
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) {
        if let Some(work) = &mut self.work
            && let Poll::Ready(reply) = Pin::new(work).poll(cx)
        {
            self.work = None;
            self.reply = Some(reply);
        }
    }

    /// Returns true if its client comes back for the rest if its stream ends early.
    fn can_be_interrupted(&self) -> bool {
        let retry = self.resumption.as_ref().and_then(|it| it.retry);
        retry.is_some() && self.detached.is_some() && self.outbox.is_some()
    }

    /// Lets the request go on until there is something to send, or until its client has waited for
    /// `patience` and would come back.
    pub(crate) async fn first(&mut self, patience: Duration) -> First {
        let would_come_back = self.can_be_interrupted();
        let mut first = pin!(poll_fn(|cx| {
            self.advance(cx);
            self.poll_event(cx)
        }));
        let first = if would_come_back {
            // Only what is not answered at once costs a timer.
            match poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx))).await {
                Poll::Ready(first) => first,
                Poll::Pending => match tokio::time::timeout(patience, first).await {
                    Ok(first) => first,
                    Err(_silent) => return First::Silence,
                },
            }
        } else {
            first.await
        };
        first.map_or(First::End, First::Event)
    }

    /// Next event after [`InFlight::advance`]; `None` at the end.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Some(outbox) = &self.outbox {
            let queued = if self.work.is_some() {
                outbox.poll_next(cx)
            } else {
                Poll::Ready(outbox.try_next())
            };
            if let Poll::Ready(Some(frame)) = queued {
                return Poll::Ready(Some(Event::Notification(frame)));
            }
        }
        if self.work.is_some() {
            if self.can_be_interrupted()
                && let Some(outbox) = &self.outbox
                && outbox.take_interrupt()
            {
                return Poll::Ready(Some(Event::Interrupted));
            }
            return Poll::Pending;
        }
        Poll::Ready(self.reply.take().map(Event::Reply))
    }
}

/// The answers of a reply, of which a stream has each by itself.
pub(crate) fn answers(reply: Reply) -> impl Iterator<Item = Answer> {
    let (one, batch) = match reply {
        Reply::Nothing => (None, Vec::new()),
        Reply::One(answer) => (Some(answer), Vec::new()),
        Reply::Batch(answers) => (None, answers),
    };
    one.into_iter().chain(batch)
}

const NOT_KEPT: &str = "the request was carried out, and its answer was too large to be kept until its client came \
                        back: look for a call in the ledger before calling again";

/// The answer that is kept instead of one that is too large.
fn not_kept(response: &Response) -> Bytes {
    #[derive(Deserialize)]
    struct Called {
        #[serde(rename = "content")]
        _content: Vec<IgnoredAny>,
    }
    let result = response.outcome.as_ref();
    let is_of_call = result.is_ok_and(|it| it.parse::<Called>().is_ok());
    let data = json!({
        "code": ErrorCode::INTERNAL_ERROR.0, "details": NOT_KEPT, "reason": "answer_not_kept", "retryable": false,
    });
    let outcome = if is_of_call {
        let result = json!({
            "content": [{ "type": "text", "text": NOT_KEPT }],
            "isError": true,
            "_meta": { "io.owlclaw/error": data },
        });
        Ok(RawJson::from_serialized(result.to_string().into_bytes()))
    } else {
        Err(ErrorObject::new(ErrorCode::INTERNAL_ERROR, NOT_KEPT).with(&data))
    };
    let id = response.id.clone();
    Frame::response(&Response { id, outcome }).into_bytes()
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.writer.is_some()
            && (self.work.is_some() || self.reply.is_some())
            && let Some(detached) = self.detached.take()
        {
            let rest = Self {
                work: self.work.take(),
                outbox: self.outbox.take(),
                reply: self.reply.take(),
                detached: None,
                resumption: None,
                writer: self.writer.take(),
            };
            detached.carry_on(rest.carry_on());
            return;
        }
        // Whoever still has something to say, or to ask, learns that nobody listens.
        if let Some(outbox) = &self.outbox {
            outbox.close();
        }
        if let (Some(work), Some(detached)) = (self.work.take(), &self.detached) {
            work.carry_on(detached);
        }
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight")
            .field("finished", &self.work.is_none())
            .finish_non_exhaustive()
    }
}
