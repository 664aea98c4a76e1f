//! Recovery of tasks of dead processes, and the leases of those that run here.

use crate::{
    Invocations,
    invocation::answer::AnswerOptions,
    names::{caller_of, tool_capability},
    offer::Offer,
    tasks::{
        convert,
        found::found_in_store,
        registry::Tasks,
        run::Run,
        runner::{Standing, TaskQueue},
        running::{RunningTask, Stop},
        stored_call::{self, FIRST_OF_QUEUED},
    },
};
use adapter_tools::Tool;
use arc_swap::ArcSwap;
use futures_util::{StreamExt, future::select, stream};
use governance::{Governor, QuotaStore};
use ledger::Recorder;
use mcp_protocol::{Encoder, model::TaskState};
use mcp_service::{Principal, Slot};
use std::{
    collections::HashSet,
    convert::Infallible,
    pin::pin,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};
use task_store::{Lapsed, StoreError, TaskId, TaskRecord, TaskState as Stored};

/// The most tasks that are being taken up at the same time.
const MAX_TAKEN_UP_AT_ONCE: usize = 64;

/// Time between two looks after a queued task, for each task that waits.
const LOOK_AFTER_EACH: Duration = Duration::from_millis(20);

/// Reason for not beginning a task again.
const NOT_IDEMPOTENT: &str =
    "its tool does not say that it is idempotent, so it is not begun again";

/// Takes up tasks whose lease has run out, and renews the leases of those that run here.
#[derive(Debug)]
pub(crate) struct Recovery<Q: QuotaStore> {
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) invocations: Arc<Invocations<Q>>,
    pub(crate) governor: Arc<Governor<Q>>,
    pub(crate) offer: Arc<ArcSwap<Offer>>,
    pub(crate) recorder: Recorder,
    pub(crate) encoder: Encoder,
    pub(crate) answering: AnswerOptions,
}

/// Tool that a task calls.
struct Callee {
    name: String,
    offer: Arc<Offer>,
    /// True if it may be called again, or is gone.
    may_be_called: bool,
}

/// Result of a claim.
enum Claim {
    Begun(Arc<RunningTask>),
    /// The task was given up.
    Ended,
    /// Another process has the task, or it is over.
    Refused,
}

/// Answer to a worker that asks for a task of its queue.
#[derive(Debug)]
pub enum TakenUp {
    /// The task is carried out here.
    Begun(TaskAtWork),
    /// The task is over.
    Over,
    /// Not now: another process carries it out, it is not known yet that the one before is dead, or there is no
    /// room here.
    NotNow,
}

/// Task that this worker carries out.
#[derive(Debug)]
pub struct TaskAtWork(Arc<RunningTask>);

impl TaskAtWork {
    /// Cancels the task, as its client can.
    pub fn cancel(&self) {
        self.0.stop(Stop::Cancelled);
    }

    /// Status message of the task, as its client sees it.
    pub fn message(&self) -> Option<String> {
        let (_, task) = self.0.seen();
        let message = task.status_message.as_deref();
        message.map(|it| redaction::without_known(it).into_owned())
    }

    /// Resolves when this worker is done with it; true if the task is over, false if it is left to another worker.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped: the task goes on.
    pub async fn ended(&self) -> bool {
        self.0.over().await;
        !self.0.is_lost()
    }
}

/// Result of a look at one task.
#[derive(PartialEq, Eq)]
enum Taken {
    /// The task is taken care of: here, or by another process.
    Done,
    /// The limit of running tasks is reached.
    NoRoom,
}

impl<Q: QuotaStore> Recovery<Q> {
    /// Goes on in the background until the tasks are closed.
    pub(crate) fn begin(self: Arc<Self>) {
        let runtime = self.tasks.runtime.clone();
        runtime.spawn(async move { self.go_on(self.keep_taking_up()).await });
    }

    /// The same for a worker, which takes up what its queue hands it and nothing else.
    pub(crate) fn begin_as_worker(self: Arc<Self>) {
        let runtime = self.tasks.runtime.clone();
        runtime.spawn(async move { self.go_on(std::future::pending()).await });
    }

    async fn go_on(&self, others: impl Future<Output = Infallible>) {
        let mut closing = self.tasks.closing.subscribe();
        // Each beside the other: what runs here is to stay ours however much there is to take up.
        let (leases, others) = (pin!(self.keep_all_leases()), pin!(others));
        let closes = pin!(closing.wait_for(|closing| *closing));
        let shared = pin!(async {
            self.follow_others().await;
            std::future::pending::<()>().await;
        });
        select(select(select(leases, others), shared), closes).await;
    }

    async fn keep_all_leases(&self) -> Infallible {
        loop {
            self.tasks.keep_leases().await;
            tokio::time::sleep(self.tasks.renew_every()).await;
        }
    }

    async fn keep_taking_up(&self) -> Infallible {
        loop {
            // From here on, so that no place is missed that is given back meanwhile.
            let mut count = self.tasks.count.subscribe();
            let has_more = self.take_up_all().await;
            let place = async {
                if !has_more || count.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                // Places come and go; one look is enough for many.
                tokio::time::sleep(self.tasks.options.poll_interval).await;
            };
            // In both cases it is time to look again.
            let _ = tokio::time::timeout(self.tasks.renew_every(), place).await;
        }
    }

    /// Looks at all tasks whose lease has run out; returns true if there was no room for some of
    /// them.
    async fn take_up_all(&self) -> bool {
        let lapsed = match self.tasks.store.lapsed((self.tasks.clock)()).await {
            Ok(lapsed) => lapsed,
            Err(error) => {
                note(&error, "abandoned tasks cannot be found");
                return false;
            }
        };
        self.tasks.remember_queued(&lapsed);
        // Some at once, since the store does at one go what it is asked meanwhile.
        let taken = stream::iter(lapsed).map(|task| self.take_up(task));
        let mut taken = pin!(taken.buffer_unordered(MAX_TAKEN_UP_AT_ONCE));
        let mut has_more = false;
        while let Some(taken) = taken.next().await {
            match taken {
                Ok(taken) => has_more |= taken == Taken::NoRoom,
                Err(error) => note(&error, "a task cannot be taken up; it is tried again"),
            }
        }
        has_more
    }

    async fn take_up(&self, task: Lapsed) -> Result<Taken, StoreError> {
        let Lapsed {
            record,
            attempt,
            has_call,
        } = task;
        let now_us = (self.tasks.clock)();
        // What runs here was let go of only because the store could not be told otherwise.
        if self.tasks.live(&record.id).is_some() || record.expires_us <= now_us {
            return Ok(Taken::Done);
        }
        let callee = self.callee(&record);
        let queue = self.tasks.runner.queue(&callee.name);
        let most = self.most_attempts(queue.is_some());
        let given_up = if most <= attempt {
            Some(format!(
                "it was begun {attempt} times, as often as it may be"
            ))
        } else if !callee.may_be_called && !has_call {
            Some(NOT_IDEMPOTENT.to_owned())
        } else {
            // Of a tool that is gone, the call itself says so.
            None
        };
        if let Some(queue) = queue {
            let is_lost = FIRST_OF_QUEUED <= attempt && !callee.may_be_called;
            if given_up.is_none() && !is_lost {
                return self.look_after_queued(record, queue).await;
            }
        }
        let slot = match given_up {
            Some(_) => None,
            None => match self.tasks.running.take(&Principal::new(&*record.principal)) {
                Some(slot) => Some(slot),
                None => return Ok(Taken::NoRoom),
            },
        };
        let message = "the server has stopped, and the call is begun again";
        self.claim(record, callee, slot, (given_up, most), message)
            .await?;
        Ok(Taken::Done)
    }

    fn callee(&self, record: &TaskRecord) -> Callee {
        let offer = self.offer.load_full();
        let name = record.capability.strip_prefix("tool/").unwrap_or_default();
        let tool = offer.tools().get(name);
        Callee {
            may_be_called: tool.is_none_or(Tool::can_be_called_again),
            name: name.to_owned(),
            offer,
        }
    }

    /// The most attempts of a task. That of the server which has queued a call has begun nothing.
    fn most_attempts(&self, is_queued: bool) -> u64 {
        let most = u64::from(self.tasks.options.max_attempts);
        most.saturating_add(u64::from(is_queued))
    }

    /// Finds out how a task stands that waits for a worker: ends it if its queue hands it to none.
    async fn look_after_queued(
        &self,
        record: TaskRecord,
        queue: Arc<dyn TaskQueue>,
    ) -> Result<Taken, StoreError> {
        if !self.tasks.is_to_be_looked_after(&record.id) {
            return Ok(Taken::Done);
        }
        let left = record.expires_us.saturating_sub((self.tasks.clock)());
        let asked = queue.add(record.id.clone(), Duration::from_micros(left));
        let standing = match asked.await {
            Ok(standing) => standing,
            Err(error) => {
                self.tasks.forget_queued(&record.id);
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    task = ?record.id,
                    "a task waits in the store until its queue can be reached"
                );
                return Ok(Taken::Done);
            }
        };
        let (state, message) = match standing {
            Standing::Queued => return Ok(Taken::Done),
            Standing::Cancelled => {
                let why = "the task was cancelled in its queue".to_owned();
                (TaskState::Cancelled, Some(why))
            }
            Standing::GivenUp => stored_call::cut_short("its queue has given it up", None),
        };
        let ended = TaskRecord {
            updated_us: (self.tasks.clock)().max(record.updated_us),
            sequence: record.sequence + 1,
            state: convert::stored(&state),
            message,
            ..record
        };
        // A worker that has taken it meanwhile says what becomes of it.
        if self.tasks.store.update(ended.clone()).await? {
            tracing::warn!(task = ?ended.id, ?standing, "a task was ended that no worker gets");
        }
        Ok(Taken::Done)
    }

    /// Takes a task out of its queue for this worker.
    pub(crate) async fn take_queued(&self, id: &TaskId) -> Result<TakenUp, StoreError> {
        let now_us = (self.tasks.clock)();
        if self.tasks.live(id).is_some() || self.tasks.is_closing() {
            return Ok(TakenUp::NotNow);
        }
        let Some(record) = self.tasks.store.get(id.clone()).await? else {
            return Ok(TakenUp::Over);
        };
        if record.state.is_terminal() || record.expires_us <= now_us {
            return Ok(TakenUp::Over);
        }
        let callee = self.callee(&record);
        let slot = self.tasks.running.take(&Principal::new(&*record.principal));
        let Some(slot) = slot else {
            return Ok(TakenUp::NotNow);
        };
        let most = self.most_attempts(true);
        let message = "a worker carries the call out";
        let claimed = self
            .claim(record, callee, Some(slot), (None, most), message)
            .await?;
        Ok(match claimed {
            Claim::Begun(live) => TakenUp::Begun(TaskAtWork(live)),
            Claim::Ended => TakenUp::Over,
            Claim::Refused => TakenUp::NotNow,
        })
    }

    /// Cancels a task that its queue has called off, wherever it is carried out.
    pub(crate) async fn cancel_queued(&self, id: &TaskId) -> Result<(), StoreError> {
        if let Some(live) = self.tasks.live(id) {
            live.stop(Stop::Cancelled);
        } else if let Some(record) = self.tasks.store.get(id.clone()).await? {
            self.tasks.cancel_elsewhere(found_in_store(record)).await?;
        }
        Ok(())
    }

    /// Claims a task and begins its call, unless there is a reason to give it up.
    async fn claim(
        &self,
        record: TaskRecord,
        callee: Callee,
        slot: Option<Slot>,
        (given_up, most): (Option<String>, u64),
        message: &str,
    ) -> Result<Claim, StoreError> {
        let Callee {
            name,
            offer,
            may_be_called,
        } = callee;
        let now_us = (self.tasks.clock)();
        let next = TaskRecord {
            updated_us: now_us.max(record.updated_us),
            sequence: record.sequence + 1,
            state: Stored::Working,
            message: Some(message.to_owned()),
            ..record
        };
        let lease = self.tasks.lease();
        let claimed = self.tasks.store.claim(next.clone(), lease, now_us).await?;
        let Some(claimed) = claimed else {
            return Ok(Claim::Refused); // another process was first, or its client has cancelled it
        };
        let visible = {
            let governor = Arc::clone(&self.governor);
            let capability = tool_capability(&name);
            Arc::new(move |it: &Principal| governor.visible(caller_of(it), &capability))
        };
        let poll_interval_ms = self.tasks.poll_interval_ms();
        let given_up = given_up.or_else(|| {
            let attempts = claimed.attempt - 1;
            let is_too_many = most < claimed.attempt;
            is_too_many.then(|| format!("it was begun {attempts} times, as often as it may be"))
        });
        let call = claimed.call.as_deref().filter(|_| given_up.is_none());
        let again = call.and_then(|text| stored_call::read(&next, claimed.attempt, text, now_us));
        // One that is carried out elsewhere is not called again, but waited for.
        let again = again.filter(|it| may_be_called || it.resume.is_some() || it.is_first);
        let resumes = again.as_ref().is_some_and(|it| it.resume.is_some());
        let can_be_begun_again = claimed.attempt < most && (may_be_called || resumes);
        let run = (claimed.attempt, can_be_begun_again);
        let live = RunningTask::new(next, poll_interval_ms, visible, slot, run);
        let Some(again) = again else {
            let why = given_up.unwrap_or_else(|| match may_be_called {
                true => "what was called is not on record".to_owned(),
                false => NOT_IDEMPOTENT.to_owned(),
            });
            tracing::warn!(task = ?live.record.id, tool = name, why, "a task was cut short");
            let (state, message) = stored_call::cut_short(&why, None);
            self.tasks.end(&live, state, message).await;
            return Ok(Claim::Ended);
        };
        if !self.tasks.enter(&live) {
            return Ok(Claim::Refused); // the next process finds it
        }
        if !again.is_first {
            tracing::info!(
                task = ?live.record.id,
                tool = name,
                attempt = claimed.attempt,
                "a task is begun again that was cut short"
            );
        }
        let run = Arc::new(Run {
            tasks: Arc::clone(&self.tasks),
            invocations: Arc::clone(&self.invocations),
            governor: Arc::clone(&self.governor),
            recorder: self.recorder.clone(),
            encoder: self.encoder.clone(),
            answering: self.answering,
            cx: again.cx,
            offer,
            tool: name,
            arguments: again.arguments,
            at_most: again.at_most,
            answers: again.answers,
            resume: again.resume,
            is_rerun: !again.is_first,
            visible: Arc::clone(&live.visible),
        });
        let under_way = self.tasks.under_way();
        let begun = Arc::clone(&live);
        self.tasks.runtime.spawn(async move {
            run.again(&live).await;
            drop(under_way);
        });
        Ok(Claim::Begun(begun))
    }
}

impl Tasks {
    /// Forgets what is known of tasks that wait no more.
    fn remember_queued(&self, lapsed: &[Lapsed]) {
        let waiting: HashSet<_> = lapsed.iter().map(|it| &it.record.id).collect();
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.retain(|id, _| waiting.contains(id));
    }

    /// True if it is time to ask the queue of a task how it stands; it is asked then. The more tasks wait, the
    /// less often each is asked for.
    fn is_to_be_looked_after(&self, id: &TaskId) -> bool {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = u32::try_from(queued.len()).unwrap_or(u32::MAX);
        let every = LOOK_AFTER_EACH.saturating_mul(waiting);
        let now = Instant::now();
        if queued.get(id).is_some_and(|at| now < *at + every) {
            return false;
        }
        queued.insert(id.clone(), now);
        true
    }

    fn forget_queued(&self, id: &TaskId) {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.remove(id);
    }

    /// Interval of lease renewals: three in the time of a lease.
    fn renew_every(&self) -> Duration {
        self.options.lease / 3
    }

    /// Renews the leases of tasks that run here, and stops those that another process has taken.
    async fn keep_leases(&self) {
        let running: Vec<_> = self.lock().values().cloned().collect();
        if running.is_empty() {
            return;
        }
        match self.store.renew(self.lease()).await {
            Ok(kept) => {
                let kept: HashSet<_> = kept.into_iter().collect();
                for lost in running.iter().filter(|it| !kept.contains(&it.record.id)) {
                    // Cancelled by another server, it is not left for one to go on with.
                    if self.store.shared().is_none() || self.look_after(lost).await.is_err() {
                        lost.stop(Stop::Lost);
                    }
                }
            }
            Err(error) => note(&error, "it could not be stored that tasks are carried on"),
        }
    }
}

fn note(error: &StoreError, what: &'static str) {
    tracing::error!(error = error as &dyn std::error::Error, "{what}");
}
