use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{ChildStderr, ChildStdout},
    task::JoinHandle,
};

/// The longest line that becomes one entry of the log, in bytes; a longer one becomes several.
const MAX_LINE: usize = 4096;
/// How many of a worker's last lines are kept for the message about its end.
const MAX_LAST_LINES: usize = 20;
/// How long the end of a dead worker's output is waited for: its children may hold the pipes open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The standard output and error of one worker, on their way into the log.
#[derive(Debug)]
pub(super) struct LogPipes {
    last_lines: Arc<LastLines>,
    stdout: JoinHandle<()>,
    stderr: JoinHandle<()>,
}

/// What a worker wrote to its standard error last.
#[derive(Debug, Default)]
struct LastLines(Mutex<VecDeque<String>>);

impl LogPipes {
    /// Begins to drain both pipes. The worker waits when the log is slower than it writes.
    pub(super) fn drain(stdout: ChildStdout, stderr: ChildStderr) -> Self {
        let last_lines = Arc::<LastLines>::default();
        let keep = Arc::clone(&last_lines);
        Self {
            last_lines,
            stdout: tokio::spawn(drain(stdout, |line| {
                tracing::info!(target: "python", stream = "stdout", "{line}");
            })),
            stderr: tokio::spawn(drain(stderr, move |line| {
                tracing::info!(target: "python", stream = "stderr", "{line}");
                keep.push(line);
            })),
        }
    }

    /// What the worker wrote to its standard error last, once it has ended.
    pub(super) async fn last_words(&mut self) -> String {
        let end = async {
            // A task that was aborted or panicked has nothing more to say either.
            let _ = (&mut self.stdout).await;
            let _ = (&mut self.stderr).await;
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

async fn drain(mut stream: impl AsyncRead + Unpin, mut entry: impl FnMut(String)) {
    let mut chunk = [0; MAX_LINE];
    let mut lines = Lines::default();
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        lines.feed(&chunk[..read], &mut entry);
    }
    lines.end(&mut entry);
}

/// Cuts bytes into printable lines of bounded length.
#[derive(Default)]
struct Lines {
    open: Vec<u8>,
}

impl Lines {
    fn feed(&mut self, bytes: &[u8], entry: &mut impl FnMut(String)) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            for part in piece.chunks(MAX_LINE) {
                if MAX_LINE < self.open.len() + part.len() {
                    self.end(entry);
                }
                self.open.extend_from_slice(part);
            }
            if self.open.last() == Some(&b'\n') {
                self.end(entry);
            }
        }
    }

    fn end(&mut self, entry: &mut impl FnMut(String)) {
        let text = String::from_utf8_lossy(self.open.trim_ascii_end());
        if !text.is_empty() {
            // Escape sequences are for terminals; what reads the log may be one.
            let printable = |c: char| {
                if c.is_control() && c != '\t' {
                    '\u{fffd}'
                } else {
                    c
                }
            };
            entry(text.chars().map(printable).collect());
        }
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(chunks: &[&[u8]]) -> Vec<String> {
        let mut seen = Vec::new();
        let mut lines = Lines::default();
        let mut entry = |line| seen.push(line);
        for chunk in chunks {
            lines.feed(chunk, &mut entry);
        }
        lines.end(&mut entry);
        seen
    }

    #[test]
    fn lines_are_whole_printable_and_bounded() {
        assert_eq!(entries(&[b"a\nb", b"c\r\n\n  d"]), ["a", "bc", "  d"]);
        assert_eq!(entries(&[b"\x1b[31mred\xff"]), ["\u{fffd}[31mred\u{fffd}"]);
        let long = vec![b'x'; 3 * MAX_LINE + 1];
        let pieces = entries(&[&long]);
        assert_eq!(pieces.iter().map(String::len).sum::<usize>(), long.len());
        assert!(pieces.iter().all(|piece| piece.len() <= MAX_LINE));
    }

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
