//! Headers of a request, as far as the transport reads them.

use http::{HeaderMap, HeaderValue};
use mcp_protocol::{RequestedVersion, TraceContext};

/// A header that must not say two things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Single<'a> {
    #[default]
    Missing,
    One(&'a [u8]),
    Conflicting,
}

impl<'a> Single<'a> {
    fn add(&mut self, value: &'a HeaderValue) {
        let value = value.as_bytes().trim_ascii();
        *self = match *self {
            Self::Missing => Self::One(value),
            Self::One(known) if known == value => Self::One(known),
            Self::One(_) | Self::Conflicting => Self::Conflicting,
        };
    }

    /// The value, if there is one and it is text.
    pub(crate) fn text(self) -> Option<&'a str> {
        match self {
            Self::One(value) => std::str::from_utf8(value).ok(),
            Self::Missing | Self::Conflicting => None,
        }
    }

    pub(crate) fn is_missing(self) -> bool {
        self == Self::Missing
    }
}

/// The headers we look at, found in one pass over all of them.
#[derive(Debug, Default)]
pub(crate) struct Headers<'a> {
    pub(crate) host: Single<'a>,
    pub(crate) origin: Single<'a>,
    pub(crate) content_type: Single<'a>,
    pub(crate) session: Single<'a>,
    pub(crate) version: Single<'a>,
    pub(crate) method: Single<'a>,
    pub(crate) name: Single<'a>,
    pub(crate) accept: Accept,
    /// True if a content coding is named that is none.
    pub(crate) are_of_encoded_body: bool,
    traceparent: Single<'a>,
    /// All of them: one after the other they are one (W3C Trace Context, 3.3).
    tracestate: Vec<&'a HeaderValue>,
}

/// Media types that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accept {
    pub(crate) json: bool,
    pub(crate) stream: bool,
}

impl Default for Accept {
    /// Accepts everything, as a request without the header does.
    fn default() -> Self {
        Self {
            json: true,
            stream: true,
        }
    }
}

impl<'a> Headers<'a> {
    pub(crate) fn read(headers: &'a HeaderMap) -> Self {
        let mut found = Self::default();
        let mut accepts: Option<Accept> = None;
        for (name, value) in headers {
            let field = match name.as_str() {
                "host" => &mut found.host,
                "origin" => &mut found.origin,
                "content-type" => &mut found.content_type,
                "mcp-session-id" => &mut found.session,
                "mcp-protocol-version" => &mut found.version,
                "mcp-method" => &mut found.method,
                "mcp-name" => &mut found.name,
                "traceparent" => &mut found.traceparent,
                "content-encoding" => {
                    let is_none = value.as_bytes().eq_ignore_ascii_case(b"identity");
                    found.are_of_encoded_body |= !is_none;
                    continue;
                }
                "tracestate" => {
                    found.tracestate.push(value);
                    continue;
                }
                "accept" => {
                    let accept = accepts.get_or_insert(Accept {
                        json: false,
                        stream: false,
                    });
                    accept.add(value.as_bytes());
                    continue;
                }
                _ => continue,
            };
            field.add(value);
        }
        found.accept = accepts.unwrap_or_default();
        found
    }

    /// The revision the headers name.
    pub(crate) fn version(&self) -> Option<RequestedVersion> {
        self.version.text().map(RequestedVersion::from)
    }

    /// Returns true if the headers name a revision without a handshake.
    pub(crate) fn are_modern(&self) -> bool {
        self.version().is_some_and(|version| version.is_modern())
    }

    /// Place in a distributed trace where the HTTP request was sent.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        let parent = self.traceparent.text()?;
        let states: Result<Vec<_>, _> = self.tracestate.iter().map(|it| it.to_str()).collect();
        let state = states.ok().map(|it| it.join(","));
        TraceContext::parse(parent, state.as_deref())
    }

    /// Returns true if the headers declare the body to be JSON.
    pub(crate) fn say_json(&self) -> bool {
        let Single::One(value) = self.content_type else {
            return false;
        };
        // As most clients write it.
        value == b"application/json" || media_type(value).eq_ignore_ascii_case(b"application/json")
    }
}

impl Accept {
    fn add(&mut self, value: &[u8]) {
        // As most clients write it.
        if value == b"application/json, text/event-stream" {
            (self.json, self.stream) = (true, true);
            return;
        }
        for range in value.split(|byte| *byte == b',') {
            let range = media_type(range);
            let is = |name: &[u8]| range.eq_ignore_ascii_case(name);
            let any = is(b"*/*");
            self.json |= any || is(b"application/json") || is(b"application/*");
            self.stream |= any || is(b"text/event-stream") || is(b"text/*");
        }
    }
}

/// A media type without its parameters.
fn media_type(value: &[u8]) -> &[u8] {
    value
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn map(headers: &[(&'static str, &str)]) -> HeaderMap {
        headers
            .iter()
            .map(|(name, value)| {
                let value = HeaderValue::from_str(value).unwrap();
                (HeaderName::from_static(name), value)
            })
            .fold(HeaderMap::new(), |mut map, (name, value)| {
                map.append(name, value);
                map
            })
    }

    #[test]
    fn a_trace_is_one_parent_and_all_states() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let other = parent.replace("-01", "-00");
        let of = |headers: &[(&'static str, &str)]| {
            let headers = map(headers);
            let trace = Headers::read(&headers).trace()?;
            Some((
                trace.traceparent(),
                trace.tracestate().unwrap_or_default().to_owned(),
            ))
        };
        let (traceparent, tracestate) = ("traceparent", "tracestate");
        let read = |state: &str| Some((parent.to_owned(), state.to_owned()));
        assert_eq!(of(&[(traceparent, parent)]), read(""));
        let states = [
            (traceparent, parent),
            (tracestate, "a=1, b=2"),
            (tracestate, "c=3"),
        ];
        assert_eq!(of(&states), read("a=1,b=2,c=3"));
        assert_eq!(of(&[(traceparent, parent), (tracestate, "A=1")]), read(""));
        assert_eq!(of(&[(tracestate, "a=1")]), None);
        assert_eq!(of(&[(traceparent, "ff")]), None);
        assert_eq!(of(&[(traceparent, parent), (traceparent, &other)]), None);
    }

    #[test]
    fn a_header_that_says_two_things_says_nothing() {
        let headers = map(&[
            ("mcp-method", "a"),
            ("mcp-method", " a "),
            ("mcp-name", "a"),
            ("mcp-name", "b"),
        ]);
        let found = Headers::read(&headers);
        assert_eq!(found.method, Single::One(b"a"));
        assert_eq!(found.name, Single::Conflicting);
        assert!(found.version.is_missing());
    }

    #[test]
    fn media_types_have_parameters_and_any_case() {
        for (value, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/json-patch+json", false),
            ("text/plain", false),
            ("", false),
        ] {
            let headers = map(&[("content-type", value)]);
            assert_eq!(Headers::read(&headers).say_json(), expected, "{value}");
        }
    }

    #[test]
    fn what_is_accepted() {
        for (values, json, stream) in [
            (&[][..], true, true),
            (&["*/*"], true, true),
            (&["application/json, text/event-stream"], true, true),
            (&["application/json", "text/event-stream;q=0.5"], true, true),
            (&["application/json"], true, false),
            (&["text/event-stream"], false, true),
            (&["text/html"], false, false),
        ] {
            let headers: Vec<_> = values.iter().map(|value| ("accept", *value)).collect();
            let headers = map(&headers);
            let found = Headers::read(&headers).accept;
            assert_eq!((found.json, found.stream), (json, stream), "{values:?}");
        }
    }

    #[test]
    fn the_era_of_a_header() {
        for (version, modern) in [
            ("2026-07-28", true),
            ("v999", true),
            ("2025-11-25", false),
            ("1.0", false),
            ("1900-01-01", false),
        ] {
            let headers = map(&[("mcp-protocol-version", version)]);
            assert_eq!(Headers::read(&headers).are_modern(), modern, "{version}");
        }
    }
}
