//! Serving of one peer over a pair of byte streams.

use crate::lines::{Line, Lines};
use bytes::{Buf, BufMut, BytesMut};
use jsonrpc_core::{DecodeError, Frame};
use mcp_service::{
    Answer, Connection, Drain, End, Engine, Framing, Input, LAST_ANSWERS, McpService, Outbox,
    Principal, TransportKind, serve_duplex,
};
use std::{
    error::Error,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// Bounds on serving a pair of byte streams.
#[derive(Clone, Copy, Debug)]
pub struct StdioOptions {
    /// Time for which requests may go on after the input has ended or the server was told to stop.
    /// R2.7 gives the process five seconds in all.
    pub drain: Duration,
    /// Bytes that may wait for the peer to read them. Beyond that no more is read from the peer,
    /// and its earlier requests wait: at most one answer that exceeds the bound is made.
    pub max_unsent: usize,
    /// True to accept a last line without an end. A server whose peer may have been cut off in the
    /// middle of a line must not accept it.
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
    let connection = Connection::new(principal, TransportKind::Stdio, None, Outbox::default());
    let mut lines = Framed {
        input: pin!(input),
        output: pin!(output),
        lines: Lines::new(engine.limits().frames.max_frame),
        max_line: engine.limits().frames.max_frame,
        has_read: false,
        has_ended: false,
        unsent: BytesMut::new(),
        options,
    };
    let drain = Drain {
        limit: options.drain,
        last_answers: LAST_ANSWERS,
    };
    let end = serve_duplex(engine, &connection, &mut lines, stop, drain).await;
    end.map_err(ServeError::Output)
}

/// Lines of a pair of byte streams.
struct Framed<'a, I, O> {
    input: Pin<&'a mut I>,
    output: Pin<&'a mut O>,
    lines: Lines,
    max_line: usize,
    /// True if the lines of the last read are being taken.
    has_read: bool,
    has_ended: bool,
    unsent: BytesMut,
    options: StdioOptions,
}

impl<I: AsyncRead, O: AsyncWrite> Framing for Framed<'_, I, O> {
    type Broken = io::Error;

    /// Takes every whole line, and reads once if there is none left: one read may bring hundreds of
    /// lines, and each of them may be answered at length.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Input>> {
        loop {
            if let Some(line) = self.lines.next() {
                return Poll::Ready(Ok(self.input(line)));
            }
            if self.has_ended {
                let rest = self.lines.rest().filter(|_| self.options.accept_unfinished);
                return Poll::Ready(Ok(rest.map_or(Input::Ended, |line| self.input(line))));
            }
            if std::mem::take(&mut self.has_read) {
                return Poll::Ready(Ok(Input::Flush));
            }
            let read = pin!(self.input.read_buf(self.lines.room())).poll(cx);
            match ready!(read) {
                Ok(count) => self.has_ended = count == 0,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn Error, "the input cannot be read");
                    self.has_ended = true;
                }
            }
            self.has_read = true;
        }
    }

    fn has_room(&mut self, _: &mut Context<'_>) -> bool {
        self.unsent.len() < self.options.max_unsent
    }

    fn put(&mut self, frame: Frame) -> io::Result<()> {
        for piece in frame.pieces() {
            put_text(&piece, &mut self.unsent);
        }
        self.unsent.put_u8(b'\n');
        Ok(())
    }

    /// Writes it where it is sent from, without a frame of its own.
    fn put_answer(&mut self, answer: &Answer) -> io::Result<()> {
        let start = self.unsent.len();
        answer.write_to(&mut self.unsent);
        without_newlines(&mut self.unsent[start..]);
        self.unsent.put_u8(b'\n');
        Ok(())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match ready!(self.output.as_mut().poll_write(cx, &self.unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.unsent.advance(count),
            }
        }
        self.output.as_mut().poll_flush(cx)
    }
}

impl<I, O> Framed<'_, I, O> {
    fn input(&self, line: Line) -> Input {
        match line {
            Line::Whole(frame) => Input::Message(frame),
            Line::TooLong(actual) => {
                let max = self.max_line;
                let error = DecodeError::TooLong { max, actual }.to_error_object();
                Input::Unreadable(Answer::error(None, error, 400))
            }
        }
    }
}

fn put_text(json: &[u8], out: &mut BytesMut) {
    let start = out.len();
    out.put_slice(json);
    without_newlines(&mut out[start..]);
}

/// JSON may hold newlines between its tokens, where a space does as well, and nowhere else; a
/// message on this transport must not (2026-07-28, basic/transports/stdio).
fn without_newlines(json: &mut [u8]) {
    if memchr::memchr2(b'\n', b'\r', json).is_some() {
        for byte in json {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
}
