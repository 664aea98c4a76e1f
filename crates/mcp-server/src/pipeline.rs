//! The layers that every call passes. Their order is `invocations` in `lib.rs`.

pub(crate) mod confirmed;
pub(crate) mod filtered;
pub(crate) mod governed;
pub(crate) mod idempotency;
pub(crate) mod late_cost;
pub(crate) mod limited;
pub(crate) mod recorded;
pub(crate) mod runner;
pub(crate) mod start_entry;
pub(crate) mod timed;
pub(crate) mod unanswered;
