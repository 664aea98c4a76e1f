//! A task that runs: its questions, its changes and its end.

use crate::{clock::rfc3339_millis, invocation::call_report::CallReport};
use jsonrpc_core::RawJson;
use mcp_protocol::{
    encode_input_requests,
    model::{InputRequest, Task, TaskState},
};
use mcp_service::{McpError, Principal, Slot};
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use task_store::TaskRecord;
use tokio::sync::{oneshot, watch};

/// Answers of a client, by the keys its tool chose.
pub(crate) type Responses = BTreeMap<String, Box<RawValue>>;

/// Test if a task's client may still know of it.
pub(crate) type Visible = Arc<dyn Fn(&Principal) -> bool + Send + Sync>;

/// The most bytes of answers that wait in a task for the rest of them: 4 MiB.
pub(crate) const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// A task's client answers more than the task holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a task takes at most {MAX_ANSWER_BYTES} bytes of answers at once")]
pub(crate) struct AnswersTooLarge;

/// A task that is not over. What is asked and answered of it lives here alone: it would be worth
/// nothing to another process.
pub(crate) struct RunningTask {
    /// The record at creation.
    pub(crate) record: TaskRecord,
    pub(crate) poll_interval_ms: u64,
    pub(crate) visible: Visible,
    /// Number of times the task was begun.
    pub(crate) attempt: u64,
    /// True if the next process can begin the task again if this one does not end it.
    can_be_begun_again: AtomicBool,
    /// True once it is left for another process to go on with.
    is_left: AtomicBool,
    /// Report of the call that is under way: each round of questions is one of its own.
    report: Mutex<Option<Arc<CallReport>>>,
    now: Mutex<Now>,
    /// Number of its changes.
    changes: watch::Sender<u64>,
    stop: watch::Sender<Option<Stop>>,
    /// Held while the task is shown to other servers, so that what is shown last is what is so.
    pub(crate) showing: tokio::sync::Mutex<()>,
    _slot: Option<Slot>,
}

/// Reason why a task is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The client asked for the cancellation.
    Cancelled,
    /// The server stops.
    Shutdown,
    /// Another server has taken the task, or ended it.
    Lost,
}

#[derive(Debug)]
struct Now {
    state: TaskState,
    message: Option<String>,
    updated_us: u64,
    /// Every key under which something was ever asked: none is used twice.
    used: HashSet<String>,
    pending: BTreeMap<String, Question>,
    given: Responses,
    asker: Option<oneshot::Sender<Result<Responses, McpError>>>,
    claimed: bool,
    /// True if the task is no longer carried on here, while it is not over.
    lost: bool,
}

#[derive(Debug)]
struct Question {
    /// The key that the tool chose, which need not be the one that the client sees.
    key: String,
    request: InputRequest,
}

impl RunningTask {
    /// Notes the report of the call that is under way from now on.
    pub(crate) fn calls(&self, report: &Arc<CallReport>) {
        let mut current = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::clone(report));
    }

    /// True once the tool of the call that is under way has returned, and asks nothing.
    pub(crate) fn has_returned(&self) -> bool {
        let current = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().is_some_and(|it| it.has_returned())
    }

    pub(crate) fn new(
        record: TaskRecord,
        poll_interval_ms: u64,
        visible: Visible,
        slot: Option<Slot>,
        run: (u64, bool),
    ) -> Arc<Self> {
        let (attempt, can_be_begun_again) = run;
        Arc::new(Self {
            poll_interval_ms,
            visible,
            attempt,
            can_be_begun_again: AtomicBool::new(can_be_begun_again),
            is_left: AtomicBool::new(false),
            now: Mutex::new(Now {
                state: TaskState::Working,
                message: record.message.clone(),
                updated_us: record.updated_us,
                used: HashSet::new(),
                pending: BTreeMap::new(),
                given: BTreeMap::new(),
                asker: None,
                claimed: false,
                lost: false,
            }),
            record,
            changes: watch::Sender::new(1),
            stop: watch::Sender::new(None),
            showing: tokio::sync::Mutex::default(),
            report: Mutex::default(),
            _slot: slot,
        })
    }

    /// True if the next process can begin the task again, or go on with it, if this one does not end it.
    pub(crate) fn can_be_begun_again(&self) -> bool {
        self.can_be_begun_again.load(Ordering::Acquire)
    }

    /// Notes that it is stored where its call is carried out.
    pub(crate) fn can_go_on_elsewhere(&self, max_attempts: u32) {
        let can = self.attempt < u64::from(max_attempts);
        self.can_be_begun_again.store(can, Ordering::Release);
    }

    /// Leaves it for another process: what carries it out is not cancelled.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    pub(crate) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// The task as clients see it, and the number of its changes.
    pub(crate) fn seen(&self) -> (u64, Task) {
        let now = self.lock();
        let task = Task {
            id: self.record.id.as_str().to_owned(),
            state: now.state.clone(),
            status_message: now.message.clone(),
            created_at: rfc3339_millis(self.record.created_us),
            last_updated_at: rfc3339_millis(now.updated_us),
            ttl_ms: Some((self.record.expires_us - self.record.created_us) / 1_000),
            poll_interval_ms: Some(self.poll_interval_ms),
        };
        (*self.changes.borrow(), task)
    }

    /// The time of its last change.
    pub(crate) fn updated_us(&self) -> u64 {
        self.lock().updated_us
    }

    /// Hears of its changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Asks its client; the answers come when all of them are there.
    pub(crate) fn ask(
        &self,
        requests: BTreeMap<String, InputRequest>,
        now_us: u64,
    ) -> oneshot::Receiver<Result<Responses, McpError>> {
        let (asker, answers) = oneshot::channel();
        let mut now = self.lock();
        now.asker = Some(asker);
        now.given.clear();
        now.pending.clear();
        for (key, request) in requests {
            let shown = now.unused(&key);
            now.pending.insert(shown, Question { key, request });
        }
        now.go_on();
        self.changed(now, now_us);
        answers
    }

    /// Takes answers. Those to nothing that is asked are passed over, and what has not been answered
    /// stays asked. Nothing is taken if it would be too much.
    pub(crate) fn answer(&self, responses: Responses, now_us: u64) -> Result<(), AnswersTooLarge> {
        let mut now = self.lock();
        let asked = responses
            .iter()
            .filter(|(shown, _)| now.pending.contains_key(*shown));
        let waiting = now
            .given
            .values()
            .chain(asked.map(|(_, response)| response));
        if MAX_ANSWER_BYTES < waiting.map(|response| response.get().len()).sum() {
            return Err(AnswersTooLarge);
        }
        let before = now.pending.len();
        for (shown, response) in responses {
            if let Some(question) = now.pending.remove(&shown) {
                now.given.insert(question.key, response);
            }
        }
        if now.pending.len() < before {
            now.go_on();
            self.changed(now, now_us);
        }
        Ok(())
    }

    /// Takes the news that its client does not answer.
    pub(crate) fn refuse(&self, error: McpError, now_us: u64) {
        let mut now = self.lock();
        // Whoever was asked may have been so for too long: what is over stays as it is.
        if now.state.is_terminal() {
            return;
        }
        now.pending.clear();
        if let Some(asker) = now.asker.take() {
            // Nobody waits any more: it has been stopped.
            let _ = asker.send(Err(error));
        }
        now.go_on();
        self.changed(now, now_us);
    }

    /// The open questions, for one request that passes them to the client. No other request gets them
    /// meanwhile: the client would be asked twice. `changes` has seen what led to it.
    pub(crate) fn claim(
        &self,
        changes: &mut watch::Receiver<u64>,
    ) -> Option<(Claim<'_>, BTreeMap<String, InputRequest>)> {
        let mut now = self.lock();
        if now.claimed || now.pending.is_empty() {
            return None;
        }
        now.claimed = true;
        // That the one before has given it back is no reason to take the question back.
        changes.mark_unchanged();
        let asked = now.pending.iter();
        let asked = asked.map(|(shown, it)| (shown.clone(), it.request.clone()));
        Some((Claim(self), asked.collect()))
    }

    /// Sets the status message; returns true if it is a new one.
    pub(crate) fn say(&self, message: String, now_us: u64) -> bool {
        let mut now = self.lock();
        let is_news =
            !now.state.is_terminal() && !now.lost && now.message.as_ref() != Some(&message);
        if is_news {
            now.message = Some(message);
            self.changed(now, now_us);
        }
        is_news
    }

    /// Ends the task.
    pub(crate) fn end(&self, state: TaskState, message: Option<String>, now_us: u64) {
        let mut now = self.lock();
        now.pending.clear();
        now.asker = None;
        now.state = state;
        now.message = message;
        self.changed(now, now_us);
    }

    /// Lets go of the task: requests that wait for it have to look for it in the store.
    pub(crate) fn lose(&self) {
        let mut now = self.lock();
        now.pending.clear();
        now.asker = None;
        now.lost = true;
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// True if the task is no longer carried on here.
    pub(crate) fn is_lost(&self) -> bool {
        self.lock().lost
    }

    /// Asks it to end; the first to ask says why.
    pub(crate) fn stop(&self, why: Stop) {
        self.stop.send_if_modified(|stop| {
            let first = stop.is_none();
            stop.get_or_insert(why);
            first
        });
    }

    /// Resolves when it is to end.
    pub(crate) async fn stopped(&self) -> Stop {
        let mut stop = self.stop.subscribe();
        loop {
            if let Some(why) = *stop.borrow_and_update() {
                return why;
            }
            if stop.changed().await.is_err() {
                // The sender lives as long as `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Resolves when it is over, or lost.
    pub(crate) async fn over(&self) {
        let mut changes = self.changes();
        let goes_on = || {
            let now = self.lock();
            !now.state.is_terminal() && !now.lost
        };
        while goes_on() {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn changed(&self, mut now: MutexGuard<'_, Now>, now_us: u64) {
        now.updated_us = now_us.max(now.updated_us);
        // While the state is locked, or a reader could take an old state for a new one.
        self.changes.send_modify(|changes| *changes += 1);
        drop(now);
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RunningTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningTask")
            .field("record", &self.record)
            .field("now", &*self.lock())
            .finish_non_exhaustive()
    }
}

impl Now {
    fn unused(&mut self, key: &str) -> String {
        let mut shown = key.to_owned();
        let mut again = 2;
        while !self.used.insert(shown.clone()) {
            shown = format!("{key}-{again}");
            again += 1;
        }
        shown
    }

    /// Works if there is nothing to wait for.
    fn go_on(&mut self) {
        if self.pending.is_empty() {
            self.state = TaskState::Working;
            if let Some(asker) = self.asker.take() {
                // Nobody waits any more: it has been stopped.
                let _ = asker.send(Ok(std::mem::take(&mut self.given)));
            }
            return;
        }
        let asked = self.pending.iter();
        let asked = asked.map(|(shown, it)| (shown.clone(), it.request.clone()));
        let requests: RawJson = encode_input_requests(&asked.collect());
        self.state = TaskState::InputRequired { requests };
    }
}

/// The right to ask a client what a task asks; dropping it gives it back.
pub(crate) struct Claim<'a>(&'a RunningTask);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut now = self.0.lock();
        now.claimed = false;
        // Somebody else may take it up.
        let updated_us = now.updated_us;
        if !now.pending.is_empty() {
            self.0.changed(now, updated_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use jsonrpc_core::ErrorCode;
    use mcp_service::FairShare;
    use task_store::{TaskId, TaskState as Stored};

    fn live() -> Arc<RunningTask> {
        let record = TaskRecord {
            id: TaskId::random(),
            principal: "anna".to_owned(),
            capability: "tool/t".to_owned(),
            protocol_version: "2025-11-25".to_owned(),
            created_us: 0,
            updated_us: 0,
            expires_us: 1_000_000,
            sequence: 1,
            state: Stored::Working,
            message: None,
        };
        let slot = FairShare::new(1, 1).take(&Principal::new("anna")).unwrap();
        RunningTask::new(record, 500, Arc::new(|_: &_| true), Some(slot), (1, false))
    }

    fn questions(keys: &[&str]) -> BTreeMap<String, InputRequest> {
        let keys = keys.iter();
        keys.map(|key| ((*key).to_owned(), InputRequest::ListRoots))
            .collect()
    }

    fn answers(keys: &[&str]) -> Responses {
        let keys = keys.iter();
        keys.map(|key| {
            let raw = RawValue::from_string("{}".to_owned()).unwrap();
            ((*key).to_owned(), raw)
        })
        .collect()
    }

    /// An answer or a refusal may be on its way when the task is cancelled.
    #[test]
    fn what_is_over_stays_as_it_is() {
        let task = live();
        let asker = task.ask(questions(&["a"]), 1);
        task.end(TaskState::Cancelled, None, 2);
        let (changes, over) = task.seen();
        task.refuse(McpError::new(ErrorCode::INTERNAL_ERROR, "no"), 3);
        task.answer(answers(&["a"]), 3).unwrap();
        assert_eq!(task.seen(), (changes, over));
        assert!(asker.now_or_never().expect("nobody answers").is_err());
    }

    #[test]
    fn who_takes_a_question_over_is_not_called_off_by_that() {
        let task = live();
        let _asker = task.ask(questions(&["a"]), 1);
        let (mut first, mut second) = (task.changes(), task.changes());
        first.borrow_and_update();
        second.borrow_and_update();
        let (claim, _) = task.claim(&mut first).unwrap();
        assert!(task.claim(&mut second).is_none(), "asked twice");
        drop(claim);
        let (_claim, asked) = task.claim(&mut second).unwrap();
        assert_eq!(asked.len(), 1);
        assert!(!second.has_changed().unwrap());
        assert!(first.has_changed().unwrap(), "others are told");
    }

    #[test]
    fn a_key_is_never_used_twice_whatever_the_tool_calls_its_questions() {
        let task = live();
        let mut used = HashSet::new();
        for keys in [&["a", "a-2"][..], &["a"], &["a", "a-2", "a-3"], &["a-2-2"]] {
            let mut asker = task.ask(questions(keys), 1);
            let mut changes = task.changes();
            let (_, shown) = task.claim(&mut changes).unwrap();
            let shown: Vec<_> = shown.keys().map(String::as_str).collect();
            for key in &shown {
                assert!(used.insert((*key).to_owned()), "{key}");
            }
            task.answer(answers(&shown), 2).unwrap();
            let given = asker.try_recv().unwrap().unwrap();
            let given: Vec<_> = given.keys().map(String::as_str).collect();
            assert_eq!(given, keys, "the tool has its own keys back");
        }
    }
}
