use super::{CommandOptions, guard};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{
    ffi::OsString,
    io,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::Arc,
};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// A running program and what it started, in a process group of their own. Dropping it kills them.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// The group; `None` once there is nothing left to kill.
    group: Option<Pid>,
    end: End,
}

/// The pipes to and from a program.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Process {
    /// Starts `program`. It is killed when the thread that calls this ends, if there is a guard.
    pub(super) fn spawn(
        options: &CommandOptions,
        program: &Path,
        arguments: Vec<String>,
        reads: bool,
        trace: &[(&str, Arc<str>)],
    ) -> io::Result<(Self, Pipes)> {
        let mut command = command(options, program);
        command
            .args(arguments)
            .env_clear()
            // First: what the configuration says wins.
            .envs(trace.iter().map(|(name, value)| (name, &**value)))
            .envs(
                options
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .current_dir(&options.directory)
            .stdin(if reads { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let pipes = Pipes {
            stdin: child.stdin.take(),
            stdout: child.stdout.take().expect("it was asked to be piped"),
            stderr: child.stderr.take().expect("it was asked to be piped"),
        };
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let group = id.and_then(Pid::from_raw);
        let process = Self {
            child,
            group,
            end: End::of(group),
        };
        Ok((process, pipes))
    }

    /// Waits for the program to end. On Linux it is not laid to rest yet, so that its number, which
    /// is that of its group, cannot become another's before [`kill`](Self::kill). May be given up.
    pub(super) async fn ended(&mut self) {
        self.end.wait(&mut self.child).await;
    }

    /// Asks the program, and what it started, to end.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills the program, if it still runs, and whatever it started and left behind.
    pub(super) async fn kill(mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        let status = self.child.wait().await;
        self.group = None;
        status
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group
            && kill_process_group(group, signal).is_err()
            && self.child.id().is_some()
        {
            // A guard is on its way to a group of its own, and nobody is with it yet; or it has
            // ended, which is as well.
            let _ = kill_process(group, signal);
        }
    }
}

impl Drop for Process {
    /// Kills the program, for a runtime that ends together with the task that would have waited for
    /// it.
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

fn command(options: &CommandOptions, program: &Path) -> Command {
    match options.guard.as_deref() {
        Some([runner, words @ ..]) => {
            let mut command = Command::new(runner);
            command
                .args(words)
                .args(guard::arguments(options.max_memory, program));
            command
        }
        _ => {
            let mut command = Command::new(program);
            command.process_group(0);
            command
        }
    }
}

/// Source of the notification that a program has ended.
#[derive(Debug)]
enum End {
    #[cfg(target_os = "linux")]
    Descriptor(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>),
    /// By laying it to rest.
    Child,
}

impl End {
    #[cfg(target_os = "linux")]
    #[expect(
        deprecated,
        reason = "what the successors ask for, by `unsafe`, is that the descriptor stays the same, \
                  and an `OwnedFd` cannot be another one"
    )]
    fn of(id: Option<Pid>) -> Self {
        use rustix::process::{PidfdFlags, pidfd_open};
        use tokio::io::{Interest, unix::AsyncFd};
        // Kernels before 5.3 have none.
        let descriptor = id.and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
        let readable =
            descriptor.and_then(|it| AsyncFd::with_interest(it, Interest::READABLE).ok());
        readable.map_or(Self::Child, Self::Descriptor)
    }

    #[cfg(not(target_os = "linux"))]
    fn of(_id: Option<Pid>) -> Self {
        Self::Child
    }

    async fn wait(&self, child: &mut Child) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Descriptor(descriptor) => drop(descriptor.readable().await),
            Self::Child => drop(child.wait().await),
        }
    }
}

/// Returns true if there were too many processes, too many open files, or too little memory to
/// start one more, which passes.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    let number = error.raw_os_error();
    number.is_some_and(|number| shortages.iter().any(|it| it.raw_os_error() == number))
}

/// Returns true if `path` is an executable file.
pub(super) fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// The value of `name` in an environment.
pub(super) fn variable<'a>(all: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsString> {
    let mut all = all.iter().rev();
    all.find(|(it, _)| it == name).map(|(_, value)| value)
}
