//! Bounded queue of messages to one peer.

use bytes::Bytes;
use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};
use tokio::sync::Notify;

/// Bytes of answers that may wait for something else than their peer, such as their record, before
/// no further answer to the same peer is made.
const MAX_HELD: usize = 4 * 1024 * 1024;

/// Messages on their way to a peer that are not answers: a bounded queue between their senders and
/// the one task that writes.
///
/// Clones are the same queue. Pushing never waits: what does not fit is refused, so that a peer
/// that does not read can neither hold up a handler nor make memory grow.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Bytes of answers that are made and not yet handed to the transport.
    held: AtomicUsize,
    /// Notified when there is room for further answers.
    freed: Notify,
}

#[derive(Debug)]
struct State {
    frames: VecDeque<Bytes>,
    bytes: usize,
    max_bytes: usize,
    closed: bool,
    interrupted: bool,
    reader: Option<Waker>,
}

/// Reason why a message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboxError {
    /// The peer reads too slowly.
    #[error("the peer reads too slowly; its queue is full")]
    Full,
    /// The peer will read no more messages.
    #[error("the peer has gone")]
    Closed,
}

impl Outbox {
    /// Default of the most bytes that a queue holds: 256 KiB.
    pub const DEFAULT_MAX_BYTES: usize = 256 * 1024;

    /// A queue of at most `max_bytes`. A single message larger than that is never taken.
    pub fn new(max_bytes: usize) -> Self {
        let state = State {
            frames: VecDeque::new(),
            bytes: 0,
            max_bytes,
            closed: false,
            interrupted: false,
            reader: None,
        };
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            held: AtomicUsize::new(0),
            freed: Notify::new(),
        }))
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
        let frame = crate::unsaid::frame(frame);
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

    /// Asks the reading task to hang up on the peer for now, once the queued messages are sent: the
    /// peer is to come back for the rest. Where that is not possible it has no effect.
    pub fn interrupt(&self) {
        let mut state = self.lock();
        state.interrupted = true;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// Returns true if [`Outbox::interrupt`] was called since the last call of this function.
    pub fn take_interrupt(&self) -> bool {
        std::mem::take(&mut self.lock().interrupted)
    }

    /// Wakes the reading task: the place it writes to may have changed.
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

    /// Returns true if the queue accepts no more messages.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Polls `making` only while there is room for what it makes: [`Outbox::hold`] counts answers
    /// that are made and wait.
    pub(crate) async fn with_room<T>(&self, making: impl Future<Output = T>) -> T {
        let mut making = pin!(making);
        let mut freed = None;
        poll_fn(|cx| {
            while MAX_HELD <= self.0.held.load(Ordering::SeqCst) {
                let Some(waiting) = &mut freed else {
                    // Created before `held` is read again, so no freeing is missed.
                    freed = Some(Box::pin(self.0.freed.notified()));
                    continue;
                };
                if waiting.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                freed = None;
            }
            freed = None;
            making.as_mut().poll(cx)
        })
        .await
    }

    /// Counts an answer of `bytes` as made and waiting until the returned guard is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> HeldAnswer {
        self.0.held.fetch_add(bytes, Ordering::SeqCst);
        HeldAnswer {
            outbox: self.clone(),
            bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that is made and waits for something else than its peer to read it, such as its record.
#[derive(Debug)]
#[must_use = "dropping it says that the answer no longer waits"]
pub struct HeldAnswer {
    outbox: Outbox,
    bytes: usize,
}

impl Drop for HeldAnswer {
    fn drop(&mut self) {
        let inner = &self.outbox.0;
        let before = inner.held.fetch_sub(self.bytes, Ordering::SeqCst);
        if MAX_HELD <= before && before - self.bytes < MAX_HELD {
            inner.freed.notify_waiters();
        }
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

    #[tokio::test]
    async fn nothing_is_made_while_too_much_waits() {
        let outbox = Outbox::default();
        let held = [outbox.hold(MAX_HELD - 1), outbox.hold(1)];
        let mut polled = false;
        {
            let mut making = pin!(outbox.with_room(async {
                polled = true;
                7
            }));
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..2 {
                assert_eq!(making.as_mut().poll(&mut cx), Poll::Pending);
            }
            let freeing = async { drop(held) };
            assert_eq!(tokio::join!(making, freeing).0, 7);
        }
        assert!(polled);
        // One that does not fit by itself is made when little waits.
        let held = outbox.hold(3 * MAX_HELD);
        drop(held);
        assert_eq!(outbox.with_room(async { 8 }).await, 8);
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
