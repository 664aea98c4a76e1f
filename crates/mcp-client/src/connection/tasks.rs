//! Calls that go on as tasks.

use crate::{CallOptions, Connection, Error, connection::requests::Deadline};
use jsonrpc_core::{ErrorCode, ErrorObject};
use mcp_protocol::{
    Era, Method,
    client::{Answer, ServerError, decode_input_requests, decode_result},
    model::{CallToolResult, ClientRequest, InputRetry, Task, TaskState, UpdateTask},
};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::{sleep, timeout_at};

/// The pause between two questions for a task, if the server does not name one.
const POLL: Duration = Duration::from_secs(1);
/// The shortest and the longest pause, whatever the server names.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(30);

#[derive(serde::Deserialize)]
struct Told {
    code: i32,
    message: String,
}

/// Cancels a task when it is dropped, unless it has ended.
struct Cancels {
    connection: Connection,
    task: Option<String>,
}

impl Drop for Cancels {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.task.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let connection = self.connection.clone();
        runtime.spawn(async move {
            let cancel = ClientRequest::CancelTask(id);
            if let Err(error) = connection.request(cancel, &CallOptions::default()).await {
                tracing::debug!(%error, "a task was not cancelled");
            }
        });
    }
}

impl Connection {
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
        };
        let waiting = match self.shared().version().era() {
            // The server answers when there is a result, and asks by requests of its own meanwhile.
            Era::Legacy => {
                let request = ClientRequest::AwaitTask(task.id);
                match self.request_until(request, options, deadline).await {
                    Ok(Answer::CallTool(result)) => Ok(result),
                    Ok(_) => Err(Error::Protocol(
                        "a task has a result of another kind".to_owned(),
                    )),
                    Err(error) => Err(error),
                }
            }
            Era::Modern => timeout_at(deadline.at, self.poll(task, options, deadline))
                .await
                .unwrap_or_else(|_| Err(self.timed_out(Method::GetTask, deadline))),
        };
        if matches!(waiting, Ok(_) | Err(Error::Server { .. })) {
            cancels.task = None;
        }
        waiting
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
            let Answer::Task(now) = self.request_until(asked, options, deadline).await? else {
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
            match &task.state {
                TaskState::Working => {}
                TaskState::Cancelled => {
                    return Err(Error::Unanswered("the task was cancelled".to_owned()));
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
                    let error = ErrorObject::new(ErrorCode(code), message);
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
                    self.request_until(update, options, deadline).await?;
                    first = true;
                }
            }
        }
    }
}
