//! Bounds on connections and held memory, and counters of both.

pub(crate) mod accepting;
pub(crate) mod activity;
pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod counts;
