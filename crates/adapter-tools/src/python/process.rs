use super::{
    PythonOptions, StartError,
    frames::{Fatal, FrameReader, Head, Hello, PROTOCOL, Ready},
    log_pipes::LogPipes,
};
use bytes::{Bytes, BytesMut};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::de::DeserializeOwned;
use std::{
    env,
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    pin::pin,
    process::{ExitStatus, Stdio},
    time::Duration,
};
use tokio::{
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::{Child, Command},
};

/// How long something that connects to the socket may take to say who it is.
const HELLO: Duration = Duration::from_secs(10);
/// How long a worker that closed its end of the socket may take to end.
const LAST_BREATH: Duration = Duration::from_secs(2);
/// How long to look for what a worker that has ended said before: why it could not load the
/// application may still lie in the socket.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// A running worker that has loaded its application.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) reader: FrameReader<OwnedReadHalf>,
    pub(super) writer: OwnedWriteHalf,
    pub(super) process: Process,
}

/// The process of a worker, in a process group of its own so that signals from the terminal reach the
/// server only.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Who is at the other end of the socket. Not always the child: that may be a launcher.
    peer: Option<Pid>,
    pipes: LogPipes,
}

/// How a worker ended.
#[derive(Debug)]
pub(super) struct Ending {
    /// Such as `exit status 3` or `signal SIGSEGV (11)`.
    pub(super) status: String,
    /// The last lines of its standard error.
    pub(super) stderr: String,
}

impl Worker {
    /// Starts a worker, with its socket and the package in `directory`, and waits until it has loaded
    /// the application.
    pub(super) async fn start(
        options: &PythonOptions,
        directory: &Path,
    ) -> Result<(Self, Ready), StartError> {
        if !options.root.is_dir() {
            return Err(StartError::NoRoot(options.root.clone()));
        }
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let socket = Socket(directory.join(format!("{}.sock", &nonce[..8])));
        let listener = UnixListener::bind(&socket.0).map_err(StartError::Prepare)?;
        let mut process = Process::spawn(options, directory, &socket.0, &nonce)?;
        let outcome = {
            let loading = load(&listener, &nonce, &mut process.peer);
            let mut loading = pin!(tokio::time::timeout(options.start_timeout, loading));
            tokio::select! {
                outcome = &mut loading => outcome,
                status = process.child.wait() => {
                    let status = status.ok();
                    // A launcher may end well and leave the worker behind, which will still connect.
                    let ended_well = status.is_some_and(|status| status.success());
                    let patience = if ended_well { LAST_BREATH } else { LAST_WORDS };
                    match tokio::time::timeout(patience, loading).await {
                        Ok(Ok(Err(Refusal::Gone(None)))) | Err(_) => Ok(Err(Refusal::Gone(status))),
                        Ok(outcome) => outcome,
                    }
                }
            }
        };
        match outcome {
            Ok(Ok((reader, writer, ready))) => Ok((
                Self {
                    reader,
                    writer,
                    process,
                },
                ready,
            )),
            Ok(Err(refusal)) => Err(process.explain(refusal).await),
            Err(_) => {
                let after = options.start_timeout;
                let stderr = process.kill().await.stderr;
                Err(StartError::TimedOut { after, stderr })
            }
        }
    }
}

/// Why loading came to nothing.
enum Refusal {
    /// The worker said so itself.
    Fatal(Fatal),
    /// It closed the socket, or never came.
    Gone(Option<ExitStatus>),
    /// It talks nonsense.
    Nonsense(String),
}

/// Waits for the worker to connect and to load the application.
async fn load(
    listener: &UnixListener,
    nonce: &str,
    peer: &mut Option<Pid>,
) -> Result<(FrameReader<OwnedReadHalf>, OwnedWriteHalf, Ready), Refusal> {
    let nonsense = |error: &dyn std::fmt::Display| Refusal::Nonsense(error.to_string());
    let (mut reader, writer) = loop {
        let (stream, _) = listener.accept().await.map_err(|error| nonsense(&error))?;
        match tokio::time::timeout(HELLO, greet(stream, nonce)).await {
            Ok(Some(Greeting {
                reader,
                writer,
                pid,
            })) => {
                *peer = pid;
                break (reader, writer);
            }
            // Not our worker, which may still come: the nonce tells them apart.
            Ok(None) | Err(_) => tracing::warn!("a stranger connected to the worker's socket"),
        }
    };
    loop {
        let frame = match reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(Refusal::Gone(None)),
            Err(error) => return Err(nonsense(&error)),
        };
        let head: Head<'_> = serde_json::from_slice(&frame).map_err(|error| nonsense(&error))?;
        match &*head.kind {
            "ready" => {
                let ready = parse(&frame).map_err(|error| nonsense(&error))?;
                return Ok((reader, writer, ready));
            }
            "fatal" => {
                return Err(Refusal::Fatal(
                    parse(&frame).map_err(|error| nonsense(&error))?,
                ));
            }
            "log" | "pong" => {}
            other => {
                return Err(Refusal::Nonsense(format!(
                    "a frame `{other:.32}` before `ready`"
                )));
            }
        }
    }
}

/// Somebody who knows the nonce and speaks our version.
struct Greeting {
    reader: FrameReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    pid: Option<Pid>,
}

async fn greet(stream: UnixStream, nonce: &str) -> Option<Greeting> {
    // The kernel knows the process better than what it says about itself.
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let (reader, writer) = stream.into_split();
    let mut reader = FrameReader::new(reader);
    let frame = reader.next().await.ok()??;
    let hello: Hello = parse(&frame).ok()?;
    let pid = Pid::from_raw(peer.unwrap_or(hello.pid)).filter(|pid| pid.as_raw_nonzero().get() > 1);
    let is_ours = hello.protocol == PROTOCOL && hello.nonce == nonce;
    is_ours.then_some(Greeting {
        reader,
        writer,
        pid,
    })
}

fn parse<T: DeserializeOwned>(frame: &Bytes) -> serde_json::Result<T> {
    serde_json::from_slice(frame)
}

impl Process {
    fn spawn(
        options: &PythonOptions,
        directory: &Path,
        socket: &Path,
        nonce: &str,
    ) -> Result<Self, StartError> {
        let package = options.package.as_deref().unwrap_or(directory);
        let mut command = Command::new(&options.interpreter);
        command
            .args(["-u", "-B", "-m", "owlclaw_worker"])
            .current_dir(&options.root)
            .envs(options.env.iter().map(|(name, value)| (name, value)))
            .env("PYTHONPATH", python_path(package, options))
            .env("OWLCLAW_WORKER_SOCKET", socket)
            .env("OWLCLAW_WORKER_NONCE", nonce)
            .env("OWLCLAW_WORKER_APP", &options.app)
            .env("OWLCLAW_WORKER_ROOT", &options.root)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
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
            child,
            peer: None,
            pipes: LogPipes::drain(stdout, stderr),
        })
    }

    /// Makes a synchronous handler look at the socket.
    pub(super) fn interrupt(&self) {
        if let Some(peer) = self.peer {
            // It fails when the process has just ended, which the socket tells as well.
            let _ = kill_process(peer, Signal::USR1);
        }
    }

    /// Waits for a worker that is about to end, and kills it if it does not.
    pub(super) async fn wait(&mut self, patience: Duration) -> Ending {
        match tokio::time::timeout(patience, self.child.wait()).await {
            Ok(Ok(status)) => self.ending(Some(status)).await,
            Ok(Err(_)) | Err(_) => self.kill().await,
        }
    }

    /// Waits a moment for a worker that closed the socket.
    pub(super) async fn wait_for_end(&mut self) -> Ending {
        self.wait(LAST_BREATH).await
    }

    /// Kills the worker and what it started.
    pub(super) async fn kill(&mut self) -> Ending {
        // The child has not been waited for where it still has an id, so the number is still its own.
        let group = self
            .child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        // Both fail only where there is nothing left to kill.
        let _ = match (group, self.peer) {
            (Some(group), _) => kill_process_group(group, Signal::KILL),
            (None, Some(left_behind)) => kill_process(left_behind, Signal::KILL),
            (None, None) => Ok(()),
        };
        let status = self.child.wait().await.ok();
        self.ending(status).await
    }

    async fn ending(&mut self, status: Option<ExitStatus>) -> Ending {
        Ending {
            status: describe(status),
            stderr: self.pipes.last_words().await,
        }
    }

    async fn explain(mut self, refusal: Refusal) -> StartError {
        match refusal {
            Refusal::Fatal(Fatal { message, traceback }) => {
                let stderr = self.wait_for_end().await.stderr;
                StartError::NotLoaded {
                    message,
                    traceback,
                    stderr,
                }
            }
            Refusal::Gone(status) => {
                let Ending { status, stderr } = match status {
                    Some(status) => self.ending(Some(status)).await,
                    None => self.wait_for_end().await,
                };
                StartError::Ended { status, stderr }
            }
            Refusal::Nonsense(why) => {
                self.kill().await;
                StartError::Protocol(why)
            }
        }
    }
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

/// How a process ended, in few words.
fn describe(status: Option<ExitStatus>) -> String {
    let Some(status) = status else {
        return "an unknown status".to_owned();
    };
    if let Some(code) = status.code() {
        return format!("exit status {code}");
    }
    let Some(number) = status.signal() else {
        return status.to_string();
    };
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return format!("signal {number}"),
    };
    format!("signal {name} ({number})")
}

/// A socket's file, removed once nobody needs to connect any more.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Sends what is in `frames` and leaves it empty.
pub(super) async fn send(writer: &mut OwnedWriteHalf, frames: &mut BytesMut) -> io::Result<()> {
    use tokio::io::AsyncWriteExt;
    let outcome = writer.write_all(frames).await;
    frames.clear();
    outcome
}
