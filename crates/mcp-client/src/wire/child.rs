//! Servers that are child processes.
//!
//! A child has a process group of its own, so that what it starts ends with it. A guard (`/bin/sh`, in a
//! group of its own too) reads from a pipe that only this process has open: when this process ends in any
//! way, SIGKILL included, the pipe closes and the guard kills the child's group.

use crate::{
    Bounds, Error,
    wire::lines,
    wire::link::{Duplex, End, Link},
    wire::shared::Shared,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    collections::VecDeque,
    ffi::OsString,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::AsyncReadExt,
    process::{Child, ChildStderr, Command},
    sync::watch,
};

/// A program that is started as a server.
#[derive(Clone, Debug, Default)]
pub struct ChildProgram {
    /// The program; looked up in `PATH` if it has no slash.
    pub program: OsString,
    /// The program's arguments.
    pub arguments: Vec<OsString>,
    /// Environment variables besides [`INHERITED`], which are all that it inherits.
    pub environment: Vec<(OsString, OsString)>,
    /// The directory it is started in; ours without it.
    pub directory: Option<PathBuf>,
}

/// The environment variables that a child inherits.
pub const INHERITED: [&str; 10] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "TZ", "TMPDIR",
];

/// Kills the group `$1` when its input ends without a line.
const GUARD: &str = "read -r line || kill -s KILL -- \"-$1\"";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Closing,
    Ended(Option<ExitStatus>),
}

/// A child that runs, or has ended.
#[derive(Debug)]
pub(crate) struct ChildHandle {
    phase: watch::Sender<Phase>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
}

/// Kills the group when it is dropped, so that a runtime that ends leaves nothing behind.
struct Group {
    pid: Pid,
    guard: Option<Child>,
    reaped: bool,
}

impl Group {
    fn signal(&self, signal: Signal) {
        // The leader may have ended while others of the group run on.
        let _ = kill_process_group(self.pid, signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::KILL);
        }
        if let Some(guard) = &mut self.guard {
            // A guard that outlived the child could kill another group of the same number.
            let _ = guard.start_kill();
        }
    }
}

impl ChildHandle {
    pub(crate) fn close(&self) {
        self.phase.send_if_modified(|phase| {
            let runs = *phase == Phase::Running;
            if runs {
                *phase = Phase::Closing;
            }
            runs
        });
    }

    pub(crate) async fn ended(&self) {
        let mut phase = self.phase.subscribe();
        // The sender is ours.
        let _ = phase.wait_for(|it| matches!(it, Phase::Ended(_))).await;
    }

    pub(crate) fn stderr(&self) -> String {
        tail(&self.stderr)
    }
}

/// Most bytes of standard error that an error quotes.
const QUOTED: usize = 2000;

fn tail(kept: &Mutex<VecDeque<u8>>) -> String {
    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let mut from = kept.len().saturating_sub(QUOTED);
    if from != 0 {
        // What a line is cut in the middle of may be a secret, which would not be recognised any more.
        let is_end = |at: &usize| kept[*at - 1] == b'\n';
        match (from..kept.len()).find(is_end) {
            Some(start) => from = start,
            None => return format!("(a line of more than {QUOTED} bytes)"),
        }
    }
    let bytes: Vec<u8> = kept.iter().skip(from).copied().collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// Starts a child and ties it to `shared`.
pub(crate) fn start(shared: &Arc<Shared>, program: &ChildProgram) -> Result<Link, Error> {
    let failed = |cause| Error::Start {
        program: program.program.to_string_lossy().into_owned(),
        cause,
    };
    let mut command = Command::new(&program.program);
    command
        .args(&program.arguments)
        .env_clear()
        .envs(
            INHERITED
                .iter()
                .filter_map(|it| Some((*it, std::env::var_os(it)?))),
        )
        .envs(
            program
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(directory) = &program.directory {
        command.current_dir(directory);
    }
    let mut child = command.spawn().map_err(failed)?;
    let pid = child.id().and_then(|it| Pid::from_raw(it.cast_signed()));
    let pid = pid.ok_or_else(|| failed(std::io::Error::other("it has no process id")))?;
    let mut group = Group {
        pid,
        guard: None,
        reaped: false,
    };
    group.guard = Some(guard(pid).map_err(failed)?);
    let stdin = child.stdin.take().expect("was asked for");
    let stdout = child.stdout.take().expect("was asked for");
    let stderr = child.stderr.take().expect("was asked for");

    let (phase, closing) = watch::channel(Phase::Running);
    let kept = Arc::new(Mutex::new(VecDeque::new()));
    let keeping = tokio::spawn(keep(stderr, Arc::clone(&kept), shared.bounds.max_stderr));
    let (out, writing) = lines::write(&shared.bounds, stdin);
    let handle = ChildHandle {
        phase: phase.clone(),
        stderr: kept,
    };
    let reading = tokio::spawn({
        let shared = Arc::clone(shared);
        let mut phase = phase.subscribe();
        async move {
            let error = lines::read(&shared, stdout).await;
            let is_end = matches!(error, Error::Closed { .. });
            let mut reason = error.into_reason();
            // Its exit status and its last words say more than the end of its output.
            let ended = phase.wait_for(|it| matches!(it, Phase::Ended(_)));
            let patience = Duration::from_millis(500);
            if is_end
                && let Ok(Ok(phase)) = tokio::time::timeout(patience, ended).await
                && let Phase::Ended(Some(status)) = &*phase
            {
                reason = format!("the program has ended ({status})");
            }
            shared.close(&reason);
        }
    });
    let keeping = keeping.abort_handle();
    let (read, writing) = (reading.abort_handle(), writing.abort_handle());
    let bounds = shared.bounds.clone();
    tokio::spawn(async move {
        let status = watch_over(child, &mut group, closing, &bounds, &writing).await;
        group.signal(Signal::KILL);
        group.reaped = true;
        drop(group);
        // What a grandchild holds open must not hold us up.
        tokio::time::sleep(Duration::from_millis(20)).await;
        phase.send_replace(Phase::Ended(status));
        tokio::time::sleep(bounds.close_patience).await;
        keeping.abort();
        reading.abort();
    });
    Ok(Link::Duplex(Duplex::new(
        out,
        read,
        None,
        End::Child(handle),
    )))
}

/// Waits for the end of the child; closes it as the protocol says when that is wanted: its input, then
/// SIGTERM, then SIGKILL.
async fn watch_over(
    mut child: Child,
    group: &mut Group,
    mut closing: watch::Receiver<Phase>,
    bounds: &Bounds,
    writing: &tokio::task::AbortHandle,
) -> Option<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status.ok(),
        _ = closing.wait_for(|it| *it != Phase::Running) => {}
    }
    // What is queued is written, and then the input is closed; unless the child does not read.
    let patience = bounds.close_patience;
    if let Ok(status) = tokio::time::timeout(patience, child.wait()).await {
        return status.ok();
    }
    writing.abort();
    group.signal(Signal::TERM);
    if let Ok(status) = tokio::time::timeout(patience, child.wait()).await {
        return status.ok();
    }
    group.signal(Signal::KILL);
    child.wait().await.ok()
}

fn guard(pid: Pid) -> std::io::Result<Child> {
    Command::new("/bin/sh")
        .arg("-c")
        .arg(GUARD)
        .arg("guard")
        .arg(pid.as_raw_nonzero().to_string())
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Keeps the last bytes of standard error.
async fn keep(mut stderr: ChildStderr, kept: Arc<Mutex<VecDeque<u8>>>, max: usize) {
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = stderr.read(&mut chunk).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&chunk[..length]);
        let excess = kept.len().saturating_sub(max);
        kept.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_begin_with_a_whole_line() {
        let said = |text: &str| tail(&Mutex::new(text.bytes().collect()));
        assert_eq!(said("one\ntwo\n"), "one\ntwo");
        let line = "x".repeat(QUOTED - 8);
        assert_eq!(
            said(&format!("a secret\n{line}\nlast")),
            format!("{line}\nlast")
        );
        assert_eq!(said(&format!("a secret {line}\nlast\n")), "last");
        let long = format!("a secret {line} and more");
        assert_eq!(said(&long), format!("(a line of more than {QUOTED} bytes)"));
    }
}
