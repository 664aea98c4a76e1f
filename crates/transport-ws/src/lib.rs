//! MCP over WebSocket (RFC 6455), which no revision of the specification describes, and which clients
//! of several languages speak all the same: one JSON text in each text message, either way, and the
//! subprotocol `mcp`.
//!
//! A connection is what a pair of standard streams is: its own session, of either era, with
//! everything that is sent without having been asked. Who is at the other end was proved when it was
//! opened, and is asked again with every message and from time to time ([`Identify`]).
//!
//! HTTP is somebody else's: [`handshake`] says what to answer to a request, and [`serve`] takes the
//! connection over.

mod frames;
mod handshake;
mod metered;
mod options;
mod room;
mod serve;

pub use crate::{
    handshake::{HandshakeError, SUBPROTOCOL, handshake},
    options::WebSocketOptions,
    room::{Figures, Full, Place, WebSockets},
    serve::{End, Identify, Identifying, serve},
};
