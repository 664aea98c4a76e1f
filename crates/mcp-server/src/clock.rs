//! Times: where they come from, and the text of them that clients get.

use std::time::SystemTime;

/// Tells the time: microseconds since the epoch, UTC. A function, so that tests bring their own.
pub type Clock = fn() -> u64;

/// The clock of this machine.
pub fn system_clock() -> u64 {
    ledger::system_now_us()
}

/// The same instant as governance counts it.
pub(crate) fn timestamp(at_us: u64) -> governance::Timestamp {
    governance::Timestamp(at_us / 1_000)
}

/// A time as clients are told it: RFC 3339, in whole seconds, UTC. `None` outside of the years 1 to 9999.
pub fn rfc3339(time: SystemTime) -> Option<String> {
    let time = jiff::Timestamp::try_from(time).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A time as clients are told it: RFC 3339, in milliseconds, UTC.
pub(crate) fn rfc3339_millis(at_us: u64) -> String {
    let micros = i64::try_from(at_us).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_and_none_panics() {
        assert_eq!(
            rfc3339_millis(1_790_000_000_123_456),
            "2026-09-21T14:13:20.123Z"
        );
        assert!(rfc3339_millis(u64::MAX).starts_with("9999-12-30"));
    }
}
