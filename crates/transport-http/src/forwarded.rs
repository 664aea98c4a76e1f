//! Who a proxy speaks for. Only what proxies say that are trusted counts, and of what they say only
//! what they have added themselves: headers are read from the right, where the nearest proxy writes,
//! up to the first address that is no trusted proxy's. Whatever is to the left of that anybody may
//! have written.

use crate::{Network, Peer};
use http::{HeaderMap, HeaderName, header};
use std::net::{IpAddr, SocketAddr};

/// The header in which a proxy says whom it speaks for. Only one is read: a proxy that writes the one
/// passes the other on as its client wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, with `X-Forwarded-Proto`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// So many proxies are believed one after the other.
const MAX_HOPS: usize = 16;

/// One proxy's word.
#[derive(Debug, PartialEq, Eq)]
struct Hop<'a> {
    /// `None` where it does not tell, or not in a way that we know.
    client: Option<IpAddr>,
    scheme: Option<&'a str>,
}

/// Whoever `proxy` speaks for. If it does not say, that is somebody at its own address.
///
/// The certificate of `proxy` is its own and never its client's, so whoever this is has none: a header
/// that is missing or cannot be read must not make everybody behind `proxy` the one it is itself.
pub(crate) fn speaker(
    headers: &HeaderMap,
    read: ForwardedHeader,
    proxy: &Peer,
    trusted: &[Network],
) -> Peer {
    client(headers, read, proxy, trusted).unwrap_or_else(|| proxy.without_certificate())
}

/// The client that `proxy` speaks for; `None` if it does not say.
fn client(
    headers: &HeaderMap,
    read: ForwardedHeader,
    proxy: &Peer,
    trusted: &[Network],
) -> Option<Peer> {
    let mut client = None;
    let mut is_encrypted = proxy.is_encrypted();
    for hop in hops(headers, read).take(MAX_HOPS) {
        if let Some(scheme) = hop.scheme {
            is_encrypted = scheme.eq_ignore_ascii_case("https");
        }
        // One that does not tell leaves us with the proxy that it stands before.
        let Some(address) = hop.client else { break };
        client = Some(address);
        if !trusted.iter().any(|network| network.contains(address)) {
            break;
        }
    }
    // The port is that of nothing we could answer to.
    let peer = Peer::new(SocketAddr::new(client?, 0));
    Some(if is_encrypted {
        peer.encrypted(None)
    } else {
        peer
    })
}

/// What proxies have said, the nearest first.
fn hops(headers: &HeaderMap, read: ForwardedHeader) -> impl Iterator<Item = Hop<'_>> {
    let name = match read {
        ForwardedHeader::XForwardedFor => X_FORWARDED_FOR,
        ForwardedHeader::Forwarded => header::FORWARDED,
    };
    let lines: Vec<_> = headers.get_all(name).iter().collect();
    // The nearest proxy's word alone, since this header has no list.
    let scheme = headers
        .get_all(X_FORWARDED_PROTO)
        .iter()
        .next_back()
        .and_then(|scheme| scheme.to_str().ok())
        .and_then(|schemes| schemes.rsplit(',').next())
        .map(str::trim)
        .filter(|_| read == ForwardedHeader::XForwardedFor);
    lines
        .into_iter()
        .rev()
        // What is not text ends what is believed.
        .flat_map(|line| elements(line.to_str().unwrap_or_default()))
        .enumerate()
        .map(move |(at, element)| match read {
            ForwardedHeader::XForwardedFor => Hop {
                client: address(element),
                scheme: scheme.filter(|_| at == 0),
            },
            ForwardedHeader::Forwarded => forwarded(element),
        })
}

/// The elements of a list, the last one first. No address, and nothing else that we look for, has a
/// comma in it.
fn elements(line: &str) -> impl Iterator<Item = &str> {
    line.rsplit(',').map(str::trim)
}

/// `for=192.0.2.60;proto=https;by=203.0.113.43`
fn forwarded(element: &str) -> Hop<'_> {
    let mut hop = Hop {
        client: None,
        scheme: None,
    };
    for pair in element.split(';') {
        let Some((name, value)) = pair.split_once('=') else {
            continue;
        };
        let value = value.trim();
        let value = value
            .strip_prefix('"')
            .and_then(|value| value.strip_suffix('"'))
            .unwrap_or(value);
        let name = name.trim();
        if name.eq_ignore_ascii_case("for") {
            hop.client = address(value);
        } else if name.eq_ignore_ascii_case("proto") {
            hop.scheme = Some(value);
        }
    }
    hop
}

/// `192.0.2.60`, `192.0.2.60:4711`, `2001:db8::1`, `[2001:db8::1]`, or `[2001:db8::1]:4711`.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    let address = match bare.parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) => text.parse::<SocketAddr>().ok()?.ip(),
    };
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ForwardedHeader::{Forwarded, XForwardedFor};

    fn found(read: ForwardedHeader, lines: &[(&'static str, &str)]) -> Option<(String, bool)> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        let proxy = Peer::new("10.0.0.1:5".parse().unwrap());
        let trusted = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let client = client(&headers, read, &proxy, &trusted)?;
        Some((client.by_address().to_string(), client.is_encrypted()))
    }

    #[test]
    fn the_certificate_of_a_proxy_is_nobody_elses() {
        let network = "10.0.0.1:5".parse().unwrap();
        let certificate = || Some([1, 2, 3].into());
        let proxies = [
            (Peer::new(network).encrypted(certificate()), "10.0.0.1"),
            (Peer::local(Some(7)).encrypted(certificate()), "unix-uid:7"),
        ];
        for (proxy, own) in &proxies {
            for (read, value, expected) in [
                (XForwardedFor, None, *own),
                (XForwardedFor, Some("unknown"), own),
                (XForwardedFor, Some("unix:"), own),
                (XForwardedFor, Some("1.2.3.4"), "1.2.3.4"),
                (Forwarded, None, own),
                (Forwarded, Some("for=unknown"), own),
                (Forwarded, Some("for=_hidden"), own),
                (Forwarded, Some("for=1.2.3.4"), "1.2.3.4"),
            ] {
                let name = match read {
                    XForwardedFor => X_FORWARDED_FOR,
                    Forwarded => header::FORWARDED,
                };
                let value = value.map(|value| (name, value.parse().unwrap()));
                let found = speaker(&value.into_iter().collect(), read, proxy, &[]);
                assert_eq!(found.by_address().as_str(), expected);
                assert_eq!(found.certificate(), None, "of {expected}");
                assert!(found.is_encrypted());
            }
        }
    }

    fn plain(address: &str) -> Option<(String, bool)> {
        Some((address.to_owned(), false))
    }

    #[test]
    fn the_last_address_that_is_no_proxys_is_the_clients() {
        let xff = |value| found(XForwardedFor, &[("x-forwarded-for", value)]);
        assert_eq!(xff("1.2.3.4"), plain("1.2.3.4"));
        assert_eq!(
            xff("6.6.6.6, 1.2.3.4"),
            plain("1.2.3.4"),
            "the left is anybody's"
        );
        assert_eq!(xff("6.6.6.6,1.2.3.4 , 10.0.0.2"), plain("1.2.3.4"));
        assert_eq!(
            xff("10.0.0.3, 10.0.0.2"),
            plain("10.0.0.3"),
            "a client inside"
        );
        assert_eq!(xff("[2001:db8::1]:99"), plain("2001:db8::1"));
        assert_eq!(xff("1.2.3.4:99"), plain("1.2.3.4"));
        assert_eq!(xff("::ffff:1.2.3.4"), plain("1.2.3.4"));
    }

    #[test]
    fn what_cannot_be_read_is_not_stepped_over() {
        let xff = |value| found(XForwardedFor, &[("x-forwarded-for", value)]);
        assert_eq!(xff("unknown"), None);
        assert_eq!(xff(""), None);
        assert_eq!(xff("6.6.6.6, what, 10.0.0.2"), plain("10.0.0.2"));
        assert_eq!(xff("6.6.6.6,"), None);
        let many = vec!["10.0.0.2"; MAX_HOPS].join(", ");
        assert_eq!(xff(&format!("6.6.6.6, {many}")), plain("10.0.0.2"));
    }

    #[test]
    fn lines_are_one_list() {
        let lines = [
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-for", "1.2.3.4, 10.0.0.2"),
        ];
        assert_eq!(found(XForwardedFor, &lines), plain("1.2.3.4"));
    }

    #[test]
    fn only_the_header_that_is_configured_counts() {
        let both = [
            ("x-forwarded-for", "1.2.3.4"),
            ("forwarded", "for=6.6.6.6;proto=https"),
        ];
        assert_eq!(found(XForwardedFor, &both), plain("1.2.3.4"));
        assert_eq!(found(Forwarded, &both), Some(("6.6.6.6".to_owned(), true)));
        assert_eq!(found(Forwarded, &both[..1]), None);
    }

    #[test]
    fn forwarded_is_read_as_its_standard_has_it() {
        let read = |value| found(Forwarded, &[("forwarded", value)]);
        assert_eq!(
            read("for=192.0.2.60;proto=http;by=203.0.113.43"),
            plain("192.0.2.60")
        );
        assert_eq!(
            read(r#"For="[2001:db8:cafe::17]:4711""#),
            plain("2001:db8:cafe::17")
        );
        let two = r#"for=6.6.6.6;proto=https, for="192.0.2.43:80" ; proto=https"#;
        assert_eq!(read(two), Some(("192.0.2.43".to_owned(), true)));
        assert_eq!(read("for=_hidden"), None);
        assert_eq!(read("proto=https"), None);
    }

    #[test]
    fn the_nearest_proxy_says_whether_its_client_was_encrypted() {
        let scheme = |scheme| {
            let lines = [
                ("x-forwarded-for", "1.2.3.4"),
                ("x-forwarded-proto", scheme),
            ];
            found(XForwardedFor, &lines).unwrap().1
        };
        assert!(scheme("https") && scheme("HTTPS"));
        assert!(!scheme("http") && !scheme("") && !scheme("https, http"));
    }
}
