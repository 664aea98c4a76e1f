//! Calls that go on as tasks.

use crate::{CallOptions, Connection, Error, OnTask, connection::requests::Deadline};
use jsonrpc_core::{ErrorCode, ErrorObject};
use mcp_protocol::{
    Era, Method,
    client::{Answer, ServerError, decode_input_requests, decode_result},
    model::{
        CallToolResult, ClientRequest, InputRetry, ServerNotification, SubscriptionFilter, Task,
        TaskState, UpdateTask,
    },
};
use std::{collections::BTreeSet, convert::Infallible, future::pending, time::Duration};
use tokio::time::{sleep, timeout_at};

/// The pause between two questions for a task, if the server does not name one.
const POLL: Duration = Duration::from_secs(1);
/// The shortest and the longest pause, whatever the server names.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(30);

#[derive(serde::Deserialize)]
struct Told {
    code: i64,
    message: String,
}

/// Cancels a task when it is dropped, unless it has ended.
struct Cancels {
    connection: Connection,
    task: Option<String>,
    on_task: Option<OnTask>,
}

impl Drop for Cancels {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.task.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        if self.on_task.as_ref().is_some_and(OnTask::is_left) {
            return;
        }
        let connection = self.connection.clone();
        let errand = connection.shared().errand();
        runtime.spawn(async move {
            let _errand = errand;
            let cancel = ClientRequest::CancelTask(id);
            if let Err(error) = connection.request(cancel, &CallOptions::default()).await {
                tracing::debug!(%error, "a task was not cancelled");
            }
        });
    }
}

impl Connection {
    /// Goes on waiting for the result of a call that the server has made a task of, on this connection or an earlier one.
    ///
    /// # Errors
    ///
    /// [`Error`] when there is no result; [`Error::TaskUntold`] if the server does not know the task.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the task, unless [`OnTask::left_if`] says otherwise.
    pub async fn resume_task(
        &self,
        id: impl Into<String>,
        options: &CallOptions,
    ) -> Result<CallToolResult, Error> {
        let task = Task {
            id: id.into(),
            state: TaskState::Working,
            status_message: None,
            created_at: String::new(),
            last_updated_at: String::new(),
            ttl_ms: None,
            poll_interval_ms: None,
        };
        self.wait_for_task(task, options, self.deadline(options))
            .await
    }

    /// Waits for the result of a call that the server has answered with a task. What the task asks is
    /// answered by the handlers. Giving up cancels the task.
    pub(crate) async fn wait_for_task(
        &self,
        task: Task,
        options: &CallOptions,
        deadline: Deadline,
    ) -> Result<CallToolResult, Error> {
        let mut cancels = Cancels {
            connection: self.clone(),
            task: Some(task.id.clone()),
            on_task: options.on_task.clone(),
        };
        if let Some(on_task) = &options.on_task {
            on_task.tell(&task);
        }
        let waiting = match self.shared().version().era() {
            // The server answers when there is a result, and asks by requests of its own meanwhile.
            Era::Legacy => {
                let told = self.legacy_statuses(&task.id, options).await;
                let request = ClientRequest::AwaitTask(task.id);
                let answer = self.request_until(request, options, deadline);
                let answer = tokio::select! {
                    biased;
                    answer = answer => answer,
                    never = told => match never {},
                };
                match answer {
                    Ok(Answer::CallTool(result)) => Ok(result),
                    Ok(_) => Err(Error::Protocol(
                        "a task has a result of another kind".to_owned(),
                    )),
                    // Whatever the call has ended with is told in the same way; its arguments were taken, though.
                    Err(Error::Server {
                        error,
                        meaning: ServerError::InvalidParams,
                    }) => Err(Error::TaskUntold { error }),
                    Err(error) => Err(error),
                }
            }
            Era::Modern => timeout_at(deadline.at, self.poll(task, options, deadline))
                .await
                .unwrap_or_else(|_| Err(self.timed_out(Method::GetTask, deadline))),
        };
        let waiting = waiting.map_err(|error| match error {
            Error::TimedOut { within, note, .. } => Error::TimedOut {
                method: Method::CallTool.name(),
                within,
                note: match note.trim() {
                    "" => "the server has made a task of it, which has not ended".to_owned(),
                    note => {
                        format!("the server has made a task of it, which has not ended; {note}")
                    }
                },
            },
            error => error,
        });
        // Whoever follows the task can ask for it on another connection.
        let is_away = |error: &Error| {
            error.is_loss() || matches!(error, Error::AuthorizationUnavailable { .. })
        };
        let is_followed = |error: &Error| options.on_task.is_some() && is_away(error);
        let is_over = match &waiting {
            Ok(_)
            | Err(Error::Server { .. } | Error::TaskCancelled { .. } | Error::TaskUntold { .. }) => {
                true
            }
            Err(error) => is_followed(error),
        };
        if is_over {
            cancels.task = None;
        }
        waiting
    }

    /// Passes on what a legacy server tells of a task without being asked.
    async fn legacy_statuses(
        &self,
        id: &str,
        options: &CallOptions,
    ) -> impl Future<Output = Infallible> + use<> {
        let on_task = options.on_task.clone();
        let filter = SubscriptionFilter {
            task_ids: vec![id.to_owned()],
            ..SubscriptionFilter::default()
        };
        let heard = match on_task {
            Some(_) => self.listen(filter).await.ok(),
            None => None,
        };
        async move {
            if let (Some(on_task), Some(mut heard)) = (on_task, heard) {
                while let Ok(Some(told)) = heard.next().await {
                    if let ServerNotification::TaskChanged(task) = told {
                        on_task.tell(&task);
                    }
                }
            }
            pending().await
        }
    }

    async fn poll(
        &self,
        mut task: Task,
        options: &CallOptions,
        deadline: Deadline,
    ) -> Result<CallToolResult, Error> {
        let version = self.shared().version();
        let mut answered = BTreeSet::new();
        let mut first = true;
        loop {
            if !std::mem::take(&mut first) {
                let pause = task.poll_interval_ms.map_or(POLL, Duration::from_millis);
                sleep(pause.clamp(SHORTEST, LONGEST)).await;
            }
            let asked = ClientRequest::GetTask(task.id.clone());
            let told = self.request_until(asked, options, deadline).await;
            let Answer::Task(now) = told.map_err(untold)? else {
                return Err(Error::Protocol(
                    "a task was answered with something else".to_owned(),
                ));
            };
            if now.id != task.id {
                return Err(Error::Protocol(
                    "it told of another task than was asked for".to_owned(),
                ));
            }
            task = now;
            if let Some(on_task) = &options.on_task {
                on_task.tell(&task);
            }
            match &task.state {
                TaskState::Working => {}
                TaskState::Cancelled => {
                    let why = task.status_message.unwrap_or_default();
                    return Err(Error::TaskCancelled {
                        reason: self.shared().quoted(why.as_bytes()),
                    });
                }
                TaskState::Completed { result, .. } => {
                    return match decode_result(version, Method::CallTool, result)?.answer {
                        Answer::CallTool(result) => Ok(result),
                        _ => Err(Error::Protocol(
                            "a task has a result of another kind".to_owned(),
                        )),
                    };
                }
                TaskState::Failed { error } => {
                    let unfit =
                        |_| Error::Protocol("a task failed with what is no error".to_owned());
                    let Told { code, message } = error.parse().map_err(unfit)?;
                    let error = ErrorObject::new(ErrorCode::nearest(code), message);
                    let meaning = ServerError::of(version, &error);
                    return Err(Error::Server { error, meaning });
                }
                TaskState::InputRequired { requests } => {
                    let questions = decode_input_requests(version, requests);
                    let mut questions =
                        questions.map_err(|error| Error::Protocol(error.to_string()))?;
                    questions.retain(|key, _| !answered.contains(key));
                    if questions.is_empty() {
                        continue;
                    }
                    answered.extend(questions.keys().cloned());
                    if self.options().bounds.max_items < answered.len() {
                        let most = self.options().bounds.max_items as u64;
                        return Err(Error::bound("max_items", most));
                    }
                    let responses = self.answer_all(version, questions).await?;
                    let update = ClientRequest::UpdateTask(UpdateTask {
                        id: task.id.clone(),
                        answers: InputRetry {
                            responses,
                            state: None,
                        },
                    });
                    let updated = self.request_until(update, options, deadline).await;
                    updated.map_err(untold)?;
                    first = true;
                }
            }
        }
    }
}

/// Tells a refused question for a task from the task's own error.
fn untold(error: Error) -> Error {
    match error {
        Error::Server { error, .. } => Error::TaskUntold { error },
        error => error,
    }
}
