//! What callers and the writer share: one buffer of entries, and who waits for it.

use crate::{
    CallId, End, Outcome, RecordError, RecorderOptions, Start, codec,
    relay::{self, Waiter},
};
use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::{Notify, Semaphore};

/// Buffers larger than this are not kept for the next group.
const MAX_KEPT_BUFFER_BYTES: usize = 1024 * 1024;

/// How the ledger is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Since when the store has failed, in microseconds since the epoch; `None` when it works.
    pub failing_since_us: Option<u64>,
    /// What the store said when it failed last.
    pub last_error: Option<String>,
    /// Whether the thread that writes has ended, so that no call can ever begin again.
    pub stopped: bool,
    /// Calls that have begun and not ended.
    pub open_calls: usize,
    /// Entries that are not yet stored.
    pub unwritten_entries: u64,
    /// How long the last group took to be stored.
    pub last_commit: Duration,
    /// Entries stored by this recorder.
    pub committed_entries: u64,
    /// Groups stored by this recorder.
    pub committed_groups: u64,
}

impl Health {
    /// Whether calls can begin.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.failing_since_us.is_none() && !self.stopped
    }
}

/// Entries on their way to the store.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) body: Vec<u8>,
    pub(crate) count: u64,
    /// Calls whose last entry is in here: the room they took is free once it is stored.
    pub(crate) completed: usize,
    /// Who waits for it.
    waiters: Vec<Waiter>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: RecorderOptions,
    queue: Mutex<Queue>,
    /// The number of the last group that has been stored.
    committed: AtomicU64,
    /// Set while the store fails and after the writer has ended.
    refusing: AtomicBool,
    room: Semaphore,
    /// Rung when the store begins to fail, for those who wait for room.
    alarm: Notify,
    /// Rung for the writer.
    bell: Notify,
}

#[derive(Debug)]
struct Queue {
    filling: Batch,
    /// The number of the group being filled, from 1.
    number: u64,
    /// Who waits for the group before, and how many entries it has.
    committing: Vec<Waiter>,
    committing_count: u64,
    open: usize,
    closed: bool,
    /// Whether the writer sleeps and must be rung for.
    writer_sleeps: bool,
    health: Health,
}

/// What there is for the writer to do.
pub(crate) enum Work {
    /// A group to be stored.
    Batch(Batch),
    /// Nothing at present.
    Nothing,
    /// Nothing any more.
    Done,
}

impl Shared {
    pub(crate) fn new(options: RecorderOptions) -> Self {
        Self {
            queue: Mutex::new(Queue {
                filling: Batch::default(),
                number: 1,
                committing: Vec::new(),
                committing_count: 0,
                open: 0,
                closed: false,
                writer_sleeps: false,
                health: Health::default(),
            }),
            committed: AtomicU64::new(0),
            refusing: AtomicBool::new(false),
            room: Semaphore::new(options.max_unwritten.min(Semaphore::MAX_PERMITS)),
            alarm: Notify::new(),
            bell: Notify::new(),
            options,
        }
    }

    /// Waits until one more call may be open or unwritten, and takes its room.
    pub(crate) async fn take_room(&self) -> Result<(), RecordError> {
        if self.refusing.load(Ordering::Acquire) {
            return Err(self.refusal());
        }
        if let Ok(permit) = self.room.try_acquire() {
            permit.forget();
            return Ok(());
        }
        let mut alarm = pin!(self.alarm.notified());
        alarm.as_mut().enable();
        // The alarm may have been rung before it was listened to.
        if self.refusing.load(Ordering::Acquire) {
            return Err(self.refusal());
        }
        let mut room = pin!(self.room.acquire());
        poll_fn(|cx| {
            if let Poll::Ready(permit) = room.as_mut().poll(cx) {
                return Poll::Ready(match permit {
                    Ok(permit) => {
                        permit.forget();
                        Ok(())
                    }
                    Err(_) => Err(RecordError::Closed),
                });
            }
            alarm.as_mut().poll(cx).map(|()| Err(self.refusal()))
        })
        .await
    }

    /// Gives back room that no entry carries.
    pub(crate) fn return_room(&self) {
        self.room.add_permits(1);
    }

    /// Hands over a start. Tells the number of its group, or `None` when the queue is so full that
    /// the group must be waited for first.
    pub(crate) fn push_start(&self, start: &Start<'_>) -> Result<Result<u64, u64>, RecordError> {
        let mut queue = self.lock();
        self.check(&queue)?;
        if self.options.max_unwritten_bytes < queue.filling.body.len() {
            return Ok(Err(queue.number));
        }
        codec::encode_start(start, &mut queue.filling.body);
        queue.filling.count += 1;
        queue.open += 1;
        Ok(Ok(self.ring(queue)))
    }

    /// Hands over the end of an open call, and its room with it. Never refuses: that is what the
    /// room was for.
    pub(crate) fn push_end(&self, call: CallId, end: &End<'_>) -> u64 {
        let mut queue = self.lock();
        codec::encode_end(call, end, &mut queue.filling.body);
        queue.filling.count += 1;
        queue.filling.completed += 1;
        queue.open -= 1;
        if queue.health.stopped {
            tracing::error!(call = %call, outcome = end.outcome.as_str(), "the end of a call is lost: the ledger has stopped");
        }
        self.ring(queue)
    }

    /// Hands over both entries of a call that never ran.
    pub(crate) fn push_refusal(
        &self,
        start: &Start<'_>,
        end: &End<'_>,
    ) -> Result<Result<u64, u64>, RecordError> {
        let mut queue = self.lock();
        self.check(&queue)?;
        if self.options.max_unwritten_bytes < queue.filling.body.len() {
            return Ok(Err(queue.number));
        }
        codec::encode_start(start, &mut queue.filling.body);
        codec::encode_end(start.call, end, &mut queue.filling.body);
        queue.filling.count += 2;
        queue.filling.completed += 1;
        Ok(Ok(self.ring(queue)))
    }

    /// Hands over the ends of calls that an earlier process began. They take no room.
    pub(crate) fn push_interrupted(&self, calls: &[crate::Interrupted]) {
        let mut queue = self.lock();
        for call in calls {
            let end = End {
                cost_micros: call.estimated_cost_micros,
                message: Some("the server ended before the call did"),
                ..End::new(Outcome::Unknown)
            };
            codec::encode_end(call.call, &end, &mut queue.filling.body);
            queue.filling.count += 1;
        }
    }

    fn check(&self, queue: &Queue) -> Result<(), RecordError> {
        if queue.closed {
            return Err(RecordError::Closed);
        }
        if self.refusing.load(Ordering::Acquire) {
            return Err(refusal(queue));
        }
        Ok(())
    }

    fn refusal(&self) -> RecordError {
        refusal(&self.lock())
    }

    fn ring(&self, mut queue: MutexGuard<'_, Queue>) -> u64 {
        let number = queue.number;
        let sleeping = std::mem::take(&mut queue.writer_sleeps);
        // The last entry there will be cuts the pause after a failure short.
        let is_last = queue.closed && queue.open == 0;
        drop(queue);
        if sleeping || is_last {
            self.bell.notify_one();
        }
        number
    }

    /// Whether the group has been stored; if not, `cx` is woken when it is or the store fails.
    pub(crate) fn poll_committed(
        &self,
        number: u64,
        cx: &Context<'_>,
    ) -> Poll<Result<(), RecordError>> {
        if number <= self.committed.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        let mut queue = self.lock();
        // Both change under the lock only, so that nobody is overlooked between look and sleep.
        if number <= self.committed.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        if self.refusing.load(Ordering::Acquire) {
            return Poll::Ready(Err(refusal(&queue)));
        }
        let waiters = if number == queue.number {
            &mut queue.filling.waiters
        } else {
            &mut queue.committing
        };
        // A future that is polled for other reasons must not fill the list with itself.
        if !waiters
            .last()
            .is_some_and(|waiter| waiter.is_woken_by(cx.waker()))
        {
            waiters.push(Waiter::new(cx));
        }
        Poll::Pending
    }

    /// The next group, with `spare` put in its place.
    pub(crate) fn take_work(&self, spare: &mut Vec<u8>) -> Work {
        let mut queue = self.lock();
        if queue.filling.count == 0 {
            if queue.closed && queue.open == 0 {
                return Work::Done;
            }
            queue.writer_sleeps = true;
            return Work::Nothing;
        }
        let mut body = std::mem::take(spare);
        body.clear();
        if MAX_KEPT_BUFFER_BYTES < body.capacity() {
            body = Vec::new();
        }
        let mut batch = std::mem::replace(
            &mut queue.filling,
            Batch {
                body,
                ..Batch::default()
            },
        );
        queue.committing = std::mem::take(&mut batch.waiters);
        queue.committing_count = batch.count;
        queue.number += 1;
        Work::Batch(batch)
    }

    /// Bytes and entries waiting to be taken.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        let queue = self.lock();
        (queue.filling.body.len(), queue.filling.count)
    }

    /// Sleeps until there may be work.
    pub(crate) async fn sleep(&self) {
        self.bell.notified().await;
    }

    /// The group taken last has been stored. Tells whether the store had been failing.
    pub(crate) fn stored(&self, batch: &Batch, took: Duration) -> bool {
        let mut queue = self.lock();
        let number = queue.number - 1;
        self.committed.store(number, Ordering::Release);
        self.refusing.store(false, Ordering::Release);
        queue.committing_count = 0;
        let waiters = std::mem::take(&mut queue.committing);
        let health = &mut queue.health;
        let recovered = health.failing_since_us.take().is_some();
        health.last_commit = took;
        health.committed_entries += batch.count;
        health.committed_groups += 1;
        drop(queue);
        self.room.add_permits(batch.completed);
        relay::wake(waiters);
        recovered
    }

    /// The group taken last could not be stored. Tells whether the store had worked before.
    pub(crate) fn failed(&self, error: String) -> bool {
        let mut queue = self.lock();
        self.refusing.store(true, Ordering::Release);
        let first = queue.health.failing_since_us.is_none();
        queue
            .health
            .failing_since_us
            .get_or_insert_with(self.options.now);
        queue.health.last_error = Some(error);
        self.release_waiting(queue);
        first
    }

    /// The writer has ended: nothing can be stored any more.
    pub(crate) fn stopped(&self) {
        let mut queue = self.lock();
        self.refusing.store(true, Ordering::Release);
        queue.health.stopped = true;
        queue.closed = true;
        self.release_waiting(queue);
    }

    fn release_waiting(&self, mut queue: MutexGuard<'_, Queue>) {
        let mut waiters = std::mem::take(&mut queue.committing);
        waiters.append(&mut queue.filling.waiters);
        drop(queue);
        self.alarm.notify_waiters();
        relay::wake(waiters);
    }

    /// Lets no further call begin.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        queue.writer_sleeps = false;
        drop(queue);
        self.room.close();
        self.bell.notify_one();
    }

    /// Whether no further entry can come.
    pub(crate) fn is_finished(&self) -> bool {
        let queue = self.lock();
        queue.closed && queue.open == 0
    }

    pub(crate) fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Acquire)
    }

    pub(crate) fn health(&self) -> Health {
        let queue = self.lock();
        Health {
            open_calls: queue.open,
            unwritten_entries: queue.filling.count + queue.committing_count,
            ..queue.health.clone()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing that can panic happens while an entry is half written: poison is harmless.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(queue: &Queue) -> RecordError {
    if queue.closed && !queue.health.stopped {
        RecordError::Closed
    } else if queue.health.stopped {
        RecordError::Stopped
    } else {
        RecordError::Unavailable
    }
}
