//! Connections that cannot be accepted, and how often the log hears of it.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Shortest time between two log entries about lasting failures, and time without a failure after
/// which they are over.
const INTERVAL: Duration = Duration::from_secs(10);

/// State of accepting on all listeners together: without file descriptors each of them fails twenty
/// times a second.
#[derive(Debug, Default)]
pub(crate) struct Accepting {
    /// True while there is a [`Trouble`]; read with each connection.
    fails: AtomicBool,
    trouble: Mutex<Option<Trouble>>,
}

#[derive(Debug)]
struct Trouble {
    /// Time of the last log entry.
    told: Instant,
    /// Time of the last failure.
    last: Instant,
    /// Number of failures since it began.
    failures: u64,
}

/// Log entry to write.
#[derive(Debug, PartialEq, Eq)]
enum Say {
    Begins,
    GoesOn { failures: u64 },
    Over { failures: u64 },
}

impl Accepting {
    /// A connection could not be accepted.
    pub(crate) fn failed(&self, error: &io::Error) {
        match self.note_failure(Instant::now()) {
            Some(Say::GoesOn { failures }) => {
                tracing::warn!(%error, failures, "connections still cannot be accepted");
            }
            Some(_) => tracing::warn!(
                %error,
                "connections cannot be accepted; it is tried again, and told every ten seconds at most"
            ),
            None => {}
        }
    }

    /// A connection was accepted, or it is time to look.
    pub(crate) fn look_now(&self) {
        if self.fails.load(Ordering::Relaxed)
            && let Some(Say::Over { failures }) = self.note_quiet(Instant::now())
        {
            tracing::info!(failures, "connections are accepted again");
        }
    }

    fn note_failure(&self, now: Instant) -> Option<Say> {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = trouble.as_mut() else {
            *trouble = Some(Trouble {
                told: now,
                last: now,
                failures: 1,
            });
            self.fails.store(true, Ordering::Relaxed);
            return Some(Say::Begins);
        };
        known.last = now;
        known.failures += 1;
        let failures = known.failures;
        (INTERVAL <= now.saturating_duration_since(known.told)).then(|| {
            known.told = now;
            Say::GoesOn { failures }
        })
    }

    /// One connection more does not mean that it is over: another may have ended and made room.
    fn note_quiet(&self, now: Instant) -> Option<Say> {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let over = trouble.take_if(|it| INTERVAL <= now.saturating_duration_since(it.last))?;
        self.fails.store(false, Ordering::Relaxed);
        Some(Say::Over {
            failures: over.failures,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_hears_of_the_beginning_of_every_ten_seconds_and_of_the_end() {
        let accepting = Accepting::default();
        let began = Instant::now();
        let after = |milliseconds| began + Duration::from_millis(milliseconds);
        let mut said = Vec::new();
        // For a little more than twenty seconds, twenty times a second, and one gets in now and then.
        for round in 0..=410 {
            let now = after(50 * round);
            said.extend(accepting.note_failure(now));
            if round % 7 == 0 {
                assert_eq!(accepting.note_quiet(now), None);
            }
        }
        let expected = [
            Say::Begins,
            Say::GoesOn { failures: 201 },
            Say::GoesOn { failures: 401 },
        ];
        assert_eq!(said, expected);
        assert_eq!(accepting.note_quiet(after(30_499)), None);
        assert!(accepting.fails.load(Ordering::Relaxed));
        let over = accepting.note_quiet(after(30_500));
        assert_eq!(over, Some(Say::Over { failures: 411 }));
        assert!(!accepting.fails.load(Ordering::Relaxed));
        assert_eq!(accepting.note_quiet(after(60_000)), None);
        // The next time is another one.
        assert_eq!(accepting.note_failure(after(61_000)), Some(Say::Begins));
    }
}
