use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Failures that an address may have at once.
const BURST: f64 = 100.0;
/// Failures that it may have for ever.
const PER_SECOND: f64 = 10.0;
/// Addresses that are counted. Beyond it, those that failed longest ago are forgotten.
const MAX_ADDRESSES: usize = 8_192;

/// Counts, by address, the cost of verifying wrong tokens, so that a client cannot cause it without
/// end. Credentials from an address with too many failures are refused for a while, unless they are
/// cheap to check or known already.
///
/// IPv6 addresses count by their /56: that is what one customer has.
#[derive(Debug, Default)]
pub struct FailedAttempts {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    young: HashMap<IpAddr, Bucket>,
    old: HashMap<IpAddr, Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    spent: f64,
    at: Instant,
}

impl Bucket {
    fn spent_at(self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.spent - passed * PER_SECOND).max(0.0)
    }
}

impl FailedAttempts {
    /// Returns true if another token from `address` may be verified.
    #[must_use]
    pub fn may_try(&self, address: IpAddr, now: Instant) -> bool {
        let address = network(address);
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = table
            .young
            .get(&address)
            .or_else(|| table.old.get(&address));
        bucket.is_none_or(|bucket| bucket.spent_at(now) < BURST)
    }

    /// A token from `address` was wrong.
    pub fn failed(&self, address: IpAddr, now: Instant) {
        let address = network(address);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let before = table.young.get(&address).copied();
        let before = before.or_else(|| table.old.remove(&address));
        let spent = before.map_or(0.0, |bucket| bucket.spent_at(now));
        if MAX_ADDRESSES / 2 <= table.young.len() && !table.young.contains_key(&address) {
            table.old = std::mem::take(&mut table.young);
        }
        let bucket = Bucket {
            spent: spent + 1.0,
            at: now,
        };
        table.young.insert(address, bucket);
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let mask = u128::MAX << (128 - 56);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_fails_too_often_has_to_wait_and_nobody_else() {
        let attempts = FailedAttempts::default();
        let now = Instant::now();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let wrong = address("2001:db8:0:1::1");
        for _ in 0..100 {
            assert!(attempts.may_try(wrong, now));
            attempts.failed(wrong, now);
        }
        assert!(!attempts.may_try(wrong, now));
        assert!(
            !attempts.may_try(address("2001:db8:0:2::1"), now),
            "the same network"
        );
        assert!(attempts.may_try(address("2001:db8:1::1"), now));
        // Ten a second come back.
        let later = now + Duration::from_millis(500);
        for _ in 0..5 {
            assert!(attempts.may_try(wrong, later));
            attempts.failed(wrong, later);
        }
        assert!(!attempts.may_try(wrong, later));
        // A few thousand others do not make it forgotten.
        for number in 0..4_000_u32 {
            attempts.failed(IpAddr::from(number.to_be_bytes()), later);
        }
        assert!(!attempts.may_try(wrong, later));
        for number in 0..100_000_u32 {
            attempts.failed(IpAddr::from(number.to_be_bytes()), now);
        }
        let table = attempts.table.lock().unwrap();
        assert!(table.young.len() + table.old.len() <= MAX_ADDRESSES);
    }
}
