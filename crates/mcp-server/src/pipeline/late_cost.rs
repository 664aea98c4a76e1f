//! Costs that are known only some time after the end of their calls, such as those of a trace elsewhere.

use ledger::CallId;
use std::fmt;

/// Cost that is not known yet. Until it is, what the call was expected to cost, or has reported itself, is counted; its
/// own entry costs nothing, since the cost goes on record by an entry of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedCost {
    /// The call.
    pub call: CallId,
    /// Time at which the call began: microseconds since the epoch, UTC.
    pub at_us: u64,
    /// Principal that is charged.
    pub principal: String,
    /// Tool that was called, as `tool/name`.
    pub capability: String,
    /// Trace that has the cost.
    pub trace: String,
    /// Cost that is counted until then, in millionths of the currency.
    pub counted_micros: u64,
}

/// Settles costs late.
pub trait LateCosts: Send + Sync {
    /// Takes over a call whose end, and that its cost is awaited, are on record. Called on the call's own path, so it
    /// must neither block nor panic.
    fn awaits(&self, cost: AwaitedCost);
}

impl fmt::Debug for dyn LateCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateCosts")
    }
}
