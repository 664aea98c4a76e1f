use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction};
use std::{fs, path::Path};

/// Marks of the files of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// The `application_id` of such files, which no other program should use.
    pub application_id: i32,
    /// The version of their tables that this program knows: the newest.
    pub version: i32,
}

/// Kind of access to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading and writing; an empty file is one of which nothing has been made yet.
    Write,
    /// Reading and writing what others have made.
    Share,
    /// Reading alone.
    Read,
}

/// Reason why the content of a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// A file that is no database at all; it may have been one.
    #[error("it is no database")]
    NotADatabase,
    /// A database of another program.
    #[error("it belongs to another program")]
    Foreign,
    /// A newer version of this program has written it.
    #[error("it has version {found}; this program knows versions up to {known}")]
    Newer {
        /// Version of the file.
        found: i32,
        /// The newest version known here.
        known: i32,
    },
    /// A database of the right kind that is broken.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// Another program is changing it.
    #[error("it is in use by another program")]
    Busy(#[source] rusqlite::Error),
    /// Any other error of the database, such as a full disk.
    #[error(transparent)]
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Unusable {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase,
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged(error.to_string()),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(error),
            _ => Self::Database(error),
        }
    }
}

/// The fewest bytes of a database that is not empty: its smallest page.
const MIN_DATABASE_BYTES: u64 = 512;

impl Format {
    /// Opens an existing file and checks it before anything is changed: a file of another program
    /// stays as it is. Returns the version of its content, 0 if it has none yet.
    ///
    /// # Errors
    ///
    /// [`Unusable`].
    pub fn open(self, path: &Path, access: Access) -> Result<(Connection, i32), Unusable> {
        let flags = match access {
            Access::Write | Access::Share => OpenFlags::SQLITE_OPEN_READ_WRITE,
            Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        };
        if is_a_scrap(path) {
            return Err(Unusable::NotADatabase);
        }
        // Each connection is used by one thread at a time, which Rust sees to.
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        let version = self.version_of(&connection, access)?;
        Ok((connection, version))
    }

    /// Checks a database that is open to be read, wherever it is. Returns the version of its content.
    ///
    /// # Errors
    ///
    /// [`Unusable`].
    pub fn expect(self, connection: &Connection) -> Result<i32, Unusable> {
        self.version_of(connection, Access::Read)
    }

    /// Marks a file as one of this kind and this version.
    ///
    /// # Errors
    ///
    /// What the database says.
    pub fn mark(self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        transaction.pragma_update(None, "application_id", self.application_id)?;
        transaction.pragma_update(None, "user_version", self.version)
    }

    fn version_of(self, connection: &Connection, access: Access) -> Result<i32, Unusable> {
        let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        let application_id = number("application_id")?;
        let found = number("user_version")?;
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        let is_empty = tables == 0 && application_id == 0 && found == 0;
        if is_empty && access == Access::Write {
            return Ok(0);
        }
        if application_id != self.application_id {
            return Err(Unusable::Foreign);
        }
        if self.version < found {
            return Err(Unusable::Newer {
                found,
                known: self.version,
            });
        }
        Ok(found)
    }
}

/// Returns true if a file is too short for a database. The database takes one of a single byte for
/// an empty one, and would write over it. Longer files are left to the database: closing a file
/// that it has open as well would release its locks.
fn is_a_scrap(path: &Path) -> bool {
    let length = fs::metadata(path).map_or(0, |metadata| metadata.len());
    0 < length && length < MIN_DATABASE_BYTES
}

/// Has changes be written to a log beside the file first, so that readers do not keep the writer
/// waiting. `max_kept_bytes` is the size to which the log's file is cut back once a large
/// transaction, or a long read, has made it longer.
///
/// # Errors
///
/// What the database says.
pub fn keep_a_log(connection: &Connection, max_kept_bytes: i64) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update_and_check(None, "journal_size_limit", max_kept_bytes, |_| Ok(()))
}
