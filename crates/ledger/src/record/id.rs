//! Identifiers of calls.

use std::{
    fmt,
    str::FromStr,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};
use uuid::Uuid;

/// Names one call: unique, and increasing in time. A version 7 UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub Uuid);

/// Text that is no [`CallId`].
#[derive(Debug, thiserror::Error)]
#[error("a call is named by a UUID")]
pub struct ParseCallIdError(#[source] uuid::Error);

/// Random number that distinguishes the calls of this process from those of others, and then
/// counts.
///
/// Random bytes for every call would be a system call for every call.
static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(Uuid::new_v4().as_u64_pair().1));

impl CallId {
    /// A new name for a call that begins at `at_us` (microseconds since the epoch, UTC). Unique
    /// whatever the time is; it is no secret.
    #[must_use]
    pub fn new(at_us: u64) -> Self {
        let (millis, micros) = (at_us / 1_000, at_us % 1_000);
        // RFC 9562, method 3: the twelve bits after the milliseconds hold a fraction of one.
        let fraction = micros * 4_096 / 1_000;
        let high = (millis << 16) | 0x7000 | fraction;
        let low = NEXT.fetch_add(1, Ordering::Relaxed) & (u64::MAX >> 2) | (1 << 63);
        Self(Uuid::from_u64_pair(high, low))
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for CallId {
    type Err = ParseCallIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::parse_str(text).map(Self).map_err(ParseCallIdError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_version_7_unique_and_increasing() {
        let at_us = 1_790_000_000_123_456;
        let ids: Vec<CallId> = (0..1_000)
            .map(|step| CallId::new(at_us + step / 10 * 10))
            .collect();
        assert!(ids.is_sorted_by(|one, other| one < other));
        for id in &ids {
            assert_eq!(id.0.get_version_num(), 7);
            assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
            assert_eq!(id.to_string().parse::<CallId>().unwrap(), *id);
        }
        let (seconds, nanos) = ids[0].0.get_timestamp().unwrap().to_unix();
        assert_eq!((seconds, nanos / 1_000_000), (1_790_000_000, 123));
        assert!("call-1".parse::<CallId>().is_err());
    }
}
