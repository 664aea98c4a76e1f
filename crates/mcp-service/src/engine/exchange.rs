//! Exchanges and their replies.

use crate::{session::connection::InFlight, told::Told};
use bytes::{Bytes, BytesMut};
use jsonrpc_core::{ErrorObject, Frame, Id, Message, Response, encode_batch, encode_response};
use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// Progress of a frame so far.
#[derive(Debug)]
pub enum Accepted {
    /// All there is to say, or nothing.
    Done(Reply),
    /// Work that the caller must poll; dropping it cancels the requests of the frame.
    Pending(Exchange),
}

/// Requests being handled: resolves to what is to be sent.
pub struct Exchange {
    handled: Option<Handled>,
    /// Registration of the request of a connection, by which it can be cancelled.
    registered: Option<(Arc<Told>, InFlight)>,
}

/// Requests being handled, however they are.
pub(crate) type Handled = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// Reply to a frame.
#[derive(Clone, Debug, Default)]
pub enum Reply {
    /// No reply: there were only notifications, or every request was cancelled.
    #[default]
    Nothing,
    /// The answer to one request.
    One(Answer),
    /// The answers to a batch; never empty.
    Batch(Vec<Answer>),
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Response to be sent.
    pub response: Response,
    /// The same as it is sent, where it was encoded at once.
    pub(crate) encoded: Option<Bytes>,
    /// The status it has on HTTP, where it is the only answer to a POST.
    pub http_status: u16,
    /// Hints that services have left for the transport to put beside it; on HTTP, headers.
    pub hints: Vec<(&'static str, Bytes)>,
}

impl Exchange {
    pub(crate) fn new(handled: Handled) -> Self {
        Self {
            handled: Some(handled),
            registered: None,
        }
    }

    /// One request of a connection, which is cancelled by `told`.
    pub(crate) fn registered(handled: Handled, told: Arc<Told>, in_flight: InFlight) -> Self {
        Self {
            handled: Some(handled),
            registered: Some((told, in_flight)),
        }
    }
}

impl Future for Exchange {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let this = &mut *self;
        // Polled again after its end, it has nothing more to say.
        let Some(handled) = &mut this.handled else {
            return Poll::Ready(Reply::Nothing);
        };
        let reply = match &this.registered {
            // Nothing is sent after a cancellation.
            Some((told, _)) => told
                .poll_unless_aborted(handled, cx)
                .map(Option::unwrap_or_default),
            None => handled.as_mut().poll(cx),
        };
        if reply.is_ready() {
            // What is left of it ends before its id is free again.
            this.handled = None;
            this.registered = None;
        }
        reply
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange")
    }
}

impl Answer {
    /// An error, with the status it has on HTTP.
    pub fn error(id: Option<Id>, error: ErrorObject, http_status: u16) -> Self {
        Self {
            response: Response {
                id,
                outcome: Err(error),
            },
            encoded: None,
            http_status,
            hints: Vec::new(),
        }
    }

    /// The frame to send.
    pub fn frame(&self) -> Frame {
        match &self.encoded {
            Some(encoded) => Frame::whole(encoded.clone()),
            None => Frame::response(&self.response),
        }
    }

    /// Appends the frame to `out`.
    pub fn write_to(&self, out: &mut BytesMut) {
        match &self.encoded {
            Some(encoded) => out.extend_from_slice(encoded),
            None => encode_response(&self.response, out),
        }
    }
}

impl From<Answer> for Accepted {
    fn from(answer: Answer) -> Self {
        Self::Done(Reply::One(answer))
    }
}

impl Reply {
    /// The frame to send, if there is something to send.
    pub fn into_frame(self) -> Option<Frame> {
        match self {
            Self::Nothing => None,
            Self::One(answer) => Some(answer.frame()),
            Self::Batch(answers) => {
                let mut out = BytesMut::new();
                let responses = answers.into_iter().map(|it| Message::Response(it.response));
                encode_batch(responses, &mut out);
                Some(Frame::whole(out.freeze()))
            }
        }
    }
}
