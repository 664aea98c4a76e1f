//! State of one worker in the scheduler, and the choice of a worker for a call.

use crate::python::frames::put_ping;
use bytes::BytesMut;
use std::{cmp::Reverse, collections::VecDeque, sync::Arc, time::Duration};
use tokio::{sync::Notify, time::Instant};

/// Number of calls from which on an asynchronous call rather goes to the next worker: calls that
/// run together share reads, writes and turns of the event loop, and a few of them need no second
/// worker.
pub(super) const FEW: usize = 8;
/// Bytes that may wait to be written to a worker before no further call is put there. One call more
/// than that fits, and the cancellations of running calls.
pub(super) const MAX_OUTBOX: usize = 1024 * 1024;
/// Time for which a worker that runs calls may be silent before others are preferred to it: it may
/// be blocked by one of them. Longer than a busy event loop takes for a few of its turns.
pub(super) const SILENCE: Duration = Duration::from_millis(20);
/// Number of calls that were cancelled and do not end from which on their worker is killed.
pub(super) const MAX_ABANDONED: usize = 256;
/// Number of answered calls that are remembered, for the lines they printed.
const MAX_RECENT: usize = 64;

/// One worker.
#[derive(Debug, Default)]
pub(super) struct Seat {
    /// Generation it belongs to.
    pub(super) generation: u64,
    /// Slot in that generation, counted from 0.
    pub(super) slot: usize,
    /// True if it gets no further calls, because it is lost.
    pub(super) is_closed: bool,
    /// Number of calls that it was given.
    pub(super) begun: u64,
    /// Number of calls it runs.
    pub(super) running: usize,
    /// The synchronous one of them, where it has the worker to itself.
    pub(super) exclusive: Option<u64>,
    /// Number of them that have a thread.
    pub(super) threads: usize,
    /// Number of running calls that were cancelled and do not end. They are not counted otherwise.
    pub(super) abandoned: usize,
    /// Time at which it was last heard of while cancelled calls were expected to end.
    pub(super) heard_at: Option<Instant>,
    /// Since when nothing was heard of it although it runs calls; `None` where that does not matter.
    pub(super) quiet_since: Option<Instant>,
    /// True if it was asked whether it is there, and has not answered that.
    pub(super) is_asked: bool,
    /// Frames that are not written yet.
    pub(super) outbox: BytesMut,
    /// True if a signal is due once the outbox is written.
    pub(super) interrupt: bool,
    /// Cancelled calls and when they have to have ended; earliest first.
    pub(super) expiring: VecDeque<(Instant, u64)>,
    /// True if it has answered any call.
    pub(super) has_answered: bool,
    /// The calls that it answered last and the requests that they were.
    pub(super) recent: VecDeque<(u64, Arc<str>)>,
    pub(super) bells: Arc<Bells>,
}

/// Notifications for the tasks that serve one worker.
#[derive(Debug, Default)]
pub(super) struct Bells {
    /// There is something to write, or to send a signal for.
    pub(super) outgoing: Notify,
    /// The calls that have to end soon are others than before.
    pub(super) expiring: Notify,
    /// Notified when its last call has ended.
    pub(super) idle: Notify,
}

impl Seat {
    pub(super) fn remember(&mut self, id: u64, request: Arc<str>) {
        if self.recent.len() == MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((id, request));
    }

    /// Returns true if it runs calls and has been silent for some time.
    pub(super) fn is_silent(&self, now: Option<Instant>) -> bool {
        let quiet = now
            .zip(self.quiet_since)
            .map(|(now, since)| now.saturating_duration_since(since));
        quiet.is_some_and(|quiet| SILENCE < quiet)
    }

    /// Asks whether it is there, unless it was asked already.
    pub(super) fn ask(&mut self) {
        if !self.is_asked {
            self.is_asked = true;
            put_ping(&mut self.outbox);
            self.bells.outgoing.notify_one();
        }
    }

    pub(super) fn has_room(&self, max_concurrent: usize) -> bool {
        self.exclusive.is_none() && self.running < max_concurrent && self.outbox.len() < MAX_OUTBOX
    }
}

/// Worker for an asynchronous call: the first that has few calls, so that few calls share one; else
/// the one that has the fewest. Silent workers come after all others: an asynchronous handler that
/// blocks its loop holds up every other call there.
pub(super) fn for_asynchronous<'a>(
    seats: impl Iterator<Item = (usize, &'a Seat)>,
    max_concurrent: usize,
    now: Option<Instant>,
) -> Option<usize> {
    seats
        .filter(|(_, seat)| seat.has_room(max_concurrent))
        .min_by_key(|(_, seat)| {
            let is_silent = seat.is_silent(now);
            let is_few = !is_silent && seat.running < FEW;
            let many = if is_few { 0 } else { seat.running };
            (is_silent, many, seat.slot)
        })
        .map(|(at, _)| at)
}

/// Rank of a worker for a synchronous call: the one with the fewest calls, from the last one down, so that it
/// meets as few asynchronous ones as possible. Those beyond the first `base` come when the others have some calls
/// each, so that they are idle when they are not needed. Silent workers come after all others.
fn rank(seat: &Seat, base: usize, now: Option<Instant>) -> (bool, usize, Reverse<usize>) {
    let head_start = if seat.slot < base { 0 } else { FEW };
    let calls = seat.running + head_start;
    (seat.is_silent(now), calls, Reverse(seat.slot))
}

/// Worker for a synchronous call that has it to itself. With `keep_one`, the last worker that runs no synchronous call
/// is left to the asynchronous ones.
pub(super) fn for_synchronous<'a>(
    seats: impl Iterator<Item = (usize, &'a Seat)>,
    max_concurrent: usize,
    (base, keep_one): (usize, bool),
    now: Option<Instant>,
) -> Option<usize> {
    let mut free = 0;
    let best = seats
        .filter(|(_, seat)| seat.exclusive.is_none())
        .inspect(|_| free += 1)
        .filter(|(_, seat)| seat.has_room(max_concurrent))
        .min_by_key(|(_, seat)| rank(seat, base, now))
        .map(|(at, _)| at);
    best.filter(|_| !keep_one || 1 < free)
}

/// Worker for a synchronous call that gets a thread.
pub(super) fn for_thread<'a>(
    seats: impl Iterator<Item = (usize, &'a Seat)>,
    (max_concurrent, max_threads): (usize, usize),
    base: usize,
    now: Option<Instant>,
) -> Option<usize> {
    seats
        .filter(|(_, seat)| seat.threads < max_threads && seat.has_room(max_concurrent))
        .min_by_key(|(_, seat)| rank(seat, base, now))
        .map(|(at, _)| at)
}
