//! Numbers of JSON that a double does not hold as they are.

use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Names of the members of this object that have a number in them which is neither an integer of 64 bits nor, to its last
/// digit, what a double is written as. CEL has no other numbers.
pub(crate) fn inexact_members(object: &str) -> Vec<String> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(object).unwrap_or_default();
    let inexact = members
        .into_iter()
        .filter(|(_, value)| has_inexact(value.get()));
    inexact.map(|(name, _)| name).collect()
}

fn has_inexact(json: &str) -> bool {
    let is_part = |it: char| matches!(it, '-' | '+' | '.' | 'e' | 'E' | '0'..='9');
    let mut rest = json;
    while let Some(at) = rest.find(|it: char| it == '"' || it == '-' || it.is_ascii_digit()) {
        rest = &rest[at..];
        if let Some(text) = rest.strip_prefix('"') {
            rest = after_text(text);
            continue;
        }
        let end = rest.find(|it| !is_part(it)).unwrap_or(rest.len());
        if !is_exact(&rest[..end]) {
            return true;
        }
        rest = &rest[end..];
    }
    false
}

/// Text behind the one of which this is the rest.
fn after_text(rest: &str) -> &str {
    let mut is_escaped = false;
    let end = rest.find(|it| {
        let is_end = it == '"' && !is_escaped;
        is_escaped = it == '\\' && !is_escaped;
        is_end
    });
    end.map_or("", |end| &rest[end + 1..])
}

fn is_exact(number: &str) -> bool {
    // A double tells all numbers of so many digits apart.
    let is_short = number.len() <= 15 && !number.contains(['e', 'E']);
    is_short
        || number.parse::<i64>().is_ok()
        || number.parse::<u64>().is_ok()
        || number.parse::<f64>().is_ok_and(|double| {
            double.is_finite() && decimal(number) == decimal(&format!("{double:e}"))
        })
}

/// The sign, the digits of a number without zeros around them, and the power of ten that they are multiplied by.
fn decimal(number: &str) -> Option<(bool, String, i64)> {
    let (digits, power) = match number.split_once(['e', 'E']) {
        Some((digits, power)) => (digits, power.parse::<i64>().ok()?),
        None => (number, 0),
    };
    let is_negative = digits.starts_with('-');
    let digits = digits.trim_start_matches('-');
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{part}");
    let significant = all.trim_end_matches('0');
    let zeros = i64::try_from(all.len() - significant.len()).ok()?;
    let significant = significant.trim_start_matches('0').to_owned();
    if significant.is_empty() {
        return Some((is_negative, significant, 0));
    }
    let power = power.checked_add(zeros)?;
    let power = power.checked_sub(i64::try_from(part.len()).ok()?)?;
    Some((is_negative, significant, power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_double_is_written_as_are_found() {
        for exact in [
            "0",
            "-0.0",
            "0.1",
            "0.10",
            "1e22",
            "1e-7",
            "1E+2",
            "30e-1",
            "0.30000000000000004",
            "1e300",
            "9007199254740993",
            "-9223372036854775808",
            "18446744073709551615",
            "3.0000000000000000000",
            r#""9007199254740993.0""#,
            r#"["\"9007199254740993.0", {"9007199254740993.0": 1}]"#,
        ] {
            assert!(!has_inexact(exact), "{exact}");
        }
        for inexact in [
            "9007199254740993.0",
            "10.00000000000000000001",
            "18446744073709551616",
            "123456789012345678901234567890",
            "-12345678901234567891.0",
            "1e400",
            "1e-400",
            "1e99999999999999999999",
            r#"{"a": ["\\", 9007199254740993.0]}"#,
        ] {
            assert!(has_inexact(inexact), "{inexact}");
        }
        let object = r#"{"a": 1, "\u0062": [10.00000000000000000001]}"#;
        assert_eq!(inexact_members(object), ["b"]);
    }
}
