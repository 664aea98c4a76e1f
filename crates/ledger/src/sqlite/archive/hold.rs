//! Deleting segments that are old enough, and holds that keep them.

use super::{
    ArchiveError, Archiver, Listed, State,
    segment::{self, LastFrame},
    take_out::Days,
    write::Begins,
};
use crate::{
    query::statistics::{Counted, day_of},
    record::{codec, entry::Event, note::NoteKind},
};
use age_format::Identity;
use data_encoding::HEXLOWER;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use std::{fmt, io};

/// Calls that must not be deleted: those that meet every condition given; all, if none is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldFilter {
    /// Of this principal.
    pub principal: Option<String>,
    /// Of this capability, `kind/name`.
    pub capability: Option<String>,
    /// Calls that began at this time or later: microseconds since the epoch, UTC.
    pub since_us: Option<u64>,
    /// Calls that began before this time.
    pub until_us: Option<u64>,
}

/// A hold, which keeps each segment that has a call it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Number of the hold.
    pub number: u64,
    /// Calls that it concerns.
    pub of: HoldFilter,
    /// Person who set it.
    pub by: String,
    /// Reason.
    pub reason: String,
    /// Time at which it was set: microseconds since the epoch, UTC.
    pub at_us: u64,
}

/// Holds of a ledger, also beside a server. Setting and lifting one is put on record.
#[derive(Debug)]
pub struct Holds(Box<dyn Retention>);

/// Judges whether a segment may be deleted with these holds in force; gives what its notes count, if it may.
pub(crate) type MayBeDeleted<'a> = &'a mut dyn FnMut(&[Hold]) -> Result<Option<Days>, ArchiveError>;

/// Archive of a ledger and the holds that keep it, in the store that the ledger is in.
pub(crate) trait Retention: fmt::Debug + Send {
    /// Reads segments that are encrypted with these identities.
    fn identify(&mut self, identities: Vec<Identity>);

    /// State of the archive and its segments in order, at one moment.
    fn archive(&mut self) -> Result<(State, Vec<Listed>), ArchiveError>;

    /// The holds in force, the oldest first.
    fn holds(&mut self) -> Result<Vec<Hold>, ArchiveError>;

    /// Sets a hold, with [`set_detail`] on record; tells its number.
    fn set_hold(
        &mut self,
        of: &HoldFilter,
        by: &str,
        reason: &str,
        now_us: u64,
    ) -> Result<u64, ArchiveError>;

    /// Lifts a hold, with [`lifted_detail`] on record: one in force by its row or, if that is gone, by the notes.
    fn lift_hold(
        &mut self,
        number: u64,
        by: &str,
        reason: &str,
        now_us: u64,
    ) -> Result<Option<Hold>, ArchiveError>;

    /// Marks a segment as deleted, with [`deleted_detail`] on record, if all of it was taken out and `may_be` agrees, and
    /// adds what that gives to the sums that stay; tells whether it did. No hold is set or lifted meanwhile.
    fn mark_deleted(
        &mut self,
        listed: &Listed,
        by: &str,
        now_us: u64,
        may_be: MayBeDeleted<'_>,
    ) -> Result<bool, ArchiveError>;
}

impl Holds {
    /// Holds of this ledger.
    pub(crate) fn of(ledger: Box<dyn Retention>) -> Self {
        Self(ledger)
    }

    /// Opens encrypted segments with these identities, if the notes of a hold are in one.
    #[must_use]
    pub fn with_identities(mut self, identities: Vec<Identity>) -> Self {
        self.0.identify(identities);
        self
    }

    /// The holds that have not been lifted, the oldest first.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`] when the ledger cannot be read.
    pub fn all(&mut self) -> Result<Vec<Hold>, ArchiveError> {
        self.0.holds()
    }

    /// Sets a hold; tells its number.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`] when the ledger cannot be written.
    pub fn set(
        &mut self,
        of: &HoldFilter,
        by: &str,
        reason: &str,
        now_us: u64,
    ) -> Result<u64, ArchiveError> {
        self.0.set_hold(of, by, reason, now_us)
    }

    /// Lifts a hold; `None` if there is none of this number. One whose row somebody has deleted is lifted by what the notes
    /// say of it.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`] when the ledger cannot be written.
    pub fn lift(
        &mut self,
        number: u64,
        by: &str,
        reason: &str,
        now_us: u64,
    ) -> Result<Option<Hold>, ArchiveError> {
        self.0.lift_hold(number, by, reason, now_us)
    }
}

impl Archiver {
    /// Deletes the segments whose calls and notes are all from before `before_us` (microseconds since the epoch,
    /// UTC), but for those that a hold keeps; tells their names. The sums of what they had stay. `by` is
    /// who deletes; it goes on record.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`]; what was deleted before stays so.
    pub fn delete(
        &mut self,
        before_us: u64,
        now_us: u64,
        by: &str,
    ) -> Result<Vec<String>, ArchiveError> {
        let mut deleted = Vec::new();
        self.open = None;
        let identities = &*self.options.identities;
        let (_, all) = self.ledger.archive()?;
        for listed in all {
            let path = listed.path(&self.options.directory);
            if !listed.is_deleted {
                if before_us <= listed.until_us {
                    continue;
                }
                let may_be = &mut |holds: &[Hold]| {
                    // Of one that is elsewhere nobody knows here whether a hold keeps it.
                    let (segment, _) = segment::open(&path, identities)?;
                    // The segment itself says how old it is.
                    let is_old = Begins::of(&segment)?.until_us < before_us.cast_signed();
                    match is_old && !are_kept(&segment, holds)? {
                        true => counted_refusals(&segment).map(Some),
                        false => Ok(None),
                    }
                };
                if !self.ledger.mark_deleted(&listed, by, now_us, may_be)? {
                    continue;
                }
            }
            // Marked first: what a killed process has left is removed by the next one.
            match std::fs::remove_file(&path) {
                Ok(()) => deleted.push(listed.file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(ArchiveError::File { path, source }),
            }
        }
        Ok(deleted)
    }
}

/// Detail of the note about a hold that is set.
pub(crate) fn set_detail(number: u64, of: &HoldFilter, reason: &str) -> Value {
    json!({
        "hold_set": number,
        "reason": reason,
        "client": of.principal,
        "capability": of.capability,
        "since_us": of.since_us,
        "until_us": of.until_us,
    })
}

/// Detail of the note about a hold that is lifted.
pub(crate) fn lifted_detail(number: u64, reason: &str) -> Value {
    json!({ "hold_lifted": number, "reason": reason })
}

/// Detail of the note about a segment that is deleted.
pub(crate) fn deleted_detail(listed: &Listed) -> Value {
    json!({
        "deleted": listed.file,
        "first_sequence": listed.first,
        "last_sequence": listed.last,
        "last_hash": HEXLOWER.encode(&listed.last_hash),
    })
}

/// Sums by days of the refusals that were counted together, of which nothing but the notes of a segment says.
fn counted_refusals(segment: &Connection) -> Result<Days, ArchiveError> {
    let mut select = segment.prepare(
        "SELECT note_group, note_offset, note_length FROM note WHERE kind = ?1 ORDER BY sequence",
    )?;
    let mut rows = select.query([NoteKind::REFUSALS_AGGREGATED.as_str()])?;
    let (mut days, mut frame) = (Days::new(), LastFrame::default());
    while let Some(row) = rows.next()? {
        let (group, offset, length): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let body = frame.group(segment, group)?;
        let range = usize::try_from(offset)
            .ok()
            .zip(usize::try_from(length).ok());
        let entry = range.and_then(|(offset, length)| body?.get(offset..)?.get(..length));
        let Some(Ok((_, Event::Noted(noted)))) = entry.map(codec::decode) else {
            return Err(ArchiveError::Damaged(group.unsigned_abs()));
        };
        let counted = Counted::of(&noted);
        let kind = counted.kind.as_str().to_owned();
        let of = (noted.actor.clone(), kind, noted.subject.clone());
        let day = day_of(counted.at_us) as i64;
        let (totals, _) = days.entry((day, of)).or_default();
        counted.add_to(totals);
    }
    Ok(days)
}

/// Returns true if a segment has a call that one of the holds concerns.
fn are_kept(segment: &Connection, holds: &[Hold]) -> rusqlite::Result<bool> {
    for Hold { of, .. } in holds {
        let found = segment
            .query_row(
                "SELECT 1 FROM call WHERE (?1 IS NULL OR principal = ?1) AND (?2 IS NULL OR capability = ?2)
                    AND (?3 IS NULL OR started_us >= ?3) AND (?4 IS NULL OR started_us < ?4) LIMIT 1",
                params![
                    of.principal,
                    of.capability,
                    of.since_us.map(signed),
                    of.until_us.map(signed)
                ],
                |_| Ok(()),
            )
            .optional()?;
        if found.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Times beyond the range are the end of it.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
