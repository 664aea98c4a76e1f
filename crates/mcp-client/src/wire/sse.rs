//! Server-sent events, read with a bound.

use bytes::{Buf, Bytes, BytesMut};
use std::time::Duration;

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Type; empty for the usual one.
    pub(crate) name: String,
    /// Data, the lines joined.
    pub(crate) data: Vec<u8>,
}

/// Reads events out of bytes as they come.
#[derive(Debug)]
pub(crate) struct Events {
    buffer: BytesMut,
    current: Event,
    has_data: bool,
    /// Bytes at the beginning of the buffer that have no end of a line.
    searched: usize,
    max: usize,
    at_start: bool,
    after_return: bool,
    /// The id that the unfinished event has named.
    id: Option<String>,
    /// The id of the last event that had one. An event that was cut off has none: it is to be sent again.
    pub(crate) last_id: Option<String>,
    /// The pause that the server has asked for.
    pub(crate) retry: Option<Duration>,
}

/// An event has more bytes than are allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

const MAX_ID: usize = 4096;

impl Events {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            current: Event::default(),
            has_data: false,
            searched: 0,
            max,
            at_start: true,
            after_return: false,
            id: None,
            last_id: None,
            retry: None,
        }
    }

    /// For the next stream of the same events.
    pub(crate) fn renewed(self) -> Self {
        Self {
            last_id: self.last_id,
            retry: self.retry,
            ..Self::new(self.max)
        }
    }

    /// Takes the bytes that have come.
    pub(crate) fn push(&mut self, bytes: &Bytes) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event; `None` if it has not come yet.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, TooLong> {
        loop {
            if self.after_return && self.buffer.first() == Some(&b'\n') {
                self.buffer.advance(1);
            }
            if !self.buffer.is_empty() {
                self.after_return = false;
            }
            let rest = &self.buffer[self.searched..];
            let Some(end) = rest.iter().position(|it| matches!(it, b'\n' | b'\r')) else {
                self.searched = self.buffer.len();
                return match self.max < self.buffer.len() {
                    true => Err(TooLong),
                    false => Ok(None),
                };
            };
            let end = std::mem::take(&mut self.searched) + end;
            let mut line = self.buffer.split_to(end + 1);
            self.after_return = line.last() == Some(&b'\r');
            line.truncate(end);
            if std::mem::take(&mut self.at_start) && line.starts_with(b"\xef\xbb\xbf") {
                line.advance(3);
            }
            if line.is_empty() {
                let event = std::mem::take(&mut self.current);
                self.last_id = self.id.take().or(self.last_id.take());
                if std::mem::take(&mut self.has_data) {
                    return Ok(Some(event));
                }
                continue;
            }
            self.line(&line)?;
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), TooLong> {
        let colon = line.iter().position(|it| *it == b':');
        let (field, value) = match colon {
            Some(0) => return Ok(()),
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.max < self.current.data.len() + value.len() + 1 {
                    return Err(TooLong);
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.current.data.push(b'\n');
                }
                self.current.data.extend_from_slice(value);
            }
            b"event" => self.current.name = String::from_utf8_lossy(value).into_owned(),
            // One that could not be sent back in a header is as good as none.
            b"id" if value.len() <= MAX_ID && !value.iter().any(u8::is_ascii_control) => {
                self.id = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"retry" => {
                let digits = std::str::from_utf8(value)
                    .ok()
                    .and_then(|it| it.parse().ok());
                self.retry = digits.map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, step: usize) -> (Vec<(String, String)>, Events) {
        let mut events = Events::new(64);
        let mut seen = Vec::new();
        for piece in text.as_bytes().chunks(step) {
            events.push(&Bytes::copy_from_slice(piece));
            while let Some(event) = events.next().unwrap() {
                let data = String::from_utf8(event.data).unwrap();
                seen.push((event.name, data));
            }
        }
        (seen, events)
    }

    #[test]
    fn events_are_the_same_however_their_bytes_arrive() {
        let text = "\u{feff}: hello\r\nid: 7\r\nretry: 500\r\nevent: message\r\ndata: {\r\ndata:}\r\n\r\n\
                    data\n\nevent: endpoint\rdata:  x\r\rid: 8\n\ndata: unfinished";
        for step in [1, 2, 3, 7, 1000] {
            let (seen, events) = all(text, step);
            let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
            let expected = [
                pair("message", "{\n}"),
                pair("", ""),
                pair("endpoint", " x"),
            ];
            assert_eq!(seen, expected, "{step}");
            assert_eq!(events.last_id.as_deref(), Some("8"));
            assert_eq!(events.retry, Some(Duration::from_millis(500)));
        }
    }

    #[test]
    fn an_event_has_a_bound_in_one_line_and_in_many() {
        let mut events = Events::new(64);
        events.push(&Bytes::from(vec![b'x'; 65]));
        assert_eq!(events.next(), Err(TooLong));
        let mut events = Events::new(64);
        events.push(&Bytes::from("data: 12345678\n".repeat(20)));
        assert_eq!(events.next(), Err(TooLong));
    }
}
