use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::{borrow::Cow, io};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The version of the protocol that both ends must speak.
pub(super) const PROTOCOL: u64 = 1;
/// The largest frame either way, its length prefix not counted.
pub(super) const MAX_FRAME: usize = 16 * 1024 * 1024;
/// How much is read at once.
const READ: usize = 64 * 1024;

/// Cuts a stream of bytes into frames.
#[derive(Debug)]
pub(super) struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(stream: R) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    /// The next frame; `None` at the end of the stream, even in the middle of a frame: a process
    /// that dies does not finish its sentence.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(frame) = cut(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            self.buffer.reserve(READ);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Takes the first frame out of `buffer`, if it is there to its end.
fn cut(buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
    let Some(prefix) = buffer.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*prefix) as usize;
    if MAX_FRAME < length {
        let message = format!("a frame of {length} bytes, and {MAX_FRAME} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    if buffer.len() - 4 < length {
        // The rest will come; make room for it once and not again and again.
        buffer.reserve(4 + length - buffer.len());
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// What every frame begins with, and a result, which is the one that matters for speed. The value of a
/// result is skipped over and kept as it is written.
#[derive(Debug, Deserialize)]
pub(super) struct Head<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(default)]
    pub(super) id: Option<u64>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) value: Option<&'a RawValue>,
}

/// serde takes `null` for an absent `Option`, but a handler may well return `None`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u64,
    pub(super) nonce: String,
    pub(super) pid: i32,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Ready {
    pub(super) app: String,
    pub(super) python: String,
    pub(super) owlclaw: String,
    #[serde(default)]
    pub(super) import_ms: f64,
    pub(super) tools: Vec<ToolFrame>,
    #[serde(default)]
    pub(super) states: Vec<String>,
    #[serde(default)]
    pub(super) warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct ToolFrame {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) input_schema: serde_json::Value,
    /// `handler` or `hints`.
    #[serde(default)]
    pub(super) schema_from: String,
    #[serde(default)]
    pub(super) output_schema: Option<serde_json::Value>,
    #[serde(rename = "async")]
    pub(super) is_async: bool,
    #[serde(default)]
    pub(super) source: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Fatal {
    pub(super) message: String,
    #[serde(default)]
    pub(super) traceback: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ErrorFrame {
    pub(super) kind: String,
    #[serde(default)]
    pub(super) exception: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) traceback: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ProgressFrame {
    pub(super) progress: f64,
    #[serde(default)]
    pub(super) total: Option<f64>,
    #[serde(default)]
    pub(super) message: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CostFrame {
    pub(super) usd: String,
    #[serde(default)]
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) tokens_in: Option<u64>,
    #[serde(default)]
    pub(super) tokens_out: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LogFrame {
    pub(super) level: String,
    pub(super) message: String,
}

/// What the worker needs in order to carry out a call.
#[derive(Debug)]
pub(super) struct CallFrame<'a> {
    pub(super) id: u64,
    pub(super) name: &'a str,
    /// The text of a JSON object.
    pub(super) arguments: &'a [u8],
    pub(super) client_id: &'a str,
    pub(super) request_id: &'a str,
    pub(super) deadline_ms: Option<u64>,
    pub(super) traceparent: Option<&'a str>,
}

/// A frame would be larger than [`MAX_FRAME`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Appends a `call`. The worker finds type and id even where it cannot read the arguments, because
/// they come first.
pub(super) fn put_call(out: &mut BytesMut, call: &CallFrame<'_>) -> Result<(), TooLarge> {
    let start = begin(out);
    out.put_slice(format!("{{\"type\":\"call\",\"id\":{},\"name\":", call.id).as_bytes());
    put_json(out, &call.name);
    out.put_slice(b",\"arguments\":");
    out.put_slice(call.arguments);
    out.put_slice(b",\"ctx\":{\"client_id\":");
    put_json(out, &call.client_id);
    out.put_slice(b",\"request_id\":");
    put_json(out, &call.request_id);
    out.put_slice(b",\"deadline_ms\":");
    put_json(out, &call.deadline_ms);
    out.put_slice(b",\"traceparent\":");
    put_json(out, &call.traceparent);
    out.put_slice(b"}}");
    end(out, start)
}

/// Appends a `cancel`.
pub(super) fn put_cancel(out: &mut BytesMut, id: u64) {
    put_small(out, &format!("{{\"type\":\"cancel\",\"id\":{id}}}"));
}

/// Appends a `shutdown`.
pub(super) fn put_shutdown(out: &mut BytesMut) {
    put_small(out, "{\"type\":\"shutdown\"}");
}

fn put_small(out: &mut BytesMut, text: &str) {
    let start = begin(out);
    out.put_slice(text.as_bytes());
    end(out, start).expect("a few dozen bytes are not too large");
}

fn put_json(out: &mut BytesMut, value: &impl serde::Serialize) {
    serde_json::to_writer(out.writer(), value).expect("strings and numbers serialise into memory");
}

/// Leaves room for the length of a frame and says where that is.
fn begin(out: &mut BytesMut) -> usize {
    let start = out.len();
    out.put_u32(0);
    start
}

/// Fills in the length of the frame that begins at `start`, or takes the frame back.
fn end(out: &mut BytesMut, start: usize) -> Result<(), TooLarge> {
    let length = out.len() - start - 4;
    match u32::try_from(length) {
        Ok(prefix) if length <= MAX_FRAME => {
            out[start..start + 4].copy_from_slice(&prefix.to_be_bytes());
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(TooLarge)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn call(arguments: &[u8]) -> CallFrame<'_> {
        CallFrame {
            id: 7,
            name: "a\"b",
            arguments,
            client_id: "anna",
            request_id: "r",
            deadline_ms: Some(1500),
            traceparent: None,
        }
    }

    #[test]
    fn a_call_is_written_as_the_worker_reads_it() {
        let mut out = BytesMut::new();
        put_call(&mut out, &call(b"{\"n\": 1.0}")).unwrap();
        put_cancel(&mut out, 7);
        let first = cut(&mut out).unwrap().unwrap();
        assert!(first.starts_with(b"{\"type\":\"call\",\"id\":7,"));
        let expected = json!({"type": "call", "id": 7, "name": "a\"b", "arguments": {"n": 1.0},
            "ctx": {"client_id": "anna", "request_id": "r", "deadline_ms": 1500, "traceparent": null}});
        assert_eq!(serde_json::from_slice::<Value>(&first).unwrap(), expected);
        let second = cut(&mut out).unwrap().unwrap();
        assert_eq!(&second[..], b"{\"type\":\"cancel\",\"id\":7}");
        assert!(out.is_empty());
    }

    #[test]
    fn a_frame_that_is_too_large_is_taken_back() {
        let mut out = BytesMut::from(&b"before"[..]);
        let arguments = vec![b' '; MAX_FRAME];
        assert_eq!(put_call(&mut out, &call(&arguments)), Err(TooLarge));
        assert_eq!(&out[..], b"before");
    }

    #[test]
    fn a_result_keeps_its_value_as_it_is_written() {
        for value in ["null", "1.0", "{\"a\": [1]}", "\"x\""] {
            let frame =
                format!("{{\"type\":\"result\",\"id\":18446744073709551615,\"value\":{value}}}");
            let head: Head<'_> = serde_json::from_str(&frame).unwrap();
            assert_eq!(
                (head.id, head.value.unwrap().get()),
                (Some(u64::MAX), value)
            );
        }
        let head: Head<'_> = serde_json::from_str("{\"type\":\"pong\"}").unwrap();
        assert!(head.value.is_none() && head.id.is_none());
    }

    #[tokio::test]
    async fn a_length_beyond_the_bound_is_an_error_before_its_bytes_are_read() {
        let mut reader = FrameReader::new(&b"\x01\x00\x00\x01"[..]);
        assert_eq!(
            reader.next().await.unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }

    proptest! {
        /// However the stream is cut up, the frames are the same.
        #[test]
        fn frames_survive_any_fragmentation(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..8),
            steps in prop::collection::vec(1usize..40, 1..10),
        ) {
            let mut stream = Vec::new();
            for frame in &frames {
                stream.extend_from_slice(&u32::try_from(frame.len()).unwrap().to_be_bytes());
                stream.extend_from_slice(frame);
            }
            let mut buffer = BytesMut::new();
            let mut rest = &stream[..];
            let mut seen: Vec<Vec<u8>> = Vec::new();
            for step in steps.iter().cycle() {
                let (now, later) = rest.split_at((*step).min(rest.len()));
                buffer.extend_from_slice(now);
                rest = later;
                while let Some(frame) = cut(&mut buffer).unwrap() {
                    seen.push(frame.to_vec());
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(seen, frames);
        }
    }
}
