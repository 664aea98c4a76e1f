//! Lines over pipes.

use std::{
    collections::VecDeque,
    fmt,
    ops::{Deref, DerefMut},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    process::Command,
    sync::mpsc,
    time::timeout,
};

use crate::{
    child::{ChildProcess, Stderr},
    conversation::{Conversation, Reply, Voice},
    dialogue::Dialogue,
    wait::GENEROUS,
};

/// Lines that may lie between the server and a test that does not look yet; beyond, the server
/// meets a full pipe, as it would with a slow client.
const MAX_UNREAD_LINES: usize = 1024;

/// A client that speaks in lines, over any pair of byte streams.
///
/// Its own part of the traffic may be as broken as a test likes; the server's may not.
pub struct LinePeer {
    input: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    lines: mpsc::Receiver<Vec<u8>>,
    /// Messages that came while another was waited for.
    parked: VecDeque<Value>,
    dialogue: Dialogue,
    /// Parts that this client puts into its messages.
    pub voice: Voice,
    stderr: Stderr,
}

impl fmt::Debug for LinePeer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LinePeer")
            .field("dialogue", &self.dialogue)
            .field("parked", &self.parked)
            .finish_non_exhaustive()
    }
}

impl LinePeer {
    /// A client that reads what the server writes to `output`, and writes what it reads as
    /// `input`.
    pub fn over(
        output: impl AsyncRead + Send + Unpin + 'static,
        input: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let (sender, lines) = mpsc::channel(MAX_UNREAD_LINES);
        tokio::spawn(async move {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while matches!(output.read_until(b'\n', &mut line).await, Ok(1..)) {
                if sender.send(std::mem::take(&mut line)).await.is_err() {
                    return;
                }
            }
        });
        Self {
            input: Some(Box::new(input)),
            lines,
            parked: VecDeque::new(),
            dialogue: Dialogue::default(),
            voice: Voice::default(),
            stderr: Stderr::default(),
        }
    }

    /// From now on judges every message by this revision, and speaks it.
    pub fn speak(&mut self, version: &str) {
        self.dialogue.speak(version);
        self.voice.speak(version);
    }

    /// Number of requests that wait for an answer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.dialogue.waiting()
    }

    /// Sends one message.
    ///
    /// # Panics
    ///
    /// If the server takes no more input.
    pub async fn send(&mut self, message: &Value) {
        self.send_line(message.to_string().as_bytes()).await;
    }

    /// Sends bytes and a newline.
    ///
    /// # Panics
    ///
    /// As [`LinePeer::send`].
    pub async fn send_line(&mut self, line: &[u8]) {
        self.dialogue.sent(line);
        self.send_bytes(&[line, b"\n"].concat()).await;
    }

    /// Sends bytes as they are. A request among them is not known to be waited for; say so with
    /// [`LinePeer::expect_answer_to`].
    ///
    /// # Panics
    ///
    /// As [`LinePeer::send`].
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("the input is still open");
        let writing = async {
            input.write_all(bytes).await?;
            input.flush().await
        };
        match timeout(GENEROUS, writing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("the server reads no more: {error}{}", self.aside()),
            Err(_) => panic!("the server does not read{}", self.aside()),
        }
    }

    /// Notes that `frame` was sent by way of [`LinePeer::send_bytes`].
    pub fn expect_answer_to(&mut self, frame: &[u8]) {
        self.dialogue.sent(frame);
    }

    /// The next message, of those that came.
    ///
    /// # Panics
    ///
    /// If none comes within [`GENEROUS`], the output ends, or it is not a valid message.
    pub async fn receive(&mut self) -> Value {
        self.receive_within(GENEROUS)
            .await
            .unwrap_or_else(|| panic!("no message within {GENEROUS:?}{}", self.aside()))
    }

    /// The next message, or `None` if none comes in time.
    ///
    /// # Panics
    ///
    /// If the output ends, or it is not a valid message.
    pub async fn receive_within(&mut self, limit: Duration) -> Option<Value> {
        if let Some(message) = self.parked.pop_front() {
            return Some(message);
        }
        let line = timeout(limit, self.lines.recv()).await.ok()?;
        let Some(line) = line else {
            panic!("the output has ended{}", self.aside());
        };
        Some(self.read(&line))
    }

    /// The text of the next message, as it was written and without its newline: for what a parser
    /// would lose, such as the digits of a long number. It is judged all the same.
    ///
    /// # Panics
    ///
    /// As [`LinePeer::receive`], and if messages were left unread before.
    pub async fn receive_text(&mut self) -> String {
        assert!(self.parked.is_empty(), "there are others before it");
        let Ok(Some(line)) = timeout(GENEROUS, self.lines.recv()).await else {
            panic!("no message within {GENEROUS:?}{}", self.aside());
        };
        self.read(&line);
        let text = String::from_utf8(line).expect("what was parsed is UTF-8");
        text.trim_end_matches('\n').to_owned()
    }

    /// The next `count` messages, in the order they came.
    ///
    /// # Panics
    ///
    /// As [`LinePeer::receive`].
    pub async fn receive_many(&mut self, count: usize) -> Vec<Value> {
        let mut messages = Vec::with_capacity(count);
        while messages.len() < count {
            messages.push(self.receive().await);
        }
        messages
    }

    /// Waits for the answer to `id`; other messages stay to be received.
    ///
    /// # Panics
    ///
    /// As [`LinePeer::receive`].
    pub async fn receive_answer(&mut self, id: &Value) -> Value {
        let Reply { earlier, response } = self.reply_to(id).await;
        for message in earlier.into_iter().rev() {
            self.parked.push_front(message);
        }
        response
    }

    /// Waits, and nothing may come. To prove an absence without waiting, send a `ping` after it
    /// and look at [`Reply::earlier`].
    ///
    /// # Panics
    ///
    /// If anything comes; the end of the output is silence too.
    pub async fn expect_silence(&mut self, duration: Duration) {
        if let Some(message) = self.parked.front() {
            panic!("expected silence, had {message}");
        }
        if let Ok(Some(line)) = timeout(duration, self.lines.recv()).await {
            panic!("expected silence, got {}", String::from_utf8_lossy(&line));
        }
    }

    /// Receives all further messages until the output ends.
    ///
    /// # Panics
    ///
    /// If it does not end within [`GENEROUS`] of the last message, or a message is not valid.
    pub async fn receive_rest(&mut self) -> Vec<Value> {
        let mut messages: Vec<_> = self.parked.drain(..).collect();
        loop {
            match timeout(GENEROUS, self.lines.recv()).await {
                Ok(Some(line)) => messages.push(self.read(&line)),
                Ok(None) => return messages,
                Err(_) => panic!("the output does not end{}", self.aside()),
            }
        }
    }

    /// Closes the server's input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    fn read(&mut self, line: &[u8]) -> Value {
        let shown = String::from_utf8_lossy(line);
        assert!(
            line.ends_with(b"\n"),
            "the output ends within a line: {shown}"
        );
        let message: Value = match serde_json::from_slice(line) {
            Ok(message) => message,
            Err(error) => panic!("not a message ({error}): {shown}{}", self.aside()),
        };
        if let Err(wrong) = self.dialogue.received(&message) {
            panic!("invalid message: {wrong}\n{shown}{}", self.aside());
        }
        message
    }

    async fn reply_to(&mut self, id: &Value) -> Reply {
        let mut earlier = Vec::new();
        loop {
            let message = self.receive().await;
            if message.get("method").is_none() && message.get("id") == Some(id) {
                return Reply {
                    earlier,
                    response: message,
                };
            }
            earlier.push(message);
        }
    }

    fn aside(&self) -> String {
        let stderr = self.stderr.text();
        if stderr.is_empty() {
            stderr
        } else {
            format!("; stderr:\n{stderr}")
        }
    }
}

impl Conversation for LinePeer {
    async fn open(&mut self, version: &str) -> Value {
        self.speak(version);
        if self.voice.is_modern() {
            return self
                .request("server/discover", Value::Null)
                .await
                .result()
                .clone();
        }
        let request = self.voice.initialize(version);
        self.send(&request).await;
        let reply = self.reply_to(&request["id"]).await;
        self.notify("notifications/initialized", serde_json::json!({}))
            .await;
        reply.result().clone()
    }

    async fn request(&mut self, method: &str, params: Value) -> Reply {
        let request = self.voice.request(method, params);
        self.send(&request).await;
        self.reply_to(&request["id"]).await
    }

    async fn notify(&mut self, method: &str, params: Value) {
        let notification = self.voice.notification(method, params);
        self.send(&notification).await;
    }

    async fn ask_raw(&mut self, frame: &[u8]) -> Value {
        self.send_line(frame).await;
        self.receive().await
    }
}

/// A server as a child process, spoken to over its stdin and stdout. Everything a [`LinePeer`]
/// can do, it can.
#[derive(Debug)]
pub struct StdioServer {
    process: ChildProcess,
    peer: LinePeer,
}

impl StdioServer {
    /// Starts the server.
    ///
    /// # Panics
    ///
    /// If the command cannot be started.
    #[must_use]
    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = ChildProcess::spawn(command);
        let child = process.child_mut();
        let input = child.stdin.take().expect("stdin is a pipe");
        let output = child.stdout.take().expect("stdout is a pipe");
        let mut peer = LinePeer::over(output, input);
        peer.stderr = process.stderr_handle();
        Self { process, peer }
    }

    /// The process behind the pipes.
    #[must_use]
    pub fn process(&self) -> &ChildProcess {
        &self.process
    }

    /// Text that the server has written to its stderr until now.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// As [`ChildProcess::wait_exit`]. Does not close the input.
    ///
    /// # Panics
    ///
    /// If the server still runs after `limit`.
    pub async fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        self.process.wait_exit(limit).await
    }
}

// A peer with a process behind it: the one place where inheritance says what is meant.
impl Deref for StdioServer {
    type Target = LinePeer;

    fn deref(&self) -> &LinePeer {
        &self.peer
    }
}

impl DerefMut for StdioServer {
    fn deref_mut(&mut self) -> &mut LinePeer {
        &mut self.peer
    }
}

impl Conversation for StdioServer {
    async fn open(&mut self, version: &str) -> Value {
        self.peer.open(version).await
    }

    async fn request(&mut self, method: &str, params: Value) -> Reply {
        self.peer.request(method, params).await
    }

    async fn notify(&mut self, method: &str, params: Value) {
        self.peer.notify(method, params).await;
    }

    async fn ask_raw(&mut self, frame: &[u8]) -> Value {
        self.peer.ask_raw(frame).await
    }
}
