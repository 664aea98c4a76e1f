//! Tokens after the name of a scheme, and JSON web tokens.

use super::{
    Span,
    key_shape::{is_boundary, reads_like_words},
};
use crate::placeholder::Label;

/// Length of the shortest token, below which a text counts as a word of prose.
const SHORTEST: usize = 8;

/// From this length on a single word is no word.
const LONG: usize = 24;

/// A token after `Bearer` or `Basic`; `at` is where the last letters of the scheme begin that were
/// found (`earer`, `asic`), and `end` where they end, the space after them included.
pub(super) fn after_scheme(text: &[u8], at: usize, end: usize) -> Option<Span> {
    let b = at.checked_sub(1)?;
    if !text[b].eq_ignore_ascii_case(&b'b') || !is_boundary(text, b) {
        return None;
    }
    let spaces = text[end..]
        .iter()
        .take(8)
        .take_while(|it| matches!(it, b' ' | b'\t'))
        .count();
    let start = end + spaces;
    let is_basic = text[at].eq_ignore_ascii_case(&b'a');
    let end = run_end(text, start, is_token);
    let token = &text[start..end];
    let is_secret = if is_basic {
        is_user_and_password(token)
    } else {
        is_no_word(token)
    };
    is_secret.then_some(Span {
        start,
        end,
        label: Label::Token,
    })
}

/// Names of schemes and mechanisms that have digits, or capitals inside; without signs and in small letters.
const SCHEMES: [&str; 14] = [
    "apikeyauth",
    "aws4hmacsha256",
    "basicauth",
    "bearerauth",
    "bearertoken",
    "digestauth",
    "httpbasic",
    "httpbearer",
    "oauth2bearer",
    "oauth2passwordbearer",
    "oauthbearer",
    "openidconnect",
    "scramsha1",
    "scramsha256",
];

/// True if a value reads like a token: one word, and neither one of a language nor the name of a scheme.
pub(super) fn is_token_alone(value: &[u8]) -> bool {
    let is_outside = |it: &u8| *it <= b' ' || !it.is_ascii();
    if value.len() < SHORTEST || value.iter().any(is_outside) || reads_like_words(value) {
        return false;
    }
    // Addresses are judged as such.
    if memchr::memmem::find(value, b"://").is_some() {
        return false;
    }
    let name = value.iter().filter(|it| it.is_ascii_alphanumeric());
    let name: Vec<u8> = name.take(LONG).map(u8::to_ascii_lowercase).collect();
    !SCHEMES.iter().any(|it| it.as_bytes() == name)
}

/// The characters of RFC 6750 and RFC 7617.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
}

/// `Bearer of bad news` is none, and neither is `bearer authentication`.
fn is_no_word(token: &[u8]) -> bool {
    let beginning = &token[..token.len().min(LONG)];
    let has_capital_inside = || {
        beginning.iter().skip(1).any(u8::is_ascii_uppercase)
            && beginning.iter().any(u8::is_ascii_lowercase)
    };
    SHORTEST <= token.len()
        && (LONG <= token.len() || beginning.iter().any(u8::is_ascii_digit) || has_capital_inside())
}

/// Returns true if `token` is base64 of `user:password`; `Basic information` is not.
fn is_user_and_password(token: &[u8]) -> bool {
    let digits = token
        .iter()
        .position(|it| *it == b'=')
        .unwrap_or(token.len());
    let (digits, padding) = token.split_at(digits);
    if digits.len() < 4 || 2 < padding.len() {
        return false;
    }
    let mut has_colon = false;
    for quantum in digits.chunks(4) {
        let bits = quantum
            .iter()
            .try_fold(0_u32, |bits, digit| Some(bits << 6 | sextet(*digit)?));
        let Some(bits) = bits else {
            return false;
        };
        let bytes = (bits << (6 * (4 - quantum.len()))).to_be_bytes();
        for byte in &bytes[1..quantum.len().max(1)] {
            if byte.is_ascii_control() {
                return false;
            }
            has_colon |= *byte == b':';
        }
    }
    has_colon
}

fn sextet(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some(value.into())
}

/// A JSON web token: base64 of something that begins like an object, and at least two parts more
/// after dots, which may be empty but for the first of them.
pub(super) fn json_web(text: &[u8], start: usize) -> Option<Span> {
    let is_inside = matches!(start.checked_sub(1).map(|it| text[it]), Some(b'-' | b'_'));
    if is_inside || !is_boundary(text, start) {
        return None;
    }
    let header = run_end(text, start, is_base64url);
    if header < start + 8 || text.get(header) != Some(&b'.') {
        return None;
    }
    let payload = run_end(text, header + 1, is_base64url);
    if text.get(payload) != Some(&b'.') {
        return None;
    }
    let end = run_end(text, payload + 1, |byte| is_base64url(byte) || byte == b'.');
    // The dot of a sentence is no harm.
    Some(Span {
        start,
        end,
        label: Label::Jwt,
    })
}

fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

pub(super) fn run_end(text: &[u8], start: usize, belongs: impl Fn(u8) -> bool) -> usize {
    start + text[start..].iter().take_while(|it| belongs(**it)).count()
}
