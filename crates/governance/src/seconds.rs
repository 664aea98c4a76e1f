//! Seconds in a policy file: `30`, `30s`, `5 min`, `1h`, `2d`.

use serde::{
    Deserializer, Serializer,
    de::{self, Visitor},
};
use std::{fmt, time::Duration};

pub(crate) fn serialize<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_secs())
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    let seconds = deserializer.deserialize_any(Seconds)?;
    Ok(Duration::from_secs(seconds))
}

/// Reads an optional number of seconds that is there.
pub(crate) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_any(Seconds).map(Some)
}

struct Seconds;

impl Visitor<'_> for Seconds {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of seconds, or one with its unit: ms, s, min, m, h, d")
    }

    fn visit_u64<E>(self, seconds: u64) -> Result<u64, E> {
        Ok(seconds)
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<u64, E> {
        let wrong = || E::invalid_value(de::Unexpected::Signed(seconds), &self);
        u64::try_from(seconds).map_err(|_| wrong())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
        in_seconds(text).ok_or_else(wrong)
    }
}

fn in_seconds(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 6] = [
        ("ms", 1),
        ("s", 1_000),
        ("min", 60_000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ];
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let (_, ms) = match unit {
        "" => ("", 1_000),
        unit => *UNITS.iter().find(|(it, _)| it.eq_ignore_ascii_case(unit))?,
    };
    let ms = number.checked_mul(ms)?;
    (ms % 1_000 == 0).then_some(ms / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_units() {
        let rows = [
            ("30", Some(30)),
            ("30s", Some(30)),
            ("2000ms", Some(2)),
            ("5 min", Some(300)),
            ("5m", Some(300)),
            ("1H", Some(3_600)),
            ("2d", Some(172_800)),
            ("1ms", None),
            ("30 seconds", None),
            ("1.5h", None),
            ("-1", None),
            ("s", None),
            ("", None),
            ("300000000000000d", None),
        ];
        for (text, seconds) in rows {
            assert_eq!(in_seconds(text), seconds, "{text}");
        }
    }
}
