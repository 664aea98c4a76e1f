use super::{Fault, Stop, VerifyError, Wrong, altered, link};
use crate::{
    checkpoint::{Checkpoint, PublicKey},
    fault::SignatureError,
    query::{ReadLedger, StoredGroup},
    record::{codec, entry::Event, note::NoteKind},
    store::Tail,
};

/// Verifies what is appended to a ledger, from the end that it had on. It remembers how far it has come, so that a
/// ledger that is rewritten with all its hashes shows, too, which a pass over it by itself cannot know.
#[derive(Debug, Default)]
pub struct Follower {
    /// End of what was seen; `None` before the first look.
    seen: Option<Tail>,
}

impl Follower {
    /// The last entry that was seen; `None` before the first look.
    #[must_use]
    pub fn last_sequence(&self) -> Option<u64> {
        self.seen.map(|tail| tail.next_sequence - 1)
    }

    /// Looks at what has come since the last time: that what was seen is still there, that the chain goes on from it,
    /// that entries can be read, and that checkpoints among them seal what is before them and are signed by one of
    /// `keys`, where there are any and they are signed. The first look finds where the ledger ends. Index and tables
    /// are left to [`verify`](super::verify). `go_on` is asked page by page; with false the rest is left to the next
    /// look.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] when the ledger cannot be read, which says nothing about it.
    pub fn look(
        &mut self,
        ledger: &mut dyn ReadLedger,
        keys: &[PublicKey],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Wrong>, VerifyError> {
        match self.look_on(ledger, keys, go_on) {
            Ok(()) | Err(Stop::Told) => Ok(None),
            Err(Stop::Wrong(wrong)) => Ok(Some(wrong)),
            Err(Stop::Error(error)) => altered(error, 0).map(Some),
        }
    }

    fn look_on(
        &mut self,
        ledger: &mut dyn ReadLedger,
        keys: &[PublicKey],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), Stop> {
        let last = ledger.extent()?.last_sequence;
        let Some(mut tail) = self.seen else {
            self.seen = Some(end(ledger, last)?);
            return Ok(());
        };
        let seen = tail.next_sequence - 1;
        if last < seen {
            return Err(Wrong::at(last + 1, Fault::Truncated { through: seen }));
        }
        if seen != 0 && ledger.hash_after(seen)? != Some(tail.hash) {
            return Err(Wrong::at(seen, Fault::Rewritten { through: seen }));
        }
        while tail.next_sequence <= last {
            let page = ledger.groups(tail.next_sequence)?;
            if page.is_empty() {
                return Err(Wrong::at(
                    tail.next_sequence,
                    Fault::Truncated { through: last },
                ));
            }
            for group in &page {
                let after = link(&tail, group)?;
                let first = tail.next_sequence;
                check_entries(ledger, group, first, keys)?;
                tail = after;
                self.seen = Some(tail);
            }
            if !go_on() {
                return Err(Stop::Told);
            }
        }
        Ok(())
    }
}

/// End of a ledger whose last entry this is.
fn end(ledger: &mut dyn ReadLedger, last: u64) -> Result<Tail, Stop> {
    if last == 0 {
        return Ok(Tail::default());
    }
    let hash = ledger.hash_after(last)?;
    let hash = hash.ok_or_else(|| Wrong::at(last, Fault::Hash))?;
    Ok(Tail {
        next_sequence: last + 1,
        hash,
    })
}

fn check_entries(
    ledger: &mut dyn ReadLedger,
    group: &StoredGroup,
    first: u64,
    keys: &[PublicKey],
) -> Result<(), Stop> {
    for (sequence, entry) in (first..).zip(codec::split(&group.body).flatten()) {
        let (_, event) = codec::decode(entry.1)
            .map_err(|error| Wrong::at(sequence, Fault::Unreadable(error)))?;
        let Event::Noted(noted) = event else { continue };
        if noted.kind != NoteKind::CHECKPOINT {
            continue;
        }
        let checkpoint = Checkpoint::from_json(&noted.detail.text)
            .filter(|it| it.sequence < first)
            .ok_or_else(|| Wrong::at(sequence, Fault::BadCheckpoint))?;
        match checkpoint.check_signature(keys) {
            Err(error) if !keys.is_empty() && error != SignatureError::Missing => {
                return Err(Wrong::at(sequence, Fault::Signature(error)));
            }
            _ => {}
        }
        let through = checkpoint.sequence;
        if through != 0 && ledger.hash_after(through)? != Some(checkpoint.hash) {
            return Err(Wrong::at(through, Fault::NotAsSealed { through }));
        }
    }
    Ok(())
}
