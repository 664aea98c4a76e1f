use crate::lines::{Line, Lines};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::{StreamExt, stream::FuturesUnordered};
use jsonrpc_core::DecodeError;
use mcp_service::{
    Accepted, Answer, Connection, Engine, Exchange, LAST_ANSWERS, McpService, Outbox, Principal,
    Reply, TransportKind,
};
use std::{
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    time::{Instant, Sleep},
};

/// How to serve a pair of byte streams.
#[derive(Clone, Copy, Debug)]
pub struct StdioOptions {
    /// How long requests may go on after the input has ended or the server was told to stop. R2.7
    /// gives the process five seconds in all.
    pub drain: Duration,
    /// How many bytes may wait for the peer to read them. Beyond that nothing more is read from it,
    /// and what it asked for before stands still: one answer at most is made that goes beyond.
    pub max_unsent: usize,
    /// Whether a last line counts that has no end. A peer that may have been cut off in the middle of a
    /// line must know that it does not.
    pub accept_unfinished: bool,
}

impl Default for StdioOptions {
    /// Four seconds, 4 MiB, and the last line counts.
    fn default() -> Self {
        Self {
            drain: Duration::from_secs(4),
            max_unsent: 4 * 1024 * 1024,
            accept_unfinished: true,
        }
    }
}

/// Why serving has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer has closed its end, and everything it asked is answered.
    InputEnded,
    /// The server was told to stop, and everything asked before is answered.
    Stopped,
    /// One of the two, and some requests were not done in time.
    DrainTimedOut {
        /// How many were given up.
        given_up: usize,
    },
}

/// The streams failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Answers cannot be delivered any more.
    #[error("the output cannot be written")]
    Output(#[source] io::Error),
}

/// Serves one peer until its input ends or `stop` resolves.
///
/// # Errors
///
/// [`ServeError`] when answers cannot be delivered. An input that fails counts as ended.
///
/// # Cancel safety
///
/// Dropping the future cancels every request in flight.
pub async fn serve<S>(
    engine: &Arc<Engine<S>>,
    principal: Principal,
    input: impl AsyncRead,
    output: impl AsyncWrite,
    stop: impl Future<Output = ()>,
    options: StdioOptions,
) -> Result<End, ServeError>
where
    S: McpService,
{
    let outbox = Outbox::default();
    let connection = Connection::new(principal, TransportKind::Stdio, None, outbox.clone());
    let mut peer = Peer {
        engine,
        connection: &connection,
        outbox,
        lines: Lines::new(engine.limits().frames.max_frame),
        exchanges: FuturesUnordered::new(),
        unsent: BytesMut::new(),
        max_unsent: options.max_unsent,
        accept_unfinished: options.accept_unfinished,
    };
    let (mut input, mut output, mut stop) = (pin!(input), pin!(output), pin!(stop));
    let mut draining: Option<(End, Pin<Box<Sleep>>)> = None;
    let mut has_given_up = false;
    let end = std::future::poll_fn(|cx| {
        loop {
            let mut idle = !peer.poll_exchanges(cx);
            let held_back = peer.is_held_back();
            peer.poll_outbox(cx);
            if draining.is_none() {
                let ended = if stop.as_mut().poll(cx).is_ready() {
                    Some(End::Stopped)
                } else {
                    match peer.poll_input(cx, input.as_mut()) {
                        Poll::Pending => None,
                        Poll::Ready(more) => {
                            idle = false;
                            (!more).then_some(End::InputEnded)
                        }
                    }
                };
                if let Some(end) = ended {
                    idle = false;
                    connection.wind_down();
                    draining = Some((end, Box::pin(tokio::time::sleep(options.drain))));
                }
            }
            let held_back = held_back || peer.is_held_back();
            match peer.poll_output(cx, output.as_mut()) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(ServeError::Output(error))),
                Poll::Ready(Ok(())) if peer.is_done() => {
                    if let Some((end, _)) = &draining {
                        return Poll::Ready(Ok(*end));
                    }
                }
                _ => {}
            }
            if let Some((_, deadline)) = &mut draining
                && deadline.as_mut().poll(cx).is_ready()
            {
                if !std::mem::replace(&mut has_given_up, true) {
                    connection.give_up();
                    deadline.as_mut().reset(Instant::now() + LAST_ANSWERS);
                    continue;
                }
                let given_up = peer.exchanges.len();
                return Poll::Ready(Ok(End::DrainTimedOut { given_up }));
            }
            // What was not polled for lack of room has registered no waker: try again with room.
            if held_back && !peer.is_held_back() {
                idle = false;
            }
            if idle {
                return Poll::Pending;
            }
        }
    })
    .await;
    connection.close();
    end
}

struct Peer<'a, S> {
    engine: &'a Arc<Engine<S>>,
    connection: &'a Arc<Connection>,
    outbox: Outbox,
    lines: Lines,
    exchanges: FuturesUnordered<Exchange>,
    unsent: BytesMut,
    max_unsent: usize,
    accept_unfinished: bool,
}

impl<S> Peer<'_, S>
where
    S: McpService,
{
    /// Takes what has become ready; whether there was something.
    fn poll_exchanges(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while !self.is_held_back()
            && let Poll::Ready(Some(reply)) = self.exchanges.poll_next_unpin(cx)
        {
            self.put_reply(reply);
            any = true;
        }
        any
    }

    fn poll_outbox(&mut self, cx: &mut Context<'_>) {
        // Beyond the bound they wait in the outbox, which has one of its own.
        while !self.is_held_back()
            && let Poll::Ready(Some(frame)) = self.outbox.poll_next(cx)
        {
            put_line(&frame, &mut self.unsent);
        }
    }

    /// Takes every whole line, and reads once if there is none left; whether there can be more.
    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        mut input: Pin<&mut impl AsyncRead>,
    ) -> Poll<bool> {
        // One read may bring hundreds of lines, and each of them may be answered at length.
        self.accept_lines(cx);
        if self.is_held_back() {
            return Poll::Pending; // the output's waker will do
        }
        let read = {
            let mut read = pin!(input.read_buf(self.lines.room()));
            match read.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(read) => read,
            }
        };
        let more = match read {
            Ok(count) => 0 < count,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the input cannot be read"
                );
                false
            }
        };
        self.accept_lines(cx);
        if !more
            && self.accept_unfinished
            && let Some(line) = self.lines.rest()
        {
            self.accept(line, cx);
        }
        Poll::Ready(more)
    }

    fn accept_lines(&mut self, cx: &mut Context<'_>) {
        while !self.is_held_back()
            && let Some(line) = self.lines.next()
        {
            self.accept(line, cx);
        }
    }

    fn accept(&mut self, line: Line, cx: &mut Context<'_>) {
        let frame: Bytes = match line {
            Line::Whole(frame) => frame,
            Line::TooLong(actual) => {
                let max = self.engine.limits().frames.max_frame;
                let error = DecodeError::TooLong { max, actual }.to_error_object();
                return self.put_reply(Reply::One(Answer::error(None, error, 400)));
            }
        };
        match self.engine.accept(self.connection, &frame, &self.outbox) {
            Accepted::Done(reply) => self.put_reply(reply),
            Accepted::Pending(mut exchange) => match Pin::new(&mut exchange).poll(cx) {
                Poll::Ready(reply) => self.put_reply(reply),
                Poll::Pending => self.exchanges.push(exchange),
            },
        }
    }

    /// Puts an answer behind what was said about its request before.
    fn put_reply(&mut self, reply: Reply) {
        while let Some(frame) = self.outbox.try_next() {
            put_line(&frame, &mut self.unsent);
        }
        if let Some(frame) = reply.into_frame() {
            for piece in frame.pieces() {
                put_text(&piece, &mut self.unsent);
            }
            self.unsent.put_u8(b'\n');
        }
    }

    fn poll_output(
        &mut self,
        cx: &mut Context<'_>,
        mut output: Pin<&mut impl AsyncWrite>,
    ) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match output.as_mut().poll_write(cx, &self.unsent) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => self.unsent.advance(count),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        output.as_mut().poll_flush(cx)
    }

    /// Whether the peer has so much to read that it gets no more.
    fn is_held_back(&self) -> bool {
        self.max_unsent <= self.unsent.len()
    }

    fn is_done(&self) -> bool {
        self.exchanges.is_empty() && self.unsent.is_empty()
    }
}

fn put_line(frame: &[u8], out: &mut BytesMut) {
    put_text(frame, out);
    out.put_u8(b'\n');
}

/// JSON may hold newlines between its tokens, where a space does as well, and nowhere else; a
/// message on this transport must not (2026-07-28, basic/transports/stdio).
fn put_text(json: &[u8], out: &mut BytesMut) {
    let start = out.len();
    out.put_slice(json);
    if memchr::memchr2(b'\n', b'\r', json).is_some() {
        for byte in &mut out[start..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
}
