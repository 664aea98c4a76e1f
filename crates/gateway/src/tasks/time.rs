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
