//! Files of vaults and keys: for their owner alone, and replaced as a whole.

use crate::VaultError;
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// A longer file is no vault.
pub(crate) const MAX_BYTES: u64 = 16 << 20;

/// Content of a file that only its owner can use; `None` if there is no file.
pub(crate) fn private_content(path: &Path) -> Result<Option<Zeroizing<String>>, VaultError> {
    let failed = |source| VaultError::Io {
        path: path.to_owned(),
        what: "read",
        source,
    };
    let file = match regular_file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        let path = path.to_owned();
        return Err(VaultError::Loose { path, mode });
    }
    if MAX_BYTES < metadata.len() {
        return Err(failed(io::Error::other("it is too long")));
    }
    let mut text = Zeroizing::new(String::new());
    text.reserve(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    match file.take(MAX_BYTES).read_to_string(&mut text) {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(VaultError::Damaged {
            path: path.to_owned(),
            why: "it is no text",
        }),
        Err(error) => Err(failed(error)),
    }
}

/// Writes a file for its owner alone, which takes its place as a whole. Unless it `replaces` one, there must be
/// none.
pub(crate) fn write_private(path: &Path, text: &str, replaces: bool) -> Result<(), VaultError> {
    let failed = |source| VaultError::Io {
        path: path.to_owned(),
        what: "written",
        source,
    };
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed)?;
    // A link stays one: the file that it leads to is replaced.
    let target = match replaces {
        true => path.canonicalize().map_err(failed)?,
        false => path.to_owned(),
    };
    let draft = beside(&target, &format!(".{}.draft", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        // Whatever the mask says.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        match replaces {
            true => fs::rename(&draft, &target)?,
            // Unlike a rename, a link takes nothing's place.
            false => fs::hard_link(&draft, &target)?,
        }
        let directory = target.parent().unwrap_or(Path::new("/"));
        File::open(match directory.as_os_str().is_empty() {
            true => Path::new("."),
            false => directory,
        })?
        .sync_all()
    })();
    if written.is_err() || !replaces {
        let _ = fs::remove_file(&draft);
    }
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists if !replaces => VaultError::Exists(path.to_owned()),
        _ => failed(error),
    })
}

/// The path with this at the end of its name.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Removes what writers have left that were killed. Only who has the lock writes drafts.
pub(crate) fn clear_drafts(target: &Path) {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let beginning = format!("{name}.");
    let entries = target.parent().and_then(|it| fs::read_dir(it).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let found = entry.file_name();
        let middle = found
            .to_str()
            .and_then(|it| it.strip_prefix(&beginning)?.strip_suffix(".draft"));
        if middle.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit())) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
