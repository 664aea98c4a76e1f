//! Metrics and log lines of requests and calls.

pub(crate) mod calls;
pub(crate) mod fault;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod pull_collector;
pub(crate) mod requests;
