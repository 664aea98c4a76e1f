use std::{
    fs::{self, DirBuilder, OpenOptions},
    io,
    path::{Path, PathBuf},
};

/// A file or its directory cannot be made or opened.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be opened", path.display())]
pub struct CreateError {
    /// Path of the file.
    pub path: PathBuf,
    /// Error of the operating system.
    #[source]
    pub source: io::Error,
}

/// Makes the file at `path` and its directories if need be, readable for their owner alone. Returns
/// its path without links, so that all processes take the same lock beside it.
///
/// # Errors
///
/// [`CreateError`] when it cannot be made, or is no file.
pub fn create(path: &Path) -> Result<PathBuf, CreateError> {
    let failed = |source| CreateError {
        path: path.to_owned(),
        source,
    };
    if let Some(directory) = path.parent() {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(directory).map_err(failed)?;
    }
    // A file that is there is not even opened: closing it again would take away the locks that a
    // database of this process has on it, as POSIX will have it.
    if !path.is_file() {
        private(OpenOptions::new().append(true).create(true))
            .open(path)
            .map_err(failed)?;
    }
    path.canonicalize().map_err(failed)
}

/// Lets files that are made with these options be read and written by their owner alone; such as are
/// there stay as they are.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Identity of a file, which differs from that of another file that takes its name.
///
/// A database continues to write to the file that it has opened, also after that file has lost its
/// name; a writer that compares identities before it writes notices. Where an open file cannot be
/// taken away, all files are alike.
///
/// A database goes on writing to the file that it has opened, also when nobody can find that any
/// more; whoever compares before it writes notices. Where an open file cannot be taken away, all
/// files are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    number: u64,
}

impl FileIdentity {
    /// Of the file that has this name; `None` if there is none.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Some(Self {
                device: metadata.dev(),
                number: metadata.ino(),
            })
        }
        #[cfg(not(unix))]
        {
            metadata.is_file().then_some(Self {})
        }
    }
}
