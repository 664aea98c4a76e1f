//! Redactor of the server, and its key.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use redaction::Redactor;

use config::Redaction;

/// Reason why there is no redactor. Without one nothing could be recorded, so the server does not
/// start.
#[derive(Debug, thiserror::Error)]
pub(super) enum RedactionError {
    /// The section of the configuration cannot be used.
    #[error("the configuration of redaction cannot be used")]
    Spec(#[from] redaction::BadSpec),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers for the key of redaction")]
    Randomness(#[source] getrandom::Error),
    /// The file of the key cannot be read or made.
    #[error("the key of redaction, {}, cannot be read or made", path.display())]
    KeyFile {
        /// Path of the key.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file of the key has something else in it.
    #[error(
        "{} is no key of redaction; without it, move it away, and secrets will have other digests from then on",
        .0.display()
    )]
    NoKey(PathBuf),
}

/// Redactor with the key that belongs to the ledger at `ledger`. Makes the key at the first start; later a
/// key that is missing is replaced by a new one with a warning.
pub(super) fn redactor(
    config: &Redaction,
    ledger: &Path,
    is_first_start: bool,
) -> Result<Arc<Redactor>, RedactionError> {
    let path = key_path(ledger);
    let is_lost = !is_first_start && !path.exists();
    let key = key(&path)?;
    if is_lost {
        tracing::warn!(
            path = %path.display(),
            hint = "put the file back from a backup and start the server again",
            "the key of redaction was missing, and a new one was made: secrets have other digests from now \
             on, so that equal ones in older entries cannot be recognised"
        );
    }
    Ok(Arc::new(Redactor::new(&config.spec(), key)?))
}

/// Returns false if there is no key beside the ledger at `ledger`.
///
/// # Errors
///
/// The reason why a start would refuse the key.
pub fn has_redaction_key(ledger: &Path) -> Result<bool, crate::Failure> {
    let path = key_path(ledger);
    match regular_file::read_text(&path, regular_file::MAX_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(RedactionError::KeyFile { path, source }.into()),
        Ok(text) if parse(&text).is_some() => Ok(true),
        Ok(_) => Err(RedactionError::NoKey(path).into()),
    }
}

fn key_path(ledger: &Path) -> PathBuf {
    let mut path = ledger.as_os_str().to_owned();
    path.push(".redaction-key");
    path.into()
}

/// Reads the key, or makes it if there is none.
fn key(path: &Path) -> Result<[u8; 32], RedactionError> {
    let failed = |source| RedactionError::KeyFile {
        path: path.to_owned(),
        source,
    };
    let text = match regular_file::read_text(path, regular_file::MAX_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut key = [0; 32];
            getrandom::fill(&mut key).map_err(RedactionError::Randomness)?;
            make(path, &key).map_err(failed)?;
            // Another process may have been first: what is there now is the key.
            regular_file::read_text(path, regular_file::MAX_BYTES).map_err(failed)?
        }
        read => read.map_err(failed)?,
    };
    parse(&text).ok_or_else(|| RedactionError::NoKey(path.to_owned()))
}

/// Writes a key that can be read by its owner alone, as a whole or not at all, and never over
/// another.
fn make(path: &Path, key: &[u8; 32]) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let text = HEXLOWER.encode(key);
    // Where the record is in a database there may be no directory yet.
    if let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    let written = (|| {
        let mut file: File = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        match fs::hard_link(&draft, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    })();
    let removed = fs::remove_file(&draft);
    written.and(removed)
}

fn parse(text: &str) -> Option<[u8; 32]> {
    let digits = text.trim_end().as_bytes();
    let mut key = [0; 32];
    if digits.len() != 2 * key.len() {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_key_is_made_once_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = key_path(&directory.path().join("ledger.db"));
        let made = key(&path).unwrap();
        assert_ne!(made, [0; 32]);
        assert_eq!(key(&path).unwrap(), made);
        make(&path, &[7; 32]).unwrap();
        assert_eq!(key(&path).unwrap(), made);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_key_is_not_taken_for_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        for text in [
            "",
            "abc",
            &"0".repeat(63),
            &"g".repeat(64),
            &"+1".repeat(32),
        ] {
            fs::write(&path, text).unwrap();
            assert!(
                matches!(key(&path), Err(RedactionError::NoKey(_))),
                "{text}"
            );
        }
        fs::write(&path, "0F".repeat(32)).unwrap();
        assert_eq!(key(&path).unwrap(), [15; 32]);
        assert!(key(&directory.path().join("made/for/key")).is_ok());
        let nowhere = path.join("a file is no directory");
        assert!(matches!(key(&nowhere), Err(RedactionError::KeyFile { .. })));
    }
}
