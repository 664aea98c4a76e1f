//! The contract of counters.

use crate::{
    denial::{Denial, Remaining},
    money::Micros,
    spec::{Kind, RateLimits},
    time::{Calendar, Timestamp},
};
use std::{error::Error, fmt::Debug, sync::Arc, time::Duration};

/// Charges of one call: all of them are counted, or none.
#[derive(Clone, Copy, Debug)]
pub struct Charges<'a> {
    /// Principal whose counters these are.
    pub principal: &'a str,
    /// Set for a principal that the policy names: there is always room for its counters.
    pub is_named: bool,
    /// Capability, as `kind/name`.
    pub capability: &'a str,
    /// Kind of use, which selects one of the principal's two sets of rates.
    pub kind: Kind,
    /// Expected cost.
    pub cost: Micros,
    /// Set if it may cost something: unless its cost is declared to be zero or it is read. A tool
    /// without an estimate may.
    pub may_cost: bool,
    /// The most the principal may spend in a month.
    pub budget: Option<Micros>,
    /// The principal's limits on everything of this kind.
    pub rates: RateLimits,
    /// The principal's limits on this capability alone.
    pub capability_rates: RateLimits,
    /// The least time between two of its uses of this capability.
    pub cooldown: Option<Duration>,
    /// The most tool calls it may have running at once. A call runs from the moment it is reserved
    /// until it is settled or released.
    pub max_running: Option<u32>,
    /// The most uses of this capability that may be running at once, over all principals. Those
    /// are counted that were reserved with such a limit.
    pub capability_max_running: Option<u32>,
    /// Calendar of the budget's months.
    pub calendar: &'a Calendar,
    /// Time of the call.
    pub now: Timestamp,
}

/// Tests if a budget of which so much is `spent` has room for a call for which `held` would be held.
/// One that is used up has room for nothing that may cost something.
#[must_use]
pub fn fits_budget(limit: Micros, may_cost: bool, spent: Micros, held: Micros) -> bool {
    if held == Micros::ZERO {
        return !may_cost || spent < limit;
    }
    let sum = spent.0.checked_add(held.0);
    sum.is_some_and(|sum| sum <= limit.0)
}

/// Name of a reservation for a record of calls that settles it, in the transaction that stores the
/// end of its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationName {
    /// Principal whose counters these are.
    pub principal: Arc<str>,
    /// The process that made it, as the store of counters knows it.
    pub node: i64,
    /// Number of the reservation in that process.
    pub sequence: i64,
}

/// Use of one principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Name of the principal.
    pub principal: String,
    /// Spent in the current month, running calls counted at what is held for them.
    pub spent: Micros,
    /// Tool calls in the last minute.
    pub calls_minute: u32,
    /// Tool calls in the last 24 hours.
    pub calls_day: u32,
    /// Resource reads in the last minute.
    pub reads_minute: u32,
    /// Resource reads in the last 24 hours.
    pub reads_day: u32,
    /// Tool calls that are running.
    pub running: u32,
    /// Tool calls admitted since the store began to count for this principal.
    pub calls_total: u64,
    /// Resource reads admitted since then.
    pub reads_total: u64,
}

/// Reason for which no charge was counted.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// At least one would go over its limit. The reason is the limit that takes longest to clear,
    /// and the time to wait is until all of them have room. The end of running calls cannot be
    /// foreseen, so that [`Reason::Concurrency`](crate::Reason::Concurrency) is the reason where nothing
    /// else stands in the way.
    #[error("a limit has been reached")]
    Exhausted(#[source] Denial),
    /// There is no room for the counters of another principal.
    #[error("as many principals are counted as fit, and none of them can be forgotten yet")]
    Full,
    /// The counters are unavailable.
    #[error(transparent)]
    Unavailable(#[from] UnavailableError),
}

/// The counters cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("use cannot be counted")]
pub struct UnavailableError(#[source] pub Box<dyn Error + Send + Sync>);

/// Counters, which several processes may share.
pub trait QuotaStore: Send + Sync + 'static {
    /// Charges that have been counted and whose cost is not yet final.
    type Reservation: Debug + Send + 'static;

    /// Counts all of `charges` or none, atomically: two callers can never both take the last unit.
    /// What remains is told as of just after it.
    ///
    /// # Errors
    ///
    /// [`ReserveError`]; nothing was counted then.
    ///
    /// # Cancel safety
    ///
    /// A future dropped before it is ready must count nothing, or undo what it counted.
    fn reserve(
        &self,
        charges: Charges<'_>,
    ) -> impl Future<Output = Result<(Self::Reservation, Remaining), ReserveError>> + Send;

    /// Replaces the cost that was reserved by `actual`. Rates stay counted. It must not block and
    /// may be carried out later, since it is called from a `Drop`.
    fn settle(&self, reservation: Self::Reservation, actual: Micros);

    /// Names a reservation to a record of calls that can settle it; `None` where none can.
    fn name(&self, reservation: &Self::Reservation) -> Option<ReservationName> {
        let _ = reservation;
        None
    }

    /// Settles as [`settle`](Self::settle), for a reservation whose name was handed to the record together
    /// with `actual`: the cost is the record's to replace, and the call runs no longer.
    fn settled_on_record(&self, reservation: Self::Reservation, actual: Micros) {
        self.settle(reservation, actual);
    }

    /// Corrects what a use of this principal in the month of `at` has cost, from `counted` to `actual`, unless that month
    /// is over. Counters in the database of a record that says so itself ([`name`](Self::name)) do nothing here.
    fn correct(&self, charges: &Charges<'_>, at: Timestamp, counted: Micros, actual: Micros) {
        let _ = (charges, at, counted, actual);
    }

    /// Takes back all that was counted for a reservation, as if it had never been: cost, rates,
    /// cooldown and totals. What has expired since is left alone. Like [`settle`](Self::settle) it
    /// must not block, and may be carried out later.
    fn release(&self, reservation: Self::Reservation);

    /// Reads what is left of the limits in `charges`, counting nothing; its cost is ignored.
    ///
    /// # Errors
    ///
    /// [`UnavailableError`] when the counters cannot be reached.
    fn remaining(
        &self,
        charges: Charges<'_>,
    ) -> impl Future<Output = Result<Remaining, UnavailableError>> + Send;

    /// Reads what every known principal has used, in order of their names.
    ///
    /// # Errors
    ///
    /// [`UnavailableError`] when the counters cannot be reached.
    fn usage(
        &self,
        calendar: &Calendar,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Usage>, UnavailableError>> + Send;
}
