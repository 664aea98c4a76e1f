//! Retries of a batch.

use http::StatusCode;
use std::time::Duration;

/// The wait after the first attempt; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait, unless the collector asks for a longer one.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// The longest wait that a collector can ask for.
pub(crate) const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// Returns true if a collector that answers with `status` may well accept the same later (OTLP 1.x,
/// over HTTP).
pub(crate) fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// Pause after so many attempts, up to a quarter more or less, as `chance` decides: servers that
/// began to fail together should not return together.
pub(crate) fn wait_after(attempt: u32, chance: u8) -> Duration {
    let wait = FIRST_WAIT.saturating_mul(1 << attempt.saturating_sub(1).min(10));
    let wait = wait.min(LONGEST_WAIT);
    wait.mul_f64(0.75 + f64::from(chance) / 512.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_otlp_says_may_pass_does() {
        let passing = (100..600).filter(|status| {
            let status = StatusCode::from_u16(*status).unwrap();
            may_pass(status)
        });
        assert_eq!(passing.collect::<Vec<_>>(), [429, 502, 503, 504]);
    }

    #[test]
    fn waits_grow_and_are_bounded() {
        let least: Vec<_> = [1, 2, 3, 20, u32::MAX]
            .map(|it| wait_after(it, 0).as_millis())
            .into();
        assert_eq!(least, [375, 750, 1_500, 11_250, 11_250]);
        let most = wait_after(u32::MAX, u8::MAX);
        assert!(most <= LONGEST_WAIT.mul_f64(1.25), "{most:?}");
    }
}
