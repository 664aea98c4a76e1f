//! Secrets of clients: a vault for each client at each upstream, all sealed with one key that the vault of the server has.

use crate::{Entry, Key, Name, Secret, Vault, VaultError, edit, file::beside};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Name, in the server's vault, of the key that the vaults of clients are sealed with.
pub const CLIENTS_KEY: &str = "owlclaw/clients-key";
/// Names in the vault of a client that say whose it is.
const UPSTREAM: &str = "owlclaw/upstream";
const CLIENT: &str = "owlclaw/client";
/// Beginning of the names that say whose a vault is.
const OURS: &str = "owlclaw/";
/// End of the names of the files.
const ENDING: &str = ".vault";

/// Source of the key of the server's vault.
type KeySource = Box<dyn Fn() -> Result<Key, VaultError> + Send + Sync>;

/// Secrets that belong to one client at one upstream, in the directory beside a vault whose name ends with
/// `.clients`: a file for each, which is a [`Vault`] itself.
///
/// The files are sealed with a key of their own ([`CLIENTS_KEY`]), so that the vault can be sealed with another key
/// without them. A file says whose it is: one that was put in the place of another's is refused. All that is done
/// here reads or writes files.
pub struct ClientSecrets {
    vault: PathBuf,
    source: KeySource,
    key: Mutex<Option<Key>>,
}

impl fmt::Debug for ClientSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientSecrets").field(&self.vault).finish()
    }
}

/// Secrets of one client at one upstream.
#[derive(Clone, Debug)]
pub struct Belongings {
    /// Name of the upstream.
    pub upstream: String,
    /// Name of the client.
    pub client: String,
    secrets: Vault,
}

impl Belongings {
    /// The secret of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.secrets.get(name)
    }

    /// Names, with the time when each was last set in seconds since 1970.
    pub fn names(&self) -> impl Iterator<Item = (&str, u64)> {
        self.entries().map(|(name, entry)| (name, entry.changed_at))
    }

    /// The secrets themselves.
    pub fn values(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.entries().map(|(name, entry)| (name, &entry.value))
    }

    /// The secrets by their names, with the times when they came.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.secrets
            .entries()
            .map(|(name, entry)| (name.as_str(), entry))
            .filter(|(name, _)| !name.starts_with(OURS))
    }
}

impl ClientSecrets {
    /// Secrets beside the vault at `vault`, or beside the one that a link there leads to, whose key comes from `source` when it is first needed.
    pub fn beside(
        vault: impl Into<PathBuf>,
        source: impl Fn() -> Result<Key, VaultError> + Send + Sync + 'static,
    ) -> Self {
        let vault = vault.into();
        Self {
            vault: vault.canonicalize().unwrap_or(vault),
            source: Box::new(source),
            key: Mutex::default(),
        }
    }

    /// The directory of the files.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        beside(&self.vault, ".clients")
    }

    /// The secrets of a client at an upstream; `None` if it was never given any.
    ///
    /// # Errors
    ///
    /// [`VaultError`] if the vault, or the file, cannot be opened.
    pub fn of(&self, upstream: &str, client: &str) -> Result<Option<Belongings>, VaultError> {
        let path = self.path(upstream, client);
        if !path.exists() {
            return Ok(None);
        }
        let found = self.opened(&path)?;
        let is_theirs = |it: &Belongings| (&*it.upstream, &*it.client) == (upstream, client);
        match found {
            Some(found) if !is_theirs(&found) => Err(of_another(path)),
            found => Ok(found),
        }
    }

    /// The secrets of all clients that have any, in the order of upstreams and clients.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub fn all(&self) -> Result<Vec<Belongings>, VaultError> {
        let directory = self.directory();
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(|source| unreadable(&directory, source))?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry
                .map_err(|source| unreadable(&directory, source))?
                .path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.ends_with(ENDING)
                && let Some(found) = self.opened(&path)?
            {
                match self.path(&found.upstream, &found.client) == path {
                    true => all.push(found),
                    false => return Err(of_another(path)),
                }
            }
        }
        all.retain(|it| it.names().next().is_some());
        all.sort_by(|one, other| {
            let key = |it: &Belongings| (it.upstream.clone(), it.client.clone());
            key(one).cmp(&key(other))
        });
        Ok(all)
    }

    /// Sets a secret of a client. Returns true if there was one of this name.
    ///
    /// # Errors
    ///
    /// As [`Vault::set`] and [`edit`]; [`VaultError::Missing`] if the server has no vault.
    pub fn set(
        &self,
        upstream: &str,
        client: &str,
        name: &Name,
        value: Secret,
    ) -> Result<bool, VaultError> {
        if name.as_str().starts_with(OURS) {
            return Err(VaultError::TooMuch(format!(
                "names that begin with `{OURS}` are not for secrets"
            )));
        }
        let path = self.path(upstream, client);
        let key = self.made_key()?;
        match Vault::create(&path, &key) {
            Ok(()) | Err(VaultError::Exists(_)) => {}
            Err(error) => return Err(error),
        }
        edit(
            &path,
            || Ok(key),
            |it| {
                for (name, whose) in [(UPSTREAM, upstream), (CLIENT, client)] {
                    match it.get(name) {
                        Some(before) if before.reveal() != whose => {
                            return Err(of_another(path.clone()));
                        }
                        Some(_) => {}
                        None => drop(it.set(&ours(name)?, Secret::new(whose))?),
                    }
                }
                it.set(name, value)
            },
        )
    }

    /// Removes a secret of a client. Returns false if there was none.
    ///
    /// # Errors
    ///
    /// As [`edit`].
    pub fn remove(&self, upstream: &str, client: &str, name: &str) -> Result<bool, VaultError> {
        let path = self.path(upstream, client);
        match path.exists() && !name.starts_with(OURS) {
            true => edit(&path, || self.key(), |it| Ok(it.remove(name))),
            false => Ok(false),
        }
    }

    /// The secrets in a file; `None` if its writer was killed before it had anything in it.
    fn opened(&self, path: &Path) -> Result<Option<Belongings>, VaultError> {
        let secrets = match Vault::open(path, &self.key()?) {
            // The server's vault may have been replaced by another since the key was read.
            Err(VaultError::OtherKey { .. }) => {
                *self.key.lock().unwrap_or_else(PoisonError::into_inner) = None;
                Vault::open(path, &self.key()?)?
            }
            opened => opened?,
        };
        let whose = |name| secrets.get(name).map(|it| it.reveal().to_owned());
        let whose = whose(UPSTREAM).zip(whose(CLIENT));
        Ok(whose.map(|(upstream, client)| Belongings {
            upstream,
            client,
            secrets,
        }))
    }

    /// The key of the files.
    fn key(&self) -> Result<Key, VaultError> {
        let mut known = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = &*known {
            return Ok(key.clone());
        }
        let vault = Vault::open(&self.vault, &(self.source)()?)?;
        let key = match vault.get(CLIENTS_KEY) {
            Some(text) => parsed(text)?,
            None => {
                return Err(VaultError::Key {
                    place: format!("of the secrets of clients in {}", self.vault.display()),
                    why: format!("it has no `{CLIENTS_KEY}`: put it back from a backup"),
                });
            }
        };
        Ok(known.insert(key).clone())
    }

    /// The key of the files, which is made if there is none and no file.
    fn made_key(&self) -> Result<Key, VaultError> {
        if !self.vault.exists() {
            return Err(VaultError::Missing(self.vault.clone()));
        }
        let directory = self.directory();
        let has_files = fs::read_dir(&directory).is_ok_and(|mut it| {
            it.any(|it| it.is_ok_and(|it| it.file_name().to_string_lossy().ends_with(ENDING)))
        });
        if !has_files {
            edit(&self.vault, &self.source, |it| match it.get(CLIENTS_KEY) {
                Some(_) => Ok(()),
                None => {
                    let key = Secret::new(Key::generate()?.text().as_str());
                    it.set(&ours(CLIENTS_KEY)?, key).map(drop)
                }
            })?;
        }
        self.key()
    }

    fn path(&self, upstream: &str, client: &str) -> PathBuf {
        let mut digest = Sha256::new();
        digest.update((upstream.len() as u64).to_be_bytes());
        digest.update(upstream);
        digest.update(client);
        let digits = HEXLOWER.encode(&digest.finalize()[..20]);
        self.directory().join(digits + ENDING)
    }
}

fn parsed(text: &Secret) -> Result<Key, VaultError> {
    Key::parse(text.reveal(), &format!("in the vault as `{CLIENTS_KEY}`"))
}

fn ours(name: &str) -> Result<Name, VaultError> {
    name.parse()
        .map_err(|error: crate::BadName| VaultError::TooMuch(error.to_string()))
}

fn of_another(path: PathBuf) -> VaultError {
    let why = "it is the file of another client";
    VaultError::Damaged { path, why }
}

fn unreadable(path: &Path, source: io::Error) -> VaultError {
    VaultError::Io {
        path: path.to_owned(),
        what: "read",
        source,
    }
}
