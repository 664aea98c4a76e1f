use crate::{InvocationError, Invoked};
use adapter_tools::{CallMeter, ToolError};
use governance::{Micros, Remaining};
use ledger::CallId;
use std::sync::{Arc, OnceLock};

/// What one call uses up, and what it leaves. It outlives the call, which may be given up anywhere.
#[derive(Debug, Default)]
pub struct Tally {
    meter: Arc<CallMeter>,
    cost: OnceLock<Micros>,
    remaining: OnceLock<Remaining>,
    call: OnceLock<CallId>,
}

impl Tally {
    /// What the handler has metered so far.
    pub fn meter(&self) -> &Arc<CallMeter> {
        &self.meter
    }

    /// The call as the ledger has it, once that may be.
    pub(crate) fn call(&self) -> Option<CallId> {
        self.call.get().copied()
    }

    /// From here on the ledger may have it.
    pub(crate) fn goes_on_record(&self, call: CallId) {
        let _ = self.call.set(call); // it is one call
    }

    /// Whether the ledger may have it.
    pub(crate) fn is_on_record(&self) -> bool {
        self.call.get().is_some()
    }

    /// What the caller has left, once that is settled.
    pub(crate) fn remaining(&self) -> Option<&Remaining> {
        self.remaining.get()
    }

    pub(crate) fn leave(&self, remaining: Remaining) {
        self.remaining.get_or_init(|| remaining);
    }

    /// What the call has cost, now that it has ended: the one rule, for the ledger and for the
    /// budget.
    ///
    /// What the handler has metered counts. Without that the estimate does, because nobody knows
    /// better; a call that never reached its handler costs nothing (decision D6).
    ///
    /// The first to ask decides. A handler's own thread may go on spending when its call is over,
    /// and the ledger and the budget must not see different amounts of it.
    pub(crate) fn cost(
        &self,
        outcome: &Result<Invoked, InvocationError>,
        estimate: Micros,
    ) -> Micros {
        match outcome {
            Err(
                InvocationError::Denied(_)
                | InvocationError::Unknown
                | InvocationError::Invalid(_)
                | InvocationError::Unrecorded(_)
                | InvocationError::Unconfirmed(_)
                | InvocationError::BadKey(_)
                | InvocationError::KeyTaken(_)
                | InvocationError::Read(_)
                | InvocationError::Prompt(_)
                | InvocationError::Tool(
                    ToolError::Busy { .. } | ToolError::Suspended { .. } | ToolError::Rejected(_),
                ),
            )
            | Ok(Invoked::NeedsConfirmation(_)) => *self.cost.get_or_init(|| Micros::ZERO),
            // It has not done what it was called for; that is what the estimate is about.
            Ok(Invoked::NeedsInput(_)) => {
                let metered = || self.meter.cost_micros().map_or(Micros::ZERO, Micros);
                *self.cost.get_or_init(metered)
            }
            _ => self.cost_given_up(estimate),
        }
    }

    /// What a call has cost that was given up on the way; see [`Tally::cost`].
    pub(crate) fn cost_given_up(&self, estimate: Micros) -> Micros {
        let metered = || self.meter.cost_micros().map_or(estimate, Micros);
        *self.cost.get_or_init(metered)
    }
}
