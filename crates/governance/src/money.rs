//! Amounts of money, exact.

use std::{fmt, str::FromStr};

/// Micro-units in one unit of the currency.
const UNIT: u64 = 1_000_000;

/// Digits after the point that a micro-unit can express.
const DECIMALS: usize = 6;

/// The most bytes of an amount in words: fourteen digits, the point and [`DECIMALS`].
const MOST_BYTES: usize = 21;

/// An amount of money in millionths of the configured currency. Never a binary float.
///
/// Reads and writes decimal strings exactly: `"0.05"`, `"500"`. Arithmetic saturates, so that an
/// absurd amount can neither wrap around nor panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

/// Text that is not an exact amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseMicrosError {
    /// No digits at all.
    #[error("an amount needs at least one digit")]
    Empty,
    /// Something else than digits and one point.
    #[error("an amount is written with digits and at most one point")]
    NotDecimal,
    /// More than six digits after the point, so it could not be kept exactly.
    #[error("an amount has at most six digits after the point")]
    TooPrecise,
    /// More than about 18 trillion units.
    #[error("the amount is too large")]
    TooLarge,
}

impl Micros {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest amount there is.
    pub const MAX: Self = Self(u64::MAX);

    /// This many whole units of the currency, or [`Micros::MAX`].
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
}

impl FromStr for Micros {
    type Err = ParseMicrosError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(ParseMicrosError::Empty);
        }
        if !whole
            .bytes()
            .chain(fraction.bytes())
            .all(|byte| byte.is_ascii_digit())
        {
            return Err(ParseMicrosError::NotDecimal);
        }
        // Zeros at the end add no precision: "0.50000000" is exact.
        let fraction = fraction.trim_end_matches('0');
        if DECIMALS < fraction.len() {
            return Err(ParseMicrosError::TooPrecise);
        }
        let digits =
            |total: u64, byte: u8| total.checked_mul(10)?.checked_add(u64::from(byte - b'0'));
        let padding = std::iter::repeat_n(b'0', DECIMALS - fraction.len());
        whole
            .bytes()
            .chain(fraction.bytes())
            .chain(padding)
            .try_fold(0, digits)
            .map(Self)
            .ok_or(ParseMicrosError::TooLarge)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // By hand, from the end: every call over HTTP tells of amounts, in a header and in its result.
        let mut text = [b'0'; MOST_BYTES];
        let mut start = text.len();
        let mut put = |byte: u8| {
            start -= 1;
            text[start] = byte;
        };
        let (mut whole, mut fraction) = (self.0 / UNIT, self.0 % UNIT);
        if fraction != 0 {
            let mut is_end = true;
            for _ in 0..DECIMALS {
                let digit = (fraction % 10) as u8;
                fraction /= 10;
                // Zeros at the end say nothing.
                is_end &= digit == 0;
                if !is_end {
                    put(b'0' + digit);
                }
            }
            put(b'.');
        }
        loop {
            put(b'0' + (whole % 10) as u8);
            whole /= 10;
            if whole == 0 {
                break;
            }
        }
        f.write_str(std::str::from_utf8(&text[start..]).map_err(|_| fmt::Error)?)
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
            ("18446744073709.551615", Ok(u64::MAX)),
            ("18446744073709.551616", Err(ParseMicrosError::TooLarge)),
            ("99999999999999999999999", Err(ParseMicrosError::TooLarge)),
            ("0.0000001", Err(ParseMicrosError::TooPrecise)),
            ("", Err(ParseMicrosError::Empty)),
            (".", Err(ParseMicrosError::Empty)),
            ("-1", Err(ParseMicrosError::NotDecimal)),
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

    proptest! {
        #[test]
        fn what_is_written_is_read_back(amount: u64) {
            prop_assert_eq!(Micros(amount).to_string().parse(), Ok(Micros(amount)));
        }
    }
}
