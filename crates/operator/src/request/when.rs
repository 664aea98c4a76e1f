//! Times on the command line.

use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, civil};

/// A moment: microseconds since the epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct When(pub u64);

/// Text that names no moment.
#[derive(Debug, thiserror::Error)]
#[error("write 2026-11-21T18:00:00Z, 2026-11-21 (UTC), or how long ago: 90m, 12h, 7d")]
pub struct NoMoment;

impl FromStr for When {
    type Err = NoMoment;

    fn from_str(text: &str) -> Result<Self, NoMoment> {
        if let Some(ago) = ago(text) {
            let then = Timestamp::now().checked_sub(ago).map_err(|_| NoMoment)?;
            return Self::of(then);
        }
        if let Ok(date) = text.parse::<civil::Date>()
            && text.len() == "2026-11-21".len()
        {
            let midnight = date.to_zoned(jiff::tz::TimeZone::UTC);
            return Self::of(midnight.map_err(|_| NoMoment)?.timestamp());
        }
        Self::of(text.parse().map_err(|_| NoMoment)?)
    }
}

impl When {
    fn of(moment: Timestamp) -> Result<Self, NoMoment> {
        let micros = u64::try_from(moment.as_microsecond());
        micros.map(Self).map_err(|_| NoMoment)
    }
}

/// `90m`, and the like.
fn ago(text: &str) -> Option<SignedDuration> {
    let (number, seconds) = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)]
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = number.parse().ok().filter(|_| is_number)?;
    number.checked_mul(seconds).map(SignedDuration::from_secs)
}

/// In RFC 3339, to the microsecond.
#[must_use]
pub fn shown(us: u64) -> String {
    let moment = i64::try_from(us).ok();
    let moment = moment.and_then(|us| Timestamp::from_microsecond(us).ok());
    moment.map_or_else(|| us.to_string(), |moment| format!("{moment:.6}"))
}

/// Length of time for which a key is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime(pub Duration);

/// Text that names no duration.
#[derive(Debug, thiserror::Error)]
#[error("write how long: 90d, 12h, 30m or 45s")]
pub struct NoLifetime;

impl FromStr for Lifetime {
    type Err = NoLifetime;

    fn from_str(text: &str) -> Result<Self, NoLifetime> {
        let (number, seconds) = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)]
            .into_iter()
            .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
            .ok_or(NoLifetime)?;
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NoLifetime);
        }
        let number: u64 = number.parse().map_err(|_| NoLifetime)?;
        let seconds = number.checked_mul(seconds).ok_or(NoLifetime)?;
        Ok(Self(Duration::from_secs(seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_and_shown() {
        let rows = [
            ("2026-11-21T18:00:00Z", "2026-11-21T18:00:00.000000Z"),
            ("2026-11-21T18:00:00.5+08:00", "2026-11-21T10:00:00.500000Z"),
            ("2026-11-21", "2026-11-21T00:00:00.000000Z"),
        ];
        for (text, expected) in rows {
            let when: When = text.parse().unwrap();
            assert_eq!(shown(when.0), expected);
        }
        let now = ledger::system_now_us();
        let When(hour_ago) = "1h".parse().unwrap();
        assert!((3_599_000_000..3_601_000_000).contains(&(now - hour_ago)));
        for text in [
            "",
            "yesterday",
            "1w",
            "-1h",
            "2026-11-21T18:00:00",
            "18:00",
            "9999999999999d",
        ] {
            assert!(text.parse::<When>().is_err(), "{text}");
        }
    }

    #[test]
    fn lifetimes_are_read() {
        for (text, seconds) in [("0s", 0), ("45s", 45), ("30m", 1_800), ("90d", 7_776_000)] {
            assert_eq!(
                text.parse::<Lifetime>().unwrap().0.as_secs(),
                seconds,
                "{text}"
            );
        }
        for wrong in [
            "",
            "d",
            "90",
            "-1d",
            "1.5h",
            "1w",
            "+1d",
            "99999999999999999999d",
            "99999999999999999d",
        ] {
            assert!(wrong.parse::<Lifetime>().is_err(), "{wrong}");
        }
    }
}
