//! JSON for people who judge it: nothing in it is hidden, rounded or cut.

use crate::{
    Malformed,
    canonical::write_string,
    scan::{NotJson, Scanner, Text, Token},
    string,
};
use std::{borrow::Cow, collections::HashSet, fmt::Write as _};

/// The longest value, in bytes, that [`folded`] leaves as it is in a text that is too long.
const MAX_VALUE_BYTES: usize = 256;

/// The deepest nesting at which [`folded`] folds an array, which is digested as a whole.
const MAX_DEPTH: usize = 64;

/// A text of JSON that [`folded`] cannot bring to the wanted length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has {bytes} bytes even where long values are folded, and {max} can be shown")]
pub struct TooLong {
    /// The length after folding.
    pub bytes: usize,
    /// The most that was wanted.
    pub max: usize,
}

/// The same JSON in one line without spaces, as a person should see it: numbers and members as they
/// are written, repeated members too, and [misleading](is_misleading) characters as escapes.
///
/// # Errors
///
/// [`Malformed`] if it is not JSON.
///
/// ```
/// let json = "{ \"amount\": 18446744073709551617,\n \"\u{202e}to\": \"\\u0061nna\" }";
/// assert_eq!(
///     redaction::readable(json)?,
///     r#"{"amount":18446744073709551617,"\u202eto":"anna"}"#
/// );
/// # Ok::<(), redaction::Malformed>(())
/// ```
pub fn readable(json: &str) -> Result<String, Malformed> {
    rewrite(json, false).map_err(|NotJson| Malformed)
}

/// A [readable](readable) text in at most `max` bytes. In a longer one, strings, numbers and arrays
/// without objects that have more than 256 bytes give way to strings that tell their kind, size and
/// digest (`[folded string of 20002 bytes, sha256 …]`); the digest is the [`canonical_digest`](crate::canonical_digest) of the
/// value. The names of all members stay. What is not JSON is read as one string.
///
/// # Errors
///
/// [`TooLong`] if that is not enough.
pub fn folded(json: &str, max: usize) -> Result<String, TooLong> {
    let whole = readable(json).unwrap_or_else(|Malformed| {
        let mut text = String::new();
        put_string(json.as_bytes(), &mut text);
        text
    });
    if whole.len() <= max {
        return Ok(whole);
    }
    let short = rewrite(&whole, true).unwrap_or(whole);
    match short.len() {
        bytes if bytes <= max => Ok(short),
        bytes => Err(TooLong { bytes, max }),
    }
}

/// The first member name that an object in a text of JSON has twice. Readers differ in which of the
/// two members they take.
#[must_use]
pub fn repeated_name(json: &str) -> Option<String> {
    let mut scanner = Scanner::new(json);
    let mut open: Vec<HashSet<Cow<'_, [u8]>>> = Vec::new();
    while let Ok(Some(token)) = scanner.next() {
        match token {
            Token::Object(_) | Token::Array(_) => open.push(HashSet::new()),
            Token::End(_) => drop(open.pop()),
            Token::Name(name) => {
                let said = said(json, name);
                if open.last().is_some_and(|names| names.contains(&said)) {
                    return Some(String::from_utf8_lossy(&said).into_owned());
                }
                if let Some(names) = open.last_mut() {
                    names.insert(said);
                }
            }
            Token::String(_) | Token::Number(..) | Token::Literal(..) => {}
        }
    }
    None
}

/// Returns true for characters that terminals obey, that are invisible, or that change the look of
/// the text around them.
///
/// These are, of Unicode 17: control characters, separators of lines and paragraphs, default ignorable ones
/// (`Default_Ignorable_Code_Point`: zero-width and filling characters, selectors of variants, tags, and what is reserved
/// for more of them), formatting ones (`Cf`: marks of direction, interlinear annotations, controls of musical notes,
/// shorthand and hieroglyphs; signs that are seen, such as U+06DD, are not among them), and noncharacters.
#[must_use]
pub fn is_misleading(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    matches!(character, '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}'
        | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fdd0}'..='\u{fdef}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
        || 0xfffe <= u32::from(character) & 0xffff
}

/// An object or array that is being written.
struct Open {
    is_array: bool,
    /// True if the value contains an object.
    has_objects: bool,
    /// Start of the value in the text that is read, and in the one that is written.
    from: usize,
    to: usize,
}

/// Writes a text of JSON anew, with long values folded or not.
fn rewrite(json: &str, folds: bool) -> Result<String, NotJson> {
    let mut scanner = Scanner::new(json);
    let mut out = String::with_capacity(json.len());
    let mut open: Vec<Open> = Vec::new();
    while let Some(token) = scanner.next()? {
        let begins = matches!(out.as_bytes().last(), None | Some(b'{' | b'[' | b':'));
        if !begins && !matches!(token, Token::End(_)) {
            out.push(',');
        }
        let mut to = out.len();
        let (from, end, kind) = match token {
            Token::Object(from) | Token::Array(from) => {
                let is_array = matches!(token, Token::Array(_));
                let has_objects = !is_array;
                open.push(Open {
                    is_array,
                    has_objects,
                    from,
                    to,
                });
                out.push(if is_array { '[' } else { '{' });
                continue;
            }
            Token::End(end) => {
                let it = open.pop().ok_or(NotJson)?;
                out.push(if it.is_array { ']' } else { '}' });
                if it.has_objects {
                    open.iter_mut()
                        .rev()
                        .take(1)
                        .for_each(|outer| outer.has_objects = true);
                    continue;
                }
                if MAX_DEPTH <= open.len() {
                    continue;
                }
                to = it.to;
                (it.from, end, "array")
            }
            Token::Name(name) => {
                put_string(&said(json, name), &mut out);
                out.push(':');
                continue;
            }
            Token::String(text) => {
                put_string(&said(json, text), &mut out);
                (text.start - 1, text.end + 1, "string")
            }
            Token::Number(from, end) => {
                out.push_str(&json[from..end]);
                (from, end, "number")
            }
            Token::Literal(from, end) => {
                out.push_str(&json[from..end]);
                continue;
            }
        };
        if folds && MAX_VALUE_BYTES < out.len() - to {
            let value = &json[from..end];
            out.truncate(to);
            let _ = write!(out, "\"[folded {kind} of {} bytes, sha256 ", value.len());
            for byte in crate::digest(value) {
                let _ = write!(out, "{byte:02x}");
            }
            out.push_str("]\"");
        }
    }
    Ok(out)
}

/// Content of a string in a JSON text, in WTF-8.
fn said(json: &str, text: Text) -> Cow<'_, [u8]> {
    let raw = &json[text.range()];
    match text.is_escaped {
        true => string::decoded_bytes(raw).into(),
        false => raw.as_bytes().into(),
    }
}

/// Appends a string that says this, in WTF-8, with misleading characters as escapes.
fn put_string(said: &[u8], out: &mut String) {
    let mut encoded = Vec::with_capacity(said.len() + 2);
    write_string(said, &mut encoded);
    let encoded = String::from_utf8(encoded).expect("surrogates that are alone are escaped");
    for character in encoded.chars() {
        if is_misleading(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(character);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical_digest;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_rounded_hidden_or_lost() {
        let json = " { \"a\" : 18446744073709551617 , \"a\":1.00000000000000000001,\n\"\u{202e}b\u{9b}\":
            [ -0, 1e400, \"\\u0061\\ud800\u{200b}\u{7f}\\n\u{e0041}\", { }, [ ] ] , \"é漢\" : null }";
        assert_eq!(
            readable(json).unwrap(),
            "{\"a\":18446744073709551617,\"a\":1.00000000000000000001,\"\\u202eb\\u009b\":\
             [-0,1e400,\"a\\ud800\\u200b\\u007f\\n\\udb40\\udc41\",{},[]],\"é漢\":null}"
        );
        assert_eq!(readable("{,}"), Err(Malformed));
        assert_eq!(readable("[1"), Err(Malformed));
    }

    #[test]
    fn long_values_are_folded_and_all_names_and_small_values_stay() {
        let long = "x".repeat(20_000);
        let numbers = vec!["123"; 5_000].join(",");
        let digits = "9".repeat(300);
        let json = format!(
            r#"{{"note":"{long}","list":[{numbers}],"deep":[["{long}"],{{"pay":1}}],"n":{digits},"amount":18446744073709551617}}"#
        );
        let short = folded(&json, 1_000).unwrap();
        let of = |kind: &str, value: &str| {
            let digest = canonical_digest(value).unwrap();
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            format!(
                "\"[folded {kind} of {} bytes, sha256 {digest}]\"",
                value.len()
            )
        };
        let note = of("string", &format!("\"{long}\""));
        let list = of("array", &format!("[{numbers}]"));
        let n = of("number", &digits);
        assert_eq!(
            short,
            format!(
                r#"{{"note":{note},"list":{list},"deep":[[{note}],{{"pay":1}}],"n":{n},"amount":18446744073709551617}}"#
            )
        );
        assert_eq!(folded(&json, json.len()).unwrap(), json);
        assert_eq!(folded("not JSON", 100).unwrap(), "\"not JSON\"");
    }

    #[test]
    fn a_value_is_folded_from_one_byte_more_on() {
        let of = |length: usize| format!("[\"{}\",{{}}]", "x".repeat(length - 2));
        let max = MAX_VALUE_BYTES;
        assert!(folded(&of(max), 200).is_err());
        assert!(
            folded(&of(max + 1), 200)
                .unwrap()
                .starts_with("[\"[folded string of 257 bytes")
        );
    }

    #[test]
    fn repeated_names_are_found_however_they_are_written() {
        let repeated = |json| repeated_name(json);
        assert_eq!(repeated(r#"{"a":1,"b":[{"a":2},{"a":3}]}"#), None);
        assert_eq!(
            repeated(r#"{"a":1,"b":2,"\u0061":3}"#).as_deref(),
            Some("a")
        );
        assert_eq!(repeated(r#"[{"x":{"é":1,"é":1}}]"#).as_deref(), Some("é"));
        assert_eq!(repeated(r#"{"a":{"b":1},"b":2}"#), None);
    }

    #[test]
    fn invisible_and_direction_characters_are_escaped() {
        for it in [
            '\u{1b}',
            '\u{9b}',
            '\u{202e}',
            '\u{200d}',
            '\u{ad}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{e0041}',
            '\u{2028}',
            '\u{fff0}',
            '\u{fdd0}',
            '\u{ffff}',
            '\u{10fffe}',
            '\u{13430}',
            '\u{1343f}',
            '\u{1bca3}',
            '\u{e0080}',
            '\u{e0fff}',
        ] {
            assert!(is_misleading(it), "{it:?}");
        }
        for it in [
            'a', ' ', 'é', '漢', '😀', '\u{301}', '\u{6dd}', '\u{fffd}', '\u{fffc}',
        ] {
            assert!(!is_misleading(it), "{it:?}");
        }
    }

    proptest! {
        #[test]
        fn a_readable_text_says_the_same(text in r#"[\[\]{},:"\\ntrueabfs0-9.eE+\-u \u{200b}é😀]{0,40}"#) {
            prop_assert_eq!(readable(&text).is_ok(), canonical_digest(&text).is_ok());
            if let Ok(readable) = readable(&text) {
                prop_assert_eq!(canonical_digest(&readable), canonical_digest(&text));
                prop_assert!(!readable.contains(is_misleading));
            }
        }
    }
}
