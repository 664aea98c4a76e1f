//! Numbers of payment cards (ISO/IEC 7812).

use super::Span;
use crate::placeholder::Label;

/// The fewest digits of a card's number.
pub(super) const FEWEST_DIGITS: u32 = 13;
const MOST_DIGITS: usize = 19;

/// Groupings in which card numbers are printed. One without separators has a group of 13 to 19.
const GROUPINGS: [&[usize]; 4] = [&[4, 4, 4, 4, 3], &[4, 4, 4, 4], &[4, 6, 5], &[4, 6, 4]];

/// Finds numbers of cards.
pub(super) fn find(text: &[u8], spans: &mut Vec<Span>) {
    let mut at = 0;
    while let Some(found) = text[at..].iter().position(u8::is_ascii_digit) {
        let start = at + found;
        let first_end = digits_end(text, start);
        at = first_end;
        if !may_begin(text, start) {
            continue;
        }
        if let Some(end) = card_at(text, start, first_end) {
            spans.push(Span {
                start,
                end,
                label: Label::Card,
            });
            at = end;
        }
    }
}

/// Returns true if a number of JSON, in any notation, is a card number.
pub(super) fn is_number(number: &str) -> bool {
    if number.len() < FEWEST_DIGITS as usize || number.starts_with('-') {
        return false;
    }
    if number.bytes().all(|byte| byte.is_ascii_digit()) {
        return number.len() <= MOST_DIGITS && is_card(number.as_bytes());
    }
    // 4.111111111111111e15 and 4111111111111111.0 are the same to who reads them. Beyond 2^53 such
    // numbers are not exact, and no card's number survives in them.
    match number.parse::<f64>() {
        Ok(number) if number < 9_007_199_254_740_992.0 && number.fract() == 0.0 => {
            is_card(format!("{number}").as_bytes())
        }
        _ => false,
    }
}

/// No part of a word or of a fraction.
fn may_begin(text: &[u8], start: usize) -> bool {
    match text[..start] {
        [.., before, b'.'] => !before.is_ascii_digit(),
        [.., before] => !before.is_ascii_alphabetic(),
        [] => true,
    }
}

/// The end of the card's number that begins at `start`, whose first digits end at `first_end`.
fn card_at(text: &[u8], start: usize, first_end: usize) -> Option<usize> {
    let first = &text[start..first_end];
    if FEWEST_DIGITS as usize <= first.len() {
        let is_card =
            first.len() <= MOST_DIGITS && !goes_on_as_word(text, first_end) && is_card(first);
        return is_card.then_some(first_end);
    }
    if first.len() != 4 {
        return None;
    }
    let separator = separator_at(text, first_end)?;
    // What is between two hyphens is as likely to be a part of something longer, such as a UUID.
    if separator == b"-" && matches!(text[..start], [.., b'0'..=b'9', b'-']) {
        return None;
    }
    let mut ends = [first_end; 5];
    let mut lengths = [4; 5];
    let mut count = 1;
    while count < 5
        && let rest = &text[ends[count - 1]..]
        && rest.starts_with(separator)
    {
        let group = ends[count - 1] + separator.len();
        let end = group
            + text[group..]
                .iter()
                .take(7)
                .take_while(|it| it.is_ascii_digit())
                .count();
        if end == group {
            break;
        }
        (ends[count], lengths[count]) = (end, end - group);
        count += 1;
    }
    GROUPINGS.into_iter().find_map(|grouping| {
        let end = *ends.get(grouping.len() - 1)?;
        if count < grouping.len()
            || lengths[..grouping.len()] != *grouping
            || goes_on(text, end, separator)
        {
            return None;
        }
        let mut digits = [0; MOST_DIGITS];
        let mut length = 0;
        for digit in text[start..end].iter().filter(|it| it.is_ascii_digit()) {
            digits[length] = *digit;
            length += 1;
        }
        is_card(&digits[..length]).then_some(end)
    })
}

fn digits_end(text: &[u8], start: usize) -> usize {
    start
        + text[start..]
            .iter()
            .take_while(|it| it.is_ascii_digit())
            .count()
}

/// Separators between groups that people and programs use: spaces of any width, hyphens and dots.
fn separator_at(text: &[u8], at: usize) -> Option<&[u8]> {
    const SEPARATORS: [&[u8]; 11] = [
        b" ",
        b"-",
        b".",
        b"  ",
        b" - ",
        "\u{a0}".as_bytes(),
        "\u{2007}".as_bytes(),
        "\u{2009}".as_bytes(),
        "\u{202f}".as_bytes(),
        "\u{2011}".as_bytes(),
        "\u{2013}".as_bytes(),
    ];
    let rest = &text[at..];
    SEPARATORS.into_iter().find(|it| {
        rest.strip_prefix(*it)
            .is_some_and(|after| after.first().is_some_and(u8::is_ascii_digit))
    })
}

fn goes_on_as_word(text: &[u8], end: usize) -> bool {
    text.get(end).is_some_and(u8::is_ascii_alphanumeric)
}

/// Returns true if the groups continue: in a longer number, but not in a date of expiry after it.
fn goes_on(text: &[u8], end: usize, separator: &[u8]) -> bool {
    let after = text[end..].strip_prefix(b"-").unwrap_or_default();
    goes_on_as_word(text, end)
        || separator == b"-"
            && after
                .iter()
                .take(3)
                .filter(|it| it.is_ascii_alphanumeric())
                .count()
                == 3
}

fn is_card(digits: &[u8]) -> bool {
    is_issued(digits) && has_right_check_digit(digits)
}

/// Returns true if a card scheme issues numbers with this prefix and length.
fn is_issued(digits: &[u8]) -> bool {
    let length = digits.len();
    if length < FEWEST_DIGITS as usize {
        return false;
    }
    let beginning = digits[..4]
        .iter()
        .fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
    match beginning {
        // Visa. Its numbers of 13 digits have been withdrawn, and bar codes look like them.
        4000..=4999 => matches!(length, 16 | 19),
        // Mastercard.
        5100..=5599 | 2221..=2720 => length == 16,
        // American Express.
        3400..=3499 | 3700..=3799 => length == 15,
        // Diners Club.
        3000..=3059 | 3095 | 3600..=3699 | 3800..=3999 => matches!(length, 14 | 16 | 19),
        // JCB.
        3528..=3589 => (16..=19).contains(&length),
        // Discover, UnionPay, RuPay.
        6011 | 6200..=6299 | 6440..=6599 | 8100..=8199 | 6060..=6099 => (16..=19).contains(&length),
        // Mir.
        2200..=2204 => (16..=19).contains(&length),
        // Maestro.
        5018 | 5020 | 5038 | 5893 | 6304 | 6759 | 6761..=6763 => (13..=19).contains(&length),
        _ => false,
    }
}

/// The formula of Luhn.
fn has_right_check_digit(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(
            |(place, digit)| match (place % 2, u32::from(digit - b'0')) {
                (0, digit) => digit,
                (_, digit @ 0..=4) => 2 * digit,
                (_, digit) => 2 * digit - 9,
            },
        )
        .sum();
    sum.is_multiple_of(10)
}
