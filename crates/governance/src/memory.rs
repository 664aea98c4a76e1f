//! Counters in the memory of a process.

use crate::{
    ask::Ask,
    denial::Remaining,
    meter::{Counted, Meter},
    money::Micros,
    policy::Policy,
    quota::{Charges, QuotaStore, ReserveError, UnavailableError, Usage},
    spec::Kind,
    time::{Calendar, Timestamp},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
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

/// Counts of running calls that are kept before those of idle capabilities are forgotten.
const MAX_IDLE: usize = 1_024;

type Shard = foldhash::HashMap<Box<str>, Entry>;

/// Counters in the memory of this process.
///
/// It tracks a bounded number of principals. When a new one does not fit, those are forgotten that
/// have no call running and nothing counted any more that is limited; if there is none, the newcomer
/// is refused (unless nothing limits it, in which case it goes uncounted). Nothing that is limited is
/// ever forgotten to make room. Principals that the policy names always fit, so that no flood of
/// strangers can lock them out.
#[derive(Debug)]
pub struct MemoryQuota {
    shards: [RwLock<Shard>; SHARDS],
    /// Principals that the policy did not name when they came.
    strangers: AtomicUsize,
    max_strangers: usize,
    swept_ms: AtomicU64,
    /// Time of the last refusal of a newcomer, and their number.
    refused_ms: AtomicU64,
    refused: AtomicU64,
    /// Running uses of each capability that limits them; of some, none any more. They
    /// become more only while this is locked, after a meter.
    running: Mutex<HashMap<Box<str>, Arc<AtomicU32>>>,
}

#[derive(Debug)]
struct Entry {
    meter: Arc<Mutex<Meter>>,
    is_stranger: bool,
}

/// Calls counted before this process began, as the ledger remembers them.
#[derive(Clone, Copy, Debug)]
pub struct Seed<'a> {
    /// Name of the principal.
    pub principal: &'a str,
    /// Capability, as `kind/name`.
    pub capability: &'a str,
    /// Kind of use, which selects the limits that count.
    pub kind: Kind,
    /// Start of the last of them.
    pub at: Timestamp,
    /// Number of calls.
    pub calls: u32,
    /// Cost of all of them.
    pub cost: Micros,
    /// Cost of the dearest of them.
    pub dearest: Micros,
}

/// A call counted in memory.
#[derive(Debug)]
pub struct MemoryReservation {
    /// Holding the meter keeps it from being forgotten. `None` when the call is not counted.
    counted: Option<(Arc<Mutex<Meter>>, Counted)>,
    /// The count of the capability, if it limits how many may be running. Holding it keeps it from
    /// being forgotten.
    running: Option<Arc<AtomicU32>>,
}

/// Use of the table of counted principals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// Principals that are counted and that the policy did not name when they came.
    pub strangers: usize,
    /// Number of such principals that fit.
    pub max_strangers: usize,
    /// Newcomers refused for want of room.
    pub refused: u64,
    /// Time of the last such refusal; zero if there was none.
    pub refused_at: Timestamp,
}

impl Default for MemoryQuota {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_PRINCIPALS)
    }
}

impl MemoryQuota {
    /// Counters for at most `max_strangers` principals at once, besides those that the policy names.
    #[must_use]
    pub fn new(max_strangers: usize) -> Self {
        Self {
            shards: Default::default(),
            strangers: AtomicUsize::new(0),
            max_strangers,
            swept_ms: AtomicU64::new(0),
            refused_ms: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            running: Mutex::default(),
        }
    }

    /// Number of principals that are counted at present.
    #[must_use]
    pub fn tracked_principals(&self) -> usize {
        let sizes = self.shards.iter().map(|shard| {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.len()
        });
        sizes.sum()
    }

    /// Use of the table of principals.
    #[must_use]
    pub fn crowd(&self) -> Crowd {
        Crowd {
            strangers: self.strangers.load(Ordering::Relaxed),
            max_strangers: self.max_strangers,
            refused: self.refused.load(Ordering::Relaxed),
            refused_at: Timestamp(self.refused_ms.load(Ordering::Relaxed)),
        }
    }

    /// Counts what happened before this process began, so that a restart frees nothing. Seeds too
    /// old to matter are ignored; their order does not matter. All principals fit of which something
    /// counts, however many they are: newcomers do not until there are few enough.
    pub fn seed<'a>(
        &self,
        policy: &Policy,
        now: Timestamp,
        seeds: impl IntoIterator<Item = Seed<'a>>,
    ) {
        for seed in seeds {
            let charges = Charges {
                cost: seed.cost,
                may_cost: seed.cost != Micros::ZERO,
                ..policy.charges_of(Ask {
                    kind: seed.kind,
                    ..Ask::new(seed.principal, seed.capability, now)
                })
            };
            let estimate = policy.estimate(seed.capability, seed.kind);
            let known = self.known(seed.principal);
            let meter = known.unwrap_or_else(|| {
                if !charges.is_named {
                    self.strangers.fetch_add(1, Ordering::Relaxed);
                }
                self.add(&charges)
            });
            let costs = (estimate, seed.dearest);
            lock(&meter).seed(&charges, costs, seed.at, seed.calls);
        }
        self.forget(policy.calendar(), now);
    }

    fn shard(&self, principal: &str) -> &RwLock<Shard> {
        // Only how often callers wait for each other depends on it: any spreading does, the cheapest included.
        let end = principal.bytes().rev().take(4);
        let sum = end.fold(principal.len(), |sum, byte| sum * 31 + usize::from(byte));
        &self.shards[sum % SHARDS]
    }

    fn known(&self, principal: &str) -> Option<Arc<Mutex<Meter>>> {
        let shard = self
            .shard(principal)
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        shard.get(principal).map(|entry| Arc::clone(&entry.meter))
    }

    /// The principal's meter, made if there is room.
    fn meter(&self, charges: &Charges<'_>) -> Option<Arc<Mutex<Meter>>> {
        if let Some(meter) = self.known(charges.principal) {
            return Some(meter);
        }
        if !charges.is_named && !self.take_room() {
            self.sweep(charges.calendar, charges.now);
            if !self.take_room() {
                return None;
            }
        }
        Some(self.add(charges))
    }

    /// A meter for a principal that has none; a stranger's room has been taken.
    fn add(&self, charges: &Charges<'_>) -> Arc<Mutex<Meter>> {
        let is_stranger = !charges.is_named;
        let mut shard = self
            .shard(charges.principal)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = shard.get(charges.principal) {
            if is_stranger {
                self.strangers.fetch_sub(1, Ordering::Relaxed); // somebody else was quicker
            }
            return Arc::clone(&entry.meter);
        }
        let meter = Arc::new(Mutex::new(Meter::new(charges.calendar, charges.now)));
        let entry = Entry {
            meter: Arc::clone(&meter),
            is_stranger,
        };
        shard.insert(charges.principal.into(), entry);
        meter
    }

    fn take_room(&self) -> bool {
        let more = |strangers| (strangers < self.max_strangers).then_some(strangers + 1);
        self.strangers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Forgets the principals that can be forgotten, at most once a second.
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
        self.forget(calendar, now);
    }

    fn forget(&self, calendar: &Calendar, now: Timestamp) {
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            // Nobody can get hold of a meter while its shard is locked, so one that nobody holds
            // now has no call running and none about to be counted.
            let mut forgotten = 0;
            shard.retain(|_, entry| {
                let stays = Arc::strong_count(&entry.meter) != 1
                    || !lock(&entry.meter).is_forgettable(calendar, now);
                forgotten += usize::from(!stays && entry.is_stranger);
                stays
            });
            self.strangers.fetch_sub(forgotten, Ordering::Relaxed);
        }
    }

    /// The running uses of all capabilities that limit them.
    fn running(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<AtomicU32>>> {
        lock(&self.running)
    }

    fn running_of(&self, charges: &Charges<'_>) -> u32 {
        if charges.capability_max_running.is_none() {
            return 0;
        }
        let running = self.running();
        let count = running.get(charges.capability);
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl MemoryQuota {
    pub(crate) fn reserve_now(
        &self,
        charges: Charges<'_>,
    ) -> Result<(MemoryReservation, Remaining), ReserveError> {
        let meter = match self.meter(&charges) {
            Some(meter) => meter,
            None if is_unlimited(&charges) => {
                let uncounted = MemoryReservation {
                    counted: None,
                    running: None,
                };
                return Ok((uncounted, Remaining::default()));
            }
            None => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                self.refused_ms.store(charges.now.0, Ordering::Relaxed);
                return Err(ReserveError::Full);
            }
        };
        if charges.capability_max_running.is_none() {
            let (counted, remaining) = lock(&meter).reserve(&charges, 0)?;
            let reservation = MemoryReservation {
                counted: Some((meter, counted)),
                running: None,
            };
            return Ok((reservation, remaining));
        }
        let mut guard = lock(&meter);
        let mut running = self.running();
        let known = running.get(charges.capability).map(Arc::clone);
        let before = known
            .as_ref()
            .map_or(0, |count| count.load(Ordering::Relaxed));
        let (counted, remaining) = guard.reserve(&charges, before)?;
        let count = known.unwrap_or_else(|| {
            if MAX_IDLE <= running.len() {
                running.retain(|_, count| 1 < Arc::strong_count(count));
            }
            let count = Arc::default();
            running.insert(charges.capability.into(), Arc::clone(&count));
            count
        });
        count.fetch_add(1, Ordering::Relaxed);
        drop(running);
        drop(guard);
        let reservation = MemoryReservation {
            counted: Some((meter, counted)),
            running: Some(count),
        };
        Ok((reservation, remaining))
    }

    pub(crate) fn remaining_now(&self, charges: &Charges<'_>) -> Remaining {
        match self.known(charges.principal) {
            Some(meter) => {
                let mut meter = lock(&meter);
                let running = self.running_of(charges);
                meter.remaining(charges, running)
            }
            // Asking must not take up room.
            None => Meter::new(charges.calendar, charges.now)
                .remaining(charges, self.running_of(charges)),
        }
    }
}

impl QuotaStore for MemoryQuota {
    type Reservation = MemoryReservation;

    async fn reserve(
        &self,
        charges: Charges<'_>,
    ) -> Result<(MemoryReservation, Remaining), ReserveError> {
        self.reserve_now(charges)
    }

    fn settle(&self, reservation: MemoryReservation, actual: Micros) {
        no_longer_running(reservation.running);
        if let Some((meter, counted)) = reservation.counted {
            lock(&meter).settle(&counted, actual);
        }
    }

    fn correct(&self, charges: &Charges<'_>, at: Timestamp, counted: Micros, actual: Micros) {
        let known = self.known(charges.principal);
        let meter = known.unwrap_or_else(|| {
            // What has been used counts, however many are counted already.
            if !charges.is_named {
                self.strangers.fetch_add(1, Ordering::Relaxed);
            }
            self.add(charges)
        });
        lock(&meter).correct(charges, at, counted, actual);
    }

    fn release(&self, reservation: MemoryReservation) {
        no_longer_running(reservation.running);
        if let Some((meter, counted)) = reservation.counted {
            lock(&meter).release(&counted);
        }
    }

    async fn remaining(&self, charges: Charges<'_>) -> Result<Remaining, UnavailableError> {
        Ok(self.remaining_now(&charges))
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
                    .map(|(principal, entry)| lock(&entry.meter).usage(principal, calendar, now)),
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
        && charges.cooldown.is_none()
        && charges.max_running.is_none()
        && charges.capability_max_running.is_none()
}

fn no_longer_running(count: Option<Arc<AtomicU32>>) {
    if let Some(count) = count {
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Locks. What is locked here is whole between any two statements that could panic, so it can be used
/// after one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
