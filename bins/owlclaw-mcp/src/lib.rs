//! The OwlClaw MCP server as a program: what the command line asks, what the configuration says,
//! and what goes to which stream.
//!
//! Standard output carries data only: protocol messages under `start`, listings and reports
//! elsewhere. Whatever is said to people goes to standard error. Both programs of this package,
//! `owlclaw-mcp` and `owlclaw`, are [`run`] under two names.

pub mod config;
pub mod listing;
pub mod logging;

mod calling;
mod cli;
mod client_config;
mod command;
mod doctor;
mod inspect;
mod serve;
mod table;
mod terminal;

pub use cli::Program;
pub use command::run;

/// A failure of a whole command, told to the operator with its causes.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
