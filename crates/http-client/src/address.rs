//! Addresses that the client may connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Private networks, and hosts in such, that may be reached although they are private. By default
/// there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowPrivate {
    allowed: Vec<Allowance>,
    setting: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowance {
    /// All addresses that begin with so many bits.
    Network { base: IpAddr, bits: u32 },
    /// The private addresses of this name, in lower case.
    Host(String),
}

/// An entry of the list that is neither a network nor the name of a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a network such as `10.0.0.0/8`, nor an address, nor the name of a host")]
pub struct BadAllowance(pub String);

impl AllowPrivate {
    /// Reads entries such as `10.0.0.0/8`, `fd00::/8`, `127.0.0.1` and `localhost`. The name of a
    /// host lets its loopback and private addresses through, but not link-local ones and others
    /// where clouds hand out the credentials of virtual machines; those take a network.
    ///
    /// # Errors
    ///
    /// The first entry that is none of these.
    pub fn parse<T: AsRef<str>>(
        entries: impl IntoIterator<Item = T>,
    ) -> Result<Self, BadAllowance> {
        let read = |entry: T| {
            let entry = entry.as_ref().trim();
            allowance(entry).ok_or_else(|| BadAllowance(entry.to_owned()))
        };
        entries
            .into_iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map(|allowed| Self {
                allowed,
                setting: None,
            })
    }

    /// The same, read from the setting of this name, which errors name as the cure.
    #[must_use]
    pub fn of_setting(self, name: &'static str) -> Self {
        Self {
            setting: Some(name),
            ..self
        }
    }

    pub(crate) fn setting(&self) -> Option<&'static str> {
        self.setting
    }

    /// Returns true if the client may connect to `address`, one of `host`'s addresses.
    pub fn allows(&self, host: &str, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if is_nobodys(address) {
            return false;
        }
        is_public(address)
            || self.allowed.iter().any(|allowance| match allowance {
                Allowance::Network { base, bits } => contains(*base, *bits, address),
                Allowance::Host(name) => {
                    name.eq_ignore_ascii_case(host) && !hands_out_credentials(address)
                }
            })
    }
}

/// Returns true if `address` is globally reachable on the Internet. Private, shared, loopback,
/// link-local, multicast, documentation and reserved addresses are not, however they are written
/// down.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match nat64(address) {
            Some(inner) => is_public_v4(inner),
            None => is_public_v6(address),
        },
    }
}

/// Networks that are not public, each as its base and the number of bits that count: IANA's
/// special-purpose registries.
const SPECIAL_V4: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Of Microsoft's, and seen from inside of its cloud only: there it is the machine's own agent.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let address = IpAddr::V4(address);
    !SPECIAL_V4
        .iter()
        .any(|(base, bits)| contains(IpAddr::V4(*base), *bits, address))
}

/// Only 2000::/3 is handed out at all. In it: protocol assignments with Teredo (2001::/23),
/// documentation (2001:db8::/32, 3fff::/20), and 6to4 (2002::/16), which leads to any IPv4 address.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let within = |base: [u16; 2], bits| {
        let base = Ipv6Addr::new(base[0], base[1], 0, 0, 0, 0, 0, 0);
        contains(IpAddr::V6(base), bits, IpAddr::V6(address))
    };
    within([0x2000, 0], 3)
        && !within([0x2001, 0], 23)
        && !within([0x2001, 0x0db8], 32)
        && !within([0x2002, 0], 16)
        && !within([0x3fff, 0], 20)
}

/// The IPv4 address that a translator at 64:ff9b::/96 stands for.
fn nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let bits = (u32::from(high) << 16) | u32::from(low);
            Some(Ipv4Addr::from(bits))
        }
        _ => None,
    }
}

/// No service can be at such an address; some systems take it for this machine.
fn is_nobodys(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Addresses, besides link-local ones, of the services from which a virtual machine in a cloud gets
/// its credentials: Alibaba's, Oracle's, Amazon's and Google's.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x254)),
];

fn hands_out_credentials(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V6(outer) => embedded(outer).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    is_link_local || METADATA.contains(&address)
}

/// The IPv4 address that a translator or a tunnel may take this one for.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let at = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0x2002, high, low, ..] => Some(at(high, low)),
        [0x64, 0xff9b, 1, _, _, _, high, low] => Some(at(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] => Some(at(high, low)),
        _ => nat64(address),
    }
}

fn contains(base: IpAddr, bits: u32, address: IpAddr) -> bool {
    let (base, address, width) = match (base, address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => (
            u128::from(base.to_bits()),
            u128::from(address.to_bits()),
            32,
        ),
        (IpAddr::V6(base), IpAddr::V6(address)) => (base.to_bits(), address.to_bits(), 128),
        _ => return false,
    };
    // A shift by the whole width is an overflow, and means that no bit counts.
    let shift = width - bits.min(width);
    (base ^ address).checked_shr(shift).unwrap_or(0) == 0
}

fn allowance(entry: &str) -> Option<Allowance> {
    if let Some((base, bits)) = entry.split_once('/') {
        let base: IpAddr = base.parse().ok()?;
        let bits: u32 = bits.parse().ok()?;
        let width = if base.is_ipv4() { 32 } else { 128 };
        return (bits <= width).then_some(Allowance::Network { base, bits });
    }
    let bare = entry
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(entry);
    if let Ok(address) = bare.parse::<IpAddr>() {
        let base = address.to_canonical();
        let bits = if base.is_ipv4() { 32 } else { 128 };
        return Some(Allowance::Network { base, bits });
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = !entry.is_empty() && entry.bytes().all(legal);
    is_name.then(|| Allowance::Host(entry.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        let rows = [
            ("8.8.8.8", true),
            ("172.15.255.255", true),
            ("172.32.0.0", true),
            ("100.63.255.255", true),
            ("100.128.0.0", true),
            ("2606:4700::1111", true),
            ("::ffff:8.8.8.8", true),
            ("64:ff9b::8.8.8.8", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("10.0.0.1", false),
            ("100.64.0.1", false),
            ("127.0.0.1", false),
            ("127.255.255.254", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.0.0.170", false),
            ("168.63.129.16", false),
            ("::ffff:168.63.129.16", false),
            ("168.63.129.15", true),
            ("192.0.2.1", false),
            ("192.88.99.1", false),
            ("192.168.1.1", false),
            ("198.18.0.1", false),
            ("198.19.255.255", false),
            ("198.51.100.1", false),
            ("203.0.113.1", false),
            ("224.0.0.1", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::127.0.0.1", false),
            ("64:ff9b::10.0.0.1", false),
            ("64:ff9b:1::1", false),
            ("100::1", false),
            ("2001::1", false),
            ("2001:db8::1", false),
            ("2002:7f00:1::", false),
            ("3fff::1", false),
            ("fc00::1", false),
            ("fd12:3456::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ];
        for (address, expected) in rows {
            assert_eq!(is_public(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn what_is_allowed_is_what_was_named() {
        let allow = AllowPrivate::parse([
            "10.1.0.0/16",
            "fd00::/8",
            "127.0.0.1",
            "localhost",
            "Db.internal",
        ])
        .unwrap();
        let rows = [
            ("x", "10.1.2.3", true),
            ("x", "::ffff:10.1.2.3", true),
            ("x", "10.2.0.1", false),
            ("x", "fd12::1", true),
            ("x", "fe80::1", false),
            ("x", "127.0.0.1", true),
            ("x", "127.0.0.2", false),
            ("localhost", "127.0.0.2", true),
            ("LOCALHOST", "::1", true),
            ("db.internal", "192.168.0.7", true),
            ("db.internal.evil.example", "192.168.0.7", false),
            // Wherever the name leads: never to credentials.
            ("db.internal", "169.254.169.254", false),
            ("db.internal", "fe80::1", false),
            ("db.internal", "64:ff9b::169.254.169.254", false),
            ("x", "8.8.8.8", true),
        ];
        for (host, address, expected) in rows {
            let allowed = allow.allows(host, address.parse().unwrap());
            assert_eq!(allowed, expected, "{host} {address}");
        }
        let everything = AllowPrivate::parse(["0.0.0.0/0", "::/0"]).unwrap();
        for nobodys in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"] {
            assert!(
                !everything.allows("x", nobodys.parse().unwrap()),
                "{nobodys}"
            );
        }
        assert!(everything.allows("x", "169.254.169.254".parse().unwrap()));
    }

    #[test]
    fn a_name_opens_no_address_that_hands_out_credentials() {
        let allow = AllowPrivate::parse(["db.internal"]).unwrap();
        let rows = [
            ("fd00:ec2::253", true),
            ("100.100.100.199", true),
            ("2002:a00:1::1", true),
            ("169.254.169.254", false),
            ("2002:a9fe:a9fe::1", false),
            ("64:ff9b:1::169.254.169.254", false),
            ("64:ff9b::100.100.100.200", false),
            ("::169.254.169.254", false),
            ("fd00:ec2::254", false),
            ("fd20:ce::254", false),
            ("100.100.100.200", false),
            ("192.0.0.192", false),
        ];
        for (address, expected) in rows {
            let allowed = allow.allows("db.internal", address.parse().unwrap());
            assert_eq!(allowed, expected, "{address}");
        }
    }

    #[test]
    fn what_is_no_network_and_no_host_is_refused() {
        for entry in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "a/8",
            "a b",
            "http://x",
            "*",
        ] {
            let error = AllowPrivate::parse([entry]).unwrap_err();
            assert_eq!(error, BadAllowance(entry.to_owned()));
        }
    }
}
