use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

/// The most workers that an application can have.
pub(super) const MAX_WORKERS: usize = 64;

/// Method by which the workers of an application are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartMode {
    /// Forked, if the application can be after it was imported, and if the system allows it (Linux);
    /// else as with [`Spawn`](Self::Spawn).
    #[default]
    Auto,
    /// Forked from a process that has imported the application once: a worker is there within
    /// milliseconds and shares most of its memory with the others. What the application opened or
    /// started while it was imported is shared as well, or missing.
    Fork,
    /// Each worker imports the application itself.
    Spawn,
}

/// Options of a Python application.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PythonOptions {
    /// The interpreter: a path, or a name to be found on `PATH`.
    pub interpreter: PathBuf,
    /// Application to load: `path.py[:attribute]`, `module[:attribute]` or `…:factory()`.
    pub app: String,
    /// The application's working directory, on its `sys.path` behind the directories of Python itself.
    pub root: PathBuf,
    /// Further directories there.
    pub search: Vec<PathBuf>,
    /// Environment variables on top of the server's own.
    pub env: Vec<(OsString, OsString)>,
    /// Number of processes that run handlers, from 1 to 64. More than one means that the loss of a process
    /// is not noticed by calls in others, that handlers use several cores, and that they share no memory.
    pub workers: usize,
    /// The most of these processes; `None`: as many as there are from the start. Further ones are started while calls
    /// wait, and end when they are idle.
    pub max_workers: Option<usize>,
    /// Time that calls wait, without a break, before a further process is started.
    pub start_after: Duration,
    /// Time without calls after which a further process is ended.
    pub idle: Duration,
    /// Number of synchronous handlers that run in each of them at once, in threads. With 1 they run on the
    /// main thread, where each has its process to itself.
    pub threads: usize,
    /// Method by which they are started.
    pub start: StartMode,
    /// Most memory of each of them, in bytes of address space; beyond that, handlers get a
    /// `MemoryError`.
    pub worker_memory: Option<u64>,
    /// True to load the application again when its source files change.
    pub watch: bool,
    /// Longest time from the start of the interpreter until the application is loaded.
    pub start_timeout: Duration,
    /// Time that a handler has to end after its call was cancelled; then the worker is killed.
    pub grace: Duration,
    /// Time that a worker has to end after it was asked to; then it is killed. Shorter than
    /// `grace`: the server's shutdown waits for it.
    pub end_grace: Duration,
    /// Time to wait before a lost worker is started again; doubled from time to time while it goes
    /// on being lost.
    pub min_backoff: Duration,
    /// The longest to wait before a lost worker is started again.
    pub max_backoff: Duration,
    /// Calls that run in a worker at once.
    pub max_concurrent: usize,
    /// Calls that wait for their turn, or for a worker to come back; further ones are refused.
    pub max_waiting: usize,
    /// Bytes that the arguments of waiting calls may have together; further ones are refused.
    pub max_waiting_bytes: usize,
    /// A directory with the package `owlclaw_worker` to use instead of the bundled one.
    pub package: Option<PathBuf>,
}

impl PythonOptions {
    /// `app` in `root`, run by the `python3` on `PATH`.
    pub fn new(app: impl Into<String>, root: impl AsRef<Path>) -> Self {
        Self {
            interpreter: PathBuf::from("python3"),
            app: app.into(),
            root: root.as_ref().to_owned(),
            search: Vec::new(),
            env: Vec::new(),
            workers: 1,
            max_workers: None,
            start_after: Duration::from_millis(100),
            idle: Duration::from_secs(60),
            threads: 64,
            start: StartMode::default(),
            worker_memory: None,
            watch: true,
            start_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(2),
            end_grace: Duration::from_secs(1),
            min_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            max_concurrent: 256,
            max_waiting: 1024,
            max_waiting_bytes: 64 * 1024 * 1024,
            package: None,
        }
    }

    /// Number of workers to start.
    pub(super) fn workers(&self) -> usize {
        self.workers.clamp(1, MAX_WORKERS)
    }

    /// The most workers at once.
    pub(super) fn max_workers(&self) -> usize {
        let most = self.max_workers.unwrap_or(self.workers);
        most.clamp(self.workers(), MAX_WORKERS)
    }

    /// Time to wait before the worker is started again after it was lost `times` times in a row.
    pub(super) fn backoff(&self, times: u32) -> Duration {
        let doublings = times.saturating_sub(1).min(31);
        self.min_backoff
            .saturating_mul(1 << doublings)
            .min(self.max_backoff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_bound() {
        let options = PythonOptions::new("app.py", ".");
        let waits: Vec<_> = [1, 2, 3, 7, 8, 1000]
            .map(|times| options.backoff(times).as_millis())
            .into();
        assert_eq!(waits, [100, 200, 400, 6400, 10_000, 10_000]);
    }
}
