/// Exponents beyond this are as good as this: no amount has so many digits.
const MAX_EXPONENT: i64 = 1_000_000;

/// The digits of `u64::MAX`.
const MAX_DIGITS: i64 = 20;

/// A decimal number of currency units, such as `0.0125` or `3E-4`, in millionths, rounded up so that
/// many small amounts do not add up to nothing. An amount that is too large is the largest, so that it is
/// not taken for nothing either. `None` if the text is no such number.
pub(super) fn micros(text: &str) -> Option<u64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, whole_number(exponent)?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    // The amount is `digits` times ten to the power of `shift`, in millionths.
    let shift = exponent + 6 - i64::try_from(fraction.len()).ok()?;
    let places = i64::try_from(digits.len()).ok()? + shift;
    if MAX_DIGITS < places {
        return Some(u64::MAX);
    }
    let kept = usize::try_from(places).unwrap_or(0).min(digits.len());
    let (kept, rest) = digits.split_at(kept);
    let zeros = usize::try_from(shift).unwrap_or(0);
    let kept = format!("0{kept}{}", "0".repeat(zeros));
    let kept = kept.parse::<u64>().unwrap_or(u64::MAX);
    let is_more = rest.bytes().any(|byte| byte != b'0');
    Some(kept.saturating_add(u64::from(is_more)))
}

/// An exponent, or the bound that it is beyond.
fn whole_number(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse::<i64>().unwrap_or(MAX_EXPONENT);
    let number = number.min(MAX_EXPONENT);
    Some(if is_negative { -number } else { number })
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
            ("18446744073709.551616", Some(u64::MAX)),
            ("1e300", Some(u64::MAX)),
            ("1e999999999999", Some(u64::MAX)),
            ("1e-999999999999", Some(1)),
            ("0e999999999999", Some(0)),
            ("1e", None),
            ("1e+-1", None),
            ("1e1.5", None),
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
