//! State of an issuer's keys, and the schedule of their fetches.

use crate::{IssuerOptions, jwks::KeySet};
use arc_swap::{ArcSwap, Guard};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::sync::{Notify, watch};

/// The keys of one issuer. One task writes ([`Issuers::keep`](crate::Issuers::keep)), and requests
/// read.
#[derive(Debug, Default)]
pub(crate) struct IssuerKeys {
    state: ArcSwap<State>,
    /// Notified when a token names a key that is not known.
    pub(crate) wanted: Notify,
    /// The source says something else now.
    asked_to: AtomicBool,
    /// Number of fetches attempted so far, successful or not.
    pub(crate) attempts: watch::Sender<u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) set: Option<Arc<KeySet>>,
    /// Differs when the keys do.
    pub(crate) version: u64,
    pub(crate) fetched: Option<SystemTime>,
    attempted: Option<SystemTime>,
    is_fetching: bool,
    failures: u32,
    /// Reason why the last attempt failed, if it did.
    pub(crate) failure: Option<String>,
}

impl IssuerKeys {
    pub(crate) fn state(&self) -> Guard<Arc<State>> {
        self.state.load()
    }

    /// Has the keys looked for at once.
    pub(crate) fn refresh(&self) {
        self.asked_to.store(true, Ordering::Release);
        self.wanted.notify_one();
    }

    /// Resolves when it is time to look for the keys.
    pub(crate) async fn due(&self, options: &IssuerOptions, clock: fn() -> SystemTime) {
        loop {
            let delay = self.state().delay(options, clock());
            tokio::select! {
                () = tokio::time::sleep(delay) => return,
                () = self.wanted.notified() => {}
            }
            if self.asked_to.swap(false, Ordering::AcqRel)
                || self.state().may_fetch(options, clock())
            {
                return;
            }
        }
    }

    pub(crate) fn begin(&self) {
        let mut state = State::clone(&self.state());
        state.is_fetching = true;
        self.state.store(Arc::new(state));
    }

    /// Takes over what has come of an attempt.
    pub(crate) fn end(&self, outcome: Result<KeySet, String>, now: SystemTime) {
        let mut state = State::clone(&self.state());
        state.is_fetching = false;
        state.attempted = Some(now);
        match outcome {
            Ok(set) => {
                if state.set.as_deref() != Some(&set) {
                    state.set = Some(Arc::new(set));
                    state.version += 1;
                }
                state.fetched = Some(now);
                state.failures = 0;
                state.failure = None;
            }
            Err(failure) => {
                state.failures = state.failures.saturating_add(1);
                state.failure = Some(failure);
            }
        }
        self.state.store(Arc::new(state));
        self.attempts.send_modify(|attempts| *attempts += 1);
    }
}

impl State {
    /// The keys, unless they are so old that the issuer may have taken one of them back.
    pub(crate) fn usable(&self, options: &IssuerOptions, now: SystemTime) -> Option<&KeySet> {
        let is_fresh = since(self.fetched?, now) <= options.max_stale;
        self.set.as_deref().filter(|_| is_fresh)
    }

    /// Returns true if waiting for a fetch may bring other keys.
    pub(crate) fn may_wait(&self, options: &IssuerOptions, now: SystemTime) -> bool {
        self.is_fetching || self.may_fetch(options, now)
    }

    fn may_fetch(&self, options: &IssuerOptions, now: SystemTime) -> bool {
        !self.is_fetching
            && self
                .attempted
                .is_none_or(|at| options.min_interval <= since(at, now))
    }

    /// Time until the next scheduled fetch: the regular interval, or a shorter one after a failure.
    fn delay(&self, options: &IssuerOptions, now: SystemTime) -> Duration {
        let Some(attempted) = self.attempted else {
            return Duration::ZERO;
        };
        let interval = match self.failures {
            0 => options.refresh,
            failures => {
                let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
                let interval = options.min_interval.max(Duration::from_secs(1));
                interval.saturating_mul(doubled).min(options.refresh)
            }
        };
        interval.saturating_sub(since(attempted, now))
    }
}

/// A clock that was set back has nothing happen in the future.
fn since(then: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(then).unwrap_or_default()
}
