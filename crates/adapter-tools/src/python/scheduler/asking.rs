//! Calls whose handlers wait for answers of the client.
//!
//! A handler that asks waits where it has asked, and its call ends for now with the questions. The call that
//! brings the answers goes on with that handler. Meanwhile it holds neither a thread nor a place among the
//! calls that run.

use super::{
    Answer, Key, Kind, Place, Scheduler, State, begin_frame, cancel, give_back, seat::Seat,
};
use crate::{
    Answers, CallMeter, Needed, Question, Repeat, ToolCx, ToolError, Waiting,
    python::frames::{AnswersFrame, TooLarge, put_answers},
};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use tokio::sync::oneshot;

/// Most handlers that wait for answers. When one more asks, the one that has waited longest is given up, of
/// the principal that has most of them.
const MAX_ASKING: usize = 256;

/// Member of the state of a question: which handler waits.
const CALL: &str = "waiting";
/// Member of the state of a question: in which process.
const PROCESS: &str = "process";

/// A handler that waits for answers.
#[derive(Debug)]
pub(super) struct Asking {
    key: Key,
    principal: Arc<str>,
    /// Grows with every question of the scheduler.
    round: u64,
    questions: BTreeMap<String, Question>,
}

impl Place {
    /// A handler asks the client something, by keys. What the client cannot be asked is answered with an
    /// error at once.
    pub(in super::super) fn asks(&self, id: u64, questions: BTreeMap<String, Question>) {
        let mut guard = self.scheduler.lock();
        let State {
            running,
            seats,
            held,
            asking,
            last_round,
            ..
        } = &mut *guard;
        let Some(call) = running.get_mut(&id).filter(|it| it.seat == self.at) else {
            return;
        };
        if call.answer.as_ref().is_none_or(oneshot::Sender::is_closed) {
            // Nobody waits for it: it is being cancelled, or about to be, and what it uses is still its own.
            return;
        }
        let askable = call.cx.askable();
        let (questions, refused): (BTreeMap<_, _>, BTreeMap<_, _>) = questions
            .into_iter()
            .partition(|(_, question)| question.is_askable(askable));
        let Some(Some(seat)) = seats.get_mut(self.at) else {
            return;
        };
        if !refused.is_empty() {
            let why = |question: &Question| {
                let capability = question.capability();
                format!("the client cannot be asked this: it has not declared `{capability}`")
            };
            let errors = refused.iter().map(|(key, it)| (key.clone(), why(it)));
            let answers = AnswersFrame {
                id,
                responses: &BTreeMap::new(),
                errors: &errors.collect(),
            };
            put(seat, &answers);
            call.refused.extend(refused);
        }
        if questions.is_empty() {
            return;
        }
        let Some(waiter) = call.answer.take() else {
            return;
        };
        // Nothing of the call that ends here stays in use.
        let about = ToolCx::new(
            Arc::clone(&call.cx.principal),
            Arc::clone(&call.cx.request_id),
        );
        let cx = std::mem::replace(&mut call.cx, about);
        call.is_asking = true;
        call.is_unanswered = true;
        let meter = Arc::clone(call.cx.meter());
        seat.running -= 1;
        if seat.running == 0 {
            seat.quiet_since = None;
            seat.bells.idle.notify_waiters();
        }
        let (key, principal, has_thread) =
            (call.key.clone(), Arc::clone(&cx.principal), call.has_thread);
        if has_thread {
            give_back(held, Some(seat), &principal);
        }
        *last_round += 1;
        let round = *last_round;
        let one = Asking {
            key,
            principal,
            round,
            questions: questions.clone(),
        };
        asking.insert(id, one);
        if MAX_ASKING < asking.len()
            && let Some(longest) = longest_of_most(asking)
        {
            asking.remove(&longest);
            go_on(&mut guard, longest);
            cancel(&mut guard, longest, self.scheduler.grace);
        }
        self.scheduler.begin_what_can(&mut guard);
        drop(guard);
        drop(cx);
        let needed = needed(&self.scheduler, id, round, questions, meter);
        // Whoever has given the call up drops it, which gives the handler up.
        let _ = waiter.send(Err(ToolError::NeedsInput(needed)));
    }
}

impl Scheduler {
    /// Hands the client's answers to the handler that waits for them, if this call brings any: its id.
    pub(in super::super) fn resume(
        self: &Arc<Self>,
        (kind, name): (Kind, &str),
        cx: &ToolCx,
        answer: &mut Option<oneshot::Sender<Answer>>,
    ) -> Option<Result<u64, ToolError>> {
        let answers = cx.answers();
        let id = self.waiting_handler(answers.state.as_ref()?)?;
        let mut state = self.lock();
        let found = state.asking.get(&id);
        let found = found
            .filter(|it| it.key.0 == kind && &*it.key.1 == name && it.principal == cx.principal);
        let Some(asking) = found else {
            return Some(Err(gone()));
        };
        if !asking
            .questions
            .keys()
            .all(|key| answers.responses.contains_key(key))
        {
            let (round, questions) = (asking.round, asking.questions.clone());
            let Some(call) = state.running.get(&id) else {
                return Some(Err(gone()));
            };
            // Nothing has run for these answers, so that there is no estimate to charge.
            cx.add_cost_micros(0);
            let meter = Arc::clone(call.cx.meter());
            let needed = needed(self, id, round, questions, meter);
            return Some(Err(ToolError::NeedsInput(needed)));
        }
        let asking = state.asking.remove(&id)?;
        Some(self.hand_over(&mut state, id, &asking, cx, answers, answer))
    }

    fn hand_over(
        &self,
        state: &mut State,
        id: u64,
        asking: &Asking,
        cx: &ToolCx,
        answers: &Answers,
        answer: &mut Option<oneshot::Sender<Answer>>,
    ) -> Result<u64, ToolError> {
        go_on(state, id);
        let call = state.running.get_mut(&id).ok_or_else(gone)?;
        let Some(Some(seat)) = state.seats.get_mut(call.seat) else {
            return Err(gone());
        };
        charge_on(call.cx.meter(), cx.meter());
        let asked = |key: &&String| asking.questions.contains_key(*key);
        let responses: BTreeMap<String, Box<RawValue>> = answers
            .responses
            .iter()
            .filter(|(key, _)| asked(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let frame = AnswersFrame {
            id,
            responses: &responses,
            errors: &BTreeMap::new(),
        };
        let about = begin_frame(id, &call.key.1, &[], cx, self.now());
        if let Err(TooLarge) = put_answers(&mut seat.outbox, &frame, Some(&about)) {
            cancel(state, id, self.grace);
            return Err(ToolError::failed("the answers are too large"));
        }
        seat.bells.outgoing.notify_one();
        call.cx = cx.clone();
        call.is_unanswered = false;
        call.answer = answer.take();
        Ok(id)
    }

    /// Says what has come of a request of the handler that the server answers itself.
    pub(in super::super) fn deliver(&self, id: u64, key: String, result: Result<Value, String>) {
        let mut state = self.lock();
        let State { running, seats, .. } = &mut *state;
        let Some(call) = running.get(&id) else {
            return;
        };
        let Some(Some(seat)) = seats.get_mut(call.seat) else {
            return;
        };
        let (mut responses, mut errors) = (BTreeMap::new(), BTreeMap::new());
        let result = result.and_then(|value| {
            serde_json::value::to_raw_value(&value).map_err(|error| error.to_string())
        });
        match result {
            Ok(value) => drop(responses.insert(key, value)),
            Err(why) => drop(errors.insert(key, why)),
        }
        let answers = AnswersFrame {
            id,
            responses: &responses,
            errors: &errors,
        };
        put(seat, &answers);
    }

    /// Gives up a handler that waits for answers.
    fn give_up(&self, id: u64, round: u64) {
        let mut state = self.lock();
        if state.asking.get(&id).is_none_or(|it| it.round != round) {
            // It has the answers, or asks something else by now.
            return;
        }
        state.asking.remove(&id);
        go_on(&mut state, id);
        cancel(&mut state, id, self.grace);
    }

    /// Handler to which the state of a question leads; `None` if it is of something else.
    fn waiting_handler(&self, state: &Value) -> Option<u64> {
        let id = state.get(CALL)?.as_u64()?;
        // What another process has asked leads to no handler of this one.
        let is_ours = state.get(PROCESS)?.as_str()? == &*self.process;
        Some(if is_ours { id } else { 0 })
    }
}

/// Writes answers that are no larger than what was read of them.
fn put(seat: &mut Seat, answers: &AnswersFrame<'_>) {
    if let Err(TooLarge) = put_answers(&mut seat.outbox, answers, None) {
        let keys = answers.responses.keys();
        let errors = keys.map(|key| (key.clone(), "the answer is too large".to_owned()));
        let answers = AnswersFrame {
            responses: &BTreeMap::new(),
            errors: &errors.collect(),
            ..*answers
        };
        let _ = put_answers(&mut seat.outbox, &answers, None);
    }
    seat.bells.outgoing.notify_one();
}

/// A call whose handler does not wait any more counts again as one that runs.
fn go_on(state: &mut State, id: u64) {
    let Some(call) = state.running.get_mut(&id) else {
        return;
    };
    call.is_asking = false;
    let Some(Some(seat)) = state.seats.get_mut(call.seat) else {
        return;
    };
    seat.running += 1;
    if call.has_thread {
        seat.threads += 1;
        let principal = Arc::clone(&call.cx.principal);
        *state.held.entry(principal).or_default() += 1;
    }
}

fn longest_of_most(asking: &HashMap<u64, Asking>) -> Option<u64> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for it in asking.values() {
        *counts.entry(&it.principal).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count)?.0;
    let theirs = asking.iter().filter(|(_, it)| &*it.principal == most);
    theirs.min_by_key(|(_, it)| it.round).map(|(id, _)| *id)
}

fn needed(
    scheduler: &Arc<Scheduler>,
    id: u64,
    round: u64,
    questions: BTreeMap<String, Question>,
    meter: Arc<CallMeter>,
) -> Needed {
    let weak = Arc::downgrade(scheduler);
    let give_up = move || {
        if let Some(scheduler) = weak.upgrade() {
            scheduler.give_up(id, round);
        }
    };
    Needed {
        questions,
        state: Some(json!({ CALL: id, PROCESS: &*scheduler.process })),
        waiting: Some(Waiting::new(give_up).with_meter(meter)),
    }
}

/// Adds what was metered while the handler waited to the call that it goes on with.
fn charge_on(waiting: &CallMeter, call: &CallMeter) {
    if let Some(micros) = waiting.take_cost_micros() {
        call.add_cost_micros(micros);
    }
    let (tokens_in, tokens_out) = waiting.tokens();
    call.add_tokens(tokens_in, tokens_out);
    if let Some(model) = waiting.model() {
        call.note_model(model);
    }
}

fn gone() -> ToolError {
    ToolError::Crashed {
        message: "the handler that asked does not wait any more: it has had its answers, it has waited too long, or \
                  its process was started or loaded again; see what it has done before making the call again, \
                  without these answers"
            .to_owned(),
        repeat: Repeat::Never,
        detail: String::new(),
    }
}
