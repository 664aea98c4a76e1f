//! Strings of JSON: what they say, and how something is said in one.

use std::borrow::Cow;

/// Decodes the inside of a string of JSON to UTF-8, except that lone surrogates are encoded as if
/// they were characters (WTF-8). `raw` has been scanned.
pub(crate) fn decoded_bytes(raw: &str) -> Vec<u8> {
    let bytes = raw.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &bytes[at..]) {
        decoded.extend_from_slice(&bytes[at..at + found]);
        at += found + 2;
        match bytes[at - 1] {
            b'b' => decoded.push(8),
            b'f' => decoded.push(12),
            b'n' => decoded.push(b'\n'),
            b'r' => decoded.push(b'\r'),
            b't' => decoded.push(b'\t'),
            b'u' => {
                let mut code = hexadecimal(&bytes[at..at + 4]);
                at += 4;
                if let 0xD800..0xDC00 = code
                    && let [b'\\', b'u', low @ ..] = &bytes[at..]
                    && let low @ 0xDC00..0xE000 = hexadecimal(&low[..4])
                {
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                    at += 6;
                }
                push(&mut decoded, code);
            }
            byte => decoded.push(byte),
        }
    }
    decoded.extend_from_slice(&bytes[at..]);
    decoded
}

/// Decodes the inside of a string of JSON; lone surrogates become U+FFFD.
pub(crate) fn decoded(raw: &str) -> String {
    match String::from_utf8(decoded_bytes(raw)) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

fn hexadecimal(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |code, digit| {
        code * 16 + char::from(*digit).to_digit(16).unwrap_or(0)
    })
}

/// Encodes a code point as UTF-8 does, surrogates too.
fn push(bytes: &mut Vec<u8>, code: u32) {
    match char::from_u32(code) {
        Some(character) => {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        None => bytes.extend([
            0xED,
            0x80 | (code >> 6 & 0x3F) as u8,
            0x80 | (code & 0x3F) as u8,
        ]),
    }
}

/// Appends the inside of a string of JSON that says `text`.
pub(crate) fn encode(text: &str, into: &mut String) {
    let mut written = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape: Cow<'_, str> = match byte {
            b'"' => r#"\""#.into(),
            b'\\' => r"\\".into(),
            8 => r"\b".into(),
            12 => r"\f".into(),
            b'\n' => r"\n".into(),
            b'\r' => r"\r".into(),
            b'\t' => r"\t".into(),
            0..0x20 => format!("\\u{byte:04x}").into(),
            _ => continue,
        };
        into.push_str(&text[written..at]);
        into.push_str(&escape);
        written = at + 1;
    }
    into.push_str(&text[written..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_say_what_they_say() {
        for (raw, said) in [
            (r#"a\"\\\/\b\f\n\r\t"#, "a\"\\/\u{8}\u{c}\n\r\t"),
            (r"\u0041\u00e9\u4f1a\uD83D\uDE00", "Aé会😀"),
            (
                r"\ud800x\udc00\ud83d\ud83d\ude00",
                "\u{fffd}\u{fffd}\u{fffd}x\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}😀",
            ),
        ] {
            assert_eq!(decoded(raw), said, "{raw}");
        }
        assert_eq!(decoded_bytes(r"\udbff"), [0xED, 0xAF, 0xBF]);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text: String) {
            let mut raw = String::new();
            encode(&text, &mut raw);
            prop_assert_eq!(&serde_json::from_str::<String>(&format!("\"{raw}\"")).unwrap(), &text);
            prop_assert_eq!(decoded(&raw), text);
        }
    }
}
