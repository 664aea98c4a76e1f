use super::{
    PythonOptions, StartError,
    conversation::Over,
    frames::Ready,
    process::{Ending, Worker},
    scheduler::Scheduler,
};
use crate::ToolError;
use std::{error::Error, path::PathBuf, sync::Arc, time::Instant};
use tempfile::TempDir;
use tokio::sync::watch;

/// Whether an application's worker is there, for whoever looks after the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It takes calls.
    Ready,
    /// It was lost and is being started again; calls wait.
    Restarting {
        /// When it was lost.
        since: Instant,
        /// Which attempt to start it again this is, counted from 1.
        attempt: u32,
        /// Why it was lost, or why the last attempt failed.
        cause: String,
    },
    /// It was stopped for good.
    Stopped,
}

/// Keeps a worker running until it is told to stop.
pub(super) struct Supervisor {
    pub(super) options: PythonOptions,
    pub(super) directory: TempDir,
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) state: watch::Sender<WorkerState>,
    pub(super) ready: watch::Sender<Arc<Ready>>,
    /// Grows when the handlers are others than before, after `ready` was set.
    pub(super) version: watch::Sender<u64>,
    /// Says `true`, or is closed, when nothing is wanted any more.
    pub(super) stop: watch::Receiver<bool>,
}

/// Answers everything, however the supervisor ends: it may simply be dropped with its runtime.
struct StopOnDrop(Arc<Scheduler>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Supervisor {
    pub(super) async fn run(mut self, mut worker: Worker) {
        let _stop = StopOnDrop(Arc::clone(&self.scheduler));
        let mut losses = 0;
        loop {
            self.scheduler.worker_is_there();
            let over = worker
                .talk(&self.scheduler, stopped(self.stop.clone()))
                .await;
            // Those who wait for what will never come should not wait for its end as well; only the
            // status of a worker that died by itself is worth it.
            if matches!(over, Over::Stopped) {
                let running = self.scheduler.stop();
                worker.dismiss(&running, self.options.end_grace).await;
                break;
            }
            let ending = worker.end(&over).await;
            let cause = cause(&over, &ending);
            tracing::error!(
                cause,
                last_words = ending.stderr,
                "the python worker was lost"
            );
            let loss = || lost(&cause, &ending);
            losses = if self.scheduler.worker_is_gone(loss) {
                1
            } else {
                losses + 1
            };
            match self.restart(&mut losses, cause).await {
                Some(next) => worker = next,
                None => break,
            }
        }
        self.state.send_replace(WorkerState::Stopped);
    }

    /// Starts a worker again, however often it takes; `None` if it is not wanted any more.
    async fn restart(&mut self, losses: &mut u32, mut cause: String) -> Option<Worker> {
        let since = Instant::now();
        for attempt in 1.. {
            self.state.send_replace(WorkerState::Restarting {
                since,
                attempt,
                cause,
            });
            let start = async {
                tokio::time::sleep(self.options.backoff(*losses)).await;
                Worker::start(&self.options, self.directory.path()).await
            };
            let started = tokio::select! {
                started = start => started,
                () = stopped(self.stop.clone()) => return None,
            };
            match started {
                Ok((worker, ready)) => {
                    tracing::info!(attempt, "the python worker is back");
                    for warning in &ready.warnings {
                        tracing::warn!(target: "python", "{warning}");
                    }
                    let before = self.ready.send_replace(Arc::new(ready));
                    if before.tools != self.ready.borrow().tools {
                        self.version.send_modify(|version| *version += 1);
                    }
                    self.state.send_replace(WorkerState::Ready);
                    return Some(worker);
                }
                Err(error) => {
                    cause = error.to_string();
                    tracing::error!(
                        error = &error as &dyn Error,
                        details = error.details(),
                        attempt,
                        "the python worker could not be started again"
                    );
                    self.scheduler.refuse_waiting(|| absent(&error));
                    *losses = losses.saturating_add(1);
                }
            }
        }
        None
    }

    /// A private directory with the Python end in it.
    pub(super) fn prepare(options: &PythonOptions) -> Result<TempDir, StartError> {
        use std::os::unix::fs::PermissionsExt;
        let owner_only = std::fs::Permissions::from_mode(0o700);
        let mut builder = tempfile::Builder::new();
        builder.prefix("owlclaw-").permissions(owner_only);
        // The path of a socket has to be short, and temporary directories of some systems are not.
        let directory = match builder.tempdir() {
            Ok(directory) if directory.path().as_os_str().len() <= MAX_DIRECTORY => Ok(directory),
            _ => builder.tempdir_in(PathBuf::from("/tmp")),
        };
        let directory = directory.map_err(StartError::Prepare)?;
        if options.package.is_none() {
            super::package::unpack(directory.path()).map_err(StartError::Prepare)?;
        }
        Ok(directory)
    }
}

/// The longest path of the worker's directory, in bytes: a socket's path may have about a hundred.
const MAX_DIRECTORY: usize = 80;

async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the other end is gone, and then nothing is wanted any more either.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn cause(over: &Over, ending: &Ending) -> String {
    match over {
        Over::Closed | Over::Stopped => format!("the Python worker ended with {}", ending.status),
        Over::Nonsense(why) => format!("the Python worker broke the protocol: {why}"),
        Over::Stuck => {
            "the Python worker was killed because a cancelled call did not end".to_owned()
        }
    }
}

/// What the calls are told that a worker took with it.
fn lost(cause: &str, ending: &Ending) -> ToolError {
    ToolError::Crashed {
        message: cause.to_owned(),
        retryable: true,
        detail: ending.stderr.clone(),
    }
}

/// What the calls are told that waited for a worker in vain.
fn absent(error: &StartError) -> ToolError {
    ToolError::Crashed {
        message: "the Python application could not be loaded again".to_owned(),
        retryable: true,
        detail: format!("{error}\n{}", error.details()),
    }
}
