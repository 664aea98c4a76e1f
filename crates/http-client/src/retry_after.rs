use http::{HeaderMap, header};
use std::time::{Duration, SystemTime};

/// Delay that `Retry-After` asks for (RFC 9110, 10.2.3), as seconds or as a date, which is compared
/// with `now`. The delay is at most `longest`; a header that cannot be read counts as none.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: SystemTime, longest: Duration) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are as much as is believed.
        let seconds = text.parse().map_or(longest, Duration::from_secs);
        return Some(seconds.min(longest));
    }
    let then = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()?;
    let left = SystemTime::from(then).duration_since(now);
    Some(left.unwrap_or_default().min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_server_can_say_when() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let longest = Duration::from_secs(60);
        let rows = [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("3600", Some(60)),
            ("99999999999999999999999", Some(60)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", Some(0)),
            ("Sat, 06 Nov 2094 08:49:27 GMT", Some(60)),
            ("soon", None),
            ("-1", None),
            ("", None),
        ];
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(&headers, now, longest), None);
        for (text, seconds) in rows {
            let value = HeaderValue::from_str(text).unwrap();
            headers.insert(header::RETRY_AFTER, value);
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(retry_after(&headers, now, longest), expected, "{text}");
        }
        let strange = HeaderValue::from_bytes(b"\xff").unwrap();
        headers.insert(header::RETRY_AFTER, strange);
        assert_eq!(retry_after(&headers, now, longest), None);
    }
}
