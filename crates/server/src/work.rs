//! A worker: a server without clients, which carries out the calls that a queue hands to it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::build::Server;
use crate::Failure;

/// Time that the queue gets to be told what has become of the last tasks.
const LAST_REPORT: Duration = Duration::from_secs(1);

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Queue that hands calls to workers.
pub trait WorkerQueue: fmt::Debug + Send + Sync {
    /// Begins to take tasks and to carry them out at `server`.
    fn begin(&self, server: &Arc<Server>) -> Later<'_, Result<Box<dyn RunningWorker>, Failure>>;
}

/// Worker that runs.
pub trait RunningWorker: Send + Sync {
    /// Resolves when the queue is given up, with the reason if it is a failure.
    fn ended(&self) -> Later<'_, Result<(), Failure>>;

    /// Takes no more tasks. Those that are carried out go on.
    fn stop(&self);
}

/// Carries out calls until the lifecycle ends or the queue is given up.
pub(super) async fn serve(
    server: &Arc<Server>,
    queue: Option<Arc<dyn WorkerQueue>>,
) -> Result<(), Failure> {
    let Some(queue) = queue else {
        return Ok(());
    };
    let lifecycle = &server.lifecycle;
    server.mcp.keep_taken_tasks();
    let work = queue.begin(server).await?;
    lifecycle.serving();
    tracing::info!("carrying out calls");
    lifecycle.ready();
    let ended = tokio::select! {
        () = lifecycle.asked() => Ok(()),
        ended = work.ended() => ended,
    };
    work.stop();
    server.close_tasks(lifecycle.drain()).await;
    // Tasks are over, or left, in the store; that the queue hears of it only saves it some time.
    let _ = tokio::time::timeout(LAST_REPORT, work.ended()).await;
    ended
}
