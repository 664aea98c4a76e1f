use crate::invocation::{
    failure::Charge,
    verdict::{Fault, Verdict},
};
use adapter_tools::CallMeter;
use governance::{Micros, Remaining};
use ledger::CallId;
use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::runtime::Handle;

/// What one call uses up, and what it leaves. It outlives the call, which may be given up anywhere.
#[derive(Debug, Default)]
pub struct Tally {
    meter: Arc<CallMeter>,
    cost: OnceLock<Micros>,
    remaining: OnceLock<Remaining>,
    call: OnceLock<CallId>,
    verdict: Mutex<Option<Verdict>>,
    fault: OnceLock<Fault>,
    code: OnceLock<i32>,
    /// One more than there are, so that none is told from nothing known.
    result_bytes: AtomicUsize,
    /// Whether its arguments have been looked through, and nothing was found.
    is_harmless: AtomicBool,
    /// True if the record of the call's end settles the reservation.
    is_charged_on_record: AtomicBool,
}

/// The longest time that a call which was given up stays open for what its handler still meters: more
/// than a worker has to end it by default.
const LAST_METERED: Duration = Duration::from_secs(10);

/// Runs `settle` once nothing runs any more of a call that was given up, so that what its handler meters
/// while it cleans up is charged: at once where nothing does, and after [`LAST_METERED`] in any case.
pub(crate) fn when_over(tally: &Tally, settle: impl FnOnce() + Send + 'static) {
    // Also when the runtime ends before, and drops what it has not done.
    let settle = on_drop(settle);
    if tally.meter.is_in_use()
        && let Ok(runtime) = Handle::try_current()
    {
        let meter = Arc::clone(&tally.meter);
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

    /// What was decided about it, for now.
    pub(crate) fn decide(&self, verdict: Verdict) {
        let mut decided = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        *decided = Some(verdict);
    }

    /// What was decided about it last.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let decided = self.verdict.lock();
        decided.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What went wrong, for operators; the first that is said stays.
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

    /// Its arguments have no secrets, by the rules of what is called.
    pub(crate) fn found_no_secrets(&self) {
        self.is_harmless.store(true, Ordering::Relaxed);
    }

    /// Whether its arguments are known to have no secrets, so that nobody has to look again.
    pub(crate) fn is_harmless(&self) -> bool {
        self.is_harmless.load(Ordering::Relaxed)
    }

    /// Says that the record of the call's end settles the reservation, where the cost differs from it.
    pub(crate) fn charge_on_record(&self, is_charged: bool) {
        self.is_charged_on_record
            .store(is_charged, Ordering::Relaxed);
    }

    pub(crate) fn is_charged_on_record(&self) -> bool {
        self.is_charged_on_record.load(Ordering::Relaxed)
    }

    /// It was answered with so many bytes.
    pub(crate) fn answered_with(&self, bytes: usize) {
        self.result_bytes
            .store(bytes.saturating_add(1), Ordering::Relaxed);
    }

    /// How many bytes it was answered with, as the ledger counts them.
    pub(crate) fn result_bytes(&self) -> Option<usize> {
        self.result_bytes.load(Ordering::Relaxed).checked_sub(1)
    }

    /// What it has cost, once that is settled.
    pub(crate) fn settled_cost(&self) -> Option<Micros> {
        self.cost.get().copied()
    }

    /// What the call has cost, now that it has ended: the one rule, for the ledger and for the
    /// budget.
    ///
    /// What the handler has metered counts. Without that the estimate does, because nobody knows
    /// better; a call that never reached its handler costs nothing (decision D6).
    ///
    /// The first to ask decides. A handler's own thread may go on spending when its call is over,
    /// and the ledger and the budget must not see different amounts of it.
    pub(crate) fn cost(&self, charge: Charge, estimate: Micros) -> Micros {
        match charge {
            Charge::Released | Charge::Nothing => *self.cost.get_or_init(|| Micros::ZERO),
            Charge::Metered => self.cost_given_up(Micros::ZERO),
            Charge::Estimate => self.cost_given_up(estimate),
        }
    }

    /// What a call has cost that was given up on the way; see [`Tally::cost`].
    pub(crate) fn cost_given_up(&self, estimate: Micros) -> Micros {
        *self.cost.get_or_init(|| self.metered(estimate))
    }

    /// What was metered, or else `estimate`; what is metered from here on comes too late.
    fn metered(&self, estimate: Micros) -> Micros {
        self.meter.settle();
        self.meter.cost_micros().map_or(estimate, Micros)
    }
}
