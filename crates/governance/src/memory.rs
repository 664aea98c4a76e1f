use crate::{
    Ask, Calendar, Charges, Kind, Micros, Month, Policy, QuotaStore, Remaining, ReserveError,
    Timestamp, UnavailableError, Usage, meter::Meter,
};
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// The most principals that are counted at once unless told otherwise. One takes a few hundred
/// bytes, and at most about 10 KiB besides what capabilities with limits of their own add.
pub const DEFAULT_MAX_PRINCIPALS: usize = 10_000;

/// Locks that principals are spread over.
const SHARDS: usize = 16;

/// The least time between two searches for principals to forget, so that a flood of new names
/// cannot make every one of them search.
const SWEEP_INTERVAL_MS: u64 = 1_000;

type Shard = HashMap<Box<str>, Arc<Mutex<Meter>>>;

/// Counters in the memory of this process.
///
/// It tracks a bounded number of principals. When a new one does not fit, those are forgotten that
/// have no call running and nothing counted any more; if there is none, the newcomer is refused
/// (unless nothing limits it, in which case it goes uncounted).
#[derive(Debug)]
pub struct MemoryQuota {
    shards: [RwLock<Shard>; SHARDS],
    hasher: RandomState,
    tracked: AtomicUsize,
    max_principals: usize,
    swept_ms: AtomicU64,
}

/// Calls counted before this process began, as the ledger remembers them.
#[derive(Clone, Copy, Debug)]
pub struct Seed<'a> {
    /// Who called.
    pub principal: &'a str,
    /// What, as `kind/name`.
    pub capability: &'a str,
    /// Whether that is a tool or a resource.
    pub kind: Kind,
    /// When the last of them began.
    pub at: Timestamp,
    /// How many.
    pub calls: u32,
    /// What they cost together.
    pub cost: Micros,
}

/// A call counted in memory.
#[derive(Debug)]
pub struct MemoryReservation {
    /// Holding the meter keeps it from being forgotten. `None` when the call is not counted.
    counted: Option<(Arc<Mutex<Meter>>, Month)>,
    cost: Micros,
}

/// There is no room for another principal.
#[derive(Debug, thiserror::Error)]
#[error("{max_principals} principals are counted already, and none of them can be forgotten yet")]
struct FullError {
    max_principals: usize,
}

impl Default for MemoryQuota {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_PRINCIPALS)
    }
}

impl MemoryQuota {
    /// Counters for at most `max_principals` at once.
    #[must_use]
    pub fn new(max_principals: usize) -> Self {
        Self {
            shards: Default::default(),
            hasher: RandomState::new(),
            tracked: AtomicUsize::new(0),
            max_principals,
            swept_ms: AtomicU64::new(0),
        }
    }

    /// How many principals are counted at present.
    #[must_use]
    pub fn tracked_principals(&self) -> usize {
        self.tracked.load(Ordering::Relaxed)
    }

    /// Counts what happened before this process began, so that a restart frees nothing. Seeds too
    /// old to matter are ignored; their order does not matter.
    ///
    /// # Errors
    ///
    /// [`UnavailableError`] when there are more principals than fit; earlier seeds stay counted.
    pub fn seed<'a>(
        &self,
        policy: &Policy,
        now: Timestamp,
        seeds: impl IntoIterator<Item = Seed<'a>>,
    ) -> Result<(), UnavailableError> {
        for seed in seeds {
            let charges = policy.charges_of(Ask {
                principal: seed.principal,
                capability: seed.capability,
                kind: seed.kind,
                estimate: Some(seed.cost),
                now,
            });
            let meter = self.meter(&charges)?;
            lock(&meter).seed(&charges, seed.at, seed.calls);
        }
        Ok(())
    }

    fn shard(&self, principal: &str) -> &RwLock<Shard> {
        let hash = self.hasher.hash_one(principal) as usize;
        &self.shards[hash % SHARDS]
    }

    fn known(&self, principal: &str) -> Option<Arc<Mutex<Meter>>> {
        let shard = self
            .shard(principal)
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        shard.get(principal).cloned()
    }

    /// The principal's meter, made if there is room.
    fn meter(&self, charges: &Charges<'_>) -> Result<Arc<Mutex<Meter>>, UnavailableError> {
        if let Some(meter) = self.known(charges.principal) {
            return Ok(meter);
        }
        if !self.take_room() {
            self.sweep(charges.calendar, charges.now);
            if !self.take_room() {
                let error = FullError {
                    max_principals: self.max_principals,
                };
                return Err(UnavailableError(Box::new(error)));
            }
        }
        let mut shard = self
            .shard(charges.principal)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(meter) = shard.get(charges.principal) {
            self.tracked.fetch_sub(1, Ordering::Relaxed); // somebody else was quicker
            return Ok(Arc::clone(meter));
        }
        let meter = Arc::new(Mutex::new(Meter::new(charges.calendar, charges.now)));
        shard.insert(charges.principal.into(), Arc::clone(&meter));
        Ok(meter)
    }

    fn take_room(&self) -> bool {
        let more = |tracked| (tracked < self.max_principals).then_some(tracked + 1);
        self.tracked
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Forgets whoever can be forgotten, at most once a second.
    fn sweep(&self, calendar: &Calendar, now: Timestamp) {
        let swept_ms = self.swept_ms.load(Ordering::Relaxed);
        if now.0.abs_diff(swept_ms) < SWEEP_INTERVAL_MS
            || self
                .swept_ms
                .compare_exchange(swept_ms, now.0, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            let before = shard.len();
            // Nobody can get hold of a meter while its shard is locked, so one that nobody holds
            // now has no call running and none about to be counted.
            shard.retain(|_, meter| {
                Arc::strong_count(meter) != 1 || !lock(meter).is_forgettable(calendar, now)
            });
            self.tracked
                .fetch_sub(before - shard.len(), Ordering::Relaxed);
        }
    }
}

impl QuotaStore for MemoryQuota {
    type Reservation = MemoryReservation;

    async fn reserve(
        &self,
        charges: Charges<'_>,
    ) -> Result<(MemoryReservation, Remaining), ReserveError> {
        let meter = match self.meter(&charges) {
            Ok(meter) => meter,
            Err(_) if is_unlimited(&charges) => {
                let uncounted = MemoryReservation {
                    counted: None,
                    cost: charges.cost,
                };
                return Ok((uncounted, Remaining::default()));
            }
            Err(error) => return Err(error.into()),
        };
        let (month, remaining) = lock(&meter).reserve(&charges)?;
        Ok((
            MemoryReservation {
                counted: Some((meter, month)),
                cost: charges.cost,
            },
            remaining,
        ))
    }

    fn settle(&self, reservation: MemoryReservation, actual: Micros) {
        if let Some((meter, month)) = reservation.counted {
            lock(&meter).settle(month, reservation.cost, actual);
        }
    }

    async fn remaining(&self, charges: Charges<'_>) -> Result<Remaining, UnavailableError> {
        Ok(match self.known(charges.principal) {
            Some(meter) => lock(&meter).remaining(&charges),
            // Asking must not take up room.
            None => Meter::new(charges.calendar, charges.now).remaining(&charges),
        })
    }

    async fn usage(
        &self,
        calendar: &Calendar,
        now: Timestamp,
    ) -> Result<Vec<Usage>, UnavailableError> {
        let mut all = Vec::with_capacity(self.tracked_principals());
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            all.extend(
                shard
                    .iter()
                    .map(|(principal, meter)| lock(meter).usage(principal, calendar, now)),
            );
        }
        all.sort_unstable_by(|one, other| one.principal.cmp(&other.principal));
        Ok(all)
    }
}

fn is_unlimited(charges: &Charges<'_>) -> bool {
    charges.budget.is_none()
        && charges.rates.is_unlimited()
        && charges.capability_rates.is_unlimited()
}

/// A meter is whole between any two statements that could panic, so a poisoned one can be used.
fn lock(meter: &Mutex<Meter>) -> MutexGuard<'_, Meter> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}
