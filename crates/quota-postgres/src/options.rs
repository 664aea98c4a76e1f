use std::time::Duration;

/// Options of a node.
#[derive(Clone, Debug)]
pub struct QuotaOptions {
    /// The longest that a caller waits for its answer. Default 2 s. The database gives up a
    /// transaction of ours after as long.
    pub max_wait: Duration,
    /// Time for which a node without a sign of life counts as alive. Default 30 s; at least 100 ms.
    /// Each node announces its own; others wait for the longer of theirs and its.
    pub lease: Duration,
    /// The most reservations of this node that are asked for, running, or ended but not yet
    /// recorded as ended, together. Default 16,384. Beyond it callers are refused.
    pub max_open: usize,
    /// Clock that is used. Default [`TimeSource::Database`].
    pub time: TimeSource,
}

/// Clock that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSource {
    /// The database's, for every node. The time in [`Charges`](governance::Charges) only finds the
    /// month, and may be wrong by up to one.
    Database,
    /// The time in [`Charges`](governance::Charges), never going back for a principal. It is for
    /// tests: with nodes whose clocks differ, windows may end early by the difference.
    Callers,
}

impl Default for QuotaOptions {
    fn default() -> Self {
        Self {
            max_wait: Duration::from_secs(2),
            lease: Duration::from_secs(30),
            max_open: 16_384,
            time: TimeSource::Database,
        }
    }
}

impl QuotaOptions {
    /// The lease, with its lower bound.
    pub(crate) fn lease(&self) -> Duration {
        self.lease.max(Duration::from_millis(100))
    }
}
