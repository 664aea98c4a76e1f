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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReadLedger;
    use crate::{End, Kind, Outcome, Start, codec};

    /// A group of one call whose arguments take up `bytes`.
    fn body(bytes: usize) -> (Vec<u8>, u64) {
        let (mut body, call, arguments) = (Vec::new(), CallId::new(7), "x".repeat(bytes));
        let start = Start {
            arguments: &arguments,
            ..Start::new(call, 7, "a", Kind::Tool, "tool/x")
        };
        codec::encode_start(&start, &mut body);
        codec::encode_end(call, &End::new(Outcome::Succeeded), &mut body);
        (body, 2)
    }

    async fn append(
        store: &mut SqliteLedger,
        (body, count): &(Vec<u8>, u64),
    ) -> Result<(), StoreError> {
        let tail = store.tail();
        let hash = tail.after(body, *count).hash;
        let group = Group {
            first_sequence: tail.next_sequence,
            count: *count,
            body,
            hash,
        };
        store.append(group).await
    }

    fn stored_groups(store: &SqliteLedger) -> i64 {
        let sql = "SELECT count(*) FROM entry_group";
        store
            .connection
            .as_ref()
            .unwrap()
            .query_row(sql, [], |row| row.get(0))
            .unwrap()
    }

    #[tokio::test]
    async fn a_group_stored_in_spite_of_an_error_is_not_stored_twice() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.sqlite");
        let mut store = SqliteLedger::open(&path, Durability::Strict).unwrap();
        let second = body(2);
        append(&mut store, &body(1)).await.unwrap();
        let before = store.tail();
        append(&mut store, &second).await.unwrap();
        let after = store.tail();
        // As if the second commit had been carried out and reported as failed.
        (store.tail, store.connection) = (before, None);
        append(&mut store, &second).await.unwrap();
        assert_eq!((store.tail(), stored_groups(&store)), (after, 2));
        // And as if somebody else had written something else in its place.
        (store.tail, store.connection) = (before, None);
        let error = append(&mut store, &body(3)).await.unwrap_err();
        assert!(
            std::error::Error::source(&error)
                .unwrap()
                .is::<ChangedError>()
        );
        drop(store);
        assert_eq!(
            SqliteLedger::open(&path, Durability::Strict)
                .unwrap()
                .tail(),
            after
        );
    }

    #[tokio::test]
    async fn a_full_disk_fails_and_an_emptied_one_works_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.sqlite");
        let mut store = SqliteLedger::open(&path, Durability::Strict).unwrap();
        append(&mut store, &body(1)).await.unwrap();
        let connection = store.connection.as_ref().unwrap();
        // The limit belongs to the connection, which is opened anew after the failure.
        let pages: i64 = connection
            .pragma_query_value(None, "page_count", |row| row.get(0))
            .unwrap();
        connection
            .pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))
            .unwrap();
        let tail = store.tail();
        let large = body(16_000);
        let error = append(&mut store, &large).await.unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("full"), "{cause}");
        assert_eq!(store.tail(), tail);
        append(&mut store, &large).await.unwrap();
        assert_eq!(stored_groups(&store), 2);
    }

    #[tokio::test]
    async fn every_entry_is_chained_to_the_one_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.sqlite");
        let mut store = SqliteLedger::open(&path, Durability::Strict).unwrap();
        for bytes in 1..4 {
            append(&mut store, &body(bytes)).await.unwrap();
        }
        let connection = store.connection.as_ref().unwrap();
        let mut select = connection
            .prepare("SELECT first_sequence, count, body, hash FROM entry_group ORDER BY 1")
            .unwrap();
        let mut groups = select.query([]).unwrap();
        let mut tail = Tail::default();
        while let Some(group) = groups.next().unwrap() {
            assert_eq!(group.get::<_, i64>(0).unwrap(), signed(tail.next_sequence));
            let body: Vec<u8> = group.get(2).unwrap();
            let count = codec::split(&body).count() as u64;
            assert_eq!(group.get::<_, i64>(1).unwrap(), signed(count));
            let mut changed = body.clone();
            *changed.last_mut().unwrap() ^= 1;
            assert_ne!(
                tail.after(&changed, count).hash,
                tail.after(&body, count).hash
            );
            tail = tail.after(&body, count);
            assert_eq!(group.get::<_, Digest>(3).unwrap(), tail.hash);
        }
        assert_eq!(tail, store.tail());
    }

    #[tokio::test]
    async fn damage_is_told_and_not_built_upon() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.sqlite");
        let mut store = SqliteLedger::open(&path, Durability::Strict).unwrap();
        append(&mut store, &body(1)).await.unwrap();
        let connection = store.connection.as_ref().unwrap();
        connection
            .execute("UPDATE entry_group SET body = x'0100000009'", [])
            .unwrap();
        drop(store);
        let error = SqliteLedger::open(&path, Durability::Strict).unwrap_err();
        assert!(matches!(error, OpenError::Database { .. }), "{error:?}");
        let mut reader = crate::LedgerReader::open(&path).unwrap();
        assert!(reader.count().is_err());
    }
}
