//! What the file of a store looks like.

use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::{
    error::Error,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

/// Marks a `SQLite` file as one of ours: "OWLS".
const APPLICATION_ID: i32 = 0x4F57_4C53;

/// The version of the table below.
pub(crate) const SCHEMA_VERSION: i32 = 1;

/// A large transaction does not leave a log of its size behind for ever.
const MAX_KEPT_LOG_BYTES: i64 = 16 * 1024 * 1024;

/// How long is waited for another program that looks into the file, such as a backup.
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

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or its directory cannot be made, opened or moved.
    #[error("{} cannot be opened", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another server has it open, or another program is changing it.
    #[error("the session store {} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// The file belongs to something else, and is left alone.
    #[error("{} is not a session store", .0.display())]
    NotASessionStore(PathBuf),
    /// Anything else the database says that is no damage, such as a full disk.
    #[error("the session store {} cannot be read or written", path.display())]
    Database {
        /// The store.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The system gives no thread.
    #[error("the thread that writes the session store cannot be started")]
    Thread(#[source] io::Error),
}

/// Why the content of a file cannot be used, though the file can.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// It is no database at all; it may have been one.
    #[error("it is no database")]
    NotADatabase,
    /// It is a database of something else.
    #[error("it belongs to another program")]
    Foreign,
    /// A newer version of this program has written it.
    #[error("it has version {found}; this program knows versions up to {SCHEMA_VERSION}")]
    Newer { found: i32 },
    /// It is ours, and broken.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// It cannot be said.
    #[error(transparent)]
    Unknown(rusqlite::Error),
}

impl From<rusqlite::Error> for Unusable {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase,
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged(error.to_string()),
            _ => Self::Unknown(error),
        }
    }
}

/// What every database begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Opens an existing file. An empty one is made a store.
pub(crate) fn open(path: &Path) -> Result<Connection, Unusable> {
    // The database takes a file of a few bytes for an empty one. What cannot be read, it will say.
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(16).read_to_end(&mut head));
    if read.is_ok() && !head.is_empty() && head != MAGIC {
        return Err(Unusable::NotADatabase);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let application = number("application_id")?;
    let found = number("user_version")?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let is_empty = tables == 0 && application == 0 && found == 0;
    // Looked at before anything is changed: a file of somebody else's stays as it is.
    if application != APPLICATION_ID && !is_empty {
        return Err(Unusable::Foreign);
    }
    if SCHEMA_VERSION < found {
        return Err(Unusable::Newer { found });
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let limit = MAX_KEPT_LOG_BYTES;
    connection.pragma_update_and_check(None, "journal_size_limit", limit, |_| Ok(()))?;
    // Who can read the file must not find sessions in it that have ended.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    if is_empty {
        let transaction = connection.transaction()?;
        transaction.execute_batch(SESSIONS)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
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
