//! Directories as handles: whatever is opened lies below, and is reached without a symbolic link.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{self, Access, AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat},
    io::Errno,
};

use crate::files::{
    address::Relative,
    own::{Guard, Id, KeptOut, is_program},
};

/// Failure of an operation on a root.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    /// A path where nothing is, or on whose way a symbolic link is, which is the same to callers.
    #[error("there is no such file")]
    NotFound,
    /// A place without a regular file.
    #[error("this is no regular file")]
    NotAFile,
    /// More than the bound.
    #[error("the file has more than {max_bytes} bytes")]
    TooLarge {
        /// The bound.
        max_bytes: u64,
    },
    /// A name that is taken.
    #[error("something of this name is there already")]
    Exists,
    /// A file system that can only be read, or a directory in which this process may not write.
    #[error("the system does not let anything be written there")]
    ReadOnly,
    /// A module of an application, which is not written through a directory of files.
    #[error("code that the server runs is not written here")]
    Code,
    /// Two places on different file systems, between which nothing is moved.
    #[error("the two places are on different file systems; create it there, and delete it here")]
    Elsewhere,
    /// No room, or none that this process may use.
    #[error("there is no room left where the file would be kept")]
    Full,
    /// The system refuses.
    #[error("the system refuses")]
    Io(#[source] io::Error),
}

impl RootError {
    /// Failure of what was done with a file that was open.
    fn of_file(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::Io(error),
        }
    }
}

impl From<Errno> for RootError {
    fn from(errno: Errno) -> Self {
        match errno {
            // LOOP and NOTDIR: a link, or a file, where a directory was expected.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Self::NotFound,
            Errno::EXIST => Self::Exists,
            Errno::ISDIR => Self::NotAFile,
            Errno::ROFS => Self::ReadOnly,
            Errno::XDEV => Self::Elsewhere,
            Errno::NOSPC | Errno::DQUOT => Self::Full,
            errno => Self::Io(errno.into()),
        }
    }
}

/// Marks that tell one state of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    file: (u64, u64),
    pub(crate) size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Signature {
    fn of(stat: &Stat) -> Self {
        #[allow(
            clippy::useless_conversion,
            clippy::unnecessary_cast,
            reason = "platforms differ"
        )]
        Self {
            file: (stat.st_dev as u64, stat.st_ino as u64),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    /// True unless the content must be another one: not even the time of the last change says so.
    pub(crate) fn may_be_same_content(&self, other: &Self) -> bool {
        (self.file, self.size, self.modified) == (other.file, other.size, other.modified)
    }

    /// All of it as text, for a comparison after a restart.
    pub(crate) fn text(&self) -> String {
        let Self {
            file,
            size,
            modified,
            changed,
        } = self;
        format!("{file:?} {size} {modified:?} {changed:?}")
    }

    pub(crate) fn last_modified(&self) -> Option<SystemTime> {
        let (seconds, nanos) = self.modified;
        let nanos = Duration::from_nanos(u64::try_from(nanos).ok()?);
        let whole = Duration::from_secs(seconds.unsigned_abs());
        match seconds < 0 {
            true => SystemTime::UNIX_EPOCH
                .checked_sub(whole)?
                .checked_add(nanos),
            false => SystemTime::UNIX_EPOCH.checked_add(whole + nanos),
        }
    }
}

/// Kind of thing at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    File(Signature),
    Directory,
    /// A directory that is offered by this name of its own.
    Offered(String),
    /// A link, a pipe, a device: nothing to serve.
    Other,
}

/// A directory, as the handle that it was opened by: links to it may lead elsewhere later.
#[derive(Debug)]
pub(crate) struct Root {
    name: String,
    directory: OwnedFd,
    id: Id,
    guard: Arc<Guard>,
}

/// For directories on the way: no link is followed, and `openat` with one name cannot lead upwards. That is
/// `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS` of `openat2`, one name at a time, and works where that is missing.
const ON_THE_WAY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Beginning of the names of files that are being written. They are hidden, so nobody is served one.
const UNFINISHED: &str = ".owlclaw-write-";

impl Root {
    /// Opens a directory. Links that lead to it are the operator's, and followed.
    /// What `guard` keeps out of the one of this name is not there.
    pub(crate) fn open(path: &Path, name: &str, guard: &Arc<Guard>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = fs::open(path, flags, Mode::empty())?;
        let id = id_of(&fs::fstat(&directory)?);
        guard.offers(name, id);
        Ok(Self {
            name: name.to_owned(),
            directory,
            id,
            guard: Arc::clone(guard),
        })
    }

    /// Device and inode of the directory, which stay the same wherever it is moved to.
    pub(crate) fn id(&self) -> Id {
        self.id
    }

    fn kept_out(&self) -> Arc<KeptOut> {
        self.guard.kept_out_of(&self.name)
    }

    /// Tests if `path` leads to this directory now.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let own = fs::fstat(&self.directory);
        let there = fs::stat(path);
        matches!((own, there), (Ok(own), Ok(there)) if (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino))
    }

    /// The directory that has `path`, and its name in there.
    fn parent<'p>(
        &self,
        path: &'p Relative,
        kept: &KeptOut,
    ) -> Result<(Handle<'_>, &'p str), RootError> {
        let mut names: Vec<_> = path.names().collect();
        let name = names.pop().unwrap_or_default();
        Ok((self.directory(&names, kept)?, name))
    }

    fn directory(&self, names: &[&str], kept: &KeptOut) -> Result<Handle<'_>, RootError> {
        let mut at = self.start(kept)?;
        for name in names {
            at = at.enter(name, kept)?;
        }
        Ok(at)
    }

    fn start(&self, kept: &KeptOut) -> Result<Handle<'_>, RootError> {
        match kept.has(self.id) {
            true => Err(RootError::NotFound),
            false => Ok(Handle {
                directory: Opened::Root(self.directory.as_fd()),
                id: self.id,
                is_code: kept.is_code(self.id),
            }),
        }
    }

    /// Kind of thing at `path`; `None` if nothing is there, or a link is on the way.
    pub(crate) fn look(&self, path: &Relative) -> Result<Option<Found>, RootError> {
        let kept = self.kept_out();
        let found = self
            .parent(path, &kept)
            .and_then(|(at, name)| Ok(at.stat(name, &kept)?));
        match found {
            Ok(stat) => Ok(Some(found_by(&stat))),
            Err(RootError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All bytes of a regular file, and its state when it was opened.
    pub(crate) fn read(
        &self,
        path: &Relative,
        max_bytes: u64,
    ) -> Result<(Vec<u8>, Signature), RootError> {
        let kept = self.kept_out();
        let (at, name) = self.parent(path, &kept)?;
        read_at(&at, name, max_bytes, &kept)
    }

    /// Entries of a directory (`None`: the root), with what they are. Names that are no text are left out.
    pub(crate) fn list(&self, path: Option<&Relative>) -> Result<Vec<(String, Found)>, RootError> {
        let names: Vec<_> = path.into_iter().flat_map(Relative::names).collect();
        let kept = self.kept_out();
        let at = self.directory(&names, &kept)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(at.as_fd())? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            let found = fs::statat(at.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW);
            match found {
                Ok(stat) if let Some(other) = kept.root(id_of(&stat)) => {
                    entries.push((name.to_owned(), Found::Offered(other.to_owned())));
                }
                Ok(stat) if kept.has_name(at.id, name) || kept.has(id_of(&stat)) => {}
                Ok(stat) => entries.push((name.to_owned(), found_by(&stat))),
                // Deleted since, or kept out.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(entries)
    }

    /// Writes a file: beside its place first, and moved there once it is on the disk, so that no reader finds a part of
    /// it. A file that is replaced hands its permissions on.
    pub(crate) fn write(
        &self,
        path: &Relative,
        bytes: &[u8],
        how: Writing,
    ) -> Result<(), RootError> {
        match how {
            Writing::New => self.in_new_directories(path, || self.write_there(path, bytes, how)),
            Writing::Replace => self.write_there(path, bytes, how),
        }
    }

    fn write_there(&self, path: &Relative, bytes: &[u8], how: Writing) -> Result<(), RootError> {
        let kept = self.kept_out();
        let (at, name) = self.parent(path, &kept)?;
        at.check_written(name, &kept)?;
        let unfinished = format!("{UNFINISHED}{}", unique());
        let mode = match at.stat(name, &kept) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o777)
            }
            Ok(_) => return Err(RootError::NotAFile),
            Err(Errno::NOENT) => Mode::from_raw_mode(0o666),
            Err(errno) => return Err(errno.into()),
        };
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(at.as_fd(), unfinished.as_str(), flags, mode)?;
        let write = || -> Result<(), RootError> {
            let mut file = File::from(file);
            if how == Writing::Replace {
                // Which the mask of the process may have narrowed.
                fs::fchmod(&file, mode)?;
            }
            file.write_all(bytes).map_err(RootError::of_file)?;
            file.sync_all().map_err(RootError::of_file)?;
            match how {
                Writing::Replace => {
                    fs::renameat(at.as_fd(), unfinished.as_str(), at.as_fd(), name)?
                }
                Writing::New => rename_new(at.as_fd(), &unfinished, at.as_fd(), name)?,
            }
            Ok(())
        };
        let moved = write();
        if moved.is_err() {
            let _gone = fs::unlinkat(at.as_fd(), unfinished.as_str(), AtFlags::empty());
        }
        moved?;
        // The name is on the disk, too.
        fs::fsync(at.as_fd()).map_err(RootError::from)
    }

    /// Tests if what is at `path` could be written, deleted or moved there now, as far as that is known without doing it.
    pub(crate) fn check(&self, path: &Relative, how: Writing) -> Result<(), RootError> {
        let kept = self.kept_out();
        let names: Vec<_> = path.names().collect();
        let mut at = self.start(&kept)?;
        for (index, name) in names.iter().enumerate() {
            let is_last = index + 1 == names.len();
            at.check_written(name, &kept)?;
            match at.stat(name, &kept) {
                // The directories that would be made are in the same one.
                Err(Errno::NOENT)
                    if how == Writing::New && at.is_code && is_program(path.name()) =>
                {
                    return Err(RootError::Code);
                }
                Err(Errno::NOENT) if how == Writing::New => return may_write(at.as_fd()),
                Err(errno) => return Err(errno.into()),
                Ok(stat) if is_last => {
                    return match FileType::from_raw_mode(stat.st_mode) {
                        FileType::RegularFile if how == Writing::New => Err(RootError::Exists),
                        FileType::RegularFile => may_write(at.as_fd()),
                        _ => Err(RootError::NotAFile),
                    };
                }
                Ok(_) => at = at.enter(name, &kept)?,
            }
        }
        Ok(())
    }

    /// Deletes a regular file.
    pub(crate) fn delete(&self, path: &Relative) -> Result<(), RootError> {
        let kept = self.kept_out();
        let (at, name) = self.parent(path, &kept)?;
        at.check_written(name, &kept)?;
        let stat = at.stat(name, &kept)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(RootError::NotAFile);
        }
        fs::unlinkat(at.as_fd(), name, AtFlags::empty())?;
        fs::fsync(at.as_fd()).map_err(RootError::from)
    }

    /// Moves a regular file to a name that is free.
    pub(crate) fn rename(&self, from: &Relative, to: &Relative) -> Result<(), RootError> {
        let kept = self.kept_out();
        let (at, name) = self.parent(from, &kept)?;
        at.check_written(name, &kept)?;
        let stat = at.stat(name, &kept)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(RootError::NotAFile);
        }
        self.in_new_directories(to, || {
            let (there, new_name) = self.parent(to, &kept)?;
            there.check_written(new_name, &kept)?;
            rename_new(at.as_fd(), name, there.as_fd(), new_name)?;
            fs::fsync(there.as_fd())?;
            fs::fsync(at.as_fd()).map_err(RootError::from)
        })
    }

    /// Tests if a file could be moved from one of these paths to the other one now, as far as file systems are concerned.
    pub(crate) fn check_move(&self, from: &Relative, to: &Relative) -> Result<(), RootError> {
        let kept = self.kept_out();
        let (at, _) = self.parent(from, &kept)?;
        let mut there = self.start(&kept)?;
        for name in to.names() {
            match there.enter(name, &kept) {
                Ok(next) => there = next,
                Err(_) => break,
            }
        }
        match mount_of(at.as_fd())? == mount_of(there.as_fd())? {
            true => Ok(()),
            false => Err(RootError::Elsewhere),
        }
    }

    /// Does something after the directories above `path` that are missing were made. Where it fails, those are gone again.
    fn in_new_directories(
        &self,
        path: &Relative,
        act: impl FnOnce() -> Result<(), RootError>,
    ) -> Result<(), RootError> {
        let kept = self.kept_out();
        let mut names: Vec<_> = path.names().collect();
        let own_name = names.pop().unwrap_or_default();
        let mut at = vec![self.start(&kept)?];
        let mut made = Vec::new();
        let mut make = || -> Result<(), RootError> {
            for name in &names {
                let above = at.last().ok_or(RootError::NotFound)?;
                above.check_written(name, &kept)?;
                match fs::mkdirat(above.as_fd(), *name, Mode::from_raw_mode(0o777)) {
                    Ok(()) => made.push(at.len() - 1),
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                let next = above.enter(name, &kept)?;
                at.push(next);
            }
            let above = at.last().ok_or(RootError::NotFound)?;
            above.check_written(own_name, &kept)
        };
        make().and_then(|()| act()).inspect_err(|_| {
            for level in made.iter().rev() {
                // Not if somebody else has put something there meanwhile.
                let _kept = fs::unlinkat(at[*level].as_fd(), names[*level], AtFlags::REMOVEDIR);
            }
        })
    }
}

/// Treatment of what is at a path that is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// A place that must be free; directories above it are made.
    New,
    /// The file there is replaced.
    Replace,
}

/// A directory on the way to a path.
struct Handle<'r> {
    directory: Opened<'r>,
    id: Id,
    /// True for one that code is loaded from, and for those below.
    is_code: bool,
}

enum Opened<'r> {
    Root(BorrowedFd<'r>),
    Below(OwnedFd),
}

impl AsFd for Handle<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.directory {
            Opened::Root(it) => *it,
            Opened::Below(it) => it.as_fd(),
        }
    }
}

impl<'r> Handle<'r> {
    /// The directory of this name in there, unless it is kept out.
    fn enter(&self, name: &str, kept: &KeptOut) -> Result<Handle<'r>, RootError> {
        if kept.has_name(self.id, name) {
            return Err(RootError::NotFound);
        }
        let next = fs::openat(self.as_fd(), name, ON_THE_WAY, Mode::empty())?;
        let id = id_of(&fs::fstat(&next)?);
        match kept.has(id) {
            true => Err(RootError::NotFound),
            false => Ok(Handle {
                directory: Opened::Below(next),
                id,
                is_code: self.is_code || kept.is_code(id),
            }),
        }
    }

    /// State of the thing called `name` in there. What is kept out is not there.
    fn stat(&self, name: &str, kept: &KeptOut) -> Result<Stat, Errno> {
        if kept.has_name(self.id, name) {
            return Err(Errno::NOENT);
        }
        let stat = fs::statat(self.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        match kept.has(id_of(&stat)) {
            true => Err(Errno::NOENT),
            false => Ok(stat),
        }
    }

    /// Tests if something of this name may be written, whether it is there or not.
    fn check_written(&self, name: &str, kept: &KeptOut) -> Result<(), RootError> {
        let is_kept = match self.stat(name, kept) {
            Err(Errno::NOENT) => {
                kept.has_name(self.id, name)
                    || fs::statat(self.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            }
            _ => false,
        };
        match (is_kept, self.is_code && is_program(name)) {
            (true, _) => Err(RootError::NotFound),
            (false, true) => Err(RootError::Code),
            (false, false) => Ok(()),
        }
    }
}

#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_cast,
    reason = "platforms differ"
)]
fn id_of(stat: &Stat) -> Id {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// A number of the mount that a directory is reached by; of its file system where the system does not say.
fn mount_of(directory: BorrowedFd<'_>) -> Result<u64, RootError> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::StatxFlags;
        let found = fs::statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
        if let Ok(found) = found
            && found.stx_mask & StatxFlags::MNT_ID.bits() != 0
        {
            return Ok(found.stx_mnt_id);
        }
    }
    Ok(id_of(&fs::fstat(directory)?).0)
}

fn found_by(stat: &Stat) -> Found {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Found::File(Signature::of(stat)),
        FileType::Directory => Found::Directory,
        _ => Found::Other,
    }
}

fn read_at(
    at: &Handle<'_>,
    name: &str,
    max_bytes: u64,
    kept: &KeptOut,
) -> Result<(Vec<u8>, Signature), RootError> {
    // Opening a device can do something by itself, so what it is comes first.
    let stat = at.stat(name, kept)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return Err(RootError::NotFound),
        _ => return Err(RootError::NotAFile),
    }
    // A pipe that has come into its place is not waited for.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(at.as_fd(), name, flags, Mode::empty())?;
    let stat = fs::fstat(&file)?;
    // As it was opened: something else may have come into its place.
    if kept.has(id_of(&stat)) {
        return Err(RootError::NotFound);
    }
    let Found::File(signature) = found_by(&stat) else {
        return Err(RootError::NotAFile);
    };
    if max_bytes < signature.size {
        return Err(RootError::TooLarge { max_bytes });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(signature.size).unwrap_or_default());
    // It may grow while it is read.
    let mut bounded = File::from(file).take(max_bytes.saturating_add(1));
    bounded.read_to_end(&mut bytes).map_err(RootError::Io)?;
    if max_bytes < bytes.len() as u64 {
        return Err(RootError::TooLarge { max_bytes });
    }
    Ok((bytes, signature))
}

/// Moves a file to a name that is free: the system sees to it, not a look before.
fn rename_new(
    from: BorrowedFd<'_>,
    name: &str,
    to: BorrowedFd<'_>,
    new_name: &str,
) -> Result<(), RootError> {
    match fs::renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        // File systems without it: a second name, which cannot replace anything, and then the first one goes.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::linkat(from, name, to, new_name, AtFlags::empty())?;
            fs::unlinkat(from, name, AtFlags::empty())?;
            Ok(())
        }
        other => Ok(other?),
    }
}

/// Tests if this process may make and delete names in a directory.
fn may_write(directory: BorrowedFd<'_>) -> Result<(), RootError> {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    match fs::accessat(directory, ".", access, AtFlags::empty()) {
        Ok(()) => Ok(()),
        Err(Errno::ACCESS) => Err(RootError::ReadOnly),
        Err(errno) => Err(errno.into()),
    }
}

/// A number that no other call has, in this process or another.
fn unique() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |it| it.as_nanos());
    format!("{}-{now:x}-{count}", std::process::id())
}
