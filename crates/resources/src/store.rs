//! The file in which old states of files are kept.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rusqlite::{Connection, OptionalExtension, params};
use sqlite_file::{Access, CreateError, FileLock, Format, LockError, Unusable, create, keep_a_log};

const FORMAT: Format = Format {
    // "owlR"
    application_id: 0x6F77_6C52,
    version: 1,
};

/// The most bytes of old states that are kept altogether; the oldest go first.
const MAX_KEPT_BYTES: i64 = 256 * 1024 * 1024;
const MAX_LOG_BYTES: i64 = 8 * 1024 * 1024;

const TABLES: &str = "
    -- A state that a file was in until it was written to; without bytes: it was not there.
    CREATE TABLE state (
        id    INTEGER PRIMARY KEY,
        uri   TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        etag  TEXT,
        bytes BLOB
    ) STRICT;
    CREATE INDEX state_of ON state (uri, id);
";

/// The file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file that cannot be made.
    #[error("{path}: {cause}")]
    Create {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: CreateError,
    },
    /// A file that another process has.
    #[error(
        "{path} is in use by another server: {cause}; set resources.store, so that each has one of its own"
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: LockError,
    },
    /// A file that is none of ours, or damaged.
    #[error("{path}: {cause}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: Unusable,
    },
}

/// Old states of files.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Mutex<Connection>,
    max_kept_bytes: i64,
    _lock: FileLock,
}

/// A state that a file was in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) id: i64,
    pub(crate) at_ms: i64,
    pub(crate) etag: Option<String>,
    pub(crate) size: Option<i64>,
}

impl Store {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let path = create(path).map_err(|cause| StoreError::Create {
            path: path.to_owned(),
            cause,
        })?;
        let lock = FileLock::take(&path).map_err(|cause| StoreError::Locked {
            path: path.clone(),
            cause,
        })?;
        let unusable = |cause: Unusable| StoreError::Unusable {
            path: path.clone(),
            cause,
        };
        let (mut connection, version) = FORMAT.open(&path, Access::Write).map_err(unusable)?;
        let prepare = || -> rusqlite::Result<Connection> {
            keep_a_log(&connection, MAX_LOG_BYTES)?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            if version < FORMAT.version {
                let transaction = connection.transaction()?;
                transaction.execute_batch(TABLES)?;
                FORMAT.mark(&transaction)?;
                transaction.commit()?;
            }
            Ok(connection)
        };
        let connection = prepare().map_err(|error| unusable(error.into()))?;
        Ok(Self {
            connection: Mutex::new(connection),
            max_kept_bytes: MAX_KEPT_BYTES,
            _lock: lock,
        })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the state of a file before it is written to, and no more than `most` of it. On the disk when it returns.
    pub(crate) fn keep(
        &self,
        uri: &str,
        at_ms: i64,
        state: Option<(&str, &[u8])>,
        most: usize,
    ) -> rusqlite::Result<i64> {
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        let (etag, bytes) = state.unzip();
        transaction
            .prepare_cached("INSERT INTO state (uri, at_ms, etag, bytes) VALUES (?, ?, ?, ?)")?
            .execute(params![uri, at_ms, etag, bytes])?;
        let id = transaction.last_insert_rowid();
        transaction
            .prepare_cached(
                "DELETE FROM state WHERE id IN \
                 (SELECT id FROM state WHERE uri = ? ORDER BY id DESC LIMIT -1 OFFSET ?)",
            )?
            .execute(params![uri, i64::try_from(most).unwrap_or(i64::MAX)])?;
        transaction
            .prepare_cached(
                "DELETE FROM state WHERE id IN (SELECT id FROM \
                 (SELECT id, sum(length(bytes)) OVER (ORDER BY id DESC) AS kept FROM state) WHERE ? < kept)",
            )?
            .execute([self.max_kept_bytes])?;
        transaction.commit()?;
        Ok(id)
    }

    /// Forgets a state that was kept for a write which did not happen.
    pub(crate) fn forget(&self, id: i64) -> rusqlite::Result<()> {
        let connection = self.connection();
        connection
            .execute("DELETE FROM state WHERE id = ?", [id])
            .map(drop)
    }

    /// States of a file that are kept, the latest first.
    pub(crate) fn of(&self, uri: &str) -> rusqlite::Result<Vec<Kept>> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT id, at_ms, etag, length(bytes) FROM state WHERE uri = ? ORDER BY id DESC",
        )?;
        let kept = statement.query_map([uri], |row| {
            Ok(Kept {
                id: row.get(0)?,
                at_ms: row.get(1)?,
                etag: row.get(2)?,
                size: row.get(3)?,
            })
        })?;
        kept.collect()
    }

    /// Bytes of a state of a file; the outer `None`: no such state is kept, the inner one: the file was not there.
    pub(crate) fn bytes(&self, uri: &str, id: i64) -> rusqlite::Result<Option<Option<Vec<u8>>>> {
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached("SELECT bytes FROM state WHERE uri = ? AND id = ?")?;
        statement
            .query_row(params![uri, id], |row| row.get(0))
            .optional()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_kept_within_their_bounds_and_over_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kept.db");
        let mut store = Store::open(&path).unwrap();
        assert!(matches!(Store::open(&path), Err(StoreError::Locked { .. })));
        store.max_kept_bytes = 10;
        for (at, text) in ["1111", "2222", "3333"].iter().enumerate() {
            let at = i64::try_from(at).unwrap();
            store
                .keep("files://a/b", at, Some(("etag", text.as_bytes())), 2)
                .unwrap();
        }
        let kept = |store: &Store, uri: &str| {
            store
                .of(uri)
                .unwrap()
                .iter()
                .map(|it| it.at_ms)
                .collect::<Vec<_>>()
        };
        assert_eq!(kept(&store, "files://a/b"), [2, 1], "two of this file");
        store.keep("files://a/c", 3, None, 2).unwrap();
        store
            .keep("files://a/c", 4, Some(("etag", b"444")), 2)
            .unwrap();
        assert_eq!(kept(&store, "files://a/b"), [2], "ten bytes of all");
        drop(store);
        let store = Store::open(&path).unwrap();
        assert_eq!(kept(&store, "files://a/c"), [4, 3]);
        let [last, first] = &store.of("files://a/c").unwrap()[..] else {
            panic!()
        };
        assert_eq!(
            store.bytes("files://a/c", last.id).unwrap(),
            Some(Some(b"444".to_vec()))
        );
        assert_eq!(store.bytes("files://a/c", first.id).unwrap(), Some(None));
        assert_eq!(
            store.bytes("files://a/b", first.id).unwrap(),
            None,
            "of another file"
        );
        store.forget(last.id).unwrap();
        assert_eq!(kept(&store, "files://a/c"), [3]);
    }
}
