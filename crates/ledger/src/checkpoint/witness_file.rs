//! File elsewhere that witnesses a ledger: it is told each checkpoint, a line each, and nothing in it is ever changed.

use super::{Checkpoint, file};
use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// File that is told of checkpoints. Each line is added behind the last one that was told, and synchronized.
#[derive(Debug)]
pub struct WitnessFile {
    path: PathBuf,
    /// True once the file was read, which needs its volume.
    is_open: bool,
    told: Witnessed,
}

/// Last line that a file of a witness, or of time-stamps, is known to have, for the record of the ledger itself: by that
/// a start notices that the file is gone. Clones are of the same file.
#[derive(Clone, Debug)]
pub struct Witnessed {
    pub(super) path: Arc<Path>,
    /// Entry that the line seals; zero before there is a line.
    sequence: Arc<AtomicU64>,
}

impl Witnessed {
    /// A file without lines.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.into(),
            sequence: Arc::default(),
        }
    }

    /// Notes that the file has a line that seals the entry `sequence`.
    pub fn has(&self, sequence: u64) {
        self.sequence.store(sequence, Ordering::Release);
    }

    /// Entry that the last line seals; `None` before there is one.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        match self.sequence.load(Ordering::Acquire) {
            0 => None,
            sequence => Some(sequence),
        }
    }
}

impl WitnessFile {
    /// A file at this path, which need not be there yet. Nothing is read or written.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            is_open: false,
            told: Witnessed::new(path),
        }
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Last line that the file is known to have, also later.
    #[must_use]
    pub fn witnessed(&self) -> Witnessed {
        self.told.clone()
    }

    /// Reads the last line. It is done before the first checkpoint is told, at the latest.
    ///
    /// # Errors
    ///
    /// As [`WitnessFile::check_place`], and when the file cannot be read.
    pub fn open(&mut self) -> io::Result<()> {
        if self.is_open {
            return Ok(());
        }
        Self::check_place(&self.path)?;
        let last = match file::last(&self.path) {
            Ok(last) => last,
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let sequence = last.map_or(0, |last| last.sequence);
        self.told.sequence.store(sequence, Ordering::Release);
        self.is_open = true;
        Ok(())
    }

    /// Adds a checkpoint, durably. One that the file has already, or a later one, changes nothing.
    ///
    /// # Errors
    ///
    /// As [`WitnessFile::open`], when the file does not end with the line that was added last, and when it cannot be
    /// written.
    pub fn tell(&mut self, checkpoint: &Checkpoint) -> io::Result<()> {
        self.open()?;
        Self::check_place(&self.path)?;
        let after = self.told.sequence();
        if after.is_some_and(|after| checkpoint.sequence <= after) {
            return Ok(());
        }
        file::append(&self.path, checkpoint, after)?;
        self.told.has(checkpoint.sequence);
        Ok(())
    }

    /// Checks that a file of this path can be a witness: its directory is there, since one in the place of a volume
    /// that is not mounted would be made where the ledger is; and it is a plain file, or not there yet.
    ///
    /// # Errors
    ///
    /// When that is not so, or cannot be found out.
    pub fn check_place(path: &Path) -> io::Result<()> {
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        if !fs::metadata(directory)?.is_dir() {
            return Err(io::Error::new(
                ErrorKind::NotADirectory,
                "what it is to be in is no directory",
            ));
        }
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_file() => Ok(()),
            Ok(_) => Err(io::Error::new(
                ErrorKind::InvalidInput,
                "it is no plain file; links are not followed",
            )),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(sequence: u64) -> Checkpoint {
        Checkpoint {
            sequence,
            hash: [1; 32],
            at_us: 5,
            next_by: sequence + 9,
            signature: None,
        }
    }

    #[test]
    fn lines_are_added_behind_the_last_one_and_nothing_is_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("witness");
        let mut file = WitnessFile::new(&path);
        assert_eq!(file.witnessed().sequence(), None);
        for sequence in [3, 7, 7, 5] {
            file.tell(&checkpoint(sequence)).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        let mut again = WitnessFile::new(&path);
        again.open().unwrap();
        assert_eq!(again.witnessed().sequence(), Some(7));
        again.tell(&checkpoint(9)).unwrap();
        // Somebody else's line, a file that was cut off, and one that is gone.
        assert!(file.tell(&checkpoint(11)).is_err());
        fs::write(&path, text).unwrap();
        assert!(again.tell(&checkpoint(11)).is_err());
        fs::remove_file(&path).unwrap();
        assert!(again.tell(&checkpoint(11)).is_err());
        assert!(!path.exists());
    }

    #[test]
    #[cfg(unix)]
    fn a_place_that_cannot_be_a_witness_is_refused_and_nothing_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("ledger"), &link).unwrap();
        let unmounted = directory.path().join("volume/witness");
        fs::write(directory.path().join("file"), "").unwrap();
        let in_a_file = directory.path().join("file/witness");
        for path in [&link, &unmounted, &in_a_file, &directory.path().to_owned()] {
            let told = WitnessFile::new(path).tell(&checkpoint(3));
            assert!(told.is_err(), "{}", path.display());
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
