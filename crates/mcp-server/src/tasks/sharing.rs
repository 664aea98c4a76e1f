//! Tasks of a store that several servers share: what is told to the others, and what they tell.

use crate::{
    names::caller_of,
    tasks::{
        convert,
        recovery::Recovery,
        registry::Tasks,
        running::{MAX_ANSWER_BYTES, Responses, RunningTask, Stop},
    },
};
use futures_util::StreamExt;
use governance::QuotaStore;
use jsonrpc_core::RawJson;
use mcp_service::{Change, McpError, Principal};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{error::Error, sync::Arc};
use task_store::{SharedTasks, StoreError, TaskId, TaskNews, TaskRecord, TaskState as Stored};

/// Word of a client about a question, on its way to the server that carries the task out.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Answers(Responses),
    /// Refusal to answer: an error object.
    Refusal(Box<RawValue>),
}

impl Tasks {
    /// Stores how a task stands, where other servers read it. In the background, and at once nothing where
    /// there are none.
    pub(crate) fn show(self: &Arc<Self>, live: &Arc<RunningTask>) {
        if self.store.shared().is_none() {
            return;
        }
        let (tasks, live) = (Arc::clone(self), Arc::clone(live));
        self.runtime.spawn(async move {
            let _one_at_a_time = live.showing.lock().await;
            let (_, task) = live.seen();
            let Some(shared) = tasks.store.shared() else {
                return;
            };
            // Its end is a step of the record, and stored by then.
            if task.state.is_terminal() {
                return;
            }
            let message = task.status_message.as_deref();
            let shown = TaskRecord {
                updated_us: live.updated_us(),
                state: convert::stored(&task.state),
                message: message.map(|it| redaction::without_known(it).into_owned()),
                ..live.record.clone()
            };
            if let Err(error) = shared.show(shown).await {
                note(
                    &error,
                    &live.record.id,
                    "other servers do not see how a task stands",
                );
            }
        });
    }

    /// True if `ours`, the end of a task that was cancelled here, was stored by another server before.
    pub(crate) async fn is_cancelled_elsewhere(&self, ours: &TaskRecord) -> bool {
        if self.store.shared().is_none() || ours.state != Stored::Cancelled {
            return false;
        }
        let stored = self.store.get(ours.id.clone()).await;
        stored.is_ok_and(|it| it.is_some_and(|it| it.state == Stored::Cancelled))
    }

    /// Hands what a client answers to the server that carries its task out. False if there is more than a
    /// task takes.
    pub(crate) async fn answer_elsewhere(
        &self,
        id: &TaskId,
        responses: Responses,
    ) -> Result<bool, StoreError> {
        let size: usize = responses.values().map(|it| it.get().len()).sum();
        if MAX_ANSWER_BYTES < size {
            return Ok(false);
        }
        self.say_elsewhere(id, &Said::Answers(responses)).await?;
        Ok(true)
    }

    /// Tells the server that carries a task out that its client does not answer.
    pub(crate) async fn refuse_elsewhere(
        &self,
        id: &TaskId,
        error: &McpError,
    ) -> Result<(), StoreError> {
        let error = RawValue::from_string(convert::error_json(error).as_str().to_owned());
        match error {
            Ok(error) => self.say_elsewhere(id, &Said::Refusal(error)).await,
            Err(error) => Err(StoreError(error.into())),
        }
    }

    async fn say_elsewhere(&self, id: &TaskId, said: &Said) -> Result<(), StoreError> {
        let Some(shared) = self.store.shared() else {
            return Ok(());
        };
        let text = serde_json::to_string(said).map_err(|error| StoreError(error.into()))?;
        // What is asked no more needs no answer. Twice the bound, for the names of what is answered.
        let max_bytes = 2 * MAX_ANSWER_BYTES;
        let taken = shared.hand_over(id.clone(), text, max_bytes).await?;
        if !taken {
            tracing::debug!(task = ?id, "an answer to nothing that a task asks was passed over");
        }
        Ok(())
    }

    /// Takes what clients have answered elsewhere.
    async fn take_answers(self: &Arc<Self>, shared: &dyn SharedTasks) {
        let all = match shared.take_answers(self.owner.clone()).await {
            Ok(all) => all,
            Err(error) => {
                let error = &error as &dyn Error;
                tracing::warn!(
                    error,
                    "answers to tasks could not be read; it is tried again"
                );
                return;
            }
        };
        for (id, text) in all {
            let Some(live) = self.live(&id) else { continue };
            match serde_json::from_str(&text) {
                Ok(Said::Answers(responses)) => {
                    if let Err(error) = self.answer(&live, responses) {
                        tracing::warn!(task = ?id, %error, "an answer was not taken");
                    }
                }
                Ok(Said::Refusal(error)) => {
                    let error = RawJson::from_serialized(error.get().to_owned().into_bytes());
                    self.refuse(&live, convert::error_of(&error));
                }
                Err(error) => tracing::warn!(task = ?id, %error, "an answer cannot be read"),
            }
        }
    }

    /// Stops a task here that another server has cancelled, taken or forgotten.
    pub(crate) async fn look_after(&self, live: &RunningTask) -> Result<(), StoreError> {
        match self.store.get(live.record.id.clone()).await? {
            Some(record) if record.state == Stored::Cancelled => live.stop(Stop::Cancelled),
            Some(record) if record.sequence == live.record.sequence => {}
            // Its end may have been ours a moment ago: then nothing is left to be stopped.
            Some(_) | None => live.stop(Stop::Lost),
        }
        Ok(())
    }
}

impl<Q: QuotaStore> Recovery<Q> {
    /// Follows what other servers do to tasks, until their news end; at once where there are none.
    pub(crate) async fn follow_others(&self) {
        let Some(shared) = self.tasks.store.shared() else {
            return;
        };
        let mut news = shared.news();
        while let Some(told) = news.next().await {
            match told {
                TaskNews::Changed(id) => self.changed_elsewhere(&id).await,
                TaskNews::Answered(id) if self.tasks.live(&id).is_some() => {
                    self.tasks.take_answers(shared).await;
                }
                TaskNews::Answered(_) => {}
                TaskNews::Missed => {
                    self.tasks.take_answers(shared).await;
                    let running: Vec<_> = self.tasks.lock().keys().cloned().collect();
                    let followed = self.tasks.subscriptions.get();
                    let followed = followed.map(|it| it.tasks()).unwrap_or_default();
                    let followed = followed.iter().filter_map(|id| id.parse().ok());
                    for id in running.into_iter().chain(followed) {
                        self.changed_elsewhere(&id).await;
                    }
                }
            }
        }
    }

    async fn changed_elsewhere(&self, id: &TaskId) {
        let changed = match self.tasks.live(id) {
            Some(live) => self.tasks.look_after(&live).await,
            None => self.tell_of(id).await,
        };
        if let Err(error) = changed {
            note(&error, id, "it could not be read how a task stands");
        }
    }

    /// Tells subscribers here of a task that is not carried out here.
    async fn tell_of(&self, id: &TaskId) -> Result<(), StoreError> {
        let tasks = &self.tasks;
        let Some(subscriptions) = tasks.subscriptions.get() else {
            return Ok(());
        };
        if !subscriptions.is_task_followed(id.as_str()) {
            return Ok(());
        }
        let Some(record) = tasks.store.get(id.clone()).await? else {
            return Ok(());
        };
        let number = match record.state.is_terminal() {
            true => u64::MAX,
            false => record.updated_us,
        };
        let (principal, capability) = (record.principal.clone(), record.capability.clone());
        let task = convert::seen(record, tasks.poll_interval_ms());
        subscriptions.publish(&Change::Task(number, task), |it: &Principal| {
            it.as_str() == principal && self.governor.visible(caller_of(it), &capability)
        });
        Ok(())
    }
}

fn note(error: &StoreError, task: &TaskId, what: &'static str) {
    tracing::warn!(error = error as &dyn Error, ?task, "{what}");
}
