//! Bindings and documents against services on real sockets.

#![allow(clippy::unwrap_used)]

mod bindings;
mod bounds;
mod openapi;
mod private;
mod retries;
mod service;
mod tls;
