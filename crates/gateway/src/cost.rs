use crate::{InvocationError, Invoked};
use adapter_tools::{CallMeter, ToolError};
use governance::Micros;

/// What a call has cost, now that it has ended: the one rule, for the ledger and for the budget.
///
/// What the handler has metered counts. Without that the estimate does, because nobody knows better;
/// a call that never reached its handler costs nothing (decision D6).
pub(crate) fn cost_of(
    outcome: &Result<Invoked, InvocationError>,
    meter: &CallMeter,
    estimate: Micros,
) -> Micros {
    match outcome {
        Err(
            InvocationError::Denied(_)
            | InvocationError::Unknown
            | InvocationError::Invalid(_)
            | InvocationError::Unrecorded(_)
            | InvocationError::Read(_)
            | InvocationError::Tool(ToolError::Busy { .. } | ToolError::Rejected(_)),
        ) => Micros::ZERO,
        _ => cost_given_up(meter, estimate),
    }
}

/// What a call has cost that was given up on the way.
pub(crate) fn cost_given_up(meter: &CallMeter, estimate: Micros) -> Micros {
    meter.cost_micros().map_or(estimate, Micros)
}
