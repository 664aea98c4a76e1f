use std::{collections::VecDeque, sync::Arc};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest line that becomes one entry of the log, in bytes; a longer one becomes several.
const MAX_LINE: usize = 4096;
/// Most bytes of one call that become log entries.
const MAX_LOGGED: usize = 64 * 1024;
/// Number of last lines that are kept for the message about a failure.
const MAX_LAST_LINES: usize = 20;

/// Standard error of one call, on its way into the log.
#[derive(Debug)]
pub(super) struct StderrLog {
    tool: Arc<str>,
    request_id: Arc<str>,
    open: Vec<u8>,
    logged: usize,
    last_lines: VecDeque<String>,
}

impl StderrLog {
    pub(super) fn new(tool: Arc<str>, request_id: Arc<str>) -> Self {
        Self {
            tool,
            request_id,
            open: Vec::new(),
            logged: 0,
            last_lines: VecDeque::new(),
        }
    }

    /// Reads to the end. What is more than the log takes is read as well, since the program would
    /// wait otherwise.
    pub(super) async fn drain(&mut self, mut stream: impl AsyncRead + Unpin) {
        let mut chunk = [0; MAX_LINE];
        while let Ok(read @ 1..) = stream.read(&mut chunk).await {
            self.feed(&chunk[..read]);
        }
    }

    /// The last lines, once nothing comes any more.
    pub(super) fn last_words(&mut self) -> String {
        self.end_line();
        let lines: Vec<_> = self.last_lines.drain(..).collect();
        lines.join("\n")
    }

    fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            if MAX_LINE < self.open.len() + piece.len() {
                self.end_line();
            }
            self.open.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let text = String::from_utf8_lossy(self.open.trim_ascii_end());
        // Escape sequences are for terminals; what reads the log may be one.
        let printable = |c: char| {
            if c.is_control() && c != '\t' {
                '\u{fffd}'
            } else {
                c
            }
        };
        let line: String = text.chars().map(printable).collect();
        self.open.clear();
        if line.is_empty() {
            return;
        }
        let (tool, request_id) = (&*self.tool, &*self.request_id);
        if self.logged < MAX_LOGGED {
            tracing::info!(target: "command", tool, request_id, stream = "stderr", "{line}");
            self.logged += line.len();
            if MAX_LOGGED <= self.logged {
                tracing::warn!(
                    target: "command", tool, request_id,
                    "what the call writes from here on is not logged"
                );
            }
        }
        if self.last_lines.len() == MAX_LAST_LINES {
            self.last_lines.pop_front();
        }
        self.last_lines.push_back(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn last_words(bytes: &[u8]) -> (String, usize) {
        let mut log = StderrLog::new("t".into(), "1".into());
        log.drain(bytes).await;
        (log.last_words(), log.logged)
    }

    #[tokio::test]
    async fn lines_are_whole_printable_and_bounded() {
        assert_eq!(last_words(b"a\nb\r\n\n  d").await.0, "a\nb\n  d");
        assert_eq!(
            last_words(b"\x1b[31mred\xff").await.0,
            "\u{fffd}[31mred\u{fffd}"
        );
        let long = vec![b'x'; 3 * MAX_LINE + 1];
        let (words, logged) = last_words(&long).await;
        assert_eq!(logged, long.len());
        assert!(words.lines().all(|line| line.len() <= MAX_LINE));
    }

    #[tokio::test]
    async fn a_flood_is_read_and_neither_logged_nor_kept() {
        let flood = "some words that come again and again\n".repeat(100_000);
        let (words, logged) = last_words(flood.as_bytes()).await;
        assert!(
            (MAX_LOGGED..MAX_LOGGED + MAX_LINE).contains(&logged),
            "{logged}"
        );
        assert_eq!(words.lines().count(), MAX_LAST_LINES);
    }
}
