//! Numbers in their canonical form.

use std::fmt::Write as _;

/// Appends a number; see [`canonical_digest`](super::canonical_digest) for what is not as RFC 8785
/// has it.
pub(super) fn write(number: &str, into: &mut String) {
    let is_integer = number.bytes().all(|it| it == b'-' || it.is_ascii_digit());
    if is_integer {
        // JSON has no other way to write it.
        into.push_str(number);
        return;
    }
    match number.parse::<f64>() {
        Ok(double) if double.is_finite() => {
            let start = into.len();
            write_double(double, into);
            let Some(exact) = Decimal::of(number) else {
                into.truncate(start);
                into.push_str(number);
                return;
            };
            // Programs print doubles with as many digits as needed, or with 17. Any other number is one that
            // readers who keep all digits tell from its double.
            let is = |printed: &str| Decimal::of(printed).as_ref() == Some(&exact);
            if !is(&into[start..]) && !is(&format!("{double:.16e}")) {
                into.truncate(start);
                exact.write(into);
            }
        }
        // What readers make of it depends on how it is written.
        _ => into.push_str(number),
    }
}

/// A number with all of its digits: the integer `digits`, times ten to the power of `exponent`.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    /// Without zeros at the beginning and at the end; empty for zero.
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Reads a number of JSON; `None` if its exponent is too large for 64 bits.
    fn of(number: &str) -> Option<Self> {
        let (is_negative, number) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number),
        };
        let (mantissa, exponent) = match number.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (number, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        let kept = digits.trim_end_matches('0');
        let moved = (digits.len() - kept.len()).try_into().ok()?;
        let exponent = exponent
            .checked_sub(fraction.len().try_into().ok()?)?
            .checked_add(moved)?;
        let kept = kept.trim_start_matches('0');
        Some(Self {
            is_negative,
            digits: kept.to_owned(),
            exponent: if kept.is_empty() { 0 } else { exponent },
        })
    }

    /// Appends it as `digits`, `e`, `exponent`. No double is written so.
    fn write(&self, into: &mut String) {
        let sign = if self.is_negative { "-" } else { "" };
        let _ = write!(into, "{sign}{}e{:+}", self.digits, self.exponent);
    }
}

/// As ECMAScript does (`Number::toString`), but for what sets it apart from integers.
pub(super) fn write_double(double: f64, into: &mut String) {
    if double == 0.0 {
        into.push_str(if double.is_sign_negative() {
            "-0.0"
        } else {
            "0.0"
        });
        return;
    }
    // The shortest digits that say which double it is: `d.ddde±x`.
    let mut shortest = String::with_capacity(32);
    let _ = write!(shortest, "{double:e}");
    // Of two that are as short and as near, ECMAScript takes the even one, as rounding to so many
    // digits does.
    let mantissa = shortest.split('e').next().unwrap_or_default();
    let places = mantissa
        .split_once('.')
        .map_or(0, |(_, fraction)| fraction.len());
    let even = format!("{double:.places$e}");
    if even != shortest && even.parse() == Ok(double) {
        shortest = even;
    }
    let (digits, exponent) = shortest.split_once('e').expect("so `{:e}` is defined");
    let exponent: i32 = exponent.parse().expect("so `{:e}` is defined");
    let digits = match digits.strip_prefix('-') {
        Some(digits) => {
            into.push('-');
            digits
        }
        None => digits,
    };
    let digits = digits.replace('.', "");
    // How many digits are before the decimal point.
    match (usize::try_from(exponent + 1), exponent) {
        (Ok(whole), 0..=20) if digits.len() <= whole => {
            into.push_str(&digits);
            into.extend(std::iter::repeat_n('0', whole - digits.len()));
            into.push_str(".0");
        }
        (Ok(whole), 0..=20) => {
            let (whole, fraction) = digits.split_at(whole);
            let _ = write!(into, "{whole}.{fraction}");
        }
        (_, -6..=-1) => {
            into.push_str("0.");
            into.extend((exponent..-1).map(|_| '0'));
            into.push_str(&digits);
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            into.push_str(first);
            if !rest.is_empty() {
                let _ = write!(into, ".{rest}");
            }
            let _ = write!(into, "e{exponent:+}");
        }
    }
}
