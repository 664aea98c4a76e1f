//! The ways to servers, and the requests that are under way on them.

pub(crate) mod child;
pub(crate) mod http;
pub(crate) mod lines;
pub(crate) mod link;
pub(crate) mod old_sse;
pub(crate) mod outline;
pub(crate) mod reference;
pub(crate) mod shared;
mod sse;
pub(crate) mod websocket;
