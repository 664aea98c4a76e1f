//! One frame of bytes to JSON-RPC 2.0 messages and back.
//!
//! This crate performs no I/O, spawns nothing and knows nothing of MCP. A *frame* is one JSON text,
//! however its transport delimits it; it holds one message, or a batch of them.
//!
//! Nothing is copied that need not be: [`RawJson`] is a reference-counted slice of the frame it came
//! in, so parameters travel from the socket to a handler as the bytes their sender wrote. The price
//! is that a kept slice keeps its whole frame; whoever keeps one for long calls [`RawJson::detach`].
//!
//! ```
//! use bytes::Bytes;
//! use jsonrpc_core::{Limits, Message, Payload, decode};
//!
//! let frame = Bytes::from_static(br#"{"jsonrpc":"2.0","id":7,"method":"add","params":{"a":1.0}}"#);
//! let Payload::Single(Ok(Message::Request(request))) = decode(&frame, Limits::default())? else {
//!     panic!("a single request");
//! };
//! assert_eq!(request.method, "add");
//! assert_eq!(request.params.as_str(), r#"{"a":1.0}"#); // byte for byte: 1.0 has not become 1
//! # Ok::<(), jsonrpc_core::DecodeError>(())
//! ```

mod decode;
mod depth;
mod encode;
mod error;
mod frame;
mod id;
mod members;
mod message;
mod position;
mod raw;

pub use crate::{
    decode::{DecodeError, Limits, ReadParams, decode, decode_with},
    encode::{begin_result, encode, encode_batch, encode_response, put_text},
    error::{ErrorCode, ErrorObject},
    frame::Frame,
    id::Id,
    members::{Member, take_items, take_members},
    message::{Invalid, Message, Notification, Payload, Request, Response},
    position::Position,
    raw::RawJson,
};
