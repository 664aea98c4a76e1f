use crate::{Entry, Group, LedgerStore, StoreError, Tail};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A ledger in memory, for tests and for servers that keep none. Clones share it.
///
/// It grows without bound, as a ledger does.
#[derive(Clone, Debug, Default)]
pub struct MemoryLedger(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    tail: Tail,
    groups: u64,
    failing: bool,
}

impl MemoryLedger {
    /// What has been appended so far.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.clone()
    }

    /// In how many groups that was.
    #[must_use]
    pub fn groups(&self) -> u64 {
        self.lock().groups
    }

    /// Makes it fail, or work again.
    pub fn set_failing(&self, failing: bool) {
        self.lock().failing = failing;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerStore for MemoryLedger {
    fn tail(&self) -> Tail {
        self.lock().tail
    }

    async fn append(&mut self, group: Group<'_>) -> Result<(), StoreError> {
        let mut state = self.lock();
        if state.failing {
            return Err(StoreError("the disk is full".into()));
        }
        let entries = group.entries().map_err(|error| StoreError(error.into()))?;
        state.entries.extend(entries);
        state.groups += 1;
        let next_sequence = group.first_sequence + group.count;
        state.tail = Tail {
            next_sequence,
            hash: group.hash,
        };
        Ok(())
    }
}
