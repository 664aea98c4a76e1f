//! Client that a proxy speaks for. Only the word of trusted proxies counts, and of that only the
//! part they have added themselves: headers are read from the right, where the nearest proxy
//! writes, up to the first address that is no trusted proxy's. Text to the left of that may come
//! from any client.

use crate::peer::{Peer, network::Network};
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
#[derive(Debug, Default, PartialEq, Eq)]
struct Hop<'a> {
    /// `None` where it does not tell, or not in a way that we know.
    client: Option<IpAddr>,
    scheme: Option<&'a str>,
}

/// Peer that `proxy` speaks for. If the headers do not name it, it is a peer at the proxy's own
/// address.
///
/// The certificate of `proxy` is its own and never its client's, so the peer has none: a header
/// that is missing or cannot be read must not give every client behind `proxy` the identity of the
/// proxy.
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
    for hop in hops(headers, read) {
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

/// Entries of the proxies, the nearest first.
fn hops(headers: &HeaderMap, read: ForwardedHeader) -> Vec<Hop<'_>> {
    let lines = |name| {
        let lines = headers.get_all(name).iter().rev();
        // What is not text ends what is believed.
        lines.map(|line| line.to_str().unwrap_or_default())
    };
    match read {
        ForwardedHeader::XForwardedFor => {
            // The nearest proxy's word alone, since this header has no list.
            let mut scheme = lines(X_FORWARDED_PROTO)
                .next()
                .and_then(|schemes| schemes.rsplit(',').next())
                .map(str::trim);
            lines(X_FORWARDED_FOR)
                // No address has a comma in it.
                .flat_map(|line| line.rsplit(','))
                .take(MAX_HOPS)
                .map(|element| Hop {
                    client: address(element.trim()),
                    scheme: scheme.take(),
                })
                .collect()
        }
        ForwardedHeader::Forwarded => lines(header::FORWARDED)
            .flat_map(|line| forwarded(line).into_iter().rev())
            .take(MAX_HOPS)
            .collect(),
    }
}

/// `for=192.0.2.60;proto=https;by=203.0.113.43, for=198.51.100.17`, in this order. A line whose quotes
/// are not in order may begin its hops anywhere, so that it says nothing.
fn forwarded(line: &str) -> Vec<Hop<'_>> {
    let Some(pairs) = pairs(line) else {
        return vec![Hop::default()];
    };
    pairs
        .chunk_by(|(_, ends_hop), _| !ends_hop)
        .map(|pairs| hop(pairs.iter().map(|(pair, _)| *pair)))
        .collect()
}

/// The pairs of a line, and whether each is the last of its hop; `None` if a quoted value does not
/// end, or is not all of its value. What is in quotes a client may have chosen, such as its `host`.
fn pairs(line: &str) -> Option<Vec<(&str, bool)>> {
    let mut pairs = Vec::new();
    let mut begin = 0;
    let mut quotes = Quotes::Before;
    for (at, byte) in line.bytes().enumerate() {
        quotes = match (quotes, byte) {
            (Quotes::Escaped, _) => Quotes::Within,
            (Quotes::Within, b'\\') => Quotes::Escaped,
            (Quotes::Within, b'"') => Quotes::After,
            (Quotes::Within, _) => Quotes::Within,
            (_, b',' | b';') => {
                pairs.push((line.get(begin..at)?, byte == b','));
                begin = at + 1;
                Quotes::Before
            }
            (Quotes::Before, b'"') => {
                let (_, before) = line.get(begin..at)?.split_once('=')?;
                if !before.trim().is_empty() {
                    return None;
                }
                Quotes::Within
            }
            (Quotes::After, byte) if !byte.is_ascii_whitespace() => return None,
            (quotes, _) => quotes,
        };
    }
    if matches!(quotes, Quotes::Within | Quotes::Escaped) {
        return None;
    }
    pairs.push((line.get(begin..)?, true));
    Some(pairs)
}

/// Position in a pair.
#[derive(Clone, Copy)]
enum Quotes {
    Before,
    Within,
    /// Within, after a backslash.
    Escaped,
    After,
}

/// Entry of one proxy; empty, if it names a member twice.
fn hop<'a>(pairs: impl Iterator<Item = &'a str>) -> Hop<'a> {
    let (mut client, mut scheme) = (None, None);
    for pair in pairs {
        let Some((name, value)) = pair.split_once('=') else {
            continue;
        };
        let value = value.trim();
        let value = value
            .strip_prefix('"')
            .and_then(|value| value.strip_suffix('"'))
            .unwrap_or(value);
        let name = name.trim();
        let before = if name.eq_ignore_ascii_case("for") {
            client.replace(value)
        } else if name.eq_ignore_ascii_case("proto") {
            scheme.replace(value)
        } else {
            None
        };
        if before.is_some() {
            return Hop::default();
        }
    }
    Hop {
        client: client.and_then(address),
        scheme,
    }
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
    fn what_a_client_chose_is_no_word_of_a_proxy() {
        let read = |value| found(Forwarded, &[("forwarded", value)]);
        for honest in [
            r#"for=1.2.3.4;host="x;for=6.6.6.6;a=";proto=http"#,
            r#"for=1.2.3.4;host="x, for=7.7.7.7;a=""#,
            r#"for=1.2.3.4;host="x\", for=7.7.7.7;a=\"""#,
            r#"for=6.6.6.6, host = "," ; for="1.2.3.4""#,
        ] {
            assert_eq!(read(honest), plain("1.2.3.4"), "{honest}");
        }
        for unclear in [
            "for=1.2.3.4;for=8.8.8.8",
            "for=1.2.3.4;proto=http;proto=https",
            r#"for=1.2.3.4;host="x"#,
            r#"for=1.2.3.4;host="x\""#,
            r#"for=1.2.3.4;host=x"y""#,
            r#"for=1.2.3.4;host="x"y"#,
            // A client began a quote, so that all that is in quotes seems to be outside of them.
            r#"for=", for=1.2.3.4;host=", for=6.6.6.6;a=""#,
            r#"for=", for=1.2.3.4;host="x\", for=6.6.6.6;a="b""#,
        ] {
            assert_eq!(read(unclear), None, "{unclear}");
        }
        let lines = [("forwarded", "for=\""), ("forwarded", "for=1.2.3.4")];
        assert_eq!(found(Forwarded, &lines), plain("1.2.3.4"));
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
