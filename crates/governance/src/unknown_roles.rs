//! Roles that callers bring along and the policy does not know: not an error, since an issuer has
//! roles for many servers, but helpful to an operator who has misspelt one.

use crate::policy::Policy;
use arc_swap::ArcSwap;
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The most names that are remembered.
const MAX_NAMES: usize = 64;

/// The longest name that is remembered, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Roles that callers brought along and the policy in force does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownRoles {
    /// Number of requests with at least one.
    pub asks: u64,
    /// First names that were seen, in order.
    pub names: Vec<Arc<str>>,
}

/// Counts them, without a lock but for the first time that one is seen.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    asks: AtomicU64,
    names: ArcSwap<BTreeSet<Arc<str>>>,
}

impl Counted {
    pub(crate) fn note(&self, policy: &Policy, roles: &[Arc<str>]) {
        let mut unknown = policy.unknown_roles(roles).peekable();
        if unknown.peek().is_none() {
            return;
        }
        self.asks.fetch_add(1, Ordering::Relaxed);
        let known = self.names.load();
        for name in unknown {
            if known.len() < MAX_NAMES && name.len() <= MAX_NAME_BYTES && !known.contains(name) {
                self.names.rcu(|names| {
                    let mut names = BTreeSet::clone(names);
                    if names.len() < MAX_NAMES {
                        names.insert(Arc::clone(name));
                    }
                    names
                });
            }
        }
    }

    pub(crate) fn seen(&self, policy: &Policy) -> UnknownRoles {
        let names: Vec<_> = self.names.load().iter().cloned().collect();
        UnknownRoles {
            asks: self.asks.load(Ordering::Relaxed),
            names: policy.unknown_roles(&names).cloned().collect(),
        }
    }
}
