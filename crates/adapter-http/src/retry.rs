//! Retries of a request.

use http::{HeaderMap, Method, StatusCode};
use std::time::{Duration, SystemTime};

/// The longest wait that a service can ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(60 * 60);

/// Number of attempts for a request, and the pauses between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// So often at most, the first time included; at most [`Retry::MAX_ATTEMPTS`].
    pub max_attempts: u32,
    /// Pause before the second attempt.
    pub backoff: Duration,
    /// Factor by which each further pause grows.
    pub multiplier: f64,
}

impl Default for Retry {
    /// OwlClaw's: three times, after one second and then two.
    fn default() -> Self {
        Self {
            max_attempts: 3,
            backoff: Duration::from_secs(1),
            multiplier: 2.0,
        }
    }
}

impl Retry {
    /// More attempts than these are not made.
    pub const MAX_ATTEMPTS: u32 = 10;
    /// Longer is not waited between two attempts.
    pub const MAX_BACKOFF: Duration = Duration::from_secs(60);

    /// No second attempt.
    pub fn never() -> Self {
        Self {
            max_attempts: 1,
            ..Self::default()
        }
    }

    /// Pause after attempt `attempt`, counted from one.
    pub(crate) fn wait_after(&self, attempt: u32) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let factor = self.multiplier.max(1.0).powi(exponent);
        let seconds = self.backoff.as_secs_f64() * factor;
        Duration::try_from_secs_f64(seconds)
            .map_or(Self::MAX_BACKOFF, |it| it.min(Self::MAX_BACKOFF))
    }

    /// Longest time of all attempts together, if each takes `timeout`.
    pub(crate) fn longest(&self, timeout: Duration) -> Duration {
        let attempts = self.max_attempts.clamp(1, Self::MAX_ATTEMPTS);
        let waits = (1..attempts).map(|attempt| self.wait_after(attempt));
        timeout * attempts + waits.sum::<Duration>()
    }
}

/// Returns true for an idempotent method by RFC 9110, section 9.2.2: two requests do no more than
/// one.
pub(crate) fn is_idempotent(method: &Method) -> bool {
    [
        Method::GET,
        Method::HEAD,
        Method::OPTIONS,
        Method::PUT,
        Method::DELETE,
    ]
    .contains(method)
}

/// Returns true if a service that answers with `status` may well answer otherwise soon.
pub(crate) fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// Pause that a service asks for.
pub(crate) fn asked(headers: &HeaderMap) -> Option<Duration> {
    http_client::retry_after(headers, SystemTime::now(), LONGEST_ASKED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_are_bounded() {
        let retry = Retry::default();
        let waits: Vec<_> = [1, 2, 3, 40, u32::MAX]
            .map(|attempt| retry.wait_after(attempt).as_secs())
            .into();
        assert_eq!(waits, [1, 2, 4, 60, 60]);
        assert_eq!(
            retry.longest(Duration::from_secs(5)),
            Duration::from_secs(18)
        );
        assert_eq!(Retry::never().longest(Duration::from_secs(5)).as_secs(), 5);
    }
}
