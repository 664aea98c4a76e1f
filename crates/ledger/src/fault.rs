//! Faults that a ledger can have.

use crate::record::codec::DecodeError;
use std::path::PathBuf;

/// Fault of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The next group begins later than the last one ended.
    #[error("the entries before entry {found} are missing")]
    Missing {
        /// Sequence at which the next group begins.
        found: u64,
    },
    /// A group begins where there are entries already.
    #[error("a group begins at entry {found} although there is one already")]
    Repeated {
        /// Sequence at which it begins.
        found: u64,
    },
    /// A group says that it has another number of entries than it has.
    #[error("the group says that it has {said} entries and has {found}")]
    Count {
        /// Number that the group states.
        said: u64,
        /// Number that it has.
        found: u64,
    },
    /// Bytes are no entry.
    #[error("the entry cannot be read: {0}")]
    Unreadable(DecodeError),
    /// The hash is not that of these entries after those before.
    #[error("the group of this entry does not have the hash that it is stored with")]
    Hash,
    /// A checkpoint says otherwise.
    #[error("the entries through {through} are not those that were sealed by a checkpoint")]
    NotAsSealed {
        /// The last entry that the checkpoint seals.
        through: u64,
    },
    /// A checkpoint cannot be read, or seals what comes after it.
    #[error("the checkpoint says nothing that could be so")]
    BadCheckpoint,
    /// A checkpoint's signature is not believed.
    #[error("{0}")]
    Signature(SignatureError),
    /// A checkpoint promised another one by here, and there is none.
    #[error("there is no checkpoint where there must be one")]
    NoCheckpoint,
    /// A checkpoint is due by what the server has been told, and there is none.
    #[error(
        "the entries from this one on are not sealed, although a checkpoint was due among them"
    )]
    Unsealed,
    /// Entries were deleted with their segment, and no entry says so.
    #[error("the entries from this one on were deleted, and no entry after them says so")]
    Deleted,
    /// A segment of the archive says otherwise.
    #[error("the segment of the archive that ends with this entry was sealed with another one")]
    NotAsArchived,
    /// The file of an encrypted segment is another one than was sealed.
    #[error(
        "the encrypted segment of the archive that ends with this entry is not the file that was sealed"
    )]
    SegmentAltered,
    /// A segment of the archive has not what it was written with, or is another one.
    #[error(
        "the segment {} of the archive is damaged, or is not the one that the table archive_segment lists: {why}",
        file.display()
    )]
    SegmentDamaged {
        /// Path of the segment.
        file: PathBuf,
        /// Reason.
        why: String,
    },
    /// The database of a file contradicts itself.
    #[error("the file {} is damaged, or was changed: {why}", file.display())]
    FileDamaged {
        /// Path of the file.
        file: PathBuf,
        /// First contradiction.
        why: String,
    },
    /// The ledger ends before an entry that was sealed.
    #[error("the ledger ends before this entry; it once went on to entry {through} at least")]
    Truncated {
        /// The last entry that is known to have been.
        through: u64,
    },
    /// An entry has another hash than it had when it was last looked at.
    #[error(
        "the entries through {through} are not those that were seen before: the ledger was rewritten"
    )]
    Rewritten {
        /// The last entry that was seen before.
        through: u64,
    },
    /// An entry is not in the index.
    #[error("the table {table} does not have the entry")]
    NotIndexed {
        /// Name of the table.
        table: &'static str,
    },
    /// The index has another entry.
    #[error("the table {table} says otherwise than the entry")]
    IndexDiffers {
        /// Name of the table.
        table: &'static str,
    },
    /// The index has what no entry says.
    #[error("the table {table} has a row that no entry is about")]
    IndexInvents {
        /// Name of the table.
        table: &'static str,
    },
    /// A table beside the entries differs from them.
    #[error("the table {table} differs from the entries")]
    TableDiffers {
        /// Name of the table.
        table: &'static str,
    },
    /// A table that must have one row has none.
    #[error("the table {table} does not have its row")]
    NoRow {
        /// Name of the table.
        table: &'static str,
    },
    /// The table that says where the ledger ends says otherwise than the entries.
    #[error(
        "the table tail says that the ledger ends with entry {said}, and the entries end with entry {last}: entries were \
         taken away, or the table was changed"
    )]
    TailDiffers {
        /// The last entry by the table.
        said: u64,
        /// The last entry.
        last: u64,
    },
    /// The table that says how far the index goes says otherwise than the index, or than the entries.
    #[error(
        "the table indexed says that entries are indexed through entry {said}, and the tables call and note, or the \
         entries themselves, say otherwise"
    )]
    IndexEnds {
        /// The last indexed entry by the table.
        said: u64,
    },
    /// A trigger, rule or policy that somebody has put on the tables changes what is written or read.
    #[error(
        "{what} can change or leave out what is written or read; this program made no such thing ({cure})"
    )]
    Planted {
        /// Name of what was put there.
        what: String,
        /// Statement that removes it.
        cure: String,
    },
}

/// Reason why a checkpoint's signature is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is none.
    #[error("the checkpoint is not signed")]
    Missing,
    /// A signature by a key that is not trusted.
    #[error("the checkpoint is signed with a key that is not trusted")]
    Untrusted,
    /// A signature of other content.
    #[error("the checkpoint's signature is wrong")]
    Wrong,
}
