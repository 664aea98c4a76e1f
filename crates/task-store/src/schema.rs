//! Schema of a store's file.

use rusqlite::Connection;
use sqlite_file::{Access, CreateError, FileLock, Format, LockError, Unusable, keep_a_log};
use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
};

/// Marks a `SQLite` file as one of ours, "OWLT", with the version of the tables below.
const TASKS: Format = Format {
    application_id: 0x4F57_4C54,
    version: 2,
};

/// A large transaction does not leave a log of its size behind for ever.
const MAX_KEPT_LOG_BYTES: i64 = 64 * 1024 * 1024;

/// Version 1. `text` is the last column, so that a query without it does not read its pages.
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

/// Reason why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or its directory cannot be made or opened.
    #[error("{} cannot be opened", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
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
        /// Version of the file.
        found: i32,
        /// The newest version known here.
        known: i32,
    },
    /// Any other error of the database, damage included.
    #[error("the task store {} cannot be read", path.display())]
    Database {
        /// The store.
        path: PathBuf,
        /// Error of the database.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The system gives no thread.
    #[error("the thread that owns the task store cannot be started")]
    Thread(#[source] io::Error),
}

/// Makes the file if need be, and takes the right to use it. Two servers must not: each would take
/// the other's tasks for unfinished ones. Returns its path without links.
pub(crate) fn take(path: &Path) -> Result<(PathBuf, FileLock), OpenError> {
    let path = sqlite_file::create(path)
        .map_err(|CreateError { path, source }| OpenError::File { path, source })?;
    match FileLock::take(&path) {
        Ok(lock) => Ok((path, lock)),
        Err(LockError::Held { .. }) => Err(OpenError::Locked(path)),
        Err(LockError::File { path, source }) => Err(OpenError::File { path, source }),
    }
}

/// Opens an existing file. An empty one is made a store if it `may_be_empty`; otherwise it was
/// emptied by another program, and going on as if nothing had been there would hide that.
pub(crate) fn open(path: &Path, may_be_empty: bool) -> Result<Connection, OpenError> {
    let access = match may_be_empty {
        true => Access::Write,
        false => Access::Share,
    };
    let opened = TASKS.open(path, access);
    let (mut connection, version) = opened.map_err(|unusable| explain(path, unusable))?;
    prepare(&mut connection, version).map_err(|error| explain(path, error))?;
    Ok(connection)
}

/// Makes an error of the database speak about the store.
pub(crate) fn explain(path: &Path, error: impl Into<Unusable>) -> OpenError {
    let path = path.to_owned();
    match error.into() {
        Unusable::NotADatabase | Unusable::Foreign => OpenError::NotATaskStore(path),
        Unusable::Newer { found, known } => OpenError::Newer { path, found, known },
        Unusable::Busy(_) => OpenError::Locked(path),
        Unusable::Database(error) => OpenError::Database {
            path,
            source: Box::new(error),
        },
        damaged @ Unusable::Damaged(_) => OpenError::Database {
            path,
            source: Box::new(damaged),
        },
    }
}

fn prepare(connection: &mut Connection, version: i32) -> rusqlite::Result<()> {
    keep_a_log(connection, MAX_KEPT_LOG_BYTES)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Arguments of calls that are over are not to be found in the file.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    if version < TASKS.version {
        let transaction = connection.transaction()?;
        if version < 1 {
            transaction.execute_batch(RECORDS)?;
        }
        transaction.execute_batch(RUNS)?;
        TASKS.mark(&transaction)?;
        transaction.commit()?;
    }
    Ok(())
}
