//! Files of operators, replaced as a whole.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::Path;

/// Puts `text` in the place of the file at `path`, which is called `name` in messages and had the text `before`, whole
/// or not at all. A file that has changed meanwhile stays as it is.
///
/// # Errors
///
/// The reason why it is not written.
pub(crate) fn rewrite(name: &str, path: &Path, before: &str, text: &str) -> Result<(), String> {
    let now = std::fs::read_to_string(path).unwrap_or_default();
    if now != before {
        return Err(format!(
            "{name} has changed meanwhile, and was left as it is: try again"
        ));
    }
    let metadata = std::fs::metadata(path).ok();
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{file_name}.{}.new", std::process::id()));
    let written: io::Result<()> = (|| {
        let mode = metadata
            .as_ref()
            .map_or(0o600, |it| it.permissions().mode());
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode & 0o7777)
            .open(&new)?;
        if let Some(metadata) = &metadata {
            file.set_permissions(metadata.permissions())?;
            // Only root can give a file away, and for all others it is theirs already.
            let _ = chown(&new, Some(metadata.uid()), Some(metadata.gid()));
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written.map_err(|error| format!("{name} cannot be written: {error}"))
}
