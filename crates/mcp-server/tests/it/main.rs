//! Promises of a server, seen from the other end of a connection.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod house;
mod tasks_again;
mod tasks_house;

mod arguments;
mod confirmation;
mod endings;
mod errors;
mod handshake;
mod hidden;
mod interleavings;
mod lists;
mod never_reached;
mod outage;
mod plain_reads;
mod questions;
mod record;
mod refusals;
mod replays;
mod resources;
mod results;
mod roles;
mod search_view;
mod skills_extension;
mod tasks;
mod tasks_interleavings;
mod tasks_legacy;
mod tasks_queue;
mod tasks_runner;
mod tasks_store;
mod timing;
mod traced;
mod ways_in;
