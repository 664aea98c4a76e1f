use crate::{Means, Rejection};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of accepted credentials, by means, and of refused ones, by reason.
#[derive(Debug, Default)]
pub struct Counts {
    accepted: [AtomicU64; 4],
    refused: [AtomicU64; 8],
}

/// In the order of [`Counts::accepted`].
const MEANS: [&str; 4] = ["api_key", "jwt", "introspection", "certificate"];
/// In the order of [`Counts::refused`].
const REASONS: [&str; 8] = [
    "missing",
    "malformed",
    "invalid",
    "unproved",
    "needs_nonce",
    "insufficient_scope",
    "unavailable",
    "too_many_attempts",
];

impl Counts {
    /// Counts credentials accepted by `means`.
    pub fn accepted(&self, means: &Means) {
        add(&self.accepted, &MEANS, means.as_str());
    }

    /// Counts refused credentials.
    pub fn refused(&self, rejection: &Rejection) {
        add(&self.refused, &REASONS, rejection.as_str());
    }

    /// Number of accepted credentials by the name of the means.
    #[must_use]
    pub fn all_accepted(&self) -> [(&'static str, u64); 4] {
        read(&self.accepted, &MEANS)
    }

    /// Number of refused credentials by the name of the reason.
    #[must_use]
    pub fn all_refused(&self) -> [(&'static str, u64); 8] {
        read(&self.refused, &REASONS)
    }
}

fn add<const N: usize>(counts: &[AtomicU64; N], names: &[&str; N], name: &str) {
    if let Some(index) = names.iter().position(|it| *it == name) {
        counts[index].fetch_add(1, Ordering::Relaxed);
    }
}

fn read<const N: usize>(
    counts: &[AtomicU64; N],
    names: &[&'static str; N],
) -> [(&'static str, u64); N] {
    std::array::from_fn(|index| (names[index], counts[index].load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_a_place() {
        let counts = Counts::default();
        for means in [
            Means::ApiKey { id: "x".into() },
            Means::Jwt { issuer: "x".into() },
            Means::Introspection { issuer: "x".into() },
            Means::Certificate,
        ] {
            counts.accepted(&means);
        }
        for rejection in [
            Rejection::Missing,
            Rejection::Malformed { why: "x" },
            Rejection::Invalid { why: "x" },
            Rejection::Unproved { why: "x" },
            Rejection::NeedsNonce,
            Rejection::InsufficientScope { needed: "x".into() },
            Rejection::Unavailable { why: "x" },
            Rejection::TooManyAttempts,
        ] {
            counts.refused(&rejection);
        }
        assert!(counts.all_accepted().iter().all(|(_, count)| *count == 1));
        assert!(counts.all_refused().iter().all(|(_, count)| *count == 1));
    }
}
