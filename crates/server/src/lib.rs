//! A running OwlClaw server as a library: tools, skills, rules, ledger and listeners, put together,
//! served, and closed in order.
//!
//! [`Server::builder`] assembles one from code; [`start`] runs one from a configuration that was loaded.
//! Both are the same server:
//!
//! ```no_run
//! use adapter_tools::{NoArguments, Tool, ToolCx, ToolSet};
//!
//! # fn main() -> Result<std::process::ExitCode, server::Failure> {
//! let hello = Tool::native("hello", |_: ToolCx, _: NoArguments| async { Ok("Good day.") });
//! let server = server::Server::builder("greeter", "1.0.0")
//!     .tools(ToolSet::new([hello])?)
//!     .settings("mcp_server: {governance: {default_quota: {max_calls_per_minute: 10}}}")
//!     .ledger("data/ledger.db")
//!     .http(([127, 0, 0, 1], 8080));
//! Ok(server.run())
//! # }
//! ```
//!
//! The other functions are for commands beside a server: [`survey`] lists what it would offer, [`call`]
//! makes one governed call, [`explain`](fn@explain) says how it would decide.

mod administration;
mod alerts;
mod application;
mod archives;
mod budgets;
mod build;
mod builder;
mod call;
mod command_notes;
mod commands;
mod draft;
mod explain;
mod exposure;
mod failure;
mod file_watch;
mod files;
mod filters;
mod follow;
mod health;
mod host_dialect;
mod http;
mod identity;
mod in_code;
mod langfuse;
mod late_costs;
mod ledger_use;
mod lifecycle;
mod list;
mod listing;
mod logging;
mod metrics;
mod notes;
mod offering;
mod operators;
mod policy;
mod prompts;
mod quotas;
mod reading;
mod redaction;
mod registry;
mod replay;
mod resources;
mod results;
mod rules;
mod serve;
mod services;
mod session_state;
mod sessions;
mod shared_sessions;
mod sharing;
mod sign_in;
mod sources;
mod standing;
mod stdio;
mod store;
mod supervisor;
mod telemetry;
mod timestamps;
mod tls;
mod upstreams;
mod verification;
mod websocket;
mod witness;
mod work;

pub use application::interpreter;
pub use archives::{ArchiveReport, archive, backup, open_archiver, open_holds, restore};
pub use build::{Server, without_engine};
pub use builder::Builder;
pub use call::{call, principal_named};
pub use command_notes::{
    CredentialCommand, WayToLedger, record_command, record_credential_command,
};
pub use commands::GUARD;
pub use draft::Draft;
pub use explain::{Callee, Explained, explain};
pub use exposure::{Finding, State, exposed, private};
pub use failure::{Failure, cure, with_causes};
pub use identity::{BegunSignIn, BrowserSignIns, NotSignedIn, STDIO_KEY};
pub use list::{Problems, Survey, resources_list, survey};
pub use listing::{ResourceFilter, ResourceRow, ToolRow, ViewRow, estimated_tokens};
pub use logging::{LevelHandle, Log, json_text};
pub use mcp_server::CancelledTask;
pub use mcp_service::Principal;
pub use notes::Act;
pub use operators::{Beside, ServedBeside};
pub use prompts::{prompt_options, prompt_problems};
pub use quota_postgres::Comparison;
pub use redaction::has_redaction_key;
pub use replay::{Decided, Differing, Replay, Verdict};
pub use serve::{start, work};
pub use sharing::{NodeState, ServerNode};
pub use standing::InvalidRules;
pub use stdio::tell_client;
pub use store::{
    accept_rollback, compare_counters, continuity, database, database_options, open_reader,
    sealed_every,
};
pub use task_store::{Overseen, Run, TaskId, TaskRecord, TaskState};
pub use timestamps::{Stamps, verify_timestamps};
pub use upstreams::{
    Declared, DeclaredUpstream, declared_upstreams, host_file_problems, references_of_hosts,
    unmatched_upstream_rules, upstreams_directory, upstreams_stored,
};
pub use witness::beside as witness_beside;
pub use work::{RunningWorker, WorkerQueue};
