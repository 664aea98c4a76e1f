//! Promises of the scheduler under every order of events.

use super::{
    seat::{FEW, SILENCE},
    *,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SLOTS: usize = 3;
const MAX_CONCURRENT: usize = 10;
const MAX_WAITING: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Submit {
        is_async: bool,
    },
    /// Of the calls that are not answered.
    Abandon(usize),
    /// Of the calls that run.
    Answer(usize),
    Come(usize),
    Go {
        slot: usize,
        is_stuck: bool,
    },
    Miss(usize),
    Reload {
        has_async: bool,
    },
    RefuseWaiting,
    Write(usize),
    /// A worker says something, perhaps that it is there.
    Hear {
        slot: usize,
        is_there: bool,
    },
    /// Time passes.
    Pass(Duration),
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..SLOTS;
    prop_oneof![
        12 => any::<bool>().prop_map(|is_async| Step::Submit { is_async }),
        2 => any::<usize>().prop_map(Step::Abandon),
        8 => any::<usize>().prop_map(Step::Answer),
        4 => slot.clone().prop_map(Step::Come),
        1 => (slot.clone(), any::<bool>()).prop_map(|(slot, is_stuck)| Step::Go { slot, is_stuck }),
        1 => slot.clone().prop_map(Step::Miss),
        1 => any::<bool>().prop_map(|has_async| Step::Reload { has_async }),
        1 => Just(Step::RefuseWaiting),
        3 => slot.clone().prop_map(Step::Write),
        2 => (slot, any::<bool>()).prop_map(|(slot, is_there)| Step::Hear { slot, is_there }),
        2 => (1..30_u64).prop_map(|millis| Step::Pass(Duration::from_millis(millis))),
    ]
}

/// Number of pings for the worker that wait to be written.
fn questions(seat: &Seat) -> usize {
    let windows = seat.outbox.windows(6);
    windows.filter(|bytes| bytes == b"\"ping\"").count()
}

/// A call as its caller sees it.
struct Caller {
    is_async: bool,
    answered: oneshot::Receiver<Answer>,
}

/// A scheduler and what has to be true of it.
struct Model {
    /// Runtime whose time stands still unless it is told to pass.
    runtime: tokio::runtime::Runtime,
    scheduler: Arc<Scheduler>,
    generation: u64,
    has_async: bool,
    /// The workers of this generation and of those before it.
    places: BTreeMap<(u64, usize), Place>,
    callers: BTreeMap<u64, Caller>,
    answers: usize,
    begun: usize,
}

impl Model {
    fn new() -> Self {
        let mut options = PythonOptions::new("app.py", ".");
        options.workers = 4;
        options.max_concurrent = MAX_CONCURRENT;
        options.max_waiting = MAX_WAITING;
        let scheduler = Arc::new(Scheduler::new(&options));
        scheduler.switch_to(1, true, 1);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        Self {
            runtime,
            scheduler,
            generation: 1,
            has_async: true,
            places: BTreeMap::new(),
            callers: BTreeMap::new(),
            answers: 0,
            begun: 0,
        }
    }

    fn take(&mut self, step: Step) {
        let handle = self.runtime.handle().clone();
        let _entered = (!matches!(step, Step::Pass(_))).then(|| handle.enter());
        match step {
            Step::Submit { is_async } => self.submit(is_async),
            Step::Abandon(which) => {
                let ids: Vec<_> = self.callers.keys().copied().collect();
                if !ids.is_empty() {
                    let id = ids[which % ids.len()];
                    self.scheduler.abandon(id);
                    self.callers.remove(&id);
                }
            }
            Step::Answer(which) => {
                let mut running: Vec<_> = {
                    let state = self.scheduler.lock();
                    state.running.keys().copied().collect()
                };
                running.sort_unstable();
                if !running.is_empty() {
                    let id = running[which % running.len()];
                    // All say so; it is believed only of the one that runs it.
                    for place in self.places.values() {
                        place.answered(id, || Ok(ToolOutput::text("x")));
                    }
                }
            }
            Step::Come(slot) => {
                let key = (self.generation, slot);
                if !self.places.contains_key(&key) {
                    let place = self.scheduler.sit(self.generation, slot);
                    self.places.insert(key, place);
                }
            }
            Step::Go { slot, is_stuck } => {
                if let Some(mut place) = self.places.remove(&(self.generation, slot)) {
                    place.close();
                    self.check();
                    let blame = if is_stuck {
                        Blame::Stuck
                    } else {
                        Blame::Nobody
                    };
                    place.leave(blame, || ToolError::broken("lost"));
                }
            }
            Step::Miss(slot) => {
                if !self.places.contains_key(&(self.generation, slot)) {
                    self.scheduler.is_missing(self.generation, slot);
                }
            }
            Step::Reload { has_async } => {
                self.generation += 1;
                self.has_async = has_async;
                let place = self.scheduler.sit(self.generation, 0);
                self.places.insert((self.generation, 0), place);
                self.scheduler.switch_to(self.generation, has_async, 1);
            }
            Step::RefuseWaiting => self
                .scheduler
                .refuse_waiting(|| ToolError::broken("refused")),
            Step::Write(slot) => {
                if let Some(place) = self.places.get(&(self.generation, slot)) {
                    let mut state = self.scheduler.lock();
                    let seat = place.seat(&mut state).unwrap();
                    assert!(questions(seat) <= usize::from(seat.is_asked));
                    let _ = seat.outbox.split();
                }
            }
            Step::Hear { slot, is_there } => {
                if let Some(place) = self.places.get(&(self.generation, slot)) {
                    // What was not read is not answered.
                    let mut state = self.scheduler.lock();
                    let is_read = questions(place.seat(&mut state).unwrap()) == 0;
                    drop(state);
                    place.heard(is_there && is_read);
                }
            }
            Step::Pass(time) => self.runtime.block_on(tokio::time::advance(time)),
        }
        self.check();
    }

    fn submit(&mut self, is_async: bool) {
        let (answer, answered) = oneshot::channel();
        let call = Call {
            kind: Kind::Tool,
            name: "x".into(),
            is_async,
            arguments: Bytes::from_static(b"{}"),
            cx: ToolCx::new("anna", "1"),
            answer,
        };
        let alert = self.alert();
        match self.scheduler.submit(call) {
            Ok(id) => {
                self.begun += 1;
                if let Some(call) = self.scheduler.lock().running.get(&id)
                    && is_async
                {
                    let is_right = alert.is_empty() || alert.contains(&call.seat);
                    assert!(
                        is_right,
                        "it went to a silent worker, and another one was not"
                    );
                }
                let caller = Caller { is_async, answered };
                assert!(self.callers.insert(id, caller).is_none(), "a number twice");
            }
            Err(ToolError::Busy { .. }) => {
                assert_eq!(self.scheduler.lock().queue.len(), MAX_WAITING);
            }
            Err(ToolError::Suspended { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    /// The workers that have room and are not silent.
    fn alert(&self) -> Vec<usize> {
        let state = self.scheduler.lock();
        let is_alert = |seat: &Seat| {
            let quiet = seat.quiet_since.map_or(Duration::ZERO, |at| at.elapsed());
            seat.has_room(MAX_CONCURRENT) && (seat.running == 0 || quiet <= SILENCE)
        };
        let seats = current(&state).filter(|(_, seat)| is_alert(seat));
        seats.map(|(at, _)| at).collect()
    }

    fn check(&mut self) {
        let state = self.scheduler.lock();
        let mut waiting = 0;
        let mut answers = 0;
        self.callers.retain(|id, caller| {
            if state.running.contains_key(id) {
                assert!(caller.answered.try_recv().is_err(), "answered and running");
                return true;
            }
            let is_answered = match caller.answered.try_recv() {
                Ok(_) => true,
                Err(oneshot::error::TryRecvError::Empty) => false,
                Err(oneshot::error::TryRecvError::Closed) => panic!("{id} was lost"),
            };
            if is_answered {
                answers += 1;
            } else {
                waiting += 1;
            }
            !is_answered
        });
        self.answers += answers;
        assert_eq!(waiting, state.queue.len(), "who waits is in line, once");
        assert!(waiting <= MAX_WAITING);
        assert_eq!(state.queue.bytes(), 2 * waiting);

        let mut running: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (id, call) in &state.running {
            running.entry(call.seat).or_default().push(*id);
        }
        let mut free = 0;
        for (at, seat) in current(&state) {
            let count = running.get(&at).map_or(0, Vec::len);
            assert_eq!(seat.running, count);
            assert_eq!(seat.quiet_since.is_some(), 0 < count);
            assert!(count <= MAX_CONCURRENT);
            free += usize::from(seat.exclusive.is_none());
        }
        for (at, seat) in state.seats.iter().enumerate() {
            let ids = running.get(&at).cloned().unwrap_or_default();
            let seat = seat.as_ref();
            assert!(seat.is_some() || ids.is_empty(), "a call without a worker");
            let synchronous = ids
                .iter()
                .filter(|id| self.callers.get(id).is_some_and(|caller| !caller.is_async));
            let exclusive = seat.and_then(|seat| seat.exclusive);
            for id in synchronous {
                assert_eq!(exclusive, Some(*id), "two synchronous calls in one worker");
            }
        }
        self.nobody_waits_in_vain(&state, free);
    }

    /// No call waits that could begin.
    fn nobody_waits_in_vain(&self, state: &State, free: usize) {
        let has_room = |seat: &Seat| seat.exclusive.is_none() && seat.running < MAX_CONCURRENT;
        let rooms = current(state).filter(|(_, seat)| has_room(seat)).count();
        if state.queue.first_asynchronous().is_some() {
            assert_eq!(rooms, 0, "an asynchronous call waits, and there is room");
        }
        let keep_one = self.has_async && 1 < state.settled.count_ones();
        if state.queue.first_synchronous(|_| true).is_some() && 0 < rooms {
            assert!(
                keep_one && free == 1,
                "a synchronous call waits, and there is room"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_call_is_answered_exactly_once_and_no_rule_is_ever_broken(
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut model = Model::new();
        for step in steps {
            model.take(step);
        }
        // What is left is answered as well.
        model.scheduler.stop();
        for (id, mut caller) in std::mem::take(&mut model.callers) {
            prop_assert!(caller.answered.try_recv().is_ok(), "{} was forgotten", id);
            model.answers += 1;
        }
        prop_assert!(model.answers <= model.begun);
        model.places.clear();
        let state = model.scheduler.lock();
        prop_assert!(state.running.is_empty() && state.seats.iter().all(Option::is_none));
    }

    /// Synchronous calls, however many, never take the worker that asynchronous ones need.
    #[test]
    fn an_asynchronous_call_always_begins_at_once(
        slots in 2..=SLOTS,
        synchronous in 1..20_usize,
        finish in prop::collection::vec(any::<usize>(), 0..20),
    ) {
        let mut model = Model::new();
        for slot in 0..slots {
            model.take(Step::Come(slot));
        }
        for _ in 0..synchronous {
            model.take(Step::Submit { is_async: false });
        }
        let begins_at_once = |model: &mut Model| {
            let before = model.scheduler.lock().running.len();
            model.take(Step::Submit { is_async: true });
            let after = model.scheduler.lock().running.len();
            after == before + 1
        };
        prop_assert!(begins_at_once(&mut model));
        for which in finish.into_iter().take(FEW) {
            model.take(Step::Answer(which));
            prop_assert!(begins_at_once(&mut model));
        }
    }
}
