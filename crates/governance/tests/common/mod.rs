//! Helpers that the tests share.
#![allow(dead_code, reason = "not every test file needs all of it")]

pub(crate) mod made;

use governance::{
    Ask, Calendar, Charges, Denial, Governor, Kind, MemoryQuota, MemoryReservation, Micros, Permit,
    Policy, PolicySpec, Quota, QuotaStore, Remaining, ReservationName, ReserveError, Rules,
    Timestamp, UnavailableError, Usage,
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const DAY: u64 = 24 * 60 * MINUTE;

/// 2026-01-15T00:00:00Z.
pub(crate) const JANUARY: u64 = 1_768_435_200_000;
/// 2026-02-01T00:00:00Z.
pub(crate) const FEBRUARY: u64 = 1_769_904_000_000;

pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the memory store never waits"),
    }
}

pub(crate) fn ask(principal: &str, now: u64) -> Ask<'_> {
    Ask {
        principal,
        roles: &[],
        capability: "tool/x",
        kind: Kind::Tool,
        estimate: Some(Micros(10)),
        now: Timestamp(now),
        arguments: None,
    }
}

pub(crate) fn spec(quota: Quota) -> PolicySpec {
    PolicySpec {
        default: Rules {
            quota,
            ..Rules::default()
        },
        ..PolicySpec::default()
    }
}

pub(crate) fn governor(spec: PolicySpec) -> Governor<MemoryQuota> {
    Governor::new(
        Policy::new(spec).expect("the policy is sound"),
        Arc::default(),
    )
}

pub(crate) fn admit(
    governor: &Governor<MemoryQuota>,
    ask: Ask<'_>,
) -> Result<Permit<MemoryQuota>, Denial> {
    ready(governor.admit(ask))
}

/// Counters as other processes share them: they can fail to answer, and a record of calls can settle
/// what is reserved.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) quota: MemoryQuota,
    pub(crate) is_silent: AtomicBool,
    /// Settlements on record, in the order of the calls' ends.
    pub(crate) on_record: Mutex<Vec<Micros>>,
}

impl QuotaStore for Shared {
    type Reservation = MemoryReservation;

    async fn reserve(
        &self,
        charges: Charges<'_>,
    ) -> Result<(MemoryReservation, Remaining), ReserveError> {
        if self.is_silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.quota.reserve(charges).await
    }

    fn settle(&self, reservation: MemoryReservation, actual: Micros) {
        self.quota.settle(reservation, actual);
    }

    fn name(&self, _: &MemoryReservation) -> Option<ReservationName> {
        Some(ReservationName {
            principal: "a".into(),
            node: 1,
            sequence: 2,
        })
    }

    fn settled_on_record(&self, reservation: MemoryReservation, actual: Micros) {
        self.on_record.lock().unwrap().push(actual);
        self.quota.settle(reservation, actual);
    }

    fn release(&self, reservation: MemoryReservation) {
        self.quota.release(reservation);
    }

    async fn remaining(&self, charges: Charges<'_>) -> Result<Remaining, UnavailableError> {
        self.quota.remaining(charges).await
    }

    async fn usage(
        &self,
        calendar: &Calendar,
        now: Timestamp,
    ) -> Result<Vec<Usage>, UnavailableError> {
        self.quota.usage(calendar, now).await
    }
}
