//! Numbers of one tool: its calls by their end, their time and their cost.

use prometheus::{Counter, Histogram, IntCounter};
use std::{fmt, sync::OnceLock};

/// Number of different ends of a call.
pub(crate) const ENDS: usize = 9;

/// Numbers of one tool. Looked up once: the registry takes a lock and several hashes.
pub(crate) struct ToolNumbers {
    seconds: Histogram,
    cost: Counter,
    /// By the number of the end.
    outcomes: [OnceLock<IntCounter>; ENDS],
    calls: Box<dyn Fn(&str) -> IntCounter + Send + Sync>,
}

impl ToolNumbers {
    pub(crate) fn new(
        seconds: Histogram,
        cost: Counter,
        calls: impl Fn(&str) -> IntCounter + Send + Sync + 'static,
    ) -> Self {
        Self {
            seconds,
            cost,
            outcomes: [const { OnceLock::new() }; ENDS],
            calls: Box::new(calls),
        }
    }

    /// A call has ended like this: the number and the name of its end. `cost` is in units of the currency.
    pub(crate) fn ended(&self, (end, name): (usize, &str), seconds: f64, cost: f64) {
        self.outcomes[end].get_or_init(|| (self.calls)(name)).inc();
        self.seconds.observe(seconds);
        self.cost.inc_by(cost);
    }
}

impl fmt::Debug for ToolNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolNumbers").finish_non_exhaustive()
    }
}
