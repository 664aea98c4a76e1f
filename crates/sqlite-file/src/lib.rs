//! A `SQLite` file of ours: made for its owner alone, used by one process, and looked at before it is
//! changed.
//!
//! Whoever keeps something in a file says what marks it, a [`Format`], and does the same four steps:
//! [`create`] the file, take its [`FileLock`], [`open`](Format::open) it, which leaves a file of
//! somebody else as it is, and [`keep_a_log`]. What is in the tables is no concern of this crate.
//!
//! ```
//! use sqlite_file::{Access, FileLock, Format, create, keep_a_log};
//!
//! const NOTES: Format = Format { application_id: 0x4E4F_5445, version: 1 };
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("notes.db");
//! let path = create(&path)?;
//! let lock = FileLock::take(&path)?;
//! let (mut connection, version) = NOTES.open(&path, Access::Write)?;
//! keep_a_log(&connection, 1024 * 1024)?;
//! if version < NOTES.version {
//!     let transaction = connection.transaction()?;
//!     transaction.execute_batch("CREATE TABLE note (text TEXT NOT NULL) STRICT")?;
//!     NOTES.mark(&transaction)?;
//!     transaction.commit()?;
//! }
//! assert!(FileLock::take(&path).is_err(), "another process may not");
//! # drop(lock);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod format;
mod lock;

pub use crate::{
    file::{CreateError, FileIdentity, create, private},
    format::{Access, Format, Unusable, keep_a_log},
    lock::{FileLock, LockError, MAX_SAID_BYTES},
};
