//! Payload of the frames of an HTTP/2 connection, by their heads (RFC 9113 §4.1). The library answers
//! SETTINGS and PING by itself, and drops frames of unknown streams, without a bound of its own.

use crate::limits::idle::Activity;
use mcp_service::Allowance;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Length of the preface of an HTTP/2 connection (RFC 9113 §3.4).
const PREFACE: u64 = 24;

/// The length of a head.
const HEAD: usize = 9;

const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const PADDED: u8 = 8;

/// A piece of a body that carries less than this costs as much as one that carries nothing.
const LITTLE: u64 = 32;

/// Bytes written to a client that allow it one more frame: clients answer data with WINDOW_UPDATE as
/// often as they like.
const BYTES_PER_FRAME: usize = 32;

/// A connection that ends when its client sends too many frames that carry nothing.
#[derive(Debug)]
pub(crate) struct Frames<T> {
    connection: T,
    reading: Reading,
    allowance: Allowance,
    activity: Arc<Activity>,
    /// Value of the counter of requests when the allowance was last restored.
    steps: u32,
    /// Bytes written that have not restored any allowance yet.
    written: usize,
}

/// Position in the current frame.
#[derive(Debug)]
struct Reading {
    /// A head, and the length of the padding if there is any.
    head: [u8; HEAD + 1],
    filled: usize,
    /// Bytes of payload to skip.
    skip: u64,
}

impl<T> Frames<T> {
    /// Reads `connection` from its beginning on.
    pub(crate) fn new(connection: T, per_second: u32, activity: Arc<Activity>) -> Self {
        Self {
            connection,
            reading: Reading {
                head: [0; HEAD + 1],
                filled: 0,
                skip: PREFACE,
            },
            allowance: Allowance::new(per_second),
            steps: activity.steps(),
            activity,
            written: 0,
        }
    }

    /// Goes through what has come; whether it was not too much.
    fn pass(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let Some(cost) = self.reading.next_cost(&mut rest) {
            if 0 < cost && !self.allowance.spend(cost) {
                // The beginning and the end of a request earn one each.
                let steps = self.activity.steps();
                let passed = steps.wrapping_sub(std::mem::replace(&mut self.steps, steps));
                self.allowance.earn(passed);
                if !self.allowance.spend(cost) {
                    return false;
                }
            }
        }
        true
    }

    fn wrote(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = written {
            self.written += count;
            let frames = self.written / BYTES_PER_FRAME;
            self.written %= BYTES_PER_FRAME;
            self.allowance
                .earn(u32::try_from(frames).unwrap_or(u32::MAX));
        }
    }
}

impl Reading {
    /// The cost of the next frame with a complete head; `None` at the end of `bytes`.
    fn next_cost(&mut self, bytes: &mut &[u8]) -> Option<u32> {
        loop {
            if 0 < self.skip {
                let length =
                    usize::try_from(self.skip).map_or(bytes.len(), |it| it.min(bytes.len()));
                self.skip -= length as u64;
                *bytes = &bytes[length..];
            }
            let (first, rest) = bytes.split_first()?;
            self.head[self.filled] = *first;
            self.filled += 1;
            *bytes = rest;
            if self.filled < HEAD {
                continue;
            }
            let [a, b, c, kind, flags, ..] = self.head;
            let length = u64::from(u32::from_be_bytes([0, a, b, c]));
            let is_padded = kind == DATA && flags & PADDED != 0 && 0 < length;
            if is_padded && self.filled == HEAD {
                continue;
            }
            let padding = if is_padded { 1 } else { 0 };
            self.filled = 0;
            self.skip = length - padding;
            let carried = match is_padded {
                true => self.skip.saturating_sub(self.head[HEAD].into()),
                false => length,
            };
            return Some(match kind {
                DATA if LITTLE <= carried => 0,
                // Taken back at once, a request earns nothing.
                RST_STREAM => 2,
                _ => 1,
            });
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Frames<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.connection).poll_read(cx, buffer))?;
        if self.pass(&buffer.filled()[before..]) {
            return Poll::Ready(Ok(()));
        }
        self.activity.flooded();
        Poll::Ready(Err(io::Error::other("too many frames without payload")))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Frames<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write(cx, bytes);
        self.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write_vectored(cx, pieces);
        self.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: u8 = 1;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn frames_with_little_payload_use_the_allowance_up() {
        let padded = |padding: u8, data: usize| {
            let mut payload = vec![padding];
            payload.resize(1 + data + usize::from(padding), 7);
            frame(DATA, PADDED, &payload)
        };
        let rows = [
            (frame(4, 0, &[]), 1),
            (frame(DATA, 0, &[]), 1),
            (frame(DATA, PADDED, &[]), 1),
            (frame(DATA, 0, &[6; 31]), 1),
            (frame(DATA, 0, &[6; 32]), 0),
            (frame(DATA, 0, &[6; 70_000]), 0),
            (padded(255, 31), 1),
            (padded(255, 32), 0),
            (frame(HEADERS, 4, &[6; 300]), 1),
            (frame(RST_STREAM, 0, &[0; 4]), 2),
            (frame(6, 0, &[0; 8]), 1),
        ];
        let expected: Vec<_> = rows.iter().map(|row| row.1).collect();
        let mut all = vec![b'x'; usize::try_from(PREFACE).unwrap()];
        all.extend(rows.iter().flat_map(|row| row.0.iter().copied()));
        for at_once in [1, 3, 10, 1 << 20] {
            let mut reading = Reading {
                head: [0; HEAD + 1],
                filled: 0,
                skip: PREFACE,
            };
            let mut costs = Vec::new();
            for mut piece in all.chunks(at_once) {
                while let Some(cost) = reading.next_cost(&mut piece) {
                    costs.push(cost);
                }
            }
            assert_eq!(costs, expected, "{at_once}");
        }
    }

    #[test]
    fn requests_and_written_bytes_restore_the_allowance() {
        let activity = Arc::new(Activity::default());
        let mut frames = Frames::new((), 1, Arc::clone(&activity));
        frames.reading.skip = 0;
        let ping = frame(6, 0, &[0; 8]);
        let request = [frame(HEADERS, 4, &[6; 40]), frame(DATA, 1, &[])].concat();
        for _ in 0..1000 {
            assert!(frames.pass(&request));
            drop(activity.begin());
        }
        for _ in 0..1000 {
            frames.wrote(&Poll::Ready(Ok(BYTES_PER_FRAME)));
            assert!(frames.pass(&frame(8, 0, &[0; 4])));
        }
        let pings = (0..1000).take_while(|_| frames.pass(&ping)).count();
        assert!((10..100).contains(&pings), "{pings}");
        let reset = [frame(HEADERS, 5, &[6; 40]), frame(RST_STREAM, 0, &[0; 4])].concat();
        let mut frames = Frames::new((), 1, Arc::clone(&activity));
        frames.reading.skip = 0;
        let resets = (0..1000).take_while(|_| {
            drop(activity.begin());
            frames.pass(&reset)
        });
        let resets = resets.count();
        assert!((10..100).contains(&resets), "{resets}");
    }
}
