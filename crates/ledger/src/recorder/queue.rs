//! State shared by callers and the writer: one buffer of entries, and the callers that wait for it.

use crate::{
    record::{
        codec,
        entry::{Digest, End, Outcome, Start},
        id::CallId,
        kept::NOTHING_KEPT,
        note::{Note, Noted},
        operation::{Operation, OperationOutcome},
    },
    recorder::{Durability, RecordError, RecorderOptions, refusals::Refusals, wake, wake::Waiter},
    store::{Appended, Charge, Tail},
};
use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::sync::{Notify, Semaphore};

/// Buffers larger than this are not kept for the next group.
const MAX_KEPT_BUFFER_BYTES: usize = 1024 * 1024;

/// The most operations that are carried out with one group, so that what they come to is bounded.
const MAX_OPERATIONS: usize = 256;

/// State of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Since when the store has failed, in microseconds since the epoch; `None` when it works.
    pub failing_since_us: Option<u64>,
    /// Last error of the store.
    pub last_error: Option<String>,
    /// True if the thread that writes has ended, so that no call can ever begin again.
    pub stopped: bool,
    /// Calls that have begun and not ended.
    pub open_calls: usize,
    /// Entries that are not yet stored.
    pub unwritten_entries: u64,
    /// Error of the last maintenance of the store, which is done every second or so while nothing
    /// is to be stored; `None` when that worked. Calls may begin nevertheless, until one shows that
    /// they may not.
    pub tidy_error: Option<String>,
    /// The reason why the last checkpoint could not be put down as configured; `None` when it was. Calls
    /// go on, and what they leave is sealed by the ledger alone.
    pub seal_error: Option<String>,
    /// Time for which the oldest entry that is not yet stored has waited.
    pub lag: Duration,
    /// Time that storing the last group took.
    pub last_commit: Duration,
    /// Times that storing groups took.
    pub commits: CommitTimes,
    /// Attempts to store a group that have failed.
    pub failures: u64,
    /// Entries stored by this recorder, without those that the store added.
    pub committed_entries: u64,
    /// Groups stored by this recorder.
    pub committed_groups: u64,
    /// End of the ledger after the last of them; `None` before the first.
    pub tail: Option<Tail>,
}

/// Upper bounds of the buckets of [`CommitTimes`], in seconds.
pub const COMMIT_BUCKETS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

/// Times that storing groups took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitTimes {
    /// Number of groups in each bucket of [`COMMIT_BUCKETS`], and of those that took longer.
    pub counts: [u64; COMMIT_BUCKETS.len() + 1],
    /// Of all of them.
    pub sum: Duration,
}

impl CommitTimes {
    fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = COMMIT_BUCKETS.iter().position(|bound| seconds <= *bound);
        self.counts[bucket.unwrap_or(COMMIT_BUCKETS.len())] += 1;
        self.sum = self.sum.saturating_add(took);
    }
}

impl Health {
    /// Returns true if calls can begin.
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
    pub(crate) operations: Vec<Operation>,
    /// Costs of the calls whose ends are in the batch.
    pub(crate) charges: Vec<Charge>,
    /// Bytes of results that operations are to keep.
    kept_bytes: usize,
    /// True if a caller waits for it to be on disk whatever the durability.
    pub(crate) durable: bool,
    /// Callers that wait for outcomes, one for each operation.
    slots: Vec<Option<Arc<Slot>>>,
    /// Callers that wait for the group.
    waiters: Vec<Waiter>,
    /// Time at which the first entry of it came.
    since: Option<Instant>,
}

/// Slot in which the outcome of an operation is left for its caller. Locked after the queue.
#[derive(Debug)]
pub(crate) struct Slot(Mutex<SlotState>);

#[derive(Debug)]
enum SlotState {
    Waiting,
    /// Outcome; `None` if the store knows no operations.
    Given(Option<OperationOutcome>),
    /// No caller waits any more. A call that was to begin must be ended like this if it has begun.
    GivenUp(Option<Unclaimed>),
}

/// A call that was given up before it was known whether it may run, so it never ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unclaimed {
    pub(crate) call: CallId,
    pub(crate) holds_key: bool,
    /// Outcome in the ledger.
    pub(crate) outcome: Outcome<&'static str>,
}

/// A group that has been taken to be stored, and not yet been.
#[derive(Debug, Default)]
struct Committing {
    waiters: Vec<Waiter>,
    count: u64,
    since: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: RecorderOptions,
    pub(crate) refusals: Refusals,
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
    /// The group before.
    committing: Committing,
    open: usize,
    /// Number of open calls without a waiting caller, whose claims are not decided yet.
    unclaimed: usize,
    closed: bool,
    /// True if no entry may come any more but the last one of a hook.
    sealed: bool,
    /// True if the writer sleeps and must be woken.
    writer_sleeps: bool,
    health: Health,
}

/// Work for the writer.
pub(crate) enum Work {
    /// A group to be stored.
    Batch(Batch),
    /// No work at present.
    Nothing,
    /// No work any more.
    Done,
}

impl Shared {
    pub(crate) fn new(options: RecorderOptions) -> Self {
        Self {
            queue: Mutex::new(Queue {
                filling: Batch::default(),
                number: 1,
                committing: Committing::default(),
                open: 0,
                unclaimed: 0,
                closed: false,
                sealed: false,
                writer_sleeps: false,
                health: Health::default(),
            }),
            committed: AtomicU64::new(0),
            refusing: AtomicBool::new(false),
            room: Semaphore::new(options.max_unwritten.min(Semaphore::MAX_PERMITS)),
            alarm: Notify::new(),
            bell: Notify::new(),
            refusals: Refusals::new(options.max_refusals),
            options,
        }
    }

    /// Tells if a call may begin that takes no room.
    pub(crate) fn may_begin(&self) -> Result<(), RecordError> {
        if self.refusing.load(Ordering::Acquire) {
            return Err(self.refusal());
        }
        match self.room.is_closed() {
            true => Err(RecordError::Closed),
            false => Ok(()),
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
    pub(crate) fn push_start(
        &self,
        start: &Start<'_>,
        durable: bool,
    ) -> Result<Result<u64, u64>, RecordError> {
        let mut queue = self.lock();
        self.check(&queue)?;
        if self.options.max_unwritten_bytes < queue.filling.bytes() {
            return Ok(Err(queue.number));
        }
        codec::encode_start(start, &mut queue.filling.body);
        queue.filling.count += 1;
        queue.filling.durable |= durable;
        queue.open += 1;
        Ok(Ok(self.ring(queue)))
    }

    /// Hands over a start that runs only if it is given what it claims. The answer is left in
    /// `slot`.
    pub(crate) fn push_claiming(
        &self,
        start: &Start<'_>,
        claim: Operation,
        slot: &Arc<Slot>,
    ) -> Result<Result<u64, u64>, RecordError> {
        let mut queue = self.lock();
        self.check(&queue)?;
        if self.is_full(&queue) {
            return Ok(Err(queue.number));
        }
        codec::encode_start(start, &mut queue.filling.body);
        queue.filling.count += 1;
        queue.open += 1;
        queue.filling.operate(claim, Some(Arc::clone(slot)));
        Ok(Ok(self.ring(queue)))
    }

    /// Hands over an operation that belongs to no entry. The answer is left in `slot`.
    pub(crate) fn push_operation(
        &self,
        operation: Operation,
        slot: &Arc<Slot>,
    ) -> Result<Result<u64, u64>, RecordError> {
        let mut queue = self.lock();
        self.check(&queue)?;
        if self.is_full(&queue) {
            return Ok(Err(queue.number));
        }
        queue.filling.completed += 1;
        queue.filling.operate(operation, Some(Arc::clone(slot)));
        Ok(Ok(self.ring(queue)))
    }

    fn is_full(&self, queue: &Queue) -> bool {
        self.options.max_unwritten_bytes < queue.filling.bytes()
            || MAX_OPERATIONS <= queue.filling.operations.len()
    }

    /// Hands over the end of an open call, and its room with it. Never refuses: that is what the
    /// room was for. `keep` is the answer to keep for a call that holds a key, `charge` the cost to
    /// charge, and with `durable` the end is waited for until it is on disk.
    pub(crate) fn push_end(
        &self,
        call: CallId,
        end: &End<'_>,
        keep: Option<(Operation, Digest)>,
        charge: Option<Charge>,
        durable: bool,
    ) -> u64 {
        let mut queue = self.lock();
        queue.end(call, end, keep);
        queue.filling.charges.extend(charge);
        queue.filling.durable |= durable;
        if queue.health.stopped {
            tracing::error!(call = %call, outcome = end.outcome.as_str(), "the end of a call is lost: the ledger has stopped");
        }
        self.ring(queue)
    }

    /// Hands over a note. One that takes no room is refused only when there is too much unwritten
    /// or nothing can be written any more.
    pub(crate) fn push_note(
        &self,
        note: &Note<'_>,
        takes_room: bool,
    ) -> Result<Result<u64, u64>, RecordError> {
        let mut queue = self.lock();
        if takes_room {
            self.check(&queue)?;
        } else if queue.health.stopped {
            return Err(RecordError::Stopped);
        } else if queue.sealed {
            return Err(RecordError::Closed);
        }
        if self.options.max_unwritten_bytes < queue.filling.bytes() {
            return Ok(Err(queue.number));
        }
        codec::encode_note(CallId::new(note.at_us), note, &mut queue.filling.body);
        queue.filling.count += 1;
        queue.filling.completed += usize::from(takes_room);
        Ok(Ok(self.ring(queue)))
    }

    /// Hands over what a hook has to say, if anything: however much is unwritten, for others
    /// count on its being on record, and there is one for each group at most. It waits for the disk
    /// whatever the durability.
    pub(crate) fn push_noted(&self, note: Option<Noted>) -> bool {
        let mut queue = self.lock();
        let Some(note) = note.filter(|_| !queue.health.stopped) else {
            return false;
        };
        let note = note.as_note();
        codec::encode_note(CallId::new(note.at_us), &note, &mut queue.filling.body);
        queue.filling.count += 1;
        queue.filling.durable = true;
        self.ring(queue);
        true
    }

    /// Lets nothing come any more but the last word of a hook. Tells whether that is so: it is
    /// not while there is something to be stored.
    pub(crate) fn seal(&self) -> bool {
        let mut queue = self.lock();
        queue.sealed |= queue.filling.count == 0 && queue.filling.operations.is_empty();
        queue.sealed
    }

    /// Hands over what has been counted of refusals, unless the store fails and it could pile up.
    /// Tells whether there was anything.
    pub(crate) fn flush_refusals(&self, now_us: u64, all: bool) -> bool {
        if self.is_refusing() {
            return false;
        }
        self.refusals.flush(now_us, all, |note| {
            matches!(self.push_note(note, false), Ok(Ok(_)))
        })
    }

    /// Hands over both entries of a call that never ran.
    pub(crate) fn push_refusal(
        &self,
        start: &Start<'_>,
        end: &End<'_>,
    ) -> Result<Result<u64, u64>, RecordError> {
        let mut queue = self.lock();
        self.check(&queue)?;
        if self.options.max_unwritten_bytes < queue.filling.bytes() {
            return Ok(Err(queue.number));
        }
        codec::encode_start(start, &mut queue.filling.body);
        codec::encode_end(start.call, end, &mut queue.filling.body);
        queue.filling.count += 2;
        queue.filling.completed += 1;
        Ok(Ok(self.ring(queue)))
    }

    /// Hands over the ends of calls that an earlier process began. They take no room.
    pub(crate) fn push_interrupted(&self, calls: &[crate::store::Interrupted]) {
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
        if queue.filling.since.is_none() {
            queue.filling.since = Some(Instant::now());
        }
        let sleeping = std::mem::take(&mut queue.writer_sleeps);
        // The last entry there will be cuts the pause after a failure short; what somebody waits
        // for cuts gathering short.
        let gathers = self.options.durability == Durability::Relaxed;
        let is_urgent = queue.is_over() || (gathers && queue.filling.durable);
        drop(queue);
        if sleeping || is_urgent {
            self.bell.notify_one();
        }
        number
    }

    /// Ready if the group has been stored; if not, `cx` is woken when it is or the store fails.
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
            &mut queue.committing.waiters
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
        if queue.filling.count == 0 && queue.filling.operations.is_empty() {
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
        queue.committing = Committing {
            waiters: std::mem::take(&mut batch.waiters),
            count: batch.count,
            since: batch.since,
        };
        queue.number += 1;
        Work::Batch(batch)
    }

    /// Entries waiting to be taken.
    pub(crate) fn waiting(&self) -> u64 {
        self.lock().filling.count
    }

    /// Returns true if the waiting entries are too many, or too urgent, to let more gather.
    pub(crate) fn is_urgent(&self, max_bytes: usize) -> bool {
        let queue = self.lock();
        queue.filling.durable || max_bytes <= queue.filling.bytes()
    }

    /// Sleeps until there may be work.
    pub(crate) async fn sleep(&self) {
        self.bell.notified().await;
    }

    /// The group taken last has been stored. Tells whether the store had been failing.
    pub(crate) fn stored(&self, batch: &mut Batch, appended: Appended, took: Duration) -> bool {
        let mut queue = self.lock();
        let mut outcomes = appended.outcomes.into_iter();
        let mut room = batch.completed;
        for (operation, slot) in batch.operations.iter().zip(&batch.slots) {
            room += queue.give(operation, slot.as_deref(), outcomes.next());
        }
        let number = queue.number - 1;
        self.committed.store(number, Ordering::Release);
        self.refusing.store(false, Ordering::Release);
        let waiters = std::mem::take(&mut queue.committing).waiters;
        let health = &mut queue.health;
        let recovered = health.failing_since_us.take().is_some();
        health.last_commit = took;
        health.commits.add(took);
        health.tidy_error = None;
        health.committed_entries += batch.count;
        health.committed_groups += 1;
        health.tail = Some(appended.tail);
        drop(queue);
        self.room.add_permits(room);
        wake::wake(waiters);
        recovered
    }

    /// The group taken last could not be stored. Tells whether the store had worked before.
    pub(crate) fn failed(&self, error: String) -> bool {
        let mut queue = self.lock();
        queue.health.failures += 1;
        self.refuse_all(queue, error)
    }

    /// The store was looked after; `error` is what was wrong with that. Tells whether that is new.
    pub(crate) fn tidied(&self, error: Option<String>) -> bool {
        let mut queue = self.lock();
        let is_new = queue.health.tidy_error.is_some() != error.is_some();
        queue.health.tidy_error = error;
        is_new
    }

    /// Notes why the ledger is not sealed as it should be, if it is not.
    pub(crate) fn note_seal_error(&self, error: Option<String>) {
        self.lock().health.seal_error = error;
    }

    fn refuse_all(&self, mut queue: MutexGuard<'_, Queue>, error: String) -> bool {
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
        let mut waiters = std::mem::take(&mut queue.committing.waiters);
        waiters.append(&mut queue.filling.waiters);
        drop(queue);
        self.alarm.notify_waiters();
        wake::wake(waiters);
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

    /// Returns true if no further entry can come, other than the ends of calls without a waiting
    /// caller.
    pub(crate) fn is_finished(&self) -> bool {
        self.lock().is_over()
    }

    /// Takes what an operation has come to, once the group has been stored.
    pub(crate) fn take_outcome(&self, slot: &Slot) -> Option<OperationOutcome> {
        let _queue = self.lock();
        match std::mem::replace(&mut *slot.lock(), SlotState::GivenUp(None)) {
            SlotState::Given(outcome) => outcome,
            SlotState::Waiting | SlotState::GivenUp(_) => None,
        }
    }

    /// Waits no longer for what an operation comes to. A call whose claim has been granted already,
    /// or will be, is ended as `unclaimed` says.
    pub(crate) fn give_up(&self, slot: &Slot, unclaimed: Option<Unclaimed>) {
        let mut queue = self.lock();
        let mut state = slot.lock();
        match &*state {
            SlotState::Waiting => {
                queue.unclaimed += usize::from(unclaimed.is_some());
                *state = SlotState::GivenUp(unclaimed);
                if queue.is_over() {
                    self.bell.notify_one();
                }
            }
            SlotState::Given(Some(OperationOutcome::Claimed)) => {
                *state = SlotState::GivenUp(None);
                if let Some(unclaimed) = unclaimed {
                    queue.end_unclaimed(&unclaimed);
                    drop(state);
                    self.ring(queue);
                }
            }
            SlotState::Given(_) | SlotState::GivenUp(_) => {}
        }
    }

    /// If the oldest entry that is not stored has waited for `max_wait`, reports that to all
    /// waiting callers, though the store may store it yet. Returns true if that is new.
    pub(crate) fn look_for_hanging(&self, max_wait: Duration) -> bool {
        let queue = self.lock();
        // Whoever it is that waits, a group is stored afterwards, and that is where it ends.
        let hangs = queue.oldest();
        let hangs = hangs.is_some_and(|since| max_wait <= since.elapsed());
        if queue.health.stopped || !hangs {
            return false;
        }
        // What the store has said itself tells people more than that it is waited for.
        let known = queue.health.failing_since_us.is_some();
        let said = queue.health.last_error.clone().filter(|_| known);
        let error = said.unwrap_or_else(|| "it has not answered for too long".to_owned());
        self.refuse_all(queue, error)
    }

    pub(crate) fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Acquire)
    }

    pub(crate) fn health(&self) -> Health {
        let queue = self.lock();
        Health {
            open_calls: queue.open,
            unwritten_entries: queue.filling.count + queue.committing.count,
            lag: queue
                .oldest()
                .map_or(Duration::ZERO, |since| since.elapsed()),
            ..queue.health.clone()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing that can panic happens while an entry is half written: poison is harmless.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batch {
    fn bytes(&self) -> usize {
        self.body.len() + self.kept_bytes
    }

    fn operate(&mut self, operation: Operation, slot: Option<Arc<Slot>>) {
        if let Operation::KeepResult { result, .. } = &operation {
            self.kept_bytes += result.as_ref().map_or(0, String::len);
        }
        self.operations.push(operation);
        self.durable |= slot.is_some();
        self.slots.push(slot);
    }
}

impl Queue {
    /// Since when the oldest of what is not stored has waited.
    fn oldest(&self) -> Option<Instant> {
        self.committing.since.or(self.filling.since)
    }

    /// Returns true if no further entry can come, other than those that unwritten entries give rise
    /// to.
    fn is_over(&self) -> bool {
        self.closed && self.open == self.unclaimed
    }

    /// `keep` has the digest of what it keeps.
    fn end(&mut self, call: CallId, end: &End<'_>, keep: Option<(Operation, Digest)>) {
        let digest = keep.as_ref().map(|(_, digest)| *digest);
        codec::encode_end_keeping(call, end, digest, &mut self.filling.body);
        self.filling.count += 1;
        self.filling.completed += 1;
        self.open -= 1;
        if let Some((keep, _)) = keep {
            self.filling.operate(keep, None);
        }
    }

    fn end_unclaimed(&mut self, unclaimed: &Unclaimed) {
        let end = End::new(unclaimed.outcome);
        let keep = unclaimed.holds_key.then_some(Operation::KeepResult {
            call: unclaimed.call,
            // Whatever the ledger says, it gives its key back.
            outcome: Outcome::Denied { reason: () },
            result: None,
        });
        let keep = keep.map(|keep| (keep, NOTHING_KEPT));
        self.end(unclaimed.call, &end, keep);
    }

    /// Leaves what an operation has come to where it is waited for. Tells how many calls are over
    /// with it.
    fn give(
        &mut self,
        operation: &Operation,
        slot: Option<&Slot>,
        outcome: Option<OperationOutcome>,
    ) -> usize {
        let Some(slot) = slot else { return 0 };
        let mut state = slot.lock();
        let is_claim = matches!(operation, Operation::Claim { .. });
        // The store has ended it.
        let is_over = is_claim && matches!(outcome, Some(OperationOutcome::ClaimRefused(_)));
        self.open -= usize::from(is_over);
        if let SlotState::GivenUp(unclaimed) = &*state {
            if let Some(unclaimed) = unclaimed {
                self.unclaimed -= 1;
                if !is_over {
                    self.end_unclaimed(unclaimed);
                }
            }
        } else {
            *state = SlotState::Given(outcome);
        }
        usize::from(is_over)
    }
}

impl Slot {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(SlotState::Waiting)))
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
