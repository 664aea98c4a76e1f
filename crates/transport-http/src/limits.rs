//! Bounds on connections and held memory, and counters of both.

pub(crate) mod accept_errors;
pub(crate) mod admission;
pub(crate) mod body_memory;
pub(crate) mod idle;
pub(crate) mod stats;
