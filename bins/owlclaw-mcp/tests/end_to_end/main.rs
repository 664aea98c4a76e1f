//! The real program with real Python, pipes, sockets, signals and files.

#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod access;
mod adapters;
mod alerts;
mod applications;
mod approvals_command;
mod apps;
mod archives;
mod bad_input;
mod cancellation;
mod client;
mod commands;
mod confirmation;
mod crash_loop;
mod crashes;
mod credentials;
mod databases;
mod desk;
mod desk_changes;
mod doctor;
mod exchange;
mod files;
mod filters;
mod gateway;
mod gateway_kills;
mod gateway_matrix;
mod gateway_subscriptions;
mod gateway_tasks;

mod governed;
mod health;
mod held;
mod host_dialect;
mod hostile;
mod hostile_network;
mod http;
mod idempotency;
mod identity;
mod ledger_commands;
mod ledger_faults;
mod listings;
mod logs;
mod metrics;
mod nodes;
mod own_sign_in;
mod plain_reads;
mod prompts;
mod redaction;
mod registry;
mod restart;
mod results;
mod rules;
mod search_view;
mod secrets;
mod service_resources;
mod services;
mod shared_ledger;
mod shared_stdio;
mod shutdown;
mod shutdown_ways;
mod skills;
mod stdio;
mod tasks;
mod timestamps;
mod tls;
mod tools_call;
mod traces;
mod upstream_commands;
mod verification;
mod websocket;
mod witness;
mod workers;
