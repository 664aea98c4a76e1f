//! Putting a version in force, with a history of it.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use data_encoding::HEXLOWER;
use serde_json::json;

use crate::catalog::{CURRENT, HISTORY, PromptCatalog};

/// A version cannot be put in force.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// There is no such prompt.
    #[error("there is no prompt `{0}`")]
    Unknown(String),
    /// The prompt has no directory of versions.
    #[error(
        "`{0}` is one file and has one version; to keep several, move the file to `{0}/VERSION.md`"
    )]
    OneVersion(String),
    /// There is no such version.
    #[error("`{name}` has no version `{version}`; it has {known}")]
    NoVersion {
        /// Name of the prompt.
        name: String,
        /// Version that was asked for.
        version: String,
        /// Versions that there are.
        known: String,
    },
    /// There is no version before the one in force.
    #[error("`{0}` has no older version that can be used")]
    Oldest(String),
    /// The version cannot be used.
    #[error("this version cannot be used: {0}")]
    Broken(String),
    /// A file cannot be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
}

/// Puts a version of the prompt `name` in force: the one named, or else the one before the present one. Notes
/// it in the prompt's history, and on disk before it returns. Returns the versions before and now.
///
/// A server that watches the directory follows. A version that cannot be used is not put in force.
///
/// # Errors
///
/// [`HistoryError`]; nothing has changed then, but for a line of the history perhaps.
pub fn put_in_force(
    catalog: &PromptCatalog,
    name: &str,
    version: Option<&str>,
) -> Result<(Option<String>, String), HistoryError> {
    let unknown = || HistoryError::Unknown(name.to_owned());
    let entry = catalog.get(name).ok_or_else(unknown)?;
    if !entry.place().is_dir() {
        return Err(HistoryError::OneVersion(name.to_owned()));
    }
    let before = entry.current().ok().map(|it| it.version.clone());
    let chosen = match version {
        Some(version) => {
            let mut versions = entry.versions();
            let found = versions.find(|(it, _)| *it == version);
            found.map(|(_, read)| read).ok_or_else(|| {
                let known: Vec<_> = entry.versions().map(|(it, _)| format!("`{it}`")).collect();
                HistoryError::NoVersion {
                    name: name.to_owned(),
                    version: version.to_owned(),
                    known: known.join(", "),
                }
            })?
        }
        None => {
            let mut older = entry.versions().rev().skip_while(|(it, _)| {
                // A broken version in force is the newest, or the one that is pinned.
                before.as_deref().is_some_and(|before| *it != before)
            });
            older.next();
            let usable = older.find_map(|(_, read)| read.ok());
            Ok(usable.ok_or_else(|| HistoryError::Oldest(name.to_owned()))?)
        }
    };
    let chosen = chosen.map_err(|problem| HistoryError::Broken(problem.to_string()))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let line = json!({
        "at_ms": now.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)),
        "from": before,
        "to": chosen.version,
        "digest": HEXLOWER.encode(&chosen.digest),
    });
    // The history first: what is in force without a line in it would be unexplained.
    append(&entry.place().join(HISTORY), &format!("{line}\n"))?;
    replace(entry.place(), CURRENT, &format!("{}\n", chosen.version))?;
    Ok((before, chosen.version.clone()))
}

fn append(path: &Path, line: &str) -> Result<(), HistoryError> {
    let written = || {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(line.as_bytes())?;
        file.sync_all()
    };
    written().map_err(|cause| HistoryError::Write {
        path: path.to_owned(),
        cause,
    })
}

/// Replaces a file in a directory of versions. The draft is hidden, so that no scan takes it for anything.
fn replace(directory: &Path, name: &str, text: &str) -> Result<(), HistoryError> {
    let path = directory.join(name);
    regular_file::replace(&path, text.as_bytes())
        .map_err(|cause| HistoryError::Write { path, cause })
}
