//! Files below a directory.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use walkdir::{DirEntry, WalkDir};

use crate::place::Place;

/// Regular files by their path relative to the root, in the order of the paths' components.
pub type Listing = BTreeMap<PathBuf, Entry>;

/// A regular file, unread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// With symbolic links resolved.
    pub resolved: PathBuf,
    size: u64,
    modified: Option<SystemTime>,
    /// Time of the last change of anything about the file, its permissions included.
    changed: Option<(i64, i64)>,
}

impl Entry {
    /// Place of the file, which is at `relative` below `root`; of it no more than `max_bytes` are read.
    #[must_use]
    pub fn place(&self, root: &Path, relative: &Path, max_bytes: u64) -> Place {
        Place {
            path: root.join(relative),
            resolved: self.resolved.clone(),
            max_bytes,
        }
    }
}

/// Bounds of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// Deepest level of a file below the root, in directories.
    pub max_depth: usize,
    /// The most files and directories that are looked at.
    pub max_entries: usize,
    /// Name of a document, which no directory may have.
    pub document: Option<&'static str>,
}

/// Reason why something is not listed.
#[derive(Debug, thiserror::Error)]
pub enum WalkProblem {
    /// The root is not there, or is no directory.
    #[error("the directory cannot be opened")]
    NoDirectory(#[source] io::Error),
    /// A directory or the kind of an entry cannot be read.
    #[error("cannot be looked into")]
    Unlistable(#[source] io::Error),
    /// A pipe, a socket or a device, or a directory with the name of a document.
    #[error("not read, because it is not a regular file")]
    NotAFile,
    /// A symbolic link that leads outside of the root, or nowhere.
    #[error("not followed, because the link does not lead to a place in the directory")]
    LinkOutside,
    /// A document that is hidden, or in a hidden directory.
    #[error("not read, because a name in its path begins with a dot")]
    Hidden,
    /// Directories below are not looked into.
    #[error("not looked into, because it lies more than {max_depth} directories deep")]
    TooDeep {
        /// The bound.
        max_depth: usize,
    },
    /// The walk ended here.
    #[error("the listing ended here, after {max_entries} files and directories")]
    TooManyEntries {
        /// The bound.
        max_entries: usize,
    },
}

/// A path, and the reason why it is not listed.
pub type Problem = (PathBuf, WalkProblem);

/// Lists what may be served. Whatever has a name that starts with a dot is left out, with all below
/// it: `.git` and `.env` are nothing to show to clients. Symbolic links are followed as long as they
/// stay inside the root.
pub fn list(root: &Path, limits: &Walk, problems: &mut Vec<Problem>) -> Listing {
    let mut listing = Listing::new();
    // A link as root is fine, as are links above it; only what lies below is held to stay inside.
    let opened = fs::canonicalize(root).and_then(|it| fs::read_dir(&it).map(|_| it));
    let resolved_root = match opened {
        Ok(resolved_root) => resolved_root,
        Err(error) => {
            problems.push((root.to_owned(), WalkProblem::NoDirectory(error)));
            return listing;
        }
    };
    let mut entries = WalkDir::new(root)
        .follow_links(true)
        .max_depth(limits.max_depth.saturating_add(1))
        .sort_by_file_name()
        .into_iter();
    let mut count = 0;
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                problems.extend(walk_problem(root, error));
                continue;
            }
        };
        if entry.depth() == 0 {
            continue;
        }
        count += 1;
        if count > limits.max_entries {
            let max_entries = limits.max_entries;
            let kind = WalkProblem::TooManyEntries { max_entries };
            problems.push((entry.path().to_owned(), kind));
            break;
        }
        match consider(&entry, &resolved_root, limits) {
            Ok(Considered::File(found)) => {
                if let Ok(relative) = entry.path().strip_prefix(root) {
                    listing.insert(relative.to_owned(), found);
                }
            }
            Ok(Considered::Directory) => {}
            Ok(Considered::Skipped) => {
                let document = limits.document;
                let hidden = document.and_then(|it| hidden_document(&entry, it));
                problems.extend(hidden.map(|path| (path, WalkProblem::Hidden)));
                skip(&mut entries, &entry);
            }
            Err(kind) => {
                problems.push((entry.path().to_owned(), kind));
                // What lies below a directory that is only oddly named is looked at.
                if entry.path_is_symlink() {
                    skip(&mut entries, &entry);
                }
            }
        }
    }
    listing
}

enum Considered {
    File(Entry),
    Directory,
    Skipped,
}

fn consider(
    entry: &DirEntry,
    resolved_root: &Path,
    limits: &Walk,
) -> Result<Considered, WalkProblem> {
    if is_hidden(entry.file_name()) {
        return Ok(Considered::Skipped);
    }
    if entry.path_is_symlink() {
        let target = fs::canonicalize(entry.path());
        if !target.is_ok_and(|target| target.starts_with(resolved_root)) {
            return Err(WalkProblem::LinkOutside);
        }
    }
    let kind = entry.file_type();
    if kind.is_dir() {
        if limits
            .document
            .is_some_and(|name| entry.file_name() == name)
        {
            return Err(WalkProblem::NotAFile);
        }
        if entry.depth() > limits.max_depth {
            let max_depth = limits.max_depth;
            return Err(WalkProblem::TooDeep { max_depth });
        }
        return Ok(Considered::Directory);
    }
    if !kind.is_file() {
        return Err(WalkProblem::NotAFile);
    }
    let resolved = fs::canonicalize(entry.path()).map_err(WalkProblem::Unlistable)?;
    if !resolved.starts_with(resolved_root) {
        return Err(WalkProblem::LinkOutside);
    }
    let metadata = fs::metadata(&resolved).map_err(WalkProblem::Unlistable)?;
    Ok(Considered::File(Entry {
        resolved,
        size: metadata.len(),
        modified: metadata.modified().ok(),
        changed: changed(&metadata),
    }))
}

/// The document that a hidden entry is or has in it. Entries that begin with two dots are those of mounted volumes, which
/// link to them.
fn hidden_document(entry: &DirEntry, document: &str) -> Option<PathBuf> {
    let name = entry.file_name().to_str()?.strip_prefix('.')?;
    if name.starts_with('.') {
        return None;
    }
    let path = match entry.file_type().is_dir() {
        true => entry.path().join(document),
        false if name == document => entry.path().to_owned(),
        false => return None,
    };
    path.symlink_metadata().is_ok().then_some(path)
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().first() == Some(&b'.')
}

fn skip(entries: &mut walkdir::IntoIter, entry: &DirEntry) {
    // For anything else it would skip the rest of the directory that the entry is in.
    if entry.file_type().is_dir() {
        entries.skip_current_dir();
    }
}

/// A link that leads nowhere, or to a directory above it, or a directory that may not be read.
/// Nothing for what was deleted meanwhile, or is hidden.
fn walk_problem(root: &Path, error: walkdir::Error) -> Option<Problem> {
    let path = error.path().unwrap_or(root).to_owned();
    if path.file_name().is_some_and(is_hidden) {
        return None;
    }
    let is_link = fs::symlink_metadata(&path).is_ok_and(|it| it.is_symlink());
    if is_link && error.loop_ancestor().is_none() {
        return Some((path, WalkProblem::LinkOutside));
    }
    let cause = io::Error::from(error);
    if cause.kind() == io::ErrorKind::NotFound {
        return None;
    }
    Some((path, WalkProblem::Unlistable(cause)))
}

#[cfg(unix)]
fn changed(metadata: &fs::Metadata) -> Option<(i64, i64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.ctime(), metadata.ctime_nsec()))
}

#[cfg(not(unix))]
fn changed(_metadata: &fs::Metadata) -> Option<(i64, i64)> {
    None
}
