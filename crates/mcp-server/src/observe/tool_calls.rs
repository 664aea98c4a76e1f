//! Numbers of one tool: its calls by their end, their time and their cost.

use crate::invocation::verdict::Ended;
use prometheus::{Counter, Histogram, IntCounter};
use std::sync::OnceLock;

/// Numbers of one tool. Looked up once: the registry takes a lock and several hashes.
pub(crate) struct ToolNumbers {
    seconds: Histogram,
    cost: Counter,
    outcomes: [OnceLock<IntCounter>; Ended::COUNT],
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
            outcomes: [const { OnceLock::new() }; Ended::COUNT],
            calls: Box::new(calls),
        }
    }

    /// A call has ended like this. `cost` is in units of the currency.
    pub(crate) fn ended(&self, outcome: Ended, seconds: f64, cost: f64) {
        let counter = &self.outcomes[outcome as usize];
        counter.get_or_init(|| (self.calls)(outcome.as_str())).inc();
        self.seconds.observe(seconds);
        self.cost.inc_by(cost);
    }
}
