use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// Addresses that begin alike, such as `10.0.0.0/8`; a single one is a network of its own.
///
/// ```
/// let network: transport_http::Network = "10.0.0.0/8".parse().unwrap();
/// assert!(network.contains("10.9.8.7".parse().unwrap()));
/// assert!(network.contains("::ffff:10.9.8.7".parse().unwrap()), "the same address");
/// assert!(!network.contains("11.0.0.1".parse().unwrap()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

/// Reason why a text is no [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseNetworkError {
    /// Text before the slash that is no IP address.
    #[error("it must be an IP address, or one with the length of a prefix, such as 10.0.0.0/8")]
    Address,
    /// Text after the slash that is no number of bits such an address has.
    #[error("the length of the prefix must be a number from 0 to {0}")]
    Prefix(u8),
    /// The address has bits that are not the network's: a mistyped length, most likely.
    #[error("this address is not the first of its network; that is {0}")]
    NotFirst(IpAddr),
}

impl Network {
    /// Returns true if `address` is in the network. IPv4 addresses that are written as IPv6 count
    /// as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
                first(address.to_canonical(), self.prefix) == self.first
            }
            _ => false,
        }
    }
}

/// `address` with nothing but its first `prefix` bits.
pub(crate) fn first(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - prefix.min(32)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - prefix.min(128)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        let first = address.to_canonical();
        let prefix = if first.is_ipv4() { 32 } else { 128 };
        Self { first, prefix }
    }
}

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, ParseNetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ParseNetworkError::Address)?;
        let Some(prefix) = prefix else {
            return Ok(address.into());
        };
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix
            .parse()
            .ok()
            .filter(|prefix| *prefix <= most)
            .ok_or(ParseNetworkError::Prefix(most))?;
        let first = first(address, prefix);
        if first != address {
            return Err(ParseNetworkError::NotFirst(first));
        }
        Ok(Self { first, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        let has = |network: &str, address: &str| {
            let network: Network = network.parse().unwrap();
            network.contains(address.parse().unwrap())
        };
        assert!(has("0.0.0.0/0", "255.1.2.3") && !has("0.0.0.0/0", "::1"));
        assert!(has("192.168.4.0/22", "192.168.7.255") && !has("192.168.4.0/22", "192.168.8.0"));
        assert!(has("10.0.0.7", "::ffff:10.0.0.7") && !has("10.0.0.7", "10.0.0.6"));
        assert!(has("fd00::/8", "fdff::1") && !has("fd00::/8", "fe00::1"));
        assert!(
            has("::/0", "::1") && !has("::/0", "::ffff:1.2.3.4"),
            "that is no IPv6 address"
        );
    }

    #[test]
    fn mistakes_are_told() {
        let parse = |text: &str| text.parse::<Network>().unwrap_err();
        assert_eq!(parse("example.com"), ParseNetworkError::Address);
        assert_eq!(parse(""), ParseNetworkError::Address);
        assert_eq!(parse("10.0.0.0/33"), ParseNetworkError::Prefix(32));
        assert_eq!(parse("::/129"), ParseNetworkError::Prefix(128));
        assert_eq!(parse("10.0.0.0/"), ParseNetworkError::Prefix(32));
        let first = "10.0.0.0".parse().unwrap();
        assert_eq!(parse("10.0.0.1/8"), ParseNetworkError::NotFirst(first));
    }
}
