//! Connections for callers without a runtime.

use crate::{CallOptions, Dial, Error, Options};
use mcp_protocol::{
    RawJson,
    model::{CallToolResult, GetPromptResult, Prompt, ReadResourceResult, Resource, Tool},
};
use std::{collections::BTreeMap, future::Future, sync::Arc};
use tokio::runtime::{Handle, Runtime};

/// A connection whose methods wait. It has a runtime of its own, of one thread, which answers the server
/// between calls too. It must not be used from asynchronous code.
#[derive(Clone, Debug)]
pub struct Connection {
    connection: crate::Connection,
    runtime: Arc<Running>,
}

/// A runtime that closes its connection before it ends.
#[derive(Debug)]
struct Running {
    connection: crate::Connection,
    runtime: Option<Runtime>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        let connection = self.connection.clone();
        match Handle::try_current() {
            Err(_) => runtime.block_on(connection.close()),
            // Asynchronous code must not wait here.
            Ok(_) => {
                connection.shared().close("it was closed");
                runtime.shutdown_background();
            }
        }
    }
}

impl Connection {
    /// As [`Connection::open`](crate::Connection::open).
    ///
    /// # Errors
    ///
    /// [`Error`] when the server cannot be reached, or no revision can be agreed on.
    pub fn open(dial: &Dial, options: Options) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("mcp-client")
            .enable_all()
            .build()
            .map_err(|error| Error::closed(format!("no thread can be started: {error}")))?;
        let connection = runtime.block_on(crate::Connection::open(dial, options))?;
        let runtime = Some(runtime);
        let running = connection.clone();
        Ok(Self {
            connection,
            runtime: Arc::new(Running {
                connection: running,
                runtime,
            }),
        })
    }

    /// The connection itself, for what has no method here; see [`Connection::wait`].
    #[must_use]
    pub fn asynchronous(&self) -> &crate::Connection {
        &self.connection
    }

    /// Waits for a future of the connection's.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        let runtime = self.runtime.runtime.as_ref();
        runtime
            .expect("is there until it is dropped")
            .block_on(future)
    }

    /// All tools.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`](crate::Connection::tools).
    pub fn tools(&self) -> Result<Vec<Tool>, Error> {
        self.wait(self.connection.tools())
    }

    /// Calls a tool.
    ///
    /// # Errors
    ///
    /// As [`Connection::call`](crate::Connection::call).
    pub fn call(
        &self,
        tool: &str,
        arguments: RawJson,
        options: &CallOptions,
    ) -> Result<CallToolResult, Error> {
        self.wait(self.connection.call(tool, arguments, options))
    }

    /// All resources.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`](crate::Connection::tools).
    pub fn resources(&self) -> Result<Vec<Resource>, Error> {
        self.wait(self.connection.resources())
    }

    /// Reads a resource.
    ///
    /// # Errors
    ///
    /// As [`Connection::read`](crate::Connection::read).
    pub fn read(&self, uri: &str) -> Result<ReadResourceResult, Error> {
        self.wait(self.connection.read(uri))
    }

    /// All prompts.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`](crate::Connection::tools).
    pub fn prompts(&self) -> Result<Vec<Prompt>, Error> {
        self.wait(self.connection.prompts())
    }

    /// Gets a prompt.
    ///
    /// # Errors
    ///
    /// As [`Connection::prompt`](crate::Connection::prompt).
    pub fn prompt(
        &self,
        name: &str,
        arguments: BTreeMap<String, String>,
    ) -> Result<GetPromptResult, Error> {
        self.wait(self.connection.prompt(name, arguments))
    }

    /// As [`Connection::close`](crate::Connection::close). Dropping the last clone does the same.
    pub fn close(self) {
        self.wait(self.connection.clone().close());
    }
}
