//! Scheduler of calls: which worker runs each, and when.

mod asking;
mod breaker;
mod place;
mod queue;
mod seat;

pub(super) use self::place::{Blame, Left, Place, Requests};

use self::{asking::Asking, breaker::Breaker, queue::Queue, seat::Seat};
use super::{
    PythonOptions,
    frames::{CallFrame, TooLarge, put_call, put_cancel},
};
use crate::{Question, Repeat, ToolCx, ToolError, ToolOutput};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, HashMap},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

/// Multiple of what is left that a principal may have, of threads and of places in the line.
const SHARE: usize = 3;

/// Time after which to retry a call that was refused because too many wait.
pub(super) const BUSY: Duration = Duration::from_secs(1);

/// Answer to a call.
pub(super) type Answer = Result<ToolOutput, ToolError>;

/// All calls of one application: those that wait and those that its workers run.
///
/// Calls begin in the order in which they came, except that none waits for what only those before it
/// wait for. Asynchronous handlers run beside each other, and so do synchronous ones, in threads. A
/// principal may have three times as many threads as are left: whatever its calls wait for, there is a
/// thread for the next principal.
///
/// With one thread a worker, a synchronous handler runs on its main thread: nothing else is begun there
/// meanwhile. It does not wait for asynchronous ones to end: they may take minutes, and OwlClaw itself does
/// not either. Of several workers one is always left to asynchronous calls, if the application has any.
///
/// A cancelled call whose handler does not end in time is abandoned, as long as its worker answers: nobody
/// waits for it, and it holds no place any more. A worker that does not answer is killed.
///
/// An asynchronous handler that blocks instead of awaiting holds up its whole worker, and nothing says
/// so. Hence a worker that runs calls and is silent for some time gets further ones only where there is
/// no other, until it answers the question whether it is there.
#[derive(Debug)]
pub(super) struct Scheduler {
    state: Mutex<State>,
    grace: Duration,
    /// True if there are, or can be, other workers where one is silent.
    is_pool: bool,
    /// Number of workers from the start. Those in later slots are there while they are needed.
    base: usize,
    /// Time that calls wait before a further worker is started; `None` if there can be none.
    patience: Option<Duration>,
    /// Notified when calls may have to wait.
    short: Notify,
    max_concurrent: usize,
    max_waiting: usize,
    max_waiting_bytes: usize,
    /// Tells handlers that wait here from those of another process.
    process: Box<str>,
}

/// A call to be made.
pub(super) struct Call {
    pub(super) kind: Kind,
    pub(super) name: Arc<str>,
    pub(super) is_async: bool,
    pub(super) arguments: Bytes,
    pub(super) cx: ToolCx,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// Subject of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A handler.
    Tool,
    /// The provider of a state, which gets no arguments.
    State,
    /// The reader of a resource, or of a family of them.
    Resource,
    /// A prompt.
    Prompt,
    /// The function that suggests values of an argument.
    Completion,
}

impl Kind {
    /// The type of the frame that asks for it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "call",
            Self::State => "state",
            Self::Resource => "resource",
            Self::Prompt => "prompt",
            Self::Completion => "completion",
        }
    }
}

/// Handler or state that is held responsible for the end of a worker.
type Key = (Kind, Arc<str>);

#[derive(Default)]
struct State {
    is_stopped: bool,
    last_id: u64,
    queue: Queue,
    /// Time since which there was always a call that waited; known where further workers can be started.
    waiting_since: Option<Instant>,
    running: HashMap<u64, Running>,
    /// The workers; the place of one that is gone is free for another.
    seats: Vec<Option<Seat>>,
    /// Generation whose workers get new calls.
    generation: u64,
    /// True if that generation has asynchronous handlers.
    has_async: bool,
    /// Number of synchronous handlers that each of its workers runs at once.
    threads: usize,
    /// Number of threads of each principal.
    held: HashMap<Arc<str>, usize>,
    /// Workers of that generation that exist or will soon again, a bit for each slot.
    settled: u64,
    breaker: Breaker,
    /// Running calls whose handlers wait for answers of the client.
    asking: HashMap<u64, Asking>,
    last_round: u64,
}

struct Running {
    key: Key,
    seat: usize,
    /// True if it has a thread of its own.
    has_thread: bool,
    /// True if it was cancelled and did not end in time.
    is_abandoned: bool,
    /// True while it waits for answers of the client. It is not counted meanwhile.
    is_asking: bool,
    /// True from its question until a call brings the answers: no call has what it meters.
    is_unanswered: bool,
    /// Questions that the client cannot be asked.
    refused: BTreeMap<String, Question>,
    cx: ToolCx,
    /// `None` once nobody waits any more.
    answer: Option<oneshot::Sender<Answer>>,
}

impl Running {
    /// Returns true if it holds a thread that another call could have.
    fn holds_thread(&self) -> bool {
        self.has_thread && !self.is_abandoned && !self.is_asking
    }
}

impl Scheduler {
    pub(super) fn new(options: &PythonOptions) -> Self {
        Self {
            state: Mutex::default(),
            grace: options.grace,
            is_pool: 1 < options.max_workers(),
            base: options.workers(),
            patience: (options.workers() < options.max_workers()).then_some(options.start_after),
            short: Notify::new(),
            max_concurrent: options.max_concurrent.max(1),
            max_waiting: options.max_waiting,
            max_waiting_bytes: options.max_waiting_bytes,
            process: uuid::Uuid::new_v4().simple().to_string().into(),
        }
    }

    /// Puts a call in line and says what it is known by from now on.
    pub(super) fn submit(&self, call: Call) -> Result<u64, ToolError> {
        let mut state = self.lock();
        if state.is_stopped {
            return Err(stopped(Repeat::Safe));
        }
        let bytes = state.queue.bytes().saturating_add(call.arguments.len());
        let is_full = self.max_waiting <= state.queue.len() || self.max_waiting_bytes < bytes;
        if is_full {
            // Calls that can begin at once pass through an empty line, whatever their size.
            let is_first = match call.is_async {
                true => state.queue.first_asynchronous().is_none(),
                false => {
                    let principal = &*call.cx.principal;
                    state.queue.of(principal) == 0 && has_share(&state, principal)
                }
            };
            if !is_first || self.seat_for(&state, call.is_async, self.now()).is_none() {
                return Err(ToolError::Busy { retry_after: BUSY });
            }
        } else if !call.is_async && 1 < state.threads {
            // Nobody fills the line alone: there is room for the next principal.
            let left = self.max_waiting - state.queue.len();
            if SHARE * left <= state.queue.of(&call.cx.principal) {
                return Err(ToolError::Busy { retry_after: BUSY });
            }
        }
        let id = state.last_id + 1;
        if !state.breaker.is_empty() {
            let key = (call.kind, Arc::clone(&call.name));
            let admitted = state.breaker.admit(&key, id, Instant::now());
            admitted.map_err(|retry_after| ToolError::Suspended { retry_after })?;
        }
        state.last_id = id;
        state.queue.push(id, call);
        self.begin_what_can(&mut state);
        Ok(id)
    }

    /// Gives up a call: takes it out of the queue or has its worker cancel it.
    pub(super) fn abandon(&self, id: u64) {
        let mut state = self.lock();
        let State { queue, breaker, .. } = &mut *state;
        if let Some(call) = queue.remove(id) {
            breaker.withdrawn(&(call.kind, call.name), id);
            self.note_waiting(&mut state);
            return;
        }
        let call = state.running.get_mut(&id);
        if call.is_some_and(|call| call.answer.take().is_some()) {
            cancel(&mut state, id, self.grace);
        }
    }

    /// From now on, this generation's workers get the calls; what others run they go on with.
    pub(super) fn switch_to(&self, generation: u64, has_async: bool, threads: usize) {
        let mut state = self.lock();
        state.generation = generation;
        state.has_async = has_async;
        state.threads = threads;
        let settled = state.seats.iter().flatten();
        let settled = settled.filter(|seat| seat.generation == generation && !seat.is_closed);
        state.settled = settled.fold(0, |bits, seat| bits | bit(seat.slot));
        self.begin_what_can(&mut state);
    }

    /// There will be no such worker for some time: nothing waits for it any more.
    pub(super) fn is_missing(&self, generation: u64, slot: usize) {
        let mut state = self.lock();
        if state.generation == generation {
            state.settled &= !bit(slot);
            self.begin_what_can(&mut state);
        }
    }

    /// Returns when this generation needs a further worker: calls have waited, or all of its workers that could
    /// take one have not answered, for so long.
    pub(super) async fn runs_short(&self, generation: u64) {
        loop {
            let mut notified = pin!(self.short.notified());
            notified.as_mut().enable();
            match self.short_in(generation) {
                Some(Duration::ZERO) => return,
                Some(left) => tokio::time::sleep(left).await,
                None => notified.await,
            }
        }
    }

    /// Time until this generation needs a further worker, if nothing changes; `None` if it does not.
    fn short_in(&self, generation: u64) -> Option<Duration> {
        let patience = self.patience?;
        let state = self.lock();
        if state.is_stopped || state.generation != generation {
            return None;
        }
        let now = Instant::now();
        let since = state.waiting_since.or_else(|| {
            let open = current(&state).filter(|(_, seat)| seat.has_room(self.max_concurrent));
            // The one that was heard of last decides.
            open.map(|(_, seat)| seat.quiet_since.filter(|_| seat.is_asked))
                .reduce(|one, other| Some(one?.max(other?)))?
        });
        Some(patience.saturating_sub(now.saturating_duration_since(since?)))
    }

    /// Notes since when calls wait.
    fn note_waiting(&self, state: &mut State) {
        if self.patience.is_none() {
            return;
        }
        if state.queue.len() == 0 {
            state.waiting_since = None;
        } else if state.waiting_since.is_none() {
            state.waiting_since = Some(Instant::now());
            self.short.notify_waiters();
        }
    }

    /// Number of workers that take new calls.
    pub(super) fn ready(&self) -> usize {
        let state = self.lock();
        current(&state).count()
    }

    /// Number of calls that wait, and of those that run.
    pub(super) fn calls(&self) -> (usize, usize) {
        let state = self.lock();
        (state.queue.len(), state.running.len())
    }

    /// Handlers and states that are refused, and the time left for each.
    pub(super) fn tripped(&self) -> Vec<(Kind, Arc<str>, Duration)> {
        let state = self.lock();
        let tripped = state.breaker.tripped(Instant::now());
        tripped
            .map(|((kind, name), left)| (*kind, Arc::clone(name), left))
            .collect()
    }

    /// Forgives all handlers, because they are others now.
    pub(super) fn forgive(&self) {
        self.lock().breaker.forget();
    }

    /// There will be no worker for some time: those that wait have waited long enough.
    pub(super) fn refuse_waiting(&self, why: impl Fn() -> ToolError) {
        let mut state = self.lock();
        let State { queue, breaker, .. } = &mut *state;
        for (id, call) in queue.drain() {
            breaker.withdrawn(&(call.kind, call.name), id);
            let _ = call.answer.send(Err(why()));
        }
        self.note_waiting(&mut state);
    }

    /// There will be no worker any more. Everybody is told so; what runs is cancelled by those who
    /// serve its worker.
    pub(super) fn stop(&self) {
        {
            let mut state = self.lock();
            state.is_stopped = true;
            for call in state.running.values_mut() {
                if let Some(waiter) = call.answer.take() {
                    let _ = waiter.send(Err(stopped(Repeat::IfIdempotent)));
                }
            }
        }
        self.refuse_waiting(|| stopped(Repeat::Safe));
    }

    /// The time, where it matters to where calls go.
    fn now(&self) -> Option<Instant> {
        self.is_pool.then(Instant::now)
    }

    /// Worker that such a call would go to now.
    fn seat_for(&self, state: &State, is_async: bool, now: Option<Instant>) -> Option<usize> {
        let seats = current(state);
        if is_async {
            return seat::for_asynchronous(seats, self.max_concurrent, now);
        }
        if 1 < state.threads {
            let limits = (self.max_concurrent, state.threads);
            return seat::for_thread(seats, limits, self.base, now);
        }
        let keep_one = state.has_async && 1 < state.settled.count_ones();
        seat::for_synchronous(seats, self.max_concurrent, (self.base, keep_one), now)
    }

    /// Hands out calls that wait, as long as they may begin.
    fn begin_what_can(&self, state: &mut State) {
        if state.queue.len() != 0 {
            self.hand_out(state);
        }
        self.note_waiting(state);
    }

    fn hand_out(&self, state: &mut State) {
        let now = self.now();
        loop {
            let next = |is_async| {
                let id = match is_async {
                    true => state.queue.first_asynchronous()?,
                    false => state.queue.first_synchronous(|who| has_share(state, who))?,
                };
                let seat = self.seat_for(state, is_async, now)?;
                Some((id, seat))
            };
            let (asynchronous, synchronous) = (next(true), next(false));
            let next = match (asynchronous, synchronous) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            let Some((id, seat)) = next else {
                return;
            };
            let Some(call) = state.queue.remove(id) else {
                return;
            };
            self.ask_who_is_silent(state, now);
            begin(state, id, call, seat, now);
        }
    }

    /// Asks those whether they are there whom a call may be passing by. Those that run a synchronous
    /// call could not answer.
    fn ask_who_is_silent(&self, state: &mut State, now: Option<Instant>) {
        let generation = state.generation;
        for seat in state.seats.iter_mut().flatten() {
            let is_current = seat.generation == generation && !seat.is_closed;
            if is_current && seat.is_silent(now) && seat.has_room(self.max_concurrent) {
                seat.ask();
                if self.patience.is_some() {
                    self.short.notify_waiters();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic happens between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The workers that may get calls.
fn current(state: &State) -> impl Iterator<Item = (usize, &Seat)> {
    let seats = state.seats.iter().enumerate();
    seats
        .filter_map(|(at, seat)| Some((at, seat.as_ref()?)))
        .filter(|(_, seat)| seat.generation == state.generation && !seat.is_closed)
}

/// Returns true if a principal may have another thread: where each call has one, it has less than three times as
/// many as are left.
fn has_share(state: &State, principal: &str) -> bool {
    if state.threads < 2 {
        return true;
    }
    let left: usize = current(state)
        .map(|(_, seat)| state.threads.saturating_sub(seat.threads))
        .sum();
    let held = state.held.get(principal).copied().unwrap_or(0);
    held < SHARE * left
}

/// Gives back the thread of a call.
fn give_back(held: &mut HashMap<Arc<str>, usize>, seat: Option<&mut Seat>, principal: &Arc<str>) {
    if let Some(seat) = seat {
        seat.threads -= 1;
    }
    if let Some(count) = held.get_mut(principal) {
        *count -= 1;
        if *count == 0 {
            held.remove(principal);
        }
    }
}

fn bit(slot: usize) -> u64 {
    u32::try_from(slot)
        .ok()
        .and_then(|slot| 1_u64.checked_shl(slot))
        .unwrap_or(0)
}

/// Has the worker end a call that nobody waits for.
fn cancel(state: &mut State, id: u64, grace: Duration) {
    let State { running, seats, .. } = state;
    let Some(call) = running.get_mut(&id) else {
        return;
    };
    call.cx.meter().cancel();
    if let Some(Some(seat)) = seats.get_mut(call.seat) {
        put_cancel(&mut seat.outbox, id);
        if seat.exclusive.is_none() {
            // Its answer tells a handler that does not end from a worker that is stuck.
            seat.ask();
        }
        seat.interrupt = true;
        seat.expiring.push_back((Instant::now() + grace, id));
        seat.bells.outgoing.notify_one();
        seat.bells.expiring.notify_one();
    }
}

/// The frame of a call, with what is left of its time.
fn begin_frame<'a>(
    id: u64,
    name: &'a str,
    arguments: &'a [u8],
    cx: &'a ToolCx,
    now: Option<Instant>,
) -> CallFrame<'a> {
    let left = cx.deadline.map(|deadline| {
        let now = now.unwrap_or_else(Instant::now);
        Instant::from_std(deadline).saturating_duration_since(now)
    });
    CallFrame {
        id,
        name,
        arguments,
        client_id: &cx.principal,
        roles: cx.roles.as_deref().unwrap_or_default(),
        request_id: &cx.request_id,
        // Rounded up: to a handler that asks, no time left would look like too late.
        deadline_ms: left
            .map(|left| u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)),
        traceparent: cx.traceparent.as_deref(),
        session: cx.session.as_deref(),
        transport: cx.transport,
        headers: cx.headers.as_deref().map_or(&[], Vec::as_slice),
        tracestate: cx.tracestate.as_deref(),
        meta: cx.request_meta.as_deref().unwrap_or_default(),
    }
}

/// Puts a call into the outbox of a worker.
fn begin(state: &mut State, id: u64, call: Call, at: usize, now: Option<Instant>) {
    let refuse = |state: &mut State, call: Call, why| {
        state.breaker.withdrawn(&(call.kind, call.name), id);
        let _ = call.answer.send(Err(why));
    };
    let is_late = call.cx.deadline.is_some_and(|deadline| {
        let now = now.unwrap_or_else(Instant::now);
        Instant::from_std(deadline) <= now
    });
    if is_late {
        return refuse(state, call, ToolError::TimedOut);
    }
    let Some(Some(seat)) = state.seats.get_mut(at) else {
        return refuse(state, call, ToolError::broken("the worker is gone"));
    };
    let frame = begin_frame(id, &call.name, &call.arguments, &call.cx, now);
    let put = put_call(&mut seat.outbox, call.kind.as_str(), &frame);
    if let Err(TooLarge) = put {
        return refuse(
            state,
            call,
            ToolError::failed("the arguments are too large"),
        );
    }
    if seat.running == 0 {
        seat.quiet_since = now;
    }
    seat.running += 1;
    seat.begun += 1;
    let has_thread = !call.is_async && 1 < state.threads;
    if has_thread {
        seat.threads += 1;
        *state
            .held
            .entry(Arc::clone(&call.cx.principal))
            .or_default() += 1;
    } else if !call.is_async {
        seat.exclusive = Some(id);
    }
    seat.bells.outgoing.notify_one();
    let running = Running {
        key: (call.kind, call.name),
        seat: at,
        has_thread,
        is_abandoned: false,
        is_asking: false,
        is_unanswered: false,
        refused: BTreeMap::new(),
        cx: call.cx,
        answer: Some(call.answer),
    };
    state.running.insert(id, running);
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("generation", &self.generation)
            .field("waiting", &self.queue.len())
            .field("running", &self.running.len())
            .field("seats", &self.seats)
            .field("breaker", &self.breaker)
            .finish_non_exhaustive()
    }
}

fn stopped(repeat: Repeat) -> ToolError {
    ToolError::Crashed {
        message: "the server is shutting down".to_owned(),
        repeat,
        detail: String::new(),
    }
}

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;
