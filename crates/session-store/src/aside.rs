//! A file that is of no use any more is moved out of the way, and not removed.

use crate::OpenError;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A store that could not be used, and that another was begun instead of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Path it has now.
    pub path: PathBuf,
    /// Description of what is wrong with it.
    pub why: String,
}

/// Moves the file to a name beside it, where an earlier one is replaced: a store that is damaged at
/// every start fills no disk.
pub(crate) fn set_aside(path: &Path, why: String) -> Result<SetAside, OpenError> {
    let aside = with_end(path, ".set-aside");
    let failed = |source| OpenError::File {
        path: aside.clone(),
        source,
    };
    fs::rename(path, &aside).map_err(failed)?;
    // Whoever looks into it needs what was not yet moved into it.
    let (log, to) = (with_end(path, "-wal"), with_end(&aside, "-wal"));
    let moved =
        fs::rename(&log, &to).or_else(|error| unless_missing(error, || fs::remove_file(&to)));
    moved.map_err(failed)?;
    fs::remove_file(with_end(path, "-shm"))
        .or_else(|error| unless_missing(error, || Ok(())))
        .map_err(failed)?;
    Ok(SetAside { path: aside, why })
}

fn unless_missing(error: io::Error, then: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => then().or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        }),
        _ => Err(error),
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
