//! The counters of this server: its own, or those it shares with others.

use governance::{
    Calendar, Charges, MemoryQuota, MemoryReservation, Micros, QuotaStore, Remaining, ReserveError,
    Timestamp, UnavailableError, Usage,
};
use quota_postgres::{PostgresQuota, PostgresReservation};

/// Where use is counted.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one")]
pub(super) enum Quotas {
    /// In this process, from what the ledger remembers on.
    Memory(MemoryQuota),
    /// In a database, together with other servers.
    Postgres(PostgresQuota),
}

/// What is counted for one call, by whoever counts.
#[derive(Debug)]
pub(super) enum Reserved {
    Memory(MemoryReservation),
    Postgres(PostgresReservation),
}

impl Quotas {
    /// Whether use can be counted.
    pub(super) fn is_available(&self) -> bool {
        match self {
            Quotas::Memory(_) => true,
            Quotas::Postgres(quota) => quota.is_available(),
        }
    }

    /// Waits until everything is counted that was used.
    pub(super) async fn close(&self) {
        if let Quotas::Postgres(quota) = self {
            quota.close().await;
        }
    }
}

impl QuotaStore for Quotas {
    type Reservation = Reserved;

    async fn reserve(&self, charges: Charges<'_>) -> Result<(Reserved, Remaining), ReserveError> {
        Ok(match self {
            Quotas::Memory(quota) => {
                let (reserved, remaining) = quota.reserve(charges).await?;
                (Reserved::Memory(reserved), remaining)
            }
            Quotas::Postgres(quota) => {
                let (reserved, remaining) = quota.reserve(charges).await?;
                (Reserved::Postgres(reserved), remaining)
            }
        })
    }

    fn settle(&self, reservation: Reserved, actual: Micros) {
        match (self, reservation) {
            (Quotas::Memory(quota), Reserved::Memory(reserved)) => quota.settle(reserved, actual),
            (Quotas::Postgres(quota), Reserved::Postgres(reserved)) => {
                quota.settle(reserved, actual);
            }
            _ => unreachable!("a server has one set of counters for as long as it lives"),
        }
    }

    fn release(&self, reservation: Reserved) {
        match (self, reservation) {
            (Quotas::Memory(quota), Reserved::Memory(reserved)) => quota.release(reserved),
            (Quotas::Postgres(quota), Reserved::Postgres(reserved)) => quota.release(reserved),
            _ => unreachable!("a server has one set of counters for as long as it lives"),
        }
    }

    async fn remaining(&self, charges: Charges<'_>) -> Result<Remaining, UnavailableError> {
        match self {
            Quotas::Memory(quota) => quota.remaining(charges).await,
            Quotas::Postgres(quota) => quota.remaining(charges).await,
        }
    }

    async fn usage(
        &self,
        calendar: &Calendar,
        now: Timestamp,
    ) -> Result<Vec<Usage>, UnavailableError> {
        match self {
            Quotas::Memory(quota) => quota.usage(calendar, now).await,
            Quotas::Postgres(quota) => quota.usage(calendar, now).await,
        }
    }
}
