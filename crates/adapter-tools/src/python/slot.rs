//! Keeps one worker running.

use super::{
    StartError,
    conversation::Over,
    ending::Ending,
    frames::ToolFrame,
    health::Shared,
    launcher::Launcher,
    scheduler::{Blame, Left, Place},
    worker::Worker,
};
use crate::{Repeat, ToolError};
use std::{error::Error, sync::Arc};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

/// The turn of a slot that starts a further worker.
type Turn = Option<OwnedMutexGuard<()>>;

/// Wish for a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    /// Serve calls.
    #[default]
    Serve,
    /// Finish the running calls, and end.
    Retire,
    /// End now.
    End,
}

/// Next step after a worker has served.
enum Next {
    /// No other takes its place.
    Leave,
    /// Another takes its place when it is needed.
    Rest,
    /// The worker was lost.
    Replace(Left),
}

/// One of a generation's workers, whichever process that is.
pub(super) struct Slot {
    pub(super) shared: Arc<Shared>,
    pub(super) launcher: Arc<Launcher>,
    pub(super) generation: u64,
    pub(super) slot: usize,
    /// Turn of the slots whose worker is there while it is needed: one of them at a time starts one.
    pub(super) turn: Option<Arc<Mutex<()>>>,
    /// The handlers that the generation has.
    pub(super) tools: Arc<Vec<ToolFrame>>,
    pub(super) wish: watch::Receiver<Wish>,
}

impl Slot {
    /// Serves until that is not wanted any more, or the launcher is lost.
    pub(super) async fn keep(mut self, mut first: Option<(Worker, Place)>) {
        let mut losses = 0;
        loop {
            let (worker, place) = match first.take() {
                Some(first) => first,
                None => match self.start(losses).await {
                    Some(Ok((worker, turn))) => {
                        let place = self.shared.scheduler.sit(self.generation, self.slot);
                        drop(turn);
                        (worker, place)
                    }
                    Some(Err(error)) => {
                        losses += 1;
                        self.could_not_start(&error);
                        continue;
                    }
                    None => return,
                },
            };
            match self.serve(worker, place).await {
                Next::Rest => losses = 0,
                Next::Replace(left) if left.had_answered => losses = 1,
                Next::Replace(_) => losses += 1,
                Next::Leave => return,
            }
        }
    }

    /// Starts a worker, when it is needed; `None` if none is wanted any more.
    async fn start(&mut self, losses: u32) -> Option<Result<(Worker, Turn), StartError>> {
        let Shared {
            options, scheduler, ..
        } = &*self.shared;
        let start = async {
            if 0 < losses {
                tokio::time::sleep(options.backoff(losses)).await;
            }
            let mut turn = None;
            if let Some(of_all) = &self.turn {
                turn = Some(Arc::clone(of_all).lock_owned().await);
                scheduler.runs_short(self.generation).await;
                tracing::info!(
                    slot = self.slot,
                    "calls wait: a further python worker is started"
                );
            }
            let (worker, ready) = Worker::start(&self.launcher, options).await?;
            Ok(((worker, turn), ready))
        };
        let (worker, ready) = tokio::select! {
            started = start => match started {
                Ok(started) => started,
                Err(error) => return Some(Err(error)),
            },
            () = wished(self.wish.clone(), Wish::Retire) => return None,
            _ = self.launcher.lost() => return None,
        };
        if ready.is_some_and(|ready| ready.tools != *self.tools) {
            tracing::warn!("a python worker has loaded other handlers than those before it");
        }
        Some(Ok(worker))
    }

    fn could_not_start(&self, error: &StartError) {
        let Shared {
            scheduler, board, ..
        } = &*self.shared;
        tracing::error!(
            error = error as &dyn Error,
            details = error.details(),
            slot = self.slot,
            "a python worker could not be started"
        );
        scheduler.is_missing(self.generation, self.slot);
        if scheduler.ready() == 0 {
            scheduler.refuse_waiting(|| absent(error));
            board.could_not_start(&error.to_string());
        }
    }

    /// Has a worker serve until it is lost, or not wanted any more.
    async fn serve(&self, mut worker: Worker, mut place: Place) -> Next {
        let shared = &*self.shared;
        worker.process.attribute(place.requests());
        shared.board.worker_is_there();
        let over = worker.talk(&place, self.over(&place)).await;
        if matches!(over, Over::Stopped | Over::Retired | Over::Idle) {
            let left = place.leave(Blame::Nobody, replaced);
            let patience = shared.options.end_grace;
            worker.dismiss(&left.running, patience).await;
            if !matches!(over, Over::Idle) {
                return Next::Leave;
            }
            tracing::info!(slot = self.slot, "an idle python worker was ended");
            return Next::Rest;
        }
        // Others get its calls while its end is being waited for.
        place.close();
        let ending = worker.end(&over).await;
        let is_launcher_lost = ending.status.is_none() && matches!(over, Over::Closed)
            || matches!(over, Over::LauncherLost);
        let (cause, blame) = if is_launcher_lost {
            (self.launcher.lost().await.to_string(), Blame::Nobody)
        } else {
            verdict(&over, &ending)
        };
        tracing::error!(
            cause,
            last_words = ending.stderr,
            slot = self.slot,
            "a python worker was lost"
        );
        let left = place.leave(blame, || lost(&cause, &ending));
        for (name, wait) in &left.tripped {
            let seconds = wait.as_secs();
            tracing::error!(tool = %name, seconds, "a tool that goes on ending its workers is suspended");
        }
        if !is_launcher_lost {
            shared
                .board
                .worker_is_lost(&cause, shared.scheduler.ready());
        }
        match is_launcher_lost {
            true => Next::Leave,
            false => Next::Replace(left),
        }
    }

    /// Returns when the worker is not wanted any more, or cannot be.
    async fn over(&self, place: &Place) -> Over {
        let retired = async {
            wished(self.wish.clone(), Wish::Retire).await;
            place.idle().await;
        };
        let idle = async {
            match &self.turn {
                Some(_) => place.idle_for(self.shared.options.idle).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wished(self.wish.clone(), Wish::End) => Over::Stopped,
            () = retired => Over::Retired,
            () = idle => Over::Idle,
            _ = self.launcher.lost() => Over::LauncherLost,
        }
    }
}

/// Returns when that much is wished for, or nothing is any more.
pub(super) async fn wished(mut wish: watch::Receiver<Wish>, least: Wish) {
    let _ = wish.wait_for(|wish| least <= *wish).await;
}

fn verdict(over: &Over, ending: &Ending) -> (String, Blame) {
    match over {
        Over::Nonsense(why) => (
            format!("the Python worker broke the protocol: {why}"),
            Blame::Everybody,
        ),
        Over::Stuck => (
            "the Python worker was killed because a cancelled call did not end".to_owned(),
            Blame::Stuck,
        ),
        Over::Closed | Over::LauncherLost | Over::Retired | Over::Idle | Over::Stopped => (
            format!("the Python worker ended with {}", ending.status()),
            Blame::Everybody,
        ),
    }
}

/// Error for the calls that a lost worker was running.
fn lost(cause: &str, ending: &Ending) -> ToolError {
    ToolError::Crashed {
        message: cause.to_owned(),
        repeat: Repeat::IfIdempotent,
        detail: ending.stderr.clone(),
    }
}

/// Error for calls that still run when their worker has to go.
fn replaced() -> ToolError {
    ToolError::Crashed {
        message: "the application was loaded again several times while the call ran".to_owned(),
        repeat: Repeat::IfIdempotent,
        detail: String::new(),
    }
}

/// Error for the calls that waited for a worker in vain.
pub(super) fn absent(error: &StartError) -> ToolError {
    ToolError::Crashed {
        message: "the Python application could not be loaded again".to_owned(),
        repeat: Repeat::Safe,
        detail: format!("{error}\n{}", error.details()),
    }
}
