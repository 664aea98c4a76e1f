//! Addresses of servers, of their metadata and of endpoints.

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::{fmt, net::IpAddr};

/// A longer address is refused.
pub(crate) const MAX_ADDRESS_BYTES: usize = 2_048;

/// Characters that need no escape in a form, a query or basic credentials.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// An absolute address of `http` or `https`, without user information and without a fragment.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    is_https: bool,
    /// Without brackets, in lower case.
    host: String,
    /// Host and port as a canonical address has them.
    authority: String,
    /// Begins with a slash unless it is empty.
    path: String,
    query: Option<String>,
}

impl Address {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"#\\\"<>".contains(&byte);
        if MAX_ADDRESS_BYTES < text.len() || !text.bytes().all(is_plain) {
            return None;
        }
        let uri: Uri = text.parse().ok()?;
        let is_https = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return None;
        }
        let host = authority.host().to_ascii_lowercase();
        let default = if is_https { 443 } else { 80 };
        let port = authority.as_str()[authority.host().len()..].strip_prefix(':');
        let authority = match port {
            None | Some("") => host.clone(),
            Some(port) => match port.parse::<u16>().ok()? {
                port if port == default => host.clone(),
                port => format!("{host}:{port}"),
            },
        };
        let has_path = text[uri.scheme_str()?.len() + 3..].contains('/');
        let path = if has_path { uri.path() } else { "" };
        Some(Self {
            is_https,
            host: http_client::bare(&host).to_owned(),
            authority,
            path: path.to_owned(),
            query: uri.query().map(str::to_owned),
        })
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The port, where it is not the default.
    pub(crate) fn port(&self) -> Option<u16> {
        self.authority.rsplit_once(':')?.1.parse().ok()
    }

    pub(crate) fn has_query(&self) -> bool {
        self.query.is_some()
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// The form in which addresses of servers are compared and sent as `resource`: the host in lower
    /// case, the default port and slashes at the end left out.
    pub(crate) fn canonical(&self) -> String {
        let query = self.query.as_ref().map(|it| format!("?{it}"));
        let path = self.path.trim_end_matches('/');
        format!("{}{path}{}", self.origin(), query.unwrap_or_default())
    }

    /// The address without its query: `htu` of RFC 9449.
    pub(crate) fn without_query(&self) -> String {
        let path = if self.path.is_empty() {
            "/"
        } else {
            &self.path
        };
        format!("{}{path}", self.origin())
    }

    /// The address of a well-known document, inserted between host and path (RFC 8615, RFC 9728).
    pub(crate) fn well_known(&self, name: &str) -> String {
        let query = self.query.as_ref().map(|it| format!("?{it}"));
        let path = self.path.trim_end_matches('/');
        let query = query.unwrap_or_default();
        format!("{}/.well-known/{name}{path}{query}", self.origin())
    }

    /// Returns true if the host is this machine, by name or by address.
    pub(crate) fn is_loopback(&self) -> bool {
        let number = self.host.parse::<IpAddr>();
        let is_name = self.host == "localhost" || self.host.ends_with(".localhost");
        is_name || number.is_ok_and(|it| it.to_canonical().is_loopback())
    }

    /// Returns true if nobody on the way can read what is sent to the address.
    pub(crate) fn is_private_on_the_way(&self) -> bool {
        self.is_https || self.is_loopback()
    }

    /// Returns true if `self` is `other`, or a parent of it on the same origin.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let (mine, others) = (self.path.trim_end_matches('/'), other.path.as_str());
        let rest = others.strip_prefix(mine);
        let is_below = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let is_query_fine = self.query.is_none() || self.query == other.query;
        self.origin() == other.origin() && is_below && is_query_fine
    }

    /// The address that a `Location` of an answer from here leads to.
    pub(crate) fn join(&self, location: &str) -> Option<Self> {
        let location = location.split('#').next().unwrap_or_default();
        if location.starts_with("//") {
            let scheme = if self.is_https { "https" } else { "http" };
            Self::parse(&format!("{scheme}:{location}"))
        } else if location.starts_with('/') {
            Self::parse(&format!("{}{location}", self.origin()))
        } else if location.contains("://") {
            Self::parse(location)
        } else {
            let base = self.path.rsplit_once('/').map_or("", |(base, _)| base);
            Self::parse(&format!("{}{base}/{location}", self.origin()))
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path)?;
        match &self.query {
            Some(query) => write!(f, "?{query}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// `text` with everything escaped that means something in a form or a query.
pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, &ESCAPED).to_string()
}

/// Names and values as a form or a query.
pub(crate) fn form<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let fields = fields.into_iter();
    let fields: Vec<_> = fields
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
        .collect();
    fields.join("&")
}

/// The value of `name` in a query. `Err` if there are several, or what there is cannot be decoded.
pub(crate) fn parameter(query: &str, name: &str) -> Result<Option<String>, ()> {
    let mut found = None;
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decode(key)? != name {
            continue;
        }
        if found.replace(decode(value)?).is_some() {
            return Err(());
        }
    }
    Ok(found)
}

fn decode(text: &str) -> Result<String, ()> {
    let text = text.replace('+', " ");
    let decoded = percent_decode_str(&text).decode_utf8().map_err(|_| ())?;
    Ok(decoded.into_owned())
}

/// Places of an issuer's metadata, in the order of the MCP specification: before the issuer's path as
/// RFC 8414 and OpenID Connect have it, then behind the path. `None` for an issuer that cannot have any.
pub(crate) fn places(issuer: &str) -> Option<Vec<String>> {
    let address = Address::parse(issuer)?;
    if address.has_query() {
        return None;
    }
    let provider = "openid-configuration";
    let mut places = vec![
        address.well_known("oauth-authorization-server"),
        address.well_known(provider),
    ];
    let path = address.path().trim_end_matches('/');
    if !path.is_empty() {
        places.push(format!("{}{path}/.well-known/{provider}", address.origin()));
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_canonical_form() {
        for (text, expected) in [
            (
                "https://Example.COM:443/mcp/",
                Some("https://example.com/mcp"),
            ),
            ("http://127.0.0.1:8080", Some("http://127.0.0.1:8080")),
            ("https://[::1]:1/a?b=c", Some("https://[::1]:1/a?b=c")),
            ("https://example.com", Some("https://example.com")),
            ("https://example.com/", Some("https://example.com")),
            ("ftp://example.com", None),
            ("https://a@example.com", None),
            ("https://example.com/#a", None),
            ("https://example.com:99999/", None),
            ("https:///a", None),
            ("/a", None),
            ("https://exa mple.com", None),
        ] {
            let canonical = Address::parse(text).map(|it| it.canonical());
            assert_eq!(canonical.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn metadata_is_looked_for_in_the_order_of_the_specification() {
        assert_eq!(
            places("https://as.example/tenant/").unwrap(),
            [
                "https://as.example/.well-known/oauth-authorization-server/tenant",
                "https://as.example/.well-known/openid-configuration/tenant",
                "https://as.example/tenant/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            places("https://as.example").unwrap(),
            [
                "https://as.example/.well-known/oauth-authorization-server",
                "https://as.example/.well-known/openid-configuration",
            ]
        );
        assert_eq!(places("https://as.example?a"), None);
    }

    #[test]
    fn a_resource_covers_what_is_below_it_on_its_own_origin() {
        let parse = |text| Address::parse(text).unwrap();
        let server = parse("https://example.com/mcp");
        for (text, expected) in [
            ("https://example.com/mcp", true),
            ("https://example.com/mcp/", true),
            ("https://example.com", true),
            ("https://example.com/mc", false),
            ("https://example.com/mcp/more", false),
            ("http://example.com/mcp", false),
            ("https://evil.example/mcp", false),
            ("https://example.com:444/mcp", false),
        ] {
            assert_eq!(parse(text).covers(&server), expected, "{text}");
        }
    }

    #[test]
    fn a_parameter_is_there_once() {
        assert_eq!(parameter("a=1&b=%20+x", "b"), Ok(Some("  x".to_owned())));
        assert_eq!(parameter("a=1", "b"), Ok(None));
        assert_eq!(parameter("a=1&%61=2", "a"), Err(()));
    }

    #[test]
    fn locations_lead_on() {
        let base = Address::parse("https://a.example/x/y?z").unwrap();
        for (location, expected) in [
            ("/b", "https://a.example/b"),
            ("b?c=d", "https://a.example/x/b?c=d"),
            ("//c.example/d", "https://c.example/d"),
            ("http://d.example#e", "http://d.example"),
        ] {
            assert_eq!(base.join(location).unwrap().to_string(), expected);
        }
    }
}
