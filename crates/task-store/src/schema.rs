//! What the file of a store looks like.

use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
};

/// Marks a `SQLite` file as one of ours: "OWLT".
const APPLICATION_ID: i32 = 0x4F57_4C54;

/// The version of the tables below.
const SCHEMA_VERSION: i32 = 2;

/// A large transaction does not leave a log of its size behind for ever.
const MAX_KEPT_LOG_BYTES: i64 = 64 * 1024 * 1024;

/// Version 1. `text` is the last column, so that whoever does not ask for it does not read its pages.
const RECORDS: &str = "
    CREATE TABLE task (
        id TEXT NOT NULL UNIQUE,
        principal TEXT NOT NULL,
        capability TEXT NOT NULL,
        protocol_version TEXT NOT NULL,
        created_us INTEGER NOT NULL,
        updated_us INTEGER NOT NULL,
        expires_us INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        state TEXT NOT NULL,
        is_error INTEGER NOT NULL,
        message TEXT,
        text TEXT NOT NULL
    ) STRICT;
    CREATE INDEX task_by_age ON task (principal, protocol_version, created_us, id);
    CREATE INDEX task_by_expiry ON task (expires_us);
    CREATE INDEX task_by_principal ON task (principal, expires_us);
    CREATE INDEX task_unfinished ON task (created_us, id)
        WHERE state IN ('working', 'input_required');
";

/// Version 2: what is known only of tasks that are not over, each of which has a row of `task_run`.
/// What it takes to begin one again is in a table of its own, since leases are written often and
/// rows are written whole. Both go with the task's end, in the same transaction.
///
/// Tasks of version 1 are without an owner and without a call.
const RUNS: &str = "
    CREATE TABLE task_run (
        id TEXT NOT NULL UNIQUE,
        attempt INTEGER NOT NULL,
        owner TEXT NOT NULL,
        lease_until_us INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE task_call (
        id TEXT NOT NULL UNIQUE,
        call TEXT NOT NULL
    ) STRICT;
    CREATE TRIGGER task_over AFTER UPDATE OF state ON task
        WHEN new.state NOT IN ('working', 'input_required')
    BEGIN
        DELETE FROM task_run WHERE id = old.id;
        DELETE FROM task_call WHERE id = old.id;
    END;
    CREATE TRIGGER task_removed AFTER DELETE ON task
    BEGIN
        DELETE FROM task_run WHERE id = old.id;
        DELETE FROM task_call WHERE id = old.id;
    END;
    INSERT INTO task_run
        SELECT id, 1, '', 0 FROM task WHERE state IN ('working', 'input_required');
";

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or its directory cannot be made or opened.
    #[error("{} cannot be opened", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another server has it open, or another program is changing it.
    #[error("the task store {} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// The file is no database, or one of another program.
    #[error("{} is not a task store", .0.display())]
    NotATaskStore(PathBuf),
    /// A newer version of this program has written it.
    #[error("the task store {} has version {found}; this program knows versions up to {known}", path.display())]
    Newer {
        /// The store.
        path: PathBuf,
        /// Its version.
        found: i32,
        /// The newest version known here.
        known: i32,
    },
    /// Anything else the database says, damage included.
    #[error("the task store {} cannot be read", path.display())]
    Database {
        /// The store.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The system gives no thread.
    #[error("the thread that owns the task store cannot be started")]
    Thread(#[source] io::Error),
}

/// Opens an existing file. An empty one is made a store if it `may_be_empty`; otherwise somebody
/// has emptied it, and going on as if nothing had been there would hide that.
pub(crate) fn open(path: &Path, may_be_empty: bool) -> Result<Connection, OpenError> {
    let explain = |error| explain(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(explain)?;
    let version = check(&connection, path, may_be_empty)?;
    prepare(&mut connection, version).map_err(explain)?;
    Ok(connection)
}

/// Makes an error of the database speak about the store.
pub(crate) fn explain(path: &Path, error: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotATaskStore(path),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::Locked(path),
        _ => OpenError::Database {
            path,
            source: Box::new(error),
        },
    }
}

/// Looks before anything is changed: a file of somebody else's stays as it is. Tells the
/// version of what is in it, 0 if there is nothing yet.
fn check(connection: &Connection, path: &Path, may_be_empty: bool) -> Result<i32, OpenError> {
    let explain = |error| explain(path, error);
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let application = number("application_id").map_err(explain)?;
    let found = number("user_version").map_err(explain)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(explain)?;
    if may_be_empty && tables == 0 && application == 0 && found == 0 {
        return Ok(0);
    }
    if application != APPLICATION_ID {
        return Err(OpenError::NotATaskStore(path.to_owned()));
    }
    if SCHEMA_VERSION < found {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found,
            known: SCHEMA_VERSION,
        });
    }
    Ok(found)
}

fn prepare(connection: &mut Connection, version: i32) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let limit = MAX_KEPT_LOG_BYTES;
    connection.pragma_update_and_check(None, "journal_size_limit", limit, |_| Ok(()))?;
    // Arguments of calls that are over are not to be found in the file.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    if version < SCHEMA_VERSION {
        let transaction = connection.transaction()?;
        if version < 1 {
            transaction.execute_batch(RECORDS)?;
        }
        transaction.execute_batch(RUNS)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        transaction.commit()?;
    }
    Ok(())
}
