//! Builds the server from its configuration and runs it.

mod administration;
mod build;
mod commands;
mod explain;
mod file_watch;
mod follow;
mod http;
mod list;
mod notes;
mod policy;
mod quotas;
mod redaction;
mod rules;
mod services;
mod sources;
mod states;
mod stdio;
mod store;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;
use crate::config::{Loaded, Source, Transport};
use crate::logging::LevelHandle;
use build::Server;
use rules::Rules;

pub(crate) use explain::explain;
pub(crate) use list::{resources_list, tools_list};
pub(crate) use store::{database, database_options, open_reader};

/// How long requests may go on once the server was told to stop. R2.7 gives five seconds in all, of
/// which the application may take one to end and the ledger needs some.
const DRAIN: Duration = Duration::from_millis(3_500);

/// Serves until the client goes or a signal comes. `level` changes that of the log.
pub(crate) fn start(
    source: Source,
    loaded: Loaded,
    level: LevelHandle,
) -> Result<ExitCode, Failure> {
    // One thread per core serves HTTP, each with a runtime of its own; this one looks after the
    // application, the skills and the ends of things, or serves the one client on stdio.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let rules = Rules::watch(source, loaded);
        let server = Arc::new(Server::build(&rules, level).await?);
        let following = {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.follow_changes(rules).await })
        };
        let served = match server.config.transport {
            Transport::Stdio => stdio::serve(&server).await,
            Transport::Http => http::serve(&server).await,
        };
        following.abort();
        server.close().await;
        served
    });
    // A thread that still reads standard input would hold the runtime up for ever.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

/// Resolves at the first signal that asks the server to stop (R2.5).
async fn asked_to_stop() -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tracing::info!(signal = name, "stopping");
    Ok(())
}
