//! Two servers must not own one store: each would take the other's tasks for unfinished ones.

use crate::OpenError;
use std::{
    fs::{File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
};

/// The right to use a store, held until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct StoreLock {
    _file: File,
}

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
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

/// Beside the store, and never removed: removing a lock file lets two processes lock two files.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Lets new files be read and written by their owner alone: the store holds results.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
