//! Keeps an application loaded until that is not wanted any more.

use super::{
    PythonOptions, ReloadError, StartError,
    frames::Ready,
    generation::Generation,
    health::Shared,
    private_directory::PrivateDirectory,
    scheduler::Scheduler,
    slot::{Wish, absent},
    source_watch::SourceWatch,
};
use std::{error::Error, sync::Arc};
use tokio::sync::{mpsc, oneshot, watch};

/// Most generations that may be finishing their running calls. When one more is to, the oldest is
/// ended.
const MAX_RETIRING: usize = 4;

/// Most times that loading is begun anew, one after the other, since files have changed meanwhile: an application
/// may write files of its own while it is loaded.
const MAX_SUPERSEDED: u32 = 8;

/// Request to load the application again, with the place for its outcome.
pub(super) type ReloadRequest = oneshot::Sender<Result<(), ReloadError>>;

pub(super) struct Supervisor {
    pub(super) shared: Arc<Shared>,
    pub(super) ready: watch::Sender<Arc<Ready>>,
    /// Grows when handlers or states are others than before, after `ready` was set.
    pub(super) version: watch::Sender<u64>,
    /// Says `true`, or is closed, when nothing is wanted any more.
    pub(super) stop: watch::Receiver<bool>,
    pub(super) requests: mpsc::Receiver<ReloadRequest>,
}

/// Answers everything, however the supervisor ends: it may simply be dropped with its runtime.
struct StopOnDrop(Arc<Scheduler>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Next task.
enum Task {
    Stop,
    Restart(Arc<str>),
    Reload(Option<ReloadRequest>),
    /// A generation that has ended.
    Bury(usize),
}

impl Supervisor {
    pub(super) async fn run(mut self, mut current: Generation) {
        let _stop = StopOnDrop(Arc::clone(&self.shared.scheduler));
        let mut sources = self.shared.options.watch.then(SourceWatch::default);
        self.follow(&mut sources, &current);
        let mut retiring: Vec<Generation> = Vec::new();
        loop {
            match self.next(&current, &mut retiring, &mut sources).await {
                Task::Stop => break,
                Task::Bury(at) => {
                    retiring.remove(at);
                }
                Task::Restart(cause) => {
                    let number = current.number + 1;
                    match self.restart(number, &cause, &mut sources).await {
                        Some(next) => {
                            self.switch(&mut current, next, &mut retiring);
                            self.follow(&mut sources, &current);
                        }
                        None => break,
                    }
                }
                Task::Reload(request) => {
                    let number = current.number + 1;
                    let mut requests: Vec<_> = request.into_iter().collect();
                    let Some(loaded) = self.load(number, &mut sources, &mut requests).await else {
                        break;
                    };
                    let outcome = match loaded {
                        Ok(next) => {
                            tracing::info!(
                                generation = number,
                                changes = next.ready.changes_since(&current.ready),
                                "the application was loaded again"
                            );
                            self.shared.scheduler.forgive();
                            self.switch(&mut current, next, &mut retiring);
                            self.follow(&mut sources, &current);
                            Ok(())
                        }
                        Err(error) => {
                            self.could_not_reload(&error, &mut sources);
                            Err(Arc::new(error))
                        }
                    };
                    for request in requests {
                        // Nobody may be waiting for it any more.
                        let _ = request.send(outcome.clone().map_err(ReloadError::Start));
                    }
                }
            }
        }
        // Those who wait for what will never come should not wait for the workers' end as well.
        self.shared.scheduler.stop();
        retiring.push(current);
        for generation in &retiring {
            generation.wish(Wish::End);
        }
        for generation in &mut retiring {
            generation.ended().await;
        }
        let board = Arc::clone(&self.shared.board);
        // Nothing of the directory is left when somebody hears of the end.
        drop((retiring, self));
        board.stopped();
    }

    /// Loads the application as it is now; `None` if that is not wanted any more. What changes meanwhile, and whoever
    /// asks for it again, has loading begun anew: an import that hangs holds up no better file.
    async fn load(
        &mut self,
        number: u64,
        sources: &mut Option<SourceWatch>,
        asking: &mut Vec<ReloadRequest>,
    ) -> Option<Result<Generation, StartError>> {
        let mut superseded = 0;
        loop {
            note(sources);
            self.shared.board.reloading();
            let may_be_superseded = superseded < MAX_SUPERSEDED;
            tokio::select! {
                loaded = Generation::start(&self.shared, number) => return Some(loaded),
                () = stopped(self.stop.clone()) => return None,
                () = changed(sources), if may_be_superseded => {}
                Some(request) = self.requests.recv(), if may_be_superseded => asking.push(request),
            }
            superseded += 1;
            tracing::info!(
                "the application is loaded anew, since it has changed while it was loaded"
            );
        }
    }

    /// Waits for something to do.
    async fn next(
        &mut self,
        current: &Generation,
        retiring: &mut [Generation],
        sources: &mut Option<SourceWatch>,
    ) -> Task {
        let ended = async {
            if retiring.is_empty() {
                return std::future::pending().await;
            }
            let ends = retiring.iter_mut().map(|it| Box::pin(it.ended()));
            futures_util::future::select_all(ends).await.1
        };
        tokio::select! {
            () = stopped(self.stop.clone()) => Task::Stop,
            cause = current.lost() => Task::Restart(cause),
            Some(request) = self.requests.recv() => Task::Reload(Some(request)),
            () = changed(sources) => Task::Reload(None),
            at = ended => Task::Bury(at),
        }
    }

    /// Loads the application again that was lost, however often it takes; `None` if it is not wanted
    /// any more.
    async fn restart(
        &mut self,
        number: u64,
        cause: &str,
        sources: &mut Option<SourceWatch>,
    ) -> Option<Generation> {
        let Shared {
            options,
            scheduler,
            board,
            ..
        } = &*self.shared;
        tracing::error!(cause, "all python workers were lost");
        board.worker_is_lost(cause, scheduler.ready());
        let mut superseded = 0;
        for attempt in 1.. {
            note(sources);
            let start = async {
                tokio::time::sleep(options.backoff(attempt)).await;
                Generation::start(&self.shared, number).await
            };
            let started = tokio::select! {
                started = start => started,
                () = stopped(self.stop.clone()) => return None,
                () = changed(sources), if superseded < MAX_SUPERSEDED => {
                    superseded += 1;
                    continue;
                }
            };
            match started {
                Ok(next) => {
                    tracing::info!(attempt, "the python workers are back");
                    return Some(next);
                }
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn Error,
                        details = error.details(),
                        attempt,
                        "the python application could not be loaded again"
                    );
                    scheduler.refuse_waiting(|| absent(&error));
                    board.could_not_start(&error.to_string());
                }
            }
        }
        None
    }

    /// New calls go to `next`; what runs is finished where it runs.
    fn switch(&self, current: &mut Generation, next: Generation, retiring: &mut Vec<Generation>) {
        let shared = &*self.shared;
        let threads = next.threads(shared.options.threads);
        shared
            .scheduler
            .switch_to(next.number, next.has_async(), threads);
        shared.board.loaded(next.ready.offers_nothing());
        shared.board.worker_is_there();
        let before = self.ready.send_replace(Arc::clone(&next.ready));
        if !before.offers_the_same(&next.ready) {
            self.version.send_modify(|version| *version += 1);
        }
        let old = std::mem::replace(current, next);
        old.wish(Wish::Retire);
        retiring.push(old);
        if let Some(too_many) = retiring.len().checked_sub(MAX_RETIRING) {
            for oldest in retiring.iter().take(too_many) {
                oldest.wish(Wish::End);
            }
        }
    }

    fn could_not_reload(&self, error: &StartError, sources: &mut Option<SourceWatch>) {
        tracing::warn!(
            error = error as &dyn Error,
            details = error.details(),
            "the application could not be loaded again as it is now; what was loaded before goes on"
        );
        self.shared.board.could_not_reload(error);
        if let Some(sources) = sources {
            // Files that it has written itself while it was loaded are no news.
            sources.expect_anything();
        }
    }

    fn follow(&self, sources: &mut Option<SourceWatch>, current: &Generation) {
        if let Some(sources) = sources {
            sources.follow(&current.ready.files, current.begun);
        }
    }

    /// A private directory with the Python end in it.
    pub(super) fn prepare(options: &PythonOptions) -> Result<PrivateDirectory, StartError> {
        let directory = PrivateDirectory::create().map_err(StartError::Prepare)?;
        if options.package.is_none() {
            super::package::unpack(directory.path()).map_err(StartError::Prepare)?;
        }
        Ok(directory)
    }
}

/// Notes the files that are about to be loaded. Until they are, any other may be the one that matters.
fn note(sources: &mut Option<SourceWatch>) {
    if let Some(sources) = sources {
        sources.take_note();
        sources.expect_anything();
    }
}

/// Returns when files are others than those that were noted.
async fn changed(sources: &mut Option<SourceWatch>) {
    match sources {
        Some(sources) => sources.changed().await,
        None => std::future::pending().await,
    }
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the other end is gone, and then nothing is wanted any more either.
    let _ = stop.wait_for(|stop| *stop).await;
}
