//! Messages on the wire, seen from the other end of a pipe or a socket: the points in which servers
//! of this protocol are known to go wrong. `docs/wire-checks.md` lists the test that proves each of
//! them.
//!
//! The servers are real processes. Every message they send is judged by the official schema of the
//! revision it is sent in, wherever it is received.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod asking;
mod bounds;
mod cancelling;
mod failing;
mod headers;
mod house;
mod listening;
mod methods;
mod parsing;
mod process;
mod schemas;
mod sessions;
mod table;
