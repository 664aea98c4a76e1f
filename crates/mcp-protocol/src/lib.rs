//! The Model Context Protocol as data, for every released revision.
//!
//! Handlers speak one version-neutral vocabulary, [`model`], which follows the newest revision. What
//! an older or newer peer must see instead is decided in exactly three places: the rows of
//! [`method`] (which methods exist when), [`encode`] (what a result or notification looks like when)
//! and [`ProtocolError::to_error_object`] (which code a failure has when).
//!
//! Clients speak the same vocabulary, from the other side: [`client`] writes what they ask and reads
//! what servers answer.
//!
//! This crate performs no I/O, spawns nothing and reads no clock.

pub mod client;
pub mod encode;
mod header_params;
pub mod method;
pub mod model;
mod received;
mod session;
mod trace_context;
mod version;

pub use crate::{
    encode::{
        Encoder, encode_input_request, encode_input_requests, encode_notification, write_plain_text,
    },
    header_params::{BadAnnotation, HeaderDiffers, MirroredParams},
    method::{Method, decode_notification, decode_request, decode_request_with},
    model::error::ProtocolError,
    received::Received,
    session::{FOUNDING, Session},
    trace_context::{MAX_TRACE_STATE_BYTES, TraceContext},
    version::{Era, ProtocolVersion, RequestedVersion},
};
pub use jsonrpc_core::{ErrorCode, ErrorObject, Id, RawJson};
