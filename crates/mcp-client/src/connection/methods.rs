//! Requests by name.

use crate::{CallOptions, Connection, Error};
use jsonrpc_core::RawJson;
use mcp_protocol::{
    Era,
    client::Answer,
    model::{
        CallTool, CallToolResult, ClientRequest, Complete, Completion, GetPrompt, GetPromptResult,
        InputRetry, ReadResource, ReadResourceResult,
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

    /// Calls a tool, and waits for its result: also if the server makes a task of the call.
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
        let deadline = self.deadline(options);
        let call = ClientRequest::CallTool(CallTool {
            name: tool.into(),
            arguments,
            ..CallTool::default()
        });
        match self.request_until(call, options, deadline).await? {
            Answer::CallTool(result) => Ok(result),
            Answer::CreateTask(task) => self.wait_for_task(task, options, deadline).await,
            _ => Err(Error::Protocol(
                "a call was answered with something else".to_owned(),
            )),
        }
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
