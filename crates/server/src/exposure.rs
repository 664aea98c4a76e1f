//! Findings about files of a server, above all those that other users can read or replace.

use std::fs;
use std::io;
use std::path::Path;

use config::Config;
use serde::Serialize;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// No fault found.
    Ok,
    /// A server would run.
    Warning,
    /// A server would not run, or not do what it is there for.
    Error,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Area that was checked.
    pub area: &'static str,
    /// Result of the check.
    pub state: State,
    /// One sentence.
    pub message: String,
    /// Advice on what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Finding {
    /// A finding without a hint.
    pub fn new(area: &'static str, state: State, message: impl Into<String>) -> Self {
        Self {
            area,
            state,
            message: message.into(),
            hint: None,
        }
    }

    /// A finding of something that is as it should be.
    pub fn ok(area: &'static str, message: impl Into<String>) -> Self {
        Self::new(area, State::Ok, message)
    }

    /// A finding of something that is odd.
    pub fn warning(area: &'static str, message: impl Into<String>) -> Self {
        Self::new(area, State::Warning, message)
    }

    /// A finding of something that is wrong.
    pub fn error(area: &'static str, message: impl Into<String>) -> Self {
        Self::new(area, State::Error, message)
    }

    /// Adds the cure.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// Findings about recorded data that other users can read or replace.
pub fn exposed(config: &Config) -> Vec<Finding> {
    const AREA: &str = "ledger";
    if config.ledger.url.is_some() {
        return Vec::new();
    }
    let path = &config.ledger.path;
    let directory = path.parent().and_then(|it| replaceable(AREA, it));
    private(AREA, path).into_iter().chain(directory).collect()
}

/// A finding if others can write to the directory, and so replace a private file.
fn replaceable(area: &'static str, directory: &Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt;
    const STICKY: u32 = 0o1000;
    let mode = fs::metadata(directory).ok()?.permissions().mode();
    (mode & 0o022 != 0 && mode & STICKY == 0).then(|| {
        let (place, mode) = (directory.display(), mode & 0o777);
        Finding::warning(
            area,
            format!("others can replace the files in {place} (mode {mode:03o})"),
        )
        .hint(format!("chmod go-w {place}"))
    })
}

/// Finding about a file whose content is for its owner alone, such as the ledger, and that others
/// can read.
pub fn private(area: &'static str, path: &Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt;
    let mode = match fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode() & 0o777,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            let message = format!("{} cannot be looked at: {error}", path.display());
            return Some(Finding::error(area, message));
        }
    };
    (mode & 0o077 != 0).then(|| {
        let place = path.display();
        Finding::warning(area, format!("others can read {place} (mode {mode:03o})"))
            .hint(format!("chmod 600 {place}"))
    })
}
