use crate::{
    CallId, Digest, Entry,
    codec::{self, DecodeError},
};
use sha2::{Digest as _, Sha256};
use std::error::Error;

/// Where entries are kept.
///
/// The recorder owns the store and calls it from a thread of its own, so an implementation may
/// block that thread; its futures run on a current-thread tokio runtime there.
pub trait LedgerStore: Send + 'static {
    /// Where the ledger ends.
    fn tail(&self) -> Tail;

    /// The calls that an earlier process began and did not end. The recorder writes
    /// [`Outcome::Unknown`](crate::Outcome::Unknown) for each before anything else.
    fn interrupted(&self) -> &[Interrupted] {
        &[]
    }

    /// Appends a group durably and in order, all or none.
    ///
    /// It is called again with the same group when it has failed. If the group had been stored all
    /// the same, it must succeed then without storing it twice.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it cannot be said that the group is stored.
    fn append(&mut self, group: Group<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Does a little of the work that can wait, such as indexing; called when there is nothing to
    /// append. Tells whether there is more of it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it could not be done; it is tried again later.
    fn tidy(&mut self) -> impl Future<Output = Result<bool, StoreError>> + Send {
        async { Ok(false) }
    }
}

/// A call whose process ended before it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// Which.
    pub call: CallId,
    /// When it began: microseconds since the epoch, UTC.
    pub at_us: u64,
    /// Who called.
    pub principal: String,
    /// What, as `kind/name`.
    pub capability: String,
    /// What it was expected to cost, which is what it is taken to have cost.
    pub estimated_cost_micros: u64,
}

/// Where a ledger ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The sequence number of the next entry: 1 in an empty ledger.
    pub next_sequence: u64,
    /// The hash of the last entry: zeros in an empty ledger.
    pub hash: Digest,
}

/// Entries that are stored together.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The sequence number of its first entry.
    pub first_sequence: u64,
    /// How many entries there are; never zero.
    pub count: u64,
    /// The entries, each preceded by its length.
    pub body: &'a [u8],
    /// The hash of its last entry, where the hash of an entry covers its bytes and the hash of the
    /// entry before it.
    pub hash: Digest,
}

/// Entries could not be stored.
#[derive(Debug, thiserror::Error)]
#[error("the ledger cannot be written")]
pub struct StoreError(#[source] pub Box<dyn Error + Send + Sync>);

impl Default for Tail {
    fn default() -> Self {
        Self {
            next_sequence: 1,
            hash: [0; 32],
        }
    }
}

impl Tail {
    /// Where the ledger ends once `body`, which holds `count` entries, has been appended.
    pub(crate) fn after(self, body: &[u8], count: u64) -> Self {
        let mut hash = self.hash;
        for (_, entry) in codec::split(body).flatten() {
            hash = Sha256::new()
                .chain_update(hash)
                .chain_update(entry)
                .finalize()
                .into();
        }
        Self {
            next_sequence: self.next_sequence + count,
            hash,
        }
    }
}

impl Group<'_> {
    /// Reads the entries.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] at the first that cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, DecodeError> {
        (self.first_sequence..)
            .zip(codec::split(self.body))
            .map(|(sequence, entry)| {
                let (call, event) = codec::decode(entry?.1)?;
                Ok(Entry {
                    sequence,
                    call,
                    event,
                })
            })
            .collect()
    }
}
