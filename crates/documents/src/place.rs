//! Reading files that may be swapped meanwhile.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// A listed file cannot be read any more.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file that was deleted or moved since it was listed.
    #[error("the file is gone")]
    Vanished,
    /// A symbolic link, a directory or a pipe in the place of the file.
    #[error("the file was replaced by something that is not a file")]
    Replaced,
    /// A file that is larger than its bound.
    #[error("the file is larger than {max_bytes} bytes")]
    TooLarge {
        /// The bound.
        max_bytes: u64,
    },
    /// The system refuses.
    #[error("the file cannot be read")]
    Io(#[source] io::Error),
}

/// Place of a file at the time of the scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Below the root as it was given.
    pub path: PathBuf,
    /// With all symbolic links resolved, below the root so resolved.
    pub resolved: PathBuf,
    /// Of which no more than this is read, in bytes.
    pub max_bytes: u64,
}

/// Content of a file, without its kind.
#[derive(Debug)]
pub struct RawContent {
    /// All bytes of it.
    pub bytes: Vec<u8>,
    /// Time of the last modification, where the file system records it.
    pub last_modified: Option<SystemTime>,
}

impl Place {
    /// Reads the file, provided that it still is the one that was found: the path leads where it
    /// led, and a regular file is there.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn read(&self) -> Result<RawContent, ReadError> {
        let max_bytes = self.max_bytes;
        // Opening a pipe would wait for its writer, so what it is comes first.
        let metadata = fs::symlink_metadata(&self.resolved).map_err(read_error)?;
        if !metadata.is_file() {
            return Err(ReadError::Replaced);
        }
        let file = File::open(&self.resolved).map_err(read_error)?;
        let opened = file.metadata().map_err(read_error)?;
        // Where the path leads is asked after opening: what was swapped before is seen now, and
        // what is swapped later cannot change what is open.
        if fs::canonicalize(&self.path).map_err(read_error)? != self.resolved
            || !opened.is_file()
            || !is_same_file(&opened, &self.resolved)?
        {
            return Err(ReadError::Replaced);
        }
        if opened.len() > max_bytes {
            return Err(ReadError::TooLarge { max_bytes });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(opened.len()).unwrap_or_default());
        // It may grow while it is read.
        let mut bounded = file.take(max_bytes.saturating_add(1));
        bounded.read_to_end(&mut bytes).map_err(ReadError::Io)?;
        if bytes.len() as u64 > max_bytes {
            return Err(ReadError::TooLarge { max_bytes });
        }
        Ok(RawContent {
            bytes,
            last_modified: opened.modified().ok(),
        })
    }
}

#[cfg(unix)]
fn is_same_file(opened: &fs::Metadata, path: &Path) -> Result<bool, ReadError> {
    use std::os::unix::fs::MetadataExt;
    let there = fs::symlink_metadata(path).map_err(read_error)?;
    Ok((there.dev(), there.ino()) == (opened.dev(), opened.ino()))
}

#[cfg(not(unix))]
fn is_same_file(_opened: &fs::Metadata, path: &Path) -> Result<bool, ReadError> {
    // No identity to compare without unsafe code; at least it is no link.
    Ok(fs::symlink_metadata(path).map_err(read_error)?.is_file())
}

fn read_error(error: io::Error) -> ReadError {
    match error.kind() {
        // A parent may have become a file.
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReadError::Vanished,
        _ => ReadError::Io(error),
    }
}
