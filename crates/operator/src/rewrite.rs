//! Files of operators, replaced as a whole.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time that a writer waits for another one.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lock of the files in a directory, held by who reads one to write it anew: of two, none is to undo what the other has
/// done. It is given up when it is dropped, or when the process ends however it does. The directory itself is locked, so
/// that nothing is left beside the file; editors do not know it, and for them the text is compared.
pub(crate) struct Lock {
    _directory: Option<File>,
}

impl Lock {
    /// Waits until nobody else writes beside the file at `path`, which is called `name` in messages.
    ///
    /// # Errors
    ///
    /// Somebody else does not end.
    pub(crate) fn of(name: &str, path: &Path) -> Result<Self, String> {
        // Without it writing fails, with a better reason. Some network file systems lock no directory.
        let Ok(directory) = File::open(path.parent().unwrap_or(Path::new("/"))) else {
            return Ok(Self { _directory: None });
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            match directory.try_lock() {
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(format!(
                        "{name} is being changed by another command for {} s: try again when that has ended",
                        PATIENCE.as_secs()
                    ));
                }
                Ok(()) | Err(TryLockError::Error(_)) => {
                    return Ok(Self {
                        _directory: Some(directory),
                    });
                }
            }
        }
    }
}

/// Puts `text` in the place of the file at `path`, which is called `name` in messages and had the text `before`, whole
/// or not at all. A file that has changed meanwhile stays as it is.
///
/// # Errors
///
/// The reason why it is not written.
pub(crate) fn rewrite(
    _: &Lock,
    name: &str,
    path: &Path,
    before: &str,
    text: &str,
) -> Result<(), String> {
    let now = regular_file::read_text(path, regular_file::MAX_BYTES).unwrap_or_default();
    if now != before {
        return Err(format!(
            "{name} has changed meanwhile, and was left as it is: try again"
        ));
    }
    let written = regular_file::replace(path, text.as_bytes());
    written.map_err(|error| format!("{name} cannot be written: {error}"))
}
