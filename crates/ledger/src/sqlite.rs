//! A ledger in an SQLite file, with the index that readers use.

pub(crate) mod archive;
pub(crate) mod backup;
pub(crate) mod index;
pub(crate) mod offline_approvals;
pub(crate) mod reader;
pub(crate) mod rows;
pub(crate) mod schema;

use crate::{
    query::ReadLedger,
    record::{
        entry::Digest,
        id::CallId,
        operation::{Operation, OperationOutcome, decode_outcomes, encode_outcomes},
    },
    recorder::Durability,
    sqlite::{
        index::{IndexError, Target},
        rows::Rows,
        schema::{OpenError, explain, open_to_append, take},
    },
    store::{Appended, FindEnd, Group, Interrupted, LedgerStore, StoreError, Tail, claims},
};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use sqlite_file::{FileIdentity, FileLock};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// The most entries indexed at one go, while which nothing is appended.
const MAX_TIDY_ENTRIES: u64 = 256;

/// The most entries that are not indexed. Under load there is no time to tidy, but readers index
/// what the ledger has not, and must not take ever longer.
const MAX_UNINDEXED: u64 = 65_536;

/// The fewest entries that are indexed at one go when there are too many.
const MIN_CATCH_UP: u64 = 2048;

/// Interval at which the end of a ledger that entries come to all the time is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Entries that are indexed in one transaction when a ledger is opened.
const MAX_OPEN_ENTRIES: u64 = 100_000;

/// A ledger in a `SQLite` file, which only this process may append to. Any program may read it
/// meanwhile; [`crate::sqlite::reader::LedgerReader`] does. Another process of ours may decide approvals meanwhile;
/// [`crate::sqlite::offline_approvals::OfflineApprovals`] does.
///
/// Each group is one row of one table. An index with a row for each call is made when there is
/// nothing to append, and completed whenever the ledger is opened.
#[derive(Debug)]
pub struct SqliteLedger {
    path: PathBuf,
    durability: Durability,
    /// `None` after a failure: it is opened anew.
    connection: Option<Open>,
    tail: Tail,
    /// The last entry that is indexed.
    indexed_through: u64,
    /// The group that tidying was about to store when it failed: perhaps it did.
    unsure: Option<Uuid>,
    interrupted: Vec<Interrupted>,
    _lock: FileLock,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    /// True if commits wait for the disk.
    synchronous: bool,
    /// The file that is written to, whatever its path names by now.
    file: FileIdentity,
    /// Number that changes when another connection commits.
    version: i64,
    /// Time of the last look at it.
    looked: Instant,
}

/// Another program has changed the ledger.
#[derive(Debug, thiserror::Error)]
#[error("the ledger's file has been changed by another program")]
struct ChangedError;

/// The database would go on to write to a file that has lost its name.
#[derive(Debug, thiserror::Error)]
#[error("the ledger's file has been taken away or replaced")]
struct TakenAwayError;

impl SqliteLedger {
    /// Opens the ledger at `path`; makes it and its directories if there is none, for their owner
    /// alone. It blocks, the longer the more there is to index.
    ///
    /// # Errors
    ///
    /// [`OpenError`]. A file that is not a ledger of a known version is left as it is.
    pub fn open(path: impl AsRef<Path>, durability: Durability) -> Result<Self, OpenError> {
        let (path, lock) = take(path.as_ref())?;
        let mut open = Open::at(&path, durability)?;
        let connection = &mut open.connection;
        let damaged = |error: IndexError| match error {
            IndexError::Database(error) => explain(&path, error),
            damaged => OpenError::Database {
                path: path.clone(),
                source: damaged.boxed(),
            },
        };
        while index_more(connection, MAX_OPEN_ENTRIES).map_err(damaged)? {}
        let explain = |error| explain(&path, error);
        let tail = tail_of(connection).map_err(explain)?;
        let indexed_through = index::indexed_through(connection).map_err(explain)?;
        let interrupted = interrupted(connection).map_err(explain)?;
        Rows::give_up_running(connection).map_err(explain)?;
        if !interrupted.is_empty() {
            tracing::warn!(
                calls = interrupted.len(),
                "calls were open when the server ended; their outcome is unknown"
            );
        }
        Ok(Self {
            path,
            durability,
            connection: Some(open),
            tail,
            indexed_through: indexed_through.unsigned_abs(),
            unsure: None,
            interrupted,
            _lock: lock,
        })
    }

    /// As if the ledger had ended here and an attempt to append had failed.
    #[cfg(test)]
    pub(crate) fn disconnect(&mut self, tail: Tail) {
        (self.tail, self.connection) = (tail, None);
    }

    fn store(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        let open = match &mut self.connection {
            Some(open) if FileIdentity::of(&self.path) == Some(open.file) => {
                if LOOK_EVERY <= open.looked.elapsed() {
                    open.expect_end(self.tail)?;
                }
                open
            }
            Some(_) => return Err(StoreError(Box::new(TakenAwayError))),
            empty => {
                let open = Open::at(&self.path, self.durability)
                    .map_err(|error| StoreError(Box::new(error)))?;
                let tail = tail_of(&open.connection).map_err(database)?;
                if let Some(outcomes) = open.outcomes_of(group)? {
                    // It had been stored when its storing failed.
                    *empty = Some(open);
                    return Ok(Appended { tail, outcomes });
                }
                let expected = tail == self.tail
                    || match self.unsure {
                        Some(id) => open.ends_with(id).map_err(database)?,
                        None => false,
                    };
                if !expected {
                    return Err(StoreError(Box::new(ChangedError)));
                }
                (self.tail, self.unsure) = (tail, None);
                empty.insert(open)
            }
        };
        open.store(group, self.tail)
    }

    /// Indexes faster than entries come, once too many are not.
    fn keep_up(&mut self, appended: u64) {
        let unindexed = self
            .tail
            .next_sequence
            .saturating_sub(1 + self.indexed_through);
        let Some(open) = self
            .connection
            .as_mut()
            .filter(|_| MAX_UNINDEXED < unindexed)
        else {
            return;
        };
        let max_entries = appended.saturating_mul(2).max(MIN_CATCH_UP);
        let indexed = index_more(&mut open.connection, max_entries)
            .and_then(|_| Ok(index::indexed_through(&open.connection)?));
        match indexed {
            Ok(through) => self.indexed_through = through.unsigned_abs(),
            // The group is stored all the same.
            Err(error) => tracing::warn!(%error, "the ledger could not be indexed"),
        }
    }
}

impl Open {
    fn at(path: &Path, durability: Durability) -> Result<Self, OpenError> {
        let synchronous = durability == Durability::Strict;
        let connection = open_to_append(path, synchronous_name(synchronous))?;
        let file = FileIdentity::of(path).ok_or_else(|| OpenError::Missing(path.to_owned()))?;
        let version = data_version(&connection).map_err(|error| explain(path, error))?;
        Ok(Self {
            connection,
            synchronous,
            file,
            version,
            looked: Instant::now(),
        })
    }

    /// Fails if another program has written to the file and the ledger does not end with `tail` any more. Approvals, holds and
    /// the archive are written beside a server, and change no end.
    fn expect_end(&mut self, tail: Tail) -> Result<(), StoreError> {
        self.looked = Instant::now();
        let version = data_version(&self.connection).map_err(database)?;
        if version != self.version && tail_of(&self.connection).map_err(database)? != tail {
            return Err(StoreError(Box::new(ChangedError)));
        }
        self.version = version;
        Ok(())
    }

    /// Outcomes of the group, if it has been stored.
    fn outcomes_of(&self, group: Group<'_>) -> Result<Option<Vec<OperationOutcome>>, StoreError> {
        if group.operations.is_empty() {
            let stored = self.ends_with(group.id).map_err(database)?;
            return Ok(stored.then(Vec::new));
        }
        let sql = "SELECT outcomes FROM operation_outcome WHERE group_id = ?1";
        let stored: Option<Vec<u8>> = self
            .connection
            .query_row(sql, [group.id.as_bytes()], |row| row.get(0))
            .optional()
            .map_err(database)?;
        stored
            .map(|outcomes| decode_outcomes(&outcomes).map_err(|error| StoreError(Box::new(error))))
            .transpose()
    }

    /// Returns true if this is the last group.
    fn ends_with(&self, id: Uuid) -> rusqlite::Result<bool> {
        self.connection.query_row(
            "SELECT coalesce((SELECT id = ?1 FROM entry_group
                ORDER BY first_sequence DESC LIMIT 1), 0)",
            [id.as_bytes()],
            |row| row.get(0),
        )
    }

    fn store(&mut self, group: Group<'_>, tail: Tail) -> Result<Appended, StoreError> {
        if group.durable && !self.synchronous {
            self.set_synchronous(true)?;
            let appended = self.store_now(group, tail);
            self.set_synchronous(false)?;
            return appended;
        }
        self.store_now(group, tail)
    }

    fn store_now(&mut self, group: Group<'_>, tail: Tail) -> Result<Appended, StoreError> {
        if group.operations.is_empty() {
            // One statement is a transaction by itself.
            let tail = insert(&self.connection, group.id, group.body, group.count, tail)
                .map_err(database)?;
            return Ok(Appended::at(tail));
        }
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(database)?;
        let mut rows = Rows::new(&transaction);
        let applied =
            claims::at_once(claims::apply(&mut rows, group.operations)).map_err(database)?;
        let count = group.count + applied.count;
        let tail = match applied.body.is_empty() {
            true => insert(&transaction, group.id, group.body, count, tail),
            false => {
                let body = [group.body, &applied.body].concat();
                insert(&transaction, group.id, &body, count, tail)
            }
        }
        .map_err(database)?;
        if 0 < count || group.operations.iter().any(Operation::changes) {
            remember(&transaction, group.id, &applied.outcomes).map_err(database)?;
        }
        transaction.commit().map_err(database)?;
        Ok(Appended {
            tail,
            outcomes: applied.outcomes,
        })
    }

    fn set_synchronous(&mut self, synchronous: bool) -> Result<(), StoreError> {
        self.connection
            .pragma_update(None, "synchronous", synchronous_name(synchronous))
            .map_err(database)?;
        self.synchronous = synchronous;
        Ok(())
    }

    /// Puts on record what has been decided elsewhere and what has expired, as the group `id`. Tells
    /// where the ledger ends then, and whether there is more.
    fn tidy_rows(&mut self, id: Uuid, now_us: u64, tail: Tail) -> rusqlite::Result<(Tail, bool)> {
        if !Rows::any_due(&self.connection, now_us)? {
            return Ok((tail, false));
        }
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut rows = Rows::new(&transaction);
        let (mut applied, more) = claims::at_once(claims::tidy(&mut rows, now_us))?;
        let said = archive::say_notes(&transaction, &mut applied.body)?;
        applied.count += said;
        let tail = insert(&transaction, id, &applied.body, applied.count, tail)?;
        transaction.commit()?;
        Ok((tail, more))
    }
}

impl LedgerStore for SqliteLedger {
    fn tail(&self) -> Tail {
        self.tail
    }

    fn interrupted(&self) -> &[Interrupted] {
        &self.interrupted
    }

    fn find_end(&self) -> Option<FindEnd> {
        let path = self.path.clone();
        Some(Arc::new(move |call| {
            let found = reader::LedgerReader::open(&path)?.call(call)?;
            Ok(found.and_then(|record| record.ended))
        }))
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        match self.store(group) {
            Ok(appended) => {
                self.tail = appended.tail;
                self.keep_up(group.count);
                Ok(appended)
            }
            Err(error) => {
                self.connection = None;
                Err(error)
            }
        }
    }

    async fn tidy(&mut self, now_us: u64) -> Result<bool, StoreError> {
        // Looked after every second while nothing comes, so that it is known by then.
        let open = match &mut self.connection {
            Some(open) if FileIdentity::of(&self.path) == Some(open.file) => {
                if let Err(error) = open.expect_end(self.tail) {
                    self.connection = None;
                    return Err(error);
                }
                open
            }
            Some(_) => {
                self.connection = None;
                return Err(StoreError(Box::new(TakenAwayError)));
            }
            empty => {
                let (open, tail) = reopened(&self.path, self.durability, self.tail, self.unsure)?;
                (self.tail, self.unsure) = (tail, None);
                empty.insert(open)
            }
        };
        let id = CallId::new(now_us).0;
        let (tail, more_rows) = match open.tidy_rows(id, now_us, self.tail) {
            Ok(tidied) => tidied,
            Err(error) => {
                // Whether it was stored shows when it is opened again.
                (self.connection, self.unsure) = (None, Some(id));
                return Err(database(error));
            }
        };
        self.tail = tail;
        let more_calls = index_more(&mut open.connection, MAX_TIDY_ENTRIES)
            .map_err(|error| StoreError(error.boxed()))?;
        let through = index::indexed_through(&open.connection).map_err(database)?;
        self.indexed_through = through.unsigned_abs();
        Ok(more_rows | more_calls)
    }
}

/// Opens the ledger again after a failure, and tells where it ends. It must end where it did, or
/// with `unsure`.
fn reopened(
    path: &Path,
    durability: Durability,
    expected: Tail,
    unsure: Option<Uuid>,
) -> Result<(Open, Tail), StoreError> {
    let open = Open::at(path, durability).map_err(|error| StoreError(Box::new(error)))?;
    let tail = tail_of(&open.connection).map_err(database)?;
    let is_expected = tail == expected
        || match unsure {
            Some(id) => open.ends_with(id).map_err(database)?,
            None => false,
        };
    match is_expected {
        true => Ok((open, tail)),
        false => Err(StoreError(Box::new(ChangedError))),
    }
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    let mut select = connection.prepare_cached("PRAGMA data_version")?;
    select.query_row([], |row| row.get(0))
}

fn synchronous_name(synchronous: bool) -> &'static str {
    match synchronous {
        true => "FULL",
        false => "NORMAL",
    }
}

/// Appends a group, if there is anything in it; tells where the ledger ends then.
fn insert(
    connection: &Connection,
    id: Uuid,
    body: &[u8],
    count: u64,
    tail: Tail,
) -> rusqlite::Result<Tail> {
    if count == 0 {
        return Ok(tail);
    }
    let after = tail.after(body, count);
    let mut insert = connection.prepare_cached(
        "INSERT INTO entry_group (first_sequence, count, hash, body, id)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let stored = insert.execute(params![
        signed(tail.next_sequence),
        signed(count),
        after.hash,
        body,
        id.as_bytes(),
    ])?;
    one_row(stored)?;
    Ok(after)
}

/// Fails unless a statement has stored exactly one row: in tables that somebody has made anew, an insertion may succeed
/// and store nothing.
fn one_row(stored: usize) -> rusqlite::Result<()> {
    match stored {
        1 => Ok(()),
        other => Err(rusqlite::Error::StatementChangedRows(other)),
    }
}

/// Keeps what came of a group, in case that its storing seems to fail.
fn remember(
    transaction: &Transaction<'_>,
    id: Uuid,
    outcomes: &[OperationOutcome],
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM operation_outcome")?
        .execute([])?;
    let stored = transaction
        .prepare_cached("INSERT INTO operation_outcome VALUES (?1, ?2)")?
        .execute(params![id.as_bytes(), encode_outcomes(outcomes)])?;
    one_row(stored)
}

/// Indexes up to `max_entries` more; tells whether there are more yet.
fn index_more(connection: &mut Connection, max_entries: u64) -> Result<bool, IndexError> {
    if !index::is_behind(connection)? {
        return Ok(false);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let from = index::indexed_through(&transaction)?;
    let (through, more) = index::index(&transaction, Target::Ledger, from, max_entries)?;
    if from < through {
        transaction.execute("UPDATE indexed SET through = ?1", [through])?;
        transaction.commit()?;
    }
    Ok(more)
}

fn tail_of(connection: &Connection) -> rusqlite::Result<Tail> {
    let last = connection
        .query_row(
            "SELECT first_sequence + count, hash FROM entry_group
             ORDER BY first_sequence DESC LIMIT 1",
            [],
            |row| {
                Ok(Tail {
                    next_sequence: row.get::<_, i64>(0)?.unsigned_abs(),
                    hash: row.get::<_, Digest>(1)?,
                })
            },
        )
        .optional()?;
    Ok(last.unwrap_or_default())
}

fn interrupted(connection: &Connection) -> rusqlite::Result<Vec<Interrupted>> {
    let mut select = connection.prepare(
        "SELECT call, started_us, principal, capability, estimated_cost_micros FROM call
         WHERE outcome IS NULL ORDER BY start_sequence",
    )?;
    select
        .query_map([], |row| {
            Ok(Interrupted {
                call: CallId(Uuid::from_bytes(row.get(0)?)),
                at_us: row.get::<_, i64>(1)?.unsigned_abs(),
                principal: row.get(2)?,
                capability: row.get(3)?,
                estimated_cost_micros: row.get::<_, i64>(4)?.unsigned_abs(),
            })
        })?
        .collect()
}

fn database(error: rusqlite::Error) -> StoreError {
    StoreError(Box::new(error))
}

/// Sequence numbers count entries; there will never be 2^63 of them.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
