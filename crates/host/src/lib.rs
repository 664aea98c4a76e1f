//! The host of founding document 004: its dialect, spoken to clients that know no other.
//!
//! A session of the dialect is a connection of MCP (2025-11-25) that this crate holds for its client. Each request of the
//! dialect becomes one or several requests on that connection, by the principal that has sent it, and goes the way of
//! all others: rules, counters, record and bounds are the same, and nothing can be done here that cannot be done
//! by MCP. What MCP says without being asked becomes the dialect's notifications. HTTP is its user's affair.
//!
//! Rows of document 004: 6 to 14, 17, 31 to 35, 45 to 54, 75, 81 to 105, 112 to 118, 126 to 129, 133 to 135.

mod dialect;
mod failure;
mod message;
mod options;

pub use self::{
    dialect::{EventStream, Host, NoSession, StateError},
    options::HostOptions,
};
