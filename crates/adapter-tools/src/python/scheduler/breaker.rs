//! Keeps calls away from tools that end their workers.

use super::Key;
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};
use tokio::time::Instant;

/// Number of workers that a tool has to end, for certain, before its calls are refused.
const LOSSES: u8 = 3;
/// Within which time.
const WINDOW: Duration = Duration::from_secs(60);
/// Time for which calls are refused the first time; doubled each time that a trial fails.
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// The longest that calls are refused before another trial.
const MAX_WAIT: Duration = Duration::from_secs(5 * 60);
/// Time after which to retry while a trial runs, whose end is not known.
const TRIAL: Duration = Duration::from_secs(1);

/// Weight of a loss against a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspicion {
    /// The tool ran alone, or held the worker's only thread, or did not stop.
    Certain,
    /// The tool was one of several, which may well be innocent. Two of these count as one.
    Shared,
}

impl Suspicion {
    const fn weight(self) -> u8 {
        match self {
            Self::Certain => 2,
            Self::Shared => 1,
        }
    }
}

/// Losses held against tools. Tools that never lost a worker are not in it.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    entries: HashMap<Key, Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The losses of the window; never more than it takes to trip.
    losses: VecDeque<(Instant, Suspicion)>,
    tripped: Option<Tripped>,
}

#[derive(Debug)]
struct Tripped {
    until: Instant,
    wait: Duration,
    /// The one call that is let through after that.
    trial: Option<u64>,
}

impl Breaker {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Admits the call, or returns the time after which to retry.
    pub(super) fn admit(&mut self, key: &Key, id: u64, now: Instant) -> Result<(), Duration> {
        let entry = self.entries.get_mut(key);
        let Some(tripped) = entry.and_then(|entry| entry.tripped.as_mut()) else {
            return Ok(());
        };
        if now < tripped.until {
            return Err(tripped.until - now);
        }
        if tripped.trial.is_some() {
            return Err(TRIAL);
        }
        tripped.trial = Some(id);
        Ok(())
    }

    /// A worker was lost, perhaps because of this tool. Says for how long it is refused, if that
    /// begins now.
    pub(super) fn suspect(
        &mut self,
        key: Key,
        suspicion: Suspicion,
        now: Instant,
    ) -> Option<Duration> {
        let entry = self.entries.entry(key).or_default();
        if let Some(tripped) = &mut entry.tripped {
            // What began before it was refused says nothing new.
            tripped.trial.take()?;
            tripped.wait = (tripped.wait * 2).min(MAX_WAIT);
            tripped.until = now + tripped.wait;
            return Some(tripped.wait);
        }
        entry
            .losses
            .retain(|(when, _)| now.saturating_duration_since(*when) < WINDOW);
        entry.losses.push_back((now, suspicion));
        let weight: u8 = entry.losses.iter().map(|(_, one)| one.weight()).sum();
        if weight < LOSSES * Suspicion::Certain.weight() {
            return None;
        }
        entry.losses.clear();
        entry.tripped = Some(Tripped {
            until: now + FIRST_WAIT,
            wait: FIRST_WAIT,
            trial: None,
        });
        Some(FIRST_WAIT)
    }

    /// The worker has answered the call and lives: if it was a trial, all is forgiven.
    pub(super) fn answered(&mut self, key: &Key, id: u64) {
        if self.is_trial(key, id) {
            self.entries.remove(key);
        }
    }

    /// The call was not carried out after all: if it was a trial, the next one is.
    pub(super) fn withdrawn(&mut self, key: &Key, id: u64) {
        if self.is_trial(key, id)
            && let Some(entry) = self.entries.get_mut(key)
            && let Some(tripped) = &mut entry.tripped
        {
            tripped.trial = None;
        }
    }

    /// Refused tools, and the time left for each; no time left means that the next call is a trial.
    pub(super) fn tripped(&self, now: Instant) -> impl Iterator<Item = (&Key, Duration)> {
        self.entries.iter().filter_map(move |(key, entry)| {
            let tripped = entry.tripped.as_ref()?;
            Some((key, tripped.until.saturating_duration_since(now)))
        })
    }

    /// Forgets everything, because the tools are others now.
    pub(super) fn forget(&mut self) {
        self.entries.clear();
    }

    fn is_trial(&self, key: &Key, id: u64) -> bool {
        let tripped = self
            .entries
            .get(key)
            .and_then(|entry| entry.tripped.as_ref());
        tripped.is_some_and(|tripped| tripped.trial == Some(id))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Kind, *};

    fn key(name: &str) -> Key {
        (Kind::Tool, name.into())
    }

    /// Number of losses of this kind, at once, that it takes.
    fn losses_until_tripped(suspicion: Suspicion) -> usize {
        let mut breaker = Breaker::default();
        let now = Instant::now();
        1 + (0..100)
            .take_while(|_| breaker.suspect(key("a"), suspicion, now).is_none())
            .count()
    }

    #[test]
    fn three_certain_losses_trip_and_shared_ones_count_half() {
        assert_eq!(losses_until_tripped(Suspicion::Certain), 3);
        assert_eq!(losses_until_tripped(Suspicion::Shared), 6);
    }

    #[test]
    fn old_losses_do_not_count() {
        let mut breaker = Breaker::default();
        let begin = Instant::now();
        for minute in 0..100 {
            let now = begin + WINDOW / 2 * minute;
            assert_eq!(breaker.suspect(key("a"), Suspicion::Certain, now), None);
            assert_eq!(breaker.admit(&key("a"), 1, now), Ok(()));
        }
        assert_eq!(breaker.tripped(begin).count(), 0);
    }

    fn trip(breaker: &mut Breaker, now: Instant) {
        for _ in 0..3 {
            breaker.suspect(key("a"), Suspicion::Certain, now);
        }
    }

    #[test]
    fn after_the_wait_one_call_is_let_through() {
        let mut breaker = Breaker::default();
        let begin = Instant::now();
        trip(&mut breaker, begin);
        assert_eq!(breaker.admit(&key("b"), 1, begin), Ok(()), "another tool");
        let later = begin + Duration::from_secs(10);
        assert_eq!(
            breaker.admit(&key("a"), 1, later),
            Err(Duration::from_secs(20))
        );
        let trial = begin + FIRST_WAIT;
        assert_eq!(breaker.admit(&key("a"), 2, trial), Ok(()));
        assert_eq!(breaker.admit(&key("a"), 3, trial), Err(TRIAL));
        breaker.withdrawn(&key("a"), 3);
        assert_eq!(
            breaker.admit(&key("a"), 4, trial),
            Err(TRIAL),
            "3 is no trial"
        );
        breaker.withdrawn(&key("a"), 2);
        assert_eq!(breaker.admit(&key("a"), 5, trial), Ok(()));
        breaker.answered(&key("a"), 4);
        assert_eq!(breaker.tripped(trial).count(), 1);
        breaker.answered(&key("a"), 5);
        assert!(breaker.is_empty());
    }

    #[test]
    fn each_trial_that_fails_doubles_the_wait_up_to_its_bound() {
        let mut breaker = Breaker::default();
        let mut now = Instant::now();
        trip(&mut breaker, now);
        assert_eq!(
            breaker.suspect(key("a"), Suspicion::Certain, now),
            None,
            "it was running already"
        );
        let mut waits = Vec::new();
        for id in 0..5 {
            now += MAX_WAIT;
            assert_eq!(breaker.admit(&key("a"), id, now), Ok(()));
            let wait = breaker.suspect(key("a"), Suspicion::Shared, now).unwrap();
            waits.push(wait.as_secs());
        }
        assert_eq!(waits, [60, 120, 240, 300, 300]);
    }
}
