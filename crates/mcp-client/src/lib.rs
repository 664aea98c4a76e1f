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
//! ```no_run
//! use mcp_client::{CallOptions, Connection, Dial, Options};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Dial::child("python3", ["-m", "mcp_server_time"]);
//! let connection = Connection::open(&server, Options::default()).await?;
//! for tool in connection.tools().await? {
//!     println!("{}", tool.name);
//! }
//! let arguments = mcp_client::json(&serde_json::json!({ "timezone": "Asia/Shanghai" }))?;
//! let result = connection.call("get_current_time", arguments, &CallOptions::default()).await?;
//! println!("{:?}", result.content);
//! connection.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`blocking`] is the same for callers without a runtime.

mod authorize;
pub mod blocking;
mod bounds;
mod connection;
mod dial;
mod error;
mod handlers;
mod options;
mod wire;

pub use crate::{
    authorize::{Attempt, Authorize},
    bounds::Bounds,
    connection::{Connection, subscription::Subscription},
    dial::{Dial, HttpTransport, Pair, UrlDial},
    error::Error,
    handlers::{Handlers, NoHandlers, OnlyRoots},
    options::{CallOptions, OnTask, Options, Progress, Speak},
    wire::{
        child::{ChildProgram, INHERITED},
        shared::Agreed,
    },
};
pub use mcp_protocol::RawJson;

/// `value` as JSON, for arguments.
///
/// # Errors
///
/// [`serde_json::Error`] for a value that cannot be written as JSON.
pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<RawJson, serde_json::Error> {
    RawJson::from_value(value)
}
