//! Use by the ledger's entries, which counters begin with or are compared with.

use std::error::Error;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use governance::{Kind, Micros, Policy, Timestamp};
use ledger::{PostgresOptions, PostgresReader, QueryError, ReadLedger, Recorder, Usage};
use mcp_server::system_clock;
use quota_postgres::{LowerCounter, Recorded, RecordedUse, UseRecord};
use serde_json::{Value, json};

use super::notes;

/// Most raised counters that a note names.
const MAX_NAMED: usize = 50;

/// The ledger in PostgreSQL as the record that counters beside it are compared with.
pub(crate) struct LedgerUse {
    database: PostgresOptions,
    policy: Arc<Policy>,
    recorder: OnceLock<Recorder>,
    raised: Mutex<Raised>,
}

/// Counters that were raised since the server began.
#[derive(Default)]
struct Raised {
    counters: usize,
    /// Counters that no entry reports yet.
    unsaid: Vec<Value>,
}

impl LedgerUse {
    pub(crate) fn new(database: PostgresOptions, policy: Arc<Policy>) -> Self {
        Self {
            database,
            policy,
            recorder: OnceLock::new(),
            raised: Mutex::default(),
        }
    }

    /// Puts on record what was raised before there was a recorder, and what will be.
    pub(crate) fn note_with(&self, recorder: Recorder) {
        let recorder = self.recorder.get_or_init(|| recorder);
        self.note(recorder);
    }

    /// Words on counters that were lower than the ledger, and have been raised since the server began.
    pub(crate) fn told(&self) -> Option<String> {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        (raised.counters != 0).then(|| {
            format!(
                "{} counters were lower than the ledger, and have been raised: see its notes of the kind \
                 counters_raised",
                raised.counters
            )
        })
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
        Ok(recorded_use(&mut reader, &self.policy)?)
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

/// Tests if it is what calls of a tool have cost by entries of their own, later: they are counted as calls already.
pub(crate) fn is_late_cost(used: &Usage) -> bool {
    ledger::is_late_cost(used.kind, &used.capability)
}

/// Prompts count as what is read.
pub(crate) fn kind_of(used: &Usage) -> Kind {
    match used.kind {
        ledger::Kind::Other if is_late_cost(used) => Kind::Tool,
        ledger::Kind::Tool => Kind::Tool,
        ledger::Kind::Resource | ledger::Kind::Other => Kind::Resource,
    }
}

/// Use on record in the ledger that counts by `policy`: towards budgets from `month` on.
pub(crate) fn used(
    reader: &mut dyn ReadLedger,
    policy: &Policy,
    now: Timestamp,
    month: Timestamp,
) -> Result<Vec<Usage>, QueryError> {
    let micros = |at: Timestamp| at.0.saturating_mul(1_000);
    let mut usage = Vec::new();
    for interval in policy.seed_intervals(now, month) {
        let between = micros(interval.from)..micros(interval.until);
        usage.extend(reader.usage_between(between, interval.resolution)?);
    }
    // What clients do to tasks counts towards nothing.
    usage.retain(|used| !used.capability.starts_with("task/"));
    Ok(usage)
}

/// Use on record in the ledger, to be compared with counters.
pub(crate) fn recorded_use(
    reader: &mut dyn ReadLedger,
    policy: &Policy,
) -> Result<RecordedUse, QueryError> {
    let now = Timestamp(system_clock() / 1_000);
    let usage = used(reader, policy, now, RecordedUse::month_from(policy, now))?;
    let calls = usage.into_iter().map(|used| Recorded {
        kind: kind_of(&used),
        calls: if is_late_cost(&used) { 0 } else { used.calls },
        principal: used.principal,
        capability: used.capability,
        at: Timestamp(used.latest_us / 1_000),
        ended: Micros(used.cost_micros.saturating_sub(used.open_micros)),
        open: Micros(used.open_micros),
        dearest: Micros(used.dearest_micros),
    });
    Ok(RecordedUse::new(policy, now, calls))
}
