//! The address to listen on.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Deserializer, de};

/// An IP address, in brackets or not, or `localhost`. Other names are refused: whether an address
/// is open to other machines must be known before anything is resolved.
pub(crate) fn parse(text: &str) -> Option<IpAddr> {
    if text.eq_ignore_ascii_case("localhost") {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    bare.parse().ok()
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| de::Error::custom("expected an IP address or `localhost`"))
}
