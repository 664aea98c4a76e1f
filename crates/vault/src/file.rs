//! Files of vaults and keys: for their owner alone, and replaced as a whole.

use crate::{
    Key, Vault, VaultError,
    key::{next, text_of},
    vault::key_id_of,
};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};
use zeroize::Zeroizing;

/// A longer file is no vault.
pub(crate) const MAX_BYTES: u64 = 16 << 20;
/// Time that a writer waits for another one.
const PATIENCE: Duration = Duration::from_secs(10);

/// Content of a file that only its owner can use; `None` if there is no file.
pub(crate) fn private_content(path: &Path) -> Result<Option<Zeroizing<String>>, VaultError> {
    let failed = |source| VaultError::Io {
        path: path.to_owned(),
        what: "read",
        source,
    };
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::other("it is no file")));
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        let path = path.to_owned();
        return Err(VaultError::Loose { path, mode });
    }
    if MAX_BYTES < metadata.len() {
        return Err(failed(io::Error::other("it is too long")));
    }
    let mut text = Zeroizing::new(String::new());
    text.reserve(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    match file.take(MAX_BYTES).read_to_string(&mut text) {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(VaultError::Damaged {
            path: path.to_owned(),
            why: "it is no text",
        }),
        Err(error) => Err(failed(error)),
    }
}

/// Writes a file for its owner alone, which takes its place as a whole. Unless it `replaces` one, there must be
/// none.
pub(crate) fn write_private(path: &Path, text: &str, replaces: bool) -> Result<(), VaultError> {
    let failed = |source| VaultError::Io {
        path: path.to_owned(),
        what: "written",
        source,
    };
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed)?;
    // A link stays one: the file that it leads to is replaced.
    let target = match replaces {
        true => path.canonicalize().map_err(failed)?,
        false => path.to_owned(),
    };
    let draft = beside(&target, &format!(".{}.draft", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        // Whatever the mask says.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        match replaces {
            true => fs::rename(&draft, &target)?,
            // Unlike a rename, a link takes nothing's place.
            false => fs::hard_link(&draft, &target)?,
        }
        let directory = target.parent().unwrap_or(Path::new("/"));
        File::open(match directory.as_os_str().is_empty() {
            true => Path::new("."),
            false => directory,
        })?
        .sync_all()
    })();
    if written.is_err() || !replaces {
        let _ = fs::remove_file(&draft);
    }
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists if !replaces => VaultError::Exists(path.to_owned()),
        _ => failed(error),
    })
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

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

/// Removes what writers have left that were killed. Only who has the lock writes drafts.
fn clear_drafts(target: &Path) {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let beginning = format!("{name}.");
    let entries = target.parent().and_then(|it| fs::read_dir(it).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let found = entry.file_name();
        let middle = found
            .to_str()
            .and_then(|it| it.strip_prefix(&beginning)?.strip_suffix(".draft"));
        if middle.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit())) {
            let _ = fs::remove_file(entry.path());
        }
    }
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

/// Changes a vault. No other writer changes it meanwhile; if `change` fails, it stays as it is.
///
/// # Errors
///
/// Errors of `change`, of opening the vault, and of writing it; [`VaultError::Locked`] after ten seconds.
pub fn edit<T, E: From<VaultError>>(
    path: &Path,
    key: &Key,
    change: impl FnOnce(&mut Vault) -> Result<T, E>,
) -> Result<T, E> {
    let _lock = lock(path)?;
    let mut vault = Vault::open(path, key)?;
    let changed = change(&mut vault)?;
    write_private(path, &vault.sealed(key)?, true)?;
    Ok(changed)
}

/// Seals a vault with another key. With `key_file` the new key takes the place of the one in that file, too;
/// a process that is killed between the two leaves the new key beside it, where [`Key::read_for`] finds it.
///
/// # Errors
///
/// As [`edit`].
pub fn rotate(
    path: &Path,
    key: &Key,
    new: &Key,
    key_file: Option<&Path>,
) -> Result<(), VaultError> {
    let _lock = lock(path)?;
    let vault = Vault::open(path, key)?;
    if let Some(file) = key_file {
        let next = next(file);
        clear_drafts(&next);
        if Key::read(file)? == *key {
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

/// The key in a file that a vault is sealed with: of a rotation that was cut off, the next one.
pub(crate) fn key_for(path: &Path, file: &Path) -> Result<Key, VaultError> {
    let key = Key::read(file)?;
    let Some(text) = private_content(path)? else {
        return Ok(key);
    };
    if key_id_of(&text, path).is_ok_and(|id| id != key.id())
        && let Ok(next) = Key::read(&next(file))
        && key_id_of(&text, path).is_ok_and(|id| id == next.id())
    {
        return Ok(next);
    }
    Ok(key)
}
