//! Output of Python processes, on its way into the log.

mod fifo;
mod lines;

pub(super) use self::fifo::Fifo;

use self::lines::Lines;
use super::scheduler::Requests;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    task::JoinHandle,
};

/// Bytes that are read at once.
const READ: usize = 4096;
/// Number of a process's last lines that are kept for the message about its end.
const MAX_LAST_LINES: usize = 20;
/// Time to wait for the end of a dead process's output: its children may hold the pipes open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The standard output and error of one process, on their way into the log.
#[derive(Debug)]
pub(super) struct LogPipes {
    last_lines: Arc<LastLines>,
    requests: Arc<OnceLock<Requests>>,
    stdout: JoinHandle<()>,
    stderr: JoinHandle<()>,
}

/// Last lines of a process's standard error.
#[derive(Debug, Default)]
struct LastLines(Mutex<VecDeque<String>>);

impl LogPipes {
    /// Begins to drain both pipes, of the worker of this number or of a launcher. The process waits
    /// when the log is slower than it writes.
    pub(super) fn drain(
        stdout: impl AsyncRead + Send + Unpin + 'static,
        stderr: impl AsyncRead + Send + Unpin + 'static,
        worker: Option<u64>,
    ) -> Self {
        let last_lines = Arc::<LastLines>::default();
        let requests = Arc::<OnceLock<Requests>>::default();
        let entry = |stream: &'static str| {
            let requests = Arc::clone(&requests);
            move |call: Option<u64>, line: &str| {
                let request_id = requests.get().and_then(|requests| requests.of(call));
                let request_id = request_id.as_deref();
                tracing::info!(target: "python", stream, worker, request_id, "{line}");
            }
        };
        let (to_stdout, to_stderr) = (entry("stdout"), entry("stderr"));
        let keep = Arc::clone(&last_lines);
        Self {
            stdout: tokio::spawn(drain(stdout, move |call, line| to_stdout(call, &line))),
            stderr: tokio::spawn(drain(stderr, move |call, line| {
                to_stderr(call, &line);
                keep.push(line);
            })),
            last_lines,
            requests,
        }
    }

    /// From now on, lines are attributed to calls.
    pub(super) fn attribute(&self, requests: Requests) {
        // It is done once for each worker.
        let _ = self.requests.set(requests);
    }

    /// Last lines of the process's standard error, once it has ended.
    pub(super) async fn last_words(&mut self) -> String {
        let end = async {
            for pipe in [&mut self.stdout, &mut self.stderr] {
                // A task that was aborted or panicked has nothing more to say either.
                if !pipe.is_finished() {
                    let _ = pipe.await;
                }
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS, end).await;
        let lines = self
            .last_lines
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        lines.join("\n")
    }
}

impl Drop for LogPipes {
    fn drop(&mut self) {
        self.stdout.abort();
        self.stderr.abort();
    }
}

impl LastLines {
    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MAX_LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Cuts a text of the application's own into entries as what it prints: printable lines of bounded
/// length, none of which looks like an entry of somebody else's.
pub(super) fn cut(text: &str, mut entry: impl FnMut(&str)) {
    let mut entry = |_: Option<u64>, line: String| entry(&line);
    let mut lines = Lines::default();
    lines.feed(text.as_bytes(), &mut entry);
    lines.end(&mut entry);
}

async fn drain(mut stream: impl AsyncRead + Unpin, mut entry: impl FnMut(Option<u64>, String)) {
    let mut chunk = [0; READ];
    let mut lines = Lines::default();
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        lines.feed(&chunk[..read], &mut entry);
    }
    lines.end(&mut entry);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept() {
        let lines = LastLines::default();
        for line in 0..100 {
            lines.push(line.to_string());
        }
        let kept = lines.0.lock().unwrap();
        assert_eq!((kept.len(), kept[0].as_str()), (MAX_LAST_LINES, "80"));
    }
}
