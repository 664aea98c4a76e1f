//! Methods by which clients follow, answer and cancel their tasks.

use crate::{
    input::rounds::{self, ask_all},
    names::caller_of,
    pipeline::start_entry::arguments_digest,
    server::{
        Server,
        cursor::{self, Listed},
    },
    tasks::{
        convert,
        found::{Found, found_in_store},
        registry::Tasks,
        running::{AnswersTooLarge, RunningTask, Stop},
    },
};
use futures_util::{
    StreamExt as _,
    future::{Either, select},
    stream,
};
use governance::QuotaStore;
use jsonrpc_core::{ErrorCode, RawJson};
use ledger::{CallId, End, Kind, Outcome, Start};
use mcp_protocol::{
    Era, Method, ProtocolError, ProtocolVersion,
    client::decode_input_requests,
    model::{
        ClientCapabilities, InputRequest, ListTasksResult, Listening, Page, ServerResult,
        SubscriptionFilter, Task, TaskState, UpdateTask,
    },
};
use mcp_service::{McpError, Outbox, RequestCx};
use serde_json::json;
use std::{collections::HashSet, pin::pin, sync::Arc, time::Duration};
use task_store::{TaskId, TaskRecord, TaskState as Stored};

/// The most tasks on a page of `tasks/list`.
const PAGE: usize = 50;

/// The most resources of one subscription that are looked at together, so that others have their turns meanwhile.
const AT_ONCE: usize = 8;

/// The longest time `tasks/cancel` waits for a task to end.
const MAX_CANCEL: Duration = Duration::from_secs(5);

impl<Q: QuotaStore> Server<Q> {
    pub(crate) async fn get_task(
        &self,
        cx: &RequestCx,
        id: &str,
    ) -> Result<ServerResult, McpError> {
        let tasks = self.tasks_for(cx)?;
        let (_, task) = self.find(cx, tasks, id).await?.seen(tasks);
        Ok(ServerResult::Task(Box::new(task)))
    }

    pub(crate) async fn update_task(
        &self,
        cx: &RequestCx,
        update: UpdateTask,
    ) -> Result<ServerResult, McpError> {
        let tasks = self.tasks_for(cx)?;
        let found = self.find(cx, tasks, &update.id).await?;
        let keys: Vec<_> = update.answers.responses.keys().cloned().collect();
        let asked = json!({ "taskId": update.id, "inputResponses": keys });
        self.record_about(cx, Method::UpdateTask, &found, &asked)
            .await?;
        let responses = update.answers.responses.into_iter();
        let responses = responses.filter_map(|(key, raw)| Some((key, rounds::boxed(&raw)?)));
        let responses = responses.collect();
        match found {
            Found::Live(live) => tasks
                .answer(&live, responses)
                .map_err(|error| too_large(&error))?,
            Found::Elsewhere(record) => {
                let taken = tasks.answer_elsewhere(&record.id, responses).await;
                if !taken.map_err(|error| McpError::internal(&error))? {
                    return Err(too_large(&AnswersTooLarge));
                }
            }
            // Answers to a task that is over are answers to nothing that is asked.
            Found::Over(_) => {}
        }
        Ok(ServerResult::Empty)
    }

    pub(crate) async fn cancel_task(
        &self,
        cx: &RequestCx,
        id: &str,
    ) -> Result<ServerResult, McpError> {
        let tasks = self.tasks_for(cx)?;
        let found = self.find(cx, tasks, id).await?;
        // What cannot be recorded is done all the same: it only makes less happen.
        let asked = json!({ "taskId": id });
        let _ = self
            .record_about(cx, Method::CancelTask, &found, &asked)
            .await;
        let modern = cx.version.era() == Era::Modern;
        let found = tasks.cancel_elsewhere(found).await;
        let task = match found.map_err(|error| McpError::internal(&error))? {
            Found::Over(record) => {
                let poll = tasks.poll_interval_ms();
                // Cancelled before it was asked to be is not cancelled by it.
                (convert::seen(record, poll), false)
            }
            Found::Elsewhere(record) => {
                let cancelled = matches!(record.state, Stored::Cancelled);
                (convert::seen(record, tasks.poll_interval_ms()), cancelled)
            }
            Found::Live(live) => {
                live.stop(Stop::Cancelled);
                let over = tokio::time::timeout(MAX_CANCEL, live.over()).await;
                let (_, task) = live.seen();
                let cancelled = over.is_ok() && task.state == TaskState::Cancelled;
                (task, cancelled)
            }
        };
        match task {
            // The extension acknowledges the wish alone.
            _ if modern => Ok(ServerResult::Empty),
            (task, true) => Ok(ServerResult::Task(Box::new(task))),
            (task, false) if task.state.is_terminal() => Err(McpError::new(
                ErrorCode::INVALID_PARAMS,
                "invalid params of tasks/cancel: the task is over already",
            )),
            (_, false) => Err(McpError::new(
                ErrorCode::INTERNAL_ERROR,
                "the task is being cancelled and has not ended yet",
            )),
        }
    }

    /// `tasks/result`: what the call would have been answered with. What the task asks until then is
    /// asked here, where the client can be reached.
    pub(crate) async fn await_task(
        &self,
        cx: &RequestCx,
        id: &str,
    ) -> Result<ServerResult, McpError> {
        let tasks = self.tasks_for(cx)?;
        // The engine has given up the place of this request: nothing is waited for without one.
        let Some(_slot) = tasks.waiting.take(&cx.principal) else {
            let error = McpError::new(
                ErrorCode::INTERNAL_ERROR,
                "too many requests are waiting for tasks",
            );
            return Err(McpError(error.0.with(&json!({ "retryable": true }))));
        };
        // What was asked here for a task that another server carries out.
        let mut asked = None;
        loop {
            match self.find(cx, tasks, id).await? {
                Found::Over(record) => {
                    return result_of(convert::seen(record, tasks.poll_interval_ms()));
                }
                Found::Live(live) => {
                    if let Some(result) = self.await_live(cx, tasks, id, &live).await? {
                        return Ok(result);
                    }
                }
                Found::Elsewhere(record) => {
                    if asked.as_ref() != Some(&record.state) {
                        self.ask_of_elsewhere(cx, tasks, id, &record).await?;
                        asked = Some(record.state);
                    }
                    tasks.look_again_later().await?;
                }
            }
        }
    }

    /// Waits for the end of a task that is carried on here; `None` if it no longer is.
    async fn await_live(
        &self,
        cx: &RequestCx,
        tasks: &Arc<Tasks>,
        id: &str,
        live: &Arc<RunningTask>,
    ) -> Result<Option<ServerResult>, McpError> {
        let mut changes = live.changes();
        loop {
            changes.borrow_and_update();
            if live.is_lost() {
                return Ok(None);
            }
            let (_, task) = live.seen();
            // Who waits need not have been allowed to all the while.
            if !(live.visible)(&cx.principal) {
                return Err(unknown_task());
            }
            if task.state.is_terminal() {
                return result_of(task).map(Some);
            }
            let Some((claim, requests)) = live.claim(&mut changes) else {
                // The sender lives as long as `live`.
                let _ = changes.changed().await;
                continue;
            };
            // This need not be the session that the task is from, and another may be able to answer.
            let can_answer = requests
                .values()
                .all(|it| it.is_declared_by(&cx.capabilities));
            let changed = pin!(changes.changed());
            // A task that is over asks nothing any more: the client is told so.
            match select(pin!(ask_all(cx, &requests, Some(id))), changed).await {
                Either::Left((Ok(responses), _)) => {
                    if let Err(error) = tasks.answer(live, responses) {
                        tasks.refuse(live, too_large(&error));
                    }
                }
                Either::Left((Err(unanswered), _)) if unanswered.refused && can_answer => {
                    tasks.refuse(live, unanswered.error);
                }
                Either::Left((Err(unanswered), _)) => return Err(unanswered.error),
                Either::Right(_) => {}
            }
            drop(claim);
        }
    }

    /// Asks the client what a task asks that another server carries out, and hands the answers to that one.
    async fn ask_of_elsewhere(
        &self,
        cx: &RequestCx,
        tasks: &Tasks,
        id: &str,
        record: &TaskRecord,
    ) -> Result<(), McpError> {
        let Stored::InputRequired { requests } = &record.state else {
            return Ok(());
        };
        let requests = RawJson::from_serialized(requests.clone().into_bytes());
        let requests = decode_input_requests(ProtocolVersion::V2026_07_28, &requests);
        let mut requests = requests.map_err(|error| McpError::internal(&error))?;
        for request in requests.values_mut() {
            if let InputRequest::ElicitUrl { elicitation_id, .. } = request {
                *elicitation_id = uuid::Uuid::new_v4().to_string();
            }
        }
        let can_answer = requests
            .values()
            .all(|it| it.is_declared_by(&cx.capabilities));
        // Answered elsewhere, or over, it asks nothing any more: the client is told so.
        let changed = async {
            loop {
                tasks.look_again_later().await?;
                match self.find(cx, tasks, id).await? {
                    Found::Elsewhere(now) if now.state == record.state => {}
                    _ => return Ok(()),
                }
            }
        };
        let said = match select(pin!(ask_all(cx, &requests, Some(id))), pin!(changed)).await {
            Either::Left((Ok(responses), _)) => {
                let taken = tasks.answer_elsewhere(&record.id, responses).await;
                match taken {
                    Ok(false) => {
                        let refusal = too_large(&AnswersTooLarge);
                        tasks.refuse_elsewhere(&record.id, &refusal).await
                    }
                    taken => taken.map(drop),
                }
            }
            Either::Left((Err(unanswered), _)) if unanswered.refused && can_answer => {
                let error = &unanswered.error;
                tasks.refuse_elsewhere(&record.id, error).await
            }
            Either::Left((Err(unanswered), _)) => return Err(unanswered.error),
            Either::Right((changed, _)) => return changed,
        };
        said.map_err(|error| McpError::internal(&error))
    }

    pub(crate) async fn list_tasks(
        &self,
        cx: &RequestCx,
        page: Page,
    ) -> Result<ServerResult, McpError> {
        let tasks = self.tasks_for(cx)?;
        let after = match page.cursor {
            None => None,
            Some(cursor) => Some(place(&cursor).ok_or_else(|| {
                McpError::new(
                    ErrorCode::INVALID_PARAMS,
                    "invalid params of tasks/list: the cursor is not one of this list",
                )
            })?),
        };
        let caller = caller_of(&cx.principal);
        let version = cx.version.as_str().to_owned();
        let listed = tasks
            .store
            .list(caller.principal.to_owned(), version, after, PAGE + 1);
        let mut records = listed.await.map_err(|error| McpError::internal(&error))?;
        let more = PAGE < records.len();
        records.truncate(PAGE);
        let next_cursor = records.last().filter(|_| more).map(|it| {
            let key = format!("{}.{}", it.created_us, it.id.as_str());
            cursor::after(Listed::Tasks, &key)
        });
        let now_us = (self.clock)();
        let known = records
            .into_iter()
            .filter(|it| now_us < it.expires_us && self.governor.visible(caller, &it.capability));
        let seen = known.map(|record| match tasks.live(&record.id) {
            Some(live) => live.seen().1,
            None => convert::seen(record, tasks.poll_interval_ms()),
        });
        Ok(ServerResult::ListTasks(ListTasksResult {
            tasks: seen.collect(),
            next_cursor,
        }))
    }

    /// Selects, of what a client wants to listen to, the resources whose changes are known here and the tasks
    /// that the client has.
    pub(crate) async fn agree_to_listen(
        &self,
        cx: &RequestCx,
        mut wanted: SubscriptionFilter,
    ) -> Result<ServerResult, McpError> {
        let offer = self.offer.load_full();
        let resources = &mut wanted.resource_subscriptions;
        let can_listen = resources.iter().map(|uri| self.can_listen(cx, &offer, uri));
        let can_listen: Vec<_> = can_listen.collect();
        let can_listen = stream::iter(can_listen)
            .buffered(AT_ONCE)
            .collect::<Vec<_>>();
        let mut can_listen = can_listen.await.into_iter();
        resources.retain(|_| can_listen.next().unwrap_or_default());
        if wanted.task_ids.is_empty() {
            return Ok(ServerResult::Listening(Listening {
                accepted: wanted,
                tasks: Vec::new(),
            }));
        }
        let tasks = self.tasks_for(cx)?;
        let mut accepted = SubscriptionFilter {
            task_ids: Vec::new(),
            ..wanted
        };
        let (mut now, mut room) = (Vec::new(), Outbox::DEFAULT_MAX_BYTES);
        let mut known = HashSet::new();
        for id in wanted.task_ids {
            if !known.insert(id.clone()) {
                continue;
            }
            match self.find(cx, tasks, &id).await {
                Ok(found) => {
                    let (changes, task) = found.seen(tasks);
                    // What has no room among what is to be sent would be held for nothing.
                    if let Some(left) = room.checked_sub(convert::size(&task.state)) {
                        room = left;
                        now.push((changes, task));
                    }
                    accepted.task_ids.push(id);
                }
                Err(error) if error.0.code == ErrorCode::INVALID_PARAMS => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ServerResult::Listening(Listening {
            accepted,
            tasks: now,
        }))
    }

    /// The tasks, for clients that have said that they know what they are.
    fn tasks_for(&self, cx: &RequestCx) -> Result<&Arc<Tasks>, McpError> {
        let Some(tasks) = &self.tasks else {
            // What is not offered does not get here.
            return Err(McpError::new(ErrorCode::INTERNAL_ERROR, "internal error"));
        };
        if cx.version.era() == Era::Modern && !cx.capabilities.has_tasks() {
            return Err(tasks_missing());
        }
        Ok(tasks)
    }

    /// The task `id`, if it is this client's, in this revision, and of something it may still see.
    /// What is not found for any reason is not there, word for word.
    async fn find(&self, cx: &RequestCx, tasks: &Tasks, id: &str) -> Result<Found, McpError> {
        let id: TaskId = id.parse().map_err(|_| unknown_task())?;
        tasks.sweep((self.clock)());
        let found = match tasks.live(&id) {
            Some(live) => Found::Live(live),
            None => {
                let record = tasks.store.get(id).await;
                let record = record.map_err(|error| McpError::internal(&error))?;
                found_in_store(record.ok_or_else(unknown_task)?)
            }
        };
        let record = found.record();
        let is_theirs = record.principal == cx.principal.as_str()
            && record.protocol_version == cx.version.as_str()
            && (self.clock)() < record.expires_us
            && self
                .governor
                .visible(caller_of(&cx.principal), &record.capability);
        if is_theirs {
            Ok(found)
        } else {
            Err(unknown_task())
        }
    }

    /// Writes down what a client did to one of its tasks.
    async fn record_about(
        &self,
        cx: &RequestCx,
        method: Method,
        found: &Found,
        arguments: &serde_json::Value,
    ) -> Result<(), McpError> {
        let at_us = (self.clock)();
        let request_id = cx.id.to_string();
        let arguments = arguments.to_string();
        // Not the tool's own: nothing of this is a call of it, or counts as one.
        let capability = found.record().capability.replacen("tool/", "task/", 1);
        let kept = self.redactor.json(&capability, &arguments);
        let start = Start {
            request_id: &request_id,
            method: method.name(),
            transport: cx.transport.as_str(),
            protocol_version: cx.version.as_str(),
            session: cx.session.as_deref(),
            arguments: &kept,
            arguments_digest: Some(arguments_digest(&self.redactor, &arguments, &kept)),
            policy_version: self.governor.policy().version(),
            ..Start::new(
                CallId::new(at_us),
                at_us,
                cx.principal.as_str(),
                Kind::Other,
                &capability,
            )
        };
        let open = self.recorder.begin(&start).await;
        let open = open.map_err(|error| {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                method = method.name(),
                "what a client does to a task could not be recorded"
            );
            McpError::new(
                ErrorCode::INTERNAL_ERROR,
                "the request cannot be recorded, and is refused",
            )
        })?;
        drop(open.finish(&End::new(Outcome::Succeeded)));
        Ok(())
    }
}

/// A client that does not know tasks asks for what needs them.
pub(crate) fn tasks_missing() -> McpError {
    let required = ClientCapabilities::of_tasks();
    McpError(ProtocolError::MissingClientCapability { required }.to_error_object())
}

fn unknown_task() -> McpError {
    McpError::new(
        ErrorCode::INVALID_PARAMS,
        "invalid params: there is no such task, or it has expired",
    )
}

fn too_large(error: &AnswersTooLarge) -> McpError {
    McpError::new(
        ErrorCode::INVALID_PARAMS,
        format!("invalid params: {error}"),
    )
}

/// The place where a cursor of the list of tasks stands.
fn place(text: &str) -> Option<(u64, TaskId)> {
    let text = cursor::read(Listed::Tasks, text)?;
    let (created_us, id) = text.split_once('.')?;
    Some((created_us.parse().ok()?, id.parse().ok()?))
}

fn result_of(task: Task) -> Result<ServerResult, McpError> {
    match task.state {
        TaskState::Completed { result, .. } => Ok(ServerResult::Encoded(result)),
        TaskState::Failed { error } => Err(convert::error_of(&error)),
        TaskState::Cancelled => Err(McpError::new(
            ErrorCode::INTERNAL_ERROR,
            "the task was cancelled, and has no result",
        )),
        TaskState::Working | TaskState::InputRequired { .. } => Err(McpError::new(
            ErrorCode::INTERNAL_ERROR,
            "the task is not over",
        )),
    }
}
