use super::{Fault, Stop, Trust, VerifyError, Wrong};
use crate::{Checkpoint, Event, PublicKey, ReadLedger, SignatureError, Tail, checkpoint::Lines};
use std::path::PathBuf;

/// Checks checkpoints, those of the ledger and those of a file, as the entries go by.
pub(super) struct Seals {
    keys: Vec<PublicKey>,
    path: PathBuf,
    lines: Option<Lines>,
    pub(super) checked: u64,
    pub(super) sealed_through: u64,
    /// Whether a signature has been seen: what comes before the first one need not be signed, for
    /// the first one seals it.
    signed: bool,
    /// The entry by which the last checkpoint promises another one.
    next_by: Option<u64>,
}

impl Seals {
    pub(super) fn new(trust: Trust<'_>) -> Result<Self, VerifyError> {
        let path = trust.checkpoints.map(PathBuf::from).unwrap_or_default();
        let lines = match trust.checkpoints {
            None => None,
            Some(_) => Some(
                Lines::open(&path).map_err(|source| VerifyError::Checkpoints {
                    path: path.clone(),
                    source,
                })?,
            ),
        };
        Ok(Self {
            keys: trust.keys.to_vec(),
            path,
            lines,
            checked: 0,
            sealed_through: 0,
            signed: false,
            next_by: None,
        })
    }

    pub(super) fn unreadable_lines(&self) -> u64 {
        self.lines.as_ref().map_or(0, |lines| lines.unreadable)
    }

    /// A group ends here: looks at the lines of the file about what has gone by.
    pub(super) fn group_ends(
        &mut self,
        ledger: &mut dyn ReadLedger,
        tail: &Tail,
    ) -> Result<(), Stop> {
        let last = tail.next_sequence - 1;
        while let Some(line) = self.lines.as_ref().and_then(Lines::peek) {
            if last < line.sequence {
                break;
            }
            let line = line.clone();
            self.check(ledger, line.sequence, &line)?;
            self.advance()?;
        }
        Ok(())
    }

    /// An entry goes by, of the group that begins at `first`.
    pub(super) fn entry(
        &mut self,
        ledger: &mut dyn ReadLedger,
        first: u64,
        sequence: u64,
        event: &Event,
    ) -> Result<(), Stop> {
        if let Some(checkpoint) = checkpoint(event) {
            // It seals groups before its own.
            let checkpoint = checkpoint
                .filter(|it| it.sequence < first && sequence < it.next_by)
                .ok_or_else(|| Wrong::at(sequence, Fault::BadCheckpoint))?;
            self.check(ledger, sequence, &checkpoint)?;
            self.next_by = Some(checkpoint.next_by);
        } else if self.next_by.is_some_and(|next_by| next_by <= sequence) {
            return Err(Wrong::at(sequence, Fault::NoCheckpoint));
        }
        Ok(())
    }

    /// All has gone by.
    pub(super) fn finish(&mut self, ledger: &mut dyn ReadLedger, tail: &Tail) -> Result<(), Stop> {
        self.group_ends(ledger, tail)?;
        if let Some(line) = self.lines.as_ref().and_then(Lines::peek) {
            let through = line.sequence;
            return Err(Wrong::at(tail.next_sequence, Fault::Truncated { through }));
        }
        if !self.keys.is_empty() && !self.signed && tail.next_sequence != 1 {
            // Keys are given because there are signatures, and they are all gone.
            return Err(Wrong::at(1, Fault::Signature(SignatureError::Missing)));
        }
        Ok(())
    }

    /// Checks a checkpoint, which `sequence` has or which is about it.
    fn check(
        &mut self,
        ledger: &mut dyn ReadLedger,
        sequence: u64,
        checkpoint: &Checkpoint,
    ) -> Result<(), Stop> {
        let is_signed = match checkpoint.check_signature(&self.keys) {
            Ok(()) => true,
            Err(_) if self.keys.is_empty() => false,
            Err(SignatureError::Missing) if !self.signed => false,
            Err(error) => return Err(Wrong::at(sequence, Fault::Signature(error))),
        };
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
        if is_signed || self.keys.is_empty() {
            self.sealed_through = self.sealed_through.max(checkpoint.sequence);
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<(), VerifyError> {
        let Some(lines) = &mut self.lines else {
            return Ok(());
        };
        lines.advance().map_err(|source| VerifyError::Checkpoints {
            path: self.path.clone(),
            source,
        })
    }
}

/// The checkpoint that an entry is; `Some(None)` if it is one that cannot be read.
fn checkpoint(event: &Event) -> Option<Option<Checkpoint>> {
    match event {
        Event::Noted(noted) if noted.kind == crate::NoteKind::CHECKPOINT => {
            Some(Checkpoint::from_json(&noted.detail.text))
        }
        Event::Noted(_) | Event::Started(_) | Event::Ended(_) => None,
    }
}
