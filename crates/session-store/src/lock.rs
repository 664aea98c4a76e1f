//! Two servers must not own one store: each would bring the other's sessions back.

use crate::OpenError;
use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The right to use a store, held until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
    was_a_store: bool,
}

/// What is in the lock file of a store that was opened once.
const MARK: &[u8] = b"session store\n";

impl StoreLock {
    /// Takes the right to use the store at `path`, which must be free of links.
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        let lock_path = lock_path(path);
        let failed = |source| OpenError::File {
            path: lock_path.clone(),
            source,
        };
        let file = private(OpenOptions::new().append(true).create(true))
            .open(&lock_path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::Locked(path.to_owned())),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let was_a_store = 0 < file.metadata().map_err(failed)?.len();
        Ok(Self { file, was_a_store })
    }

    /// Whether there was a store at this place before, whatever is there now.
    pub(crate) fn was_a_store(&self) -> bool {
        self.was_a_store
    }

    /// Notes that there is one.
    pub(crate) fn mark(&mut self) -> io::Result<()> {
        if !self.was_a_store {
            self.file.write_all(MARK)?;
            self.was_a_store = true;
        }
        Ok(())
    }
}

/// Beside the store, and never removed: removing a lock file lets two processes lock two files.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Lets new files be read and written by their owner alone: who has a session's id may use it.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
