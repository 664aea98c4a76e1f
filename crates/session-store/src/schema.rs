//! Schema of a store's file.

use rusqlite::Connection;
use sqlite_file::{Access, CreateError, FileLock, Format, LockError, Unusable, keep_a_log};
use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Marks a `SQLite` file as one of ours, "OWLS", with the version of the table below.
const STORE: Format = Format {
    application_id: 0x4F57_4C53,
    version: 1,
};

/// Content of the lock file of a store that was opened once.
const MARK: &str = "session store";

/// A large transaction does not leave a log of its size behind for ever.
const MAX_KEPT_LOG_BYTES: i64 = 16 * 1024 * 1024;

/// Time to wait for another program that reads the file, such as a backup.
const BUSY: Duration = Duration::from_secs(2);

const SESSIONS: &str = "
    CREATE TABLE session (
        id TEXT NOT NULL UNIQUE,
        principal TEXT NOT NULL,
        lives INTEGER NOT NULL,
        last_used_ms INTEGER NOT NULL,
        state TEXT NOT NULL
    ) STRICT;
";

/// Reason why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or its directory cannot be made, opened or moved.
    #[error("{} cannot be opened", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Another server has it open, or another program is changing it.
    #[error("the session store {} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// The file belongs to something else, and is left alone.
    #[error("{} is not a session store", .0.display())]
    NotASessionStore(PathBuf),
    /// Any other error of the database that is no damage, such as a full disk.
    #[error("the session store {} cannot be read or written", path.display())]
    Database {
        /// The store.
        path: PathBuf,
        /// Error of the database.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The system gives no thread.
    #[error("the thread that writes the session store cannot be started")]
    Thread(#[source] io::Error),
}

/// Makes the file if need be, and takes the right to use it. Two servers must not: each would bring
/// the other's sessions back. Returns its path without links.
pub(crate) fn take(path: &Path) -> Result<(PathBuf, FileLock), OpenError> {
    let path = create(path)?;
    match FileLock::take(&path) {
        Ok(lock) => Ok((path, lock)),
        Err(LockError::Held { .. }) => Err(OpenError::Locked(path)),
        Err(LockError::File { path, source }) => Err(OpenError::File { path, source }),
    }
}

/// Makes the file if need be; returns its path without links.
pub(crate) fn create(path: &Path) -> Result<PathBuf, OpenError> {
    sqlite_file::create(path)
        .map_err(|CreateError { path, source }| OpenError::File { path, source })
}

/// Returns true if there was a store at this place before, whatever is there now.
pub(crate) fn was_a_store(lock: &FileLock) -> bool {
    !lock.found().is_empty()
}

/// Notes that there is one.
pub(crate) fn note_store(lock: &mut FileLock) -> io::Result<()> {
    match was_a_store(lock) {
        true => Ok(()),
        false => lock.say(MARK),
    }
}

/// Opens an existing file. An empty one is made a store.
pub(crate) fn open(path: &Path) -> Result<Connection, Unusable> {
    let (mut connection, version) = STORE.open(path, Access::Write)?;
    connection.busy_timeout(BUSY)?;
    keep_a_log(&connection, MAX_KEPT_LOG_BYTES)?;
    // Who can read the file must not find sessions in it that have ended.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    if version < STORE.version {
        let transaction = connection.transaction()?;
        transaction.execute_batch(SESSIONS)?;
        STORE.mark(&transaction)?;
        transaction.commit()?;
    }
    Ok(connection)
}

/// Looks through all of a file; a store is small.
pub(crate) fn check(connection: &Connection) -> Result<(), Unusable> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    match found.as_str() {
        "ok" => Ok(()),
        _ => Err(Unusable::Damaged(found)),
    }
}
