//! Connections, and the state by which a legacy session continues in another process.

pub(crate) mod connection;
pub(crate) mod state;
