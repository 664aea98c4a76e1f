//! A running OwlClaw server as a library: tools, skills, rules, ledger and listeners, put together
//! from a checked configuration, served, and closed in order.

mod administration;
mod alerts;
mod application;
mod budgets;
mod build;
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

use std::process::ExitCode;
use std::sync::Arc;

use build::Server;
use config::{Loaded, Source, Transport};
use lifecycle::{Lifecycle, UNCLEAN};
use rules::Rules;

pub use application::interpreter;
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
pub use stdio::tell_client;
pub use store::{
    accept_rollback, compare_counters, continuity, database, database_options, open_reader,
    sealed_every,
};

/// Serves until the client goes or a signal comes. `level` changes that of the log. The codes to exit
/// with are those of `docs/operations.md`.
///
/// # Errors
///
/// When a part of the server cannot be made, or serving fails.
pub fn start(source: Source, loaded: Loaded, level: LevelHandle) -> Result<ExitCode, Failure> {
    let lifecycle = Lifecycle::watch(loaded.config.shutdown)?;
    // One thread per core serves HTTP, each with a runtime of its own; this one looks after the
    // application, the skills and the ends of things, or serves the one client on stdio.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let Some((loaded, mut seat)) = stdio::seat(&source, loaded, &lifecycle).await? else {
            return Ok(true);
        };
        let rules = Rules::watch(source, loaded);
        let built = tokio::select! {
            built = Server::build(&rules, level, lifecycle.clone()) => built?,
            gone = seat.client_gone() => return gone.map(|()| true),
        };
        let server = Arc::new(built);
        let alive = tokio::spawn(lifecycle.clone().keep_alive());
        let watching = server.alerts.clone().map(|alerts| {
            let server = Arc::clone(&server);
            tokio::spawn(alerts::watch(server, alerts))
        });
        let following = {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.follow_changes(rules).await })
        };
        let served = match server.config.transport {
            Transport::Stdio => stdio::serve(&server, &mut seat).await,
            Transport::Http => http::serve(&server).await,
        };
        lifecycle.begin();
        following.abort();
        if let Some(watching) = watching {
            watching.abort();
        }
        let is_clean = server.close().await;
        alive.abort();
        // The next owner finds the ledger closed.
        drop(seat);
        served.map(|()| is_clean)
    });
    // A thread that still reads standard input would hold the runtime up for ever.
    runtime.shutdown_background();
    ended.map(|is_clean| match is_clean {
        true => ExitCode::SUCCESS,
        false => UNCLEAN.into(),
    })
}
