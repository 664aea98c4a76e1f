//! Detection of texts that already are their own canonical form, as most texts that programs write
//! are.

use super::compare_as_utf16;
use crate::scan::{Scanner, Text, Token};
use std::cmp::Ordering;

/// The most levels of a text that is looked at here.
const MOST_LEVELS: usize = 32;

/// Returns true if a text is JSON in its canonical form, as far as one pass without memory can
/// tell: a canonical text may get false. Gives up at the first deviation.
pub(super) fn is_canonical(json: &str) -> bool {
    let mut scanner = Scanner::new(json);
    // At each level that is open, the name of the last member.
    let mut last: [Option<&[u8]>; MOST_LEVELS] = [None; MOST_LEVELS];
    while let Ok(token) = scanner.next() {
        let stays = match token {
            None => return scanner.spaces() == 0,
            Some(Token::Object(_) | Token::Array(_)) => match last.get_mut(scanner.depth() - 1) {
                Some(name) => {
                    *name = None;
                    true
                }
                None => false,
            },
            Some(Token::Name(text)) => {
                let name = &json.as_bytes()[text.range()];
                let before = last[scanner.depth() - 1].replace(name);
                let is_sorted =
                    before.is_none_or(|it| compare_as_utf16(it, name) != Ordering::Greater);
                is_sorted && !text.is_escaped
            }
            Some(Token::String(text)) => is_string(json, text),
            Some(Token::Number(start, end)) => is_number(&json[start..end]),
            Some(Token::End(_) | Token::Literal(..)) => true,
        };
        if !stays || scanner.spaces() != 0 {
            return false;
        }
    }
    false
}

/// Returns true if a string has only escapes that the canonical form has too.
pub(super) fn is_string(json: &str, text: Text) -> bool {
    if !text.is_escaped {
        return true;
    }
    let mut rest = &json.as_bytes()[text.range()];
    while let Some(found) = memchr::memchr(b'\\', rest) {
        if !matches!(
            rest[found + 1],
            b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't'
        ) {
            return false;
        }
        rest = &rest[found + 2..];
    }
    true
}

/// Returns true if a number is an integer, or a decimal fraction that is the shortest notation of
/// its double.
pub(super) fn is_number(number: &str) -> bool {
    /// Decimal numbers with so many digits are all different as doubles (`f64::DIGITS`), so that
    /// none has a shorter form than its own.
    const EXACT_DIGITS: usize = f64::DIGITS as usize;
    /// From a millionth on numbers are written without an exponent.
    const MOST_ZEROS: usize = 5;
    let digits = number.strip_prefix('-').unwrap_or(number);
    let is_digits = |text: &str| text.bytes().all(|it| it.is_ascii_digit());
    let Some((whole, fraction)) = digits.split_once('.') else {
        return is_digits(digits);
    };
    let zeros = fraction.bytes().take_while(|it| *it == b'0').count();
    is_digits(fraction)
        && whole.len() + fraction.len() <= EXACT_DIGITS
        && (fraction == "0" || !fraction.ends_with('0'))
        && (whole != "0" || fraction == "0" || zeros <= MOST_ZEROS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::{canonical, number::write_double};
    use proptest::prelude::*;

    #[test]
    fn what_programs_write_is_seen() {
        for text in [
            "0",
            "-17",
            "12345678901234567890",
            "129.95",
            "-0.5",
            "0.0",
            "-0.0",
            "3.0",
            "0.000001",
            "123456789012.345",
            r#"{"a":[1,{"b":"x\n\"","c":null},{}],"aa":"é"}"#,
            r#"{"a":1,"a":2}"#,
        ] {
            assert!(is_canonical(text), "{text}");
            assert_eq!(canonical(text).unwrap(), text);
        }
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(is_canonical(&deep(MOST_LEVELS)));
        assert!(!is_canonical(&deep(MOST_LEVELS + 1)));
    }

    #[test]
    fn what_is_written_otherwise_is_seen() {
        for text in [
            "",
            "[1, 2]",
            " 1",
            "1 ",
            "1.50",
            "1e2",
            "0.00",
            "0.0000001",
            "0.1000000000000000055",
            r#"{"b":1,"a":2}"#,
            r#"["\u0041"]"#,
            r#"["\/"]"#,
            r#"{"\u0041":1}"#,
            r#"{"\n":1}"#,
            "{\"\u{ffff}\":1,\"\u{10000}\":2}",
            "[1",
            "nul",
        ] {
            assert!(!is_canonical(text), "{text}");
        }
    }

    /// Of a number with a point.
    fn check(number: &str) -> Result<(), TestCaseError> {
        if number.contains('.') && is_canonical(number) {
            let mut form = String::new();
            write_double(number.parse().unwrap(), &mut form);
            prop_assert_eq!(form, number);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn numbers_that_are_left_are_canonical(number in r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?", zeros in r"0\.0{1,8}[0-9]{1,12}") {
            check(&number)?;
            check(&zeros)?;
        }

        #[test]
        fn any_double_is_written_as_it_is_canonical(bits: u64, cents: i32) {
            for double in [f64::from_bits(bits), f64::from(cents) / 100.0] {
                if double.is_finite() {
                    check(&format!("{double}"))?;
                }
            }
        }

        #[test]
        fn canonical_forms_are_seen(text in r#"\{("[a-dé\x{ffff}\x{10000}]":([1-9][0-9]{0,2}|"[a-z]\\[nt]"|\[\]|\{"b":1,"a":2\}),){0,5}"z":1\}"#) {
            let form = canonical(&text).unwrap();
            prop_assert!(is_canonical(&form), "{}", form);
            // And with something before it that is not in order.
            let disordered = format!(r#"{{"y":{form},"x": {text}}}"#);
            prop_assert_eq!(canonical(&disordered).unwrap(), format!(r#"{{"x":{form},"y":{form}}}"#));
        }

        #[test]
        fn what_is_its_own_form_is_a_value_sorted_by_others(text in r#"\{("[a-d]":([1-9][0-9]{0,2}|"[a-z]\\[nt"]"|\[1\]|\{"[ab]":1,"[cd]":2\}|\{"[ab]":1,"[ab]":2\}),){0,3}"z":1\}"#) {
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let sorted = value.to_string();
            // serde_json keeps one of two members of the same name; otherwise it sorts as we do.
            if sorted.len() == text.len() {
                prop_assert_eq!(is_canonical(&text), sorted == text);
            }
        }
    }
}
