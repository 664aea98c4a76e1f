//! Checks of `Host` and `Origin`.

use crate::{
    error_response::{PlainResponse, refusal},
    headers::{Headers, Single},
    options::HttpOptions,
};
use http::{StatusCode, Uri, uri::Authority};
use std::net::IpAddr;

/// The checks that keep web pages of strangers out. Part of a listener, since what is allowed
/// depends on where that is bound.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    origins: Vec<String>,
    any_origin: bool,
    hosts: Vec<String>,
    check_hosts: bool,
    loopback: bool,
}

impl Guard {
    pub(crate) fn new(options: &HttpOptions, bound: IpAddr) -> Self {
        let lower = |texts: &[String]| -> Vec<String> {
            let trimmed = texts.iter().map(|text| text.trim_end_matches('/'));
            trimmed.map(str::to_ascii_lowercase).collect()
        };
        let loopback = bound.to_canonical().is_loopback();
        Self {
            any_origin: options.allowed_origins.iter().any(|origin| origin == "*"),
            origins: lower(&options.allowed_origins),
            hosts: lower(&options.allowed_hosts),
            check_hosts: loopback || !options.allowed_hosts.is_empty(),
            loopback,
        }
    }

    /// Lets a request pass. The answer to a page that may call us must say so, hence the origin.
    pub(crate) fn check<'a>(
        &self,
        uri: &Uri,
        headers: &Headers<'a>,
    ) -> Result<Option<&'a [u8]>, Box<PlainResponse>> {
        // A page whose name was made to resolve to our address still sends its own name.
        let in_target = uri.authority().map(Authority::as_str);
        let is_usual = match headers.host {
            Single::One(host) => self.loopback && in_target.is_none() && is_usual_loopback(host),
            _ => false,
        };
        if self.check_hosts && !is_usual {
            // In HTTP/2 it is there alone.
            let named = match headers.host {
                Single::Missing => in_target,
                _ => headers.host.text(),
            };
            if !named.is_some_and(|host| self.allows_host(host))
                || !in_target.is_none_or(|host| self.allows_host(host))
            {
                return Err(Box::new(refusal(
                    StatusCode::FORBIDDEN,
                    "this server does not answer to the name in `Host`",
                )));
            }
        }
        match headers.origin {
            Single::Missing => Ok(None),
            Single::One(origin)
                if std::str::from_utf8(origin).is_ok_and(|origin| self.allows_origin(origin)) =>
            {
                Ok(Some(origin))
            }
            Single::One(_) | Single::Conflicting => Err(Box::new(refusal(
                StatusCode::FORBIDDEN,
                "pages of this `Origin` may not call this server",
            ))),
        }
    }

    fn allows_host(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else {
            return false;
        };
        (self.loopback && is_loopback(name))
            || self
                .hosts
                .iter()
                .any(|known| known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(host))
    }

    fn allows_origin(&self, origin: &str) -> bool {
        if self.any_origin
            || self
                .origins
                .iter()
                .any(|known| known.eq_ignore_ascii_case(origin))
        {
            return true;
        }
        let host = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        self.loopback && host.and_then(without_port).is_some_and(is_loopback)
    }
}

/// `name[:port]` without its port; `None` for anything else, such as user information in front.
fn without_port(host: &str) -> Option<&str> {
    let (name, rest) = if host.starts_with('[') {
        host.split_at(host.find(']')? + 1)
    } else {
        host.split_at(host.find(':').unwrap_or(host.len()))
    };
    let port_is_fine = match rest.strip_prefix(':') {
        Some(port) => port.bytes().all(|byte| byte.is_ascii_digit()),
        None => rest.is_empty(),
    };
    let name_is_fine = !name.is_empty() && !name.contains(['@', '/', '?', '#']);
    (port_is_fine && name_is_fine).then_some(name)
}

/// True for the names of loopback that most clients use, with a port or without.
fn is_usual_loopback(host: &[u8]) -> bool {
    let mut names = ["127.0.0.1", "localhost"].iter();
    let rest = names.find_map(|name| host.strip_prefix(name.as_bytes()));
    rest.is_some_and(|rest| match rest {
        [] => true,
        [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
        _ => false,
    })
}

fn is_loopback(name: &str) -> bool {
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    // The names that are used; reading an address takes longer.
    matches!(name, "127.0.0.1" | "[::1]")
        || name.eq_ignore_ascii_case("localhost")
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};

    fn passes(guard: &Guard, host: Option<&str>, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert("host", HeaderValue::from_str(host).unwrap());
        }
        if let Some(origin) = origin {
            headers.insert("origin", HeaderValue::from_str(origin).unwrap());
        }
        guard
            .check(&Uri::from_static("/mcp"), &Headers::read(&headers))
            .is_ok()
    }

    fn guard(bound: &str, origins: &[&str], hosts: &[&str]) -> Guard {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let options = HttpOptions {
            allowed_origins: own(origins),
            allowed_hosts: own(hosts),
            ..HttpOptions::default()
        };
        Guard::new(&options, bound.parse().unwrap())
    }

    #[test]
    fn on_loopback_only_loopback_names_and_pages() {
        for bound in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let guard = guard(bound, &[], &[]);
            for host in [
                "localhost",
                "LocalHost:80",
                "127.0.0.1:1",
                "127.8.8.8",
                "[::1]:8080",
                "[::1]",
            ] {
                assert!(passes(&guard, Some(host), None), "{host}");
            }
            for host in [
                "evil.example",
                "localhost.evil.example",
                "127.0.0.1.evil.example",
                "localhost:x",
                "a@localhost",
                "",
                "10.0.0.1",
                "[::1",
                "[::1]x",
            ] {
                assert!(!passes(&guard, Some(host), None), "{host}");
            }
            assert!(!passes(&guard, None, None), "no name at all");
            for origin in [
                "http://localhost:3000",
                "https://127.0.0.1",
                "http://[::1]:5",
            ] {
                assert!(passes(&guard, Some("localhost"), Some(origin)), "{origin}");
            }
            for origin in [
                "https://evil.example",
                "null",
                "http://localhost.evil.example",
                "file://",
                "http://localhost@evil.example",
                "http://localhost/",
                "",
            ] {
                assert!(!passes(&guard, Some("localhost"), Some(origin)), "{origin}");
            }
        }
    }

    #[test]
    fn elsewhere_what_is_configured() {
        let open = guard("0.0.0.0", &[], &[]);
        assert!(passes(&open, Some("anything.example"), None));
        assert!(passes(&open, None, None));
        assert!(
            !passes(&open, None, Some("http://localhost")),
            "loopback is no friend here"
        );
        let closed = guard("10.0.0.1", &["https://App.example/"], &["mcp.example"]);
        assert!(passes(
            &closed,
            Some("MCP.example:443"),
            Some("https://app.example")
        ));
        assert!(!passes(
            &closed,
            Some("mcp.example"),
            Some("https://app.example:8443")
        ));
        assert!(!passes(&closed, Some("other.example"), None));
        assert!(passes(
            &guard("10.0.0.1", &["*"], &[]),
            None,
            Some("https://any.example")
        ));
    }

    #[test]
    fn a_name_in_the_target_counts_too() {
        let guard = guard("127.0.0.1", &[], &[]);
        let headers =
            HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static("localhost"))]);
        let check = |uri| {
            guard
                .check(&Uri::from_static(uri), &Headers::read(&headers))
                .is_ok()
        };
        assert!(check("http://localhost/mcp"));
        assert!(!check("http://evil.example/mcp"));
    }
}
