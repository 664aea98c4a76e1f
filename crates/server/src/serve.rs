//! Runs a server from its parts to its end.

use std::process::ExitCode;
use std::sync::Arc;

use config::{Loaded, Source, Transport};
use futures_util::future::BoxFuture;
use mcp_server::TaskRunner;

use crate::build::Server;
use crate::in_code::InCode;
use crate::lifecycle::{Lifecycle, UNCLEAN};
use crate::logging::LevelHandle;
use crate::rules::Rules;
use crate::work::{self, WorkerQueue};
use crate::{Beside, Failure, alerts, http, stdio};

/// Parts that are given in code, and what is served beside the clients.
pub(super) type Given = (InCode, Option<Arc<dyn Beside>>);

/// Serves a loaded configuration until the client goes or a signal comes, and operators `beside`. `level`
/// changes that of the log, and `runner` decides where the calls of tasks are carried out, if not here. The codes
/// to exit with are those of `docs/operations.md`.
///
/// # Errors
///
/// When a part of the server cannot be made, or serving fails.
pub fn start(
    source: Source,
    loaded: Loaded,
    level: LevelHandle,
    beside: Option<Arc<dyn Beside>>,
    runner: Option<Arc<dyn TaskRunner>>,
) -> Result<ExitCode, Failure> {
    let parts = InCode {
        runner,
        ..InCode::default()
    };
    run((parts, beside), source, loaded, level)
}

/// Carries out the calls that a queue hands to this process, until a signal comes: with everything that a server
/// has except clients, so that the transport must be HTTP, which leaves standard input alone. The codes to exit with are those of [`start`].
///
/// # Errors
///
/// When a part of the server cannot be made, or the work fails.
pub fn work(
    source: Source,
    loaded: Loaded,
    level: LevelHandle,
    runner: Arc<dyn TaskRunner>,
    queue: Arc<dyn WorkerQueue>,
) -> Result<ExitCode, Failure> {
    let parts = InCode {
        runner: Some(runner),
        ..InCode::default()
    };
    run_as(Some(queue), (parts, None), source, loaded, level)
}

/// Serves on threads of its own, and obeys signals.
pub(super) fn run(
    parts: Given,
    source: Source,
    loaded: Loaded,
    level: LevelHandle,
) -> Result<ExitCode, Failure> {
    run_as(None, parts, source, loaded, level)
}

fn run_as(
    queue: Option<Arc<dyn WorkerQueue>>,
    parts: Given,
    source: Source,
    loaded: Loaded,
    level: LevelHandle,
) -> Result<ExitCode, Failure> {
    let lifecycle = Lifecycle::watch(loaded.config.shutdown)?;
    // One thread per core serves HTTP, each with a runtime of its own; this one looks after the
    // application, the skills and the ends of things, or serves the one client on stdio.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(serve_as(queue, parts, source, loaded, level, lifecycle));
    // A thread that still reads standard input would hold the runtime up for ever.
    runtime.shutdown_background();
    ended.map(|is_clean| match is_clean {
        true => ExitCode::SUCCESS,
        false => UNCLEAN.into(),
    })
}

/// Serves until the client goes or the lifecycle ends, and closes in order. False if something may be
/// missing from the ledger.
pub(super) fn serve(
    parts: Given,
    source: Source,
    loaded: Loaded,
    level: LevelHandle,
    lifecycle: Lifecycle,
) -> BoxFuture<'static, Result<bool, Failure>> {
    Box::pin(async move { serve_as(None, parts, source, loaded, level, lifecycle).await })
}

async fn serve_as(
    queue: Option<Arc<dyn WorkerQueue>>,
    (parts, beside): Given,
    source: Source,
    loaded: Loaded,
    level: LevelHandle,
    lifecycle: Lifecycle,
) -> Result<bool, Failure> {
    let seat = stdio::seat(&parts, &source, loaded, &lifecycle).await?;
    let Some((loaded, mut seat)) = seat else {
        return Ok(true);
    };
    let rules = Rules::watch(source, loaded);
    let built = tokio::select! {
        built = Server::build(parts, &rules, level, lifecycle.clone()) => built?,
        gone = seat.client_gone() => return gone.map(|()| true),
    };
    let server = Arc::new(built);
    let beside = match beside.map(|it| it.begin(&server)).transpose() {
        Ok(beside) => beside,
        Err(failure) => {
            lifecycle.begin();
            server.close().await;
            return Err(failure);
        }
    };
    let alive = tokio::spawn(lifecycle.clone().keep_alive());
    let watching = server
        .alerts
        .clone()
        .map(|alerts| tokio::spawn(alerts::watch(server.watched(), alerts)));
    let following = {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.follow_changes(rules).await })
    };
    let served = match server.config.transport {
        _ if queue.is_some() => work::serve(&server, queue).await,
        Transport::Stdio => stdio::serve(&server, &mut seat).await,
        Transport::Http => http::serve(&server).await,
    };
    lifecycle.begin();
    following.abort();
    if let Some(watching) = watching {
        watching.abort();
    }
    if let Some(beside) = beside {
        beside.stop().await;
    }
    let is_clean = server.close().await;
    alive.abort();
    // The next owner finds the ledger closed.
    drop(seat);
    served.map(|()| is_clean)
}
