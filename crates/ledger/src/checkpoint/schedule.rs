//! Schedule of a ledger's checkpoints.

use super::{Checkpoint, FileKind, Filed, SigningKey, Witnessed, file};
use crate::{
    record::{
        entry::Clipped,
        note::{NoteKind, Noted},
    },
    recorder::{DEFAULT_MAX_UNWRITTEN, commit_hook::CommitHook},
    store::Tail,
};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::sync::watch;

/// Entries after which there is a checkpoint unless told otherwise.
pub const DEFAULT_CHECKPOINT_ENTRIES: u64 = 10_000;

/// The time after which there is a checkpoint unless told otherwise.
pub const DEFAULT_CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Entries that may come between the moment that a checkpoint is due and its being on record,
/// beside those of calls: notes, and ends of calls that an earlier server left open.
const MAX_LATE_ENTRIES: u64 = 16_384;

/// Options of checkpoints.
#[derive(Clone, Debug)]
pub struct CheckpointOptions {
    /// After so many entries.
    pub entries: u64,
    /// After so much time, if anything has been written since.
    pub interval: Duration,
    /// A file that gets each checkpoint as a line, beside the ledger or on another disk.
    pub file: Option<PathBuf>,
    /// Key that signs checkpoints.
    pub key: Option<Arc<SigningKey>>,
    /// True if other servers append to the same ledger. If none does, the checkpoint at close
    /// records that nothing comes after it but a server that begins with one.
    pub shared: bool,
    /// Most calls that may be open or unwritten at once:
    /// [`crate::recorder::RecorderOptions::max_unwritten`].
    pub max_unwritten: usize,
    /// Gets each checkpoint once it is in the ledger, for a witness elsewhere.
    pub witness: Option<watch::Sender<Option<Checkpoint>>>,
    /// Last line that a file of a witness is known to have, which each checkpoint puts on record unless the ledger is shared.
    pub witnessed: Option<Witnessed>,
    /// The same of the file of time-stamps.
    pub stamped: Option<Witnessed>,
}

/// Seals a ledger when it is time: a [`CommitHook`] for [`crate::recorder::Recorder::spawn_with_hook`].
#[derive(Debug)]
pub struct Checkpoints {
    options: CheckpointOptions,
    /// End of the ledger after the last checkpoint, and the time of that.
    last: Option<(u64, u64)>,
    /// Checkpoint that has not been written to the file yet.
    unfiled: Option<Checkpoint>,
    /// The last line that is known to be in the file.
    filed: Option<Filed>,
    /// Entry that the last line of the file seals, whoever shares the ledger.
    written: Option<u64>,
    /// The reason why the last checkpoint is not in the file.
    trouble: Option<String>,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        Self {
            entries: DEFAULT_CHECKPOINT_ENTRIES,
            interval: DEFAULT_CHECKPOINT_INTERVAL,
            file: None,
            key: None,
            shared: false,
            max_unwritten: DEFAULT_MAX_UNWRITTEN,
            witness: None,
            witnessed: None,
            stamped: None,
        }
    }
}

impl Checkpoints {
    /// Seals as these say. The first checkpoint is due as soon as there is an entry.
    #[must_use]
    pub fn new(options: CheckpointOptions) -> Self {
        Self {
            options,
            last: None,
            unfiled: None,
            filed: None,
            written: None,
            trouble: None,
        }
    }

    /// The checkpoint that is due at this time, if one is, of a ledger that ends there.
    #[must_use]
    pub fn due(&self, tail: &Tail, now_us: u64) -> Option<Checkpoint> {
        let is_due = match self.last {
            // A seal of nothing would fit any beginning.
            None => 1 < tail.next_sequence,
            Some((next_sequence, at_us)) => {
                let entries = tail.next_sequence.saturating_sub(next_sequence);
                self.options.entries <= entries
                    || (0 < entries && self.interval_us() <= at_us.abs_diff(now_us))
            }
        };
        is_due.then(|| self.checkpoint(tail, now_us, self.next_by(tail)))
    }

    /// The checkpoint at the end, when nothing comes any more; none of an empty ledger.
    #[must_use]
    pub fn at_close(&self, tail: &Tail, now_us: u64) -> Option<Checkpoint> {
        let next_by = if self.options.shared {
            self.next_by(tail)
        } else {
            // Its own place is the next, and the one after that is another server's checkpoint.
            tail.next_sequence.saturating_add(1)
        };
        (1 < tail.next_sequence).then(|| self.checkpoint(tail, now_us, next_by))
    }

    /// Makes a checkpoint a note.
    fn seal(&mut self, checkpoint: Checkpoint) -> Noted {
        // The note has the next place, unless others come in between.
        let after = checkpoint.sequence.saturating_add(2);
        self.last = Some((after, checkpoint.at_us));
        let mut detail = checkpoint.as_value();
        if let Some(filed) = &self.filed {
            filed.add_to(&mut detail, FileKind::Checkpoints);
        }
        for (file, kind) in [
            (&self.options.witnessed, FileKind::Witness),
            (&self.options.stamped, FileKind::Timestamps),
        ] {
            if let Some(file) = file.as_ref().filter(|_| !self.options.shared)
                && let Some(sequence) = file.sequence()
            {
                Filed::new(&file.path, sequence).add_to(&mut detail, kind);
            }
        }
        let text = detail.to_string();
        let at_us = checkpoint.at_us;
        self.unfiled = Some(checkpoint);
        Noted {
            at_us,
            kind: NoteKind::CHECKPOINT,
            actor: "system".to_owned(),
            subject: String::new(),
            policy_version: 0,
            detail: Clipped { text, cut: None },
        }
    }

    /// Writes the last checkpoint to the file once its note has been stored. That waits for the
    /// disk, and so does all before it: were the line there earlier, a crash that takes entries
    /// which no caller waited for would leave it behind as the proof of a deletion.
    fn write_down(&mut self, tail: &Tail) {
        let is_stored = |it: &mut Checkpoint| it.sequence.saturating_add(2) <= tail.next_sequence;
        let Some(checkpoint) = self.unfiled.take_if(is_stored) else {
            return;
        };
        if let Some(witness) = &self.options.witness {
            witness.send_replace(Some(checkpoint.clone()));
        }
        if let Some(path) = &self.options.file {
            match file::append(path, &checkpoint, self.written) {
                Ok(()) => {
                    self.trouble = None;
                    self.is_filed(checkpoint.sequence);
                }
                // The next line covers what this one would have.
                Err(error) => {
                    let path = path.display();
                    tracing::error!(%error, %path, "a checkpoint of the ledger could not be written to its file");
                    self.trouble = Some(format!("no checkpoint can be written to {path}: {error}"));
                }
            }
        }
    }

    /// The file has a line that seals the ledger through this entry. Of servers that share a ledger
    /// each has a file of its own, of which the others know nothing.
    fn is_filed(&mut self, sequence: u64) {
        self.written = Some(sequence);
        let path = self.options.file.as_deref();
        self.filed = path
            .filter(|_| !self.options.shared)
            .map(|path| Filed::new(path, sequence));
    }

    /// The entry by which another checkpoint is on record: it is due after so many entries, and
    /// those come first that are on their way then, at most two for each call in two groups.
    fn next_by(&self, tail: &Tail) -> u64 {
        let calls = u64::try_from(self.options.max_unwritten).unwrap_or(u64::MAX);
        let late = calls.saturating_mul(4).saturating_add(MAX_LATE_ENTRIES);
        tail.next_sequence
            .saturating_add(self.options.entries)
            .saturating_add(late)
    }

    fn interval_us(&self) -> u64 {
        u64::try_from(self.options.interval.as_micros()).unwrap_or(u64::MAX)
    }

    fn checkpoint(&self, tail: &Tail, at_us: u64, next_by: u64) -> Checkpoint {
        let mut checkpoint = Checkpoint {
            sequence: tail.next_sequence.saturating_sub(1),
            hash: tail.hash,
            at_us,
            next_by,
            signature: None,
        };
        if let Some(key) = &self.options.key {
            checkpoint.sign(key);
        }
        checkpoint
    }
}

impl CommitHook for Checkpoints {
    fn opening(&mut self, tail: Tail, now_us: u64) -> Option<Noted> {
        let path = self.options.file.as_deref();
        if let Some(Ok(Some(line))) = path.map(file::last) {
            self.is_filed(line.sequence);
        }
        self.stored(tail, now_us)
    }

    fn stored(&mut self, tail: Tail, now_us: u64) -> Option<Noted> {
        self.write_down(&tail);
        let due = self.due(&tail, now_us)?;
        Some(self.seal(due))
    }

    fn closing(&mut self, tail: Tail, now_us: u64) -> Option<Noted> {
        let last = self.at_close(&tail, now_us)?;
        Some(self.seal(last))
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_US: u64 = 60 * 60 * 1_000_000;

    fn tail(next_sequence: u64) -> Tail {
        Tail {
            next_sequence,
            hash: [3; 32],
        }
    }

    #[test]
    fn a_checkpoint_is_due_at_first_and_after_entries_or_time() {
        let mut checkpoints = Checkpoints::new(CheckpointOptions {
            max_unwritten: 1,
            ..CheckpointOptions::default()
        });
        assert!(checkpoints.opening(tail(1), 0).is_none());
        assert!(checkpoints.at_close(&tail(1), 0).is_none());
        let first = checkpoints.stored(tail(2), 0).unwrap();
        let first = Checkpoint::from_json(&first.detail.text).unwrap();
        assert_eq!((first.sequence, first.next_by), (1, 26_390));
        for (next_sequence, at_us, expected) in [
            (3, 0, None),
            (3, 9 * HOUR_US, None), // nothing has come but the checkpoint itself
            (4, HOUR_US - 1, None),
            (4, HOUR_US, Some(3)),
            (10_002, 0, None),
            (10_003, 0, Some(10_002)),
        ] {
            let due = checkpoints.due(&tail(next_sequence), at_us);
            assert_eq!(due.map(|it| it.sequence), expected, "{next_sequence}");
        }
        assert!(checkpoints.stored(tail(10_003), 5).is_some());
        assert!(checkpoints.stored(tail(10_004), 5).is_none());
    }

    #[test]
    fn nothing_but_a_checkpoint_comes_after_the_last_unless_the_ledger_is_shared() {
        let mut options = CheckpointOptions::default();
        let alone = Checkpoints::new(options.clone())
            .at_close(&tail(8), 5)
            .unwrap();
        assert_eq!((alone.sequence, alone.next_by), (7, 9));
        options.shared = true;
        let shared = Checkpoints::new(options).at_close(&tail(8), 5).unwrap();
        assert!(10_000 < shared.next_by);
    }
}
