//! Limits that several nodes share, against a real PostgreSQL.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod clock;
mod common;
mod faults;
mod nodes;
mod proxy;
mod record;
mod same;
