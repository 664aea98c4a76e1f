use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of spans since the start, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Taken by the collector.
    pub sent: u64,
    /// Left out, because more waited than may.
    pub dropped: u64,
    /// Refused by the collector, or given up on after it did not answer.
    pub failed: u64,
    /// Waiting.
    pub queued: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failed: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}
