//! Backups: a copy of a ledger, made while a server appends to it, and the checkpoint that seals its end.

use crate::{
    checkpoint::{
        Checkpoint, ContinuityError, PublicKey, SigningKey, append_first, check_continuity,
    },
    fault::SignatureError,
    query::{QueryError, ReadLedger},
    sqlite::{
        reader::LedgerReader,
        schema::{OpenError, explain, open_to_read},
    },
    store::Tail,
    verify::{Trust, VerifyError, Wrong, verify},
};
use sqlite_file::{CreateError, FileLock, LockError, private};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The most bytes of the file of a backup's checkpoint.
const MAX_CHECKPOINT_BYTES: u64 = 4096;

/// Failure of a backup, or of its restoration.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The ledger or the backup cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The ledger or the backup cannot be read.
    #[error("the ledger cannot be read")]
    Query(#[from] QueryError),
    /// A file cannot be read or written.
    #[error("{} cannot be read or written", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file is there that would be overwritten.
    #[error("{} is there already, and is not overwritten", .0.display())]
    Exists(PathBuf),
    /// A server has the ledger that would be restored.
    #[error("a server has the ledger: {0}")]
    Locked(String),
    /// The ledger has no entries.
    #[error("the ledger has no entries")]
    Empty,
    /// The checkpoint of a backup cannot be read.
    #[error("{} is not the checkpoint of a backup", .0.display())]
    NotACheckpoint(PathBuf),
    /// The signature of the checkpoint is not believed.
    #[error("the backup is not to be believed: {0}")]
    Signature(SignatureError),
    /// Entries do not follow from each other.
    #[error("entry {0} does not follow from those before it")]
    Damaged(u64),
    /// The backup does not end as its checkpoint says.
    #[error(
        "the backup ends with entry {found}, and its checkpoint seals entry {sealed} or another one there"
    )]
    NotAsSealed {
        /// The last entry of the backup.
        found: u64,
        /// The entry that the checkpoint seals.
        sealed: u64,
    },
    /// The file of checkpoints knows of more than the backup has.
    #[error(transparent)]
    Contradicted(ContinuityError),
    /// The tables beside the entries are not those that belong to them.
    #[error("the backup ends as its checkpoint says, and is damaged: {0}")]
    Altered(Wrong),
    /// The tables beside the entries cannot be compared with them.
    #[error("what the backup has beside its entries cannot be compared with them")]
    NotCompared(#[source] VerifyError),
}

/// Path of the checkpoint beside a backup.
#[must_use]
pub fn backup_checkpoint(backup: &Path) -> PathBuf {
    beside(backup, ".checkpoint")
}

/// Copies the ledger at `path` as it is now to a new file `to`, also while a server appends to it, and
/// writes the checkpoint of its end beside that, signed with `key`. The copy is read back. Segments of an archive are
/// not copied: they never change. It blocks.
///
/// # Errors
///
/// [`BackupError`]; there is no file `to` then.
pub fn backup(
    path: &Path,
    to: &Path,
    key: Option<&SigningKey>,
    now_us: u64,
) -> Result<Checkpoint, BackupError> {
    if to.exists() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    let partial = beside(to, ".partial");
    remove(&partial)?;
    let connection = open_to_read(path)?;
    let made = sqlite_file::create(&partial)?;
    connection
        .execute("VACUUM INTO ?1", [made.to_string_lossy()])
        .map_err(|error| explain(path, error))?;
    drop(connection);
    sync(&partial)?;
    let tail = chain_of(&partial)?;
    if tail.next_sequence == 1 {
        remove(&partial)?;
        return Err(BackupError::Empty);
    }
    let mut checkpoint = Checkpoint {
        sequence: tail.next_sequence - 1,
        hash: tail.hash,
        at_us: now_us,
        next_by: u64::MAX,
        signature: None,
    };
    if let Some(key) = key {
        checkpoint.sign(key);
    }
    // First, so that no backup is without one.
    write(
        &backup_checkpoint(to),
        &format!("{}\n", checkpoint.to_json()),
    )?;
    rename(&partial, to)?;
    Ok(checkpoint)
}

/// Outcome of [`restore`].
#[derive(Debug)]
pub struct Restored {
    /// Checkpoint of the backup, which seals the last entry of the ledger.
    pub checkpoint: Checkpoint,
    /// The reason why a server refuses the ledger: the file of checkpoints seals entries that it does not have.
    pub contradicted: Option<ContinuityError>,
    /// The reason why the tables beside the entries are not to be believed, or [`BackupError::NotCompared`].
    pub altered: Option<BackupError>,
}

/// Puts the backup at `from` in the place of the ledger at `path`, which must not be there, and has a file of
/// checkpoints at `checkpoints` know of its end: an older ledger in its place is refused from then on. If `keys` are
/// given, one of them must have signed the checkpoint of the backup. A file of checkpoints that knows of later entries
/// refuses it unless `accept` is true; so do tables beside the entries that differ from them, as [`crate::verify()`] compares
/// them, with the segments in `archive`, if that is where they are. It blocks.
///
/// # Errors
///
/// [`BackupError`]; there is no ledger at `path` then.
pub fn restore(
    from: &Path,
    path: &Path,
    checkpoints: &Path,
    keys: &[PublicKey],
    archive: Option<&Path>,
    accept: bool,
) -> Result<Restored, BackupError> {
    let sealed_by = backup_checkpoint(from);
    let checkpoint = read(&sealed_by)?;
    let checkpoint = Checkpoint::from_json(checkpoint.trim());
    let checkpoint = checkpoint.ok_or_else(|| BackupError::NotACheckpoint(sealed_by))?;
    if !keys.is_empty() {
        checkpoint
            .check_signature(keys)
            .map_err(BackupError::Signature)?;
    }
    if path.exists() {
        return Err(BackupError::Exists(path.to_owned()));
    }
    let partial = beside(path, ".partial");
    remove(&partial)?;
    let partial = sqlite_file::create(&partial)?;
    let path = partial.with_file_name(path.file_name().unwrap_or_default());
    let _lock = FileLock::take(&path).map_err(|error| match error {
        LockError::Held { said } => BackupError::Locked(said),
        LockError::File { path, source } => BackupError::File { path, source },
    })?;
    for log in ["-wal", "-shm"] {
        // Of a ledger that was there before; they would be taken for changes of this one.
        let log = beside(&path, log);
        if log.exists() {
            return Err(BackupError::Exists(log));
        }
    }
    copy(from, &partial)?;
    let tail = chain_of(&partial)?;
    if (tail.next_sequence - 1, tail.hash) != (checkpoint.sequence, checkpoint.hash) {
        remove(&partial)?;
        return Err(BackupError::NotAsSealed {
            found: tail.next_sequence - 1,
            sealed: checkpoint.sequence,
        });
    }
    let mut reader = LedgerReader::open(&partial)?.with_archive(archive.map(Path::to_owned));
    let altered = match verify(&mut reader, Trust::default()) {
        Ok(report) => report.first_wrong.map(BackupError::Altered),
        Err(error) => Some(BackupError::NotCompared(error)),
    };
    let altered = match altered {
        Some(error) if !accept => {
            drop(reader);
            remove(&partial)?;
            return Err(error);
        }
        altered => altered,
    };
    let contradicted = check_continuity(Some(&mut reader), checkpoints).err();
    drop(reader);
    let has_file = checkpoints.exists();
    match contradicted {
        // A file that is not there on another machine is made anew, from what is signed.
        Some(ContinuityError::FileCut { .. }) if !has_file => {}
        Some(error) if !accept => {
            remove(&partial)?;
            return Err(BackupError::Contradicted(error));
        }
        Some(error) => {
            rename(&partial, &path)?;
            return Ok(Restored {
                checkpoint,
                contradicted: Some(error),
                altered,
            });
        }
        None => {}
    }
    if !has_file {
        append_first(checkpoints, &checkpoint).map_err(failed(checkpoints))?;
    }
    rename(&partial, &path)?;
    Ok(Restored {
        checkpoint,
        contradicted: None,
        altered,
    })
}

/// The end of a ledger whose entries follow from each other, from the first that is not archived on.
fn chain_of(path: &Path) -> Result<Tail, BackupError> {
    let mut reader = LedgerReader::open(path)?;
    let (through, hash) = reader.archived()?;
    let mut tail = Tail {
        next_sequence: through + 1,
        hash,
    };
    loop {
        let page = reader.groups(tail.next_sequence)?;
        if page.is_empty() {
            return Ok(tail);
        }
        for group in page {
            let next = tail.after(&group.body, group.count);
            if (group.first_sequence, group.hash) != (tail.next_sequence, next.hash) {
                return Err(BackupError::Damaged(tail.next_sequence));
            }
            tail = next;
        }
    }
}

impl From<CreateError> for BackupError {
    fn from(CreateError { path, source }: CreateError) -> Self {
        Self::File { path, source }
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::File { path, source }
}

fn read(path: &Path) -> Result<String, BackupError> {
    use io::Read as _;
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_CHECKPOINT_BYTES).read_to_string(&mut text))
        .map_err(failed(path))?;
    Ok(text)
}

fn write(path: &Path, text: &str) -> Result<(), BackupError> {
    private(OpenOptions::new().write(true).create(true).truncate(true))
        .open(path)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .map_err(failed(path))
}

fn copy(from: &Path, to: &Path) -> Result<(), BackupError> {
    let mut source = File::open(from).map_err(failed(from))?;
    let mut target = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(to)
        .map_err(failed(to))?;
    io::copy(&mut source, &mut target).map_err(failed(to))?;
    target.sync_all().map_err(failed(to))
}

fn sync(path: &Path) -> Result<(), BackupError> {
    let file = File::open(path).map_err(failed(path))?;
    file.sync_all().map_err(failed(path))
}

fn remove(path: &Path) -> Result<(), BackupError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path)(error)),
        _ => Ok(()),
    }
}

/// Gives a file its name, durably.
fn rename(from: &Path, to: &Path) -> Result<(), BackupError> {
    fs::rename(from, to).map_err(failed(to))?;
    match to.parent() {
        Some(directory) if directory.as_os_str().is_empty() => sync(Path::new(".")),
        Some(directory) => sync(directory),
        None => Ok(()),
    }
}
