//! Templates of the addresses of an application's resources.
//!
//! `{name}` stands for one segment of a path or a part of it, `{name*}` for any number of segments, and a last
//! `{?one,two}` for parameters that may be left out (RFC 6570, by as much as FastMCP has of it).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};

/// Most bytes of an address that is compared with templates.
const MAX_URI: usize = 2048;
/// Most steps of one comparison.
const MAX_STEPS: usize = 20_000;
/// Characters that stay as they are in a value (RFC 3986, 2.3).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The same in a value of several segments.
const SEGMENTS: &AsciiSet = &UNRESERVED.remove(b'/');

/// A template of addresses.
#[derive(Debug)]
pub(super) struct UriTemplate {
    parts: Vec<Part>,
    query: Vec<String>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Value { name: String, is_long: bool },
}

impl UriTemplate {
    /// Parses a template; `None` if its braces make no sense.
    pub(super) fn parse(template: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut query = Vec::new();
        let mut rest = template;
        while let Some((text, after)) = rest.split_once('{') {
            let (inner, after) = after.split_once('}')?;
            if !text.is_empty() {
                parts.push(Part::Text(text.to_owned()));
            }
            if let Some(names) = inner.strip_prefix('?') {
                if !after.is_empty() {
                    return None;
                }
                query.extend(names.split(',').map(|name| name.trim().to_owned()));
            } else {
                let name = inner.trim_start_matches('+').trim_end_matches('*');
                parts.push(Part::Value {
                    name: name.to_owned(),
                    is_long: name != inner,
                });
            }
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Some(Self { parts, query })
    }

    /// The values of the variables in an address, and the one spelling of that address; `None` if it is none
    /// of the template's.
    pub(super) fn values(&self, uri: &str) -> Option<(Map<String, Value>, String)> {
        if MAX_URI < uri.len() {
            return None;
        }
        let (path, query) = match uri.split_once('?') {
            Some((path, query)) if !self.query.is_empty() => (path, Some(query)),
            _ => (uri, None),
        };
        let mut found = Vec::new();
        let mut steps = 0;
        if !fits(&self.parts, path, &mut found, &mut steps) {
            return None;
        }
        found.reverse();
        let mut values = Map::new();
        let mut spelt = String::new();
        let mut raw = found.into_iter();
        for part in &self.parts {
            match part {
                Part::Text(text) => spelt.push_str(text),
                Part::Value { name, is_long } => {
                    let value = decoded(raw.next()?, *is_long)?;
                    let set = if *is_long { SEGMENTS } else { UNRESERVED };
                    spelt.extend(utf8_percent_encode(&value, set));
                    values.insert(name.clone(), value.into());
                }
            }
        }
        let mut given = Vec::new();
        for pair in query
            .unwrap_or_default()
            .split('&')
            .filter(|it| !it.is_empty())
        {
            let (name, value) = pair.split_once('=')?;
            let known = self.query.iter().find(|it| *it == name)?;
            let value = percent_decode_str(value).decode_utf8().ok()?;
            if value.chars().any(char::is_control) || values.contains_key(known) {
                return None;
            }
            values.insert(known.clone(), value.clone().into());
            given.push((known, value));
        }
        let mut separator = '?';
        for name in &self.query {
            if let Some((_, value)) = given.iter().find(|(known, _)| *known == name) {
                spelt.push(separator);
                separator = '&';
                spelt.push_str(name);
                spelt.push('=');
                spelt.extend(utf8_percent_encode(value, UNRESERVED));
            }
        }
        Some((values, spelt))
    }
}

/// Finds values for all `parts`, the last one's first.
fn fits<'a>(parts: &[Part], text: &'a str, found: &mut Vec<&'a str>, steps: &mut usize) -> bool {
    *steps += 1;
    if MAX_STEPS < *steps {
        return false;
    }
    let Some((part, others)) = parts.split_first() else {
        return text.is_empty();
    };
    match part {
        Part::Text(expected) => text
            .strip_prefix(expected.as_str())
            .is_some_and(|rest| fits(others, rest, found, steps)),
        Part::Value { is_long, .. } => {
            let most = match text.find('/') {
                Some(slash) if !is_long => slash,
                _ => text.len(),
            };
            let ends = (1..=most).rev().filter(|end| text.is_char_boundary(*end));
            for end in ends {
                if fits(others, &text[end..], found, steps) {
                    found.push(&text[..end]);
                    return true;
                }
            }
            false
        }
    }
}

/// A value as a handler gets it. One that would lead elsewhere as part of a path is none.
fn decoded(raw: &str, is_long: bool) -> Option<String> {
    let value = percent_decode_str(raw).decode_utf8().ok()?;
    let is_wrong = value.chars().any(char::is_control)
        || value.contains('\\')
        || (!is_long && value.contains('/'))
        || value
            .split('/')
            .any(|segment| matches!(segment, "." | ".."));
    (!is_wrong).then(|| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(template: &str, uri: &str) -> Option<(Value, String)> {
        let (values, spelt) = UriTemplate::parse(template)?.values(uri)?;
        Some((values.into(), spelt))
    }

    #[test]
    fn addresses_have_the_values_of_their_templates() {
        let rows = [
            ("users://{id}", "users://7", json!({"id": "7"}), "users://7"),
            (
                "w://{city}/now",
                "w://s%C3%A3o%20p/now",
                json!({"city": "são p"}),
                "w://s%C3%A3o%20p/now",
            ),
            (
                "u://{a}-{b}",
                "u://x-y-z",
                json!({"a": "x-y", "b": "z"}),
                "u://x-y-z",
            ),
            (
                "f://{p*}",
                "f://a/b/c.txt",
                json!({"p": "a/b/c.txt"}),
                "f://a/b/c.txt",
            ),
            (
                "f://{+p}/meta",
                "f://a/b/meta",
                json!({"p": "a/b"}),
                "f://a/b/meta",
            ),
            ("s://{q}{?limit,page}", "s://x", json!({"q": "x"}), "s://x"),
            (
                "s://{q}{?limit,page}",
                "s://x?page=2&limit=%35",
                json!({"q": "x", "page": "2", "limit": "5"}),
                "s://x?limit=5&page=2",
            ),
            ("u://{id}", "u://%37", json!({"id": "7"}), "u://7"),
        ];
        for (template, uri, values, spelt) in rows {
            assert_eq!(
                found(template, uri),
                Some((values, spelt.to_owned())),
                "{uri}"
            );
        }
    }

    #[test]
    fn what_leads_elsewhere_is_no_value() {
        let rows = [
            ("u://{id}", "u://"),
            ("u://{id}", "u://a/b"),
            ("u://{id}", "u://a%2Fb"),
            ("u://{id}", "u://.."),
            ("u://{id}", "u://%2e%2e"),
            ("f://{p*}", "f://a/../b"),
            ("f://{p*}", "f://a/%2e%2e/b"),
            ("f://{p*}", "f://a%5C..%5Cb"),
            ("u://{id}", "u://a%00"),
            ("u://{id}", "u://%ff"),
            ("u://{id}", "v://a"),
            ("s://{q}{?limit}", "s://x?other=1"),
            ("s://{q}{?limit}", "s://x?limit=1&limit=2"),
        ];
        for (template, uri) in rows {
            assert_eq!(found(template, uri), None, "{uri}");
        }
        let many = "x".repeat(MAX_URI - 4);
        assert_eq!(found("f://{a*}{b*}{c*}{d*}!", &format!("f://{many}")), None);
        assert!(UriTemplate::parse("u://{id").is_none());
    }
}
