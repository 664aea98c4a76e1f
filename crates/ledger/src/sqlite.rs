use crate::{
    CallId, Digest, Durability, Group, Interrupted, LedgerStore, OpenError, StoreError, Tail,
    index::{self, IndexError, Target},
    lock::{LedgerLock, private},
    schema::{explain, open_to_append},
};
use rusqlite::{Connection, OptionalExtension, params};
use std::{
    fs::{DirBuilder, OpenOptions},
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// The most entries indexed at one go, while which nothing is appended.
const MAX_TIDY_ENTRIES: u64 = 256;

/// A ledger in a `SQLite` file, which only this process may append to. Any program may read it
/// meanwhile; [`crate::LedgerReader`] does.
///
/// Each group is one row of one table. An index with a row for each call is made when there is
/// nothing to append, and completed whenever the ledger is opened.
#[derive(Debug)]
pub struct SqliteLedger {
    path: PathBuf,
    synchronous: &'static str,
    /// `None` after a failure: it is opened anew.
    connection: Option<Connection>,
    tail: Tail,
    interrupted: Vec<Interrupted>,
    _lock: LedgerLock,
}

/// Somebody else has changed the ledger.
#[derive(Debug, thiserror::Error)]
#[error("the ledger's file has been changed by another program")]
struct ChangedError;

impl SqliteLedger {
    /// Opens the ledger at `path`; makes it and its directories if there is none, for their owner
    /// alone. It blocks, the longer the more there is to index.
    ///
    /// # Errors
    ///
    /// [`OpenError`]. A file that is not a ledger of a known version is left as it is.
    pub fn open(path: impl AsRef<Path>, durability: Durability) -> Result<Self, OpenError> {
        let path = create(path.as_ref())?;
        let lock = LedgerLock::take(&path)?;
        let synchronous = match durability {
            Durability::Strict => "FULL",
            Durability::Relaxed => "NORMAL",
        };
        let mut connection = open_to_append(&path, synchronous)?;
        let damaged = |error: IndexError| match error {
            IndexError::Database(error) => explain(&path, error),
            damaged => OpenError::Database {
                path: path.clone(),
                source: damaged.boxed(),
            },
        };
        while tidy(&mut connection, u64::MAX).map_err(damaged)? {}
        let explain = |error| explain(&path, error);
        let tail = tail_of(&connection).map_err(explain)?;
        let interrupted = interrupted(&connection).map_err(explain)?;
        if !interrupted.is_empty() {
            tracing::warn!(
                calls = interrupted.len(),
                "calls were open when the server ended; their outcome is unknown"
            );
        }
        Ok(Self {
            path,
            synchronous,
            connection: Some(connection),
            tail,
            interrupted,
            _lock: lock,
        })
    }

    fn store(&mut self, group: Group<'_>) -> Result<(), StoreError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => {
                let opened = open_to_append(&self.path, self.synchronous)
                    .map_err(|error| StoreError(Box::new(error)))?;
                let tail = tail_of(&opened).map_err(database)?;
                let after = Tail {
                    next_sequence: group.first_sequence + group.count,
                    hash: group.hash,
                };
                if tail == after {
                    // It had been stored when its storing failed.
                    *empty = Some(opened);
                    return Ok(());
                }
                if tail != self.tail {
                    return Err(StoreError(Box::new(ChangedError)));
                }
                empty.insert(opened)
            }
        };
        let mut insert = connection
            .prepare_cached("INSERT INTO entry_group VALUES (?1, ?2, ?3, ?4)")
            .map_err(database)?;
        insert
            .execute(params![
                signed(group.first_sequence),
                signed(group.count),
                group.hash,
                group.body
            ])
            .map_err(database)?;
        Ok(())
    }
}

impl LedgerStore for SqliteLedger {
    fn tail(&self) -> Tail {
        self.tail
    }

    fn interrupted(&self) -> &[Interrupted] {
        &self.interrupted
    }

    async fn append(&mut self, group: Group<'_>) -> Result<(), StoreError> {
        match self.store(group) {
            Ok(()) => {
                self.tail = Tail {
                    next_sequence: group.first_sequence + group.count,
                    hash: group.hash,
                };
                Ok(())
            }
            Err(error) => {
                self.connection = None;
                Err(error)
            }
        }
    }

    async fn tidy(&mut self) -> Result<bool, StoreError> {
        let Some(connection) = &mut self.connection else {
            return Ok(false);
        };
        tidy(connection, MAX_TIDY_ENTRIES).map_err(|error| StoreError(error.boxed()))
    }
}

/// Indexes up to `max_entries` more; tells whether there are more yet.
fn tidy(connection: &mut Connection, max_entries: u64) -> Result<bool, IndexError> {
    let transaction = connection.transaction()?;
    let from = index::indexed_through(&transaction)?;
    let (through, more) = index::index(&transaction, Target::Ledger, from, max_entries)?;
    if from < through {
        transaction.execute("UPDATE indexed SET through = ?1", [through])?;
        transaction.commit()?;
    }
    Ok(more)
}

/// Makes the file and its directories if need be; tells its path without links, so that a lock
/// taken beside it is the same for everybody.
fn create(path: &Path) -> Result<PathBuf, OpenError> {
    let failed = |source| OpenError::File {
        path: path.to_owned(),
        source,
    };
    if let Some(directory) = path.parent() {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(directory).map_err(failed)?;
    }
    private(OpenOptions::new().append(true).create(true))
        .open(path)
        .map_err(failed)?;
    path.canonicalize().map_err(failed)
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
