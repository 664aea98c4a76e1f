//! JSON as its author wrote it: a number keeps each of its digits, and a member that is there twice is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Members of an object as they were written.
pub(crate) type Members = BTreeMap<String, Box<RawValue>>;

/// Name of a member that some object in `text`, which is JSON, has twice.
pub(crate) fn repeated_member(text: &str) -> Option<String> {
    match text.as_bytes().first() {
        Some(b'{') => {
            let members: Pairs<'_> = serde_json::from_str(text).ok()?;
            let mut known = BTreeSet::new();
            for (name, value) in members.0 {
                if let Some(repeated) = repeated_member(value.get()) {
                    return Some(repeated);
                }
                if !known.insert(name.clone()) {
                    return Some(name);
                }
            }
            None
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            items.iter().find_map(|item| repeated_member(item.get()))
        }
        _ => None,
    }
}

/// All members of an object, repeated ones too.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Vec<(String, &'de RawValue)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }
        deserializer.deserialize_map(Read).map(Self)
    }
}

/// The value of a JSON text, for display. A number that is out of serde_json's range is its text.
pub(crate) fn value(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| {
        let is_fitting = |number: &str| number.parse::<serde_json::Number>().is_ok();
        let spelt = tokens(text).map(|token| match token {
            Token::Number(number) if !is_fitting(number) => format!("\"{number}\""),
            Token::Number(text) | Token::Text(text) | Token::Other(text) => text.to_owned(),
        });
        serde_json::from_str(&spelt.collect::<String>()).map_err(|_| error)
    })
}

/// A JSON text with line breaks and indentation as serde_json writes them.
pub(crate) fn indented(text: &str) -> String {
    let mut out = String::with_capacity(2 * text.len());
    let mut depth = 0_usize;
    let mut is_empty = false;
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    for token in tokens(text) {
        let (Token::Number(part) | Token::Text(part) | Token::Other(part)) = token;
        match part {
            " " | "\n" | "\r" | "\t" => continue,
            "}" | "]" => {
                depth = depth.saturating_sub(1);
                if !is_empty {
                    line(&mut out, depth);
                }
                is_empty = false;
                out.push_str(part);
                continue;
            }
            _ => {}
        }
        if is_empty {
            line(&mut out, depth);
            is_empty = false;
        }
        out.push_str(part);
        match part {
            "{" | "[" => {
                depth += 1;
                is_empty = true;
            }
            "," => line(&mut out, depth),
            ":" => out.push(' '),
            _ => {}
        }
    }
    out
}

enum Token<'a> {
    Number(&'a str),
    /// A text with its quotes.
    Text(&'a str),
    /// White space, punctuation, or a letter of a word.
    Other(&'a str),
}

fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let is_of_number = |it: char| it.is_ascii_digit() || "+-.eE".contains(it);
        let (token, length) = match first {
            '"' => {
                let mut is_escaped = false;
                let end = rest[1..].find(|it| {
                    let is_end = it == '"' && !is_escaped;
                    is_escaped = it == '\\' && !is_escaped;
                    is_end
                });
                let length = end.map_or(rest.len(), |end| end + 2);
                (Token::Text(&rest[..length]), length)
            }
            '-' | '0'..='9' => {
                let length = rest.find(|it| !is_of_number(it)).unwrap_or(rest.len());
                (Token::Number(&rest[..length]), length)
            }
            other => (Token::Other(&rest[..other.len_utf8()]), other.len_utf8()),
        };
        rest = &rest[length..];
        Some(token)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_member_that_is_there_twice_is_found_at_any_depth() {
        for (text, expected) in [
            (r#"{"a":1,"b":{"a":2}}"#, None),
            (r#"{"a":1,"a":2}"#, Some("a")),
            (r#"{"a":1,"\u0061":2}"#, Some("a")),
            (r#"{"a":[1,{"b":{"c":1,"c":1}}]}"#, Some("c")),
            ("[1e400]", None),
        ] {
            assert_eq!(repeated_member(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn indentation_changes_nothing_but_white_space() {
        for value in [
            json!({"a": [], "b": {}, "c": [1, "x\\\"{,:}", {"d": null}], "e": true}),
            json!([]),
            json!("a, b: {c}"),
            json!(-1.5),
            json!([[[]], {"a": {"b": []}}]),
        ] {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            assert_eq!(indented(&value.to_string()), pretty);
            assert_eq!(indented(&pretty), pretty);
        }
        let text = r#"{"n":123456789012345678901234567890,"f":0.1234567890123456789012,"x":1e400}"#;
        assert_eq!(
            indented(text),
            "{\n  \"n\": 123456789012345678901234567890,\n  \"f\": 0.1234567890123456789012,\n  \"x\": 1e400\n}"
        );
        assert_eq!(value(text).unwrap()["x"], "1e400");
        assert!(value("{").is_err());
    }
}
