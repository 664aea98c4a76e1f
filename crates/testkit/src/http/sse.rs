//! Server-sent events.

use serde_json::Value;
use tokio::time::{Duration, timeout};

use super::{Body, HttpConnection, HttpResponse};
use crate::{dialogue::Dialogue, wait::GENEROUS};

/// One event, as the fields say; an event that has only an id is one too, for MCP uses such.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field; absent means `message`.
    pub event: Option<String>,
    /// The `id` field.
    pub id: Option<String>,
    /// The `retry` field, in milliseconds.
    pub retry: Option<u64>,
    /// The lines of the `data` fields.
    pub data: String,
}

/// Bytes to events, in whatever pieces they come.
#[derive(Debug, Default)]
pub struct SseParser {
    /// The line that is not yet complete.
    line: Vec<u8>,
    /// The last byte was a carriage return, so a line feed now belongs to it.
    after_return: bool,
    event: SseEvent,
    any_field: bool,
    data_lines: usize,
    comments: usize,
}

impl SseParser {
    /// Takes bytes, and gives the events that they complete.
    ///
    /// # Errors
    ///
    /// The line that a server of ours never writes: one that is not UTF-8, or has an unknown
    /// field.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, String> {
        let mut events = Vec::new();
        for &byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\r' | b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    let line = String::from_utf8(line).map_err(|error| error.to_string())?;
                    events.extend(self.take_line(&line)?);
                }
                _ => self.line.push(byte),
            }
        }
        Ok(events)
    }

    /// Number of comments received until now; servers send them to keep a connection alive.
    #[must_use]
    pub fn comments(&self) -> usize {
        self.comments
    }

    fn take_line(&mut self, line: &str) -> Result<Option<SseEvent>, String> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            self.data_lines = 0;
            return Ok(std::mem::take(&mut self.any_field).then_some(event));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        if field.is_empty() {
            self.comments += 1;
            return Ok(None);
        }
        self.any_field = true;
        match field {
            "event" => self.event.event = Some(value.to_owned()),
            "id" => self.event.id = Some(value.to_owned()),
            "retry" => {
                let retry = value.parse().map_err(|_| format!("no number: {line:?}"))?;
                self.event.retry = Some(retry);
            }
            "data" => {
                if self.data_lines > 0 {
                    self.event.data.push('\n');
                }
                self.data_lines += 1;
                self.event.data.push_str(value);
            }
            _ => return Err(format!("an unknown field: {line:?}")),
        }
        Ok(None)
    }
}

/// A stream of events, read one by one. Dropping it hangs up.
#[derive(Debug)]
pub struct SseStream {
    body: Body,
    parser: SseParser,
    ready: std::collections::VecDeque<SseEvent>,
    /// Judges the messages that come; what was asked is noted here.
    pub dialogue: Dialogue,
}

impl SseStream {
    /// The events of a response whose head was read.
    ///
    /// # Panics
    ///
    /// If it is no stream of events.
    #[must_use]
    pub fn new(head: &HttpResponse, body: Body, dialogue: Dialogue) -> Self {
        assert_eq!(head.media_type(), Some("text/event-stream"), "{head:?}");
        Self {
            body,
            parser: SseParser::default(),
            ready: Default::default(),
            dialogue,
        }
    }

    /// The next event, or `None` at the end of the stream.
    ///
    /// # Panics
    ///
    /// If the stream breaks off or is no stream of events, or nothing comes within [`GENEROUS`].
    pub async fn next_event(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let bytes = self.body.next().await?;
            match self.parser.push(&bytes) {
                Ok(events) => self.ready.extend(events),
                Err(wrong) => panic!("no stream of events: {wrong}"),
            }
        }
    }

    /// The next message; events without data are passed over. `None` at the end of the stream.
    ///
    /// # Panics
    ///
    /// As [`SseStream::next_event`], and if it is no valid message.
    pub async fn next_message(&mut self) -> Option<Value> {
        loop {
            let event = self.next_event().await?;
            if event.data.is_empty() {
                continue;
            }
            return Some(self.read(&event));
        }
    }

    /// The next message, which must come.
    ///
    /// # Panics
    ///
    /// As [`SseStream::next_message`], and at the end of the stream.
    pub async fn message(&mut self) -> Value {
        self.next_message().await.expect("the stream goes on")
    }

    /// Waits, and no event may come; comments may.
    ///
    /// # Panics
    ///
    /// If one comes, or the stream ends.
    pub async fn expect_silence(&mut self, duration: Duration) {
        if let Ok(event) = timeout(duration, self.next_event()).await {
            panic!("expected silence, got {event:?}");
        }
    }

    /// Waits for the end of the stream, and gives the messages before it.
    ///
    /// # Panics
    ///
    /// As [`SseStream::next_message`].
    pub async fn rest(&mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Some(message) = self.next_message().await {
            messages.push(message);
        }
        messages
    }

    /// Waits until the server has sent a comment more than `seen`.
    ///
    /// # Panics
    ///
    /// If an event or the end comes first, or nothing within [`GENEROUS`].
    pub async fn wait_comment(&mut self, seen: usize) {
        while self.parser.comments() <= seen {
            let bytes = self.body.next().await.expect("the stream goes on");
            let events = self.parser.push(&bytes).expect("a stream of events");
            assert!(
                events.is_empty(),
                "a comment was expected within {GENEROUS:?}: {events:?}"
            );
        }
    }

    /// Number of comments received until now.
    #[must_use]
    pub fn comments(&self) -> usize {
        self.parser.comments()
    }

    /// Hands the connection back, once the stream has ended.
    #[must_use]
    pub fn into_connection(self) -> HttpConnection {
        self.body.into_connection()
    }

    pub(super) fn read(&mut self, event: &SseEvent) -> Value {
        let named = event.event.as_deref().unwrap_or("message");
        assert_eq!(named, "message", "{event:?}");
        let message = serde_json::from_str(&event.data)
            .unwrap_or_else(|error| panic!("not a message ({error}): {event:?}"));
        if let Err(wrong) = self.dialogue.received(&message) {
            panic!("invalid message: {wrong}\n{message}");
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": hello\r\n\r\nid: 1\ndata:\n\nevent: message\rdata: {\"a\":\rdata:1}\r\
                          retry: 500\r\rdata: last\n\ndata: cut off";

    #[test]
    fn events_are_the_same_however_they_are_cut() {
        let expected = [
            SseEvent {
                id: Some("1".to_owned()),
                ..SseEvent::default()
            },
            SseEvent {
                event: Some("message".to_owned()),
                retry: Some(500),
                data: "{\"a\":\n1}".to_owned(),
                ..SseEvent::default()
            },
            SseEvent {
                data: "last".to_owned(),
                ..SseEvent::default()
            },
        ];
        for size in 1..STREAM.len() {
            let mut parser = SseParser::default();
            let pieces = STREAM.as_bytes().chunks(size);
            let events: Vec<_> = pieces
                .flat_map(|piece| parser.push(piece).unwrap())
                .collect();
            assert_eq!(events, expected, "in pieces of {size}");
            assert_eq!(parser.comments(), 1);
        }
    }

    #[test]
    fn what_is_no_event_is_refused() {
        for broken in ["dataa: x\n", "retry: soon\n", "{\"jsonrpc\":1}\n"] {
            SseParser::default().push(broken.as_bytes()).unwrap_err();
        }
        SseParser::default().push(b"data: \xff\n").unwrap_err();
    }
}
