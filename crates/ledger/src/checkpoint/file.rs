//! The file of checkpoints: one a line, oldest first.

use super::Checkpoint;
use sqlite_file::private;
use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
};

/// The most bytes of a line; longer ones are no checkpoints.
const MAX_LINE_BYTES: u64 = 1024;

/// Adds a line, durably, behind the one that seals the entry `after`, if there must be one: a file that
/// was emptied, cut off or taken away is not gone on with, so that it shows. A line that an earlier write
/// left unfinished stays by itself.
pub(super) fn append(path: &Path, checkpoint: &Checkpoint, after: Option<u64>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(after.is_none());
    let mut file = private(&mut options).open(path)?;
    let bytes = file.seek(SeekFrom::End(0))?;
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(bytes.saturating_sub(2 * MAX_LINE_BYTES)))?;
    file.read_to_end(&mut end)?;
    let text = String::from_utf8_lossy(&end);
    let last = text.lines().rev().find_map(Checkpoint::from_json);
    if let Some(after) = after
        && last.is_none_or(|last| last.sequence != after)
    {
        return Err(io::Error::other(format!(
            "its last line, which seals entry {after}, is gone: put the file back as it was"
        )));
    }
    let mut line = String::new();
    if !end.is_empty() && !end.ends_with(b"\n") {
        line.push('\n');
    }
    line.push_str(&checkpoint.to_json());
    line.push('\n');
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

/// Makes a file that begins with this checkpoint.
pub(crate) fn append_first(path: &Path, checkpoint: &Checkpoint) -> io::Result<()> {
    append(path, checkpoint, None)
}

/// The last checkpoint of a file.
pub(crate) fn last(path: &Path) -> io::Result<Option<Checkpoint>> {
    let mut lines = Lines::open(path)?;
    let mut last = None;
    while let Some(checkpoint) = lines.next.take() {
        last = Some(checkpoint);
        lines.advance()?;
    }
    Ok(last)
}

/// The checkpoints of a file.
#[derive(Debug)]
pub(crate) struct Lines {
    file: io::Take<BufReader<File>>,
    next: Option<Checkpoint>,
    /// Lines that are no checkpoints.
    pub(crate) unreadable: u64,
}

impl Lines {
    /// Opens the lines that are there now; later ones are not seen.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut lines = Self {
            file: BufReader::new(file).take(bytes),
            next: None,
            unreadable: 0,
        };
        lines.advance()?;
        Ok(lines)
    }

    /// The next checkpoint, which stays the next.
    pub(crate) fn peek(&self) -> Option<&Checkpoint> {
        self.next.as_ref()
    }

    /// Goes on to the one after.
    pub(crate) fn advance(&mut self) -> io::Result<()> {
        self.next = None;
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut self.file)
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(());
            }
            let text = std::str::from_utf8(&line).unwrap_or_default().trim_end();
            if let Some(checkpoint) = Checkpoint::from_json(text) {
                self.next = Some(checkpoint);
                return Ok(());
            }
            if !text.is_empty() {
                self.unreadable += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_a_crash_left_of_a_line_spoils_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.checkpoints");
        let checkpoint = |sequence| Checkpoint {
            sequence,
            hash: [1; 32],
            at_us: 5,
            next_by: 9,
            signature: None,
        };
        append(&path, &checkpoint(1), None).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"sequence\":2,\"ha").unwrap();
        append(&path, &checkpoint(3), Some(1)).unwrap();
        file.write_all(&[b'x'; 3_000]).unwrap();
        append(&path, &checkpoint(4), None).unwrap();
        let mut lines = Lines::open(&path).unwrap();
        append(&path, &checkpoint(5), Some(4)).unwrap();
        let mut found = Vec::new();
        while let Some(next) = lines.peek() {
            found.push(next.sequence);
            lines.advance().unwrap();
        }
        assert_eq!(found, [1, 3, 4]);
        assert_ne!(lines.unreadable, 0);
        fs::write(&path, "").unwrap();
        assert!(Lines::open(&path).unwrap().peek().is_none());
        // What was there is missed, and nothing is begun anew.
        assert!(append(&path, &checkpoint(6), Some(5)).is_err());
        fs::remove_file(&path).unwrap();
        assert!(append(&path, &checkpoint(6), Some(5)).is_err());
        assert!(!path.exists());
    }
}
