//! Two servers must not append to one ledger: their sequences would collide.

use crate::OpenError;
use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// The most bytes read of who holds a lock.
const MAX_HOLDER_BYTES: u64 = 256;

/// The right to append to a ledger, held until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct LedgerLock {
    _file: File,
}

impl LedgerLock {
    /// Takes the right to append to the ledger at `path`, which must exist and be free of links.
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        let lock_path = lock_path(path);
        let failed = |source| OpenError::File {
            path: lock_path.clone(),
            source,
        };
        let mut file = private(OpenOptions::new().read(true).write(true).create(true))
            .open(&lock_path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Whoever holds it may be about to write; an empty answer is good enough.
                let _ = (&mut file)
                    .take(MAX_HOLDER_BYTES)
                    .read_to_string(&mut holder);
                let holder = match holder.trim() {
                    "" => "an unknown process".to_owned(),
                    holder => holder.to_owned(),
                };
                return Err(OpenError::Locked {
                    path: path.to_owned(),
                    holder,
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(file, "process {}", std::process::id()))
            .map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// Beside the ledger, and never removed: removing a lock file lets two processes lock two files.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Lets new files be read and written by their owner alone: the ledger holds arguments.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
