//! Changes of vaults, one writer at a time, and of their keys.

use crate::{
    Key, Vault, VaultError,
    file::{beside, clear_drafts, private_content, write_private},
    key::{next, text_of},
    vault::key_id_of,
};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Time that a writer waits for another one.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lock of a writer; given up when it is dropped, or when the process ends however it does.
struct Lock {
    _file: File,
}

fn lock(path: &Path) -> Result<Lock, VaultError> {
    let target = path.canonicalize().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => VaultError::Missing(path.to_owned()),
        _ => VaultError::Io {
            path: path.to_owned(),
            what: "read",
            source,
        },
    })?;
    let lock_path = beside(&target, ".lock");
    let failed = |source| VaultError::Io {
        path: lock_path.clone(),
        what: "opened",
        source,
    };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock_path)
        .map_err(failed)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(fs::TryLockError::WouldBlock) => return Err(VaultError::Locked(path.to_owned())),
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
    clear_drafts(&target);
    Ok(Lock { _file: file })
}

/// Returns true if a writer has the vault at this moment.
#[must_use]
pub fn is_locked(path: &Path) -> bool {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let file = OpenOptions::new()
        .write(true)
        .open(beside(&target, ".lock"));
    file.is_ok_and(|it| matches!(it.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

/// Changes a vault. No other writer changes it meanwhile, or its key, which is read then; if `change` fails, it
/// stays as it is.
///
/// # Errors
///
/// Errors of `key` and of `change`, of opening the vault, and of writing it; [`VaultError::Locked`] after ten seconds.
pub fn edit<T, E: From<VaultError>>(
    path: &Path,
    key: impl FnOnce() -> Result<Key, VaultError>,
    change: impl FnOnce(&mut Vault) -> Result<T, E>,
) -> Result<T, E> {
    let _lock = lock(path)?;
    let key = key()?;
    let mut vault = Vault::open(path, &key)?;
    let changed = change(&mut vault)?;
    write_private(path, &vault.sealed(&key)?, true)?;
    Ok(changed)
}

/// Seals a vault with another key. With `key_file` the new key takes the place of the one in that file, too;
/// a process that is killed between the two leaves the new key beside it, where [`Key::read_for`] finds it. The
/// present key is read once no other writer can change it.
///
/// # Errors
///
/// As [`edit`].
pub fn rotate(
    path: &Path,
    key: impl FnOnce() -> Result<Key, VaultError>,
    new: &Key,
    key_file: Option<&Path>,
) -> Result<(), VaultError> {
    let _lock = lock(path)?;
    let key = key()?;
    let vault = Vault::open(path, &key)?;
    if let Some(file) = key_file {
        let next = next(file);
        clear_drafts(&next);
        if Key::read(file)? == key {
            // Left by a rotation that did not come to seal the vault with it.
            let _ = fs::remove_file(&next);
        } else {
            // The key in use is the next one of a rotation that was cut off, which is finished first.
            take_next(file)?;
        }
        write_private(&next, &text_of(new), false)?;
    }
    write_private(path, &vault.sealed(new)?, true)?;
    match key_file {
        Some(file) => take_next(file),
        None => Ok(()),
    }
}

/// Puts the next key in the place of the one before.
fn take_next(file: &Path) -> Result<(), VaultError> {
    let failed = |source| VaultError::Io {
        path: file.to_owned(),
        what: "replaced",
        source,
    };
    let target = file.canonicalize().map_err(failed)?;
    fs::rename(next(file), &target).map_err(failed)?;
    let directory = target.parent().unwrap_or(Path::new("/"));
    File::open(directory)
        .and_then(|it| it.sync_all())
        .map_err(failed)
}

impl Key {
    /// Reads the key from `file` that the vault at `vault` is sealed with: after a rotation that was cut off, the
    /// next one beside it.
    ///
    /// # Errors
    ///
    /// As [`Key::read`].
    pub fn read_for(vault: &Path, file: &Path) -> Result<Self, VaultError> {
        let key = Self::read(file)?;
        let Some(text) = private_content(vault)? else {
            return Ok(key);
        };
        if key_id_of(&text, vault).is_ok_and(|id| id != key.id())
            && let Ok(next) = Self::read(&next(file))
            && key_id_of(&text, vault).is_ok_and(|id| id == next.id())
        {
            return Ok(next);
        }
        Ok(key)
    }
}
