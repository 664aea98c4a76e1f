/// A decimal number of currency units, such as `0.0125` or `3E-4`, in millionths, rounded up so that
/// many small amounts do not add up to nothing. `None` if it is no such number or too large.
pub(super) fn micros(text: &str) -> Option<u64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = whole.len() + fraction.len() > 0
        && whole.len() + fraction.len() <= 64
        && whole
            .bytes()
            .chain(fraction.bytes())
            .all(|byte| byte.is_ascii_digit());
    // The bounds keep the sums below from overflowing; nothing within them is left out that fits.
    if !is_number || !(-400..=400).contains(&exponent) {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    // The amount is `digits` times ten to the power of `shift`, in millionths.
    let shift = exponent + 6 - i32::try_from(fraction.len()).ok()?;
    if digits.is_empty() {
        return Some(0);
    }
    if let Ok(zeros) = u32::try_from(shift) {
        return digits
            .parse::<u64>()
            .ok()?
            .checked_mul(10u64.checked_pow(zeros)?);
    }
    let cut = shift.unsigned_abs() as usize;
    let kept = digits.len().saturating_sub(cut);
    let (kept, rest) = digits.split_at(kept);
    let kept = if kept.is_empty() {
        0
    } else {
        kept.parse::<u64>().ok()?
    };
    kept.checked_add(u64::from(rest.bytes().any(|byte| byte != b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_become_millionths() {
        let rows = [
            ("0", Some(0)),
            ("0.00", Some(0)),
            ("1", Some(1_000_000)),
            ("0.002", Some(2_000)),
            (".5", Some(500_000)),
            ("5.", Some(5_000_000)),
            ("0.0000001", Some(1)),
            ("1.0000001", Some(1_000_001)),
            ("1.00000000", Some(1_000_000)),
            ("1E-7", Some(1)),
            ("3e-4", Some(300)),
            ("0E+5", Some(0)),
            ("1.5E+3", Some(1_500_000_000)),
            ("18446744073709.551615", Some(u64::MAX)),
            ("18446744073709.551616", None),
            ("1e300", None),
            ("1e999999999999", None),
            ("-1", None),
            ("+1", None),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("NaN", None),
            ("Infinity", None),
            ("1 ", None),
            ("٣", None),
        ];
        for (text, expected) in rows {
            assert_eq!(micros(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(amount in any::<u64>()) {
            let text = format!("{}.{:06}", amount / 1_000_000, amount % 1_000_000);
            prop_assert_eq!(micros(&text), Some(amount));
        }

        #[test]
        fn any_text_is_answered(text in ".{0,40}") {
            let _ = micros(&text);
        }
    }
}
