use crate::{
    ApiKey, KeyRecord,
    api_key::digest_of,
    key_record::{KeyState, text},
};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// A longer file is refused. Ten thousand keys fit.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// Keys in one file, those that are no good any more included.
const MAX_KEYS: usize = 10_000;
/// Permission bits the file must not have: reading by other users, and changing by any user but the
/// owner.
const FORBIDDEN_MODE: u32 = 0o037;
/// Permission bits that a rewritten file keeps.
const KEPT_MODE: u32 = 0o740;
/// Version of the file format that this crate reads and writes.
const FORMAT: u32 = 1;

/// The file of keys, as commands change it. Each change takes a lock beside the file, writes all of
/// it anew and puts it in its place in one step: a reader sees the file before or after.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
}

/// Parameters of a new key.
#[derive(Clone, Debug, Default)]
pub struct NewKey {
    /// Principal the key belongs to.
    pub principal: String,
    /// The roles it gives.
    pub roles: Vec<String>,
    /// Time for which the key is valid; `None`: until it is revoked.
    pub lifetime: Option<Duration>,
    /// Label to remember the key by.
    pub label: Option<String>,
}

/// A key that was just made.
#[derive(Clone, Debug)]
pub struct MadeKey {
    /// The key, which nothing else has.
    pub key: ApiKey,
    /// Record of the key that is stored.
    pub record: KeyRecord,
}

/// Reason why keys cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// There is no such file.
    #[error("there is no file of keys at {}", .0.display())]
    Missing(PathBuf),
    /// Failure to read or write the file.
    #[error("the file of keys {} cannot be used", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Others than its owner may read or change it.
    #[error(
        "the file of keys {} is open to other users (mode {mode:03o}); run `chmod 600` on it",
        path.display()
    )]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// A file of another user or group, whose ownership a replacement could not be given.
    #[error(
        "the file of keys {} belongs to another user or group, and a new one cannot be given to \
         them; nothing was changed: run this as its owner",
        path.display()
    )]
    Owner {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file whose content is not a set of keys.
    #[error("the file of keys {} is wrong: {why}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// A sentence.
        why: String,
    },
    /// There is no such key.
    #[error("there is no key `{0}`")]
    Unknown(String),
    /// The key is not good any more.
    #[error("the key `{id}` is {} already", state.as_str())]
    Over {
        /// Id of the key.
        id: String,
        /// State the key is in.
        state: KeyState,
    },
    /// A key like this cannot be made.
    #[error("the key would be wrong: {0}")]
    NotAKey(&'static str),
    /// There are as many keys as a file may have.
    #[error("there are {MAX_KEYS} keys already; remove old ones from the file")]
    Full,
    /// The system has no randomness.
    #[error("the system gives no randomness")]
    Randomness(#[source] getrandom::Error),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    keys: Vec<KeyRecord>,
}

impl KeyFile {
    /// The file at `path`, which need not exist yet.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// All keys, the oldest first.
    ///
    /// # Errors
    ///
    /// [`KeyFileError`], [`KeyFileError::Missing`] among them.
    pub fn list(&self) -> Result<Vec<KeyRecord>, KeyFileError> {
        read(&self.path)
    }

    /// Makes a key, and the file if there is none.
    ///
    /// # Errors
    ///
    /// [`KeyFileError`] if nothing was changed.
    pub fn create(&self, new: NewKey, now: SystemTime) -> Result<MadeKey, KeyFileError> {
        self.change(true, |keys| make(keys, new, None, now))
    }

    /// Takes the key `id` back. For good: there is no way to undo it.
    ///
    /// # Errors
    ///
    /// [`KeyFileError`] if nothing was changed.
    pub fn revoke(&self, id: &str, now: SystemTime) -> Result<KeyRecord, KeyFileError> {
        self.change(false, |keys| {
            let key = active(keys, id, now)?;
            key.revoked = Some(text(now));
            Ok(key.clone())
        })
    }

    /// Makes a key in the place of `id`, for the same principal with the same roles and label, and
    /// with a life as long. The old one is good for `overlap` more, so that its owner can change
    /// over; with none it is taken back at once.
    ///
    /// # Errors
    ///
    /// [`KeyFileError`] if nothing was changed.
    pub fn rotate(
        &self,
        id: &str,
        overlap: Duration,
        now: SystemTime,
    ) -> Result<MadeKey, KeyFileError> {
        self.change(false, |keys| {
            // One that was rotated before ends with its overlap; what came after it is good for as
            // long as it was meant to be.
            let after = keys
                .iter()
                .rev()
                .find(|key| key.replaces.as_deref() == Some(id));
            let successor = after.map(lifetime);
            let old = active(keys, id, now)?;
            let lifetime = successor.unwrap_or_else(|| lifetime(old));
            let expires = old
                .expires
                .as_ref()
                .and_then(|text| crate::key_record::time(text));
            if overlap.is_zero() {
                old.revoked = Some(text(now));
            } else {
                let end = now.checked_add(overlap);
                let end = end.ok_or(KeyFileError::NotAKey("its overlap is too long"))?;
                // One that ends sooner still does.
                old.expires = Some(text(expires.map_or(end, |expires| expires.min(end))));
            }
            let new = NewKey {
                principal: old.principal.clone(),
                roles: old.roles.clone(),
                lifetime,
                label: old.label.clone(),
            };
            make(keys, new, Some(id.to_owned()), now)
        })
    }

    fn change<T>(
        &self,
        may_be_missing: bool,
        change: impl FnOnce(&mut Vec<KeyRecord>) -> Result<T, KeyFileError>,
    ) -> Result<T, KeyFileError> {
        // A link stays one, and what it leads to is replaced.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let failed = |source| KeyFileError::File {
            path: path.clone(),
            source,
        };
        if may_be_missing && let Some(directory) = path.parent() {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(directory);
            made.map_err(failed)?;
        }
        let lock = open_lock(&path)?;
        lock.lock().map_err(failed)?;
        let mut keys = match read(&path) {
            Err(KeyFileError::Missing(_)) if may_be_missing => Vec::new(),
            read => read?,
        };
        let outcome = change(&mut keys)?;
        write(&path, keys)?;
        Ok(outcome)
    }
}

fn make(
    keys: &mut Vec<KeyRecord>,
    new: NewKey,
    replaces: Option<String>,
    now: SystemTime,
) -> Result<MadeKey, KeyFileError> {
    if MAX_KEYS <= keys.len() {
        return Err(KeyFileError::Full);
    }
    let key = loop {
        let key = ApiKey::generate().map_err(KeyFileError::Randomness)?;
        if keys.iter().all(|it| it.id != key.id()) {
            break key;
        }
    };
    let expires = match new.lifetime {
        None => None,
        Some(lifetime) => {
            let end = now.checked_add(lifetime);
            Some(end.ok_or(KeyFileError::NotAKey("it would live too long"))?)
        }
    };
    let record = KeyRecord {
        id: key.id().to_owned(),
        digest: HEXLOWER.encode(&digest_of(key.reveal())),
        principal: new.principal,
        roles: new.roles,
        label: new.label,
        created: text(now),
        expires: expires.map(text),
        revoked: None,
        replaces,
    };
    if stands_for_others(&record.principal) {
        let why = "names that begin with `operator:`, and `system`, stand for others in the ledger";
        return Err(KeyFileError::NotAKey(why));
    }
    if let Some(why) = record.problem() {
        return Err(KeyFileError::NotAKey(why));
    }
    keys.push(record.clone());
    Ok(MadeKey { key, record })
}

/// True for a name by which the ledger knows operators and the server.
fn stands_for_others(principal: &str) -> bool {
    principal == "system" || principal.starts_with("operator:")
}

/// Time for which a key was made to be valid; `None` without a limit.
fn lifetime(key: &KeyRecord) -> Option<Duration> {
    let time = |text: &String| crate::key_record::time(text);
    let (created, expires) = (time(&key.created)?, time(key.expires.as_ref()?)?);
    expires.duration_since(created).ok()
}

fn active<'a>(
    keys: &'a mut [KeyRecord],
    id: &str,
    now: SystemTime,
) -> Result<&'a mut KeyRecord, KeyFileError> {
    let found = keys.iter_mut().find(|key| key.id == id);
    let key = found.ok_or_else(|| KeyFileError::Unknown(id.to_owned()))?;
    match key.state(now) {
        KeyState::Active => Ok(key),
        state => Err(KeyFileError::Over {
            id: id.to_owned(),
            state,
        }),
    }
}

/// The keys of the file at `path`.
pub(crate) fn read(path: &Path) -> Result<Vec<KeyRecord>, KeyFileError> {
    let failed = |source| KeyFileError::File {
        path: path.to_owned(),
        source,
    };
    let wrong = |why: String| KeyFileError::Content {
        path: path.to_owned(),
        why,
    };
    let file = match regular_file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(KeyFileError::Missing(path.to_owned()));
        }
        opened => opened.map_err(failed)?,
    };
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & FORBIDDEN_MODE != 0 {
        let path = path.to_owned();
        return Err(KeyFileError::Open { path, mode });
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if MAX_FILE_BYTES < bytes.len() as u64 {
        return Err(wrong(format!("it is longer than {MAX_FILE_BYTES} bytes")));
    }
    let content: Content =
        serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    if content.version != FORMAT {
        let version = content.version;
        return Err(wrong(format!("its version is {version}, and not {FORMAT}")));
    }
    if MAX_KEYS < content.keys.len() {
        return Err(wrong(format!("it has more than {MAX_KEYS} keys")));
    }
    let mut ids = std::collections::HashSet::new();
    for (index, key) in content.keys.iter().enumerate() {
        let place = index + 1;
        if let Some(problem) = key.problem() {
            return Err(wrong(format!("of key {place}, {problem}")));
        }
        if !ids.insert(&key.id) {
            return Err(wrong(format!("key {place} has the id of another")));
        }
    }
    Ok(content.keys)
}

/// The new file is whose the old one was: the server that reads it need not be who runs the command.
fn write(path: &Path, keys: Vec<KeyRecord>) -> Result<(), KeyFileError> {
    let failed = |source| KeyFileError::File {
        path: path.to_owned(),
        source,
    };
    let content = Content {
        version: FORMAT,
        keys,
    };
    let mut bytes = serde_json::to_vec_pretty(&content).map_err(|error| failed(error.into()))?;
    bytes.push(b'\n');
    let old = present(path).map_err(failed)?;
    // Left behind by a process that was killed; the lock says that nobody is writing it.
    let new = beside(path, ".new");
    let outcome = fill(&new, path, &bytes, old.as_ref())
        .and_then(|()| fs::rename(&new, path).map_err(failed));
    if outcome.is_err() {
        let _ = fs::remove_file(&new);
    }
    outcome?;
    match path.parent() {
        Some(directory) if directory != Path::new("") => {
            let directory = File::open(directory).map_err(failed)?;
            directory.sync_all().map_err(failed)
        }
        _ => Ok(()),
    }
}

/// Writes `new`, which is to take the place of `path`, of which `old` is known if it exists.
fn fill(new: &Path, path: &Path, bytes: &[u8], old: Option<&Metadata>) -> Result<(), KeyFileError> {
    let failed = |source| KeyFileError::File {
        path: path.to_owned(),
        source,
    };
    let mut file = anew(new).map_err(failed)?;
    if let Some(old) = old {
        give(&file, old).map_err(|source| KeyFileError::Owner {
            path: path.to_owned(),
            source,
        })?;
        let mode = Permissions::from_mode(old.mode() & KEPT_MODE);
        file.set_permissions(mode).map_err(failed)?;
    }
    file.write_all(bytes).map_err(failed)?;
    file.sync_all().map_err(failed)
}

/// The file that is locked while that at `path` is changed, whose owner must be able to open it too.
///
/// It is never removed: removing a lock file lets two processes lock two files.
fn open_lock(path: &Path) -> Result<File, KeyFileError> {
    let failed = |source| KeyFileError::File {
        path: path.to_owned(),
        source,
    };
    let place = beside(path, ".lock");
    let old = present(path).map_err(failed)?;
    let open = || private().append(true).create(true).open(&place);
    let Some(old) = old else {
        return open().map_err(failed);
    };
    if fs::symlink_metadata(&place).is_err() {
        // Whether it can be given to them is tried with a file that may be removed.
        let trial = beside(path, &format!(".{}.trial", std::process::id()));
        let given = anew(&trial).map_err(failed).and_then(|trial| {
            give(&trial, &old).map_err(|source| KeyFileError::Owner {
                path: path.to_owned(),
                source,
            })
        });
        let _ = fs::remove_file(&trial);
        given?;
    }
    let lock = open().map_err(failed)?;
    let (opened, named) = (lock.metadata(), fs::symlink_metadata(&place));
    // Whoever owns the directory may have put a link there, and what that leads to is not theirs.
    if let (Ok(opened), Ok(named)) = (opened, named)
        && opened.is_file()
        && opened.nlink() == 1
        && (opened.dev(), opened.ino()) == (named.dev(), named.ino())
    {
        // One that was there and cannot be given away has let us in, which is enough.
        let _ = give(&lock, &old);
    }
    Ok(lock)
}

/// Metadata of the file at `path`; `None` if there is none.
fn present(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        metadata => metadata.map(Some),
    }
}

/// An empty file in the place of whatever is there.
fn anew(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    private().write(true).create_new(true).open(path)
}

/// Makes `file` whose `old` is.
fn give(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if new.gid() != old.gid() {
        let given = fchown(file, None, Some(old.gid()));
        // A group that may do nothing does not matter.
        if old.mode() & 0o070 != 0 || new.uid() != old.uid() {
            given?;
        }
    }
    if new.uid() != old.uid() {
        fchown(file, Some(old.uid()), None)?;
    }
    Ok(())
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
