//! Recovery of tasks of dead processes, and the leases of those that run here.

use crate::{
    Invocations,
    invocation::answer::AnswerOptions,
    names::{caller_of, tool_capability},
    offer::Offer,
    tasks::{
        registry::Tasks,
        run::Run,
        running::{RunningTask, Stop},
        stored_call,
    },
};
use arc_swap::ArcSwap;
use futures_util::{StreamExt, future::select, stream};
use governance::{Governor, QuotaStore};
use ledger::Recorder;
use mcp_protocol::Encoder;
use mcp_service::Principal;
use std::{collections::HashSet, convert::Infallible, pin::pin, sync::Arc, time::Duration};
use task_store::{Lapsed, StoreError, TaskRecord, TaskState as Stored};

/// The most tasks that are being taken up at the same time.
const MAX_TAKEN_UP_AT_ONCE: usize = 64;

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
        runtime.spawn(async move { self.go_on().await });
    }

    async fn go_on(&self) {
        let mut closing = self.tasks.closing.subscribe();
        // Each beside the other: what runs here is to stay ours however much there is to take up.
        let (leases, others) = (pin!(self.keep_all_leases()), pin!(self.keep_taking_up()));
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
        let offer = self.offer.load_full();
        let name = record.capability.strip_prefix("tool/").unwrap_or_default();
        let name = name.to_owned();
        let tool = offer.tools().get(&name);
        let most = u64::from(self.tasks.options.max_attempts);
        let may_be_called = tool.is_none_or(stored_call::can_be_called_again);
        let given_up = if most <= attempt {
            Some(format!(
                "it was begun {attempt} times, as often as it may be"
            ))
        } else if !may_be_called && !has_call {
            Some(NOT_IDEMPOTENT.to_owned())
        } else {
            // Of a tool that is gone, the call itself says so.
            None
        };
        let slot = match given_up {
            Some(_) => None,
            None => match self.tasks.running.take(&Principal::new(&*record.principal)) {
                Some(slot) => Some(slot),
                None => return Ok(Taken::NoRoom),
            },
        };
        let next = TaskRecord {
            updated_us: now_us.max(record.updated_us),
            sequence: record.sequence + 1,
            state: Stored::Working,
            message: Some("the server has stopped, and the call is begun again".to_owned()),
            ..record
        };
        let lease = self.tasks.lease();
        let claimed = self.tasks.store.claim(next.clone(), lease, now_us).await?;
        let Some(claimed) = claimed else {
            return Ok(Taken::Done); // somebody else was first, or its client has cancelled it
        };
        let visible = {
            let governor = Arc::clone(&self.governor);
            let capability = tool_capability(&name);
            Arc::new(move |it: &Principal| governor.visible(caller_of(it), &capability))
        };
        let poll_interval_ms = self.tasks.poll_interval_ms();
        let run = (claimed.attempt, claimed.attempt < most);
        let live = RunningTask::new(next, poll_interval_ms, visible, slot, run);
        let call = claimed.call.as_deref().filter(|_| given_up.is_none());
        let again =
            call.and_then(|text| stored_call::read(&live.record, claimed.attempt, text, now_us));
        // One that is carried out elsewhere is not called again, but waited for.
        let again = again.filter(|it| may_be_called || it.resume.is_some());
        let Some(again) = again else {
            let why = given_up.unwrap_or_else(|| match may_be_called {
                true => "what was called is not on record".to_owned(),
                false => NOT_IDEMPOTENT.to_owned(),
            });
            tracing::warn!(task = ?live.record.id, tool = name, why, "a task was cut short");
            let (state, message) = stored_call::cut_short(&why, None);
            self.tasks.end(&live, state, message).await;
            return Ok(Taken::Done);
        };
        if !self.tasks.enter(&live) {
            return Ok(Taken::Done); // the next process finds it
        }
        tracing::info!(
            task = ?live.record.id,
            tool = name,
            attempt = claimed.attempt,
            "a task is begun again that was cut short"
        );
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
            visible: Arc::clone(&live.visible),
        });
        let under_way = self.tasks.under_way();
        self.tasks.runtime.spawn(async move {
            run.again(&live).await;
            drop(under_way);
        });
        Ok(Taken::Done)
    }
}

impl Tasks {
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
