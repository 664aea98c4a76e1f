//! Requests by name.

use crate::{CallOptions, Connection, Error};
use jsonrpc_core::RawJson;
use mcp_protocol::{
    Era, ProtocolVersion,
    client::{Answer, ServerError},
    model::{
        CallTool, CallToolResult, ClientRequest, Complete, Completion, GetPrompt, GetPromptResult,
        InputRetry, ReadResource, ReadResourceResult, TaskRequest,
    },
};
use std::collections::BTreeMap;

impl Connection {
    /// Asks whether the server is there: `ping`, and in the modern era `server/discover`.
    ///
    /// # Errors
    ///
    /// [`Error`] when it is not.
    pub async fn ping(&self) -> Result<(), Error> {
        let request = match self.shared().version().era() {
            Era::Modern => ClientRequest::Discover,
            Era::Legacy => ClientRequest::Ping,
        };
        self.request(request, &CallOptions::default()).await?;
        Ok(())
    }

    /// Calls a tool, and waits for its result: also if the server makes a task of the call. A tool that can be
    /// called as a task alone (2025-11-25) is called as one; for that the tools are listed, if need be.
    ///
    /// # Errors
    ///
    /// [`Error`] when there is no result. A tool that ran and failed has one, with `is_error`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call.
    pub async fn call(
        &self,
        tool: impl Into<String>,
        arguments: RawJson,
        options: &CallOptions,
    ) -> Result<CallToolResult, Error> {
        let call = CallTool {
            name: tool.into(),
            arguments,
            ..CallTool::default()
        };
        match self.call_or_ask(call, options).await? {
            Answer::CallTool(result) => Ok(result),
            _ => Err(Error::Protocol(
                "a call was answered with something else".to_owned(),
            )),
        }
    }

    /// The same for a call that may go on with answers to questions; its own questions are an answer too if
    /// [`CallOptions::hands_over_questions`] says so.
    ///
    /// # Errors
    ///
    /// [`Error`] when there is neither a result nor a question.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call.
    pub async fn call_or_ask(
        &self,
        mut call: CallTool,
        options: &CallOptions,
    ) -> Result<Answer, Error> {
        // What most calls do not come to is boxed here and below: the future of a call is moved with every call.
        let deadline = self.deadline(options);
        let answer = match self.has_legacy_tasks() {
            false => {
                let call = ClientRequest::CallTool(call);
                self.request_until(call, options, deadline).await?
            }
            true => {
                let as_task = |call: &CallTool| {
                    let listed = self.listed();
                    let is_task = options.as_task || listed.tasks.contains(&call.name);
                    is_task.then(TaskRequest::default)
                };
                call.task = as_task(&call);
                let first = ClientRequest::CallTool(call.clone());
                match self.request_until(first, options, deadline).await {
                    Err(Error::Server {
                        meaning: ServerError::MethodNotFound,
                        error,
                    }) if call.task.is_none() => {
                        Box::pin(self.tools_until(deadline)).await?;
                        call.task = as_task(&call);
                        if call.task.is_none() {
                            let meaning = ServerError::MethodNotFound;
                            return Err(Error::Server { error, meaning });
                        }
                        let call = ClientRequest::CallTool(call);
                        Box::pin(self.request_until(call, options, deadline)).await?
                    }
                    answer => answer?,
                }
            }
        };
        match answer {
            Answer::CreateTask(task) => {
                let result = Box::pin(self.wait_for_task(task, options, deadline)).await?;
                Ok(Answer::CallTool(result))
            }
            answer => Ok(answer),
        }
    }

    /// True if calls can be tasks of 2025-11-25.
    pub(super) fn has_legacy_tasks(&self) -> bool {
        let agreed = self.agreed();
        self.options().tasks
            && agreed.version == ProtocolVersion::V2025_11_25
            && agreed.offer.has_legacy_tasks()
    }

    /// Reads a resource.
    ///
    /// # Errors
    ///
    /// [`Error`] when there is no result.
    pub async fn read(&self, uri: impl Into<String>) -> Result<ReadResourceResult, Error> {
        let read = ClientRequest::ReadResource(ReadResource {
            uri: uri.into(),
            range: None,
            if_none_match: None,
            retry: InputRetry::default(),
        });
        match self.request(read, &CallOptions::default()).await? {
            Answer::ReadResource(result) => Ok(result),
            _ => Err(Error::Protocol(
                "a read was answered with something else".to_owned(),
            )),
        }
    }

    /// Gets a prompt.
    ///
    /// # Errors
    ///
    /// [`Error`] when there is no result.
    pub async fn prompt(
        &self,
        name: impl Into<String>,
        arguments: BTreeMap<String, String>,
    ) -> Result<GetPromptResult, Error> {
        let get = ClientRequest::GetPrompt(GetPrompt {
            name: name.into(),
            arguments,
            retry: InputRetry::default(),
        });
        match self.request(get, &CallOptions::default()).await? {
            Answer::GetPrompt(result) => Ok(result),
            _ => Err(Error::Protocol(
                "a prompt was answered with something else".to_owned(),
            )),
        }
    }

    /// Completes an argument.
    ///
    /// # Errors
    ///
    /// [`Error`] when there is no result.
    pub async fn complete(&self, complete: Complete) -> Result<Completion, Error> {
        let request = ClientRequest::Complete(complete);
        match self.request(request, &CallOptions::default()).await? {
            Answer::Complete(completion) => Ok(completion),
            _ => Err(Error::Protocol(
                "a completion was answered with something else".to_owned(),
            )),
        }
    }
}
