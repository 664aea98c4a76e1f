//! Tools that fail again and again rest for a while.

use crate::{
    denial::{Denial, Reason},
    spec::BreakerSpec,
    time::Timestamp,
};
use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// The most tools whose failures are remembered at once.
const MAX_TRACKED: usize = 10_000;

/// End of a call, as far as it tells of the health of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The call succeeded.
    Succeeded,
    /// The tool failed.
    Failed,
    /// The tool never ran.
    NotRun,
    /// The caller gave up before the end.
    GivenUp,
}

/// State of the breaker of one capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerState {
    /// Capability, as `kind/name`.
    pub capability: String,
    /// Phase of the breaker.
    pub phase: BreakerPhase,
}

/// Phase of a breaker. One without a failure since the last success is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerPhase {
    /// Calls are let through.
    Closed {
        /// The failures since the last success.
        failures: u32,
    },
    /// Calls are refused.
    Open {
        /// Time until the next call may try.
        rest: Duration,
    },
    /// One call is let through, to try.
    HalfOpen {
        /// Set while that call runs.
        trying: bool,
    },
}

/// The breakers of all capabilities. Those without a failure since their last success take no room,
/// and no lock while there are no others.
#[derive(Debug, Default)]
pub(crate) struct Breakers {
    states: Mutex<HashMap<Box<str>, State>>,
    tracked: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Counting { failures: u32 },
    Resting { until: Timestamp },
    Trying,
}

/// A pass for one call, to be given back with [`Breakers::end`] however the call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// The breaker is off.
    Free,
    /// One call among others.
    Regular,
    /// The one call that tries.
    Trial,
}

impl Breakers {
    pub(crate) fn admit(
        &self,
        capability: &str,
        spec: BreakerSpec,
        now: Timestamp,
    ) -> Result<Pass, Denial> {
        if spec.failures == 0 {
            return Ok(Pass::Free);
        }
        if self.tracked.load(Ordering::Acquire) == 0 {
            return Ok(Pass::Regular);
        }
        let mut states = self.lock();
        let Some(state) = states.get_mut(capability) else {
            return Ok(Pass::Regular);
        };
        match state {
            State::Counting { .. } => Ok(Pass::Regular),
            State::Resting { until } => {
                // Set back, the clock must not make it rest for longer than it ever does.
                *until = (*until).min(after(now, spec.rest));
                if *until <= now {
                    *state = State::Trying;
                    return Ok(Pass::Trial);
                }
                let rest = Duration::from_millis(until.0 - now.0);
                Err(Denial::new(Reason::CircuitOpen).with_retry_after(rest))
            }
            State::Trying => Err(Denial::new(Reason::CircuitOpen)),
        }
    }

    /// Without `now` it cannot have failed.
    pub(crate) fn end(
        &self,
        capability: &str,
        spec: BreakerSpec,
        pass: Pass,
        ending: Ending,
        now: Timestamp,
    ) {
        let resting = State::Resting {
            until: after(now, spec.rest),
        };
        match (pass, ending) {
            (Pass::Free, _) | (Pass::Regular, Ending::NotRun | Ending::GivenUp) => {}
            (Pass::Regular, Ending::Succeeded) if self.tracked.load(Ordering::Acquire) == 0 => {}
            (Pass::Regular, Ending::Succeeded) => {
                let mut states = self.lock();
                // What began before it rested says nothing of how it is now.
                if let Some(State::Counting { .. }) = states.get(capability) {
                    states.remove(capability);
                }
                self.note_size(&states);
            }
            (Pass::Regular, Ending::Failed) => {
                let mut states = self.lock();
                if MAX_TRACKED <= states.len() && !states.contains_key(capability) {
                    states.retain(|_, state| !matches!(state, State::Counting { .. }));
                    if MAX_TRACKED <= states.len() {
                        return;
                    }
                }
                let state = states
                    .entry(capability.into())
                    .or_insert(State::Counting { failures: 0 });
                if let State::Counting { failures } = state {
                    *failures = failures.saturating_add(1);
                    if spec.failures <= *failures {
                        *state = resting;
                    }
                }
                self.note_size(&states);
            }
            (Pass::Trial, ending) => {
                let mut states = self.lock();
                match ending {
                    Ending::Succeeded => {
                        states.remove(capability);
                    }
                    Ending::Failed => {
                        states.insert(capability.into(), resting);
                    }
                    // It is not known any better, so the next may try.
                    Ending::NotRun | Ending::GivenUp => {
                        let until = Timestamp(0);
                        states.insert(capability.into(), State::Resting { until });
                    }
                }
                self.note_size(&states);
            }
        }
    }

    pub(crate) fn phase(&self, capability: &str, now: Timestamp) -> BreakerPhase {
        let states = self.lock();
        states
            .get(capability)
            .map_or(BreakerPhase::Closed { failures: 0 }, |state| {
                state.phase(now)
            })
    }

    /// In order of their names.
    pub(crate) fn states(&self, now: Timestamp) -> Vec<BreakerState> {
        let states = self.lock();
        let mut all: Vec<BreakerState> = states
            .iter()
            .map(|(capability, state)| BreakerState {
                capability: capability.as_ref().to_owned(),
                phase: state.phase(now),
            })
            .collect();
        drop(states);
        all.sort_unstable_by(|one, other| one.capability.cmp(&other.capability));
        all
    }

    fn note_size(&self, states: &HashMap<Box<str>, State>) {
        self.tracked.store(states.len(), Ordering::Release);
    }

    /// The states are whole between any two statements that could panic.
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn phase(self, now: Timestamp) -> BreakerPhase {
        match self {
            Self::Counting { failures } => BreakerPhase::Closed { failures },
            Self::Resting { until } if until <= now => BreakerPhase::HalfOpen { trying: false },
            Self::Resting { until } => BreakerPhase::Open {
                rest: Duration::from_millis(until.0 - now.0),
            },
            Self::Trying => BreakerPhase::HalfOpen { trying: true },
        }
    }
}

fn after(now: Timestamp, rest: Duration) -> Timestamp {
    let rest = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
    Timestamp(now.0.saturating_add(rest))
}
