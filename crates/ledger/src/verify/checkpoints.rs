use super::{Fault, Stop, Trust, VerifyError, Wrong};
use crate::{
    checkpoint::{self, Checkpoint, FileKind, Filed, Lines, PublicKey},
    fault::SignatureError,
    query::{Gap, ReadLedger},
    record::{entry::Event, seal::Seal},
    store::Tail,
    verify::SealedEvery,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Groups that may come between the moment that a checkpoint is due and the group it is in. There is
/// one at most, but for those that a server stores while it tidies.
const MAX_LATE_GROUPS: u64 = 16;

/// Checks checkpoints, those of the ledger and those of a file, as the entries go by.
pub(super) struct Seals {
    keys: Vec<PublicKey>,
    /// The file of checkpoints, and that of a witness.
    files: [SealFile; 2],
    pub(super) checked: u64,
    pub(super) sealed_through: u64,
    /// True once a signature has been seen: checkpoints before the first one need not be signed,
    /// for the first one seals them.
    signed: bool,
    /// The entry by which the last checkpoint promises another one.
    next_by: Option<u64>,
    /// The last checkpoint among the entries: what it seals, and when it was made.
    last: Option<(u64, u64)>,
    /// Sequences of the checkpoints among the entries that are believed and not sealed themselves.
    unsealed_checkpoints: Vec<u64>,
    /// The latest time of an entry, and the groups that have come since a checkpoint was due.
    latest_us: u64,
    late_groups: u64,
    every: Option<SealedEvery>,
    deleted: Vec<Gap>,
}

/// File of checkpoints that a ledger is held against, if there is one.
struct SealFile {
    kind: FileKind,
    path: PathBuf,
    lines: Option<Lines>,
    /// Last line that the file had according to the ledger, and the last that it has.
    filed: u64,
    found: u64,
}

impl SealFile {
    fn open(kind: FileKind, path: Option<&Path>) -> Result<Self, VerifyError> {
        let mut file = Self {
            kind,
            path: path.map(PathBuf::from).unwrap_or_default(),
            lines: None,
            filed: 0,
            found: 0,
        };
        if path.is_some() {
            file.lines = match Lines::open(&file.path) {
                Ok(lines) => Some(lines),
                // The ledger says whether there was one.
                Err(error)
                    if kind == FileKind::Witness && error.kind() == io::ErrorKind::NotFound =>
                {
                    None
                }
                Err(source) => return Err(file.unreadable(source)),
            };
        }
        Ok(file)
    }

    /// The next line, if it seals this entry or one before.
    fn next_through(&mut self, last: u64) -> Result<Option<Checkpoint>, VerifyError> {
        let Some(lines) = &mut self.lines else {
            return Ok(None);
        };
        let Some(line) = lines.peek().filter(|line| line.sequence <= last).cloned() else {
            return Ok(None);
        };
        self.found = line.sequence;
        let advanced = lines.advance();
        advanced.map_err(|source| self.unreadable(source))?;
        Ok(Some(line))
    }

    /// All of the ledger has gone by: tells the entry that a line seals beyond it.
    fn finish(&mut self) -> Result<Option<u64>, VerifyError> {
        if let Some(line) = self.lines.as_ref().and_then(Lines::peek) {
            return Ok(Some(line.sequence));
        }
        if self.found < self.filed && self.lines.is_some() {
            // A server may have written that line since the file was opened.
            let last = checkpoint::last(&self.path);
            let last = last.map_err(|source| self.unreadable(source))?;
            self.found = last.map_or(0, |line| line.sequence);
        }
        Ok(None)
    }

    /// The entry through which the file sealed the ledger once, if it does not any more.
    fn lacks(&self) -> Option<u64> {
        (self.found < self.filed).then_some(self.filed)
    }

    fn unreadable(&self, source: io::Error) -> VerifyError {
        let path = self.path.clone();
        VerifyError::Checkpoints { path, source }
    }
}

impl Seals {
    pub(super) fn new(trust: Trust<'_>) -> Result<Self, VerifyError> {
        Ok(Self {
            keys: trust.keys.to_vec(),
            files: [
                SealFile::open(FileKind::Checkpoints, trust.checkpoints)?,
                SealFile::open(FileKind::Witness, trust.witness)?,
            ],
            checked: 0,
            sealed_through: 0,
            signed: false,
            next_by: None,
            last: None,
            unsealed_checkpoints: Vec::new(),
            latest_us: 0,
            late_groups: 0,
            every: trust.every,
            deleted: Vec::new(),
        })
    }

    pub(super) fn unreadable_lines(&self) -> u64 {
        let lines = self.files.iter().filter_map(|file| file.lines.as_ref());
        lines.map(|lines| lines.unreadable).sum()
    }

    /// A group ends here: looks at the lines of the file about what has gone by.
    pub(super) fn group_ends(
        &mut self,
        ledger: &mut dyn ReadLedger,
        tail: &Tail,
    ) -> Result<(), Stop> {
        let last = tail.next_sequence - 1;
        for file in 0..self.files.len() {
            while let Some(line) = self.files[file].next_through(last)? {
                self.check(ledger, line.sequence, &line)?;
            }
        }
        Ok(())
    }

    /// A group has gone by, its entries too.
    pub(super) fn group_ended(&mut self, tail: &Tail) {
        if self.is_due(tail.next_sequence - 1) {
            self.late_groups += 1;
        }
    }

    /// Returns true if a server would make a checkpoint of a ledger that ends here; the
    /// checkpoint's own entry counts for nothing.
    fn is_due(&self, last: u64) -> bool {
        let (Some(every), Some((sealed, at_us))) = (&self.every, self.last) else {
            return false;
        };
        let entries = last.saturating_sub(sealed.saturating_add(1));
        let passed_us = u128::from(self.latest_us.saturating_sub(at_us));
        every.entries <= entries || (0 < entries && every.interval.as_micros() <= passed_us)
    }

    /// Entries that are sealed by nothing that is believed; a checkpoint proves itself.
    pub(super) fn unsealed(&self, entries: u64) -> u64 {
        let checkpoints = self.unsealed_checkpoints.iter();
        let proved = checkpoints.filter(|it| self.sealed_through < **it).count() as u64;
        entries.saturating_sub(self.sealed_through.saturating_add(proved))
    }

    /// The entry through which the file sealed the ledger once, if it does not any more.
    pub(super) fn file_lacks(&self) -> Option<u64> {
        self.files[0].lacks()
    }

    /// The same of the witness's file, if there is one to hold the ledger against.
    pub(super) fn witness_lacks(&self) -> Option<u64> {
        self.files[1].lacks()
    }

    /// An entry goes by, of the group that begins at `first`.
    pub(super) fn entry(
        &mut self,
        ledger: &mut dyn ReadLedger,
        first: u64,
        sequence: u64,
        event: &Event,
    ) -> Result<(), Stop> {
        if let Some((checkpoint, detail)) = sealed_by(event) {
            // It seals groups before its own.
            let checkpoint = checkpoint
                .filter(|it| it.sequence < first && sequence < it.next_by)
                .ok_or_else(|| Wrong::at(sequence, Fault::BadCheckpoint))?;
            if self.check(ledger, sequence, &checkpoint)? && checkpoint.sequence != 0 {
                let sealed = self.sealed_through;
                self.unsealed_checkpoints.retain(|it| sealed < *it);
                self.unsealed_checkpoints.push(sequence);
            }
            self.next_by = Some(checkpoint.next_by);
            self.last = Some((checkpoint.sequence, checkpoint.at_us));
            for file in &mut self.files {
                let filed = Filed::of(detail, file.kind);
                // Another file than this one, or one that is named anew, is not missed.
                file.filed = filed
                    .filter(|filed| file.kind == FileKind::Checkpoints || filed.is_in(&file.path))
                    .map_or(0, |filed| filed.sequence);
            }
            self.late_groups = 0;
        } else if self.next_by.is_some_and(|next_by| next_by <= sequence) {
            return Err(Wrong::at(sequence, Fault::NoCheckpoint));
        }
        let at_us = match event {
            Event::Started(started) => started.at_us,
            Event::Noted(noted) => noted.at_us,
            Event::Ended(_) => 0,
        };
        self.latest_us = self.latest_us.max(at_us);
        Ok(())
    }

    /// Entries were deleted, or cannot be read: of checkpoints that seal one of them nothing can be said, but for the last one.
    pub(super) fn deleted(&mut self, gap: &Gap) {
        self.deleted.push(*gap);
        (self.next_by, self.last, self.late_groups) = (None, None, 0);
    }

    fn is_deleted(&self, sequence: u64) -> bool {
        let has = |gap: &Gap| gap.first_sequence <= sequence && sequence < gap.last_sequence;
        self.deleted.iter().any(has)
    }

    /// A segment of the archive has gone by. One that is not signed is proved by the checkpoints after it.
    pub(super) fn segment(&self, seal: &Seal) -> Result<(), Stop> {
        match seal.check_signature(&self.keys) {
            Err(error) if !self.keys.is_empty() && error != SignatureError::Missing => {
                Err(Wrong::at(seal.last_sequence, Fault::Signature(error)))
            }
            _ => Ok(()),
        }
    }

    /// Returns true if a segment is not signed, and there are keys that may have signed it.
    pub(super) fn lacks_signature(&self, seal: &Seal) -> bool {
        !self.keys.is_empty() && seal.signature.is_none()
    }

    /// All has gone by.
    pub(super) fn finish(
        &mut self,
        ledger: &mut dyn ReadLedger,
        tail: &Tail,
        groups: u64,
    ) -> Result<(), Stop> {
        self.group_ends(ledger, tail)?;
        for file in &mut self.files {
            if let Some(through) = file.finish()? {
                return Err(Wrong::at(tail.next_sequence, Fault::Truncated { through }));
            }
        }
        // Of a ledger that begins there may be no checkpoint yet.
        let begins = self.last.is_none() && groups <= MAX_LATE_GROUPS;
        if !self.keys.is_empty() && !self.signed && tail.next_sequence != 1 && !begins {
            // Keys are given because there are signatures, and they are all gone.
            return Err(Wrong::at(1, Fault::Signature(SignatureError::Missing)));
        }
        if MAX_LATE_GROUPS < self.late_groups {
            let sequence = self.sealed_through.saturating_add(1);
            return Err(Wrong::at(sequence, Fault::Unsealed));
        }
        Ok(())
    }

    /// Checks a checkpoint, which `sequence` has or which is about it. Tells whether it is believed.
    fn check(
        &mut self,
        ledger: &mut dyn ReadLedger,
        sequence: u64,
        checkpoint: &Checkpoint,
    ) -> Result<bool, Stop> {
        let is_signed = match checkpoint.check_signature(&self.keys) {
            Ok(()) => true,
            Err(_) if self.keys.is_empty() => false,
            Err(SignatureError::Missing) if !self.signed => false,
            Err(error) => return Err(Wrong::at(sequence, Fault::Signature(error))),
        };
        if self.is_deleted(checkpoint.sequence) {
            return Ok(false);
        }
        // No group ends where this one says, if it was another one that ended there.
        let hash = match checkpoint.sequence {
            0 => Some(Tail::default().hash),
            sealed => ledger.hash_after(sealed)?,
        };
        if hash != Some(checkpoint.hash) {
            let through = checkpoint.sequence;
            let first = through.min(self.sealed_through + 1);
            return Err(Wrong::at(first, Fault::NotAsSealed { through }));
        }
        self.checked += 1;
        self.signed |= is_signed;
        let is_believed = is_signed || self.keys.is_empty();
        if is_believed {
            self.sealed_through = self.sealed_through.max(checkpoint.sequence);
        }
        Ok(is_believed)
    }
}

/// The checkpoint that an entry is, `None` inside if it cannot be read, and its detail.
fn sealed_by(event: &Event) -> Option<(Option<Checkpoint>, &str)> {
    match event {
        Event::Noted(noted) if noted.kind == crate::record::note::NoteKind::CHECKPOINT => {
            let detail = &noted.detail.text;
            Some((Checkpoint::from_json(detail), detail))
        }
        Event::Noted(_) | Event::Started(_) | Event::Ended(_) => None,
    }
}
