//! Temporal as the queue from which workers take the calls of tasks.
//!
//! `Temporal` is a [`TaskRunner`](mcp_server::TaskRunner): calls of the tools that its queues name are left to
//! workers, and all others are carried out where they are accepted. `Temporal::work` is a worker. Temporal knows
//! the ids of tasks; calls and what becomes of them are in the task store (`docs/temporal.md`).
//!
//! Without the feature `sdk` this crate is empty.
#![cfg(feature = "sdk")]

mod activity;
mod connection;
mod queue;
mod worker;
mod workflow;

pub use activity::WorkerServer;
pub use connection::TemporalOptions;
pub use mcp_server::TakenUp;
pub use queue::{QueueOptions, Temporal};
pub use task_store::{StoreError, TaskId};
pub use worker::{Running, WorkError};
