//! Claims that keys, tokens and certificates prove, and those they do not.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod certificates;
mod dpop;
mod fetching;
mod finding;
mod forge;
mod introspection;
mod keys;
mod tokens;
