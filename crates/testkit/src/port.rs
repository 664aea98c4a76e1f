//! Which port a server under test listens on.

use std::net::{Ipv4Addr, TcpListener};

/// How a test learns where the server it started listens.
pub enum Port {
    /// The test chose it, and told the server on its command line; see [`free_port`].
    Fixed(u16),
    /// The server chose it and says so on stderr: the first line for which this is `Some`.
    /// Free of the race that [`Port::Fixed`] has.
    Announced(fn(&str) -> Option<u16>),
}

impl std::fmt::Debug for Port {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed(port) => write!(formatter, "Fixed({port})"),
            Self::Announced(_) => formatter.write_str("Announced"),
        }
    }
}

/// A loopback port that nobody listened on a moment ago. Another process may take it before the
/// server does, so whoever can let the server choose (port 0) should.
///
/// # Panics
///
/// If the machine has no free port.
#[must_use]
pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .expect("a loopback port is free")
        .port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_bound() {
        TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).unwrap();
    }
}
