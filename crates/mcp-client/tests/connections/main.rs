//! Connections over each transport, to servers of these tests' own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blocking;
mod hostile_http;
mod kept;
mod load;
mod resuming;
mod service;
mod sessions;
mod support;
mod websocket;
