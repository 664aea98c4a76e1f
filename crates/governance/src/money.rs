use std::{fmt, str::FromStr};

/// Micro-units in one unit of the currency.
const UNIT: u64 = 1_000_000;

/// Digits after the point that a micro-unit can express.
const DECIMALS: usize = 6;

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
        let (whole, fraction) = (self.0 / UNIT, self.0 % UNIT);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        let mut digits = [b'0'; DECIMALS];
        let mut rest = fraction;
        for digit in digits.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        let end = digits
            .iter()
            .rposition(|digit| *digit != b'0')
            .map_or(0, |last| last + 1);
        let digits = std::str::from_utf8(&digits[..end]).map_err(|_| fmt::Error)?;
        write!(f, "{whole}.{digits}")
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
