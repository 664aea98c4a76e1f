use bytes::Bytes;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// Messages on their way to a peer that are not answers: a bounded queue between whoever has
/// something to say and the one place that writes.
///
/// Clones are the same queue. Pushing never waits: what does not fit is refused, so that a peer
/// that does not read can neither hold up a handler nor make memory grow.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    frames: VecDeque<Bytes>,
    bytes: usize,
    max_bytes: usize,
    closed: bool,
    interrupted: bool,
    reader: Option<Waker>,
}

/// Why a message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboxError {
    /// The peer reads too slowly.
    #[error("the peer reads too slowly; its queue is full")]
    Full,
    /// Nobody will read it any more.
    #[error("the peer has gone")]
    Closed,
}

impl Outbox {
    /// How many bytes a queue holds unless something else is said: 256 KiB.
    pub const DEFAULT_MAX_BYTES: usize = 256 * 1024;

    /// A queue of at most `max_bytes`. A single message larger than that is never taken.
    pub fn new(max_bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            frames: VecDeque::new(),
            bytes: 0,
            max_bytes,
            closed: false,
            interrupted: false,
            reader: None,
        })))
    }

    /// Queues one encoded message.
    ///
    /// # Errors
    ///
    /// [`OutboxError`] when it is not queued.
    pub fn push(&self, frame: Bytes) -> Result<(), OutboxError> {
        self.push_unless(frame, false)
    }

    /// Queues one encoded message, unless the one queued last is the same: a list that has changed
    /// twice has changed.
    ///
    /// # Errors
    ///
    /// [`OutboxError`] when it is not queued.
    pub fn push_change(&self, frame: Bytes) -> Result<(), OutboxError> {
        self.push_unless(frame, true)
    }

    fn push_unless(&self, frame: Bytes, same_is_last: bool) -> Result<(), OutboxError> {
        let mut state = self.lock();
        if state.closed {
            return Err(OutboxError::Closed);
        }
        if same_is_last && state.frames.back() == Some(&frame) {
            return Ok(());
        }
        if state.max_bytes < state.bytes + frame.len() {
            return Err(OutboxError::Full);
        }
        state.bytes += frame.len();
        state.frames.push_back(frame);
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        Ok(())
    }

    /// Queues an answer, for transports whose answers go the same way as everything else.
    ///
    /// An answer is owed, so it does not compete with what [`Outbox::push`] takes: it is taken as
    /// long as no more than `max_waiting` bytes wait before it, however long it is itself.
    ///
    /// # Errors
    ///
    /// [`OutboxError`] when it is not queued. After [`OutboxError::Full`] the peer can only be given
    /// up: it would wait for this answer forever.
    pub fn push_answer(&self, frame: Bytes, max_waiting: usize) -> Result<(), OutboxError> {
        let mut state = self.lock();
        if state.closed {
            return Err(OutboxError::Closed);
        }
        if max_waiting < state.bytes {
            return Err(OutboxError::Full);
        }
        state.bytes += frame.len();
        state.frames.push_back(frame);
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        Ok(())
    }

    /// The next message, in order; `None` once the queue is closed and empty.
    ///
    /// There is one reader: a later poll's waker replaces an earlier one's.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.lock();
        if let Some(frame) = state.frames.pop_front() {
            state.bytes -= frame.len();
            return Poll::Ready(Some(frame));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The next message, if one is queued.
    pub fn try_next(&self) -> Option<Bytes> {
        let mut state = self.lock();
        let frame = state.frames.pop_front()?;
        state.bytes -= frame.len();
        Some(frame)
    }

    /// Asks whoever reads to hang up on the peer for now, once what is queued is sent: the peer is to
    /// come back for the rest. Where that is not possible it means nothing.
    pub fn interrupt(&self) {
        let mut state = self.lock();
        state.interrupted = true;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// Whether [`Outbox::interrupt`] was called since the last time this was asked.
    pub fn take_interrupt(&self) -> bool {
        std::mem::take(&mut self.lock().interrupted)
    }

    /// Has whoever reads look again: the place it writes to may not be the one any more.
    pub fn wake_reader(&self) {
        let reader = self.lock().reader.take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Takes no more messages. What is queued can still be read.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// Whether it takes no more messages.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new(Self::DEFAULT_MAX_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_order_is_kept() {
        let outbox = Outbox::new(4);
        assert_eq!(outbox.push("ab".into()), Ok(()));
        assert_eq!(
            outbox.push_change("ab".into()),
            Ok(()),
            "the same again takes no room"
        );
        assert_eq!(outbox.push("cd".into()), Ok(()));
        assert_eq!(outbox.push("e".into()), Err(OutboxError::Full));
        assert_eq!(outbox.try_next().unwrap(), "ab");
        assert_eq!(outbox.push("e".into()), Ok(()));
        outbox.close();
        assert_eq!(outbox.push("f".into()), Err(OutboxError::Closed));
        assert_eq!(outbox.try_next().unwrap(), "cd");
        assert_eq!(outbox.try_next().unwrap(), "e");
        assert_eq!(outbox.try_next(), None);
    }

    #[test]
    fn an_answer_has_room_where_a_notification_has_none() {
        let outbox = Outbox::new(4);
        assert_eq!(outbox.push("abcd".into()), Ok(()));
        assert_eq!(outbox.push("e".into()), Err(OutboxError::Full));
        for _ in 0..2 {
            assert_eq!(outbox.push_answer("answer".into(), 10), Ok(()));
        }
        assert_eq!(
            outbox.push_answer("a".into(), 10),
            Err(OutboxError::Full),
            "16 bytes wait"
        );
        assert_eq!(outbox.try_next().unwrap(), "abcd");
        assert_eq!(outbox.try_next().unwrap(), "answer");
        assert_eq!(outbox.push("f".into()), Err(OutboxError::Full));
        assert_eq!(outbox.push_answer("a".into(), 10), Ok(()));
        outbox.close();
        assert_eq!(outbox.push_answer("b".into(), 10), Err(OutboxError::Closed));
        let rest: Vec<_> = std::iter::from_fn(|| outbox.try_next()).collect();
        assert_eq!(
            rest,
            ["answer", "a"],
            "the same answer twice is two answers"
        );
    }
}
