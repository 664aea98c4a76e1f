//! Queries of a ledger, in whatever store.

pub(crate) mod statistics;

use crate::{
    fault::Fault,
    query::statistics::{Statistics, StatisticsQuery},
    record::{
        approval::{Approval, ApprovalId, ApprovalState},
        codec::DecodeError,
        entry::{Digest, Ended, Entry, Kind, Outcome, Started},
        id::CallId,
        note::Noted,
        seal::Seal,
    },
    store::Tail,
};
use std::{error::Error, fmt, ops::Range, path::PathBuf, str::FromStr, time::Duration};

/// The most entries that a group has, so that the one that an entry is in can be found.
pub const MAX_GROUP_ENTRIES: u64 = 16_384;

/// Reads a ledger, also while servers write to it. It blocks.
pub trait ReadLedger {
    /// The calls that meet `filter`, newest first, `limit` of them at most. The
    /// [`cursor`](CallRecord::cursor) of the last gives the next page.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn recent(&mut self, limit: usize, filter: Filter<'_>) -> Result<Vec<CallRecord>, QueryError>;

    /// The call of this name, if there is one.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn call(&mut self, call: CallId) -> Result<Option<CallRecord>, QueryError> {
        let filter = Filter {
            call: Some(call),
            ..Filter::default()
        };
        Ok(self.recent(1, filter)?.pop())
    }

    /// The calls that have begun and not ended, oldest first. In a ledger that no server writes to,
    /// a crash cut them short.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn open_calls(&mut self) -> Result<Vec<CallRecord>, QueryError>;

    /// The calls whose outcome is unknown, because their server ended first: newest first, `limit`
    /// of them at most, from `before` on.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn unresolved(
        &mut self,
        limit: usize,
        before: Option<Cursor>,
    ) -> Result<Vec<CallRecord>, QueryError> {
        let filter = Filter {
            outcome: Some(Outcome::<&str>::Unknown.as_str()),
            before,
            ..Filter::default()
        };
        self.recent(limit, filter)
    }

    /// The notes that meet `filter`, newest first, `limit` of them at most. The
    /// [`cursor`](NoteRecord::cursor) of the last gives the next page.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn notes(
        &mut self,
        limit: usize,
        filter: NoteFilter<'_>,
    ) -> Result<Vec<NoteRecord>, QueryError>;

    /// The approvals that meet `filter`, the last that was asked for first, `limit` of them at most.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn approvals(
        &mut self,
        limit: usize,
        filter: ApprovalFilter<'_>,
    ) -> Result<Vec<Approval>, QueryError>;

    /// The approval of this name, if there is one.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn approval(&mut self, approval: ApprovalId) -> Result<Option<Approval>, QueryError> {
        let filter = ApprovalFilter {
            approval: Some(approval),
            ..ApprovalFilter::default()
        };
        Ok(self.approvals(1, filter)?.pop())
    }

    /// Use by calls that began in `range` (microseconds since the epoch, UTC), summed up for each
    /// principal, capability and stretch of `bucket`, in that order. Refused calls use nothing.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn usage_between(
        &mut self,
        range: Range<u64>,
        bucket: Duration,
    ) -> Result<Vec<Usage>, QueryError>;

    /// Number, outcomes, costs and durations of calls: a row for each principal and capability, and
    /// for each day if the query asks for it, in that order.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn statistics(&mut self, query: StatisticsQuery<'_>) -> Result<Vec<Statistics>, QueryError>;

    /// Numbers of entries, calls and open calls.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn count(&mut self) -> Result<Counts, QueryError>;

    /// Ends of the ledger and of its index.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn extent(&mut self) -> Result<Extent, QueryError>;

    /// A page of the ledger as it is stored: the groups that begin at sequence `from` or later, in
    /// order; at most [`MAX_PAGE_BYTES`] together unless the first alone is larger. Empty at the
    /// end.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn groups(&mut self, from: u64) -> Result<Vec<StoredGroup>, QueryError>;

    /// The group that has the entry at `sequence`.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn group_of(&mut self, sequence: u64) -> Result<Option<StoredGroup>, QueryError> {
        let mut next = sequence.saturating_sub(MAX_GROUP_ENTRIES);
        loop {
            let groups = self.groups(next)?;
            let Some(last) = groups.last() else {
                return Ok(None);
            };
            next = last.first_sequence.saturating_add(last.count.max(1));
            for group in groups {
                if sequence < group.first_sequence {
                    return Ok(None);
                }
                if sequence - group.first_sequence < group.count {
                    return Ok(Some(group));
                }
            }
        }
    }

    /// The stored hash of the entry at `sequence`, if a group ends with it.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn hash_after(&mut self, sequence: u64) -> Result<Option<Digest>, QueryError>;

    /// The same for many entries, in their order, of what can be told without a segment of the archive.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn hashes_after(&mut self, sequences: &[u64]) -> Result<Vec<HashAfter>, QueryError>;

    /// A page of the index: the rows of the calls that begin at sequence `from` or later, in order
    /// of their starts, [`MAX_PAGE_ROWS`] at most. Empty at the end.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn indexed_calls(&mut self, from: u64) -> Result<Vec<IndexedCall>, QueryError>;

    /// The row of the index about this call, if there is one.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn indexed_call(&mut self, call: CallId) -> Result<Option<IndexedCall>, QueryError>;

    /// A page of the index to notes, as [`ReadLedger::indexed_calls`] has one of calls.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn indexed_notes(&mut self, from: u64) -> Result<Vec<IndexedNote>, QueryError>;

    /// A page of the approvals, in the order of their names, of those after `after`;
    /// [`MAX_PAGE_ROWS`] at most. Empty at the end.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn approval_rows(&mut self, after: Option<ApprovalId>) -> Result<Vec<ApprovalRow>, QueryError>;

    /// A page of the idempotency keys, in the order of their principals and names, beginning with the
    /// one of this principal and name; [`MAX_PAGE_ROWS`] at most. Empty behind the last one, and in
    /// ledgers that have none.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn keys_held(&mut self, from: Option<(&str, &str)>) -> Result<Vec<KeyHeld>, QueryError> {
        let _ = from;
        Ok(Vec::new())
    }

    /// Returns true if this call holds an idempotency key.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn holds_key(&mut self, call: CallId) -> Result<bool, QueryError> {
        let _ = call;
        Ok(true)
    }

    /// Seals of the segments that have entries of this ledger which are not in its store any more, in order. None
    /// of them is opened again by other questions than concern it.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger or a segment cannot be read.
    fn segments(&mut self) -> Result<Vec<Seal>, QueryError> {
        Ok(Vec::new())
    }

    /// Looks for damage in the files that the ledger is in, indexes of the database included: by a damaged one a question finds
    /// less than there is. It reads all of them.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when they cannot be read.
    fn damage(&mut self) -> Result<Option<Fault>, QueryError> {
        Ok(None)
    }

    /// Leaves out, from now on, the entries of segments that are encrypted and that no identity opens: for who verifies,
    /// and looks at [`ReadLedger::gaps`]. Any other answer would say less than there is.
    fn leave_unread(&mut self) {}

    /// Fails if the file of an encrypted segment with this seal is not the one that was sealed. It needs no identity.
    ///
    /// # Errors
    ///
    /// [`QueryError`], also when the file cannot be read.
    fn expect_sealed(&mut self, _seal: &Seal) -> Result<(), QueryError> {
        Ok(())
    }

    /// Parts of the ledger that were deleted with their segments, or are left out, in order.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn gaps(&mut self) -> Result<Vec<Gap>, QueryError> {
        Ok(Vec::new())
    }

    /// Compares what is summed up beside the index with the index; tells the name of a table that
    /// differs. Ledgers without such tables have nothing to compare.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn differing_sums(&mut self) -> Result<Option<&'static str>, QueryError> {
        Ok(None)
    }

    /// The fault of what stands beside the entries and says where they and their index end, or of what somebody has put
    /// on the tables: what no server should go on with. It costs little to look.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    fn fault(&mut self) -> Result<Option<Fault>, QueryError> {
        Ok(None)
    }
}

/// Larger numbers are indexed as this one, so that sums do not overflow; the entries have the
/// numbers as they are.
pub const MAX_INDEXED: u64 = 1 << 52;

/// Value of [`Filter::outcome`] for calls that have not ended.
pub const OPEN_CALLS: &str = "open";

/// The most bytes of groups in a page of [`ReadLedger::groups`], unless one alone is larger.
pub const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// The most rows in a page of [`ReadLedger::indexed_calls`].
pub const MAX_PAGE_ROWS: usize = 4096;

/// Filter for calls that meet every condition given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'a> {
    /// Of this principal.
    pub principal: Option<&'a str>,
    /// Of this capability, `kind/name`.
    pub capability: Option<&'a str>,
    /// Of this kind.
    pub kind: Option<Kind>,
    /// Calls with this outcome, as [`crate::record::entry::Outcome::as_str`] names it, or [`OPEN_CALLS`].
    pub outcome: Option<&'a str>,
    /// Only calls that were refused for this reason, as governance names it.
    pub reason: Option<&'a str>,
    /// Only this call.
    pub call: Option<CallId>,
    /// Only calls whose request had this id, as JSON text: `1`, `"a"`. Ids are their clients': two
    /// calls may have the same.
    pub request_id: Option<&'a str>,
    /// Of this W3C trace.
    pub trace_id: Option<&'a str>,
    /// Only calls that named this approval.
    pub approval: Option<ApprovalId>,
    /// Only calls that took at least so long, in microseconds. Open calls have taken no time yet.
    pub min_duration_us: Option<u64>,
    /// Only calls that began at this time or later: microseconds since the epoch, UTC.
    pub since_us: Option<u64>,
    /// Only calls that began before this time.
    pub until_us: Option<u64>,
    /// Only calls after this one, newest first: the next page.
    pub before: Option<Cursor>,
}

/// Filter for notes that meet every condition given.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoteFilter<'a> {
    /// Of this kind, as [`crate::record::note::NoteKind::as_str`] names it.
    pub kind: Option<&'a str>,
    /// By this actor.
    pub actor: Option<&'a str>,
    /// About this subject.
    pub subject: Option<&'a str>,
    /// From this time on: microseconds since the epoch, UTC.
    pub since_us: Option<u64>,
    /// Before this time.
    pub until_us: Option<u64>,
    /// Only notes after this one, newest first: the next page.
    pub before: Option<Cursor>,
}

/// Filter for approvals that meet every condition given.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApprovalFilter<'a> {
    /// Only this approval.
    pub approval: Option<ApprovalId>,
    /// Only approvals in this state, as stored. An approval whose time has run out may be stored as
    /// pending until a server has seen it: [`Approval::state_at`].
    pub state: Option<ApprovalState>,
    /// Only approvals that expire after this time: microseconds since the epoch, UTC.
    pub expires_after_us: Option<u64>,
    /// For this principal.
    pub principal: Option<&'a str>,
    /// For this capability, `kind/name`.
    pub capability: Option<&'a str>,
}

/// End of a page of calls or notes. Its text is short, opaque and can be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Time at which the last item of the page began: microseconds since the epoch, UTC.
    pub at_us: u64,
    /// Sequence of that item in the ledger, which is that of a call's start.
    pub sequence: u64,
}

/// Text that is no [`Cursor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not where a page ended")]
pub struct ParseCursorError;

/// An idempotency key, and the call that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHeld {
    /// Principal that sent the key.
    pub principal: String,
    /// The key.
    pub key: String,
    /// Capability that was called with it, as `kind/name`.
    pub capability: String,
    /// Digest of the arguments; zeros if the store has something that is no digest.
    pub arguments: Digest,
    /// The call.
    pub call: CallId,
    /// State of the call: `running`, `succeeded`, `failed` or `unknown`.
    pub state: String,
    /// Time until which it is remembered: microseconds since the epoch, UTC.
    pub until_us: u64,
    /// Digest of the answer that is kept; zeros if none is.
    pub kept: Digest,
}

/// A call, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Names it.
    pub call: CallId,
    /// The place of its start in the ledger.
    pub sequence: u64,
    /// Start of the call.
    pub started: Started,
    /// End of the call; `None` while it is open.
    pub ended: Option<Ended>,
}

/// Record of an event other than a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteRecord {
    /// Sequence in the ledger.
    pub sequence: u64,
    /// Content.
    pub noted: Noted,
}

/// Use of a capability by a principal in one stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Principal.
    pub principal: String,
    /// Kind of the capability.
    pub kind: Kind,
    /// Capability, as `kind/name`.
    pub capability: String,
    /// Time at which the last of the calls began: microseconds since the epoch, UTC.
    pub latest_us: u64,
    /// Number of calls, without those that were refused.
    pub calls: u64,
    /// Cost of the calls together; open ones at their estimates.
    pub cost_micros: u64,
    /// Estimates of open ones, which are in `cost_micros`.
    pub open_micros: u64,
    /// Cost of the dearest of the calls; open ones at their estimates.
    pub dearest_micros: u64,
}

/// Numbers of items in a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries.
    pub entries: u64,
    /// Calls, refused ones included.
    pub calls: u64,
    /// Calls that have not ended.
    pub open_calls: u64,
}

/// Ends of a ledger and of its index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The sequence of the last entry; 0 when there is none.
    pub last_sequence: u64,
    /// The sequence of the last entry that is indexed.
    pub indexed_through: u64,
}

/// A group as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredGroup {
    /// The sequence of its first entry, as stored.
    pub first_sequence: u64,
    /// Number of entries, as stored.
    pub count: u64,
    /// The hash of its last entry, as stored.
    pub hash: Digest,
    /// Entries, each preceded by its length.
    pub body: Vec<u8>,
}

/// Answer of [`ReadLedger::hashes_after`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAfter {
    /// The stored hash, if a group ends with the entry.
    Known(Option<Digest>),
    /// The entry is in a segment of the archive, or was deleted with it.
    Archived,
}

impl HashAfter {
    /// Returns true if it is known not to be this one.
    #[must_use]
    pub fn is_other(&self, hash: &Digest) -> bool {
        match self {
            Self::Known(known) => known.as_ref() != Some(hash),
            Self::Archived => false,
        }
    }
}

/// Entries that were deleted, or that cannot be read ([`ReadLedger::leave_unread`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first of them.
    pub first_sequence: u64,
    /// The last of them.
    pub last_sequence: u64,
    /// Hash of the last one, by which the chain goes on.
    pub last_hash: Digest,
    /// True if no server has put the deletion on record yet.
    pub is_unsaid: bool,
    /// The latest time of its calls and notes, if they are not deleted but encrypted, and no identity opens them:
    /// microseconds since the epoch, UTC.
    pub unread_until_us: Option<u64>,
}

/// A row of the index to calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedCall {
    /// Names the call.
    pub call: CallId,
    /// The place of its start.
    pub sequence: u64,
    /// Time of the start: microseconds since the epoch, UTC.
    pub started_us: u64,
    /// Principal.
    pub principal: String,
    /// Kind of the capability.
    pub kind: String,
    /// Capability, as `kind/name`.
    pub capability: String,
    /// The id of its request.
    pub request_id: String,
    /// The trace it belongs to.
    pub trace_id: Option<String>,
    /// The approval that it named.
    pub approval: Option<String>,
    /// Expected cost, in millionths.
    pub estimated_cost_micros: u64,
    /// Place of the start, if this index has it.
    pub place: Option<Place>,
    /// Place of the arguments in the body of the start's group, if this index has it.
    pub arguments: Option<Range<u64>>,
    /// End of the call, if it has ended.
    pub end: Option<IndexedEnd>,
}

/// Place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The sequence of the first entry of its group.
    pub group: u64,
    /// Index at which it begins in the group's body, after its length.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A row of the index to notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedNote {
    /// The place of the note.
    pub sequence: u64,
    /// Time: microseconds since the epoch, UTC.
    pub at_us: u64,
    /// Kind of event.
    pub kind: String,
    /// Actor.
    pub actor: String,
    /// Subject that it was done to.
    pub subject: String,
    /// Place of the entry, if this index has it.
    pub place: Option<Place>,
}

/// An approval as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRow {
    /// Approval.
    pub approval: Approval,
    /// True if the ledger should have a note of its state; decisions made beside a server get
    /// theirs later.
    pub noted: bool,
}

/// End of a call, as the index has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedEnd {
    /// The place of the entry that says so.
    pub sequence: u64,
    /// Outcome, as [`crate::record::entry::Outcome::as_str`] names it.
    pub outcome: String,
    /// Reason for a refusal.
    pub reason: Option<String>,
    /// Cost, in millionths.
    pub cost_micros: u64,
    /// Duration, in microseconds.
    pub duration_us: u64,
    /// Place of the entry, if this index has it.
    pub place: Option<Place>,
    /// Copies of what the entry says, if this index has them.
    pub copies: Option<EndCopies>,
}

/// Columns of an index with what people who query the database themselves look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndCopies {
    /// Place of the result in the body of the entry's group.
    pub result: Range<u64>,
    /// Message of the failure.
    pub message: Option<String>,
    /// Duration in microseconds, as far as percentiles tell durations apart.
    pub duration_rounded: u64,
}

/// A ledger cannot be queried.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The database failed, or an entry is damaged.
    #[error("the ledger cannot be read")]
    Store(#[source] Box<dyn Error + Send + Sync>),
    /// The file of an encrypted segment is not the one that was sealed.
    #[error("the encrypted segment {} is not the file that was sealed", path.display())]
    Altered {
        /// Path of the segment.
        path: PathBuf,
        /// Last entry of the segment.
        last: u64,
    },
    /// A segment has not what it was written with, or is another one than the ledger lists.
    #[error("the segment {} of the archive is damaged, or is not the one that the table archive_segment lists", path.display())]
    Segment {
        /// Path of the segment.
        path: PathBuf,
        /// First entry of the segment.
        first: u64,
        /// Last entry of the segment.
        last: u64,
        /// Reason.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The start of a call that has not ended is gone.
    #[error(
        "the start of the call that began with entry {sequence} is gone: what is archived has it in the table carried_start. \
         Put back the ledger as it was (`ledger verify` says what else differs)"
    )]
    NoStart {
        /// The entry.
        sequence: u64,
    },
    /// An entry is not where the index says.
    #[error("an entry of the ledger is damaged")]
    Damaged(#[source] DecodeError),
}

impl CallRecord {
    /// End of a page whose last call this is.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor {
            at_us: self.started.at_us,
            sequence: self.sequence,
        }
    }
}

impl StoredGroup {
    /// True if its hash is the one that its entries make of that of the entry before them.
    #[must_use]
    pub fn follows(&self, before: &Digest) -> bool {
        let tail = Tail {
            next_sequence: self.first_sequence,
            hash: *before,
        };
        tail.after(&self.body, self.count).hash == self.hash
    }

    /// Decoded entries.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when one of them is damaged.
    pub fn entries(&self) -> Result<Vec<Entry>, DecodeError> {
        crate::store::entries(&self.body, self.first_sequence)
    }
}

impl NoteRecord {
    /// End of a page whose last note this is.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor {
            at_us: self.noted.at_us,
            sequence: self.sequence,
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at_us, self.sequence)
    }
}

impl FromStr for Cursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.parse().map_err(|_| ParseCursorError);
        let (at_us, sequence) = text.split_once('-').ok_or(ParseCursorError)?;
        Ok(Self {
            at_us: number(at_us)?,
            sequence: number(sequence)?,
        })
    }
}

impl From<rusqlite::Error> for QueryError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_nothing_else_is() {
        let cursor = Cursor {
            at_us: 1_790_000_000_123_456,
            sequence: u64::MAX,
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in [
            "",
            "1",
            "1-",
            "-1",
            "1-2-3",
            "a-b",
            "1-99999999999999999999",
        ] {
            assert_eq!(text.parse::<Cursor>(), Err(ParseCursorError), "{text}");
        }
    }
}
