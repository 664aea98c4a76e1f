//! The counters of this server: its own, or those it shares with others.

use std::sync::Arc;

use governance::{
    Calendar, Charges, Crowd, MemoryQuota, MemoryReservation, Micros, QuotaStore, Remaining,
    ReservationName, ReserveError, Timestamp, UnavailableError, Usage,
};
use quota_postgres::{PostgresQuota, PostgresReservation};

use super::budgets::Budgets;
use super::ledger_use::LedgerUse;

/// Counters of use, and budgets.
#[derive(Debug)]
pub(super) struct Quotas {
    counters: Counters,
    /// Principals that have used up much of a budget.
    budgets: Budgets,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one")]
enum Counters {
    /// In this process, from what the ledger remembers on.
    Memory(MemoryQuota),
    /// In a database, together with other servers; compared with the ledger there by a server, and not
    /// by a command that only asks.
    Postgres(PostgresQuota, Option<Arc<LedgerUse>>),
}

/// Reservation for one call, by either kind of counters.
#[derive(Debug)]
pub(super) enum Reserved {
    Memory(MemoryReservation),
    Postgres(PostgresReservation),
}

impl Quotas {
    /// Counts in this process.
    pub(super) fn memory(quota: MemoryQuota) -> Self {
        Self {
            counters: Counters::Memory(quota),
            budgets: Budgets::default(),
        }
    }

    /// Counts in a database.
    pub(super) fn postgres(quota: PostgresQuota, record: Option<Arc<LedgerUse>>) -> Self {
        Self {
            counters: Counters::Postgres(quota, record),
            budgets: Budgets::default(),
        }
    }

    /// Principals that have used up much of a budget.
    pub(super) fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Returns true while use can be counted.
    pub(super) fn is_available(&self) -> bool {
        match &self.counters {
            Counters::Memory(_) => true,
            Counters::Postgres(quota, _) => quota.is_available(),
        }
    }

    /// Words on counters that were lower than the ledger, and have been raised since the server began.
    pub(super) fn raised(&self) -> Option<String> {
        let Counters::Postgres(_, Some(record)) = &self.counters else {
            return None;
        };
        record.told()
    }

    /// Use of the table of counted clients, if it has a bound.
    pub(super) fn crowd(&self) -> Option<Crowd> {
        match &self.counters {
            Counters::Memory(quota) => Some(quota.crowd()),
            Counters::Postgres(..) => None,
        }
    }

    /// Waits until everything is counted that was used.
    pub(super) async fn close(&self) {
        if let Counters::Postgres(quota, _) = &self.counters {
            quota.close().await;
        }
    }
}

impl QuotaStore for Quotas {
    type Reservation = Reserved;

    async fn reserve(&self, charges: Charges<'_>) -> Result<(Reserved, Remaining), ReserveError> {
        let principal = charges.principal;
        let reserved = match &self.counters {
            Counters::Memory(quota) => {
                let reserved = quota.reserve(charges).await;
                reserved.map(|(reserved, left)| (Reserved::Memory(reserved), left))
            }
            Counters::Postgres(quota, _) => {
                let reserved = quota.reserve(charges).await;
                reserved.map(|(reserved, left)| (Reserved::Postgres(reserved), left))
            }
        };
        match &reserved {
            Ok((_, remaining)) => self.budgets.admitted(principal, remaining),
            Err(ReserveError::Exhausted(denial)) => self.budgets.refused(principal, denial),
            Err(ReserveError::Full | ReserveError::Unavailable(_)) => {}
        }
        reserved
    }

    fn settle(&self, reservation: Reserved, actual: Micros) {
        match (&self.counters, reservation) {
            (Counters::Memory(quota), Reserved::Memory(reserved)) => quota.settle(reserved, actual),
            (Counters::Postgres(quota, _), Reserved::Postgres(reserved)) => {
                quota.settle(reserved, actual);
            }
            _ => unreachable!("a server has one set of counters for as long as it lives"),
        }
    }

    fn name(&self, reservation: &Reserved) -> Option<ReservationName> {
        match (&self.counters, reservation) {
            (Counters::Postgres(quota, _), Reserved::Postgres(reserved)) => quota.name(reserved),
            _ => None,
        }
    }

    fn settled_on_record(&self, reservation: Reserved, actual: Micros) {
        match (&self.counters, reservation) {
            (Counters::Postgres(quota, _), Reserved::Postgres(reserved)) => {
                quota.settled_on_record(reserved, actual);
            }
            (_, reservation) => self.settle(reservation, actual),
        }
    }

    fn correct(&self, charges: &Charges<'_>, at: Timestamp, counted: Micros, actual: Micros) {
        match &self.counters {
            Counters::Memory(quota) => quota.correct(charges, at, counted, actual),
            Counters::Postgres(quota, _) => quota.correct(charges, at, counted, actual),
        }
    }

    fn release(&self, reservation: Reserved) {
        match (&self.counters, reservation) {
            (Counters::Memory(quota), Reserved::Memory(reserved)) => quota.release(reserved),
            (Counters::Postgres(quota, _), Reserved::Postgres(reserved)) => quota.release(reserved),
            _ => unreachable!("a server has one set of counters for as long as it lives"),
        }
    }

    async fn remaining(&self, charges: Charges<'_>) -> Result<Remaining, UnavailableError> {
        match &self.counters {
            Counters::Memory(quota) => quota.remaining(charges).await,
            Counters::Postgres(quota, _) => quota.remaining(charges).await,
        }
    }

    async fn usage(
        &self,
        calendar: &Calendar,
        now: Timestamp,
    ) -> Result<Vec<Usage>, UnavailableError> {
        match &self.counters {
            Counters::Memory(quota) => quota.usage(calendar, now).await,
            Counters::Postgres(quota, _) => quota.usage(calendar, now).await,
        }
    }
}
