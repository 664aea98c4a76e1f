//! A directory of this process's own in the temporary directory, and the end of those whose owners are
//! gone: whoever is killed cannot remove its own.

use rustix::process::geteuid;
use std::{
    ffi::OsStr,
    fs::{self, File, Permissions, TryLockError},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// Prefix of the names of all of them.
const PREFIX: &str = "owlclaw-";
/// Number of letters and digits that follow, which no other user can guess.
const RANDOM: usize = 6;
/// The file that the owner holds locked as long as it lives. The system lets go of it with the process,
/// however that ends; a number of a process may mean another one meanwhile, or one elsewhere.
const OWNER: &str = "owner.lock";
/// The longest path, in bytes: a socket's path may have about a hundred.
const MAX_PATH: usize = 80;
/// Number of further attempts when another process took a new directory for left behind before it
/// was locked.
const MAX_ATTEMPTS: usize = 8;
/// Most names of the temporary directory that one start reads.
const MAX_NAMES: usize = 10_000;
/// Most directories that one start removes. The next start removes others.
const MAX_REMOVED: usize = 64;

/// A directory that only this user may enter. Removed when dropped.
#[derive(Debug)]
pub(super) struct PrivateDirectory {
    // Removed before it is let go of: fields are dropped in their order.
    directory: TempDir,
    /// Lock of the directory; `None` where the file system has no locks: then no process takes it
    /// for left behind.
    _owner: Option<File>,
}

impl PrivateDirectory {
    /// Makes one in the temporary directory, or in `/tmp` where that has too long a name.
    pub(super) fn create() -> io::Result<Self> {
        match Self::create_in(&std::env::temp_dir()) {
            Ok(made) if made.path().as_os_str().len() <= MAX_PATH => Ok(made),
            _ => Self::create_in(Path::new("/tmp")),
        }
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        for _ in 0..MAX_ATTEMPTS {
            let mut builder = tempfile::Builder::new();
            builder.prefix(PREFIX).rand_bytes(RANDOM);
            builder.permissions(Permissions::from_mode(0o700));
            let directory = builder.tempdir_in(parent)?;
            match own(directory.path()) {
                Ok(Owned::Yes(owner)) => {
                    return Ok(Self {
                        directory,
                        _owner: owner,
                    });
                }
                Ok(Owned::TakenAway) => {}
                // It was removed before there was a file in it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(
            "another process removes every directory that is made",
        ))
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Path of the directory in which it is, and others may have been left.
    pub(super) fn parent(&self) -> Option<PathBuf> {
        self.path().parent().map(Path::to_owned)
    }
}

/// Outcome of the attempt to own a directory.
enum Owned {
    /// With the locked file, where there are locks.
    Yes(Option<File>),
    /// Another process took the directory for left behind.
    TakenAway,
}

fn own(directory: &Path) -> io::Result<Owned> {
    let path = directory.join(OWNER);
    // It is closed in every program that this one starts.
    let owner = File::create_new(&path)?;
    match owner.try_lock() {
        // A file without a name was removed, and its directory with it, before it was locked.
        Ok(()) if owner.metadata()?.nlink() == 0 => Ok(Owned::TakenAway),
        Ok(()) => Ok(Owned::Yes(Some(owner))),
        Err(TryLockError::WouldBlock) => Ok(Owned::TakenAway),
        Err(TryLockError::Error(_)) => {
            fs::remove_file(&path)?;
            Ok(Owned::Yes(None))
        }
    }
}

/// Removes directories in `parent` whose owners were of this user and are gone, some at a time; returns
/// how many.
pub(super) fn remove_left_behind(parent: &Path) -> usize {
    let Ok(names) = fs::read_dir(parent) else {
        return 0;
    };
    let mut removed = 0;
    for entry in names.take(MAX_NAMES).flatten() {
        if removed == MAX_REMOVED {
            break;
        }
        if !is_name(&entry.file_name()) {
            continue;
        }
        match remove_if_left_behind(&entry.path()) {
            Ok(true) => removed += 1,
            Ok(false) => {}
            Err(error) => tracing::debug!(
                error = &error as &dyn std::error::Error,
                directory = %entry.path().display(),
                "a directory that a server left behind could not be removed"
            ),
        }
    }
    removed
}

fn is_name(name: &OsStr) -> bool {
    let random = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    random.is_some_and(|random| {
        random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Removes `directory` if its owner is gone; returns true if it did.
fn remove_if_left_behind(directory: &Path) -> io::Result<bool> {
    let there = match fs::symlink_metadata(directory) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // Others can neither put one there nor anything in it.
    if !there.is_dir() || there.uid() != geteuid().as_raw() || there.mode() & 0o077 != 0 {
        return Ok(false);
    }
    let path = directory.join(OWNER);
    // Without the file nobody knows, for instance before the owner has made it.
    if !fs::symlink_metadata(&path).is_ok_and(|file| file.is_file()) {
        return Ok(false);
    }
    let owner = match File::open(&path) {
        Ok(owner) => owner,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match owner.try_lock() {
        // Another has removed it meanwhile, and its name may be somebody else's.
        Ok(()) if owner.metadata()?.nlink() == 0 => Ok(false),
        Ok(()) => empty(directory).map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes `directory`, and last the file that says whose it is: when this process ends midway, the next
/// one goes on.
fn empty(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name() == OWNER {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(directory.join(OWNER))?;
    fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::fs::symlink, sync::Barrier, thread};

    /// One as a process leaves it that is killed.
    fn left_behind(parent: &Path) -> PathBuf {
        let PrivateDirectory { directory, _owner } = PrivateDirectory::create_in(parent).unwrap();
        let path = directory.keep();
        fs::create_dir(path.join("package")).unwrap();
        fs::write(path.join("package/file"), "text").unwrap();
        symlink("/nowhere", path.join("link")).unwrap();
        path
    }

    #[test]
    fn what_is_left_behind_is_removed_and_what_is_in_use_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let used = PrivateDirectory::create_in(parent.path()).unwrap();
        fs::write(used.path().join("file"), "text").unwrap();
        let left = [left_behind(parent.path()), left_behind(parent.path())];
        assert_eq!(remove_left_behind(parent.path()), 2);
        assert!(!left[0].exists() && !left[1].exists());
        assert_eq!(
            fs::read_to_string(used.path().join("file")).unwrap(),
            "text"
        );
        assert_eq!(remove_left_behind(parent.path()), 0);
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }

    #[test]
    fn what_was_removed_in_part_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let left = left_behind(parent.path());
        fs::remove_dir_all(left.join("package")).unwrap();
        assert_eq!(remove_left_behind(parent.path()), 1);
        assert!(!left.exists());
    }

    #[test]
    fn what_may_be_of_others_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let in_parent = |name: &str| parent.path().join(name);
        // Another program's names.
        for name in [
            "owlclaw-postgres-abcdef",
            "owlclaw-abcde",
            "owlclaw-abc-ef",
            "abcdef",
        ] {
            fs::rename(left_behind(parent.path()), in_parent(name)).unwrap();
        }
        // One into which others may write, one whose owner has not said that it is there, a file, and a
        // link to what would be removed here.
        let open = left_behind(parent.path());
        fs::set_permissions(&open, Permissions::from_mode(0o770)).unwrap();
        let young = left_behind(parent.path());
        fs::remove_file(young.join(OWNER)).unwrap();
        fs::write(in_parent("owlclaw-aaaaaa"), "text").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let target = left_behind(elsewhere.path());
        symlink(&target, in_parent("owlclaw-bbbbbb")).unwrap();
        let before = fs::read_dir(parent.path()).unwrap().count();
        assert_eq!(remove_left_behind(parent.path()), 0);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), before);
        assert!(target.join("package/file").exists());
    }

    #[test]
    fn no_more_are_removed_at_once_than_there_may_be() {
        let parent = tempfile::tempdir().unwrap();
        for _ in 0..=MAX_REMOVED {
            left_behind(parent.path());
        }
        assert_eq!(remove_left_behind(parent.path()), MAX_REMOVED);
        assert_eq!(remove_left_behind(parent.path()), 1);
    }

    #[test]
    fn servers_that_start_together_remove_what_was_left_and_nothing_of_each_other() {
        const SERVERS: usize = 8;
        const ROUNDS: usize = 20;
        let parent = tempfile::tempdir().unwrap();
        let together = Barrier::new(SERVERS);
        thread::scope(|scope| {
            for _ in 0..SERVERS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        left_behind_or_gone(parent.path());
                        together.wait();
                        let own = PrivateDirectory::create_in(parent.path()).unwrap();
                        remove_left_behind(parent.path());
                        together.wait();
                        assert!(own.path().join(OWNER).exists());
                    }
                });
            }
        });
        assert_eq!(remove_left_behind(parent.path()), 0);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    /// One as a process leaves it, which another may remove at once.
    fn left_behind_or_gone(parent: &Path) {
        let PrivateDirectory { directory, _owner } = PrivateDirectory::create_in(parent).unwrap();
        let path = directory.keep();
        // It is still in use here, so nobody removes it while it is written.
        fs::write(path.join("file"), "text").unwrap();
    }
}
