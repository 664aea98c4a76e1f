//! Queue for the database: requests whose callers wait, and endings.

use crate::{error::RequestError, request::Request};
use governance::{Micros, Remaining, ReserveError, UnavailableError};
use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{Notify, oneshot};

/// The most requests in one transaction.
pub(crate) const MAX_REQUESTS: usize = 128;

/// The most endings in one transaction.
pub(crate) const MAX_ENDINGS: usize = 512;

/// Settles what is on record.
pub(crate) const SETTLE_ALL: &str = "SELECT owlclaw_quota_settle_all($1)";

/// Most principals that are settled at once.
pub(crate) const MAX_SETTLED: i32 = 200;

/// Answer to a caller.
pub(crate) type Answer = Result<(Option<Undelivered>, Remaining), ReserveError>;

/// A request whose caller waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The reservation's name within the node; `None` for a question that reserves nothing.
    pub(crate) sequence: Option<i64>,
    pub(crate) request: Request,
    pub(crate) deadline: Instant,
    /// True if it was sent before and its outcome is unknown.
    pub(crate) is_uncertain: bool,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// A reservation that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) sequence: i64,
    pub(crate) principal: Arc<str>,
    pub(crate) how: Ended,
}

/// End of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The call's cost.
    Cost(Micros),
    /// The whole reservation is given back.
    Released,
    /// The record of the call's end says what it cost, or will.
    OnRecord,
}

/// A call counted in PostgreSQL. One that is dropped has ended at what it was expected to cost.
pub struct PostgresReservation {
    queue: Arc<Queue>,
    pub(crate) node: i64,
    pub(crate) sequence: i64,
    pub(crate) principal: Arc<str>,
    cost: Micros,
    has_ended: bool,
}

impl PostgresReservation {
    pub(crate) fn new(
        queue: Arc<Queue>,
        (node, sequence): (i64, i64),
        principal: Arc<str>,
        cost: Micros,
    ) -> Self {
        Self {
            queue,
            node,
            sequence,
            principal,
            cost,
            has_ended: false,
        }
    }

    pub(crate) fn end(mut self, how: Ended) {
        self.put_end(how);
    }

    fn put_end(&mut self, how: Ended) {
        if !self.has_ended {
            self.has_ended = true;
            self.queue.end(Ending {
                sequence: self.sequence,
                principal: Arc::clone(&self.principal),
                how,
            });
        }
    }
}

impl Drop for PostgresReservation {
    fn drop(&mut self) {
        let cost = self.cost;
        self.put_end(Ended::Cost(cost));
    }
}

impl fmt::Debug for PostgresReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresReservation")
            .field("sequence", &self.sequence)
            .field("principal", &self.principal)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

/// A reservation on its way to its caller. One that does not arrive is released.
#[derive(Debug)]
pub(crate) struct Undelivered(Option<PostgresReservation>);

impl Undelivered {
    pub(crate) fn new(reservation: PostgresReservation) -> Self {
        Self(Some(reservation))
    }

    pub(crate) fn deliver(mut self) -> Option<PostgresReservation> {
        self.0.take()
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let Some(reservation) = self.0.take() {
            reservation.end(Ended::Released);
        }
    }
}

/// Content of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) requests: Vec<Waiting>,
    pub(crate) endings: Vec<Ending>,
}

impl Work {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.endings.is_empty()
    }

    /// Earliest time at which one of its callers wants an answer.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.requests.iter().map(|waiting| waiting.deadline).min()
    }
}

/// Shared by callers, reservations and the thread that talks to the database. Nothing is done
/// while it is locked but moving things.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Wakes the thread.
    wake: Notify,
    max_open: usize,
    max_wait: Duration,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Waiting>,
    endings: VecDeque<Ending>,
    /// Reservations from the moment they are asked for until the database has their ending.
    open: usize,
    last_sequence: i64,
    /// The database has been away for so long that waiting for it is no use.
    is_away: bool,
    closed: Option<Instant>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Queue")
            .field("requests", &state.requests.len())
            .field("endings", &state.endings.len())
            .field("open", &state.open)
            .field("is_away", &state.is_away)
            .finish_non_exhaustive()
    }
}

impl Queue {
    pub(crate) fn new(max_open: usize, max_wait: Duration) -> Self {
        Self {
            state: Mutex::default(),
            wake: Notify::new(),
            max_open,
            max_wait,
        }
    }

    /// Puts a request in, to reserve or only to ask.
    pub(crate) fn ask(
        &self,
        request: Request,
        reserves: bool,
    ) -> Result<oneshot::Receiver<Answer>, RequestError> {
        let (answer, receiver) = oneshot::channel();
        let deadline = Instant::now() + self.max_wait;
        let mut state = self.lock();
        if state.closed.is_some() {
            return Err(RequestError::Closed);
        }
        if state.is_away {
            return Err(RequestError::Away);
        }
        let is_full = match reserves {
            true => self.max_open <= state.open,
            false => self.max_open <= state.requests.len(),
        };
        if is_full {
            return Err(RequestError::Full {
                max_open: self.max_open,
            });
        }
        let sequence = reserves.then(|| {
            state.open += 1;
            state.last_sequence += 1;
            state.last_sequence
        });
        state.requests.push_back(Waiting {
            sequence,
            request,
            deadline,
            is_uncertain: false,
            answer,
        });
        drop(state);
        self.wake.notify_one();
        Ok(receiver)
    }

    /// Puts an ending in. It has its place already.
    pub(crate) fn end(&self, ending: Ending) {
        self.lock().endings.push_back(ending);
        self.wake.notify_one();
    }

    /// Ready when there may be something to do.
    pub(crate) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Takes what the next transaction is to do. Callers that have gone or whose time is up get
    /// none of it.
    pub(crate) fn take(&self, now: Instant) -> Work {
        let mut state = self.lock();
        let mut work = Work::default();
        let endings = state.endings.len().min(MAX_ENDINGS);
        work.endings.extend(state.endings.drain(..endings));
        let mut late = Vec::new();
        while work.requests.len() < MAX_REQUESTS
            && let Some(waiting) = state.requests.pop_front()
        {
            if waiting.answer.is_closed() || waiting.deadline <= now {
                late.push(waiting);
            } else {
                work.requests.push(waiting);
            }
        }
        self.give_up(state, late);
        work
    }

    /// Refuses callers whose time is up; returns the time at which the next one's will be.
    pub(crate) fn expire(&self, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        let (late, rest): (VecDeque<_>, VecDeque<_>) = state
            .requests
            .drain(..)
            .partition(|waiting| waiting.answer.is_closed() || waiting.deadline <= now);
        state.requests = rest;
        let next = state.requests.iter().map(|waiting| waiting.deadline).min();
        self.give_up(state, late);
        next
    }

    /// Refuses all waiting callers.
    pub(crate) fn turn_away(&self) {
        let mut state = self.lock();
        let all = std::mem::take(&mut state.requests);
        self.give_up(state, all);
    }

    fn give_up(&self, mut state: MutexGuard<'_, State>, late: impl IntoIterator<Item = Waiting>) {
        let late: Vec<_> = late
            .into_iter()
            .map(|waiting| {
                match waiting.sequence {
                    Some(sequence) if waiting.is_uncertain => state.endings.push_back(Ending {
                        sequence,
                        principal: Arc::clone(&waiting.request.principal),
                        how: Ended::Released,
                    }),
                    Some(_) => state.open -= 1,
                    None => {}
                }
                waiting.answer
            })
            .collect();
        drop(state);
        for answer in late {
            let _ = answer.send(Err(unavailable(RequestError::Late)));
        }
    }

    /// Puts back what a transaction was to do that may or may not have been carried out.
    pub(crate) fn put_back(&self, work: Work, is_uncertain: bool) {
        let mut state = self.lock();
        for ending in work.endings.into_iter().rev() {
            state.endings.push_front(ending);
        }
        for mut waiting in work.requests.into_iter().rev() {
            waiting.is_uncertain |= is_uncertain;
            state.requests.push_front(waiting);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Frees the places of reservations that are no more, or never were.
    pub(crate) fn free(&self, places: usize) {
        self.lock().open -= places;
    }

    /// Sets whether callers are refused at once.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.lock().is_away = is_away;
    }

    pub(crate) fn is_away(&self) -> bool {
        self.lock().is_away
    }

    /// Refuses further callers.
    pub(crate) fn close(&self) {
        self.lock().closed.get_or_insert_with(Instant::now);
        self.wake.notify_one();
    }

    /// Since when, if it is closed.
    pub(crate) fn closed(&self) -> Option<Instant> {
        self.lock().closed
    }

    /// Locks the state. A poisoned lock is used all the same: no change is half done at any
    /// statement that could panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Use cannot be counted, for this reason.
pub(crate) fn unavailable(error: RequestError) -> ReserveError {
    ReserveError::Unavailable(UnavailableError(Box::new(error)))
}
