//! The place of a running desk: its address, and the secret by which the owner of the server's files is
//! known, in a file beside the ledger.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use config::Config;
use serde::{Deserialize, Serialize};

use crate::sign_in::random;

/// Address of a running desk, and a secret that only the owner of its file can read. Whoever has that
/// file could use every command on the ledger as well.
#[derive(Clone, Serialize, Deserialize)]
pub struct Place {
    /// Address, such as `http://127.0.0.1:8091`.
    pub url: String,
    /// Secret that a one-time sign-in is asked for with.
    pub secret: String,
    /// Process that serves it.
    pub process: u32,
}

/// Reason why there is no desk to be found.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// No server with a desk runs on this ledger.
    #[error("no desk is served: {} is not there", .0.display())]
    Missing(PathBuf),
    /// The file cannot be used.
    #[error("{} cannot be used", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system, or of the content.
        #[source]
        source: io::Error,
    },
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut place = f.debug_struct("Place");
        place
            .field("url", &self.url)
            .field("process", &self.process);
        place.finish_non_exhaustive()
    }
}

impl Place {
    /// Path of the file of a server with this configuration.
    #[must_use]
    pub fn path(config: &Config) -> PathBuf {
        let mut path = config.ledger.path.clone();
        path.as_mut_os_string().push(".desk");
        path
    }

    /// Path of the file that leads a browser to the desk.
    pub(crate) fn way(config: &Config) -> PathBuf {
        let mut path = Self::path(config);
        path.as_mut_os_string().push(".html");
        path
    }

    /// Place of the desk that is served with this configuration.
    ///
    /// # Errors
    ///
    /// [`PlaceError`]: none is served, or its file cannot be read.
    pub fn find(config: &Config) -> Result<Self, PlaceError> {
        let path = Self::path(config);
        let text = match regular_file::read(&path, regular_file::MAX_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(PlaceError::Missing(path));
            }
            Err(source) => return Err(PlaceError::File { path, source }),
        };
        serde_json::from_slice(&text).map_err(|error| PlaceError::File {
            path,
            source: error.into(),
        })
    }

    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            secret: random(),
            process: std::process::id(),
        }
    }

    /// Writes the file, for its owner alone.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        // With a ledger in a database there may be no directory yet.
        if let Some(directory) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)?;
        }
        // One that a killed server has left, perhaps with other permissions.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(&serde_json::to_vec(self)?)
    }
}
