//! URLs with `{name}` in them, whose shape no argument can change.

use http::{Uri, uri::Authority};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::fmt;

/// The longest URL that is sent, in bytes. Servers commonly take 8 KiB.
pub const MAX_URL_BYTES: usize = 8 * 1024;

/// Characters escaped in a value: all but RFC 3986's unreserved characters.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Characters escaped in text that the template's author wrote into a path or a query: those that a
/// URL cannot hold. A `%` stands for itself, since the text may be escaped already.
const WRITTEN: &AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A URL with places for arguments in its path and its query. Scheme and host are literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTemplate {
    /// `https://example.com:8443`.
    origin: String,
    authority: Authority,
    /// Between slashes.
    segments: Vec<Vec<Piece>>,
    query: Vec<Pair>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    name: Vec<Piece>,
    value: Option<Vec<Piece>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Escaped where it has to be.
    Text(String),
    /// The argument of this name.
    Argument(String),
}

/// Reason why a text is no URL with places for arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// A text that does not begin with `http://` or `https://`.
    #[error("it must begin with `http://` or `https://`")]
    Scheme,
    /// A host, or port, that is not literal.
    #[error("its host must be written out: an argument or a variable cannot choose it")]
    HostNotLiteral,
    /// A missing host, or one that cannot be parsed.
    #[error("it has no host that can be read")]
    Host,
    /// A name or a password in front of the host.
    #[error("it has credentials in it; use `headers` with a variable instead")]
    Credentials,
    /// A reference to a variable outside of headers.
    #[error("it has `${{…}}` in it, which only headers can have")]
    Variable,
    /// A fragment, `#`, which is never sent.
    #[error("it has a fragment (`#`), which is never sent")]
    Fragment,
    /// A segment `.` or `..`.
    #[error("its path has `.` or `..` in it")]
    DotSegment,
    /// A `{` or `}` stands alone, or the name between them is none.
    #[error("it has a `{{` or `}}` that is not around the name of an argument")]
    Braces,
}

/// Reason why arguments do not fit into a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnfitArgument {
    /// A needed argument that is absent, null or empty.
    #[error("the argument `{0}` is needed, and cannot be empty")]
    Missing(String),
    /// An object, or a list of anything but plain values.
    #[error("the argument `{0}` must be a text, a number, a boolean or a list of such")]
    NotPlain(String),
    /// A value that would lead to another path.
    #[error("the argument `{0}` cannot have `.` or `..` between slashes")]
    DotSegment(String),
    /// The URL gets longer than [`MAX_URL_BYTES`].
    #[error("the arguments make a URL of more than {MAX_URL_BYTES} bytes")]
    TooLong,
}

impl UrlTemplate {
    /// Reads a URL such as `https://example.com/orders/{order_id}?expand={expand}`.
    ///
    /// # Errors
    ///
    /// [`UrlError`] when it is none, or when an argument could choose where it leads.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let scheme = scheme.to_ascii_lowercase();
        if !matches!(scheme.as_str(), "http" | "https") {
            return Err(UrlError::Scheme);
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if authority.contains(['{', '}', '$']) {
            return Err(UrlError::HostNotLiteral);
        }
        if authority.contains('@') {
            return Err(UrlError::Credentials);
        }
        if rest.contains("${") {
            return Err(UrlError::Variable);
        }
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let authority = authority.to_ascii_lowercase();
        let authority: Authority = authority.parse().map_err(|_| UrlError::Host)?;
        let has_port = authority.as_str().len() == authority.host().len()
            || authority.port_u16().is_some_and(|port| 0 < port);
        if authority.host().is_empty() || !has_port {
            return Err(UrlError::Host);
        }
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        let segments = path
            .strip_prefix('/')
            .unwrap_or(path)
            .split('/')
            .map(pieces)
            .collect::<Result<Vec<_>, _>>()?;
        let is_dots = |segment: &Vec<Piece>| match segment.as_slice() {
            [Piece::Text(text)] => has_dots(&decoded(text)),
            _ => false,
        };
        if segments.iter().any(is_dots) {
            return Err(UrlError::DotSegment);
        }
        let pairs = query
            .into_iter()
            .flat_map(|query| query.split('&'))
            .filter(|pair| !pair.is_empty());
        let query = pairs
            .map(|pair| {
                let (name, value) = match pair.split_once('=') {
                    Some((name, value)) => (name, Some(pieces(value)?)),
                    None => (pair, None),
                };
                let name = pieces(name)?;
                Ok(Pair { name, value })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            origin: format!("{scheme}://{authority}"),
            authority,
            segments,
            query,
        })
    }

    /// Host, without brackets, in lower case.
    pub fn host(&self) -> &str {
        http_client::bare(self.authority.host())
    }

    /// The arguments that it has places for, in order, those of the path first.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        let in_query = self.query.iter().flat_map(|pair| {
            let value = pair.value.iter().flatten();
            pair.name.iter().chain(value)
        });
        named(self.segments.iter().flatten().chain(in_query))
    }

    /// Arguments without which there is no URL: all but those that are the whole value of a pair in
    /// the query.
    pub fn required_arguments(&self) -> impl Iterator<Item = &str> {
        let in_query = self.query.iter().flat_map(|pair| {
            let value = pair.value.as_deref().unwrap_or_default();
            let value = if is_argument(value) { &[] } else { value };
            pair.name.iter().chain(value)
        });
        named(self.segments.iter().flatten().chain(in_query))
    }

    /// The URL with arguments in their places, each escaped so that it stays where it is put, and
    /// `more` pairs at the end of the query. `argument` gives the items of the argument of a name,
    /// usually one; none if it is absent.
    ///
    /// # Errors
    ///
    /// [`UnfitArgument`] for one that is missing or leads elsewhere.
    pub fn render(
        &self,
        argument: &dyn Fn(&str) -> Result<Vec<String>, UnfitArgument>,
        more: &[(String, String)],
    ) -> Result<Uri, UnfitArgument> {
        let mut url = self.origin.clone();
        for segment in &self.segments {
            url.push('/');
            let start = url.len();
            push(&mut url, segment, argument)?;
            let asked = named(segment.iter()).next();
            if let Some(name) = asked
                && has_dots(&decoded(&url[start..]))
            {
                return Err(UnfitArgument::DotSegment(name.to_owned()));
            }
        }
        let mut mark = '?';
        for Pair { name, value } in &self.query {
            let whole = value.as_deref().filter(|value| is_argument(value));
            if let Some([Piece::Argument(wanted)]) = whole {
                for item in argument(wanted)? {
                    url.push(std::mem::replace(&mut mark, '&'));
                    push(&mut url, name, argument)?;
                    url.push('=');
                    url.extend(utf8_percent_encode(&item, VALUE));
                }
                continue;
            }
            url.push(std::mem::replace(&mut mark, '&'));
            push(&mut url, name, argument)?;
            if let Some(value) = value {
                url.push('=');
                push(&mut url, value, argument)?;
            }
        }
        for (name, value) in more {
            url.push(std::mem::replace(&mut mark, '&'));
            url.extend(utf8_percent_encode(name, VALUE));
            url.push('=');
            url.extend(utf8_percent_encode(value, VALUE));
        }
        if MAX_URL_BYTES < url.len() {
            return Err(UnfitArgument::TooLong);
        }
        Ok(url
            .parse()
            .expect("an origin that was parsed, and escaped text, are a URL"))
    }
}

impl fmt::Display for UrlTemplate {
    /// Method tables and logs: origin and path, with `{name}` for arguments, without the query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        for segment in &self.segments {
            f.write_str("/")?;
            for piece in segment {
                match piece {
                    Piece::Text(text) => f.write_str(text)?,
                    Piece::Argument(name) => write!(f, "{{{name}}}")?,
                }
            }
        }
        Ok(())
    }
}

/// The text with each `{name}` found.
fn pieces(text: &str) -> Result<Vec<Piece>, UrlError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let literal = |text: &str| {
        let text = utf8_percent_encode(text, WRITTEN).to_string();
        Piece::Text(text)
    };
    while let Some(open) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(open);
        let after = after.strip_prefix('{').ok_or(UrlError::Braces)?;
        let (name, after) = after.split_once('}').ok_or(UrlError::Braces)?;
        if !is_name(name) {
            return Err(UrlError::Braces);
        }
        if !before.is_empty() {
            pieces.push(literal(before));
        }
        pieces.push(Piece::Argument(name.to_owned()));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(literal(rest));
    }
    Ok(pieces)
}

/// Returns true if `name` can be the name of an argument in a template.
pub(crate) fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.chars().all(legal)
}

fn is_argument(pieces: &[Piece]) -> bool {
    matches!(pieces, [Piece::Argument(_)])
}

fn named<'a>(pieces: impl Iterator<Item = &'a Piece>) -> impl Iterator<Item = &'a str> {
    pieces.filter_map(|piece| match piece {
        Piece::Argument(name) => Some(name.as_str()),
        Piece::Text(_) => None,
    })
}

/// Items are parted by commas, which therefore are escaped inside of them.
fn push(
    url: &mut String,
    pieces: &[Piece],
    argument: &dyn Fn(&str) -> Result<Vec<String>, UnfitArgument>,
) -> Result<(), UnfitArgument> {
    for piece in pieces {
        match piece {
            Piece::Text(text) => url.push_str(text),
            Piece::Argument(name) => {
                let items = argument(name)?;
                // `/orders/` is another resource than an order, and `DELETE` takes it at its word.
                if items.iter().all(String::is_empty) {
                    return Err(UnfitArgument::Missing(name.clone()));
                }
                for (index, item) in items.iter().enumerate() {
                    if 0 < index {
                        url.push(',');
                    }
                    url.extend(utf8_percent_encode(item, VALUE));
                }
            }
        }
    }
    Ok(())
}

/// Decodes as often as any server on the way might.
fn decoded(text: &str) -> String {
    const MOST: usize = 4;
    let mut text = text.to_owned();
    for _ in 0..MOST {
        let once = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if once == text {
            break;
        }
        text = once;
    }
    text
}

/// Escaping does not help against dots: URL libraries and proxies take `%2e%2e` for `..`, and some
/// servers `%2f` for a slash, before they look where a path leads.
fn has_dots(segment: &str) -> bool {
    segment
        .split(['/', '\\'])
        // A server may cut off what comes after a semicolon or a zero.
        .map(|part| part.split([';', '\0']).next().unwrap_or_default().trim())
        .any(|part| matches!(part, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rendered(template: &str, arguments: &[(&str, &str)]) -> Result<String, UnfitArgument> {
        let argument = |name: &str| {
            let found = arguments.iter().filter(|(key, _)| *key == name);
            Ok(found.map(|(_, value)| (*value).to_owned()).collect())
        };
        let template = UrlTemplate::parse(template).unwrap();
        template.render(&argument, &[]).map(|uri| uri.to_string())
    }

    #[test]
    fn arguments_stay_where_they_are_put() {
        let rows = [
            ("http://h/a/{x}", "7", "http://h/a/7"),
            (
                "http://h/a/{x}",
                "a/b?c#d&e=f",
                "http://h/a/a%2Fb%3Fc%23d%26e%3Df",
            ),
            (
                "http://h/a/{x}",
                "@evil.example",
                "http://h/a/%40evil.example",
            ),
            ("http://h/{x}.json", ".", "http://h/..json"),
            (
                "http://h/a/{x}",
                "é 会%",
                "http://h/a/%C3%A9%20%E4%BC%9A%25",
            ),
            (
                "https://h:8443?q={x}&r=1",
                "a&r=2",
                "https://h:8443/?q=a%26r%3D2&r=1",
            ),
            ("http://h/?q=~{x}", "1", "http://h/?q=~1"),
            (
                "HTTP://Host/A b/%20?{x}=1",
                "k",
                "http://host/A%20b/%20?k=1",
            ),
        ];
        for (template, value, url) in rows {
            assert_eq!(rendered(template, &[("x", value)]).as_deref(), Ok(url));
        }
        assert_eq!(
            rendered("http://h/?a={a}&b={b}", &[("b", "1")]).unwrap(),
            "http://h/?b=1"
        );
        let twice = [("x", "1"), ("x", "2,3")];
        assert_eq!(
            rendered("http://h/{x}", &twice).unwrap(),
            "http://h/1,2%2C3"
        );
        assert_eq!(
            rendered("http://h/?x={x}", &twice).unwrap(),
            "http://h/?x=1&x=2%2C3"
        );
    }

    #[test]
    fn what_leads_elsewhere_or_nowhere_is_refused() {
        let dots = UnfitArgument::DotSegment("x".to_owned());
        for value in [
            "..",
            ".",
            "../a",
            "a/..",
            "a\\..",
            "%2e%2e",
            "%252e%252e/",
            "..;a=b",
            "..\0",
        ] {
            assert_eq!(
                rendered("http://h/a/{x}", &[("x", value)]),
                Err(dots.clone()),
                "{value}"
            );
        }
        assert_eq!(rendered("http://h/a/.{x}", &[("x", ".")]), Err(dots));
        let missing = Err(UnfitArgument::Missing("x".to_owned()));
        assert_eq!(rendered("http://h/a/{x}", &[]), missing);
        assert_eq!(rendered("http://h/a/{x}", &[("x", "")]), missing);
        assert_eq!(rendered("http://h/?a=b{x}", &[]), missing);
        let long = "x".repeat(MAX_URL_BYTES);
        assert_eq!(
            rendered("http://h/{x}", &[("x", &long)]),
            Err(UnfitArgument::TooLong)
        );
    }

    #[test]
    fn only_the_path_and_the_query_have_places() {
        let rows = [
            ("ftp://h/", UrlError::Scheme),
            ("/orders", UrlError::Scheme),
            ("{scheme}://h/", UrlError::Scheme),
            ("http://{host}/", UrlError::HostNotLiteral),
            ("http://h{x}/", UrlError::HostNotLiteral),
            ("http://h:{port}/", UrlError::HostNotLiteral),
            ("http://${HOST}/", UrlError::HostNotLiteral),
            ("http://a:b@h/", UrlError::Credentials),
            ("http://h/${KEY}", UrlError::Variable),
            ("http://h/#a", UrlError::Fragment),
            ("http://h/a/../b", UrlError::DotSegment),
            ("http://h/%2e%2e/b", UrlError::DotSegment),
            ("http://h/{", UrlError::Braces),
            ("http://h/}", UrlError::Braces),
            ("http://h/{a b}", UrlError::Braces),
            ("http://h/{{a}}", UrlError::Braces),
            ("http:///a", UrlError::Host),
            ("http://h h/a", UrlError::Host),
            ("http://h:0/a", UrlError::Host),
            ("http://h:99999/a", UrlError::Host),
        ];
        for (template, error) in rows {
            assert_eq!(UrlTemplate::parse(template), Err(error), "{template}");
        }
    }

    #[test]
    fn its_arguments_are_known() {
        let url = UrlTemplate::parse("http://h/{a}/x{b}?{c}={d}&e=_{f}&{g}").unwrap();
        assert_eq!(
            url.arguments().collect::<Vec<_>>(),
            ["a", "b", "c", "d", "f", "g"]
        );
        assert_eq!(
            url.required_arguments().collect::<Vec<_>>(),
            ["a", "b", "c", "f", "g"]
        );
        assert_eq!(url.to_string(), "http://h/{a}/x{b}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// For all arguments, the URL has the host and the shape of its template, and the service
        /// receives the values given.
        #[test]
        fn no_argument_changes_the_shape(a in ".*", b in "[./\\\\%a-c:@?#&=;]{0,8}", c in any::<String>()) {
            let template = UrlTemplate::parse("https://host.example:8443/v1/{a}/x-{b}/end?q={c}&r=1").unwrap();
            let argument = |name: &str| Ok(vec![match name { "a" => a.clone(), "b" => b.clone(), _ => c.clone() }]);
            let Ok(uri) = template.render(&argument, &[("s".to_owned(), c.clone())]) else {
                return Ok(());
            };
            prop_assert_eq!(uri.scheme_str(), Some("https"));
            prop_assert_eq!(uri.authority().unwrap().as_str(), "host.example:8443");
            let segments: Vec<_> = uri.path().split('/').collect();
            prop_assert_eq!(segments.len(), 5);
            let decoded = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
            prop_assert_eq!(segments[1], "v1");
            prop_assert_eq!(decoded(segments[2]), a);
            prop_assert_eq!(decoded(segments[3]), format!("x-{b}"));
            prop_assert_eq!(segments[4], "end");
            prop_assert!(segments.iter().all(|it| !matches!(decoded(it).as_str(), "." | "..")));
            let pairs: Vec<_> = uri.query().unwrap().split('&').collect();
            let (q, s) = (pairs[0].strip_prefix("q=").unwrap(), pairs[2].strip_prefix("s=").unwrap());
            prop_assert_eq!(pairs.len(), 3);
            prop_assert_eq!(pairs[1], "r=1");
            prop_assert_eq!(decoded(q), c.clone());
            prop_assert_eq!(decoded(s), c);
            prop_assert!(!uri.to_string().contains('#'));
        }
    }
}
