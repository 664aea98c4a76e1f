//! Amounts of money, exact.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{borrow::Cow, fmt, str::FromStr};

/// Micro-units in one unit of the currency.
const UNIT: u64 = 1_000_000;

/// Digits after the point that a micro-unit can express.
const DECIMALS: usize = 6;

/// The largest amount in words: 10^12 units, of which a few can be added in an `i64` too.
const MOST: u64 = 1_000_000_000_000 * UNIT;

/// The least number that is not exact as a binary float with six decimals.
const INEXACT: f64 = 1e9;

/// An amount of money in millionths of the configured currency. Never a binary float.
///
/// Reads and writes decimal strings exactly: `"0.05"`, `"500"`; with `{:#}` it has two decimals at
/// least. Arithmetic saturates, so that an absurd amount can neither wrap around nor panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

/// Text that is not an exact amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseMicrosError {
    /// A minus sign in front.
    #[error("an amount cannot be negative")]
    Negative,
    /// A text with anything but digits and at most one point.
    #[error("an amount is written in digits with at most one decimal point, like 12.50")]
    NotDecimal,
    /// More than six digits after the point.
    #[error("an amount has at most six digits after the decimal point")]
    TooFine,
    /// More than 10^12 units.
    #[error("an amount is at most 1000000000000")]
    TooLarge,
}

impl Micros {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The largest amount there is.
    pub const MAX: Self = Self(u64::MAX);

    /// Amount of `units` whole units of the currency, or [`Micros::MAX`].
    #[must_use]
    pub const fn units(units: u64) -> Self {
        Self(units.saturating_mul(UNIT))
    }

    /// The sum, or [`Micros::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The most bytes of an amount in words: fourteen digits, the point and six decimals.
    pub const MOST_BYTES: usize = 21;

    /// Writes the amount as [`Display`](fmt::Display) does, to the beginning of `room`; the text in ASCII. For places
    /// where formatting costs too much: every call over HTTP tells of amounts, in a header and in its result.
    pub fn write_to(self, room: &mut [u8; Self::MOST_BYTES]) -> &[u8] {
        self.digits(0, room)
    }

    /// With `least` decimals at least.
    fn digits(self, least: usize, room: &mut [u8; Self::MOST_BYTES]) -> &[u8] {
        let [mut whole, mut decimals] = [itoa::Buffer::new(); 2];
        let whole = whole.format(self.0 / UNIT).as_bytes();
        // Behind a digit that is left out, all of the zeros are there.
        let decimals = &decimals.format(UNIT + self.0 % UNIT).as_bytes()[1..];
        // Zeros at the end say nothing.
        let last = decimals.iter().rposition(|digit| *digit != b'0');
        let decimals = &decimals[..last.map_or(0, |last| last + 1).max(least)];
        room[..whole.len()].copy_from_slice(whole);
        let mut length = whole.len();
        if !decimals.is_empty() {
            room[length] = b'.';
            length += 1 + decimals.len();
            room[length - decimals.len()..length].copy_from_slice(decimals);
        }
        &room[..length]
    }
}

impl FromStr for Micros {
    type Err = ParseMicrosError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with('-') {
            return Err(ParseMicrosError::Negative);
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_empty = whole.is_empty() && fraction.is_empty();
        if is_empty
            || !whole
                .bytes()
                .chain(fraction.bytes())
                .all(|byte| byte.is_ascii_digit())
        {
            return Err(ParseMicrosError::NotDecimal);
        }
        // Zeros at the end add no precision: "0.50000000" is exact.
        let fraction = fraction.trim_end_matches('0');
        if DECIMALS < fraction.len() {
            return Err(ParseMicrosError::TooFine);
        }
        let digits =
            |total: u64, byte: u8| total.checked_mul(10)?.checked_add(u64::from(byte - b'0'));
        let padding = std::iter::repeat_n(b'0', DECIMALS - fraction.len());
        whole
            .bytes()
            .chain(fraction.bytes())
            .chain(padding)
            .try_fold(0, digits)
            .filter(|&micros| micros <= MOST)
            .map(Self)
            .ok_or(ParseMicrosError::TooLarge)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut room = [0; Self::MOST_BYTES];
        let text = self.digits(if f.alternate() { 2 } else { 0 }, &mut room);
        f.write_str(std::str::from_utf8(text).map_err(|_| fmt::Error)?)
    }
}

/// With two decimals at least: `500.00`, `0.000001`.
impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:#}"))
    }
}

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Amount)
    }
}

struct Amount;

impl de::Visitor<'_> for Amount {
    type Value = Micros;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an amount such as 12.50")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Micros, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, units: u64) -> Result<Micros, E> {
        self.visit_str(&units.to_string())
    }

    fn visit_i64<E: de::Error>(self, units: i64) -> Result<Micros, E> {
        self.visit_str(&units.to_string())
    }

    fn visit_f64<E: de::Error>(self, units: f64) -> Result<Micros, E> {
        // Fifteen digits are the same as they were written.
        if INEXACT <= units {
            return Err(E::custom("write an amount as large as this in quotes"));
        }
        self.visit_str(&units.to_string())
    }
}

impl JsonSchema for Micros {
    fn schema_name() -> Cow<'static, str> {
        "Micros".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "string"], "format": "decimal", "minimum": 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimal_text_is_read_exactly_or_refused() {
        let rows = [
            ("0", Ok(0)),
            ("500", Ok(500_000_000)),
            ("500.0", Ok(500_000_000)),
            (".05", Ok(50_000)),
            ("7.", Ok(7_000_000)),
            ("0.000001", Ok(1)),
            ("0.1000000000", Ok(100_000)),
            ("007.50", Ok(7_500_000)),
            // 2^53 + 1 micro-units: an f64 cannot hold it.
            ("9007199254.740993", Ok(9_007_199_254_740_993)),
            ("1000000000000", Ok(1_000_000_000_000_000_000)),
            ("1000000000000.000001", Err(ParseMicrosError::TooLarge)),
            ("18446744073709.551616", Err(ParseMicrosError::TooLarge)),
            ("99999999999999999999999", Err(ParseMicrosError::TooLarge)),
            ("0.0000001", Err(ParseMicrosError::TooFine)),
            ("", Err(ParseMicrosError::NotDecimal)),
            (".", Err(ParseMicrosError::NotDecimal)),
            ("-1", Err(ParseMicrosError::Negative)),
            ("1_000", Err(ParseMicrosError::NotDecimal)),
            ("1,5", Err(ParseMicrosError::NotDecimal)),
            ("+1", Err(ParseMicrosError::NotDecimal)),
            ("1e3", Err(ParseMicrosError::NotDecimal)),
            ("1.2.3", Err(ParseMicrosError::NotDecimal)),
            ("1 ", Err(ParseMicrosError::NotDecimal)),
            ("١", Err(ParseMicrosError::NotDecimal)),
        ];
        for (text, expected) in rows {
            assert_eq!(text.parse(), expected.map(Micros), "{text:?}");
        }
    }

    #[test]
    fn amounts_in_files_are_numbers_or_text_and_exact() {
        let rows = [
            ("500", "500.00"),
            ("0.1", "0.10"),
            ("0.000001", "0.000001"),
            ("999999999.999999", "999999999.999999"),
            ("\"9007199254.740993\"", "9007199254.740993"),
            ("1e3", "1000.00"),
        ];
        for (json, shown) in rows {
            let amount: Micros = serde_json::from_str(json).unwrap();
            assert_eq!(format!("{amount:#}"), shown, "{json}");
        }
        for json in [
            "-1",
            "-0.5",
            "1e-7",
            "9007199254.740993",
            "1e300",
            "null",
            "true",
            "\"1e3\"",
        ] {
            assert!(serde_json::from_str::<Micros>(json).is_err(), "{json}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(amount in 0..=MOST) {
            prop_assert_eq!(Micros(amount).to_string().parse(), Ok(Micros(amount)));
            prop_assert_eq!(format!("{:#}", Micros(amount)).parse(), Ok(Micros(amount)));
            let json = serde_json::to_string(&Micros(amount)).unwrap();
            prop_assert_eq!(serde_json::from_str::<Micros>(&json).unwrap(), Micros(amount));
        }
    }
}
