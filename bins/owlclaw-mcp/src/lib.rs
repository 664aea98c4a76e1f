//! The OwlClaw MCP server as a program: its command line, and what goes to which stream.
//!
//! Standard output carries data only: protocol messages under `start`, listings and reports
//! elsewhere. Everything said to people goes to standard error. Both programs of this package,
//! `owlclaw-mcp` and `owlclaw`, are [`run`] under two names. Servers are made by the crate `server`,
//! and commands beside a server by `operator`.

mod cli;
mod command;

pub use cli::Program;
pub use command::run;
