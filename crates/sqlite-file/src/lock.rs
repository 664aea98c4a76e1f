//! Two processes must not own one file: each would undo what the other does.

use crate::file::private;
use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// The most bytes read of what a lock file says.
pub const MAX_SAID_BYTES: u64 = 256;

/// The right to use a file, held until it is dropped or the process ends.
///
/// It is a lock of a file beside it, named like it with `.lock` at the end. That is never removed:
/// removing a lock file lets two processes lock two files.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    found: String,
}

/// A file cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("the file is in use by another process")]
    Held {
        /// Content of the lock file, which may be empty: the process that holds it may be about to
        /// write it.
        said: String,
    },
    /// The lock file cannot be made, read or locked.
    #[error("{} cannot be opened", path.display())]
    File {
        /// The lock file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl FileLock {
    /// Takes the right to use the file at `path`, which must be free of links:
    /// [`create`](crate::create) returns such a path.
    ///
    /// # Errors
    ///
    /// [`LockError`]; it does not wait.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let lock_path = lock_path(path);
        let failed = |source| LockError::File {
            path: lock_path.clone(),
            source,
        };
        let mut file = private(OpenOptions::new().read(true).write(true).create(true))
            .open(&lock_path)
            .map_err(failed)?;
        let locked = file.try_lock();
        let mut said = Vec::new();
        let read = (&mut file).take(MAX_SAID_BYTES).read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        match locked {
            Ok(()) => {}
            // What cannot be read then is as good as nothing.
            Err(TryLockError::WouldBlock) => return Err(LockError::Held { said }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        read.map_err(failed)?;
        Ok(Self { file, found: said })
    }

    /// Content of the lock file when the lock was taken: empty, if nothing was ever written.
    #[must_use]
    pub fn found(&self) -> &str {
        &self.found
    }

    /// Writes `text` into the lock file, for processes that ask meanwhile and for the next holder.
    ///
    /// # Errors
    ///
    /// When the lock file cannot be written.
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        writeln!(self.file, "{text}")
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}
