//! Bound on the memory that unfinished messages hold.

use crate::{Place, frames::Frames};
use mcp_service::Allowance;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes before the payload of a control frame of a client: two, and the mask (RFC 6455 §5.2).
const CONTROL_HEAD: usize = 6;

/// There is no room for what a client sends. It stands for itself in an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("more is held of unfinished messages than there is room for")]
pub(crate) struct NoRoom;

/// A client sends too many frames that carry nothing. It stands for itself in an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("too many frames without payload")]
pub(crate) struct Flooded;

/// A connection whose bytes are counted from one whole message to the next.
#[derive(Debug)]
pub(crate) struct Metered<'a, T> {
    connection: T,
    place: &'a Place,
    max_message: usize,
    held: usize,
    has_said_something: bool,
    frames: Frames,
    /// True while the last write waits for the client to read.
    is_write_waiting: bool,
}

impl<'a, T> Metered<'a, T> {
    pub(crate) fn new(connection: T, place: &'a Place, max_message: usize) -> Self {
        Self {
            connection,
            place,
            max_message,
            held: 0,
            has_said_something: false,
            frames: Frames::new(Allowance::new(
                place.options().max_control_frames_per_second,
            )),
            is_write_waiting: false,
        }
    }

    /// True while the client has not taken the last write. The library answers pings regardless.
    pub(crate) fn is_write_waiting(&self) -> bool {
        self.is_write_waiting
    }

    /// A whole message has been taken out. What has come of the next one with it is not counted; it
    /// is no more than one read.
    pub(crate) fn message_was_read(&mut self) {
        self.place.give_back(std::mem::take(&mut self.held));
    }

    /// A ping or a pong has been taken out, with so many bytes in it, which may have come between the
    /// pieces of a message.
    pub(crate) fn control_was_read(&mut self, payload: usize) {
        let bytes = self.held.min(CONTROL_HEAD + payload);
        self.held -= bytes;
        self.place.give_back(bytes);
    }

    /// Returns true if a message is incomplete.
    pub(crate) fn is_unfinished(&self) -> bool {
        0 < self.held
    }

    /// Returns true if any frame has come since the last call of this function.
    pub(crate) fn has_said_something(&mut self) -> bool {
        std::mem::take(&mut self.has_said_something)
    }
}

impl<T> Drop for Metered<'_, T> {
    fn drop(&mut self) {
        self.place.give_back(self.held);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Metered<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.connection).poll_read(cx, buffer))?;
        let count = buffer.filled().len() - before;
        self.has_said_something |= 0 < count;
        if !self.place.hold(count, self.max_message) {
            return Poll::Ready(Err(io::Error::other(NoRoom)));
        }
        self.held += count;
        if !self.frames.pass(&buffer.filled()[before..]) {
            return Poll::Ready(Err(io::Error::other(Flooded)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Metered<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write(cx, bytes);
        self.is_write_waiting = written.is_pending();
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}
