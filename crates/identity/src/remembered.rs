use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// Tokens that are remembered at least, if so many are in use.
const MAX_TOKENS: usize = 10_000;
/// So that threads do not wait for each other.
const SHARDS: usize = 16;

/// Findings about tokens, by the tokens' digests. Verifying one again would cost a hundred times as much as
/// finding it here.
#[derive(Debug)]
pub(crate) struct Remembered<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
}

/// Two generations: when the younger one is full the older one is forgotten. What is in use moves to
/// the younger, so that a flood of tokens used once costs little of what others use.
#[derive(Debug)]
struct Shard<T> {
    young: HashMap<[u8; 32], T>,
    old: HashMap<[u8; 32], T>,
}

impl<T> Default for Shard<T> {
    fn default() -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl<T: Clone> Remembered<T> {
    pub(crate) fn find(&self, token: &[u8; 32]) -> Option<T> {
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

    pub(crate) fn insert(&self, token: [u8; 32], known: T) {
        let mut shard = self
            .shard(&token)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        shard.insert(token, known);
    }

    fn shard(&self, token: &[u8; 32]) -> &Mutex<Shard<T>> {
        &self.shards[usize::from(token[0]) % SHARDS]
    }
}

impl<T> Shard<T> {
    fn insert(&mut self, token: [u8; 32], known: T) {
        if MAX_TOKENS / SHARDS <= self.young.len() {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(token, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_stays_and_the_rest_is_bounded() {
        let remembered = Remembered::default();
        let used = [7; 32];
        remembered.insert(used, 1);
        for number in 0..200_000_u32 {
            let mut token = [7; 32];
            token[1..5].copy_from_slice(&number.to_be_bytes());
            remembered.insert(token, 2);
            if number % 100 == 0 {
                assert!(remembered.find(&used).is_some(), "after {number}");
            }
        }
        let shard = remembered.shards[7].lock().unwrap();
        assert!(shard.young.len() + shard.old.len() <= 2 * MAX_TOKENS / SHARDS);
    }
}
