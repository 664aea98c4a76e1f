//! References of a server to places of its own (RFC 3986): where a redirection leads, where messages are posted.

use http::Uri;

const UNREADABLE: &str = "it is no address";

/// The place that `to` names, seen from `from`, if it has the same origin; or the rule that it breaks.
pub(crate) fn same_origin(from: &Uri, to: &str) -> Result<Uri, &'static str> {
    let (to, names_host) = resolved(from, to)?;
    let authority = to.authority().ok_or(UNREADABLE)?;
    if names_host && authority.as_str().contains('@') {
        return Err("it has a user or a password before the host");
    }
    let port = |uri: &Uri| {
        uri.port_u16().or(match uri.scheme_str() {
            Some("https") => Some(443),
            _ => Some(80),
        })
    };
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    match to.scheme() == from.scheme() && host(&to) == host(from) && port(&to) == port(from) {
        true => Ok(to),
        false => Err("it is on another server"),
    }
}

/// `to` as an address, seen from `from` (RFC 3986, section 5.2.2), and true if it names a host itself. The fragment is
/// left out, since it is not sent.
fn resolved(from: &Uri, to: &str) -> Result<(Uri, bool), &'static str> {
    let to = to.split('#').next().unwrap_or_default();
    let own_scheme = from.scheme_str().ok_or(UNREADABLE)?;
    let (scheme, rest) = match scheme_of(to) {
        Some(scheme) => (scheme, &to[scheme.len() + 1..]),
        None => (own_scheme, to),
    };
    let has_scheme = rest.len() < to.len();
    let (host, rest) = match rest.strip_prefix("//") {
        Some(rest) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            (Some(&rest[..end]), &rest[end..])
        }
        // Such as `file:` or `javascript:` without a host.
        None if has_scheme => return Err(UNREADABLE),
        None => (None, rest),
    };
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    let (path, query) = match path {
        "" if host.is_none() => (from.path().to_owned(), query.or(from.query())),
        _ if path.starts_with('/') || host.is_some() => (without_dots(path), query),
        _ => {
            let directory = from.path().rfind('/').map_or("/", |at| &from.path()[..=at]);
            (without_dots(&format!("{directory}{path}")), query)
        }
    };
    let own = from.authority().map(|it| it.as_str());
    let authority = host.or(own).ok_or(UNREADABLE)?;
    let query = query.map_or_else(String::new, |it| format!("?{it}"));
    let whole = format!("{scheme}://{authority}{path}{query}").parse();
    Ok((whole.map_err(|_| UNREADABLE)?, host.is_some()))
}

/// The scheme that a reference begins with (RFC 3986, section 3.1).
fn scheme_of(text: &str) -> Option<&str> {
    let scheme = &text[..text.find([':', '/', '?'])?];
    let fits = |it: u8| it.is_ascii_alphanumeric() || b"+-.".contains(&it);
    let is_scheme = scheme.starts_with(|it: char| it.is_ascii_alphabetic())
        && scheme.bytes().all(fits)
        && text[scheme.len()..].starts_with(':');
    is_scheme.then_some(scheme)
}

/// A path without its `.` and `..` (RFC 3986, section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                // The first one stands before the first slash.
                if segment == ".." && 1 < kept.len() {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    kept.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_as_the_standard_says() {
        // RFC 3986, sections 5.4.1 and 5.4.2, as far as they have the base's host.
        for (to, expected) in [
            ("g", "/b/c/g"),
            ("./g", "/b/c/g"),
            ("g/", "/b/c/g/"),
            ("/g", "/g"),
            ("?y", "/b/c/d;p?y"),
            ("g?y", "/b/c/g?y"),
            ("#s", "/b/c/d;p?q"),
            ("g#s", "/b/c/g"),
            ("g?y#s", "/b/c/g?y"),
            (";x", "/b/c/;x"),
            ("g;x?y#s", "/b/c/g;x?y"),
            ("", "/b/c/d;p?q"),
            (".", "/b/c/"),
            ("./", "/b/c/"),
            ("..", "/b/"),
            ("../", "/b/"),
            ("../g", "/b/g"),
            ("../..", "/"),
            ("../../", "/"),
            ("../../g", "/g"),
            ("../../../g", "/g"),
            ("../../../../g", "/g"),
            ("/./g", "/g"),
            ("/../g", "/g"),
            ("g.", "/b/c/g."),
            (".g", "/b/c/.g"),
            ("g..", "/b/c/g.."),
            ("..g", "/b/c/..g"),
            ("./../g", "/b/g"),
            ("./g/.", "/b/c/g/"),
            ("g/./h", "/b/c/g/h"),
            ("g/../h", "/b/c/h"),
            ("g;x=1/./y", "/b/c/g;x=1/y"),
            ("g;x=1/../y", "/b/c/y"),
            ("g?y/./x", "/b/c/g?y/./x"),
            ("//a", "/"),
            ("//A:80/x/../y", "/y"),
            ("HTTP://a/x?y", "/x?y"),
            ("g?to=http://b/", "/b/c/g?to=http://b/"),
        ] {
            let from: Uri = "http://a/b/c/d;p?q".parse().unwrap();
            let found = same_origin(&from, to).unwrap();
            let path = found.path_and_query().map(ToString::to_string);
            assert_eq!(path.as_deref(), Some(expected), "{to}");
        }
    }

    #[test]
    fn references_to_other_places_are_refused_with_the_reason() {
        let from: Uri = "https://a:8443/sse".parse().unwrap();
        for (to, why) in [
            ("//b/x", "another server"),
            ("//a/x", "another server"),
            ("http://a:8443/x", "another server"),
            ("https://a:8443@b/x", "a user or a password"),
            ("https://u:p@a:8443/x", "a user or a password"),
            ("javascript:1", "no address"),
            ("file:///etc/passwd", "no address"),
            ("/a b", "no address"),
            ("/a\u{1b}", "no address"),
        ] {
            let refused = same_origin(&from, to).unwrap_err();
            assert!(refused.contains(why), "{to}: {refused}");
        }
    }
}
