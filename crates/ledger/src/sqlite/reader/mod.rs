//! Reading a ledger in a `SQLite` file.

mod calls;
mod notes;
mod scan;
mod sums;
mod tail;

use crate::{
    query::{
        ApprovalFilter, ApprovalRow, CallRecord, Counts, Extent, Filter, IndexedCall, IndexedNote,
        KeyHeld, NoteFilter, NoteRecord, QueryError, ReadLedger, StoredGroup, Usage,
        statistics::{Statistics, StatisticsQuery},
    },
    record::{
        approval::{Approval, ApprovalId},
        entry::Digest,
        id::CallId,
    },
    sqlite::schema::{OpenError, explain, open_to_read},
};
use rusqlite::{Connection, Transaction};
use std::{ops::Range, path::Path, time::Duration};

/// Reads a ledger in a `SQLite` file, also beside a server that writes to it. It blocks.
///
/// What the server has not indexed yet it indexes itself, and remembers: asking again costs only
/// what has been written since.
#[derive(Debug)]
pub struct LedgerReader {
    connection: Connection,
    tail: tail::Tail,
    /// Ledgers of the first version have no table of approvals.
    has_approvals: bool,
}

impl LedgerReader {
    /// Opens the ledger at `path`.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when it is missing or not a ledger of a known version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let connection = open_to_read(path)?;
        let failed = |error| explain(path, error);
        Ok(Self {
            tail: tail::Tail::new(&connection).map_err(failed)?,
            has_approvals: connection.table_exists(None, "approval").map_err(failed)?,
            connection,
        })
    }

    /// Use since `since_us`, as [`ReadLedger::usage_between`] has it.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    pub fn usage_since(
        &mut self,
        since_us: u64,
        bucket: Duration,
    ) -> Result<Vec<Usage>, QueryError> {
        self.usage_between(since_us..u64::MAX, bucket)
    }

    /// Hash of the ledger's last entry, which covers all before it.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    pub fn last_hash(&mut self) -> Result<Option<Digest>, QueryError> {
        let last = self.extent()?.last_sequence;
        self.hash_after(last)
    }

    /// Asks of the ledger as it is now, indexed to its end.
    fn ask<T>(
        &mut self,
        question: impl FnOnce(&Transaction<'_>) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let snapshot = self.connection.transaction()?;
        let tail = self.tail.catch_up(&snapshot)?;
        let answer = question(&snapshot)?;
        // What has been indexed here is kept for the next question.
        snapshot.commit()?;
        self.tail = tail;
        Ok(answer)
    }
}

impl ReadLedger for LedgerReader {
    fn recent(&mut self, limit: usize, filter: Filter<'_>) -> Result<Vec<CallRecord>, QueryError> {
        self.ask(|snapshot| calls::recent(snapshot, limit, &filter))
    }

    fn open_calls(&mut self) -> Result<Vec<CallRecord>, QueryError> {
        self.ask(calls::open)
    }

    fn notes(
        &mut self,
        limit: usize,
        filter: NoteFilter<'_>,
    ) -> Result<Vec<NoteRecord>, QueryError> {
        self.ask(|snapshot| notes::notes(snapshot, limit, &filter))
    }

    fn approvals(
        &mut self,
        limit: usize,
        filter: ApprovalFilter<'_>,
    ) -> Result<Vec<Approval>, QueryError> {
        if !self.has_approvals {
            return Ok(Vec::new());
        }
        notes::approvals(&self.connection, limit, &filter)
    }

    fn usage_between(
        &mut self,
        range: Range<u64>,
        bucket: Duration,
    ) -> Result<Vec<Usage>, QueryError> {
        self.ask(|snapshot| sums::usage(snapshot, range, bucket))
    }

    fn statistics(&mut self, query: StatisticsQuery<'_>) -> Result<Vec<Statistics>, QueryError> {
        self.ask(|snapshot| sums::statistics(snapshot, &query))
    }

    fn count(&mut self) -> Result<Counts, QueryError> {
        self.ask(sums::count)
    }

    fn extent(&mut self) -> Result<Extent, QueryError> {
        scan::extent(&self.connection, self.tail)
    }

    fn groups(&mut self, from: u64) -> Result<Vec<StoredGroup>, QueryError> {
        scan::groups(&self.connection, from)
    }

    fn hash_after(&mut self, sequence: u64) -> Result<Option<Digest>, QueryError> {
        scan::hash_after(&self.connection, sequence)
    }

    fn indexed_calls(&mut self, from: u64) -> Result<Vec<IndexedCall>, QueryError> {
        if self.tail.hides_index {
            return Ok(Vec::new());
        }
        scan::indexed_calls(&self.connection, from)
    }

    fn indexed_call(&mut self, call: CallId) -> Result<Option<IndexedCall>, QueryError> {
        if self.tail.hides_index {
            return Ok(None);
        }
        scan::indexed_call(&self.connection, call)
    }

    fn indexed_notes(&mut self, from: u64) -> Result<Vec<IndexedNote>, QueryError> {
        if self.tail.hides_index {
            return Ok(Vec::new());
        }
        scan::indexed_notes(&self.connection, from)
    }

    fn approval_rows(&mut self, after: Option<ApprovalId>) -> Result<Vec<ApprovalRow>, QueryError> {
        if !self.has_approvals {
            return Ok(Vec::new());
        }
        scan::approval_rows(&self.connection, after)
    }

    fn holds_key(&mut self, call: CallId) -> Result<bool, QueryError> {
        scan::holds_key(&self.connection, call)
    }

    fn keys_held(&mut self, from: Option<(&str, &str)>) -> Result<Vec<KeyHeld>, QueryError> {
        if !self.has_approvals {
            return Ok(Vec::new());
        }
        scan::keys_held(&self.connection, from)
    }

    fn differing_sums(&mut self) -> Result<Option<&'static str>, QueryError> {
        if self.tail.hides_index {
            return Ok(None);
        }
        sums::differing(&mut self.connection)
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
