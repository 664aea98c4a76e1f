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

/// Adds a line, durably. A line that an earlier write left unfinished stays by itself.
pub(super) fn append(path: &Path, checkpoint: &Checkpoint) -> io::Result<()> {
    let mut file = private(OpenOptions::new().read(true).append(true).create(true)).open(path)?;
    let mut line = String::new();
    if file.seek(SeekFrom::End(0))? != 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            line.push('\n');
        }
    }
    line.push_str(&checkpoint.to_json());
    line.push('\n');
    file.write_all(line.as_bytes())?;
    file.sync_data()
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
    /// Those that are there now; what is added later is not seen.
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
        append(&path, &checkpoint(1)).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"sequence\":2,\"ha").unwrap();
        append(&path, &checkpoint(3)).unwrap();
        file.write_all(&[b'x'; 3_000]).unwrap();
        append(&path, &checkpoint(4)).unwrap();
        let mut lines = Lines::open(&path).unwrap();
        append(&path, &checkpoint(5)).unwrap();
        let mut found = Vec::new();
        while let Some(next) = lines.peek() {
            found.push(next.sequence);
            lines.advance().unwrap();
        }
        assert_eq!(found, [1, 3, 4]);
        assert_ne!(lines.unreadable, 0);
        fs::write(&path, "").unwrap();
        assert!(Lines::open(&path).unwrap().peek().is_none());
    }
}
