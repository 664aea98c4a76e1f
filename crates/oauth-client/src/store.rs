//! Keeping of tokens and registrations.

use crate::Secret;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    error::Error,
    fmt,
    fs::{File, TryLockError},
    future::Future,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// A longer file is refused.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Time for which the renewal of another process is waited for: two exchanges with a token endpoint, and saving.
const PATIENCE: Duration = Duration::from_secs(45);
/// Time between two looks whether another process has finished.
const PAUSE: Duration = Duration::from_millis(20);

/// Result of a store, later.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Reason why a store fails.
pub type StoreError = Box<dyn Error + Send + Sync>;

/// Belongings of a client at one server from one authorization server: the registration, and tokens.
///
/// Nothing of it is of use at another issuer: a store keeps it under [`server`](Self::server) and
/// [`issuer`](Self::issuer).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// The server, in its canonical form.
    pub server: String,
    /// The authorization server.
    pub issuer: String,
    /// Token endpoint that the tokens were got from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_endpoint: Option<String>,
    /// The value of `resource` in requests for tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Method by which the client proved itself for the tokens, as RFC 7591 names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,
    /// The client, if it was registered dynamically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration: Option<Registration>,
    /// The tokens, as long as there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// Digits that each sign-in of a person has of its own, and renewals keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<String>,
    /// Time of saving, in seconds since 1970.
    #[serde(default)]
    pub saved_at: u64,
}

/// A client that an authorization server has registered on demand (RFC 7591).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Identifier of the client.
    pub client_id: String,
    /// Secret of the client, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Secret>,
    /// Time when the secret ends, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_expires_at: Option<u64>,
    /// Method by which the client proves itself at the token endpoint, if the server has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,
    /// The address that answers to sign-ins come back to.
    pub redirect_uri: String,
    /// Scopes it was registered with, separated by spaces; empty if it was registered with none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scope: String,
}

/// An access token and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// The access token.
    pub access_token: Secret,
    /// The refresh token, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<Secret>,
    /// Time when the token was got, in seconds since 1970.
    pub issued_at: u64,
    /// Seconds for which the token is good, if the authorization server has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// Scopes that were asked for.
    #[serde(default)]
    pub requested: Vec<String>,
    /// Identifier of the client that they belong to.
    #[serde(default)]
    pub client_id: String,
    /// The key that they are bound to (DPoP): PKCS #8 in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpop_key: Option<Secret>,
}

/// A place where [`Credentials`] outlive a connection.
///
/// [`Authorizer`](crate::Authorizer) reads it once at the beginning and before it renews a token, so that
/// processes which share a store share what each of them gets. It renews and saves while it [holds](Self::hold) the
/// store: an authorization server that takes each refresh token once is asked once (RFC 9700, section 2.2.2).
pub trait TokenStore: Send + Sync + fmt::Debug + 'static {
    /// Credentials that are kept for `server`, the latest first: one for each authorization server.
    fn load<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Vec<Credentials>, StoreError>>;

    /// Wait until no one else, in this process or in another, holds what is kept for `server`, and hold it until the
    /// result is dropped or the process ends. Reading and saving need no holding.
    ///
    /// A wait has an end: an error says who or what is in the way.
    fn hold<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Held, StoreError>>;

    /// Keep `credentials`, instead of what is kept under the same server and issuer.
    fn save<'a>(&'a self, credentials: &'a Credentials) -> Pending<'a, Result<(), StoreError>>;

    /// Forget what is kept under `server` and `issuer`.
    fn remove<'a>(
        &'a self,
        server: &'a str,
        issuer: &'a str,
    ) -> Pending<'a, Result<(), StoreError>>;
}

/// Right to renew what a store keeps for a server, given up when it is dropped.
pub type Held = Box<dyn Send + Sync>;

/// Hold the file at `path`, which is made, with its directory, if it does not exist. Nothing is written to it, and it is
/// left where it is: without it, two could hold it at once.
///
/// # Errors
///
/// When it cannot be opened or locked, or another process has held it for 45 seconds.
#[must_use]
pub fn hold_file(path: PathBuf) -> Pending<'static, Result<Held, StoreError>> {
    Box::pin(async move {
        let place = path.clone();
        let opened = blocking(move || open_to_hold(&place).map_err(|error| at(&place, &error)));
        let (file, deadline) = (opened.await?, Instant::now() + PATIENCE);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Box::new(file) as Held),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(TryLockError::WouldBlock) => {
                    let (path, seconds) = (path.display(), PATIENCE.as_secs());
                    return Err(format!("another process has held {path} for {seconds} s").into());
                }
                Err(TryLockError::Error(error)) => return Err(at(&path, &error)),
            }
        }
    })
}

/// The directory in which programs of one user share their tokens; `None` if there is no home.
#[must_use]
pub fn usual_directory() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let state = || absolute("HOME").map(|home| home.join(".local/state"));
    let state = absolute("XDG_STATE_HOME").or_else(state)?;
    Some(state.join("owlclaw-mcp/tokens"))
}

/// Keeps credentials as long as the process lives.
#[derive(Debug, Default)]
pub struct MemoryStore {
    kept: Mutex<HashMap<(String, String), Credentials>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl TokenStore for MemoryStore {
    fn load<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Vec<Credentials>, StoreError>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<_> = kept
            .values()
            .filter(|it| it.server == server)
            .cloned()
            .collect();
        found.sort_by_key(|it| std::cmp::Reverse(it.saved_at));
        Box::pin(std::future::ready(Ok(found)))
    }

    fn hold<'a>(&'a self, _: &'a str) -> Pending<'a, Result<Held, StoreError>> {
        let turn = Arc::clone(&self.turn);
        Box::pin(async move { Ok(Box::new(turn.lock_owned().await) as Held) })
    }

    fn save<'a>(&'a self, credentials: &'a Credentials) -> Pending<'a, Result<(), StoreError>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (credentials.server.clone(), credentials.issuer.clone());
        kept.insert(key, credentials.clone());
        Box::pin(std::future::ready(Ok(())))
    }

    fn remove<'a>(
        &'a self,
        server: &'a str,
        issuer: &'a str,
    ) -> Pending<'a, Result<(), StoreError>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(&(server.to_owned(), issuer.to_owned()));
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Keeps credentials in files of mode 0600, one for each server and issuer, in a directory of mode 0700.
///
/// A file is written beside its place and then renamed, so that a reader sees the old one or the new one. A
/// file that others may read is refused, not read.
#[derive(Clone, Debug)]
pub struct FileStore {
    directory: PathBuf,
}

impl FileStore {
    /// A store in `directory`, which is made when something is saved.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    fn path(&self, server: &str, issuer: &str) -> PathBuf {
        let name = format!("{}-{}.json", digest(server), digest(issuer));
        self.directory.join(name)
    }

    fn read_all(&self, server: &str) -> Result<Vec<Credentials>, StoreError> {
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(at(&self.directory, &error)),
        };
        let prefix = format!("{}-", digest(server));
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| at(&self.directory, &error))?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|it| it.starts_with(&prefix) && it.ends_with(".json")) {
                let credentials = read(&path)?;
                if credentials.server == server {
                    found.push(credentials);
                }
            }
        }
        found.sort_by_key(|it| std::cmp::Reverse(it.saved_at));
        Ok(found)
    }

    fn write(&self, credentials: &Credentials) -> Result<(), StoreError> {
        make(&self.directory).map_err(|error| at(&self.directory, &error))?;
        let path = self.path(&credentials.server, &credentials.issuer);
        let text = serde_json::to_vec_pretty(credentials)?;
        // An authorization server may take the refresh token of before no more.
        regular_file::replace_private(&path, &text).map_err(|error| at(&path, &error))
    }
}

impl TokenStore for FileStore {
    fn load<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Vec<Credentials>, StoreError>> {
        let (store, server) = (self.clone(), server.to_owned());
        blocking(move || store.read_all(&server))
    }

    fn hold<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Held, StoreError>> {
        hold_file(self.directory.join(format!(".{}.lock", digest(server))))
    }

    fn save<'a>(&'a self, credentials: &'a Credentials) -> Pending<'a, Result<(), StoreError>> {
        let (store, credentials) = (self.clone(), credentials.clone());
        blocking(move || store.write(&credentials))
    }

    fn remove<'a>(
        &'a self,
        server: &'a str,
        issuer: &'a str,
    ) -> Pending<'a, Result<(), StoreError>> {
        let path = self.path(server, issuer);
        blocking(move || match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&path, &error)),
            _ => Ok(()),
        })
    }
}

fn blocking<'a, T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Pending<'a, Result<T, StoreError>> {
    Box::pin(async move { tokio::task::spawn_blocking(work).await? })
}

/// Makes a directory for its owner alone, unless it is there.
fn make(directory: &Path) -> io::Result<()> {
    let mut make = std::fs::DirBuilder::new();
    make.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut make, 0o700);
    make.create(directory)
}

fn open_to_hold(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        make(directory)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn read(path: &Path) -> Result<Credentials, StoreError> {
    let about = std::fs::metadata(path).map_err(|error| at(path, &error))?;
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&about.permissions());
        if mode & 0o077 != 0 {
            let path = path.display();
            let mode = mode & 0o777;
            let cure = format!("run `chmod 600 {path}`, or remove it and sign in again");
            return Err(
                format!("{path} has mode {mode:04o}, so others may read it; {cure}").into(),
            );
        }
    }
    let text = regular_file::read(path, MAX_FILE_BYTES).map_err(|error| at(path, &error))?;
    // The parser's own message may repeat what is in the file.
    serde_json::from_slice(&text).map_err(|_| {
        let path = path.display();
        format!("{path} cannot be read as credentials; remove it and sign in again").into()
    })
}

fn at(path: &Path, error: &io::Error) -> StoreError {
    format!("{}: {error}", path.display()).into()
}

fn digest(text: &str) -> String {
    let mut digest = crate::key::sha256(text);
    digest.truncate(22);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(server: &str, issuer: &str, token: &str, saved_at: u64) -> Credentials {
        Credentials {
            server: server.to_owned(),
            issuer: issuer.to_owned(),
            tokens: Some(Tokens {
                access_token: token.into(),
                refresh_token: Some("refresh-me".into()),
                issued_at: saved_at,
                expires_in: Some(60),
                requested: vec!["a".to_owned()],
                client_id: "c".to_owned(),
                dpop_key: None,
            }),
            saved_at,
            ..Credentials::default()
        }
    }

    async fn keeps(store: &dyn TokenStore) {
        let (one, two) = (some("s", "i1", "t1", 1), some("s", "i2", "t2", 2));
        let other = some("s2", "i1", "t3", 3);
        for credentials in [&one, &two, &other] {
            store.save(credentials).await.unwrap();
        }
        assert_eq!(store.load("s").await.unwrap(), [two.clone(), one]);
        let newer = some("s", "i1", "t4", 4);
        store.save(&newer).await.unwrap();
        assert_eq!(store.load("s").await.unwrap(), [newer, two.clone()]);
        store.remove("s", "i1").await.unwrap();
        store.remove("s", "i1").await.unwrap();
        assert_eq!(store.load("s").await.unwrap(), [two]);
        assert_eq!(store.load("s2").await.unwrap(), [other]);
        assert_eq!(store.load("s3").await.unwrap(), []);
    }

    #[tokio::test]
    async fn stores_keep_by_server_and_issuer() {
        keeps(&MemoryStore::default()).await;
        let directory = tempfile::tempdir().unwrap();
        keeps(&FileStore::at(directory.path().join("a/b"))).await;
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn files_are_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let store = FileStore::at(&path);
        store.save(&some("s", "i", "first", 1)).await.unwrap();
        store.save(&some("s", "i", "second", 2)).await.unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        let files: Vec<_> = std::fs::read_dir(&path).unwrap().collect();
        assert_eq!(files.len(), 1, "nothing is left beside");
        let file = files[0].as_ref().unwrap().path();
        assert_eq!(mode(&file), 0o600);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refused = store.load("s").await.unwrap_err().to_string();
        assert!(
            refused.contains("0640") && refused.contains("chmod 600"),
            "{refused}"
        );
    }

    #[tokio::test]
    async fn a_file_that_is_broken_is_named_and_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let store = FileStore::at(directory.path());
        let credentials = some("s", "i", "hush", 1);
        store.save(&credentials).await.unwrap();
        let path = store.path("s", "i");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("hush"));
        std::fs::write(
            &path,
            text.replace("\"issued_at\": 1", "\"issued_at\": \"hush\""),
        )
        .unwrap();
        let refused = store.load("s").await.unwrap_err().to_string();
        assert!(
            refused.contains("sign in again") && !refused.contains("hush"),
            "{refused}"
        );
        assert!(!format!("{credentials:?}").contains("hush"));
    }
}
