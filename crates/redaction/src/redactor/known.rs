//! Secrets that this process knows, found by their value wherever they stand.

use crate::{
    redactor::given::secret_parts,
    scan::{NotJson, Scanner, Text, Token},
    string,
};
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use arc_swap::ArcSwapOption;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

/// The fewest bytes of a value that is looked for: shorter ones stand in texts by chance.
pub const MIN_KNOWN_BYTES: usize = 8;
/// Stands where a known secret stood.
pub const KNOWN: &str = "[redacted secret]";
/// Depth to which strings of JSON are searched for JSON of their own.
const MAX_EMBEDDED: usize = 4;
/// The fewest bytes of a line of a value of several lines that is looked for by itself.
const MIN_LINE_BYTES: usize = 16;
/// The fewest bytes of a value whose Base64 forms are looked for: those of a shorter one stand in texts by chance.
const MIN_ENCODED_BYTES: usize = 8;
/// The fewest bytes from which a value of letters alone is taken out of the names of members, too: a shorter one may
/// be a name of the protocol.
const MIN_LETTERS_IN_NAME: usize = 24;

/// The fewest bytes at the end of a line that may be an encoding which goes on in the next one: programs break lines
/// after 60 to 76.
const MIN_WRAPPED_BYTES: usize = 40;

/// Members in which the protocol has bytes, in Base64.
const BYTES: [&str; 2] = ["blob", "data"];

/// The most tokens that are looked for: of more, the one that was told the longest ago is forgotten.
pub const MAX_KNOWN_TOKENS: usize = 1024;
/// The fewest bytes of a token of which the end alone is looked for.
const MIN_LONG_TOKEN: usize = 64;
/// Bytes of the end of a long token by which it is found: what begins a token is that of others, too.
const TOKEN_END: usize = 32;

/// Searches for all values; replaced as a whole when one is added.
static SEARCH: ArcSwapOption<Search> = ArcSwapOption::const_empty();
/// Values that are searched for.
static VALUES: Mutex<Known> = Mutex::new(Known {
    values: BTreeSet::new(),
    tokens: VecDeque::new(),
});

struct Known {
    values: BTreeSet<String>,
    /// The last to be told last.
    tokens: VecDeque<KnownToken>,
}

/// The part of a token that is looked for, and the number of bytes in front of it.
#[derive(PartialEq, Eq)]
struct KnownToken {
    end: String,
    before: usize,
}

struct Search {
    automaton: AhoCorasick,
    /// Most bytes in front of each pattern that belong to the value that it is the end of, and whether it is in Base64.
    patterns: Vec<(usize, bool)>,
}

/// Takes these values for secrets from now on, for as long as the process lives: every [`Redactor`](crate::Redactor),
/// [`without_known`] and [`without_known_json`] take them out, whatever the configuration of redaction. So do they
/// with their forms in percent encoding, Base64, hexadecimal digits and strings of JSON, and with each line of 16
/// bytes or more of a value of several lines. Values of fewer than [`MIN_KNOWN_BYTES`] bytes are not looked for.
///
/// Secrets that are parts of a value, such as the password of an address or what stands behind `Bearer`, are looked for by
/// themselves, too.
///
/// Values stay in memory, since they are searched for.
pub fn know<'v>(values: impl IntoIterator<Item = &'v str>) {
    let mut all = Vec::new();
    for value in values {
        for part in secret_parts("", value) {
            let part = &value[part.place];
            all.extend(unescaped(part));
            all.push(part.to_owned());
        }
        all.push(value.to_owned());
    }
    let mut known = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
    let before = known.values.len();
    for value in &all {
        let value = value.trim();
        if value.len() < MIN_KNOWN_BYTES {
            continue;
        }
        if !known.values.contains(value) {
            known.values.insert(value.to_owned());
        }
        if value.contains('\n') {
            let lines = value.lines().map(str::trim);
            known.values.extend(
                lines
                    .filter(|it| MIN_LINE_BYTES <= it.len())
                    .map(str::to_owned),
            );
        }
    }
    if known.values.len() != before {
        known.search();
    }
}

/// A part of an address without its percent encoding, if it has any.
fn unescaped(part: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut pieces = part.split('%');
    bytes.extend_from_slice(pieces.next()?.as_bytes());
    for piece in pieces {
        let digits = piece
            .get(..2)
            .filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()));
        match digits.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&piece.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(piece.as_bytes());
            }
        }
    }
    String::from_utf8(bytes).ok().filter(|it| it != part)
}

/// Takes this for a secret, as [`know`] does, until [`MAX_KNOWN_TOKENS`] others were told after it: for tokens, which come
/// and go for as long as the process lives. One that is told again counts as told now.
///
/// A token of 64 bytes or more is found by its last 32, and taken out as a whole.
pub fn know_token(token: &str) {
    let token = token.trim();
    if token.len() < MIN_KNOWN_BYTES {
        return;
    }
    let at = match token.len() {
        MIN_LONG_TOKEN.. => (token.len() - TOKEN_END..token.len())
            .find(|at| token.is_char_boundary(*at))
            .unwrap_or(0),
        _ => 0,
    };
    let end = KnownToken {
        end: token[at..].to_owned(),
        before: at,
    };
    let mut known = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
    let place = known.tokens.iter().position(|it| *it == end);
    let is_new = place.is_none();
    if let Some(place) = place {
        known.tokens.remove(place);
    } else if MAX_KNOWN_TOKENS <= known.tokens.len() {
        known.tokens.pop_front();
    }
    known.tokens.push_back(end);
    if is_new {
        known.search();
    }
}

impl Known {
    /// Searches for these from now on.
    fn search(&self) {
        let mut patterns = BTreeMap::new();
        for value in &self.values {
            forms(value, |form, is_encoded| {
                patterns.entry(form).or_insert((0, is_encoded));
            });
        }
        for token in &self.tokens {
            forms(&token.end, |form, is_encoded| {
                // No form of a byte is longer than three.
                let before = match form == token.end {
                    true => token.before,
                    false => 3 * token.before + usize::from(token.before != 0),
                };
                let (most, _) = patterns.entry(form).or_insert((0, is_encoded));
                *most = before.max(*most);
            });
        }
        let (texts, patterns): (Vec<String>, Vec<_>) = patterns.into_iter().unzip();
        let automaton = AhoCorasickBuilder::new()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&texts);
        // It fails for gigabytes of values alone, which no source of values has.
        if let Ok(automaton) = automaton {
            SEARCH.store(Some(Arc::new(Search {
                automaton,
                patterns,
            })));
        }
    }
}

/// Start of the value that ends with what was found at `start`: as many as `most` bytes before it, as far as they can be
/// those of a token.
fn start_of(text: &[u8], start: usize, most: usize) -> usize {
    let is_tokens = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=%".contains(byte);
    let before = text[..start].iter().rev().take(most);
    start - before.take_while(|it| is_tokens(it)).count()
}

/// Returns true if there are values to look for.
#[must_use]
pub fn knows_any() -> bool {
    SEARCH.load().is_some()
}

/// A text without the values that [`know`] was told.
#[must_use]
pub fn without_known(text: &str) -> Cow<'_, str> {
    match &*SEARCH.load() {
        Some(search) => search.text(text),
        None => Cow::Borrowed(text),
    }
}

/// A text of JSON without the values that [`know`] was told, which is JSON again. Escapes are read, and so is JSON in
/// strings; a number that has a value in it becomes a string. What is not JSON is taken as [text](without_known).
#[must_use]
pub fn without_known_json(json: &str) -> Cow<'_, str> {
    match &*SEARCH.load() {
        Some(search) => search.json(json),
        None => Cow::Borrowed(json),
    }
}

/// Bytes without the values that [`know`] was told: there are as many as before, with `*` for each of such a value.
#[must_use]
pub fn without_known_bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    match &*SEARCH.load() {
        Some(search) => search.bytes(bytes),
        None => Cow::Borrowed(bytes),
    }
}

/// A text in Base64 without the values that [`know`] was told, which is Base64 of as many bytes again. Any other text is
/// taken as [such](without_known).
#[must_use]
pub fn without_known_base64(text: &str) -> Cow<'_, str> {
    match &*SEARCH.load() {
        Some(search) => match search.base64(text) {
            Some(without) => Cow::Owned(without),
            None => search.text(text),
        },
        None => Cow::Borrowed(text),
    }
}

impl Search {
    fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut without = Cow::Borrowed(bytes);
        for found in self.automaton.find_iter(bytes) {
            let (most, _) = self.patterns[found.pattern().as_usize()];
            let start = start_of(bytes, found.start(), most);
            without.to_mut()[start..found.end()].fill(b'*');
        }
        without
    }

    /// Base64 with nothing in place of the values; `None` if it is none, or has none of them in that form.
    fn base64(&self, text: &str) -> Option<String> {
        let is_of_it = |it: &u8| it.is_ascii_alphanumeric() || b"+/-_".contains(it);
        let padding = text.len() - text.trim_end_matches('=').len();
        let digits = &text.as_bytes()[..text.len() - padding];
        let mut is_base64 = None;
        let mut without: Option<Vec<u8>> = None;
        for found in self.automaton.find_iter(digits) {
            let (most, is_encoded) = self.patterns[found.pattern().as_usize()];
            // Looked at once: there may be a match at every few bytes.
            if !is_encoded || !*is_base64.get_or_insert_with(|| digits.iter().all(is_of_it)) {
                return None;
            }
            // The digits around it have a part of its first and last byte.
            let start = start_of(digits, found.start(), most).saturating_sub(1);
            let end = (found.end() + 1).min(digits.len());
            without.get_or_insert_with(|| digits.to_vec())[start..end].fill(b'A');
        }
        let mut without = String::from_utf8(without?).ok()?;
        without.push_str(&text[text.len() - padding..]);
        Some(without)
    }

    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let without = self.line(text);
        match self.wrapped(&without) {
            Some(without) => Cow::Owned(without),
            None => without,
        }
    }

    /// The text without values whose encoding goes on in the next line, if it has any.
    fn wrapped(&self, text: &str) -> Option<String> {
        let breaks: Vec<_> = breaks(text.as_bytes()).collect();
        let mut joined = String::with_capacity(text.len());
        // The places in it behind which something is left out, and the bytes that are left out up to there.
        let (mut gaps, mut left_out, mut copied) = (Vec::new(), 0, 0);
        for Range { start, end } in breaks {
            joined.push_str(&text[copied..start]);
            left_out += end - start;
            gaps.push((joined.len(), left_out));
            copied = end;
        }
        gaps.last()?;
        joined.push_str(&text[copied..]);
        let behind = |at: usize| match gaps.partition_point(|(place, _)| *place <= at) {
            0 => at,
            some => at + gaps[some - 1].1,
        };
        let (mut out, mut copied) = (String::new(), 0);
        for found in self.automaton.find_iter(&joined) {
            let (start, end) = (behind(found.start()), behind(found.end() - 1) + 1);
            if copied <= start && end - start != found.len() {
                out.push_str(&text[copied..start]);
                out.push_str(KNOWN);
                copied = end;
            }
        }
        (copied != 0).then(|| out + &text[copied..])
    }

    fn line<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = String::new();
        let mut copied = 0;
        for found in self.automaton.find_iter(text) {
            let (most, _) = self.patterns[found.pattern().as_usize()];
            let start = start_of(text.as_bytes(), found.start(), most).max(copied);
            out.push_str(&text[copied..start]);
            out.push_str(KNOWN);
            copied = found.end();
        }
        match copied {
            0 => Cow::Borrowed(text),
            _ => {
                out.push_str(&text[copied..]);
                Cow::Owned(out)
            }
        }
    }

    fn json<'a>(&self, json: &'a str) -> Cow<'a, str> {
        // Most texts have neither, and are read once.
        if !self.automaton.is_match(json) && !hides_characters(json) {
            return Cow::Borrowed(json);
        }
        match self.walk(json, 0) {
            Ok(without) => without,
            Err(NotJson) => self.text(json),
        }
    }

    fn walk<'a>(&self, json: &'a str, level: usize) -> Result<Cow<'a, str>, NotJson> {
        let mut scanner = Scanner::new(json);
        let mut out = String::new();
        let mut copied = 0;
        let mut holds_bytes = false;
        while let Some(token) = scanner.next()? {
            let is_value_of_bytes = std::mem::take(&mut holds_bytes);
            let (start, end, new) = match token {
                Token::String(text) => {
                    let bytes = is_value_of_bytes.then(|| self.base64(&json[text.range()]));
                    let new = bytes.flatten().or_else(|| self.string(json, text, level));
                    (text.start, text.end, new)
                }
                Token::Name(text) => {
                    holds_bytes = BYTES.contains(&&json[text.range()]);
                    (text.start, text.end, self.name(json, text))
                }
                Token::Number(start, end) if self.automaton.is_match(&json[start..end]) => {
                    (start, end, Some(format!("\"{KNOWN}\"")))
                }
                _ => continue,
            };
            if let Some(new) = new {
                out.push_str(&json[copied..start]);
                out.push_str(&new);
                copied = end;
            }
        }
        Ok(match copied {
            0 => Cow::Borrowed(json),
            _ => {
                out.push_str(&json[copied..]);
                Cow::Owned(out)
            }
        })
    }

    /// The inside of a string without the values, if it has any.
    fn string(&self, json: &str, text: Text, level: usize) -> Option<String> {
        let raw = &json[text.range()];
        if !text.is_escaped {
            return match self.text(raw) {
                Cow::Borrowed(_) => None,
                Cow::Owned(without) => Some(without),
            };
        }
        let decoded = string::decoded(raw);
        let inner = level < MAX_EMBEDDED && decoded.trim_start().starts_with(['{', '[', '"']);
        let inner = inner.then(|| self.walk(&decoded, level + 1).ok()).flatten();
        let without = match inner {
            Some(without) => without,
            None => self.text(&decoded),
        };
        match without {
            Cow::Borrowed(_) => None,
            Cow::Owned(without) => {
                let mut encoded = String::new();
                string::encode(&without, &mut encoded);
                Some(encoded)
            }
        }
    }

    /// The name of a member without the values, if it has any that can be no name of the protocol.
    fn name(&self, json: &str, text: Text) -> Option<String> {
        let raw = &json[text.range()];
        let said = match text.is_escaped {
            true => Cow::Owned(string::decoded(raw)),
            false => Cow::Borrowed(raw),
        };
        let found = self.automaton.find(&*said)?;
        let is_word = |it: &str| {
            it.bytes()
                .all(|byte| byte.is_ascii_alphabetic() || byte == b'/')
        };
        let value = &said[found.range()];
        if value.len() < MIN_LETTERS_IN_NAME && is_word(value) {
            return None;
        }
        let mut encoded = String::new();
        string::encode(&self.text(&said), &mut encoded);
        Some(encoded)
    }
}

/// Returns true if JSON may say something in other characters than it is written with.
fn hides_characters(json: &str) -> bool {
    let bytes = json.as_bytes();
    memchr::memchr_iter(b'\\', bytes).any(|at| match bytes.get(at + 1) {
        Some(b'u' | b'/' | b'\\') => true,
        Some(b'n' | b'r') => is_encoded(&bytes[..at]),
        _ => false,
    })
}

/// Returns true if a line ends as one of an encoding does that goes on in the next one.
fn is_encoded(line: &[u8]) -> bool {
    let is_digit = |it: &u8| it.is_ascii_alphanumeric() || b"+/-_".contains(it);
    let end = line.len().checked_sub(MIN_WRAPPED_BYTES);
    end.is_some_and(|start| line[start..].iter().all(is_digit))
}

/// The line breaks within encodings, with the indentation behind them.
fn breaks(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    memchr::memchr_iter(b'\n', text).filter_map(|at| {
        let start = match text[..at].last() {
            Some(b'\r') => at - 1,
            _ => at,
        };
        let indented = text[at + 1..].iter();
        let indented = indented.take_while(|it| matches!(it, b' ' | b'\t')).count();
        is_encoded(&text[..start]).then_some(start..at + 1 + indented)
    })
}

/// Characters that percent encoding leaves as they are beside letters, digits and `-._~`: none (RFC 3986), those of
/// JavaScript's `encodeURIComponent` and `encodeURI`, and that of Python's `quote`.
const KEPT: [&[u8]; 4] = [b"", b"!*'()", b";,/?:@&=+$!*'()#", b"/"];

/// The forms in which a value is looked for, each with whether it is Base64.
fn forms(value: &str, mut each: impl FnMut(String, bool)) {
    let mut into = |form| each(form, false);
    let bytes = value.as_bytes();
    into(value.to_owned());
    let mut escaped = String::new();
    string::encode(value, &mut escaped);
    into(escaped);
    for kept in KEPT {
        for (lower, plus) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut encoded = String::new();
            for byte in bytes {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                        encoded.push(char::from(*byte));
                    }
                    byte if kept.contains(byte) => encoded.push(char::from(*byte)),
                    b' ' if plus => encoded.push('+'),
                    byte if lower => {
                        let _ = write!(encoded, "%{byte:02x}");
                    }
                    byte => {
                        let _ = write!(encoded, "%{byte:02X}");
                    }
                }
            }
            into(encoded);
        }
    }
    if bytes.len() < MIN_ENCODED_BYTES {
        return;
    }
    for upper in [false, true] {
        let case = |digits: String| match upper {
            true => digits.to_uppercase(),
            false => digits,
        };
        into(
            bytes
                .iter()
                .map(|it| format!("%{}", case(format!("{it:02x}"))))
                .collect(),
        );
        let units = value.encode_utf16();
        into(
            units
                .map(|it| format!("\\u{}", case(format!("{it:04x}"))))
                .collect(),
        );
    }
    let mut digits = String::new();
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    into(digits.to_uppercase());
    into(digits);
    const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for alphabet in [STANDARD, URL] {
        for before in 0..3 {
            each(base64(bytes, before, alphabet), true);
        }
    }
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The characters of Base64 that depend on these bytes alone, where `before` bytes of others are in front of them.
fn base64(bytes: &[u8], before: usize, alphabet: &[u8; 64]) -> String {
    let at = |bit: usize| {
        let bit = bit.checked_sub(8 * before)?;
        Some(bytes.get(bit / 8)? >> (7 - bit % 8) & 1)
    };
    let last = (before + bytes.len()) * 8 / 6;
    let characters = (0..last).filter_map(|index| {
        let bits = (6 * index..6 * index + 6).map(at);
        let sextet = bits.reduce(|all, bit| Some(all? << 1 | bit?))??;
        Some(char::from(alphabet[usize::from(sextet)]))
    });
    characters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Redactor, Spec};

    /// Values are those of the process, so that each test has its own.
    fn cleaned(json: &str) -> String {
        let without = without_known_json(json);
        let read: serde_json::Value = serde_json::from_str(&without).unwrap();
        drop(read);
        without.into_owned()
    }

    #[test]
    fn a_known_value_is_found_in_base64_of_several_lines() {
        let value =
            "glpat-wrapped-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ98765";
        know([value]);
        let encoded = base64(
            format!("token: {value} and more behind it").as_bytes(),
            0,
            STANDARD,
        );
        for (width, between) in [(76, "\n"), (64, "\r\n"), (60, "\n    ")] {
            let lines: Vec<_> = encoded.as_bytes().chunks(width).collect();
            let lines = lines.iter().map(|it| std::str::from_utf8(it).unwrap());
            let text = lines.collect::<Vec<_>>().join(between);
            let without = without_known(&text);
            let left = without.replace(between, "").replace(KNOWN, "");
            assert!(left.len() < encoded.len() / 2, "{without}");
            let json = serde_json::to_string(&[&text]).unwrap();
            assert!(cleaned(&json).contains(KNOWN), "{json}");
        }
        let text = "0123456789012345678901234567890123456789\n0123456789\n";
        assert_eq!(without_known(text), text);
    }

    #[test]
    fn a_known_value_is_found_however_percent_encoding_is_done() {
        know(["pa&ss<wo>rd/with:odd@chars#1"]);
        for said in [
            "pa%26ss%3Cwo%3Erd/with%3Aodd%40chars%231",
            "pa&ss%3Cwo%3Erd/with:odd@chars#1",
            "pa%26ss%3Cwo%3Erd%2Fwith%3Aodd%40chars%231",
        ] {
            assert_eq!(without_known(said), KNOWN);
        }
    }

    #[test]
    fn secrets_that_are_parts_of_a_known_value_are_known() {
        know([
            "postgresql://ana:canary-part%2Bone@db/shop",
            "https://h/mcp?lang=english1&api_key=canary-part-two",
            "X-Api-Key:canary-part-three",
            "Bearer canary-part-four",
        ]);
        for part in ["%2Bone", "+one", "-two", "-three", "-four"] {
            let text = format!("wrong: canary-part{part}!");
            assert_eq!(without_known(&text), format!("wrong: {KNOWN}!"));
        }
        for text in ["postgresql://ana:", "lang=english1", "X-Api-Key", "db/shop"] {
            assert_eq!(without_known(text), text);
        }
    }

    #[test]
    fn a_known_value_is_found_in_all_its_forms() {
        let value = "k\"9/ \u{e9}\\+canary~forms=1";
        know([value]);
        let percent = "k%229%2F%20%C3%A9%5C%2Bcanary~forms%3D1";
        let hexadecimal: String = value.bytes().map(|it| format!("{it:02x}")).collect();
        let all_percent: String = value.bytes().map(|it| format!("%{it:02X}")).collect();
        let all_escaped: String = value
            .encode_utf16()
            .map(|it| format!("\\u{it:04x}"))
            .collect();
        for said in [
            value,
            percent,
            &percent.to_lowercase(),
            &hexadecimal,
            &all_percent,
            &all_escaped,
        ] {
            let text = format!("before {said} after");
            assert_eq!(without_known(&text), format!("before {KNOWN} after"));
        }
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for prefix in ["", "u", "us", "user:"] {
            let whole = base64(format!("{prefix}{value}").as_bytes(), 0, alphabet);
            let without = without_known(&whole);
            assert!(without.contains(KNOWN), "{prefix}: {whole} is {without}");
            assert!(without.len() <= KNOWN.len() + 10, "{without}");
        }
        assert!(matches!(without_known("nothing here"), Cow::Borrowed(_)));
    }

    #[test]
    fn bytes_and_base64_stay_as_many_bytes() {
        let value = "canary-of-binary-answers";
        know([value]);
        let bytes = [b"\x00\xff", value.as_bytes(), b"\xfe"].concat();
        let without = without_known_bytes(&bytes);
        let filled = [&b"\x00\xff"[..], &[b'*'; 24], &b"\xfe"[..]].concat();
        assert_eq!(*without, filled);
        assert!(matches!(without_known_bytes(b"\x00\xff"), Cow::Borrowed(_)));
        for before in 0..3 {
            let bytes = [&b"\x00\xff\x01"[..before], value.as_bytes(), &[0; 4]].concat();
            let mut encoded = base64(&bytes, 0, STANDARD);
            let bits = bytes.len() * 8 % 6;
            if bits != 0 {
                encoded.push('A');
            }
            while !encoded.len().is_multiple_of(4) {
                encoded.push('=');
            }
            for member in ["blob", "data"] {
                let json = format!(r#"{{"uri":"x","{member}":"{encoded}"}}"#);
                let without = without_known_json(&json);
                let said: serde_json::Value = serde_json::from_str(&without).unwrap();
                let said = said[member].as_str().unwrap();
                assert_eq!(said.len(), encoded.len(), "{said}");
                let is_digit = |it: u8| it.is_ascii_alphanumeric() || b"+/=".contains(&it);
                assert!(said.bytes().all(is_digit), "{said}");
                assert_eq!(without_known(said), said, "{said}");
                assert!(said.contains(&"A".repeat(30)), "{said}");
                assert_eq!(without_known_base64(&encoded), said);
            }
            let elsewhere = format!(r#"{{"text":"{encoded}"}}"#);
            assert!(without_known_json(&elsewhere).contains(KNOWN));
        }
        let plain = format!(r#"{{"data":"{value}"}}"#);
        assert_eq!(
            without_known_json(&plain),
            format!(r#"{{"data":"{KNOWN}"}}"#)
        );
    }

    #[test]
    fn json_stays_json_wherever_the_value_stands() {
        know(["canary-json-1\"x", "4711471147114711"]);
        let quoted = serde_json::to_string("canary-json-1\"x").unwrap();
        let inner =
            serde_json::json!({ "deep": "canary-json-1\"x", "n": 4_711_471_147_114_711_u64 });
        let twice = serde_json::json!({ "text": inner.to_string() }).to_string();
        let rows = [
            format!(r#"{{"a":{quoted}}}"#),
            format!(r#"{{{quoted}:1}}"#),
            r#"{"n":4711471147114711,"m":[-4711471147114711.5]}"#.to_owned(),
            r#"{"a":"\u0063\u0061nary-json-1\u0022x"}"#.to_owned(),
            twice.clone(),
            serde_json::to_string(&twice).unwrap(),
        ];
        for json in rows {
            let without = cleaned(&json);
            assert!(without.contains("[redacted secret]"), "{json} is {without}");
            assert!(!without.contains("nary-json-1") && !without.contains("4711"));
        }
        let plain = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#;
        assert!(matches!(without_known_json(plain), Cow::Borrowed(_)));
    }

    #[test]
    fn a_value_that_is_a_word_of_the_protocol_breaks_no_frame() {
        know(["structuredContent"]);
        let frame = r#"{"structuredContent":{"a":"structuredContent"}}"#;
        let without = cleaned(frame);
        assert_eq!(
            without,
            format!(r#"{{"structuredContent":{{"a":"{KNOWN}"}}}}"#)
        );
    }

    #[test]
    fn a_long_token_is_found_by_its_end_and_taken_out_as_a_whole() {
        let body: String = (0..600)
            .map(|it| char::from(b'a' + (it % 23) as u8))
            .collect();
        let token = format!("eyJhbGciOiJFUzI1NiJ9.{body}.Sig-of_this+token/0123456789abcdefgh==");
        know_token(&token);
        know_token(&token);
        assert_eq!(without_known(&token), KNOWN);
        assert_eq!(
            without_known(&format!("Bearer {token}, \"{token}\"")),
            format!("Bearer {KNOWN}, \"{KNOWN}\"")
        );
        let json = cleaned(
            &serde_json::json!({"a": token, "b": {"c": [format!("x {token}")]}}).to_string(),
        );
        assert_eq!(
            json,
            format!(r#"{{"a":"{KNOWN}","b":{{"c":["x {KNOWN}"]}}}}"#)
        );
        let hexadecimal: String = token.bytes().map(|it| format!("{it:02x}")).collect();
        assert_eq!(
            without_known(&format!("<{hexadecimal}>")),
            format!("<{KNOWN}>")
        );
        let percent = token
            .replace('+', "%2B")
            .replace('/', "%2F")
            .replace('=', "%3D");
        assert_eq!(without_known(&format!("<{percent}>")), format!("<{KNOWN}>"));
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for prefix in ["", "u", "us", "user:"] {
            let whole = base64(format!("{prefix}{token}").as_bytes(), 0, alphabet);
            let without = without_known(&whole);
            assert!(without.len() <= KNOWN.len() + 4, "{prefix}: {without}");
        }
        // The beginning is that of other tokens of the same issuer.
        assert_eq!(
            without_known("eyJhbGciOiJFUzI1NiJ9.other"),
            "eyJhbGciOiJFUzI1NiJ9.other"
        );
    }

    #[test]
    fn short_values_are_not_looked_for_and_lines_of_long_ones_are() {
        know([
            "short-7",
            "first line of a canary\nsecond line of a canary\nx",
        ]);
        assert_eq!(without_known("short-7"), "short-7");
        assert_eq!(
            without_known("a first line of a canary b"),
            format!("a {KNOWN} b")
        );
        assert_eq!(without_known("x"), "x");
    }

    #[test]
    fn every_redactor_takes_known_values_out() {
        know(["canary-of-a-redactor"]);
        let spec = Spec {
            built_in_keys: false,
            ..Spec::default()
        };
        let redactor = Redactor::new(&spec, [1; 32]).unwrap();
        let json = r#"{"a":"it is canary-of-a-redactor"}"#;
        assert_eq!(
            redactor.json("tool/x", json),
            format!(r#"{{"a":"it is {KNOWN}"}}"#)
        );
        assert_eq!(
            redactor.json_for_any(json),
            format!(r#"{{"a":"it is {KNOWN}"}}"#)
        );
        assert_eq!(redactor.text("canary-of-a-redactor!"), format!("{KNOWN}!"));
    }
}
