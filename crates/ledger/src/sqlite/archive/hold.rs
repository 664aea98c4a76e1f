//! Deleting segments that are old enough, and holds that keep them.

use super::{ArchiveError, Archiver, Listed, State, leave_note, segment, write::Begins};
use crate::sqlite::{reader::LedgerReader, schema::open_to_archive};
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use serde_json::json;
use std::{
    io,
    path::{Path, PathBuf},
};

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

/// Holds of a ledger in a `SQLite` file, also beside a server. Setting and lifting one is put on record by the
/// server, or by the next one.
#[derive(Debug)]
pub struct Holds(Connection, PathBuf);

impl Holds {
    /// Opens the ledger at `path`. A server of this version must have opened it before.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`] when it cannot be used.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let connection = open_to_archive(path)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        Ok(Self(connection, path.to_owned()))
    }

    /// The holds that have not been lifted, the oldest first.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`] when the ledger cannot be read.
    pub fn all(&self) -> Result<Vec<Hold>, ArchiveError> {
        Ok(all(&self.0)?)
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
        let transaction = self
            .0
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute(
            "INSERT INTO legal_hold (principal, capability, since_us, until_us, set_by, reason, set_us)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                of.principal,
                of.capability,
                of.since_us.map(signed),
                of.until_us.map(signed),
                by,
                reason,
                signed(now_us)
            ],
        )?;
        let number = transaction.last_insert_rowid().unsigned_abs();
        let detail = json!({
            "hold_set": number,
            "reason": reason,
            "client": of.principal,
            "capability": of.capability,
            "since_us": of.since_us,
            "until_us": of.until_us,
        });
        leave_note(&transaction, now_us, by, &format!("hold-{number}"), &detail)?;
        transaction.commit()?;
        Ok(number)
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
        let transaction = self
            .0
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut hold = all(&transaction)?
            .into_iter()
            .find(|hold| hold.number == number);
        if hold.is_none() {
            let noted = LedgerReader::open(&self.1)?.hold_noted(number);
            let noted = noted.map_err(|error| ArchiveError::Holds(Box::new(error)))?;
            hold = noted.map(|of| Hold {
                number,
                of,
                by: String::new(),
                reason: String::new(),
                at_us: 0,
            });
        }
        if hold.is_some() {
            transaction.execute("DELETE FROM legal_hold WHERE number = ?1", [signed(number)])?;
            let detail = json!({ "hold_lifted": number, "reason": reason });
            leave_note(&transaction, now_us, by, &format!("hold-{number}"), &detail)?;
        }
        transaction.commit()?;
        Ok(hold)
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
        for listed in Listed::all(&self.connection)? {
            let path = listed.path(&self.options.directory);
            if !listed.is_deleted && !self.mark_deleted(&listed, &path, before_us, now_us, by)? {
                continue;
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

    /// Marks a segment as deleted, in the transaction that looks whether it may be.
    fn mark_deleted(
        &mut self,
        listed: &Listed,
        path: &Path,
        before_us: u64,
        now_us: u64,
        by: &str,
    ) -> Result<bool, ArchiveError> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let state = State::read(&transaction)?;
        if state.through < listed.last || before_us <= listed.until_us {
            return Ok(false);
        }
        // Nobody changes them until the transaction ends, and what is deleted does not come back.
        let mut reader = LedgerReader::open(&self.path)?;
        let directory = Some(self.options.directory.clone());
        reader = reader.with_archive(directory);
        let differ = reader.holds_differ();
        if differ.map_err(|error| ArchiveError::Holds(Box::new(error)))? {
            return Err(ArchiveError::HoldsDiffer);
        }
        if path.exists() {
            let segment = segment::open(path)?;
            // The segment itself says how old it is.
            if before_us.cast_signed() <= Begins::of(&segment)?.until_us {
                return Ok(false);
            }
            for hold in all(&transaction)? {
                if keeps(&segment, &hold.of)? {
                    return Ok(false);
                }
            }
        }
        transaction.execute(
            "UPDATE archive_segment SET deleted_us = ?1 WHERE number = ?2",
            [signed(now_us), listed.number],
        )?;
        let detail = json!({
            "deleted": listed.file,
            "first_sequence": listed.first,
            "last_sequence": listed.last,
            "last_hash": crate::record::codec::hex(&listed.last_hash),
        });
        leave_note(&transaction, now_us, by, &listed.file, &detail)?;
        transaction.commit()?;
        Ok(true)
    }
}

/// Returns true if a segment has a call that a hold concerns.
fn keeps(segment: &Connection, of: &HoldFilter) -> rusqlite::Result<bool> {
    segment
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
        .optional()
        .map(|found| found.is_some())
}

/// The holds in force, the oldest first.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<Hold>> {
    let mut select = connection.prepare_cached(
        "SELECT number, principal, capability, since_us, until_us, set_by, reason, set_us
         FROM legal_hold ORDER BY number",
    )?;
    let time = |row: &Row<'_>, index| {
        let time: Option<i64> = row.get(index)?;
        Ok::<_, rusqlite::Error>(time.map(i64::unsigned_abs))
    };
    let rows = select.query_map([], |row| {
        Ok(Hold {
            number: row.get::<_, i64>(0)?.unsigned_abs(),
            of: HoldFilter {
                principal: row.get(1)?,
                capability: row.get(2)?,
                since_us: time(row, 3)?,
                until_us: time(row, 4)?,
            },
            by: row.get(5)?,
            reason: row.get(6)?,
            at_us: row.get::<_, i64>(7)?.unsigned_abs(),
        })
    })?;
    rows.collect()
}

/// Times beyond the range are the end of it.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
