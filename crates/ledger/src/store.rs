//! Stores of entries: the trait, what calls may claim in them, and one in memory.

pub(crate) mod claims;
pub(crate) mod memory;

use crate::record::{
    codec::{self, DecodeError},
    entry::{Digest, Ended, Entry},
    id::CallId,
    operation::{Operation, OperationOutcome},
};
use sha2::{Digest as _, Sha256};
use std::{error::Error, sync::Arc};
use uuid::Uuid;

/// Looks for the end of a call in the ledger of a store, beside the store. It blocks.
pub type FindEnd =
    Arc<dyn Fn(CallId) -> Result<Option<Ended>, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// Storage of entries.
///
/// The recorder owns the store and calls it from a thread of its own, so an implementation may
/// block that thread; its futures run on a current-thread tokio runtime there.
pub trait LedgerStore: Send + 'static {
    /// End of the ledger after the last append by this process; at first, its end when it was
    /// opened. Other servers may have appended since, where several share a ledger.
    fn tail(&self) -> Tail;

    /// The calls that an earlier process began and did not end. The recorder writes
    /// [`Outcome::Unknown`](crate::record::entry::Outcome::Unknown) for each before anything else.
    fn interrupted(&self) -> &[Interrupted] {
        &[]
    }

    /// False for a store that keeps no entry, so that none is made of calls; nothing can be looked up in it, and
    /// [`LedgerStore::append`] is asked for operations and notes alone.
    fn keeps_entries(&self) -> bool {
        true
    }

    /// True if the store carries out the charges of a group ([`Group::charges`]); otherwise a group
    /// must not have any.
    fn takes_charges(&self) -> bool {
        false
    }

    /// Looks for ends of calls. Answers that were kept under idempotency keys are held against them before
    /// they are given again; without it they are believed.
    fn find_end(&self) -> Option<FindEnd> {
        None
    }

    /// Appends a group durably and in order, and carries out its operations, all or none, in one
    /// transaction. The store chains the entries to those before ([`Tail::after`]), and adds the
    /// entries that the operations give rise to.
    ///
    /// It is called again with the same group when it has failed. If the group had been stored all
    /// the same, it must succeed then with the same outcomes, without storing it twice.
    ///
    /// A store that knows no operations tells no outcomes; whoever waits for one is refused.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it cannot be said that the group is stored.
    fn append(
        &mut self,
        group: Group<'_>,
    ) -> impl Future<Output = Result<Appended, StoreError>> + Send;

    /// Does a little of the work that can wait, such as indexing, or putting on record what has
    /// been decided elsewhere and what has expired; called when there is nothing to append, and
    /// from time to time. `now_us` is in microseconds since the epoch, UTC. Tells whether there is
    /// more of it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it could not be done; it is tried again later.
    fn tidy(&mut self, now_us: u64) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = now_us;
        async { Ok(false) }
    }
}

/// A call whose process ended before it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// Id of the call.
    pub call: CallId,
    /// Time of the start: microseconds since the epoch, UTC.
    pub at_us: u64,
    /// Principal.
    pub principal: String,
    /// Capability, as `kind/name`.
    pub capability: String,
    /// Expected cost, which counts as its cost.
    pub estimated_cost_micros: u64,
}

/// End of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The sequence number of the next entry: 1 in an empty ledger.
    pub next_sequence: u64,
    /// The hash of the last entry: zeros in an empty ledger.
    pub hash: Digest,
}

/// Entries that are stored together, and what is done in the same transaction.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// Names the group, the same when it is tried again.
    pub id: Uuid,
    /// Number of entries; zero only if there are operations.
    pub count: u64,
    /// The entries, each preceded by its length.
    pub body: &'a [u8],
    /// Operations in the same transaction, after the entries and in this order.
    pub operations: &'a [Operation],
    /// Costs of the calls that end with this group, for accounts in the same store; carried out in the
    /// same transaction.
    pub charges: &'a [Charge],
    /// True if a caller waits for it to survive the machine although durability is relaxed.
    pub durable: bool,
}

/// Account of a call, by the names that the keeper of the accounts gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Owner of the account.
    pub principal: Arc<str>,
    /// The process that reserved something for the call.
    pub node: i64,
    /// Number of the reservation within its process.
    pub sequence: i64,
}

/// Final cost of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Account of the reservation.
    pub account: Account,
    /// Cost in millionths of the currency.
    pub cost_micros: u64,
    /// Set if the cost takes the place of what was counted before, for which there is no reservation any more.
    pub corrects: Option<Counted>,
}

/// Use that was counted with another cost than it had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Capability that was used, as `kind/name`.
    pub capability: String,
    /// Beginning of the month that it was counted in: milliseconds since the epoch.
    pub month_start_ms: u64,
    /// Cost that was counted, in millionths of the currency.
    pub cost_micros: u64,
}

/// Outcome of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// End of the ledger now.
    pub tail: Tail,
    /// One for each operation, in order.
    pub outcomes: Vec<OperationOutcome>,
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
    /// End of the ledger once `body`, which holds `count` entries each preceded by its length, has
    /// been appended. The hash of an entry covers its bytes and the hash of the entry before.
    #[must_use]
    pub fn after(self, body: &[u8], count: u64) -> Self {
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
    /// Reads the entries, of which the first is at this place in the ledger.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] at the first that cannot be read.
    pub fn entries(&self, first_sequence: u64) -> Result<Vec<Entry>, DecodeError> {
        entries(self.body, first_sequence)
    }
}

impl Appended {
    /// Outcome of a group without operations that ends here.
    #[must_use]
    pub fn at(tail: Tail) -> Self {
        Self {
            tail,
            outcomes: Vec::new(),
        }
    }
}

/// The entries of a body, of which the first is at this place in the ledger.
pub(crate) fn entries(body: &[u8], first_sequence: u64) -> Result<Vec<Entry>, DecodeError> {
    (first_sequence..)
        .zip(codec::split(body))
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
