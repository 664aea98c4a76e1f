//! Bounds on frames that carry nothing.

use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Seconds' worth of an [`Allowance`] that can be used at once.
const BURST_SECONDS: u32 = 10;

/// Shortest time between two lines of the log about floods.
const INTERVAL: Duration = Duration::from_secs(10);

/// A number of things that a peer may do on one connection: so many per second in the long run, and
/// ten times as many at once. The clock is read only when there is nothing left.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    per_second: u32,
    left: u32,
    filled: Instant,
}

impl Allowance {
    /// Makes an allowance of `per_second`, with all of it left.
    pub fn new(per_second: u32) -> Self {
        Self {
            per_second,
            left: per_second.saturating_mul(BURST_SECONDS),
            filled: Instant::now(),
        }
    }

    /// Uses `count` of it; whether there was so much.
    pub fn spend(&mut self, count: u32) -> bool {
        if self.left < count {
            self.fill(Instant::now());
        }
        let left = self.left.checked_sub(count);
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    /// Adds `count` to what is left, up to what can be used at once.
    pub fn earn(&mut self, count: u32) {
        let most = self.per_second.saturating_mul(BURST_SECONDS);
        self.left = self.left.saturating_add(count).min(most);
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_millis();
        let count = u32::try_from(passed * u128::from(self.per_second) / 1000);
        let count = count.unwrap_or(u32::MAX);
        if 0 < count {
            self.filled = now;
            self.earn(count);
        }
    }
}

/// Connections that were ended because their peers sent too many frames without content. Each is
/// counted; the first is logged, and further ones every ten seconds at most.
#[derive(Debug, Default)]
pub struct Floods {
    ended: AtomicU64,
    told: Mutex<Option<Told>>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    at: Instant,
    ended: u64,
}

impl Floods {
    /// Counts a connection that was ended, and logs it if it is time to. `peer` is the address or the
    /// principal at its other end.
    pub fn ended(&self, protocol: &'static str, peer: &dyn fmt::Debug) {
        if let Some(connections) = self.note(Instant::now()) {
            tracing::warn!(
                protocol,
                ?peer,
                connections,
                "a connection was ended: its client sent too many frames that carry nothing; further ones are \
                 told every ten seconds at most"
            );
        }
    }

    /// Number of connections that were ended.
    pub fn count(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Number of connections for the next line of the log, if one is due.
    fn note(&self, now: Instant) -> Option<u64> {
        let ended = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match *told {
            Some(told) if now.saturating_duration_since(told.at) < INTERVAL => return None,
            before => before.map_or(0, |it| it.ended),
        };
        *told = Some(Told { at: now, ended });
        Some(ended.saturating_sub(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_used_up_at_once_and_comes_back_with_time() {
        let mut allowance = Allowance::new(100);
        let start = allowance.filled;
        assert!((0..1000).all(|_| allowance.spend(1)));
        allowance.filled = Instant::now();
        assert!(!allowance.spend(100));
        allowance.left = 0;
        allowance.fill(start + Duration::from_secs(3600));
        assert_eq!(allowance.left, 1000, "never more than ten seconds' worth");
        assert!(allowance.spend(998));
        allowance.earn(1);
        assert!(allowance.spend(3));
    }

    #[test]
    fn floods_are_logged_at_most_every_ten_seconds() {
        let floods = Floods::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(floods.note(start), Some(1));
        assert!((0..98).all(|_| floods.note(after(9)).is_none()));
        assert_eq!(floods.note(after(10)), Some(99));
        assert_eq!(floods.count(), 100);
    }
}
