//! Connections to MCP servers: of every revision of the protocol, over every transport it has had.
//!
//! A [`Connection`] is to one server, dialled by a [`Dial`]: a child process, an address, or a pair of
//! streams. It finds out which revision the server speaks; what is asked of it is the same in all of them.
//! Questions of the server are answered by [`Handlers`].
//!
//! # What holds
//!
//! * **Everything has a bound** that [`Bounds`] names: sizes, pages, rounds, notifications, time.
//! * **A request that is given up is cancelled**: by a notification, or by closing its HTTP connection,
//!   as the revision has it.
//! * **A request is sent once**, but for what provably did not run: an HTTP session that the server has
//!   forgotten (404), a refusal that authorization can cure, headers that were out of date.
//! * **A child leaves nothing behind**: it has a process group of its own, which is killed when it does not
//!   end by itself, and also when this process is killed.
//!
//! ```
//! use mcp_client::{CallOptions, Connection, Dial, Options};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Dial::child("python3", ["examples/small.py"]);
//! let connection = Connection::open(&server, Options::default()).await?;
//! for tool in connection.tools().await? {
//!     println!("{}", tool.name);
//! }
//! let arguments = mcp_client::json(&serde_json::json!({ "a": 1, "b": 2 }))?;
//! let result = connection.call("add", arguments, &CallOptions::default()).await?;
//! println!("{:?}", result.content);
//! connection.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`Toolbox`] has the tools of several servers, [`blocking`] is the same for callers without a runtime; `docs/client-embedding.md` has programs for handlers,
//! authorization, stores of tokens and bounds.

mod address;
mod authorize;
pub mod blocking;
mod bounds;
mod connection;
mod dial;
mod error;
mod handlers;
mod options;
mod toolbox;
mod wire;

pub use crate::{
    address::{Visited, visited},
    authorize::{Attempt, Authorize, Unauthorized},
    bounds::Bounds,
    connection::{Connection, subscription::Subscription},
    dial::{Dial, HttpTransport, Pair, UrlDial, is_of_transport},
    error::Error,
    handlers::{Handlers, NoHandlers, OnlyRoots},
    options::{CallOptions, OnTask, Options, Progress, Speak},
    toolbox::{Toolbox, UnknownServer, anthropic_tool, model_name, openai_tool, server_of},
    wire::{
        child::{ChildProgram, INHERITED},
        shared::Agreed,
    },
};
pub use mcp_protocol::RawJson;
use mcp_protocol::model::{CallToolResult, Content};

/// `value` as JSON, for arguments.
///
/// # Errors
///
/// [`serde_json::Error`] for a value that cannot be written as JSON.
pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<RawJson, serde_json::Error> {
    RawJson::from_value(value)
}

/// Text of a result, its parts line by line, as a model reads it. Pictures and the like have none.
#[must_use]
pub fn text_of(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|part| match part {
        Content::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The programs of the embedder's page are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/client-embedding.md")]
mod embedding {}
