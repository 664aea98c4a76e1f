//! When a batch is sent again.

use http::{HeaderValue, StatusCode};
use std::time::{Duration, SystemTime};

/// The wait after the first attempt; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait, unless the collector asks for a longer one.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// The longest wait that a collector can ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// Whether a collector that answers this may well take the same later (OTLP 1.x, over HTTP).
pub(crate) fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// How long is waited after so many attempts, up to a quarter more or less, as `chance` has it:
/// servers that began to fail together should not come back together.
pub(crate) fn wait_after(attempt: u32, chance: u8) -> Duration {
    let wait = FIRST_WAIT.saturating_mul(1 << attempt.saturating_sub(1).min(10));
    let wait = wait.min(LONGEST_WAIT);
    wait.mul_f64(0.75 + f64::from(chance) / 512.0)
}

/// What `Retry-After` asks for: seconds, or a date.
pub(crate) fn retry_after(value: Option<&HeaderValue>, now: SystemTime) -> Option<Duration> {
    let text = value?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are as much as is waited.
        let seconds = text.parse().map_or(LONGEST_ASKED, Duration::from_secs);
        return Some(seconds.min(LONGEST_ASKED));
    }
    let then = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()?;
    let left = SystemTime::from(then).duration_since(now);
    Some(left.unwrap_or_default().min(LONGEST_ASKED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_are_bounded() {
        let least: Vec<_> = [1, 2, 3, 20, u32::MAX]
            .map(|it| wait_after(it, 0).as_millis())
            .into();
        assert_eq!(least, [375, 750, 1_500, 11_250, 11_250]);
        let most = wait_after(u32::MAX, u8::MAX);
        assert!(most <= LONGEST_WAIT.mul_f64(1.25), "{most:?}");
    }

    #[test]
    fn a_collector_can_say_when() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let rows = [
            ("7", Some(7)),
            ("0", Some(0)),
            ("3600", Some(60)),
            ("99999999999999999999999", Some(60)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", Some(0)),
            ("Sat, 06 Nov 2094 08:49:27 GMT", Some(60)),
            ("soon", None),
            ("-1", None),
            ("", None),
        ];
        for (text, seconds) in rows {
            let value = HeaderValue::from_str(text).unwrap();
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(retry_after(Some(&value), now), expected, "{text}");
        }
        assert_eq!(retry_after(None, now), None);
    }
}
