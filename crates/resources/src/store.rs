//! The file in which old states of files are kept.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use sqlite_file::{Access, CreateError, FileLock, Format, LockError, Unusable, create, keep_a_log};

const FORMAT: Format = Format {
    // "owlR"
    application_id: 0x6F77_6C52,
    version: 3,
};

/// The most bytes of old states that are kept altogether; the oldest go first.
const MAX_KEPT_BYTES: i64 = 256 * 1024 * 1024;
const MAX_LOG_BYTES: i64 = 8 * 1024 * 1024;

const TABLES: &str = "
    -- A state that a file was in until it was written to; without bytes: it was not there.
    CREATE TABLE state (
        id     INTEGER PRIMARY KEY,
        -- The directory that the address led to. The number is one among the states of this file.
        place  TEXT NOT NULL,
        uri    TEXT NOT NULL,
        number INTEGER NOT NULL,
        at_ms  INTEGER NOT NULL,
        etag   TEXT,
        bytes  BLOB
    ) STRICT;
    CREATE INDEX state_of ON state (place, uri, id);
";

/// Tables since the third version.
const SINCE_THE_THIRD: &str = "
    -- The largest number of a state that had to make room for those of other files: no file begins before it, so that
    -- no number comes again.
    CREATE TABLE evicted (number INTEGER NOT NULL) STRICT;
    INSERT INTO evicted VALUES (0);
";

/// The first version numbered the states of all files together, and did not know their directories.
const FROM_THE_FIRST: &str = "
    ALTER TABLE state ADD COLUMN place TEXT NOT NULL DEFAULT '';
    ALTER TABLE state ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
    UPDATE state SET number = id;
    DROP INDEX state_of;
    CREATE INDEX state_of ON state (place, uri, id);
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
    path: PathBuf,
    max_kept_bytes: i64,
    /// The reason why the last state could not be kept.
    failure: Mutex<Option<KeepError>>,
    _lock: FileLock,
}

/// A file whose states are kept: its address, and the directory that this led to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of<'o> {
    pub(crate) place: &'o str,
    pub(crate) uri: &'o str,
}

/// A state could not be kept.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum KeepError {
    /// No room.
    #[error("there is no room left for {}", .0.display())]
    Full(PathBuf),
    /// Any other failure.
    #[error("{}: {}", .0.display(), .1)]
    Other(PathBuf, Arc<rusqlite::Error>),
}

/// Bytes that a state takes besides its content.
const BESIDES: u64 = 64 * 1024;

/// A state that a file was in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) number: i64,
    pub(crate) at_ms: i64,
    pub(crate) etag: Option<String>,
    pub(crate) size: Option<i64>,
}

impl Store {
    /// Opens the file, or makes it, for directories with addresses that begin so, each with the text that tells it from
    /// others.
    pub(crate) fn open(
        path: &Path,
        places: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, StoreError> {
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
                match version {
                    0 => transaction.execute_batch(TABLES)?,
                    2 => {}
                    _ => {
                        transaction.execute_batch(FROM_THE_FIRST)?;
                        for (beginning, place) in places {
                            transaction.execute(
                                "UPDATE state SET place = ?1 WHERE substr(uri, 1, length(?2)) = ?2",
                                [place, beginning],
                            )?;
                        }
                    }
                }
                transaction.execute_batch(SINCE_THE_THIRD)?;
                FORMAT.mark(&transaction)?;
                transaction.commit()?;
            }
            Ok(connection)
        };
        let connection = prepare().map_err(|error| unusable(error.into()))?;
        Ok(Self {
            connection: Mutex::new(connection),
            path,
            failure: Mutex::default(),
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
        of: Of<'_>,
        at_ms: i64,
        state: Option<(&str, &[u8])>,
        most: usize,
    ) -> Result<i64, KeepError> {
        let kept = self.put(of, at_ms, state, most).map_err(|error| {
            let path = self.path.clone();
            match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => KeepError::Full(path),
                _ => KeepError::Other(path, Arc::new(error)),
            }
        });
        *self.last_failure() = kept.as_ref().err().cloned();
        kept
    }

    fn last_failure(&self) -> MutexGuard<'_, Option<KeepError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reason why no state can be kept now.
    pub(crate) fn failure(&self) -> Option<String> {
        self.check(0).err().map(|it| it.to_string())
    }

    /// Tests if a state of so many bytes could be kept, as far as that is known without doing it: after a failure, whether
    /// there is room again.
    pub(crate) fn check(&self, bytes: u64) -> Result<(), KeepError> {
        let Some(failure) = self.last_failure().clone() else {
            return Ok(());
        };
        let room = rustix::fs::statvfs(&self.path).ok();
        let room = room.map(|it| it.f_bavail.saturating_mul(it.f_frsize));
        match failure {
            KeepError::Full(_) if room.is_some_and(|it| bytes.saturating_add(BESIDES) <= it) => {
                Ok(())
            }
            failure => Err(failure),
        }
    }

    fn put(
        &self,
        of: Of<'_>,
        at_ms: i64,
        state: Option<(&str, &[u8])>,
        most: usize,
    ) -> rusqlite::Result<i64> {
        let Of { place, uri } = of;
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        let (etag, bytes) = state.unzip();
        transaction
            .prepare_cached(
                "INSERT INTO state (place, uri, number, at_ms, etag, bytes) VALUES (?1, ?2, \
                 (SELECT coalesce(max(number), (SELECT number FROM evicted)) + 1 FROM state \
                  WHERE place = ?1 AND uri = ?2), ?3, ?4, ?5)",
            )?
            .execute(params![place, uri, at_ms, etag, bytes])?;
        let id = transaction.last_insert_rowid();
        transaction
            .prepare_cached(
                "DELETE FROM state WHERE id IN (SELECT id FROM state WHERE place = ? AND uri = ? \
                 ORDER BY id DESC LIMIT -1 OFFSET ?)",
            )?
            .execute(params![place, uri, i64::try_from(most).unwrap_or(i64::MAX)])?;
        let last: Option<i64> = transaction
            .prepare_cached(
                "SELECT max(id) FROM \
                 (SELECT id, sum(length(bytes)) OVER (ORDER BY id DESC) AS kept FROM state) WHERE ? < kept",
            )?
            .query_row([self.max_kept_bytes], |row| row.get(0))?;
        if let Some(last) = last {
            transaction.execute(
                "UPDATE evicted SET number = max(number, (SELECT max(number) FROM state WHERE id <= ?))",
                [last],
            )?;
            transaction.execute("DELETE FROM state WHERE id <= ?", [last])?;
        }
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
    pub(crate) fn of(&self, of: Of<'_>) -> rusqlite::Result<Vec<Kept>> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT number, at_ms, etag, length(bytes) FROM state WHERE place = ? AND uri = ? ORDER BY id DESC",
        )?;
        let kept = statement.query_map([of.place, of.uri], |row| {
            Ok(Kept {
                number: row.get(0)?,
                at_ms: row.get(1)?,
                etag: row.get(2)?,
                size: row.get(3)?,
            })
        })?;
        kept.collect()
    }

    /// Bytes of a state of a file; the outer `None`: no such state is kept, the inner one: the file was not there.
    pub(crate) fn bytes(
        &self,
        of: Of<'_>,
        number: i64,
    ) -> rusqlite::Result<Option<Option<Vec<u8>>>> {
        let connection = self.connection();
        let mut statement = connection
            .prepare_cached("SELECT bytes FROM state WHERE place = ? AND uri = ? AND number = ?")?;
        statement
            .query_row(params![of.place, of.uri, number], |row| row.get(0))
            .optional()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &str = "1 /srv/a";

    fn of(uri: &str) -> Of<'_> {
        Of { place: PLACE, uri }
    }

    #[test]
    fn states_are_kept_within_their_bounds_and_over_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kept.db");
        let mut store = Store::open(&path, []).unwrap();
        assert!(matches!(
            Store::open(&path, []),
            Err(StoreError::Locked { .. })
        ));
        store.max_kept_bytes = 10;
        for (at, text) in ["1111", "2222", "3333"].iter().enumerate() {
            let at = i64::try_from(at).unwrap();
            store
                .keep(of("files://a/b"), at, Some(("etag", text.as_bytes())), 2)
                .unwrap();
        }
        let kept = |store: &Store, uri: &str| {
            store
                .of(of(uri))
                .unwrap()
                .iter()
                .map(|it| it.at_ms)
                .collect::<Vec<_>>()
        };
        assert_eq!(kept(&store, "files://a/b"), [2, 1], "two of this file");
        store.keep(of("files://a/c"), 3, None, 2).unwrap();
        store
            .keep(of("files://a/c"), 4, Some(("etag", b"444")), 2)
            .unwrap();
        assert_eq!(kept(&store, "files://a/b"), [2], "ten bytes of all");
        drop(store);
        let store = Store::open(&path, []).unwrap();
        assert_eq!(kept(&store, "files://a/c"), [4, 3]);
        let [last, first] = &store.of(of("files://a/c")).unwrap()[..] else {
            panic!()
        };
        assert_eq!(
            store.bytes(of("files://a/c"), last.number).unwrap(),
            Some(Some(b"444".to_vec()))
        );
        assert_eq!(
            store.bytes(of("files://a/c"), first.number).unwrap(),
            Some(None)
        );
        assert_eq!(
            store.bytes(of("files://a/b"), 2).unwrap(),
            None,
            "no such number"
        );
        let elsewhere = Of {
            place: "another directory",
            uri: "files://a/c",
        };
        assert!(store.of(elsewhere).unwrap().is_empty());
        assert_eq!(store.bytes(elsewhere, last.number).unwrap(), None);
        let id = store.keep(of("files://a/c"), 5, None, 2).unwrap();
        store.forget(id).unwrap();
        assert_eq!(
            kept(&store, "files://a/c"),
            [4],
            "two of it, one of which is forgotten"
        );
    }

    #[test]
    fn states_are_numbered_file_by_file() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("kept.db"), []).unwrap();
        let numbers = |uri| {
            let kept = store.of(of(uri)).unwrap();
            kept.iter().map(|it| it.number).collect::<Vec<_>>()
        };
        store.keep(of("files://a/b"), 0, None, 2).unwrap();
        for at in 0..5 {
            store.keep(of("files://a/hidden"), at, None, 2).unwrap();
        }
        store.keep(of("files://a/b"), 1, None, 2).unwrap();
        assert_eq!(numbers("files://a/b"), [2, 1], "others are not counted");
        assert_eq!(numbers("files://a/hidden"), [5, 4], "none comes again");
    }

    #[test]
    fn numbers_do_not_come_again_when_all_states_of_a_file_made_room() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kept.db");
        let mut store = Store::open(&path, []).unwrap();
        store.max_kept_bytes = 3;
        for at in 0..3 {
            let state = Some(("etag", &b"11"[..]));
            store.keep(of("files://a/b"), at, state, 9).unwrap();
        }
        let large = Some(("etag", &b"222"[..]));
        store.keep(of("files://a/large"), 3, large, 9).unwrap();
        assert!(store.of(of("files://a/b")).unwrap().is_empty());
        drop(store);
        let store = Store::open(&path, []).unwrap();
        store.keep(of("files://a/b"), 4, None, 9).unwrap();
        assert_eq!(store.of(of("files://a/b")).unwrap()[0].number, 4);
    }

    #[test]
    fn states_of_the_first_version_belong_to_the_directories_of_their_addresses() {
        let directory = tempfile::tempdir().unwrap();
        let path = create(&directory.path().join("kept.db")).unwrap();
        let first = Format {
            version: 1,
            ..FORMAT
        };
        let (mut connection, _) = first.open(&path, Access::Write).unwrap();
        let transaction = connection.transaction().unwrap();
        let tables = "
            CREATE TABLE state (id INTEGER PRIMARY KEY, uri TEXT NOT NULL, at_ms INTEGER NOT NULL, etag TEXT,
                bytes BLOB) STRICT;
            CREATE INDEX state_of ON state (uri, id);
            INSERT INTO state (id, uri, at_ms, bytes) VALUES (7, 'files://a/b', 1, x'31'), (8, 'files://ab/c', 1, x'32');";
        transaction.execute_batch(tables).unwrap();
        first.mark(&transaction).unwrap();
        transaction.commit().unwrap();
        drop(connection);
        let places = [("files://a/".to_owned(), PLACE.to_owned())];
        let store = Store::open(&path, places).unwrap();
        assert_eq!(
            store.bytes(of("files://a/b"), 7).unwrap(),
            Some(Some(b"1".to_vec()))
        );
        assert!(store.of(of("files://ab/c")).unwrap().is_empty());
        store.keep(of("files://a/b"), 2, None, 9).unwrap();
        assert_eq!(store.of(of("files://a/b")).unwrap()[0].number, 8);
    }
}
