//! Values after the names of secrets, in running text: `password=…`, `"token": "…"`,
//! `Authorization: …`, `{'pin': …}`, `<secret>…</secret>`.

use super::{Span, token};
use crate::{
    names::{Meaning, Names},
    placeholder::{self, Label},
};

/// The most quotes, brackets and spaces between a name and its sign.
const MOST_CLOSING: usize = 12;

/// The most spaces between a sign and its value.
const MOST_SPACES: usize = 16;

/// The longest name that ends a value before it, as in `password=a&user=b`.
const LONGEST_NAME: usize = 64;

pub(super) fn find(text: &str, names: &Names, spans: &mut Vec<Span>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(found) = memchr::memchr3(b':', b'=', b'>', &bytes[at..]) {
        let sign = at + found;
        at = sign + 1;
        let name_end = name_end(bytes, sign);
        let Some(meaning) = names.meaning(bytes, 0, name_end) else {
            continue;
        };
        let value = match (bytes[sign], meaning) {
            (_, Meaning::Harmless) => continue,
            (b'>', _) => element(text, sign),
            (_, meaning) => value(text, sign, meaning),
        };
        let is_none = |it: &(usize, usize)| {
            meaning == Meaning::SecretToken && !token::is_token_alone(&bytes[it.0..it.1])
        };
        if let Some((start, end)) = value.filter(|it| !is_none(it)) {
            spans.push(Span {
                start,
                end,
                label: Label::Secret,
            });
            at = end.max(at);
        }
    }
}

/// The value after a colon or an equals sign of East Asian scripts, at `start..end`. Sentences go on after such a sign
/// without a blank: in other letters than ASCII, or with a word of a sentence.
pub(super) fn after_wide_sign(text: &str, start: usize, end: usize, names: &Names) -> Option<Span> {
    let bytes = text.as_bytes();
    let meaning = names.meaning(bytes, 0, name_end(bytes, start))?;
    if meaning == Meaning::Harmless {
        return None;
    }
    // A bracket that never ends would be looked at from every sign before it.
    if let [b'{' | b'[', ..] = bytes[end + blanks(&bytes[end..])..] {
        return None;
    }
    let (start, end) = value_behind(text, end, true, meaning)?;
    let value = &bytes[start..end];
    let is_secret = value[0].is_ascii()
        && !is_of_prose(value)
        && (meaning != Meaning::SecretToken || token::is_token_alone(value));
    is_secret.then_some(Span {
        start,
        end,
        label: Label::Secret,
    })
}

/// Index at which a name ends before its sign.
fn name_end(text: &[u8], sign: usize) -> usize {
    let closing = text[..sign]
        .iter()
        .rev()
        .take(MOST_CLOSING)
        .take_while(|it| matches!(it, b' ' | b'\t' | b'"' | b'\'' | b'`' | b'\\' | b']'))
        .count();
    sign - closing
}

/// The content of the element whose tag ends here.
fn element(text: &str, sign: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let tag = &bytes[sign.saturating_sub(LONGEST_NAME)..sign];
    let opening = memchr::memrchr(b'<', tag)?;
    if tag[opening..].starts_with(b"</") {
        return None;
    }
    let start = sign + 1;
    let end = memchr::memchr(b'<', &bytes[start..]).map_or(text.len(), |it| start + it);
    let is_secret =
        start < end && placeholder::length_at_start(&text[start..]) != Some(end - start);
    is_secret.then_some((start, end))
}

/// The value after a sign.
fn value(text: &str, sign: usize, meaning: Meaning) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    // `=>`, `:=`, `==`.
    let signs = bytes[sign + 1..]
        .iter()
        .take(2)
        .take_while(|it| matches!(it, b'=' | b'>'))
        .count();
    value_behind(text, sign + 1 + signs, bytes[sign] == b':', meaning)
}

/// The value behind a sign that ends at `start`.
fn value_behind(
    text: &str,
    mut start: usize,
    is_colon: bool,
    meaning: Meaning,
) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    if is_colon && bytes[start..].starts_with(b"//") {
        return None;
    }
    let spaces = blanks(&bytes[start..]);
    start += spaces;
    if let [b'\n' | b'\r', ..] = bytes[start..] {
        return match meaning {
            Meaning::Secret if is_colon => below(text, start),
            _ => None,
        };
    }
    // `b'…'`, as Python writes bytes.
    if let [
        b'b' | b'B' | b'r' | b'R' | b'u' | b'U' | b'f' | b'F',
        b'"' | b'\'',
        ..,
    ] = bytes[start..]
    {
        start += 1;
    }
    let backslashes = bytes[start..]
        .iter()
        .take(16)
        .take_while(|it| **it == b'\\')
        .count();
    match bytes.get(start + backslashes)? {
        quote @ (b'"' | b'\'' | b'`') => {
            let start = start + backslashes + 1;
            if meaning == Meaning::SecretToken && !begins_token(&bytes[start..], *quote) {
                return None;
            }
            let end = quoted_end(bytes, start, *quote, backslashes);
            let is_secret =
                start < end && placeholder::length_at_start(&text[start..]) != Some(end - start);
            is_secret.then_some((start, end))
        }
        // A token is no list; and a bracket that never ends would be looked at from every sign before it.
        b'{' | b'[' if meaning == Meaning::SecretToken => None,
        b'{' | b'['
            if backslashes == 0 && placeholder::length_at_start(&text[start..]).is_none() =>
        {
            Some((start, bracketed_end(bytes, start)))
        }
        _ if placeholder::length_at_start(&text[start..]).is_some() => None,
        _ => {
            let end = match meaning {
                Meaning::SecretLine => line_end(bytes, start),
                _ => word_end(bytes, start),
            };
            // `OWLCLAW_API_KEY: the key is not known` is about a secret, and none.
            let is_prose = is_colon && 0 < spaces && is_of_prose(&bytes[start..end]);
            let is_secret = start < end && !is_prose && !is_nothing(&bytes[start..end]);
            is_secret.then_some((start, end))
        }
    }
}

/// Returns true if a quoted text begins as a token does: with a word that is followed by the quotation mark, or by its escape.
fn begins_token(text: &[u8], quote: u8) -> bool {
    let is_word = |it: &&u8| b' ' < **it && **it != quote && **it != b'\\';
    let word = text.iter().take_while(is_word).count();
    text.get(word).is_none_or(|it| *it == quote || *it == b'\\')
}

/// Number of blanks in front, up to [`MOST_SPACES`].
fn blanks(text: &[u8]) -> usize {
    let blanks = text.iter().take(MOST_SPACES);
    blanks.take_while(|it| matches!(it, b' ' | b'\t')).count()
}

/// The only word of the line after the one that ends at `end`: farther to the right, as in YAML, or like a token.
fn below(text: &str, end: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let line = end + bytes[end..].iter().take(2).position(|it| *it == b'\n')? + 1;
    let indent = blanks(&bytes[line..]);
    let start = line + indent;
    let is_word = |it: &&u8| b' ' < **it && !matches!(it, b'"' | b'\'' | b'`' | b'<' | b'{' | b'[');
    let word = bytes[start..].iter().take_while(is_word).count();
    let behind = &bytes[start + word..];
    let is_alone = matches!(behind[blanks(behind)..], [] | [b'\n' | b'\r', ..]);
    let word = &bytes[start..start + word];
    let is_value = match word {
        [] | [.., b':'] => false,
        word if 0 < indent => !is_of_prose(word) && !is_nothing(word),
        word => token::is_token_alone(word),
    };
    let is_secret = is_alone && is_value && placeholder::length_at_start(&text[start..]).is_none();
    is_secret.then_some((start, start + word.len()))
}

/// End of a quotation that begins with this number of backslashes and `quote`.
fn quoted_end(text: &[u8], start: usize, quote: u8, backslashes: usize) -> usize {
    let mut before = 0;
    for (at, byte) in text.iter().enumerate().skip(start) {
        match *byte {
            b'\\' => before += 1,
            byte if byte == quote => {
                // Within escapes, what is escaped no more than the beginning was.
                let ends = match backslashes {
                    0 => before % 2 == 0,
                    backslashes => before <= backslashes,
                };
                if ends {
                    return at - before.min(backslashes);
                }
                before = 0;
            }
            _ => before = 0,
        }
    }
    text.len()
}

/// End of a bracketed text, the closing bracket included. Brackets in quotes count too: at worst
/// more is taken out.
fn bracketed_end(text: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.iter().enumerate().skip(start) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// The end of the line, or of the quotation that the whole line is in: of quotes that were opened in
/// the value, as in `Digest username="x"`, both are part of it.
fn line_end(text: &[u8], start: usize) -> usize {
    let mut open = None;
    for (at, byte) in text.iter().enumerate().skip(start) {
        match (byte, open) {
            (b'\n' | b'\r', _) => return at,
            (b'"' | b'\'', Some(quote)) if quote == byte => open = None,
            (b'"' | b'\'', None) if start < at && matches!(text[at - 1], b'=' | b' ' | b',') => {
                open = Some(byte);
            }
            (b'"' | b'\'', None) => return at,
            _ => {}
        }
    }
    text.len()
}

/// End of a value that is not quoted. What separates values ends it if another name or nothing
/// follows: `&` may be part of a password.
fn word_end(text: &[u8], start: usize) -> usize {
    let mut end = start;
    while let Some(byte) = text.get(end) {
        match byte {
            0..=b' ' | b'"' | b'\'' | b'`' | b'<' => break,
            b'&' | b';' | b',' if ends_here(&text[end + 1..]) => break,
            _ => end += 1,
        }
    }
    // Of what is around it.
    while start < end && matches!(text[end - 1], b')' | b']' | b'}' | b',' | b'>') {
        end -= 1;
    }
    end
}

fn ends_here(rest: &[u8]) -> bool {
    let name = rest
        .iter()
        .take(LONGEST_NAME)
        .take_while(|it| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-' | b'.' | b' '))
        .count();
    match rest.get(name) {
        _ if rest.first().is_none_or(|it| *it <= b' ') => true,
        Some(b'=' | b':') => 0 < name,
        _ => false,
    }
}

/// Words that say something about a secret, and are none: a sentence begins or goes on with them.
fn is_of_prose(word: &[u8]) -> bool {
    const WORDS: [&str; 57] = [
        "a", "all", "an", "and", "are", "as", "at", "be", "but", "by", "can", "cannot", "could",
        "does", "each", "expected", "expired", "for", "from", "has", "have", "if", "in", "invalid",
        "is", "it", "its", "may", "missing", "must", "need", "needed", "needs", "neither", "no",
        "nobody", "not", "nothing", "of", "on", "one", "only", "or", "required", "set", "should",
        "that", "the", "there", "this", "to", "unknown", "unset", "was", "with", "without",
        "wrong",
    ];
    let signs = word.iter().rev();
    let signs = signs.take_while(|it| matches!(it, b'.' | b',' | b';' | b':' | b'!'));
    let word = &word[..word.len() - signs.count()];
    WORDS
        .iter()
        .any(|it| word.eq_ignore_ascii_case(it.as_bytes()))
}

/// Returns true for a text that programs write in place of a missing or already redacted value.
fn is_nothing(value: &[u8]) -> bool {
    const NOTHING: [&[u8]; 7] = [
        b"null",
        b"none",
        b"nil",
        b"true",
        b"false",
        b"undefined",
        b"...",
    ];
    NOTHING.iter().any(|it| value.eq_ignore_ascii_case(it)) || value.iter().all(|it| *it == b'*')
}
