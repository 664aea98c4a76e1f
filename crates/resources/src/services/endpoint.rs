//! Resources of a service at one path, and the values that they take.

use std::{collections::BTreeMap, time::Duration};

use adapter_http::{UnfitArgument, UrlTemplate};
use http::Uri;
use regex::{Regex, RegexBuilder};

use crate::addresses::{Values, is_name};

/// The longest value of a variable, in bytes.
const MAX_VALUE_BYTES: usize = 1_024;
/// The largest compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 256 * 1_024;

/// Path of a service: a resource, or a family of them if the path has variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Path and query below the service's address, with `{name}` for variables: `/stock/{sku}?site={site}`.
    pub path: String,
    /// For models.
    pub description: Option<String>,
    /// The media type, in place of the one that answers name.
    pub media_type: Option<String>,
    /// Rules for values of variables, by name.
    pub variables: BTreeMap<String, Variable>,
    /// Time between two looks for changes on behalf of those who listen. `None`: nobody is told of changes.
    pub poll: Option<Duration>,
}

/// A rule for values of a variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variable {
    /// The values that it may have; they are suggested to clients. Empty: any.
    pub values: Vec<String>,
    /// A regular expression that the whole of a value has to match.
    pub pattern: Option<String>,
}

/// An endpoint that can be asked.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) url: UrlTemplate,
    patterns: BTreeMap<String, Regex>,
    /// Names of its variables, sorted, each once.
    pub(crate) variables: Vec<String>,
    /// True if there is something without any value.
    pub(crate) is_single: bool,
}

fn anchored(pattern: &str) -> Result<Regex, String> {
    let build = |text: &str| {
        let built = RegexBuilder::new(text)
            .size_limit(MAX_PATTERN_BYTES)
            .build();
        built.map_err(|_| format!("the pattern `{pattern}` is no regular expression, or too large"))
    };
    // By itself, too: `a)|(?:b` is none, and would not match the whole with something around it.
    build(pattern)?;
    build(&format!("^(?:{pattern})$"))
}

impl Asked {
    /// Reads an endpoint of the service at `base_url`.
    ///
    /// # Errors
    ///
    /// The mistake in it.
    pub(crate) fn new(base_url: &str, name: &str, endpoint: Endpoint) -> Result<Self, String> {
        if !is_name(name) {
            return Err(format!("`{name}` is no name: 1 to 64 of `a-z0-9-_`"));
        }
        if !endpoint.path.starts_with('/') {
            return Err("`path` must begin with a slash".to_owned());
        }
        if base_url.contains(['?', '#', '{', '}']) {
            return Err("`base_url` must have neither a query nor variables".to_owned());
        }
        let url = format!("{}{}", base_url.trim_end_matches('/'), endpoint.path);
        let url = UrlTemplate::parse(&url).map_err(|why| format!("the address {url}: {why}"))?;
        let mut variables: Vec<_> = url.arguments().map(str::to_owned).collect();
        variables.sort();
        variables.dedup();
        let is_variable = |it: &str| {
            it.bytes()
                .all(|it| it.is_ascii_alphanumeric() || it == b'_')
        };
        if let Some(variable) = variables.iter().find(|it| !is_variable(it)) {
            return Err(format!(
                "`{{{variable}}}` is no name of a variable: letters, digits and `_`"
            ));
        }
        if let Some(unknown) = endpoint.variables.keys().find(|it| !variables.contains(it)) {
            return Err(format!(
                "`variables.{unknown}`: `path` has no such variable"
            ));
        }
        if endpoint.poll.is_some_and(|it| it.is_zero()) {
            return Err("`poll_seconds` must be at least 1".to_owned());
        }
        if let Some(kind) = &endpoint.media_type
            && media_type(kind).is_none()
        {
            return Err(format!("`{kind}` is no media type"));
        }
        let mut patterns = BTreeMap::new();
        for (name, rule) in &endpoint.variables {
            if let Some(pattern) = &rule.pattern {
                let pattern =
                    anchored(pattern).map_err(|why| format!("`variables.{name}`: {why}"))?;
                if let Some(value) = rule.values.iter().find(|it| !pattern.is_match(it)) {
                    return Err(format!(
                        "`variables.{name}`: `{value}` does not match the pattern"
                    ));
                }
                patterns.insert(name.clone(), pattern);
            }
        }
        let is_single = url.required_arguments().next().is_none();
        Ok(Self {
            name: name.to_owned(),
            endpoint,
            url,
            patterns,
            variables,
            is_single,
        })
    }

    /// The URL for values of a caller.
    ///
    /// # Errors
    ///
    /// The reason why there is none, for the caller.
    pub(crate) fn url(&self, values: &Values) -> Result<Uri, String> {
        for (name, value) in values {
            if !self.variables.contains(name) {
                return Err(format!("there is no variable `{name}`"));
            }
            self.check(name, value)?;
        }
        let given = |name: &str| {
            let found = values.iter().filter(|(known, _)| known == name);
            Ok(found.map(|(_, value)| value.clone()).collect())
        };
        let url = self.url.render(&given, &[]);
        url.map_err(|why| match why {
            UnfitArgument::Missing(name) => format!("the value `{name}` is missing or empty"),
            UnfitArgument::DotSegment(name) => {
                format!("the value `{name}` cannot have `.` or `..` between slashes")
            }
            why => why.to_string(),
        })
    }

    fn check(&self, name: &str, value: &str) -> Result<(), String> {
        if MAX_VALUE_BYTES < value.len() {
            return Err(format!(
                "the value `{name}` has more than {MAX_VALUE_BYTES} bytes"
            ));
        }
        if value.chars().any(char::is_control) {
            return Err(format!("the value `{name}` has control characters"));
        }
        let rule = self.endpoint.variables.get(name);
        let values = rule.map_or(&[][..], |it| &it.values);
        if !values.is_empty() && !values.iter().any(|it| it == value) {
            return Err(format!(
                "the value `{name}` must be one of {}",
                values.join(", ")
            ));
        }
        match self.patterns.get(name) {
            Some(pattern) if !pattern.is_match(value) => {
                let pattern = rule.and_then(|it| it.pattern.as_deref());
                let pattern = pattern.unwrap_or_default();
                Err(format!("the value `{name}` must match {pattern}"))
            }
            _ => Ok(()),
        }
    }
}

/// A media type as headers write it (RFC 9110, 8.3.1), without what is no such thing.
pub(crate) fn media_type(text: &str) -> Option<&str> {
    const MAX_BYTES: usize = 255;
    let text = text.trim();
    let (kind, rest) = text.split(';').next()?.trim().split_once('/')?;
    let is_token = |it: &str| {
        let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&it);
        !it.is_empty() && it.bytes().all(is_plain)
    };
    let is_shown = text.bytes().all(|it| (b' '..=b'~').contains(&it));
    (is_token(kind) && is_token(rest) && is_shown && text.len() <= MAX_BYTES).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, variables: &[(&str, Variable)]) -> Result<Asked, String> {
        let endpoint = Endpoint {
            path: path.to_owned(),
            variables: variables
                .iter()
                .map(|(name, rule)| ((*name).to_owned(), rule.clone()))
                .collect(),
            ..Endpoint::default()
        };
        Asked::new("https://host.example/api/", "stock", endpoint)
    }

    #[test]
    fn mistakes_are_told() {
        let pattern = |pattern: &str| Variable {
            pattern: Some(pattern.to_owned()),
            ..Variable::default()
        };
        let long = "(?:a{1000}){1000}";
        for (path, variable, expected) in [
            ("stock", None, "begin with a slash"),
            ("/{a-b}", None, "no name of a variable"),
            ("/a/../b", None, "`.` or `..`"),
            ("/a#b", None, "fragment"),
            ("/{a", None, "not around the name"),
            ("/${TOKEN}", None, "`${…}`"),
            ("/a", Some(("b", pattern("x"))), "no such variable"),
            ("/{b}", Some(("b", pattern("("))), "no regular expression"),
            (
                "/{b}",
                Some(("b", pattern("a)|(?:b"))),
                "no regular expression",
            ),
            ("/{b}", Some(("b", pattern(long))), "too large"),
            (
                "/{b}",
                Some((
                    "b",
                    Variable {
                        values: vec!["y".to_owned()],
                        ..pattern("x")
                    },
                )),
                "does not match",
            ),
        ] {
            let variables: Vec<_> = variable.into_iter().collect();
            let error = asked(path, &variables).unwrap_err();
            assert!(error.contains(expected), "{path}: {error}");
        }
    }

    #[test]
    fn media_types_are_taken_as_they_are_or_not_at_all() {
        for (text, expected) in [
            ("application/json", Some("application/json")),
            (
                " text/html; charset=utf-8 ",
                Some("text/html; charset=utf-8"),
            ),
            ("text", None),
            ("text/", None),
            ("text/a b", None),
            ("text/html; a=\u{e9}", None),
            ("", None),
        ] {
            assert_eq!(media_type(text), expected, "{text}");
        }
    }
}
