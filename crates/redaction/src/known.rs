//! Secrets that this process knows, found by their value wherever they stand.

use crate::{
    scan::{NotJson, Scanner, Text, Token},
    string,
};
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use arc_swap::ArcSwapOption;
use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt::Write as _,
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

/// Searches for all values; replaced as a whole when one is added.
static SEARCH: ArcSwapOption<Search> = ArcSwapOption::const_empty();
/// Values that are searched for.
static VALUES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

struct Search {
    automaton: AhoCorasick,
}

/// Takes these values for secrets from now on, for as long as the process lives: every [`Redactor`](crate::Redactor),
/// [`without_known`] and [`without_known_json`] take them out, whatever the configuration of redaction. So do they
/// with their forms in percent encoding, Base64, hexadecimal digits and strings of JSON, and with each line of 16
/// bytes or more of a value of several lines. Values of fewer than [`MIN_KNOWN_BYTES`] bytes are not looked for.
///
/// Values stay in memory, since they are searched for.
pub fn know<'v>(values: impl IntoIterator<Item = &'v str>) {
    let mut known = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
    let before = known.len();
    for value in values {
        let value = value.trim();
        if value.len() < MIN_KNOWN_BYTES {
            continue;
        }
        if !known.contains(value) {
            known.insert(value.to_owned());
        }
        if value.contains('\n') {
            let lines = value.lines().map(str::trim);
            known.extend(
                lines
                    .filter(|it| MIN_LINE_BYTES <= it.len())
                    .map(str::to_owned),
            );
        }
    }
    if known.len() == before {
        return;
    }
    let mut patterns = BTreeSet::new();
    for value in known.iter() {
        forms(value, &mut patterns);
    }
    let automaton = AhoCorasickBuilder::new()
        .match_kind(MatchKind::LeftmostLongest)
        .build(&patterns);
    // It fails for gigabytes of values alone, which no source of values has.
    if let Ok(automaton) = automaton {
        SEARCH.store(Some(Arc::new(Search { automaton })));
    }
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

impl Search {
    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = String::new();
        let mut copied = 0;
        for found in self.automaton.find_iter(text) {
            out.push_str(&text[copied..found.start()]);
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
        while let Some(token) = scanner.next()? {
            let (start, end, new) = match token {
                Token::String(text) => (text.start, text.end, self.string(json, text, level)),
                Token::Name(text) => (text.start, text.end, self.name(json, text)),
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
    memchr::memchr_iter(b'\\', bytes)
        .any(|at| matches!(bytes.get(at + 1), Some(b'u' | b'/' | b'\\')))
}

/// The forms in which a value is looked for.
fn forms(value: &str, into: &mut BTreeSet<String>) {
    let bytes = value.as_bytes();
    into.insert(value.to_owned());
    let mut escaped = String::new();
    string::encode(value, &mut escaped);
    into.insert(escaped);
    for lower in [false, true] {
        for plus in [false, true] {
            let mut encoded = String::new();
            for byte in bytes {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                        encoded.push(char::from(*byte));
                    }
                    b' ' if plus => encoded.push('+'),
                    byte if lower => {
                        let _ = write!(encoded, "%{byte:02x}");
                    }
                    byte => {
                        let _ = write!(encoded, "%{byte:02X}");
                    }
                }
            }
            into.insert(encoded);
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
        into.insert(
            bytes
                .iter()
                .map(|it| format!("%{}", case(format!("{it:02x}"))))
                .collect(),
        );
        let units = value.encode_utf16();
        into.insert(
            units
                .map(|it| format!("\\u{}", case(format!("{it:04x}"))))
                .collect(),
        );
    }
    let mut digits = String::new();
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    into.insert(digits.to_uppercase());
    into.insert(digits);
    const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for alphabet in [STANDARD, URL] {
        for before in 0..3 {
            into.insert(base64(bytes, before, alphabet));
        }
    }
}

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
