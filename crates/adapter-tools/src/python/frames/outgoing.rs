use super::MAX_FRAME;
use bytes::{BufMut, BytesMut};
use serde_json::value::RawValue;
use std::{collections::BTreeMap, sync::Arc};

/// Data that the worker needs to carry out a call.
#[derive(Debug)]
pub(in super::super) struct CallFrame<'a> {
    pub(in super::super) id: u64,
    pub(in super::super) name: &'a str,
    /// The text of a JSON object; empty for what takes no arguments.
    pub(in super::super) arguments: &'a [u8],
    pub(in super::super) client_id: &'a str,
    pub(in super::super) roles: &'a [Arc<str>],
    pub(in super::super) request_id: &'a str,
    pub(in super::super) deadline_ms: Option<u64>,
    pub(in super::super) traceparent: Option<&'a str>,
    pub(in super::super) session: Option<&'a str>,
    pub(in super::super) transport: Option<&'a str>,
    pub(in super::super) headers: &'a [(Arc<str>, Box<str>)],
    pub(in super::super) tracestate: Option<&'a str>,
    /// The text of a JSON object, or nothing.
    pub(in super::super) meta: &'a [u8],
}

/// A frame would be larger than [`MAX_FRAME`].
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct TooLarge;

/// Appends a `call`, or one of another `kind`. The worker finds type and id even where it cannot read the
/// arguments, because they come first.
pub(in super::super) fn put_call(
    out: &mut BytesMut,
    kind: &str,
    call: &CallFrame<'_>,
) -> Result<(), TooLarge> {
    let start = begin(out);
    out.put_slice(format!("{{\"type\":\"{kind}\",\"id\":{},\"name\":", call.id).as_bytes());
    put_json(out, &call.name);
    if !call.arguments.is_empty() {
        out.put_slice(b",\"arguments\":");
        out.put_slice(call.arguments);
    }
    put_context(out, call);
    end(out, start)
}

/// Answers to what a handler has asked.
#[derive(Debug)]
pub(in super::super) struct AnswersFrame<'a> {
    pub(in super::super) id: u64,
    /// The answers by the keys of the questions, as JSON.
    pub(in super::super) responses: &'a BTreeMap<String, Box<RawValue>>,
    /// Reasons why there is no answer, by the keys of the questions.
    pub(in super::super) errors: &'a BTreeMap<String, String>,
}

/// Appends `answers`, with the context of the call that brings them, if it is another one.
pub(in super::super) fn put_answers(
    out: &mut BytesMut,
    answers: &AnswersFrame<'_>,
    call: Option<&CallFrame<'_>>,
) -> Result<(), TooLarge> {
    let start = begin(out);
    let id = answers.id;
    out.put_slice(format!("{{\"type\":\"answers\",\"id\":{id},\"responses\":").as_bytes());
    put_json(out, answers.responses);
    out.put_slice(b",\"errors\":");
    put_json(out, answers.errors);
    match call {
        Some(call) => put_context(out, call),
        None => out.put_u8(b'}'),
    }
    end(out, start)
}

/// Appends the context, which ends the frame.
fn put_context(out: &mut BytesMut, call: &CallFrame<'_>) {
    out.put_slice(b",\"ctx\":{\"client_id\":");
    put_json(out, &call.client_id);
    if !call.roles.is_empty() {
        out.put_slice(b",\"roles\":[");
        for (index, role) in call.roles.iter().enumerate() {
            if index > 0 {
                out.put_u8(b',');
            }
            put_json(out, &&**role);
        }
        out.put_u8(b']');
    }
    out.put_slice(b",\"request_id\":");
    put_json(out, &call.request_id);
    out.put_slice(b",\"deadline_ms\":");
    put_json(out, &call.deadline_ms);
    out.put_slice(b",\"traceparent\":");
    put_json(out, &call.traceparent);
    if let Some(session) = call.session {
        out.put_slice(b",\"session\":");
        put_json(out, &session);
    }
    if let Some(transport) = call.transport {
        out.put_slice(b",\"transport\":");
        put_json(out, &transport);
    }
    for (index, (name, value)) in call.headers.iter().enumerate() {
        out.put_slice(if index == 0 { b",\"headers\":{" } else { b"," });
        put_json(out, &&**name);
        out.put_u8(b':');
        put_json(out, &&**value);
    }
    if !call.headers.is_empty() {
        out.put_u8(b'}');
    }
    if let Some(state) = call.tracestate {
        out.put_slice(b",\"tracestate\":");
        put_json(out, &state);
    }
    if !call.meta.is_empty() {
        out.put_slice(b",\"meta\":");
        out.put_slice(call.meta);
    }
    out.put_slice(b"}}");
}

/// Appends a `cancel`.
pub(in super::super) fn put_cancel(out: &mut BytesMut, id: u64) {
    put_small(out, &format!("{{\"type\":\"cancel\",\"id\":{id}}}"));
}

/// Data that a launcher needs to fork a worker.
#[derive(Debug)]
pub(in super::super) struct ForkFrame<'a> {
    pub(in super::super) worker: u64,
    pub(in super::super) nonce: &'a str,
    pub(in super::super) stdout: &'a str,
    pub(in super::super) stderr: &'a str,
}

/// Appends a `fork`.
pub(in super::super) fn put_fork(out: &mut BytesMut, fork: &ForkFrame<'_>) {
    let frame = serde_json::json!({ "type": "fork", "worker": fork.worker, "nonce": fork.nonce,
        "stdout": fork.stdout, "stderr": fork.stderr });
    put_small(out, &frame.to_string());
}

/// Appends a `reap`.
pub(in super::super) fn put_reap(out: &mut BytesMut, worker: u64) {
    put_small(out, &format!("{{\"type\":\"reap\",\"worker\":{worker}}}"));
}

/// Appends a `ping`.
pub(in super::super) fn put_ping(out: &mut BytesMut) {
    put_small(out, "{\"type\":\"ping\"}");
}

/// Appends a `shutdown`.
pub(in super::super) fn put_shutdown(out: &mut BytesMut) {
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
    use super::{super::cut, *};
    use serde_json::{Value, json};

    fn call(arguments: &[u8]) -> CallFrame<'_> {
        CallFrame {
            id: 7,
            name: "a\"b",
            arguments,
            client_id: "anna",
            roles: &[],
            request_id: "r",
            deadline_ms: Some(1500),
            traceparent: None,
            session: None,
            transport: None,
            headers: &[],
            tracestate: None,
            meta: b"",
        }
    }

    #[test]
    fn a_call_is_written_as_the_worker_reads_it() {
        let mut out = BytesMut::new();
        put_call(&mut out, "call", &call(b"{\"n\": 1.0}")).unwrap();
        put_cancel(&mut out, 7);
        let first = cut(&mut out).unwrap().unwrap();
        assert!(first.starts_with(b"{\"type\":\"call\",\"id\":7,"));
        let expected = json!({"type": "call", "id": 7, "name": "a\"b", "arguments": {"n": 1.0},
            "ctx": {"client_id": "anna", "request_id": "r", "deadline_ms": 1500, "traceparent": null}});
        assert_eq!(serde_json::from_slice::<Value>(&first).unwrap(), expected);
        let mut traced = BytesMut::new();
        let roles = ["clerk".into(), "\"x".into()];
        let frame = CallFrame {
            roles: &roles,
            headers: &[("x-a".into(), "1".into()), ("x-b".into(), "\"2".into())],
            traceparent: Some("00-1"),
            tracestate: Some("a=1"),
            transport: Some("stdio"),
            meta: br#"{"a":1}"#,
            ..call(b"{}")
        };
        put_call(&mut traced, "call", &frame).unwrap();
        let traced: Value = serde_json::from_slice(&cut(&mut traced).unwrap().unwrap()).unwrap();
        assert_eq!(traced["ctx"]["roles"], json!(["clerk", "\"x"]));
        assert_eq!(traced["ctx"]["traceparent"], "00-1");
        assert_eq!(traced["ctx"]["tracestate"], "a=1");
        assert_eq!(traced["ctx"]["transport"], "stdio");
        assert_eq!(traced["ctx"]["headers"], json!({"x-a": "1", "x-b": "\"2"}));
        assert_eq!(traced["ctx"]["meta"], json!({"a": 1}));
        let second = cut(&mut out).unwrap().unwrap();
        assert_eq!(&second[..], b"{\"type\":\"cancel\",\"id\":7}");
        assert!(out.is_empty());
    }

    #[test]
    fn a_frame_that_is_too_large_is_taken_back() {
        let mut out = BytesMut::from(&b"before"[..]);
        let arguments = vec![b' '; MAX_FRAME];
        assert_eq!(put_call(&mut out, "call", &call(&arguments)), Err(TooLarge));
        assert_eq!(&out[..], b"before");
    }
}
