//! Health of an application, for the server's `/health` and its alerts.

use super::{
    StartError,
    scheduler::{Kind, Scheduler},
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// State of an application's workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// At least one of them takes calls.
    Ready,
    /// All were lost and are being started again; calls wait.
    Restarting {
        /// Time at which the last one was lost.
        since: Instant,
        /// Number of the attempt to start one again, counted from 1.
        attempt: u32,
        /// Reason why it was lost, or why the last attempt failed.
        cause: String,
    },
    /// Workers that were stopped for good.
    Stopped,
}

/// Health of an application.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AppHealth {
    /// State of its workers.
    pub state: WorkerState,
    /// Number of workers that take calls.
    pub workers_ready: usize,
    /// Number of workers that there should be.
    pub workers: usize,
    /// The most workers that there are while calls wait.
    pub max_workers: usize,
    /// Number of times the application was loaded successfully.
    pub generation: u64,
    /// The last worker that was lost.
    pub last_loss: Option<Loss>,
    /// Number of workers lost so far.
    pub losses: u64,
    /// Number of calls that wait for a worker.
    pub calls_waiting: usize,
    /// Number of calls that workers run.
    pub calls_running: usize,
    /// The tools whose calls are refused, because they ended their workers too often.
    pub suspended: Vec<SuspendedTool>,
    /// Failure of the last reload of the application. The version loaded before goes on serving.
    pub failed_reload: Option<FailedReload>,
    /// Time at which the reload began that is under way. The version loaded before goes on serving.
    pub reloading_since: Option<Instant>,
    /// True if the application, as it was loaded last, has nothing for clients.
    pub offers_nothing: bool,
}

/// A worker that was lost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loss {
    /// Time.
    pub at: Instant,
    /// Reason, in one sentence.
    pub cause: String,
}

/// A tool whose calls are refused.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SuspendedTool {
    /// Name of the handler; of a state, `query_state` and its name.
    pub name: String,
    /// For how much longer. Nothing left means that the next call is let through, or is under way, and
    /// decides.
    pub left: Duration,
}

/// Failure of a reload.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedReload {
    /// Time.
    pub at: Instant,
    /// In one sentence.
    pub message: String,
    /// Python's traceback and last words, for operators.
    pub details: String,
}

/// Record of the events that health is derived from.
#[derive(Debug)]
pub(super) struct Board {
    workers: usize,
    max_workers: usize,
    facts: Mutex<Facts>,
    state: watch::Sender<WorkerState>,
}

#[derive(Debug, Default)]
struct Facts {
    generation: u64,
    last_loss: Option<Loss>,
    losses: u64,
    failed_reload: Option<FailedReload>,
    reloading_since: Option<Instant>,
    offers_nothing: bool,
    /// The warnings of the application as it was loaded last.
    warnings: Vec<String>,
}

impl Board {
    pub(super) fn new(options: &super::PythonOptions) -> Self {
        Self {
            workers: options.workers(),
            max_workers: options.max_workers(),
            facts: Mutex::default(),
            state: watch::Sender::new(WorkerState::Ready),
        }
    }

    /// Logs those of an application's warnings that it did not have when it was loaded before.
    pub(super) fn warn(&self, warnings: &[String]) {
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings.iter().filter(|it| !facts.warnings.contains(it)) {
            tracing::warn!(target: "python", "{warning}");
        }
        facts.warnings = warnings.to_vec();
    }

    pub(super) fn state(&self) -> watch::Receiver<WorkerState> {
        self.state.subscribe()
    }

    pub(super) fn health(&self, scheduler: &Scheduler) -> AppHealth {
        let suspended = scheduler.tripped();
        let suspended = suspended.into_iter().map(|(kind, name, left)| {
            let name = match kind {
                Kind::Tool => name.to_string(),
                Kind::State => format!("query_state {name}"),
                Kind::Resource => format!("resource {name}"),
                Kind::Prompt => format!("prompt {name}"),
                Kind::Completion => format!("completion of {name}"),
            };
            SuspendedTool { name, left }
        });
        let mut suspended: Vec<_> = suspended.collect();
        suspended.sort_by(|one, other| one.name.cmp(&other.name));
        let (calls_waiting, calls_running) = scheduler.calls();
        let facts = self.facts();
        AppHealth {
            state: self.state.borrow().clone(),
            workers_ready: scheduler.ready(),
            workers: self.workers,
            max_workers: self.max_workers,
            generation: facts.generation,
            last_loss: facts.last_loss.clone(),
            losses: facts.losses,
            calls_waiting,
            calls_running,
            suspended,
            failed_reload: facts.failed_reload.clone(),
            reloading_since: facts.reloading_since,
            offers_nothing: facts.offers_nothing,
        }
    }

    /// The application is loaded, or loaded again.
    pub(super) fn loaded(&self, offers_nothing: bool) {
        let mut facts = self.facts();
        facts.offers_nothing = offers_nothing;
        facts.generation += 1;
        facts.failed_reload = None;
        facts.reloading_since = None;
    }

    /// The application is about to be loaded again.
    pub(super) fn reloading(&self) {
        self.facts().reloading_since = Some(Instant::now());
    }

    pub(super) fn could_not_reload(&self, error: &StartError) {
        let mut facts = self.facts();
        facts.reloading_since = None;
        facts.failed_reload = Some(FailedReload {
            at: Instant::now(),
            message: error.to_string(),
            details: error.details(),
        });
    }

    /// A worker of those that matter takes calls.
    pub(super) fn worker_is_there(&self) {
        self.state.send_if_modified(|state| {
            let is_news = matches!(state, WorkerState::Restarting { .. });
            if is_news {
                *state = WorkerState::Ready;
            }
            is_news
        });
    }

    /// A worker was lost, and so many others take calls.
    pub(super) fn worker_is_lost(&self, cause: &str, ready: usize) {
        let at = Instant::now();
        let cause = cause.to_owned();
        {
            let mut facts = self.facts();
            facts.losses += 1;
            facts.last_loss = Some(Loss {
                at,
                cause: cause.clone(),
            });
        }
        if ready == 0 {
            self.state.send_if_modified(|state| {
                let is_news = *state == WorkerState::Ready;
                if is_news {
                    *state = WorkerState::Restarting {
                        since: at,
                        attempt: 1,
                        cause,
                    };
                }
                is_news
            });
        }
    }

    /// An attempt to start a worker has failed.
    pub(super) fn could_not_start(&self, why: &str) {
        self.state.send_if_modified(|state| match state {
            WorkerState::Restarting { attempt, cause, .. } => {
                *attempt = attempt.saturating_add(1);
                why.clone_into(cause);
                true
            }
            _ => false,
        });
    }

    pub(super) fn stopped(&self) {
        self.state.send_replace(WorkerState::Stopped);
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parts that the workers of an application share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: super::PythonOptions,
    pub(super) directory: super::private_directory::PrivateDirectory,
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) board: Arc<Board>,
}
