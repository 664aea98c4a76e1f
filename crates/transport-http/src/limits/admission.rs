//! Bounds on connections, in all and of one address.

use crate::{options::HttpLimits, peer::network};
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Stats connections in and out.
#[derive(Debug)]
pub(crate) struct Admission {
    open: AtomicUsize,
    handshakes: AtomicUsize,
    refused: AtomicU64,
    limits: HttpLimits,
    by_address: Mutex<HashMap<IpAddr, Count>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    connections: usize,
    handshakes: usize,
}

/// One connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    /// Address of the client, if it counts.
    address: Option<IpAddr>,
}

/// A connection that is not yet secured, until it is dropped.
#[derive(Debug)]
pub(crate) struct Handshaking<'a> {
    admitted: &'a Admitted,
    /// Address of the client, if it was counted.
    address: Option<IpAddr>,
}

/// Prefix length of an IPv6 network that counts as one client: a subscriber has all addresses of
/// it.
const SUBSCRIBER: u8 = 64;

/// Among so many addresses handshakes are shared at least. Clients that open hundreds of connections
/// at once are common, so that one alone can have many.
const SHARES: usize = 2;

impl Admission {
    pub(crate) fn new(limits: HttpLimits) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            limits,
            by_address: Mutex::default(),
        })
    }

    /// Number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Number of connections refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Stats a connection from `address` in, unless there are too many; without one it is counted
    /// only with the others.
    pub(crate) fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Admitted> {
        let refuse = |why: &str, max: usize| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(?address, max, why, "a connection was refused");
            None
        };
        let limits = &self.limits;
        if limits.max_connections <= self.open.fetch_add(1, Ordering::AcqRel) {
            self.open.fetch_sub(1, Ordering::AcqRel);
            return refuse("too many in all", limits.max_connections);
        }
        let mut admitted = Admitted {
            admission: Arc::clone(self),
            address: None,
        };
        if let Some(address) = address {
            let address = subscriber(address);
            let mut counts = self.counts();
            let count = counts.entry(address).or_default();
            if limits.max_connections_per_address <= count.connections {
                drop(counts);
                return refuse(
                    "too many of one address",
                    limits.max_connections_per_address,
                );
            }
            count.connections += 1;
            admitted.address = Some(address);
        }
        Some(admitted)
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, Count>> {
        self.by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn subscriber(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address @ IpAddr::V4(_) => address,
        address @ IpAddr::V6(_) => network::first(address, SUBSCRIBER),
    }
}

impl Admitted {
    /// Stats the beginning of a handshake, unless there are too many that have not ended, of all or
    /// of this address.
    pub(crate) fn handshake(&self) -> Option<Handshaking<'_>> {
        let admission = &self.admission;
        let max = admission.limits.max_handshakes;
        admission.handshakes.fetch_add(1, Ordering::AcqRel);
        let mut handshaking = Handshaking {
            admitted: self,
            address: None,
        };
        if max < admission.handshakes.load(Ordering::Acquire) {
            return self.refuse_handshake(max);
        }
        if let Some(address) = self.address {
            let max = max.div_ceil(SHARES);
            let mut counts = admission.counts();
            let count = counts.entry(address).or_default();
            if max <= count.handshakes {
                drop(counts);
                return self.refuse_handshake(max);
            }
            count.handshakes += 1;
            handshaking.address = Some(address);
        }
        Some(handshaking)
    }

    fn refuse_handshake<T>(&self, max: usize) -> Option<T> {
        self.admission.refused.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(address = ?self.address, max, "a handshake was refused");
        None
    }
}

impl Drop for Handshaking<'_> {
    fn drop(&mut self) {
        let admission = &self.admitted.admission;
        admission.handshakes.fetch_sub(1, Ordering::AcqRel);
        if let Some(address) = self.address
            && let Some(count) = admission.counts().get_mut(&address)
        {
            count.handshakes = count.handshakes.saturating_sub(1);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admission.open.fetch_sub(1, Ordering::AcqRel);
        let Some(address) = self.address else { return };
        let mut counts = self.admission.counts();
        if let Some(count) = counts.get_mut(&address) {
            count.connections = count.connections.saturating_sub(1);
            if count.connections == 0 {
                counts.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(in_all: usize, per_address: usize) -> Arc<Admission> {
        Admission::new(HttpLimits {
            max_connections: in_all,
            max_connections_per_address: per_address,
            max_handshakes: 2,
            ..HttpLimits::default()
        })
    }

    fn from(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn nobody_has_all_connections() {
        let admission = admission(4, 2);
        let one = admission.admit(from("10.0.0.1")).unwrap();
        let _two = admission.admit(from("::ffff:10.0.0.1")).unwrap();
        assert!(admission.admit(from("10.0.0.1")).is_none());
        let _other = admission.admit(from("10.0.0.2")).unwrap();
        let _uncounted = admission.admit(None).unwrap();
        assert_eq!((admission.open(), admission.refused()), (4, 1));
        assert!(
            admission.admit(from("10.0.0.3")).is_none(),
            "too many in all"
        );
        assert_eq!((admission.open(), admission.refused()), (4, 2));
        drop(one);
        assert!(admission.admit(from("10.0.0.1")).is_some());
    }

    #[test]
    fn a_subscriber_of_ipv6_has_many_addresses_and_one_count() {
        let admission = admission(4, 1);
        let _one = admission.admit(from("2001:db8:1:2::1")).unwrap();
        assert!(admission.admit(from("2001:db8:1:2:ffff::9")).is_none());
        assert!(admission.admit(from("2001:db8:1:3::1")).is_some());
    }

    #[test]
    fn handshakes_that_do_not_end_are_an_addresss_own_trouble() {
        let admission = admission(8, 8);
        let mine = [0, 1].map(|_| admission.admit(from("10.0.0.1")).unwrap());
        let other = admission.admit(from("10.0.0.2")).unwrap();
        let first = mine[0].handshake().unwrap();
        assert!(mine[1].handshake().is_none());
        assert!(other.handshake().is_some());
        let second = other.handshake().unwrap();
        let third = admission.admit(from("10.0.0.3")).unwrap();
        assert!(third.handshake().is_none(), "too many in all");
        drop((first, second));
        assert!(mine[1].handshake().is_some());
    }

    #[test]
    fn one_address_may_come_with_a_burst() {
        let admission = Admission::new(HttpLimits::default());
        let admitted: Vec<_> = (0..513)
            .map(|_| admission.admit(from("10.0.0.1")).unwrap())
            .collect();
        let handshakes: Vec<_> = admitted.iter().filter_map(Admitted::handshake).collect();
        assert_eq!(handshakes.len(), 512);
    }

    #[test]
    fn nothing_is_kept_of_who_has_gone() {
        let admission = admission(8, 8);
        let open = admission.admit(from("10.0.0.1")).unwrap();
        drop(open.handshake());
        drop(open);
        assert_eq!(admission.open(), 0);
        assert!(admission.counts().is_empty());
    }
}
