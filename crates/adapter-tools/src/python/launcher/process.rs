use super::{Mode, Refusal};
use crate::exit_status;
use crate::python::{
    PythonOptions, StartError, ending::Ending, frames::Fatal, log_pipes::LogPipes,
};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{
    env,
    ffi::OsString,
    io,
    path::Path,
    process::{ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};
use tokio::process::{Child, Command};

/// Time that a launcher that no task waits for may take to end by itself.
const ALONE: Duration = Duration::from_secs(4);

/// The process of a launcher, in a process group of its own so that signals from the terminal reach
/// the server only.
#[derive(Debug)]
pub(super) struct LauncherProcess {
    /// `None` once somebody else has it.
    child: Option<Child>,
    /// Process id, also after the end.
    pid: Option<Pid>,
    /// Process at the other end of the socket. Not always the child: that may be a script.
    pub(super) peer: Option<Pid>,
    pipes: LogPipes,
}

/// End of a process that was waited for.
pub(super) struct Ended {
    pub(super) is_well: bool,
    pub(super) text: String,
}

impl LauncherProcess {
    pub(super) fn spawn(
        options: &PythonOptions,
        directory: &Path,
        socket: &Path,
        nonce: &str,
        mode: Mode,
    ) -> Result<Self, StartError> {
        let package = options.package.as_deref().unwrap_or(directory);
        let mut command = Command::new(&options.interpreter);
        command
            // By its file: `-m` looks into the working directory before it looks for modules of Python itself.
            .args(["-u", "-B"])
            .arg(package.join("owlclaw_worker/__main__.py"))
            .current_dir(&options.root)
            .envs(options.env.iter().map(|(name, value)| (name, value)))
            .env("PYTHONPATH", python_path(package, options))
            .env("OWLCLAW_WORKER_SOCKET", socket)
            .env("OWLCLAW_WORKER_NONCE", nonce)
            .env("OWLCLAW_WORKER_APP", &options.app)
            .env("OWLCLAW_WORKER_ROOT", &options.root)
            .env("OWLCLAW_WORKER_SEARCH", search(options))
            .env("OWLCLAW_WORKER_THREADS", options.threads.to_string())
            .env(
                "OWLCLAW_WORKER_START",
                match mode {
                    Mode::Fork => "fork",
                    Mode::Spawn => "spawn",
                },
            )
            .env("OWLCLAW_WORKER_PATIENCE", patience(options).to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(bytes) = options.worker_memory {
            command.env("OWLCLAW_WORKER_MEMORY", bytes.to_string());
        }
        let mut child = command.spawn().map_err(|source| {
            let interpreter = options.interpreter.clone();
            match source.kind() {
                io::ErrorKind::NotFound => StartError::NoInterpreter(interpreter),
                _ => StartError::Spawn {
                    interpreter,
                    source,
                },
            }
        })?;
        let stdout = child.stdout.take().expect("it was asked to be piped");
        let stderr = child.stderr.take().expect("it was asked to be piped");
        Ok(Self {
            pid: pid(&child),
            child: Some(child),
            peer: None,
            pipes: LogPipes::drain(stdout, stderr, None),
        })
    }

    /// Waits until the process has ended.
    pub(super) async fn ended(&mut self) -> Ended {
        let status = self.status().await;
        Ended {
            is_well: status.is_some_and(|status| status.success()),
            text: status.map_or_else(|| "an unknown status".to_owned(), exit_status::describe),
        }
    }

    /// Waits for a launcher that is about to end, and kills it if it does not.
    pub(super) async fn wait(&mut self, patience: Duration) -> Ending {
        match tokio::time::timeout(patience, self.status()).await {
            Ok(status @ Some(_)) => self.ending(status).await,
            Ok(None) | Err(_) => self.kill().await,
        }
    }

    /// Kills the launcher and what is in its group; its workers are in groups of their own, and die
    /// with it.
    pub(super) async fn kill(&mut self) -> Ending {
        self.send_kill();
        let status = self.status().await;
        self.ending(status).await
    }

    pub(super) async fn explain(mut self, refusal: Refusal) -> StartError {
        match refusal {
            Refusal::Fatal(Fatal { message, traceback }) => {
                let stderr = self.wait(ALONE).await.stderr;
                StartError::NotLoaded {
                    message,
                    traceback,
                    stderr,
                }
            }
            Refusal::Gone(status) => {
                let ending = self.wait(ALONE).await;
                StartError::Ended {
                    status: status.unwrap_or_else(|| ending.status().to_owned()),
                    stderr: ending.stderr,
                }
            }
            Refusal::Nonsense(why) => {
                self.kill().await;
                StartError::Protocol(why)
            }
        }
    }

    async fn status(&mut self) -> Option<ExitStatus> {
        match &mut self.child {
            Some(child) => child.wait().await.ok(),
            None => None,
        }
    }

    async fn ending(&mut self, status: Option<ExitStatus>) -> Ending {
        Ending {
            status: status.map(exit_status::describe),
            stderr: self.pipes.last_words().await,
        }
    }

    /// Process that was left behind by a script that started the launcher.
    fn other(&self) -> Option<Pid> {
        self.peer.filter(|peer| Some(*peer) != self.pid)
    }

    fn send_kill(&self) {
        if let Some(child) = &self.child {
            send_kill(child, self.other());
        }
    }
}

/// The number of a child that has not been waited for, and so is its own.
fn pid(child: &Child) -> Option<Pid> {
    child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw)
}

fn send_kill(child: &Child, other: Option<Pid>) {
    // Both fail only where there is nothing left to kill.
    if let Some(group) = pid(child) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    if let Some(other) = other {
        let _ = kill_process(other, Signal::KILL);
    }
}

impl Drop for LauncherProcess {
    /// Happens only where the runtime is gone or a start is given up. The launcher sees that the other
    /// end of its socket is gone, and kills what it has started; somebody has to see that it does.
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        let other = self.other();
        let watch = move || {
            let begun = Instant::now();
            while begun.elapsed() < ALONE {
                if !matches!(child.try_wait(), Ok(None)) {
                    return;
                }
                thread::sleep(Duration::from_millis(5));
            }
            send_kill(&child, other);
        };
        let name = "launcher-end".to_owned();
        // Without a thread it has its own word that it will end.
        let _ = thread::Builder::new().name(name).spawn(watch);
    }
}

/// Seconds from its beginning after which an import that has not ended says where it is: well before it is ended,
/// since the interpreter takes its time to begin.
fn patience(options: &PythonOptions) -> f64 {
    options.start_timeout.as_secs_f64() * 2.0 / 3.0
}

/// The directories to search besides, those left out whose names no list of such can have.
fn search(options: &PythonOptions) -> OsString {
    let directories = options.search.iter();
    let named = directories.filter(|it| !it.as_os_str().as_encoded_bytes().contains(&b':'));
    env::join_paths(named).unwrap_or_default()
}

fn python_path(package: &Path, options: &PythonOptions) -> OsString {
    let given = options
        .env
        .iter()
        .rev()
        .find(|(name, _)| name == "PYTHONPATH");
    let rest = given
        .map(|(_, value)| value.clone())
        .or_else(|| env::var_os("PYTHONPATH"));
    let mut path = OsString::from(package);
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    path
}
