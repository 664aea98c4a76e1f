//! The process that forks an application's workers.

mod process;

use self::process::LauncherProcess;
use super::{
    PythonOptions, StartError,
    ending::Ending,
    frames::{
        Fatal, ForkFrame, FrameReader, Head, LauncherFrame, Ready, Role, put_fork, put_reap,
        put_shutdown,
    },
    meeting::{Expected, Greeting, Meeting},
    options::MAX_WORKERS,
};
use crate::exit_status;
use bytes::{Bytes, BytesMut};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::{mpsc, watch},
};

/// Most orders that may be on their way to a launcher: a few for each of its workers.
const MAX_ORDERS: usize = 4 * MAX_WORKERS;
/// Time that a launcher may take to read an order.
const WRITE: Duration = Duration::from_secs(10);
/// Time that a launcher that closed its end of the socket, or whose socket was closed, may take to
/// end: it kills the processes that its workers have left behind.
const LAST_BREATH: Duration = Duration::from_secs(4);
/// Time for which frames of a process that has ended are still read: the reason why it could not
/// load the application may lie in the socket.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(250);

/// Process that imports the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The launcher, once; workers are forked from there.
    Fork,
    /// Each worker.
    Spawn,
}

/// A launcher that runs. It ends, with all its workers, when this is dropped.
#[derive(Debug)]
pub(super) struct Launcher {
    pub(super) mode: Mode,
    pub(super) meeting: Meeting,
    directory: PathBuf,
    workers: AtomicU64,
    orders: mpsc::Sender<Order>,
    lost: watch::Receiver<Option<Arc<str>>>,
}

#[derive(Debug)]
enum Order {
    Fork {
        worker: u64,
        nonce: String,
        stdout: PathBuf,
        stderr: PathBuf,
        news: watch::Sender<News>,
    },
    Reap(u64),
    Shutdown,
    Kill,
}

/// State of a worker's process. The state is final once the sender is gone.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    pub(super) pid: Option<i32>,
    /// Reason why there is no process.
    pub(super) failed: Option<String>,
    /// End of the process.
    pub(super) exited: Option<String>,
}

impl Launcher {
    /// Starts a launcher, with its socket and the package in `directory`, and waits until it has loaded
    /// the application, if it is the one to do that.
    pub(super) async fn start(
        options: &PythonOptions,
        directory: &Path,
        mode: Mode,
    ) -> Result<(Arc<Self>, Option<Ready>), StartError> {
        if !options.root.is_dir() {
            return Err(StartError::NoRoot(options.root.clone()));
        }
        let name = uuid::Uuid::new_v4().simple().to_string();
        let meeting = Meeting::open(directory.join(format!("{}.sock", &name[..8])))?;
        let expected = meeting.expect(Role::Launcher, None);
        let mut process =
            LauncherProcess::spawn(options, directory, meeting.path(), &expected.nonce, mode)?;
        match load(options, &mut process, expected, mode).await {
            Ok((reader, writer, ready)) => {
                let (orders, ordered) = mpsc::channel(MAX_ORDERS);
                let (is_lost, lost) = watch::channel(None);
                let running = Running {
                    process,
                    reader,
                    writer,
                    workers: HashMap::new(),
                };
                tokio::spawn(running.run(ordered, is_lost));
                let launcher = Self {
                    mode,
                    meeting,
                    directory: directory.to_owned(),
                    workers: AtomicU64::new(0),
                    orders,
                    lost,
                };
                Ok((Arc::new(launcher), ready))
            }
            Err(Failed::Refusal(refusal)) => Err(process.explain(refusal).await),
            Err(Failed::TimedOut) => {
                let after = options.start_timeout;
                let stderr = process.kill().await.stderr;
                Err(StartError::timed_out(after, &options.root, stderr))
            }
        }
    }

    /// A number that no other worker of this launcher has.
    pub(super) fn number(&self) -> u64 {
        self.workers.fetch_add(1, Ordering::Relaxed)
    }

    /// A name for something of a worker's that no other process of ours has.
    pub(super) fn path(&self, expected: &Expected, kind: &str) -> PathBuf {
        self.directory
            .join(format!("{}.{kind}", &expected.nonce[..16]))
    }

    /// Has a worker forked, and says what becomes of it.
    pub(super) async fn fork(
        &self,
        worker: u64,
        nonce: &str,
        stdout: &Path,
        stderr: &Path,
    ) -> watch::Receiver<News> {
        let (news, seen) = watch::channel(News::default());
        let order = Order::Fork {
            worker,
            nonce: nonce.to_owned(),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            news,
        };
        // If the launcher is gone, so is the sender of the news.
        let _ = self.orders.send(order).await;
        seen
    }

    /// The worker's number may be used by another process once it has ended.
    pub(super) fn reap(&self, worker: u64) {
        if let Err(error) = self.orders.try_send(Order::Reap(worker)) {
            // It is a zombie until the launcher ends.
            tracing::debug!(%error, worker, "a python worker was not reaped");
        }
    }

    /// The launcher does not do what it is told: kills it, which it is lost by.
    pub(super) async fn condemn(&self) {
        let _ = self.orders.send(Order::Kill).await;
    }

    /// Reason why the launcher is gone, once it is.
    pub(super) async fn lost(&self) -> Arc<str> {
        let mut lost = self.lost.clone();
        match lost.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(cause)) => Arc::clone(cause),
            _ => "the Python launcher was dropped".into(),
        }
    }

    /// Has the launcher end, after all its workers, and kills it if it does not within `patience`.
    pub(super) async fn shut_down(&self, patience: Duration) {
        let _ = self.orders.send(Order::Shutdown).await;
        if tokio::time::timeout(patience, self.lost()).await.is_err() {
            self.condemn().await;
            self.lost().await;
        }
    }
}

/// Reason why loading failed.
pub(super) enum Refusal {
    /// The process said so itself.
    Fatal(Fatal),
    /// The process closed the socket, or never connected.
    Gone(Option<String>),
    /// The process sent an invalid frame.
    Nonsense(String),
}

impl Refusal {
    pub(super) fn nonsense(why: impl std::fmt::Display) -> Self {
        Self::Nonsense(why.to_string())
    }

    pub(super) fn too_early(kind: &str) -> Self {
        Self::Nonsense(format!(
            "a frame `{kind:.32}` before the application was loaded"
        ))
    }
}

enum Failed {
    Refusal(Refusal),
    TimedOut,
}

type Loaded = (FrameReader<OwnedReadHalf>, OwnedWriteHalf, Option<Ready>);

/// Waits for the launcher to connect and to load the application.
async fn load(
    options: &PythonOptions,
    process: &mut LauncherProcess,
    expected: Expected,
    mode: Mode,
) -> Result<Loaded, Failed> {
    let mut peer = None;
    let outcome = {
        let loading = converse(expected, mode, &mut peer);
        let mut loading = pin!(tokio::time::timeout(options.start_timeout, loading));
        tokio::select! {
            outcome = &mut loading => outcome,
            status = process.ended() => {
                // What is started may end well and leave the launcher behind, which will still connect.
                let patience = if status.is_well { LAST_BREATH } else { LAST_WORDS };
                match tokio::time::timeout(patience, loading).await {
                    Ok(Ok(Err(Refusal::Gone(None)))) | Err(_) => Ok(Err(Refusal::Gone(Some(status.text)))),
                    Ok(outcome) => outcome,
                }
            }
        }
    };
    process.peer = peer;
    match outcome {
        Ok(outcome) => outcome.map_err(Failed::Refusal),
        Err(_) => Err(Failed::TimedOut),
    }
}

async fn converse(
    mut expected: Expected,
    mode: Mode,
    peer: &mut Option<rustix::process::Pid>,
) -> Result<Loaded, Refusal> {
    let Greeting {
        mut reader,
        writer,
        pid,
    } = expected.arrives().await;
    *peer = pid;
    if mode == Mode::Spawn {
        return Ok((reader, writer, None));
    }
    loop {
        let frame = next_frame(&mut reader).await?;
        match kind(&frame)?.as_str() {
            "ready" => return Ok((reader, writer, Some(parse(&frame)?))),
            "fatal" => return Err(Refusal::Fatal(parse(&frame)?)),
            "log" | "pong" => {}
            other => return Err(Refusal::too_early(other)),
        }
    }
}

/// The next frame of a process that is being started.
pub(super) async fn next_frame(reader: &mut FrameReader<OwnedReadHalf>) -> Result<Bytes, Refusal> {
    match reader.next().await {
        Ok(Some(frame)) => Ok(frame),
        Ok(None) => Err(Refusal::Gone(None)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Refusal::nonsense(error)),
        Err(_) => Err(Refusal::Gone(None)),
    }
}

pub(super) fn kind(frame: &Bytes) -> Result<String, Refusal> {
    let head: Head<'_> = parse(frame)?;
    Ok(head.kind.into_owned())
}

pub(super) fn parse<'a, T: serde::Deserialize<'a>>(frame: &'a Bytes) -> Result<T, Refusal> {
    serde_json::from_slice(frame).map_err(Refusal::nonsense)
}

/// Task that talks to a launcher.
struct Running {
    process: LauncherProcess,
    reader: FrameReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    workers: HashMap<u64, watch::Sender<News>>,
}

/// Reason why the conversation with a launcher ends.
enum Over {
    /// The launcher closed the socket.
    Closed,
    /// The launcher sent an invalid frame, or did not read.
    Nonsense(String),
    /// The launcher is not needed any more.
    Unwanted,
    Killed,
}

impl Running {
    async fn run(
        mut self,
        mut orders: mpsc::Receiver<Order>,
        lost: watch::Sender<Option<Arc<str>>>,
    ) {
        let over = loop {
            let over = tokio::select! {
                frame = self.reader.next() => match frame {
                    Ok(Some(frame)) => self.hear(&frame).err().map(Over::Nonsense),
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        Some(Over::Nonsense(error.to_string()))
                    }
                    Ok(None) | Err(_) => Some(Over::Closed),
                },
                order = orders.recv() => match order {
                    Some(order) => self.say(order).await.err(),
                    None => Some(Over::Unwanted),
                }
            };
            if let Some(over) = over {
                break over;
            }
        };
        orders.close();
        let Self {
            mut process,
            reader,
            writer,
            workers,
        } = self;
        // It sees that it is not wanted any more, and tidies up.
        drop((reader, writer));
        let Ending { status, stderr } = match over {
            Over::Closed | Over::Unwanted => process.wait(LAST_BREATH).await,
            Over::Nonsense(_) | Over::Killed => process.kill().await,
        };
        let status = status.unwrap_or_else(|| "an unknown status".to_owned());
        let cause = match over {
            Over::Closed => format!("the Python launcher ended with {status}"),
            Over::Nonsense(why) => format!("the Python launcher broke the protocol: {why}"),
            Over::Unwanted => "the Python launcher is not wanted any more".to_owned(),
            Over::Killed => "the Python launcher was killed because it did not listen".to_owned(),
        };
        tracing::debug!(cause, last_words = stderr, "a python launcher has ended");
        lost.send_replace(Some(cause.into()));
        // Those who wait for news hear that there will be none, and can say why.
        drop(workers);
    }

    fn hear(&mut self, frame: &Bytes) -> Result<(), String> {
        let frame: LauncherFrame = serde_json::from_slice(frame)
            .map_err(|error| format!("a frame that cannot be read: {error}"))?;
        match frame {
            LauncherFrame::Forked { worker, pid } => {
                if let Some(news) = self.workers.get(&worker) {
                    news.send_modify(|news| news.pid = Some(pid));
                }
            }
            LauncherFrame::ForkFailed { worker, message } => {
                if let Some(news) = self.workers.remove(&worker) {
                    news.send_modify(|news| news.failed = Some(message));
                }
            }
            LauncherFrame::Exited {
                worker,
                code,
                signal,
            } => {
                if let Some(news) = self.workers.remove(&worker) {
                    let status = exit_status::describe_parts(code, signal);
                    news.send_modify(|news| news.exited = Some(status));
                }
            }
            LauncherFrame::Pong => {}
        }
        Ok(())
    }

    async fn say(&mut self, order: Order) -> Result<(), Over> {
        let mut frames = BytesMut::new();
        match order {
            Order::Fork {
                worker,
                nonce,
                stdout,
                stderr,
                news,
            } => {
                let frame = ForkFrame {
                    worker,
                    nonce: &nonce,
                    stdout: &stdout.to_string_lossy(),
                    stderr: &stderr.to_string_lossy(),
                };
                put_fork(&mut frames, &frame);
                self.workers.insert(worker, news);
            }
            Order::Reap(worker) => put_reap(&mut frames, worker),
            Order::Shutdown => put_shutdown(&mut frames),
            Order::Kill => return Err(Over::Killed),
        }
        match tokio::time::timeout(WRITE, send(&mut self.writer, &mut frames)).await {
            Ok(Ok(())) => Ok(()),
            // It is gone, but what it said before may not have been read yet.
            Ok(Err(_)) => Ok(()),
            Err(_) => Err(Over::Nonsense("it does not listen".to_owned())),
        }
    }
}

/// Sends what is in `frames` and leaves it empty.
pub(super) async fn send(writer: &mut OwnedWriteHalf, frames: &mut BytesMut) -> io::Result<()> {
    use tokio::io::AsyncWriteExt;
    let outcome = writer.write_all(frames).await;
    frames.clear();
    outcome
}
