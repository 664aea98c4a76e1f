//! One process that runs handlers.

use super::{
    PythonOptions, StartError,
    ending::Ending,
    frames::{Fatal, FrameReader, Ready, Role},
    launcher::{LAST_WORDS, Launcher, Mode, News, Refusal, kind, next_frame, parse},
    log_pipes::{Fifo, LogPipes},
    meeting::{Expected, Greeting},
    scheduler::Requests,
};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::watch,
};

/// Time that a launcher may take to fork a worker, and the worker to connect. Milliseconds as a
/// rule; but machines can be busy.
const FORK: Duration = Duration::from_secs(20);
/// Time that a worker that closed its end of the socket may take to end.
const LAST_BREATH: Duration = Duration::from_secs(2);
/// Time to wait for the end of a worker that was killed; the kernel may be busy with it.
const KILLED: Duration = Duration::from_secs(5);

/// A running worker that takes calls.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) reader: FrameReader<OwnedReadHalf>,
    pub(super) writer: OwnedWriteHalf,
    pub(super) process: Process,
}

/// The process of a worker, which leads a process group of its own. What is in that group is killed
/// when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    number: u64,
    launcher: Arc<Launcher>,
    /// `None` before it is there and after it was reaped, when the number may be another's.
    pid: Option<Pid>,
    news: Option<watch::Receiver<News>>,
    is_reaped: bool,
    pipes: LogPipes,
}

impl Worker {
    /// Has a worker started, and waits until it takes calls. With what it says of the application, if
    /// it is the one that loads it.
    pub(super) async fn start(
        launcher: &Arc<Launcher>,
        options: &PythonOptions,
    ) -> Result<(Self, Option<Ready>), StartError> {
        let number = launcher.number();
        let expected = launcher.meeting.expect(Role::Worker, Some(number));
        let pipe = |kind| Fifo::make(launcher.path(&expected, kind)).map_err(StartError::Prepare);
        let ((stdout, stdout_end), (stderr, stderr_end)) = (pipe("out")?, pipe("err")?);
        let mut process = Process {
            number,
            launcher: Arc::clone(launcher),
            pid: None,
            news: None,
            is_reaped: false,
            pipes: LogPipes::drain(stdout_end, stderr_end, Some(number)),
        };
        let (nonce, out, err) = (&expected.nonce, stdout.path(), stderr.path());
        process.news = Some(launcher.fork(number, nonce, out, err).await);
        process.is_there().await?;
        let patience = match launcher.mode {
            Mode::Fork => FORK,
            Mode::Spawn => options.start_timeout,
        };
        let outcome = {
            let loading = load(expected, process.pid);
            let mut loading = pin!(tokio::time::timeout(patience, loading));
            tokio::select! {
                outcome = &mut loading => outcome,
                status = process.ended() => {
                    match tokio::time::timeout(LAST_WORDS, loading).await {
                        Ok(Ok(Err(Refusal::Gone(None)))) | Err(_) => Ok(Err(Refusal::Gone(status))),
                        Ok(outcome) => outcome,
                    }
                }
            }
        };
        match outcome {
            Ok(Ok((reader, writer, ready))) => {
                let worker = Self {
                    reader,
                    writer,
                    process,
                };
                Ok((worker, ready))
            }
            Ok(Err(refusal)) => Err(process.explain(refusal).await),
            Err(_) => {
                let stderr = process.kill().await.stderr;
                Err(StartError::timed_out(patience, &options.root, stderr))
            }
        }
    }
}

type Loaded = (FrameReader<OwnedReadHalf>, OwnedWriteHalf, Option<Ready>);

/// Waits for the worker to connect and to be ready for calls.
async fn load(mut expected: Expected, pid: Option<Pid>) -> Result<Loaded, Refusal> {
    let Greeting {
        mut reader,
        writer,
        pid: peer,
    } = expected.arrives().await;
    if peer != pid {
        return Err(Refusal::nonsense("it is another process than was forked"));
    }
    let mut ready = None;
    loop {
        let frame = next_frame(&mut reader).await?;
        match kind(&frame)?.as_str() {
            "ready" => ready = Some(parse(&frame)?),
            "serving" => return Ok((reader, writer, ready)),
            "fatal" => return Err(Refusal::Fatal(parse(&frame)?)),
            "log" | "pong" => {}
            other => return Err(Refusal::too_early(other)),
        }
    }
}

impl Process {
    /// From now on, what it prints is attributed to calls.
    pub(super) fn attribute(&self, requests: Requests) {
        self.pipes.attribute(requests);
    }

    /// Makes a synchronous handler look at the socket.
    pub(super) fn interrupt(&self) {
        if let Some(pid) = self.pid {
            // It fails when the process has just ended, which the socket tells as well.
            let _ = kill_process(pid, Signal::USR1);
        }
    }

    /// Waits for a worker that is about to end, and kills it if it does not.
    pub(super) async fn wait(&mut self, patience: Duration) -> Ending {
        match tokio::time::timeout(patience, self.ended()).await {
            Ok(status) => self.see_off(status).await,
            Err(_) => self.kill().await,
        }
    }

    /// Waits a moment for a worker that closed the socket.
    pub(super) async fn wait_for_end(&mut self) -> Ending {
        self.wait(LAST_BREATH).await
    }

    /// Kills the worker and what it started.
    pub(super) async fn kill(&mut self) -> Ending {
        self.send_kill();
        let status = tokio::time::timeout(KILLED, self.ended()).await;
        self.see_off(status.ok().flatten()).await
    }

    /// Returns when the process has ended; `None` if nobody will ever know how.
    pub(super) async fn ended(&mut self) -> Option<String> {
        let news = self.news.as_mut()?;
        let news = news.wait_for(|news| news.exited.is_some()).await.ok()?;
        news.exited.clone()
    }

    /// Waits until the launcher has forked it.
    async fn is_there(&mut self) -> Result<(), StartError> {
        let Some(news) = &mut self.news else {
            return Ok(());
        };
        let known = news.wait_for(|news| news.pid.is_some() || news.failed.is_some());
        let known = tokio::time::timeout(FORK, known).await;
        let failed = match known.map(|news| news.map(|news| news.clone())) {
            Ok(Ok(news)) => {
                self.pid = news.pid.and_then(Pid::from_raw);
                self.pid = self.pid.filter(|pid| pid.as_raw_nonzero().get() > 1);
                match news.failed {
                    Some(why) => why,
                    None => return Ok(()),
                }
            }
            Ok(Err(_)) => self.launcher.lost().await.to_string(),
            Err(_) => {
                self.launcher.condemn().await;
                "the launcher did not answer".to_owned()
            }
        };
        Err(StartError::NotForked(failed))
    }

    /// Has it reaped, after everything that it left behind in its group was killed: as long as nobody
    /// has waited for it, the group's number cannot be another's.
    async fn see_off(&mut self, status: Option<String>) -> Ending {
        self.send_kill();
        self.pid = None;
        self.is_reaped = true;
        self.launcher.reap(self.number);
        Ending {
            status,
            stderr: self.pipes.last_words().await,
        }
    }

    fn send_kill(&self) {
        if let Some(pid) = self.pid {
            // They fail only where there is nothing left to kill.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
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
                let ending = self.wait_for_end().await;
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
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.send_kill();
            // One that is not there yet will be hung up on, and ends by itself.
            self.launcher.reap(self.number);
        }
    }
}
