//! The other end of a connection.

pub(crate) mod forwarded;
pub(crate) mod network;

use mcp_service::Principal;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// The other end of a connection. Behind a proxy that is trusted, the one that the proxy speaks for.
#[derive(Debug)]
pub struct Peer {
    origin: Origin,
    is_encrypted: bool,
    certificate: Option<Arc<[u8]>>,
    by_address: OnceLock<Principal>,
    last: Mutex<Option<Principal>>,
}

/// Origin of a connection.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Network(SocketAddr),
    /// A Unix socket, and the user at its other end if the system says who that is.
    Local(Option<u32>),
}

impl Peer {
    /// The peer at `address`, in plain text.
    pub fn new(address: SocketAddr) -> Self {
        Self::of(Origin::Network(address))
    }

    /// The peer at the other end of a Unix socket, which belongs to the user `uid` if the system
    /// says so.
    pub fn local(uid: Option<u32>) -> Self {
        Self::of(Origin::Local(uid))
    }

    fn of(origin: Origin) -> Self {
        Self {
            origin,
            is_encrypted: false,
            certificate: None,
            by_address: OnceLock::new(),
            last: Mutex::default(),
        }
    }

    /// The same over TLS, with the certificate in DER that it has shown, if any, which must have
    /// been verified.
    #[must_use]
    pub fn encrypted(self, certificate: Option<Arc<[u8]>>) -> Self {
        Self {
            is_encrypted: true,
            certificate,
            ..self
        }
    }

    /// The same once more.
    pub(crate) fn again(&self) -> Self {
        Self {
            is_encrypted: self.is_encrypted,
            certificate: self.certificate.clone(),
            ..Self::of(self.origin)
        }
    }

    /// Peer at the same place, by the same kind of connection, without a certificate.
    pub(crate) fn without_certificate(&self) -> Self {
        Self {
            is_encrypted: self.is_encrypted,
            ..Self::of(self.origin)
        }
    }

    /// Address; `None` on a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.origin {
            Origin::Network(address) => Some(address),
            Origin::Local(_) => None,
        }
    }

    /// The certificate that it has shown and that was verified, in DER.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.certificate.as_deref()
    }

    /// Returns true if no third party can read the traffic.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// The principal named after where it comes from: its IP address, or `unix-uid:N` for the user at
    /// the other end of a Unix socket.
    pub fn by_address(&self) -> Principal {
        self.by_address
            .get_or_init(|| {
                Principal::new(match self.origin {
                    Origin::Network(address) => address.ip().to_canonical().to_string(),
                    Origin::Local(Some(uid)) => format!("unix-uid:{uid}"),
                    Origin::Local(None) => "unix".to_owned(),
                })
            })
            .clone()
    }

    /// The principal `name`. A connection has one and the same nearly always, so the last one is
    /// remembered instead of being made again.
    pub fn named(&self, name: &str) -> Principal {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(principal) if principal.as_str() == name => principal.clone(),
            _ => last.insert(Principal::new(name)).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_once() {
        let peer = Peer::new("127.0.0.1:9".parse().unwrap());
        let first = peer.named("a");
        assert!(std::ptr::eq(first.as_str(), peer.named("a").as_str()));
        assert_eq!(peer.named("b").as_str(), "b");
    }

    #[test]
    fn who_has_no_other_name_is_named_after_where_it_comes_from() {
        let peer = Peer::new("[::ffff:10.0.0.7]:9".parse().unwrap());
        assert_eq!(peer.by_address().as_str(), "10.0.0.7");
        let peer = Peer::local(Some(1000));
        assert_eq!(peer.by_address().as_str(), "unix-uid:1000");
        assert_eq!(peer.address(), None);
    }

    #[test]
    fn what_tls_says_is_told() {
        let plain = Peer::local(None);
        assert!(!plain.is_encrypted() && plain.certificate().is_none());
        let peer = plain.encrypted(Some(Arc::from([1, 2, 3])));
        assert!(peer.is_encrypted());
        assert_eq!(peer.certificate(), Some(&[1, 2, 3][..]));
    }
}
