//! Observation of requests that the engine answers by itself.

use crate::{principal::Principal, session::connection::TransportKind};
use jsonrpc_core::{ErrorObject, Id};
use mcp_protocol::{ProtocolVersion, TraceContext};
use std::time::Duration;

/// Hears of requests that the engine answers by itself, which its service does not hear of.
pub trait Observe: Send + Sync + 'static {
    /// A request was answered. Called where it was read, so it must not block.
    fn answered(&self, answered: &Answered<'_>);
}

/// A request that the engine has answered by itself: a handshake, a ping, or what is no request at
/// all. What is not known of it is `None`.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// Principal that sent it.
    pub principal: &'a Principal,
    /// Transport by which it came.
    pub transport: TransportKind,
    /// In which session.
    pub session: Option<&'a str>,
    /// The id its sender gave it.
    pub id: Option<&'a Id>,
    /// Method it asks for, as its sender wrote it.
    pub method: Option<&'a str>,
    /// The revision it is written in.
    pub version: Option<ProtocolVersion>,
    /// Place in a distributed trace where it was made.
    pub trace: Option<&'a TraceContext>,
    /// The error it was answered with.
    pub error: Option<&'a ErrorObject>,
    /// Time that it took.
    pub took: Duration,
}
