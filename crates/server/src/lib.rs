//! A running OwlClaw server as a library: tools, skills, rules, ledger and listeners, put together
//! from a checked configuration, served, and closed in order.

mod administration;
mod alerts;
mod application;
mod budgets;
mod build;
mod builder;
mod call;
mod commands;
mod explain;
mod exposure;
mod failure;
mod file_watch;
mod follow;
mod health;
mod http;
mod identity;
mod in_code;
mod ledger_use;
mod lifecycle;
mod list;
mod listing;
mod logging;
mod metrics;
mod notes;
mod offering;
mod policy;
mod quotas;
mod redaction;
mod resources;
mod rules;
mod serve;
mod services;
mod sessions;
mod sources;
mod standing;
mod stdio;
mod store;
mod supervisor;
mod telemetry;
mod tls;
mod websocket;

pub use application::interpreter;
pub use build::Server;
pub use builder::Builder;
pub use call::call;
pub use commands::GUARD;
pub use explain::{Callee, Explained, explain};
pub use exposure::{Finding, State, exposed, private};
pub use failure::{Failure, with_causes};
pub use identity::STDIO_KEY;
pub use list::{Problems, Survey, resources_list, survey};
pub use listing::{ResourceFilter, ResourceRow, ToolRow, estimated_tokens};
pub use logging::{LevelHandle, Log, json_text};
pub use quota_postgres::Comparison;
pub use serve::start;
pub use stdio::tell_client;
pub use store::{
    accept_rollback, compare_counters, continuity, database, database_options, open_reader,
    sealed_every,
};
