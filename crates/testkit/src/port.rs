//! Port on which a server under test listens.

use std::{
    io,
    net::Ipv4Addr,
    ops::Range,
    sync::atomic::{AtomicU32, Ordering},
};
use tokio::net::TcpSocket;

/// Way in which a test learns the port of the server it started.
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

/// Ports that no system gives to a socket which did not ask for one: an outgoing connection of
/// another process would otherwise take away a port that was free a moment ago.
const UNASKED: Range<u16> = 10_240..32_768;

/// A loopback port that no process listened on a moment ago. Another process may take it before the
/// server does, so tests that can let the server choose (port 0) should. The same port is not given
/// twice soon, and other processes begin elsewhere.
///
/// # Panics
///
/// If the machine has no free port.
#[must_use]
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let count = u32::try_from(UNASKED.len()).expect("ports are few");
    (0..count)
        .find_map(|_| {
            // Far from where the next process begins, as process ids are given one by one.
            let start = std::process::id().wrapping_mul(257);
            let step = GIVEN.fetch_add(1, Ordering::Relaxed);
            let offset = u16::try_from(start.wrapping_add(step) % count).expect("it is in range");
            let port = UNASKED.start + offset;
            is_free(port).ok()?;
            Some(port)
        })
        .expect("a loopback port is free")
}

/// Binds the port, and does not listen. Another thread may start a process at this moment, which has
/// the socket until it has become another program: a connection to it would be taken for one to the
/// server, and reset.
fn is_free(port: u16) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    // With it the server can bind the port while that process has it.
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_free_port_can_be_bound_and_is_another_each_time() {
        let ports = [(); 50].map(|()| free_port());
        let listeners = ports.map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
        assert!(!ports.contains(&free_port()));
        drop(listeners);
    }
}
