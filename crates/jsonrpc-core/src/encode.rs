use crate::{Id, Message, RawJson, Response, members::is_plain};
use bytes::{BufMut, BytesMut};
use std::{borrow::Borrow, fmt::Write};

/// Writes one message, without any framing. The text has no newline in it unless a [`RawJson`]
/// inside has one.
pub fn encode(message: &Message, out: &mut BytesMut) {
    match message {
        Message::Request(request) => {
            out.put_slice(br#"{"jsonrpc":"2.0","id":"#);
            put_id(&request.id, out);
            put_call(&request.method, &request.params, out);
        }
        Message::Notification(notification) => {
            out.put_slice(br#"{"jsonrpc":"2.0""#);
            put_call(&notification.method, &notification.params, out);
        }
        Message::Response(response) => encode_response(response, out),
    }
}

/// Writes a batch. An empty one is `[]`, which no peer accepts: send nothing instead.
pub fn encode_batch(messages: impl IntoIterator<Item = impl Borrow<Message>>, out: &mut BytesMut) {
    out.put_u8(b'[');
    for (index, message) in messages.into_iter().enumerate() {
        if 0 < index {
            out.put_u8(b',');
        }
        encode(message.borrow(), out);
    }
    out.put_u8(b']');
}

/// Appends a response up to where its result begins, which is to be followed by `}`.
pub fn begin_result(id: &Id, out: &mut Vec<u8>) {
    put_response_head(Some(id), out);
    out.put_slice(br#","result":"#);
}

/// Appends a text as JSON. What needs no escapes, as most texts, is not looked at letter by letter.
pub fn put_text(text: &str, out: &mut Vec<u8>) {
    if is_plain(text) {
        out.reserve(text.len() + 2);
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        put_string(text, out);
    }
}

/// Writes a response, as [`encode`] does.
pub fn encode_response(response: &Response, out: &mut BytesMut) {
    put_response_head(response.id.as_ref(), out);
    match &response.outcome {
        Ok(result) => {
            out.put_slice(br#","result":"#);
            out.put_slice(result.as_bytes());
        }
        Err(error) => {
            out.put_slice(br#","error":{"code":"#);
            put_display(&error.code, out);
            out.put_slice(br#","message":"#);
            put_string(&error.message, out);
            if let Some(data) = &error.data {
                out.put_slice(br#","data":"#);
                out.put_slice(data.as_bytes());
            }
            out.put_u8(b'}');
        }
    }
    out.put_u8(b'}');
}

/// Appends a response up to its result: `{"jsonrpc":"2.0","id":1`.
///
/// An id that could not be read is left out: revision 2026-07-28's schema has no null id.
pub(crate) fn put_response_head(id: Option<&Id>, out: &mut impl BufMut) {
    out.put_slice(br#"{"jsonrpc":"2.0""#);
    if let Some(id) = id {
        out.put_slice(br#","id":"#);
        put_id(id, out);
    }
}

fn put_call(method: &str, params: &RawJson, out: &mut BytesMut) {
    out.put_slice(br#","method":"#);
    put_string(method, out);
    if params.as_bytes() != RawJson::EMPTY_OBJECT.as_bytes() {
        out.put_slice(br#","params":"#);
        out.put_slice(params.as_bytes());
    }
    out.put_u8(b'}');
}

fn put_id(id: &Id, out: &mut impl BufMut) {
    match id {
        Id::Number(number) => out.put_slice(itoa::Buffer::new().format(*number).as_bytes()),
        Id::BigNumber(digits) => out.put_slice(digits.as_bytes()),
        Id::String(text) => put_string(text, out),
    }
}

fn put_display(value: &impl std::fmt::Display, out: &mut BytesMut) {
    write!(out, "{value}").expect("a growing buffer takes everything");
}

fn put_string(text: &str, out: &mut impl BufMut) {
    serde_json::to_writer(out.writer(), text)
        .expect("strings serialize, and a growing buffer takes everything");
}
