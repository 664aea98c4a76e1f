//! Charges as they travel to the database.

use crate::{error::RequestError, options::TimeSource};
use governance::{Charges, Kind, Micros, Month, RateLimits, Timestamp};
use std::{sync::Arc, time::Duration};

/// The longest name of a principal or a capability, in bytes. An index of the database takes rows
/// of about 2,700.
const MAX_NAME: usize = 1_024;

/// Far beyond any date, and far enough from overflow that a window can be added.
const MAX_MILLIS: i64 = i64::MAX / 4;

/// Request about one principal and one capability.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) principal: Arc<str>,
    pub(crate) capability: Box<str>,
    pub(crate) is_read: bool,
    pub(crate) cost: Micros,
    pub(crate) may_cost: bool,
    pub(crate) budget: Option<Micros>,
    pub(crate) rates: RateLimits,
    pub(crate) own: RateLimits,
    pub(crate) cooldown: Option<Duration>,
    pub(crate) max_running: Option<u32>,
    pub(crate) capability_max_running: Option<u32>,
    pub(crate) now_ms: Option<i64>,
    /// Beginnings of the last month, this one, the next one and the one after, by the node's clock.
    pub(crate) edges: [i64; 4],
}

impl Request {
    pub(crate) fn new(charges: &Charges<'_>, time: TimeSource) -> Result<Self, RequestError> {
        let fits = |name: &str| name.len() <= MAX_NAME && !name.contains('\0');
        if !fits(charges.principal) || !fits(charges.capability) {
            return Err(RequestError::Name { max: MAX_NAME });
        }
        Ok(Self {
            principal: charges.principal.into(),
            capability: charges.capability.into(),
            is_read: charges.kind == Kind::Resource,
            cost: charges.cost,
            may_cost: charges.may_cost,
            budget: charges.budget,
            rates: charges.rates,
            own: charges.capability_rates,
            cooldown: charges.cooldown,
            max_running: charges.max_running,
            capability_max_running: charges.capability_max_running,
            now_ms: (time == TimeSource::Callers).then(|| millis(charges.now)),
            edges: edges(charges),
        })
    }
}

fn edges(charges: &Charges<'_>) -> [i64; 4] {
    let this = charges.calendar.month_of(charges.now);
    let of = |at: u64| -> Month { charges.calendar.month_of(Timestamp(at)) };
    let last = of(this.start.0.saturating_sub(1));
    let next = of(this.end.0);
    [last.start, this.start, next.start, next.end].map(millis)
}

/// A time as the database keeps it.
pub(crate) fn millis(at: Timestamp) -> i64 {
    i64::try_from(at.0).map_or(MAX_MILLIS, |at| at.min(MAX_MILLIS))
}

/// An amount as the database keeps it: beyond 9 trillion units all are the same.
pub(crate) fn amount(cost: Micros) -> i64 {
    i64::try_from(cost.0).unwrap_or(i64::MAX)
}

/// A length of time as the database keeps it, rounded up to what a clock can tell.
pub(crate) fn length(of: Duration) -> i64 {
    let millis = of.as_nanos().div_ceil(1_000_000);
    i64::try_from(millis).map_or(MAX_MILLIS, |of| of.min(MAX_MILLIS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use governance::Calendar;

    fn request(principal: &str, now: u64) -> Result<Request, RequestError> {
        let charges = Charges {
            principal,
            is_named: false,
            capability: "tool/x",
            kind: Kind::Tool,
            cost: Micros::ZERO,
            may_cost: false,
            budget: None,
            rates: RateLimits::default(),
            capability_rates: RateLimits::default(),
            cooldown: None,
            max_running: None,
            capability_max_running: None,
            calendar: &Calendar::utc(),
            now: Timestamp(now),
        };
        Request::new(&charges, TimeSource::Callers)
    }

    #[test]
    fn edges_are_those_of_three_months_in_order_at_any_time() {
        let january = 1_768_435_200_000;
        let edges = request("a", january).unwrap().edges;
        assert_eq!(
            edges,
            [
                1_764_547_200_000,
                1_767_225_600_000,
                1_769_904_000_000,
                1_772_323_200_000
            ]
        );
        for now in [0, 1, january, u64::MAX / 8, u64::MAX] {
            let request = request("a", now).unwrap();
            assert!(request.edges.is_sorted(), "{now}: {request:?}");
        }
    }

    #[test]
    fn names_that_cannot_be_stored_are_refused() {
        assert!(request(&"x".repeat(MAX_NAME), 0).is_ok());
        assert!(request(&"x".repeat(MAX_NAME + 1), 0).is_err());
        assert!(request("a\0b", 0).is_err());
    }
}
