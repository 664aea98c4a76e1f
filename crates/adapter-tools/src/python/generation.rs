//! The application as it was loaded at one time, with the workers that run it.

use super::{
    StartError, StartMode,
    frames::Ready,
    health::Shared,
    launcher::{Launcher, Mode},
    slot::{Slot, Wish},
    worker::Worker,
};
use std::{sync::Arc, time::SystemTime};
use tokio::{
    sync::{Mutex, watch},
    task::{JoinHandle, JoinSet},
};

/// A launcher and its workers. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) ready: Arc<Ready>,
    /// Time at which loading began: files that are newer may not have been loaded as they are.
    pub(super) begun: SystemTime,
    launcher: Arc<Launcher>,
    wish: watch::Sender<Wish>,
    task: JoinHandle<()>,
}

impl Generation {
    /// Loads the application and starts its workers; returns when the first of them takes calls. They
    /// get none before the scheduler switches to this generation.
    pub(super) async fn start(shared: &Arc<Shared>, number: u64) -> Result<Self, StartError> {
        let begun = SystemTime::now();
        let (launcher, ready) = launch(shared).await?;
        let options = &shared.options;
        let (worker, workers_ready) = match Worker::start(&launcher, options).await {
            Ok(started) => started,
            Err(error) => {
                launcher.shut_down(options.end_grace).await;
                return Err(error);
            }
        };
        let Some(mut ready) = ready.or(workers_ready) else {
            return Err(StartError::Protocol(
                "a worker serves and has not said what".to_owned(),
            ));
        };
        if 1 < options.threads && !ready.one_thread.is_empty() {
            ready.warnings.push(format!(
                "{}: synchronous handlers run one at a time, on that thread",
                ready.one_thread.join("; ")
            ));
        }
        let threads = threads_of(&ready, options.threads);
        let signs = signs_of_sharing(&ready, (options.workers(), options.max_workers()), threads);
        ready.warnings.extend(signs);
        shared.board.warn(&ready.warnings);
        let (wish, wished) = watch::channel(Wish::Serve);
        let tools = Arc::new(ready.tools.clone());
        // Calls may come before what serves it runs for the first time.
        let mut first = Some((worker, shared.scheduler.sit(number, 0)));
        let mut slots = JoinSet::new();
        let turn = Arc::<Mutex<()>>::default();
        for slot in 0..options.max_workers() {
            let slot = Slot {
                shared: Arc::clone(shared),
                launcher: Arc::clone(&launcher),
                generation: number,
                slot,
                turn: (options.workers() <= slot).then(|| Arc::clone(&turn)),
                tools: Arc::clone(&tools),
                wish: wished.clone(),
            };
            slots.spawn(slot.keep(first.take()));
        }
        let task = tokio::spawn(end(slots, Arc::clone(&launcher), options.end_grace));
        Ok(Self {
            number,
            ready: Arc::new(ready),
            begun,
            launcher,
            wish,
            task,
        })
    }

    /// Returns true if the application has asynchronous handlers, or providers of states.
    pub(super) fn has_async(&self) -> bool {
        let ready = &*self.ready;
        ready.tools.iter().any(|it| it.is_async)
            || ready.states.iter().any(|it| it.is_async)
            || ready.resources.iter().any(|it| it.is_async)
            || ready.prompts.iter().any(|it| it.is_async)
            || ready.completions.iter().any(|it| it.is_async)
    }

    /// Number of synchronous handlers that each of its workers runs at once.
    pub(super) fn threads(&self, configured: usize) -> usize {
        threads_of(&self.ready, configured)
    }

    /// Returns why, when its launcher is lost and all workers with it.
    pub(super) async fn lost(&self) -> Arc<str> {
        self.launcher.lost().await
    }

    /// Says what is wanted of it, if that is more than before.
    pub(super) fn wish(&self, wish: Wish) {
        self.wish.send_if_modified(|wanted| {
            let is_more = *wanted < wish;
            *wanted = wish.max(*wanted);
            is_more
        });
    }

    /// Returns when nothing of it is left, once that was wished for.
    pub(super) async fn ended(&mut self) {
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "what looks after python workers has failed");
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        // What it holds ends its processes.
        self.task.abort();
    }
}

fn threads_of(ready: &Ready, configured: usize) -> usize {
    match ready.one_thread.is_empty() {
        true => configured.max(1),
        false => 1,
    }
}

/// Warnings for authors who may not expect several processes, or one thread.
fn signs_of_sharing(ready: &Ready, (workers, most): (usize, usize), threads: usize) -> Vec<String> {
    let mut signs = Vec::new();
    if most > 1 && !ready.changed_names.is_empty() {
        signs.push(format!(
            "functions change what is in memory ({}), and each of the {most} workers has its own memory: what \
             one call stores, the next may not find; keep it in a database or a file, or set `workers.count: 1` \
             without `workers.max_count`",
            ready.changed_names.join(", ")
        ));
    }
    let synchronous = ready.tools.iter().filter(|tool| !tool.is_async).count();
    if threads < 2 && synchronous >= workers && ready.tools.len() > 1 {
        signs.push(format!(
            "{synchronous} handlers are synchronous, and {workers} workers run one of their calls each: {workers} \
             slow ones hold up all others; make handlers that wait `async`, or raise `workers.threads` or \
             `workers.count`"
        ));
    }
    signs
}

/// Waits for the workers' end, and then has the launcher end.
async fn end(mut slots: JoinSet<()>, launcher: Arc<Launcher>, patience: std::time::Duration) {
    while let Some(outcome) = slots.join_next().await {
        if let Err(error) = outcome {
            tracing::error!(%error, "what looks after a python worker has failed");
        }
    }
    launcher.shut_down(patience).await;
}

/// Starts the launcher, and another one if its application turns out to be none that can be forked.
/// Says what the application is, unless its workers will.
async fn launch(shared: &Shared) -> Result<(Arc<Launcher>, Option<Ready>), StartError> {
    let options = &shared.options;
    let directory = shared.directory.path();
    let mode = match options.start {
        StartMode::Spawn => Mode::Spawn,
        // Elsewhere system libraries do not survive it, whatever the application does.
        StartMode::Auto if !cfg!(target_os = "linux") => Mode::Spawn,
        StartMode::Auto | StartMode::Fork => Mode::Fork,
    };
    let (launcher, ready) = Launcher::start(options, directory, mode).await?;
    let Some(reasons) = ready.as_ref().map(|ready| &ready.cannot_fork) else {
        return Ok((launcher, ready));
    };
    if reasons.is_empty() {
        return Ok((launcher, ready));
    }
    if options.start == StartMode::Fork {
        for reason in reasons {
            tracing::warn!(reason, "workers are forked although they had better not be");
        }
        return Ok((launcher, ready));
    }
    for reason in reasons {
        tracing::info!(reason, "each worker loads the application itself");
    }
    launcher.shut_down(options.end_grace).await;
    let (launcher, _) = Launcher::start(options, directory, Mode::Spawn).await?;
    Ok((launcher, ready))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authors_are_warned_of_state_in_memory_and_of_synchronous_handlers() {
        let ready = |names: &[&str], asynchronous: &[bool]| -> Ready {
            let tool = |is_async: &bool| serde_json::json!({"name": "t", "input_schema": {}, "async": is_async});
            let tools: Vec<_> = asynchronous.iter().map(tool).collect();
            let frame = serde_json::json!({"app": "a", "python": "3", "owlclaw": "bundled",
                "tools": tools, "changed_names": names});
            serde_json::from_str(&frame.to_string()).unwrap()
        };
        let signs = signs_of_sharing(&ready(&["app.py: ORDERS"], &[true, false]), (1, 4), 64);
        assert_eq!(signs.len(), 1);
        assert!(
            signs[0].contains("(app.py: ORDERS), and each of the 4 workers"),
            "{signs:?}"
        );
        let signs = signs_of_sharing(&ready(&["app.py: ORDERS"], &[false, false]), (1, 1), 1);
        assert_eq!(signs.len(), 1);
        assert!(
            signs[0].starts_with("2 handlers are synchronous, and 1 workers"),
            "{signs:?}"
        );
        assert!(signs_of_sharing(&ready(&[], &[true, false]), (2, 2), 1).is_empty());
    }
}
