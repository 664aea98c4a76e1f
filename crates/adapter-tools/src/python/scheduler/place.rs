//! The scheduler as those see it who serve one worker.

use super::{
    Answer, Key, Running, Scheduler, State, bit,
    breaker::Suspicion,
    give_back,
    seat::{Bells, MAX_ABANDONED, Seat},
    stopped,
};
use crate::{CallMeter, Question, Repeat, ToolCx, ToolError};
use bytes::BytesMut;
use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The place of one worker. Whatever it still runs is answered when this is dropped.
#[derive(Debug)]
pub(in super::super) struct Place {
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) at: usize,
    bells: Arc<Bells>,
    /// Handlers and states seen to be stuck when it was closed.
    stuck: Vec<Key>,
    is_left: bool,
}

/// Frames to be written, and whether a signal is to follow them.
#[derive(Debug)]
pub(in super::super) struct Outgoing {
    pub(in super::super) frames: BytesMut,
    pub(in super::super) interrupt: bool,
}

/// Calls of a lost worker that may be to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Blame {
    /// None of them: the worker was not wanted any more, or was lost by no fault of its own.
    Nobody,
    /// Calls that were cancelled and did not end.
    Stuck,
    /// All of them; but a synchronous one had the worker to itself.
    Everybody,
}

/// Remains of a worker that is gone.
#[derive(Debug, Default)]
pub(in super::super) struct Left {
    /// True if it had answered any call.
    pub(in super::super) had_answered: bool,
    /// The calls that it was running.
    pub(in super::super) running: Vec<u64>,
    /// Handlers and states that are refused from now on because of this loss, and the time for
    /// each.
    pub(in super::super) tripped: Vec<(Arc<str>, Duration)>,
}

impl Scheduler {
    /// There is a worker, and it has nothing to do yet.
    pub(in super::super) fn sit(self: &Arc<Self>, generation: u64, slot: usize) -> Place {
        let mut state = self.lock();
        let seat = Seat {
            generation,
            slot,
            ..Seat::default()
        };
        let bells = Arc::clone(&seat.bells);
        let at = match state.seats.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                state.seats.push(None);
                state.seats.len() - 1
            }
        };
        state.seats[at] = Some(seat);
        if state.generation == generation {
            state.settled |= bit(slot);
            // What it does not take has waited for it alone so far.
            state.waiting_since = None;
        }
        self.begin_what_can(&mut state);
        drop(state);
        Place {
            scheduler: Arc::clone(self),
            at,
            bells,
            stuck: Vec::new(),
            is_left: false,
        }
    }
}

impl Place {
    /// Next output for the worker, as soon as there is some.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(in super::super) async fn next_outgoing(&self) -> Outgoing {
        loop {
            {
                let mut state = self.scheduler.lock();
                // There may be room now for calls that waited for nothing else.
                self.scheduler.begin_what_can(&mut state);
                if let Some(seat) = self.seat(&mut state) {
                    let frames = seat.outbox.split();
                    let interrupt = std::mem::take(&mut seat.interrupt);
                    if !frames.is_empty() || interrupt {
                        return Outgoing { frames, interrupt };
                    }
                }
            }
            self.bells.outgoing.notified().await;
        }
    }

    /// The worker has answered a call.
    pub(in super::super) fn answered(&self, id: u64, answer: impl FnOnce() -> Answer) {
        let mut state = self.scheduler.lock();
        if self.running(&mut state, id).is_none() {
            return;
        }
        let Some(call) = state.running.remove(&id) else {
            return;
        };
        // It has ended while its question was open: nobody waits for it.
        state.asking.remove(&id);
        if call.is_unanswered && !call.cx.is_cancelled() {
            // Of one that was given up nothing is told but what it has cost.
            let note = "the handler has ended without the answers that it had asked for";
            call.cx.meter().note(note.to_owned());
        }
        if !state.breaker.is_empty() {
            state.breaker.answered(&call.key, id);
        }
        let holds_thread = call.holds_thread();
        let principal = Arc::clone(&call.cx.principal);
        if let Some(seat) = self.seat(&mut state) {
            seat.has_answered = true;
            if call.is_abandoned {
                seat.abandoned -= 1;
            } else if !call.is_asking {
                seat.running -= 1;
            }
            seat.quiet_since = match seat.running {
                0 => None,
                _ => self.scheduler.now(),
            };
            if !seat.expiring.is_empty() {
                seat.heard_at = Some(Instant::now());
            }
            seat.remember(id, call.cx.request_id.clone());
            if seat.exclusive == Some(id) {
                seat.exclusive = None;
                // Whatever was cancelled meanwhile could not take note of it before now.
                let until = Instant::now() + self.scheduler.grace;
                for (when, _) in &mut seat.expiring {
                    *when = until;
                }
                seat.bells.expiring.notify_one();
            }
            if seat.running == 0 {
                seat.bells.idle.notify_waiters();
            }
        }
        if holds_thread {
            let State { seats, held, .. } = &mut *state;
            let seat = seats.get_mut(self.at).and_then(Option::as_mut);
            give_back(held, seat, &principal);
        }
        self.scheduler.begin_what_can(&mut state);
        drop(state);
        if let Some(waiter) = call.answer {
            // It may have gone this very moment.
            let _ = waiter.send(answer());
        }
    }

    /// The worker has said something else than an answer; `is_there`, if it is what it was asked for.
    pub(in super::super) fn heard(&self, is_there: bool) {
        let now = self.scheduler.now();
        if let Some(seat) = self.seat(&mut self.scheduler.lock()) {
            let is_answer = seat.is_asked && is_there;
            seat.is_asked &= !is_there;
            if is_answer && !seat.expiring.is_empty() {
                seat.heard_at = Some(Instant::now());
            }
            if 0 < seat.running {
                seat.quiet_since = now;
            }
        }
    }

    /// The context of a running call, for what the worker says about it; `None` once nobody waits.
    pub(in super::super) fn context(&self, id: u64) -> Option<ToolCx> {
        let mut state = self.scheduler.lock();
        let call = self.running(&mut state, id)?;
        call.answer.is_some().then(|| call.cx.clone())
    }

    /// Does something with the meter of a running call, which costs whether or not anybody waits. Returns
    /// whether there is such a call.
    pub(in super::super) fn with_meter(&self, id: u64, add: impl FnOnce(&CallMeter)) -> bool {
        match self.running(&mut self.scheduler.lock(), id) {
            Some(call) => {
                add(call.cx.meter());
                true
            }
            None => false,
        }
    }

    /// The context of a running call that asks for something of the server's, and the way back to it.
    pub(in super::super) fn asks_server(&self, id: u64) -> Option<(ToolCx, Arc<Scheduler>)> {
        Some((self.context(id)?, Arc::clone(&self.scheduler)))
    }

    /// Questions of a running call that its client cannot be asked.
    pub(in super::super) fn refused(&self, id: u64) -> BTreeMap<String, Question> {
        let mut state = self.scheduler.lock();
        let call = self.running(&mut state, id);
        call.map(|call| std::mem::take(&mut call.refused))
            .unwrap_or_default()
    }

    /// Requests of this worker's calls, for the log.
    pub(in super::super) fn requests(&self) -> Requests {
        Requests {
            scheduler: Arc::clone(&self.scheduler),
            at: self.at,
            bells: Arc::clone(&self.bells),
        }
    }

    /// Returns when a cancelled call has not ended in time and the worker says nothing either, or has
    /// too many such calls.
    pub(in super::super) async fn expired(&self) {
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
                    let now = Instant::now();
                    if self.next_expiring().is_some_and(|when| when <= now) && !self.let_be(now) {
                        return;
                    }
                }
                () = self.bells.expiring.notified() => {}
            }
        }
    }

    /// Abandons the cancelled calls that have not ended by now, if the worker was heard of since it was told.
    fn let_be(&self, now: Instant) -> bool {
        let mut state = self.scheduler.lock();
        let State {
            seats,
            running,
            held,
            threads,
            ..
        } = &mut *state;
        let Some(seat) = seats.get_mut(self.at).and_then(Option::as_mut) else {
            return false;
        };
        if *threads < 2 || seat.exclusive.is_some() {
            return false;
        }
        while let Some(&(when, id)) = seat.expiring.front() {
            if now < when {
                break;
            }
            let told = when - self.scheduler.grace;
            let is_there = seat.heard_at.is_some_and(|heard| told <= heard);
            if !is_there || MAX_ABANDONED <= seat.abandoned {
                return false;
            }
            seat.expiring.pop_front();
            let Some(call) = running.get_mut(&id) else {
                continue;
            };
            call.is_abandoned = true;
            seat.running -= 1;
            seat.abandoned += 1;
            if call.has_thread {
                give_back(held, Some(seat), &call.cx.principal);
            }
            tracing::warn!(
                tool = %call.key.1,
                request_id = %call.cx.request_id,
                "a handler goes on although its call was cancelled; it is left alone"
            );
        }
        if seat.running == 0 {
            seat.quiet_since = None;
            seat.bells.idle.notify_waiters();
        }
        self.scheduler.begin_what_can(&mut state);
        true
    }

    /// Returns true if a call was cancelled and has not ended yet.
    pub(in super::super) fn has_cancelled_calls(&self) -> bool {
        self.next_expiring().is_some()
    }

    /// Returns when the worker runs nothing. Nothing new may come to it by then.
    pub(in super::super) async fn idle(&self) {
        loop {
            let mut notified = pin!(self.bells.idle.notified());
            notified.as_mut().enable();
            if self
                .seat(&mut self.scheduler.lock())
                .is_none_or(|seat| seat.running == 0)
            {
                return;
            }
            notified.await;
        }
    }

    /// Returns when the worker was idle for so long; it gets no further calls then.
    pub(in super::super) async fn idle_for(&self, time: Duration) {
        loop {
            self.idle().await;
            let begun = self.begun();
            tokio::time::sleep(time).await;
            let mut state = self.scheduler.lock();
            // One that waits for answers of its client waits in the memory of the worker.
            let runs_any = state.running.values().any(|call| call.seat == self.at);
            let is_idle = |seat: &&mut Seat| !runs_any && Some(seat.begun) == begun;
            let Some(seat) = self.seat(&mut state).filter(is_idle) else {
                continue;
            };
            seat.is_closed = true;
            state.settled &= !bit(seat.slot);
            return;
        }
    }

    fn begun(&self) -> Option<u64> {
        Some(self.seat(&mut self.scheduler.lock())?.begun)
    }

    /// The worker is lost, or soon will be: it gets no further calls.
    pub(in super::super) fn close(&mut self) {
        let mut state = self.scheduler.lock();
        let now = Instant::now();
        if let Some(seat) = self.seat(&mut state) {
            seat.is_closed = true;
            let late = seat.expiring.iter().filter(|(when, _)| *when <= now);
            let mut late: Vec<_> = late.map(|(_, id)| *id).collect();
            if let Some(exclusive) = seat.exclusive {
                late.retain(|id| *id == exclusive);
            }
            let keys = late.iter().filter_map(|id| state.running.get(id));
            self.stuck = keys.map(|call| call.key.clone()).collect();
        }
        // What this worker would have got may go to others.
        self.scheduler.begin_what_can(&mut state);
    }

    /// The worker is gone and takes its calls with it; those that wait go on waiting.
    pub(in super::super) fn leave(mut self, blame: Blame, why: impl Fn() -> ToolError) -> Left {
        self.give_up(blame, why)
    }

    #[cfg(test)]
    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn give_up(&mut self, blame: Blame, why: impl Fn() -> ToolError) -> Left {
        self.is_left = true;
        let mut state = self.scheduler.lock();
        let seat = state.seats.get_mut(self.at);
        let Some(seat) = seat.and_then(Option::take) else {
            return Left::default();
        };
        let (exclusive, had_answered) = (seat.exclusive, seat.has_answered);
        let mut suspects: Vec<Key> = Vec::new();
        let mut suspect = |key: &Key| {
            if !suspects.contains(key) {
                suspects.push(key.clone());
            }
        };
        let mut lost = Vec::new();
        for (&id, call) in &state.running {
            if call.seat == self.at {
                lost.push(id);
                if call.is_asking {
                    continue;
                }
                if blame == Blame::Everybody && exclusive.is_none_or(|exclusive| exclusive == id) {
                    suspect(&call.key);
                }
            }
        }
        if blame == Blame::Stuck {
            self.stuck.iter().for_each(suspect);
        }
        let suspicion = if blame == Blame::Everybody && 1 < suspects.len() {
            Suspicion::Shared
        } else {
            Suspicion::Certain
        };
        let now = Instant::now();
        let mut tripped = Vec::new();
        for key in suspects {
            let name = Arc::clone(&key.1);
            if let Some(wait) = state.breaker.suspect(key, suspicion, now) {
                tripped.push((name, wait));
            }
        }
        for id in &lost {
            if let Some(call) = state.running.remove(id) {
                state.asking.remove(id);
                if call.holds_thread() {
                    give_back(&mut state.held, None, &call.cx.principal);
                }
                // If it was on trial and is not held responsible, the next one is.
                state.breaker.withdrawn(&call.key, *id);
                if let Some(waiter) = call.answer {
                    let _ = waiter.send(Err(why()));
                }
            }
        }
        self.scheduler.begin_what_can(&mut state);
        Left {
            had_answered,
            running: lost,
            tripped,
        }
    }

    /// Time by which the first of the cancelled calls has to have ended.
    fn next_expiring(&self) -> Option<Instant> {
        let mut state = self.scheduler.lock();
        let State { seats, running, .. } = &mut *state;
        let seat = seats.get_mut(self.at)?.as_mut()?;
        seat.expiring.retain(|(_, id)| running.contains_key(id));
        match seat.exclusive {
            // The others cannot end before this one does.
            Some(id) => seat
                .expiring
                .iter()
                .find(|(_, other)| *other == id)
                .map(|(when, _)| *when),
            None => seat.expiring.front().map(|(when, _)| *when),
        }
    }

    /// The worker, where it is kept.
    pub(super) fn seat<'a>(&self, state: &'a mut State) -> Option<&'a mut Seat> {
        state.seats.get_mut(self.at)?.as_mut()
    }

    /// The call, if it is this worker that runs it.
    fn running<'a>(&self, state: &'a mut State, id: u64) -> Option<&'a mut Running> {
        let call = state.running.get_mut(&id)?;
        (call.seat == self.at).then_some(call)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_left {
            self.give_up(Blame::Nobody, || stopped(Repeat::IfIdempotent));
        }
    }
}

/// Says which requests a worker's calls are, for as long as it lives.
#[derive(Debug)]
pub(in super::super) struct Requests {
    scheduler: Arc<Scheduler>,
    at: usize,
    /// Tells the worker from the next one at the same place.
    bells: Arc<Bells>,
}

impl Requests {
    /// The request that the call `id` is, or was until just now: output arrives on its own way. Without
    /// `id`, or if that is none of this worker's calls, the request that has the worker to itself.
    pub(in super::super) fn of(&self, id: Option<u64>) -> Option<Arc<str>> {
        let state = self.scheduler.lock();
        let seat = state.seats.get(self.at)?.as_ref()?;
        if !Arc::ptr_eq(&seat.bells, &self.bells) {
            return None;
        }
        let running = |id: u64| {
            let call = state.running.get(&id)?;
            (call.seat == self.at).then(|| Arc::clone(&call.cx.request_id))
        };
        let recent = |id: u64| {
            let mut recent = seat.recent.iter().rev();
            let found = recent.find(|(other, _)| *other == id)?;
            Some(Arc::clone(&found.1))
        };
        // Of a worker that runs one call only, that must be it.
        let only = || {
            let mut calls = state.running.values().filter(|call| call.seat == self.at);
            let only = calls.next()?;
            let is_only = only.has_thread && calls.next().is_none();
            is_only.then(|| Arc::clone(&only.cx.request_id))
        };
        id.and_then(|id| running(id).or_else(|| recent(id)))
            .or_else(|| seat.exclusive.and_then(running))
            .or_else(only)
    }
}
