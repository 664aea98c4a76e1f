//! URLs that requests can go to.

use http::Uri;

/// Reason why a URL cannot be one that requests go to. No message quotes the URL, which may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadUrl {
    /// A text that is no URL.
    #[error("it is no URL")]
    Unreadable,
    /// Another scheme than those that are supported here, or none.
    #[error("it begins with none of the schemes that are supported here")]
    Scheme,
    /// A URL without a host.
    #[error("it names no host")]
    Host,
    /// A port that is no number from 1 to 65535. Reading such a port as absent would lead to another
    /// server of the same host.
    #[error("its port is no number from 1 to 65535")]
    Port,
    /// A user or a password, which no request would carry.
    #[error(
        "it has a user or a password in front of the host, which would not be sent; use a header"
    )]
    Credentials,
}

/// Reads an absolute URL with one of these `schemes`.
///
/// # Errors
///
/// [`BadUrl`].
pub fn parse_url(text: &str, schemes: &[&str]) -> Result<Uri, BadUrl> {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    let is_known =
        scheme.is_some_and(|it| schemes.iter().any(|known| known.eq_ignore_ascii_case(it)));
    if !is_known {
        return Err(BadUrl::Scheme);
    }
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    if rest.is_empty() || rest.starts_with(['/', '?', '#']) {
        return Err(BadUrl::Host);
    }
    let uri: Uri = text.parse().map_err(|_| BadUrl::Unreadable)?;
    check_url(&uri)?;
    Ok(uri)
}

/// Checks the authority of a URL, whose scheme the caller knows.
///
/// # Errors
///
/// [`BadUrl`].
pub fn check_url(uri: &Uri) -> Result<(), BadUrl> {
    let authority = uri.authority().ok_or(BadUrl::Host)?;
    if authority.as_str().contains('@') {
        return Err(BadUrl::Credentials);
    }
    let host = authority.host();
    if host.is_empty() {
        return Err(BadUrl::Host);
    }
    // `Authority::port_u16` is `None` for a port that does not fit, as for one that is absent.
    match authority.as_str()[host.len()..].strip_prefix(':') {
        None | Some("") => Ok(()),
        Some(port) => {
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            let fits = is_number && port.parse::<u16>().is_ok_and(|port| 0 < port);
            fits.then_some(()).ok_or(BadUrl::Port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_does_not_fit_is_not_taken_for_the_default() {
        let schemes = ["http", "https", "ws", "wss"];
        for (text, expected) in [
            ("http://h", Ok(())),
            ("https://h:443/x?y", Ok(())),
            ("WSS://h:65535", Ok(())),
            ("http://[::1]:8080/", Ok(())),
            ("http://[::1]", Ok(())),
            ("http://h:/", Ok(())),
            ("http://h:99999/mcp", Err(BadUrl::Port)),
            ("https://h:65536", Err(BadUrl::Port)),
            ("ws://h:70000", Err(BadUrl::Port)),
            ("http://[::1]:70000", Err(BadUrl::Port)),
            ("http://h:0", Err(BadUrl::Port)),
            ("http://h:+80", Err(BadUrl::Port)),
            ("http://h:abc/mcp", Err(BadUrl::Port)),
            ("http://u:p@h/", Err(BadUrl::Credentials)),
            ("http://u@h:99999", Err(BadUrl::Credentials)),
            ("http://", Err(BadUrl::Host)),
            ("http:///x", Err(BadUrl::Host)),
            ("http://:80/", Err(BadUrl::Host)),
            ("file:///x", Err(BadUrl::Scheme)),
            ("h:80", Err(BadUrl::Scheme)),
            ("", Err(BadUrl::Scheme)),
            ("http://a b", Err(BadUrl::Unreadable)),
        ] {
            let read = parse_url(text, &schemes).map(|_| ());
            // What the parser refuses is refused as well.
            let is_right = read == expected
                || (expected == Err(BadUrl::Port) || expected == Err(BadUrl::Host))
                    && read == Err(BadUrl::Unreadable);
            assert!(is_right, "{text}: {read:?}");
        }
    }
}
