//! The report on one call, written by the layers and read by metrics, log and spans.

use crate::invocation::{
    failure::Charge,
    verdict::{Fault, Verdict},
};
use adapter_tools::CallMeter;
use governance::{Micros, Remaining};
use ledger::{CallId, Cut};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::runtime::Handle;

/// Report on one call. It outlives the call, whose future may be dropped anywhere.
///
/// | Field | Written by | When | Read by |
/// |---|---|---|---|
/// | `meter` | the handler | while it runs | `cost`, spans |
/// | `cost` | the first of `Recorded`, `Governed` and the handler's span | the end of the call | ledger, counters, metrics, spans |
/// | `remaining` | `Governed` | after settling | results, log |
/// | `call` | `Recorded` | before the first entry | errors, log, spans |
/// | `follows` | `Confirmed`, of a call that brings answers | before admission | `Recorded` |
/// | `verdict` | `Governed` | admission and refusal | log, metrics of requests |
/// | `fault` | `Governed`, of a call that failed or was refused | the end of the call | log |
/// | `code` | `tool_result` | a failure that is answered with a result | metrics of requests |
/// | `result_bytes` | `Recorded` | the end of the call | log, bounds of unsent answers |
/// | `whole` | `Limited` | a result that is too long | `Recorded` |
/// | `is_harmless` | `Recorded` | the first entry | log |
/// | `is_charged_on_record` | `Recorded` | after the first entry, and before the last | `Governed` |
/// | `has_returned` | `Recorded` | before the last entry | tasks |
/// | `is_unrecorded` | `Recorded` | after the last entry | the answer |
///
/// Everything is written once, but `verdict`, of which the last holds, and the two flags.
#[derive(Debug, Default)]
pub(crate) struct CallReport {
    meter: Arc<CallMeter>,
    /// Facts that every call has.
    facts: Mutex<Facts>,
    follows: OnceLock<CallId>,
    fault: OnceLock<Fault>,
    code: OnceLock<i32>,
    /// The result that its caller gets a part of.
    whole: OnceLock<Cut>,
    /// Size of the result plus one; 0 means unknown.
    result_bytes: AtomicUsize,
    /// True if the arguments have been searched for secrets, and none was found.
    is_harmless: AtomicBool,
    /// True if the record of the call's end settles the reservation.
    is_charged_on_record: AtomicBool,
    /// True once the tool has returned, and asks nothing.
    has_returned: AtomicBool,
    /// True if the call is answered although its end is not known to be on disk.
    is_unrecorded: AtomicBool,
}

#[derive(Debug, Default)]
struct Facts {
    cost: Option<Micros>,
    remaining: Option<Remaining>,
    call: Option<CallId>,
    verdict: Option<Verdict>,
}

/// The longest time that a call which was given up stays open for what its handler still meters: more
/// than a worker has to end it by default.
const LAST_METERED: Duration = Duration::from_secs(10);

/// Runs `settle` once nothing runs any more of a call that was given up, so that what its handler meters
/// while it cleans up is charged: at once where nothing does, and after [`LAST_METERED`] in any case.
pub(crate) fn when_over(report: &CallReport, settle: impl FnOnce() + Send + 'static) {
    // Also when the runtime ends before, and drops what it has not done.
    let settle = on_drop(settle);
    if report.meter.is_in_use()
        && let Ok(runtime) = Handle::try_current()
    {
        let meter = Arc::clone(&report.meter);
        runtime.spawn(async move {
            let _ = tokio::time::timeout(LAST_METERED, meter.unused()).await;
            drop(settle);
        });
    }
}

/// Runs `last` when it is dropped.
fn on_drop<F: FnOnce()>(last: F) -> impl Drop {
    struct OnDrop<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            if let Some(last) = self.0.take() {
                last();
            }
        }
    }
    OnDrop(Some(last))
}

impl CallReport {
    /// The meter of the handler.
    pub(crate) fn meter(&self) -> &Arc<CallMeter> {
        &self.meter
    }

    /// The call as the ledger has it, once that may be.
    pub(crate) fn call(&self) -> Option<CallId> {
        self.facts().call
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the ledger may have the call from here on.
    pub(crate) fn goes_on_record(&self, call: CallId) {
        self.facts().call.get_or_insert(call); // it is one call
    }

    /// Notes that the call brings the answers to what an earlier one has asked.
    pub(crate) fn follows(&self, call: CallId) {
        let _ = self.follows.set(call); // it is one call
    }

    /// The earlier call that has asked what this one answers.
    pub(crate) fn followed(&self) -> Option<CallId> {
        self.follows.get().copied()
    }

    /// True if the ledger may have the call.
    pub(crate) fn is_on_record(&self) -> bool {
        self.call().is_some()
    }

    /// The caller's remaining quota, once the call is settled.
    pub(crate) fn remaining(&self) -> Option<Remaining> {
        self.facts().remaining
    }

    pub(crate) fn leave(&self, remaining: Remaining) {
        self.facts().remaining.get_or_insert(remaining);
    }

    /// Notes a decision about the call.
    pub(crate) fn decide(&self, verdict: Verdict) {
        self.facts().verdict = Some(verdict);
    }

    /// The last decision about the call.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.facts().verdict.clone()
    }

    /// Notes a fault, for operators; the first one stays.
    pub(crate) fn fail(&self, fault: Fault) {
        self.fault.get_or_init(|| fault);
    }

    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.fault.get()
    }

    /// Notes the code of a failure that is answered with a result instead of an error.
    pub(crate) fn told_code(&self, code: i32) {
        let _ = self.code.set(code); // it is told once
    }

    /// The code of the failure that its result tells of.
    pub(crate) fn code(&self) -> Option<i32> {
        self.code.get().copied()
    }

    /// Notes whether the tool has returned and asks nothing: its end goes on record now, and the call is carried out.
    pub(crate) fn note_returned(&self, has_returned: bool) {
        self.has_returned.store(has_returned, Ordering::Relaxed);
    }

    /// True once the tool has returned, and asks nothing.
    pub(crate) fn has_returned(&self) -> bool {
        self.has_returned.load(Ordering::Relaxed)
    }

    /// Notes that the call is answered although its end is not known to be on disk.
    pub(crate) fn leave_unrecorded(&self) {
        self.is_unrecorded.store(true, Ordering::Relaxed);
    }

    /// The call, if it is answered although its end is not known to be on disk.
    pub(crate) fn unrecorded(&self) -> Option<CallId> {
        let is_unrecorded = self.is_unrecorded.load(Ordering::Relaxed);
        is_unrecorded.then(|| self.call()).flatten()
    }

    /// Records that the arguments have no secrets, by the rules of the capability that is called.
    pub(crate) fn found_no_secrets(&self) {
        self.is_harmless.store(true, Ordering::Relaxed);
    }

    /// True if the arguments are known to have no secrets, so that they are not searched again.
    pub(crate) fn is_harmless(&self) -> bool {
        self.is_harmless.load(Ordering::Relaxed)
    }

    /// Notes that the record of the call's end settles the reservation, where the cost differs from it.
    pub(crate) fn charge_on_record(&self, is_charged: bool) {
        self.is_charged_on_record
            .store(is_charged, Ordering::Relaxed);
    }

    pub(crate) fn is_charged_on_record(&self) -> bool {
        self.is_charged_on_record.load(Ordering::Relaxed)
    }

    /// Notes the whole of a result of which its caller gets a part.
    pub(crate) fn shortened(&self, whole: Cut) {
        let _ = self.whole.set(whole); // it is shortened once
    }

    /// The whole of a result of which its caller gets a part.
    pub(crate) fn whole(&self) -> Option<Cut> {
        self.whole.get().copied()
    }

    /// Notes the size of the answer in bytes.
    pub(crate) fn answered_with(&self, bytes: usize) {
        self.result_bytes
            .store(bytes.saturating_add(1), Ordering::Relaxed);
    }

    /// Size of the answer in bytes, as the ledger counts them.
    pub(crate) fn result_bytes(&self) -> Option<usize> {
        self.result_bytes.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The cost, once it is settled.
    pub(crate) fn settled_cost(&self) -> Option<Micros> {
        self.facts().cost
    }

    /// The cost of the call, now that it has ended: the one rule, for the ledger and for the
    /// budget.
    ///
    /// What the handler has metered counts. Without that the estimate does, because nobody knows
    /// better; a call that never reached its handler costs nothing (decision D6).
    ///
    /// The first to ask decides. A handler's own thread may go on spending when its call is over,
    /// and the ledger and the budget must not see different amounts of it.
    pub(crate) fn cost(&self, charge: Charge, estimate: Micros) -> Micros {
        match charge {
            Charge::Released | Charge::Nothing => *self.facts().cost.get_or_insert(Micros::ZERO),
            Charge::Estimate => self.cost_given_up(estimate),
        }
    }

    /// Cost of a call that was given up on the way; see [`CallReport::cost`].
    pub(crate) fn cost_given_up(&self, estimate: Micros) -> Micros {
        let metered = || self.metered(estimate);
        *self.facts().cost.get_or_insert_with(metered)
    }

    /// The metered cost, or else `estimate`; anything metered from here on comes too late.
    fn metered(&self, estimate: Micros) -> Micros {
        self.meter.settle();
        self.meter.cost_micros().map_or(estimate, Micros)
    }
}
