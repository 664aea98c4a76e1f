//! A gateway over real children and real HTTP servers.

#![allow(clippy::unwrap_used)]

mod calls;
mod connections;
mod credentials;
mod holds;
mod lists;
mod manager;
mod questions;
mod support;
