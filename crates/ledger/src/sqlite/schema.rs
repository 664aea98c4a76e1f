//! Schema of a ledger file.

use crate::sqlite::{archive::StateError, index};
use rusqlite::{Connection, TransactionBehavior, config::DbConfig};
use sqlite_file::{Access, CreateError, FileLock, Format, LockError, Unusable, keep_a_log};
use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
};

/// Marks a `SQLite` file as one of ours, "OWLL", with the version of the tables below.
const LEDGER: Format = Format {
    application_id: 0x4F57_4C4C,
    version: 4,
};

/// The most of a ledger that a reader keeps in memory, in KiB, and the most that a writer does. A
/// row of the index is put into ten trees; those of ten million entries, whose upper pages do not
/// fit into the two megabytes that the database takes by itself, then cost twice as much writing.
const CACHE_KIB: i64 = 16 * 1024;

/// Bytes to which the database's log is cut back. A long read beside much appending makes the log
/// grow, and the process that opens the ledger after a crash reads all of it.
pub(crate) const MAX_KEPT_LOG_BYTES: i64 = 64 * 1024 * 1024;

/// Version 1. `entry_group` is the ledger: what was called, in order and without gaps. The index to it, made
/// afterwards, has a version of its own.
const TABLES: &str = "
    CREATE TABLE entry_group (
        first_sequence INTEGER PRIMARY KEY,
        count INTEGER NOT NULL,
        hash BLOB NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
";

/// Version 2. A group has a name, by which it is known when it is tried again; `operation_outcome`
/// has one row at most, for the last group with operations. An approval is `noted` when the
/// ledger says of its last decision or expiry: another process that decides leaves that to the
/// server. Unsigned numbers of 64 bits (`policy_version`) are stored as signed ones.
const TABLES_2: &str = "
    ALTER TABLE entry_group ADD COLUMN id BLOB;
    CREATE TABLE operation_outcome (group_id BLOB NOT NULL, outcomes BLOB NOT NULL) STRICT;
    CREATE TABLE approval (
        id BLOB PRIMARY KEY,
        binding BLOB NOT NULL,
        principal TEXT NOT NULL,
        capability TEXT NOT NULL,
        arguments TEXT NOT NULL,
        policy_version INTEGER NOT NULL,
        reason TEXT NOT NULL,
        needs TEXT NOT NULL,
        requested_us INTEGER NOT NULL,
        expires_us INTEGER NOT NULL,
        state TEXT NOT NULL,
        decided_by TEXT,
        decided_us INTEGER,
        used_by BLOB,
        used_us INTEGER,
        noted INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX approval_live ON approval (binding)
        WHERE state IN ('pending', 'approved', 'denied');
    CREATE INDEX approval_pending ON approval (principal, expires_us) WHERE state = 'pending';
    CREATE INDEX approval_by_expiry ON approval (expires_us);
    CREATE INDEX approval_unnoted ON approval (noted) WHERE noted = 0;
    CREATE TABLE idempotency_key (
        principal TEXT NOT NULL,
        key TEXT NOT NULL,
        capability TEXT NOT NULL,
        digest BLOB NOT NULL,
        call BLOB NOT NULL,
        at_us INTEGER NOT NULL,
        until_us INTEGER NOT NULL,
        state TEXT NOT NULL,
        result TEXT,
        PRIMARY KEY (principal, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX idempotency_key_by_call ON idempotency_key (call);
    CREATE INDEX idempotency_key_by_expiry ON idempotency_key (until_us);
";

/// Version 3. A decision and its revocation are kept with the decider's proof of identity and reason;
/// `decision` stays after a revocation.
const TABLES_3: &str = "
    ALTER TABLE approval ADD COLUMN decision TEXT;
    ALTER TABLE approval ADD COLUMN decided_proof TEXT;
    ALTER TABLE approval ADD COLUMN decided_reason TEXT;
    ALTER TABLE approval ADD COLUMN revoked_by TEXT;
    ALTER TABLE approval ADD COLUMN revoked_us INTEGER;
    ALTER TABLE approval ADD COLUMN revoked_proof TEXT;
    ALTER TABLE approval ADD COLUMN revoked_reason TEXT;
";

/// Version 4. What has been taken out into archives ([`crate::sqlite::archive`]), and what of it stays.
/// `archived` has one row: the last entry that was taken out, its hash, and the number of calls whose rows are
/// gone. `carried_start` has the starts of calls that had not ended by then; the sums are of calls that were
/// taken out, by days and, since months may begin elsewhere than in UTC, by quarters of an hour for as long
/// as a budget can depend on them. `unsaid_note` is what another process has done and the server puts on record.
const TABLES_4: &str = "
    CREATE TABLE archived (
        through INTEGER NOT NULL,
        hash BLOB NOT NULL,
        calls INTEGER NOT NULL,
        directory TEXT NOT NULL
    ) STRICT;
    INSERT INTO archived VALUES (0, zeroblob(32), 0, '');
    CREATE TABLE archive_segment (
        number INTEGER PRIMARY KEY,
        file TEXT NOT NULL,
        first_sequence INTEGER NOT NULL,
        last_sequence INTEGER NOT NULL,
        last_hash BLOB NOT NULL,
        first_start INTEGER NOT NULL,
        from_us INTEGER NOT NULL,
        until_us INTEGER NOT NULL,
        deleted_us INTEGER
    ) STRICT;
    CREATE TABLE carried_start (
        sequence INTEGER PRIMARY KEY,
        start_group INTEGER NOT NULL,
        start_offset INTEGER NOT NULL,
        entry BLOB NOT NULL
    ) STRICT;
    CREATE TABLE carried_day (
        day INTEGER NOT NULL,
        principal TEXT NOT NULL,
        kind TEXT NOT NULL,
        capability TEXT NOT NULL,
        latest_us INTEGER NOT NULL,
        used_calls INTEGER NOT NULL,
        used_micros INTEGER NOT NULL,
        dearest_micros INTEGER NOT NULL,
        tally BLOB NOT NULL,
        PRIMARY KEY (day, principal, kind, capability)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE carried_quarter (
        quarter INTEGER NOT NULL,
        principal TEXT NOT NULL,
        kind TEXT NOT NULL,
        capability TEXT NOT NULL,
        latest_us INTEGER NOT NULL,
        used_calls INTEGER NOT NULL,
        used_micros INTEGER NOT NULL,
        dearest_micros INTEGER NOT NULL,
        PRIMARY KEY (quarter, principal, kind, capability)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE legal_hold (
        number INTEGER PRIMARY KEY,
        principal TEXT,
        capability TEXT,
        since_us INTEGER,
        until_us INTEGER,
        set_by TEXT NOT NULL,
        reason TEXT NOT NULL,
        set_us INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE unsaid_note (
        number INTEGER PRIMARY KEY,
        at_us INTEGER NOT NULL,
        kind TEXT NOT NULL,
        actor TEXT NOT NULL,
        subject TEXT NOT NULL,
        detail TEXT NOT NULL
    ) STRICT;
";

/// Reason why a ledger could not be opened.
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
    /// Another server writes to it.
    #[error("the ledger {} is in use by {holder}", path.display())]
    Locked {
        /// The ledger.
        path: PathBuf,
        /// Process that holds it.
        holder: String,
    },
    /// There is no such ledger.
    #[error("there is no ledger {}", .0.display())]
    Missing(PathBuf),
    /// The file is no database, or one of another program.
    #[error("{} is not a ledger", .0.display())]
    NotALedger(PathBuf),
    /// A newer version of this program has written it.
    #[error("the ledger {} has version {found}; this program knows versions up to {known}", path.display())]
    Newer {
        /// The ledger.
        path: PathBuf,
        /// Version found.
        found: i32,
        /// The newest version known here.
        known: i32,
    },
    /// An older version of this program has written it, and no newer one has opened it since.
    #[error("the ledger {} is of an older version: a server must open it first", .0.display())]
    Older(PathBuf),
    /// Any other error of the database, damage included.
    #[error("the ledger {} cannot be read", path.display())]
    Database {
        /// The ledger.
        path: PathBuf,
        /// Error of the database.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Makes the file if need be, and takes the right to append to it. Two servers must not: their
/// sequences would collide. Tells its path without links.
pub(crate) fn take(path: &Path) -> Result<(PathBuf, FileLock), OpenError> {
    let path = sqlite_file::create(path)
        .map_err(|CreateError { path, source }| OpenError::File { path, source })?;
    let failed = |source| OpenError::File {
        path: path.clone(),
        source,
    };
    let mut lock = FileLock::take(&path).map_err(|error| match error {
        LockError::File { path, source } => OpenError::File { path, source },
        LockError::Held { said } => OpenError::Locked {
            path: path.clone(),
            holder: match said.is_empty() {
                true => "an unknown process".to_owned(),
                false => said,
            },
        },
    })?;
    lock.say(&format!("process {}", std::process::id()))
        .map_err(failed)?;
    Ok((path, lock))
}

/// Opens an existing ledger file for appending; an empty one is made a ledger.
pub(crate) fn open_to_append(path: &Path, synchronous: &str) -> Result<Connection, OpenError> {
    let mut connection = open(path, Access::Write)?;
    if index::lacks_state(&connection).map_err(|error| explain(path, error))? {
        return Err(OpenError::Database {
            path: path.to_owned(),
            source: Box::new(StateError::NoRow),
        });
    }
    prepare(&mut connection, synchronous).map_err(|error| explain(path, error))?;
    Ok(connection)
}

/// Opens an existing ledger file beside the server that appends to it, to decide approvals.
pub(crate) fn open_to_decide(path: &Path) -> Result<Connection, OpenError> {
    if !path.exists() {
        return Err(OpenError::Missing(path.to_owned()));
    }
    let connection = open(path, Access::Share)?;
    let is_current = connection
        .column_exists(None, "approval", "revoked_by")
        .map_err(|error| explain(path, error))?;
    if !is_current {
        return Err(OpenError::Older(path.to_owned()));
    }
    connection
        .pragma_update(None, "synchronous", "FULL")
        .map_err(|error| explain(path, error))?;
    Ok(connection)
}

/// Opens an existing ledger file beside the server that appends to it, to take entries out.
pub(crate) fn open_to_archive(path: &Path) -> Result<Connection, OpenError> {
    if !path.exists() {
        return Err(OpenError::Missing(path.to_owned()));
    }
    let connection = open(path, Access::Share)?;
    let failed = |error| explain(path, error);
    let is_current = connection.table_exists(None, "archived").map_err(failed)?;
    if !is_current || !index::is_current(&connection).map_err(failed)? {
        return Err(OpenError::Older(path.to_owned()));
    }
    connection
        .pragma_update(None, "cache_size", -CACHE_KIB)
        .map_err(failed)?;
    // What is taken out is in a segment that has reached the disk: a crash may undo the taking out.
    connection
        .pragma_update(None, "synchronous", "NORMAL")
        .map_err(failed)?;
    Ok(connection)
}

/// Opens an existing ledger file for reading.
pub(crate) fn open_to_read(path: &Path) -> Result<Connection, OpenError> {
    if !path.exists() {
        return Err(OpenError::Missing(path.to_owned()));
    }
    let connection = open(path, Access::Read)?;
    // A page of calls may be in as many groups, and the next page in the same ones.
    connection
        .pragma_update(None, "cache_size", -CACHE_KIB)
        .map_err(|error| explain(path, error))?;
    Ok(connection)
}

fn open(path: &Path, access: Access) -> Result<Connection, OpenError> {
    let (connection, _) = LEDGER
        .open(path, access)
        .map_err(|unusable| explain(path, unusable))?;
    // A ledger has none, and what an attacker has put there changes nothing while a server writes.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)
        .map_err(|error| explain(path, error))?;
    Ok(connection)
}

/// Makes an error of the database speak about the ledger.
pub(crate) fn explain(path: &Path, error: impl Into<Unusable>) -> OpenError {
    let path = path.to_owned();
    match error.into() {
        Unusable::NotADatabase | Unusable::Foreign => OpenError::NotALedger(path),
        Unusable::Newer { found, known } => OpenError::Newer { path, found, known },
        Unusable::Busy(_) => OpenError::Locked {
            path,
            holder: "another program".to_owned(),
        },
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

fn prepare(connection: &mut Connection, synchronous: &str) -> rusqlite::Result<()> {
    keep_a_log(connection, MAX_KEPT_LOG_BYTES)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: i32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found < 1 {
        transaction.execute_batch(TABLES)?;
    }
    if found < 2 {
        transaction.execute_batch(TABLES_2)?;
    }
    if found < 3 {
        transaction.execute_batch(TABLES_3)?;
    }
    if found < 4 {
        transaction.execute_batch(TABLES_4)?;
    }
    if found < LEDGER.version {
        LEDGER.mark(&transaction)?;
    }
    index::prepare(&transaction)?;
    transaction.commit()
}
