//! MCP over lines of byte streams: the standard streams of a process, a Unix socket, a pipe.
//!
//! One JSON text per line either way (R2.2, R2.3). Everything runs in the one future that
//! [`serve`] is: whole lines in the input buffer are all taken before anything is written, handlers
//! that need not wait are done at once, and what has become ready is written together. A client
//! that keeps many requests in flight therefore costs few system calls.

mod lines;
mod refuse;
#[cfg(unix)]
mod relay;
mod serve;
#[cfg(unix)]
mod share;
mod streams;

pub use crate::{
    refuse::refuse,
    serve::{ServeError, StdioOptions, serve},
    streams::{StandardInput, StandardOutput, standard_streams},
};
#[cfg(unix)]
pub use crate::{
    relay::{RelayError, RelayOptions, relay},
    share::{Guest, GuestInput, JoinError, Joined, Ownership, PATIENCE, SharedSocket},
};
pub use mcp_service::End;
