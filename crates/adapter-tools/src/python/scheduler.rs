use super::{
    PythonOptions,
    frames::{CallFrame, TooLarge, put_call, put_cancel},
};
use crate::{ToolCx, ToolError, ToolOutput};
use bytes::{Bytes, BytesMut};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

/// How much may be waiting to be written to a worker before no further call is put there, in bytes.
/// One call more than that fits, and the cancellations of what runs.
const MAX_OUTBOX: usize = 1024 * 1024;
/// When to try again after having been refused for too many waiting calls.
const BUSY: Duration = Duration::from_secs(1);

/// What a call is answered with.
pub(super) type Answer = Result<ToolOutput, ToolError>;

/// All calls of one application: those that wait and those that its worker runs.
///
/// Calls run in the order in which they came. Asynchronous handlers run beside each other; while a
/// synchronous one runs, nothing else is begun, since it holds the worker's only thread. It does not
/// wait for asynchronous ones to end: they may take minutes, and OwlClaw itself does not either.
#[derive(Debug)]
pub(super) struct Scheduler {
    state: Mutex<State>,
    /// There is something to write, or to send a signal for.
    outgoing: Notify,
    /// The calls that have to end soon are others than before.
    expiring: Notify,
    grace: Duration,
    max_concurrent: usize,
    max_waiting: usize,
    max_waiting_bytes: usize,
}

/// A call to be made.
pub(super) struct Call {
    pub(super) name: Arc<str>,
    pub(super) is_async: bool,
    pub(super) arguments: Bytes,
    pub(super) cx: ToolCx,
    pub(super) answer: oneshot::Sender<Answer>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    last_id: u64,
    /// Oldest first, and so by ascending id.
    waiting: VecDeque<(u64, Call)>,
    waiting_bytes: usize,
    running: HashMap<u64, Running>,
    /// The synchronous call that runs.
    exclusive: Option<u64>,
    /// Frames that are not written yet.
    outbox: BytesMut,
    /// Whether a signal is due once the outbox is written.
    interrupt: bool,
    /// Cancelled calls and when they have to have ended; earliest first.
    expiring: VecDeque<(Instant, u64)>,
    /// Whether the worker has answered any call.
    has_answered: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// There is no worker now, and there will be one.
    #[default]
    Absent,
    Present,
    Stopped,
}

struct Running {
    cx: ToolCx,
    /// `None` once nobody waits any more.
    answer: Option<oneshot::Sender<Answer>>,
}

/// Frames to be written, and whether a signal is to follow them.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) frames: BytesMut,
    pub(super) interrupt: bool,
}

impl Scheduler {
    pub(super) fn new(options: &PythonOptions) -> Self {
        Self {
            state: Mutex::default(),
            outgoing: Notify::new(),
            expiring: Notify::new(),
            grace: options.grace,
            max_concurrent: options.max_concurrent.max(1),
            max_waiting: options.max_waiting,
            max_waiting_bytes: options.max_waiting_bytes,
        }
    }

    /// Puts a call in line and says what it is known by from now on.
    pub(super) fn submit(&self, call: Call) -> Result<u64, ToolError> {
        let mut state = self.lock();
        if state.phase == Phase::Stopped {
            return Err(stopped());
        }
        let bytes = state.waiting_bytes.saturating_add(call.arguments.len());
        // Calls that can begin at once pass through an empty line, whatever their size.
        let is_full = self.max_waiting <= state.waiting.len() || self.max_waiting_bytes < bytes;
        if is_full && !(state.waiting.is_empty() && self.has_room(&state)) {
            return Err(ToolError::Busy { retry_after: BUSY });
        }
        state.last_id += 1;
        let id = state.last_id;
        state.waiting_bytes = bytes;
        state.waiting.push_back((id, call));
        self.begin_what_can(&mut state);
        Ok(id)
    }

    /// Nobody waits for the call any more: takes it out of the line or has the worker cancel it.
    pub(super) fn abandon(&self, id: u64) {
        let mut state = self.lock();
        if let Ok(at) = state.waiting.binary_search_by_key(&id, |(id, _)| *id) {
            let call = state.waiting.remove(at);
            let bytes = call.map_or(0, |(_, call)| call.arguments.len());
            state.waiting_bytes -= bytes;
            return;
        }
        let State {
            running,
            outbox,
            expiring,
            interrupt,
            ..
        } = &mut *state;
        let Some(call) = running.get_mut(&id) else {
            return;
        };
        if call.answer.take().is_some() {
            call.cx.meter().cancel();
            put_cancel(outbox, id);
            *interrupt = true;
            expiring.push_back((Instant::now() + self.grace, id));
            self.outgoing.notify_one();
            self.expiring.notify_one();
        }
    }

    /// The context of a running call, for what the worker says about it; `None` once nobody waits.
    pub(super) fn context(&self, id: u64) -> Option<ToolCx> {
        let state = self.lock();
        let call = state.running.get(&id)?;
        call.answer.is_some().then(|| call.cx.clone())
    }

    /// Does something with the meter of a running call, which costs whether or not anybody waits.
    pub(super) fn with_meter(&self, id: u64, add: impl FnOnce(&crate::CallMeter)) {
        if let Some(call) = self.lock().running.get(&id) {
            add(call.cx.meter());
        }
    }

    /// The worker has answered a call.
    pub(super) fn answered(&self, id: u64, answer: impl FnOnce() -> Answer) {
        let mut state = self.lock();
        let Some(call) = state.running.remove(&id) else {
            return;
        };
        state.has_answered = true;
        if state.exclusive == Some(id) {
            state.exclusive = None;
            // Whatever was cancelled meanwhile could not take note of it before now.
            let until = Instant::now() + self.grace;
            for (when, _) in &mut state.expiring {
                *when = until;
            }
            self.expiring.notify_one();
        }
        self.begin_what_can(&mut state);
        drop(state);
        if let Some(waiter) = call.answer {
            // It may have gone this very moment.
            let _ = waiter.send(answer());
        }
    }

    /// There is a worker, and it has nothing to do yet.
    pub(super) fn worker_is_there(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Absent {
            state.phase = Phase::Present;
            state.has_answered = false;
            self.begin_what_can(&mut state);
        }
    }

    /// The worker is gone and takes its calls with it; those that wait go on waiting. Says whether it
    /// had answered any call.
    pub(super) fn worker_is_gone(&self, why: impl Fn() -> ToolError) -> bool {
        let mut state = self.lock();
        if state.phase == Phase::Present {
            state.phase = Phase::Absent;
        }
        state.outbox.clear();
        state.interrupt = false;
        state.exclusive = None;
        state.expiring.clear();
        for (_, call) in state.running.drain() {
            if let Some(waiter) = call.answer {
                let _ = waiter.send(Err(why()));
            }
        }
        state.has_answered
    }

    /// There will be no worker for some time: those that wait have waited long enough.
    pub(super) fn refuse_waiting(&self, why: impl Fn() -> ToolError) {
        let mut state = self.lock();
        state.waiting_bytes = 0;
        for (_, call) in state.waiting.drain(..) {
            let _ = call.answer.send(Err(why()));
        }
    }

    /// There will be no worker any more. Says which calls it was running.
    pub(super) fn stop(&self) -> Vec<u64> {
        let running = {
            let mut state = self.lock();
            state.phase = Phase::Stopped;
            state.running.keys().copied().collect()
        };
        self.worker_is_gone(stopped);
        self.refuse_waiting(stopped);
        running
    }

    /// What is to be written next, as soon as there is something.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(super) async fn next_outgoing(&self) -> Outgoing {
        loop {
            {
                let mut state = self.lock();
                // There may be room now for calls that waited for nothing else.
                self.begin_what_can(&mut state);
                let frames = state.outbox.split();
                let interrupt = std::mem::take(&mut state.interrupt);
                if !frames.is_empty() || interrupt {
                    return Outgoing { frames, interrupt };
                }
            }
            self.outgoing.notified().await;
        }
    }

    /// Returns when a cancelled call has not ended in time.
    pub(super) async fn expired(&self) {
        loop {
            let next = self.next_expiring();
            let sleep = async {
                match next {
                    Some(when) => tokio::time::sleep_until(when).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => {
                    if self.next_expiring().is_some_and(|when| when <= Instant::now()) {
                        return;
                    }
                }
                () = self.expiring.notified() => {}
            }
        }
    }

    /// Whether a call was cancelled and has not ended yet.
    pub(super) fn has_cancelled_calls(&self) -> bool {
        self.next_expiring().is_some()
    }

    /// When the first of the cancelled calls has to have ended.
    fn next_expiring(&self) -> Option<Instant> {
        let mut state = self.lock();
        let State {
            expiring,
            running,
            exclusive,
            ..
        } = &mut *state;
        expiring.retain(|(_, id)| running.contains_key(id));
        match exclusive {
            // The others cannot end before this one does.
            Some(id) => expiring
                .iter()
                .find(|(_, other)| other == id)
                .map(|(when, _)| *when),
            None => expiring.front().map(|(when, _)| *when),
        }
    }

    fn has_room(&self, state: &State) -> bool {
        state.phase == Phase::Present
            && state.exclusive.is_none()
            && state.running.len() < self.max_concurrent
            && state.outbox.len() < MAX_OUTBOX
    }

    /// Puts calls that wait into the outbox, as long as they may begin.
    fn begin_what_can(&self, state: &mut State) {
        while self.has_room(state) {
            let Some((id, call)) = state.waiting.pop_front() else {
                break;
            };
            state.waiting_bytes -= call.arguments.len();
            let left = call.cx.deadline.map(|deadline| {
                Instant::from_std(deadline).saturating_duration_since(Instant::now())
            });
            if left.is_some_and(|left| left.is_zero()) {
                let _ = call.answer.send(Err(ToolError::TimedOut));
                continue;
            }
            let frame = CallFrame {
                id,
                name: &call.name,
                arguments: &call.arguments,
                client_id: &call.cx.principal,
                request_id: &call.cx.request_id,
                // Rounded up: to a handler that asks, no time left would look like too late.
                deadline_ms: left
                    .map(|left| u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)),
                traceparent: call.cx.traceparent.as_deref(),
            };
            if let Err(TooLarge) = put_call(&mut state.outbox, &frame) {
                let _ = call
                    .answer
                    .send(Err(ToolError::failed("the arguments are too large")));
                continue;
            }
            if !call.is_async {
                state.exclusive = Some(id);
            }
            state.running.insert(
                id,
                Running {
                    cx: call.cx,
                    answer: Some(call.answer),
                },
            );
        }
        if !state.outbox.is_empty() {
            self.outgoing.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic happens between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("phase", &self.phase)
            .field("waiting", &self.waiting.len())
            .field("running", &self.running.len())
            .field("exclusive", &self.exclusive)
            .finish_non_exhaustive()
    }
}

fn stopped() -> ToolError {
    ToolError::Crashed {
        message: "the server is shutting down".to_owned(),
        retryable: true,
        detail: String::new(),
    }
}

#[cfg(test)]
mod tests;
