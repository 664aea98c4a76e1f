//! Amounts of money, exact.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Millionths in one unit of the currency.
const SCALE: u64 = 1_000_000;
/// The largest amount: 10^12 units, which leaves room to add a few in an `i64` too.
const MAX_UNITS: u64 = 1_000_000_000_000;

/// An amount in millionths of one unit of the configured currency, from 0 to 10^18.
///
/// Read from decimal text, never from a binary float: `0.1` is 100,000 and nothing near it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(u64);

/// Why a text is no amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseMicrosError {
    /// A minus sign in front.
    #[error("an amount cannot be negative")]
    Negative,
    /// Anything but digits with at most one point between them.
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
    /// Whole units of the currency; `units` above 10^12 become 10^12.
    pub const fn from_units(units: u64) -> Self {
        Self(if units < MAX_UNITS {
            units * SCALE
        } else {
            MAX_UNITS * SCALE
        })
    }

    /// The amount in millionths.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Reads a decimal such as `500`, `500.0` or `0.000001`.
    ///
    /// # Errors
    ///
    /// For a sign, an exponent, a group separator, a bare point, more than six decimals, or more
    /// than 10^12 units.
    pub fn parse(text: &str) -> Result<Self, ParseMicrosError> {
        if text.starts_with('-') {
            return Err(ParseMicrosError::Negative);
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !is_digits(whole) || !is_digits(fraction) {
            return Err(ParseMicrosError::NotDecimal);
        }
        // Zeros at the end say nothing about precision that we would lose.
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > 6 {
            return Err(ParseMicrosError::TooFine);
        }
        let whole: u64 = whole.parse().map_err(|_| ParseMicrosError::TooLarge)?;
        let fraction: u64 = format!("{fraction:0<6}")
            .parse()
            .map_err(|_| ParseMicrosError::TooFine)?;
        whole
            .checked_mul(SCALE)
            .and_then(|micros| micros.checked_add(fraction))
            .filter(|micros| *micros <= MAX_UNITS * SCALE)
            .map(Self)
            .ok_or(ParseMicrosError::TooLarge)
    }
}

/// At least two decimals, more only where they are needed: `500.00`, `0.000001`.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:06}", self.0 % SCALE);
        let needed = fraction.trim_end_matches('0').len().max(2);
        write!(f, "{}.{}", self.0 / SCALE, &fraction[..needed])
    }
}

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
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

    #[test]
    fn decimals_are_read_exactly() {
        let rows = [
            ("0", Ok(0)),
            ("500.0", Ok(500_000_000)),
            ("0.1", Ok(100_000)),
            ("0.000001", Ok(1)),
            ("0.0000010000", Ok(1)),
            ("007.50", Ok(7_500_000)),
            // 2^53 + 1 micro-units: an f64 cannot hold it.
            ("9007199254.740993", Ok(9_007_199_254_740_993)),
            ("1000000000000", Ok(1_000_000_000_000_000_000)),
            ("1000000000000.000001", Err(ParseMicrosError::TooLarge)),
            ("99999999999999999999999", Err(ParseMicrosError::TooLarge)),
            ("0.0000001", Err(ParseMicrosError::TooFine)),
            ("-1", Err(ParseMicrosError::Negative)),
            ("+1", Err(ParseMicrosError::NotDecimal)),
            ("1e3", Err(ParseMicrosError::NotDecimal)),
            ("1_000", Err(ParseMicrosError::NotDecimal)),
            ("1,5", Err(ParseMicrosError::NotDecimal)),
            (".5", Err(ParseMicrosError::NotDecimal)),
            ("5.", Err(ParseMicrosError::NotDecimal)),
            ("1.2.3", Err(ParseMicrosError::NotDecimal)),
            ("٣", Err(ParseMicrosError::NotDecimal)),
            ("", Err(ParseMicrosError::NotDecimal)),
        ];
        for (text, expected) in rows {
            assert_eq!(Micros::parse(text).map(Micros::get), expected, "{text:?}");
        }
    }

    #[test]
    fn display_and_parse_are_inverse() {
        for micros in [
            0,
            1,
            10,
            99_999,
            1_000_000,
            500_000_000,
            9_007_199_254_740_993,
        ] {
            assert_eq!(
                Micros::parse(&Micros(micros).to_string()),
                Ok(Micros(micros))
            );
        }
        assert_eq!(Micros::from_units(500).to_string(), "500.00");
    }
}
