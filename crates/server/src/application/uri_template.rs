//! Templates of the addresses of an application's resources.
//!
//! `{name}` stands for one segment of a path or a part of it, `{name*}` for any number of segments, and a last
//! `{?one,two}` for parameters that may be left out (RFC 6570, by as much as FastMCP has of it).

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};

/// Most bytes of an address that is compared with templates.
const MAX_URI: usize = 2048;
/// Most steps of one comparison.
const MAX_STEPS: usize = 20_000;
/// Most times that a value may have been encoded.
const MAX_DECODED: usize = 4;
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
                query.extend(names.split(',').map(|name| bare(name.trim()).to_owned()));
            } else {
                let name = bare(inner);
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
            let value = decoded(value, true)?;
            if values.contains_key(known) {
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

    /// Returns true if a text can be, or has still to become, the value of the variable `name`.
    pub(super) fn may_be(&self, name: &str, text: &str) -> bool {
        let is_short =
            |it: &Part| matches!(it, Part::Value { name: known, is_long: false } if known == name);
        is_value(text, !self.parts.iter().any(is_short))
    }
}

/// The name of a variable without its modifiers.
fn bare(name: &str) -> &str {
    name.trim_start_matches('+').trim_end_matches('*')
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
    is_value(&value, is_long).then(|| value.into_owned())
}

/// Returns true if a value stays where a handler puts it in a path, also if that decodes it again.
fn is_value(value: &str, is_long: bool) -> bool {
    let mut text = Cow::Borrowed(value);
    for _ in 0..MAX_DECODED {
        if leads_elsewhere(&text, is_long) {
            return false;
        }
        match percent_decode_str(&text).decode_utf8() {
            Ok(next) if next != text => text = next.into_owned().into(),
            _ => return true,
        }
    }
    false
}

/// Returns true for a text that is an absolute path, or another spelling of a path, or that has a segment which
/// leads out of one.
fn leads_elsewhere(text: &str, is_long: bool) -> bool {
    // Those of a URL that is a value are its own.
    let mut doubled = text.match_indices("//");
    text.chars().any(char::is_control)
        || text.contains('\\')
        || (!is_long && text.contains('/'))
        || text.starts_with('/')
        || doubled.any(|(at, _)| !text[..at].ends_with(':'))
        || text.split('/').any(|segment| matches!(segment, "." | ".."))
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
            (
                "s://{q}{?url*}",
                "s://x?url=https://a.example/b/",
                json!({"q": "x", "url": "https://a.example/b/"}),
                "s://x?url=https%3A%2F%2Fa.example%2Fb%2F",
            ),
            (
                "s://{q}{?of}",
                "s://50%25..%2B?of=",
                json!({"q": "50%..+", "of": ""}),
                "s://50%25..%2B?of=",
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
        // In every kind of variable, however often it is encoded.
        let dots = [
            "..", "../b", "a/../b", "a/..", "./b", "a/.", "..\\b", "/b", "//b", "a//b", "a\n",
        ];
        for value in dots {
            let once = utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
            let twice = utf8_percent_encode(&once, NON_ALPHANUMERIC).to_string();
            let half = value.replace("..", ".%2e").replace('/', "%2f");
            for written in [value, &once, &twice, &half] {
                let rows = [
                    ("u://{id}", "u://"),
                    ("u://{p*}", "u://"),
                    ("u://{+p}", "u://"),
                    ("u://x/{p*}", "u://x/"),
                    ("u://{id}{?path}", "u://7?path="),
                    ("u://{?path*}", "u://?path="),
                    ("u://x{?limit,path}", "u://x?limit=1&path="),
                ];
                for (template, before) in rows {
                    let uri = format!("{before}{written}");
                    assert_eq!(found(template, &uri), None, "{template} {uri:?}");
                }
            }
            let template = UriTemplate::parse("u://{id}{?path}").unwrap();
            assert!(!template.may_be("id", value) && !template.may_be("path", value));
            assert!(template.may_be("id", "") && template.may_be("path", "a/b"));
        }
        let deep = (0..6).fold("..".to_owned(), |text, _| {
            utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string()
        });
        assert_eq!(found("u://{id}", &format!("u://{deep}")), None);
        let many = "x".repeat(MAX_URI - 4);
        assert_eq!(found("f://{a*}{b*}{c*}{d*}!", &format!("f://{many}")), None);
        assert!(UriTemplate::parse("u://{id").is_none());
    }
}
