//! Addresses of issuers, of their metadata and of their keys.

/// A longer address is refused.
pub(crate) const MAX_ADDRESS_BYTES: usize = 2_048;

/// Addresses at which the metadata of `issuer` may be, in the order in which they are tried: first
/// with the well-known segment inserted before the issuer's path, as RFC 8414 and then OpenID
/// Connect specify, last with it behind the path, as OpenID Connect has had it from the beginning.
/// `None` for an issuer that cannot have metadata: its address is neither `https` nor `http` on
/// this machine, or has a query or a fragment.
pub(crate) fn places(issuer: &str) -> Option<Vec<String>> {
    let (scheme, rest) = issuer.split_once("://")?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\\\"<>".contains(&byte);
    if !is_safe(issuer) || !rest.bytes().all(is_plain) || MAX_ADDRESS_BYTES < issuer.len() {
        return None;
    }
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    // RFC 8414 §3.1: "Any terminating '/' MUST be removed before inserting".
    let path = path.strip_suffix('/').unwrap_or(path);
    let (server, provider) = (
        ".well-known/oauth-authorization-server",
        ".well-known/openid-configuration",
    );
    let mut places = vec![
        format!("{scheme}://{host}/{server}{path}"),
        format!("{scheme}://{host}/{provider}{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{scheme}://{host}{path}/{provider}"));
    }
    Some(places)
}

/// Returns true if no third party can change what `address` answers: the scheme is `https`, or the
/// host is this machine.
pub(crate) fn is_safe(address: &str) -> bool {
    host(address, "https://").is_some() || host(address, "http://").is_some_and(is_this_machine)
}

pub(crate) fn host<'a>(address: &'a str, scheme: &str) -> Option<&'a str> {
    let rest = address.strip_prefix(scheme)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => authority.split(':').next().unwrap_or_default(),
    };
    (!host.is_empty() && !authority.contains('@')).then_some(host)
}

fn is_this_machine(host: &str) -> bool {
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|it| it.to_canonical().is_loopback())
}
