use crate::Identity;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Tokens that are remembered at least, if so many are in use.
const MAX_TOKENS: usize = 10_000;
/// So that threads do not wait for each other.
const SHARDS: usize = 16;

/// Tokens that were verified, by their digests. Verifying one again would cost a hundred times as
/// much as finding it here.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    shards: [Mutex<Shard>; SHARDS],
}

/// Two generations: when the younger one is full the older one is forgotten. What is in use moves to
/// the younger, so that a flood of tokens used once costs little of what others use.
#[derive(Debug, Default)]
struct Shard {
    young: HashMap<[u8; 32], Known>,
    old: HashMap<[u8; 32], Known>,
}

#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) issuer: usize,
    /// Of the keys it was verified with.
    pub(crate) version: u64,
    pub(crate) identity: Arc<Identity>,
}

impl Remembered {
    pub(crate) fn find(&self, token: &[u8; 32]) -> Option<Known> {
        let mut shard = self
            .shard(token)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shard.young.get(token) {
            return Some(known.clone());
        }
        let known = shard.old.remove(token)?;
        shard.insert(*token, known.clone());
        Some(known)
    }

    pub(crate) fn insert(&self, token: [u8; 32], known: Known) {
        let mut shard = self
            .shard(&token)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        shard.insert(token, known);
    }

    fn shard(&self, token: &[u8; 32]) -> &Mutex<Shard> {
        &self.shards[usize::from(token[0]) % SHARDS]
    }
}

impl Shard {
    fn insert(&mut self, token: [u8; 32], known: Known) {
        if MAX_TOKENS / SHARDS <= self.young.len() {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(token, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Means;

    #[test]
    fn what_is_in_use_stays_and_the_rest_is_bounded() {
        let identity = Arc::new(Identity {
            principal: "p".into(),
            roles: Vec::new().into(),
            means: Means::Certificate,
            expires: None,
            revocation: None,
        });
        let known = Known {
            issuer: 0,
            version: 1,
            identity,
        };
        let remembered = Remembered::default();
        let used = [7; 32];
        remembered.insert(used, known.clone());
        for number in 0..200_000_u32 {
            let mut token = [7; 32];
            token[1..5].copy_from_slice(&number.to_be_bytes());
            remembered.insert(token, known.clone());
            if number % 100 == 0 {
                assert!(remembered.find(&used).is_some(), "after {number}");
            }
        }
        let shard = remembered.shards[7].lock().unwrap();
        assert!(shard.young.len() + shard.old.len() <= 2 * MAX_TOKENS / SHARDS);
    }
}
