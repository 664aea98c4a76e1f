//! When a request is sent again.

use http::{HeaderValue, Method, StatusCode};
use std::time::{Duration, SystemTime};

/// How often a request is sent, and how long is waited between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// So often at most, the first time included; at most [`Retry::MAX_ATTEMPTS`].
    pub max_attempts: u32,
    /// How long is waited before the second.
    pub backoff: Duration,
    /// What that is multiplied with each time.
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

    /// How long to wait after attempt `attempt`, counted from one.
    pub(crate) fn wait_after(&self, attempt: u32) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let factor = self.multiplier.max(1.0).powi(exponent);
        let seconds = self.backoff.as_secs_f64() * factor;
        Duration::try_from_secs_f64(seconds)
            .map_or(Self::MAX_BACKOFF, |it| it.min(Self::MAX_BACKOFF))
    }

    /// How long all attempts may take together, if each takes `timeout`.
    pub(crate) fn longest(&self, timeout: Duration) -> Duration {
        let attempts = self.max_attempts.clamp(1, Self::MAX_ATTEMPTS);
        let waits = (1..attempts).map(|attempt| self.wait_after(attempt));
        timeout * attempts + waits.sum::<Duration>()
    }
}

/// Whether twice does no more than once, by RFC 9110, section 9.2.2.
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

/// Whether a service that answers this may well answer otherwise soon.
pub(crate) fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// What `Retry-After` asks for: seconds, or a date. At most an hour is believed.
pub(crate) fn retry_after(value: Option<&HeaderValue>, now: SystemTime) -> Option<Duration> {
    const LONGEST: Duration = Duration::from_secs(60 * 60);
    let text = value?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are as much as is believed.
        let seconds = text.parse().map_or(LONGEST, Duration::from_secs);
        return Some(seconds.min(LONGEST));
    }
    let then = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()?;
    let then = SystemTime::from(then);
    Some(then.duration_since(now).unwrap_or_default().min(LONGEST))
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

    #[test]
    fn a_service_can_say_when() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let rows = [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("99999999999999999999999", Some(3600)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", Some(0)),
            ("Sat, 06 Nov 2094 08:49:27 GMT", Some(3600)),
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
