//! A child process: what it wrote to stderr, how it ended.

use std::{
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStderr, Command},
    task::JoinHandle,
    time::timeout,
};

use crate::wait::{GENEROUS, wait_until};

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    stderr: Stderr,
    collecting: Option<JoinHandle<()>>,
}

/// Memory that a process occupies: its resident set, in bytes.
///
/// # Panics
///
/// If there is no such process, or the system has no `/proc`.
#[must_use]
pub fn resident_bytes(process: u32) -> usize {
    let status = about(process, "status");
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kilobytes.expect("a running process has a resident set") * 1024
}

/// Waits until a process has nothing to do: until several looks in a row see it use no time.
///
/// # Panics
///
/// If it is busy for longer than [`GENEROUS`], or as [`resident_bytes`].
pub async fn wait_idle(process: u32) {
    const LOOKS: usize = 20;
    let used = || {
        let stat = about(process, "stat");
        // After the name in parentheses, which may hold anything: the 12th and 13th are the times.
        let (_, fields) = stat.rsplit_once(')').expect("a process has a name");
        let times = fields.split_whitespace().skip(11).take(2);
        times.map(str::to_owned).collect::<Vec<_>>()
    };
    let (mut before, mut quiet) = (used(), 0);
    wait_until("the process has nothing to do", GENEROUS, || {
        let now = used();
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
        LOOKS <= quiet
    })
    .await;
}

fn about(process: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{process}/{file}"))
        .unwrap_or_else(|error| panic!("nothing is known of process {process}: {error}"))
}

/// Text that a process has written to its stderr until now. All of it is held: a test is short.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stderr(Arc<Mutex<String>>);

impl Stderr {
    pub(crate) fn text(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn collect(self, pipe: ChildStderr) {
        let mut lines = BufReader::new(pipe);
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line).await, Ok(1..)) {
            let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            text.push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
}

impl ChildProcess {
    /// Starts `command` with its stderr captured and killed on drop; stdin and stdout are as the
    /// caller set them.
    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let stderr = Stderr::default();
        let pipe = child.stderr.take().expect("stderr is a pipe");
        let collecting = Some(tokio::spawn(stderr.clone().collect(pipe)));
        Self {
            child,
            stderr,
            collecting,
        }
    }

    pub(crate) fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn stderr_handle(&self) -> Stderr {
        self.stderr.clone()
    }

    /// The process id, while the process runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Memory that the process occupies; see [`resident_bytes`].
    ///
    /// # Panics
    ///
    /// If the process has ended, or the system has no `/proc`.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        resident_bytes(self.id().expect("the process still runs"))
    }

    /// Text that the process has written to its stderr until now; all of it, once it has ended and
    /// [`ChildProcess::wait_exit`] has returned.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until `needle` was written to stderr.
    ///
    /// # Panics
    ///
    /// If that takes longer than [`GENEROUS`].
    pub async fn wait_stderr(&self, needle: &str) {
        let what = format!("stderr said {needle:?}");
        wait_until(&what, GENEROUS, || self.stderr.text().contains(needle)).await;
    }

    /// Sends a signal by its short name, such as `TERM`.
    ///
    /// # Panics
    ///
    /// If the process has ended, or there is no such signal.
    pub async fn signal(&self, name: &str) {
        let id = self.id().expect("the process still runs");
        let mut kill = Command::new("kill");
        let status = kill
            .arg(format!("-{name}"))
            .arg(id.to_string())
            .status()
            .await;
        assert!(
            status.is_ok_and(|it| it.success()),
            "no SIG{name} could be sent to {id}"
        );
    }

    /// Waits for the process to end by itself.
    ///
    /// # Panics
    ///
    /// If it still runs after `limit`.
    pub async fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let Ok(status) = timeout(limit, self.child.wait()).await else {
            panic!(
                "still running after {limit:?}; stderr:\n{}",
                self.stderr.text()
            );
        };
        if let Some(collecting) = self.collecting.take() {
            // A grandchild may hold the pipe open, so this has an end of its own.
            let _ = timeout(GENEROUS, collecting).await;
        }
        status.expect("a child can be waited for")
    }
}
