//! The counters of this server: its own, or those it shares with others.

use std::error::Error;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use governance::{
    Calendar, Charges, Crowd, MemoryQuota, MemoryReservation, Micros, Policy, QuotaStore,
    Remaining, ReservationName, ReserveError, Timestamp, UnavailableError, Usage,
};
use ledger::{PostgresOptions, PostgresReader, Recorder};
use quota_postgres::{LowerCounter, PostgresQuota, PostgresReservation, RecordedUse, UseRecord};
use serde_json::{Value, json};

use super::budgets::Budgets;
use super::{notes, store};

/// Where use is counted.
#[derive(Debug)]
pub(super) struct Quotas {
    counters: Counters,
    /// Who has used up much of a budget.
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

/// Most raised counters that a note names.
const MAX_NAMED: usize = 50;

/// The ledger in PostgreSQL as the record that counters beside it are compared with.
pub(super) struct LedgerUse {
    database: PostgresOptions,
    policy: Arc<Policy>,
    recorder: OnceLock<Recorder>,
    raised: Mutex<Raised>,
}

/// Counters that were raised since the server began.
#[derive(Default)]
struct Raised {
    counters: usize,
    /// What no entry says yet.
    unsaid: Vec<Value>,
}

impl LedgerUse {
    pub(super) fn new(database: PostgresOptions, policy: Arc<Policy>) -> Self {
        Self {
            database,
            policy,
            recorder: OnceLock::new(),
            raised: Mutex::default(),
        }
    }

    /// Puts on record what was raised before there was a recorder, and what will be.
    pub(super) fn note_with(&self, recorder: Recorder) {
        let recorder = self.recorder.get_or_init(|| recorder);
        self.note(recorder);
    }

    fn note(&self, recorder: &Recorder) {
        let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        for detail in raised.unsaid.drain(..) {
            notes::counters_raised(recorder, &detail);
        }
    }
}

impl UseRecord for LedgerUse {
    fn read(&self) -> Result<RecordedUse, Box<dyn Error + Send + Sync>> {
        let mut reader = PostgresReader::open(&self.database)?;
        Ok(store::recorded_use(&mut reader, &self.policy)?)
    }

    fn raised(&self, lower: &[LowerCounter]) {
        // Those of single tools are also lower when a tool has limits of its own since yesterday.
        let (changed, new): (Vec<_>, Vec<_>) = lower.iter().partition(|it| it.is_of_client());
        for counter in new {
            tracing::info!(%counter, "a counter was raised to what the ledger has");
        }
        if changed.is_empty() {
            return;
        }
        for counter in changed.iter().take(MAX_NAMED) {
            tracing::error!(%counter, "a counter was lower than the ledger, and has been raised");
        }
        let named = changed.iter().take(MAX_NAMED).map(|it| {
            json!({ "client": it.principal, "what": it.what, "counted": it.counted, "recorded": it.recorded })
        });
        let detail = json!({ "raised": changed.len(), "counters": named.collect::<Vec<_>>() });
        {
            let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
            raised.counters += changed.len();
            raised.unsaid.push(detail);
        }
        if let Some(recorder) = self.recorder.get() {
            self.note(recorder);
        }
    }
}

impl std::fmt::Debug for LedgerUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerUse").finish_non_exhaustive()
    }
}

/// What is counted for one call, by whoever counts.
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

    /// Who has used up much of a budget.
    pub(super) fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Whether use can be counted.
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
        let raised = record.raised.lock().unwrap_or_else(PoisonError::into_inner);
        (raised.counters != 0).then(|| {
            format!(
                "{} counters were lower than the ledger, and have been raised: see its notes of the kind \
                 counters_raised",
                raised.counters
            )
        })
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
