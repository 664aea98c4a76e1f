//! Comparison of a ledger with the file of its checkpoints, before a server continues it.
//!
//! A ledger that an earlier copy has replaced is sound, only shorter; so is a new one in place of one
//! that was taken away. Whoever serves with it would forget budgets that are used up, approvals that
//! are used and keys that have run. The file of checkpoints remembers.

use super::{Checkpoint, FileKind, Filed, Lines, PublicKey, SigningKey, file};
use crate::{
    fault::SignatureError,
    query::{NoteFilter, NoteRecord, QueryError, ReadLedger},
    record::note::NoteKind,
};
use data_encoding::HEXLOWER;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Reasons not to continue a ledger unless an operator accepts it.
#[derive(Debug, thiserror::Error)]
pub enum ContinuityError {
    /// The ledger ends before the last line of the file, or is missing.
    #[error(
        "{}, and {} seals entry {sealed}: the ledger was taken away, or an earlier copy has replaced it",
        ends_with(*last), file.display()
    )]
    RolledBack {
        /// The file of checkpoints.
        file: PathBuf,
        /// The last entry of the ledger; 0 when there is none.
        last: u64,
        /// The last entry that the file seals; 0 when the file has no line.
        sealed: u64,
    },
    /// The ledger has another entry than the one that the file seals.
    #[error(
        "entry {sealed} of the ledger is not the one that {} seals: another ledger has replaced it, or it was rewritten",
        file.display()
    )]
    Differs {
        /// The file of checkpoints.
        file: PathBuf,
        /// The entry that the file seals, of the first line that says otherwise.
        sealed: u64,
    },
    /// A line of the file seals an entry before that of the line above it.
    #[error(
        "{} seals entry {sealed} after entry {before}: an earlier copy has replaced the ledger while a server wrote to it",
        file.display()
    )]
    Backwards {
        /// The file of checkpoints.
        file: PathBuf,
        /// The entry that the later line seals.
        sealed: u64,
        /// The entry that the line above it seals.
        before: u64,
    },
    /// The file has fewer lines than it had.
    #[error(
        "{} seals entry {found} last, and the ledger says that it sealed entry {filed} there: the file was emptied, cut off or taken away",
        file.display()
    )]
    FileCut {
        /// The file of checkpoints.
        file: PathBuf,
        /// The last entry that the file seals; 0 when it seals none.
        found: u64,
        /// The entry that the ledger says was sealed there.
        filed: u64,
    },
    /// The last checkpoint is not signed by a key that is trusted.
    #[error(
        "{}, the last of which seals entry {sealed}: the ledger of another server, or one that was written without the \
         key, or the key is new",
        checkpoints_in(file.as_deref())
    )]
    NotSigned {
        /// The file of checkpoints; none if it is the ledger's own record of them.
        file: Option<PathBuf>,
        /// The entry that the checkpoint seals.
        sealed: u64,
        /// Fault of the signature.
        #[source]
        why: SignatureError,
    },
    /// The file of checkpoints cannot be read or written.
    #[error("the checkpoints {} cannot be read or written", file.display())]
    File {
        /// Path of the file.
        file: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The ledger cannot be read.
    #[error("the ledger cannot be held against its checkpoints")]
    Ledger(#[from] QueryError),
}

/// Result of [`check_continuity`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuity {
    /// The last checkpoint in the file.
    pub last: Option<Checkpoint>,
    /// The file of the last checkpoints according to the ledger, if that is another one.
    pub moved_from: Option<PathBuf>,
}

fn checkpoints_in(file: Option<&Path>) -> String {
    match file {
        Some(file) => format!(
            "{} does not end with a checkpoint that a trusted key has signed",
            file.display()
        ),
        None => {
            "the ledger does not end with a checkpoint that a trusted key has signed".to_owned()
        }
    }
}

/// Checks that the last checkpoints are signed: the last line of the file, and with `of_ledger` the ledger's own, if it has one.
/// Without it, other servers with keys of their own may have made that.
///
/// # Errors
///
/// [`ContinuityError::NotSigned`] when one is not signed by any of `keys`, [`ContinuityError::Ledger`] when the ledger
/// cannot be read.
pub fn check_signed(
    ledger: Option<&mut dyn ReadLedger>,
    of_ledger: bool,
    line: Option<(&Path, &Checkpoint)>,
    keys: &[PublicKey],
) -> Result<(), ContinuityError> {
    let signed = |file: Option<&Path>, checkpoint: &Checkpoint| {
        let checked = checkpoint.check_signature(keys);
        checked.map_err(|why| ContinuityError::NotSigned {
            file: file.map(Path::to_owned),
            sealed: checkpoint.sequence,
            why,
        })
    };
    if let Some((file, line)) = line {
        signed(Some(file), line)?;
    }
    let Some(ledger) = ledger.filter(|_| of_ledger) else {
        return Ok(());
    };
    match last_noted(ledger)? {
        Some(text) => match Checkpoint::from_json(&text) {
            Some(checkpoint) => signed(None, &checkpoint),
            None => Err(ContinuityError::NotSigned {
                file: None,
                sealed: 0,
                why: SignatureError::Missing,
            }),
        },
        None => Ok(()),
    }
}

fn ends_with(last: u64) -> String {
    match last {
        0 => "the ledger has no entries".to_owned(),
        last => format!("the ledger ends with entry {last}"),
    }
}

/// Compares a ledger with the file of its checkpoints before it is continued. `ledger` is `None` where
/// there is none yet.
///
/// # Errors
///
/// [`ContinuityError`] when it must not be continued.
pub fn check_continuity(
    ledger: Option<&mut dyn ReadLedger>,
    file: &Path,
) -> Result<Continuity, ContinuityError> {
    check_file(ledger, file, FileKind::Checkpoints)
}

/// Begins the file of a ledger's checkpoints anew, with one of the ledger's end: an earlier copy of the ledger is refused
/// from then on. `key` signs it. The file must not be there.
///
/// # Errors
///
/// [`ContinuityError`] when the ledger cannot be read or the file cannot be written.
pub fn begin_checkpoints(
    ledger: &mut dyn ReadLedger,
    file: &Path,
    key: Option<&SigningKey>,
    now_us: u64,
) -> Result<(), ContinuityError> {
    let sequence = ledger.extent()?.last_sequence;
    // An empty ledger is never sealed.
    let Some(hash) = ledger.hash_after(sequence)? else {
        return Ok(());
    };
    let mut checkpoint = Checkpoint {
        sequence,
        hash,
        at_us: now_us,
        next_by: u64::MAX,
        signature: None,
    };
    if let Some(key) = key {
        checkpoint.sign(key);
    }
    file::append_first(file, &checkpoint).map_err(|source| ContinuityError::File {
        file: file.to_owned(),
        source,
    })
}

/// Compares a ledger with the file of a witness, as [`check_continuity`] does with that of its checkpoints.
///
/// # Errors
///
/// [`ContinuityError`] when it must not be continued, also when the file cannot be one
/// ([`WitnessFile::check_place`](super::WitnessFile::check_place)).
pub fn check_witness_file(
    ledger: Option<&mut dyn ReadLedger>,
    file: &Path,
) -> Result<Continuity, ContinuityError> {
    if let Err(source) = super::WitnessFile::check_place(file) {
        let file = file.to_owned();
        return Err(ContinuityError::File { file, source });
    }
    check_file(ledger, file, FileKind::Witness)
}

/// Compares the file of time-stamps with what the ledger says was in it. `last` reads the entry that the last line of the
/// file seals (0: no line), after the ledger was asked, since lines come while a server runs.
///
/// # Errors
///
/// [`ContinuityError::FileCut`] when lines are gone, and when the file or the ledger cannot be read.
pub fn check_stamped(
    ledger: &mut dyn ReadLedger,
    file: &Path,
    last: impl FnOnce(&Path) -> io::Result<u64>,
) -> Result<(), ContinuityError> {
    let filed = last_filed(ledger, FileKind::Timestamps)?;
    let Some(filed) = filed.filter(|it| it.is_in(file)) else {
        return Ok(());
    };
    let (file, filed) = (file.to_owned(), filed.sequence);
    match last(&file) {
        Ok(found) if found < filed => Err(ContinuityError::FileCut { file, found, filed }),
        Ok(_) => Ok(()),
        Err(source) => Err(ContinuityError::File { file, source }),
    }
}

fn check_file(
    ledger: Option<&mut dyn ReadLedger>,
    file: &Path,
    kind: FileKind,
) -> Result<Continuity, ContinuityError> {
    let failed = |source| ContinuityError::File {
        file: file.to_owned(),
        source,
    };
    // Opened first: what it has by then the ledger has, too.
    let lines = match Lines::open(file) {
        Ok(lines) => Some(lines),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(failed(source)),
    };
    let is_there = lines.is_some();
    let mut ledger = ledger;
    let last = match &mut ledger {
        None => 0,
        Some(ledger) => ledger.extent()?.last_sequence,
    };
    let all = match lines {
        None => Compared::default(),
        Some(lines) => compare(ledger.as_deref_mut(), lines, last, &failed)?,
    };
    let line = all.line;
    let sealed = line.as_ref().map_or(0, |line| line.sequence);
    let (hash, filed) = match ledger {
        None => (None, None),
        // What differs above may be of another ledger, whose notes say nothing of this one.
        Some(_) if last < all.furthest || all.differs.is_some() => (None, None),
        Some(ledger) => (ledger.hash_after(sealed)?, last_filed(ledger, kind)?),
    };
    // The file is made after the first entry has been stored.
    if last < all.furthest || (last == 0 && is_there) {
        let (file, sealed) = (file.to_owned(), all.furthest);
        return Err(ContinuityError::RolledBack { file, last, sealed });
    }
    if let Some(sealed) = all.differs {
        let file = file.to_owned();
        return Err(ContinuityError::Differs { file, sealed });
    }
    if let Some((before, sealed)) = all.backwards {
        return Err(ContinuityError::Backwards {
            file: file.to_owned(),
            sealed,
            before,
        });
    }
    if let Some(line) = line.as_ref().filter(|line| line.sequence != 0)
        && hash != Some(line.hash)
    {
        let file = file.to_owned();
        return Err(ContinuityError::Differs { file, sealed });
    }
    match filed {
        Some(filed) if filed.is_in(file) => match sealed < filed.sequence {
            true => Err(ContinuityError::FileCut {
                file: file.to_owned(),
                found: sealed,
                filed: filed.sequence,
            }),
            false => Ok(Continuity {
                last: line,
                moved_from: None,
            }),
        },
        filed => Ok(Continuity {
            last: line,
            moved_from: filed.map(|it| it.file.into()),
        }),
    }
}

/// Lines that are looked up in a ledger at a time.
const MAX_LINES: usize = 1024;

/// Facts about a ledger that the lines of a file state.
#[derive(Debug, Default)]
struct Compared {
    /// The last line.
    line: Option<Checkpoint>,
    /// The last entry that any line seals.
    furthest: u64,
    /// The first sealed entry that is another one in the ledger.
    differs: Option<u64>,
    /// The first line that seals an entry before that of the line above it: both entries.
    backwards: Option<(u64, u64)>,
}

/// Compares all lines of a file with a ledger that ends with entry `last`. What has been archived is not opened for it.
fn compare(
    mut ledger: Option<&mut (dyn ReadLedger + '_)>,
    mut lines: Lines,
    last: u64,
    failed: &dyn Fn(io::Error) -> ContinuityError,
) -> Result<Compared, ContinuityError> {
    let mut found = Compared::default();
    loop {
        let mut page = Vec::new();
        while page.len() < MAX_LINES
            && let Some(line) = lines.peek().cloned()
        {
            lines.advance().map_err(failed)?;
            let above = found.line.as_ref().map_or(0, |above| above.sequence);
            if line.sequence < above && found.backwards.is_none() {
                found.backwards = Some((above, line.sequence));
            }
            found.furthest = found.furthest.max(line.sequence);
            if 0 < line.sequence && line.sequence <= last {
                page.push((line.sequence, line.hash));
            }
            found.line = Some(line);
        }
        if let Some(ledger) = &mut ledger
            && found.differs.is_none()
        {
            let sequences: Vec<_> = page.iter().map(|line| line.0).collect();
            let hashes = ledger.hashes_after(&sequences)?;
            let mut both = page.iter().zip(hashes);
            let other = both.find(|((_, sealed), hash)| hash.is_other(sealed));
            found.differs = other.map(|((sequence, _), _)| *sequence);
        }
        if lines.peek().is_none() {
            return Ok(found);
        }
    }
}

/// Compares a ledger with a checkpoint of it that is kept at `place`, before it is continued. `ledger` is `None`
/// where there is none yet. A contradiction that was accepted is none: a note of the kind `rollback_accepted` has the
/// checkpoint's hash in its detail, as `witness`.
///
/// # Errors
///
/// [`ContinuityError`] when it must not be continued.
pub fn check_witness(
    ledger: Option<&mut dyn ReadLedger>,
    checkpoint: &Checkpoint,
    place: &Path,
) -> Result<(), ContinuityError> {
    let (sealed, file) = (checkpoint.sequence, place.to_owned());
    let Some(ledger) = ledger else {
        let last = 0;
        return Err(ContinuityError::RolledBack { file, last, sealed });
    };
    let last = ledger.extent()?.last_sequence;
    if ledger.hash_after(sealed)? == Some(checkpoint.hash) || is_accepted(ledger, checkpoint)? {
        return Ok(());
    }
    Err(match last < sealed {
        true => ContinuityError::RolledBack { file, last, sealed },
        false => ContinuityError::Differs { file, sealed },
    })
}

fn is_accepted(ledger: &mut dyn ReadLedger, checkpoint: &Checkpoint) -> Result<bool, QueryError> {
    let kind = NoteKind::ROLLBACK_ACCEPTED;
    let filter = NoteFilter {
        kind: Some(kind.as_str()),
        ..NoteFilter::default()
    };
    let hash = HEXLOWER.encode(&checkpoint.hash);
    let accepts = |note: &NoteRecord| {
        let detail: serde_json::Value =
            serde_json::from_str(&note.noted.detail.text).unwrap_or_default();
        detail["witness"].as_str() == Some(&hash)
    };
    Ok(ledger.notes(usize::MAX, filter)?.iter().any(accepts))
}

/// The line of the file that the last checkpoint among the entries names.
fn last_filed(ledger: &mut dyn ReadLedger, of: FileKind) -> Result<Option<Filed>, QueryError> {
    Ok(last_noted(ledger)?.and_then(|text| Filed::of(&text, of)))
}

/// Detail of the note of the last checkpoint among the entries.
fn last_noted(ledger: &mut dyn ReadLedger) -> Result<Option<String>, QueryError> {
    let kind = NoteKind::CHECKPOINT;
    let filter = NoteFilter {
        kind: Some(kind.as_str()),
        ..NoteFilter::default()
    };
    let notes = ledger.notes(1, filter)?;
    Ok(notes.into_iter().next().map(|note| note.noted.detail.text))
}
