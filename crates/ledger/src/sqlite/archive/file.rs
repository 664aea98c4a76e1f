//! Archiving of a ledger in a `SQLite` file, beside the server that appends to it.

use super::{
    ArchiveError, ArchiveOptions, ArchiveStep, ArchivedLedger, Archiver, Days, Hold, HoldFilter,
    Holds, Listed, Part, Retention, SegmentWriter, State, deleted_detail, failed, lifted_detail,
    set_detail, take_out,
};
use crate::{
    query::StoredGroup,
    record::{
        codec,
        entry::Digest,
        id::CallId,
        note::{Note, NoteKind},
    },
    sqlite::{
        index,
        reader::{LedgerReader, ReadHolds},
        schema::{OpenError, open_to_archive},
    },
};
use age_format::Identity;
use rusqlite::{
    Connection, OptionalExtension, Row, ToSql, TransactionBehavior, params, params_from_iter,
    types::ToSqlOutput,
};
use serde_json::Value as Json;
use sqlite_file::{FileLock, LockError};
use std::path::{Path, PathBuf};

/// Ledger in a file.
#[derive(Debug)]
struct LedgerFile {
    connection: Connection,
    path: PathBuf,
    /// Directory of the archive, if it is named.
    directory: Option<PathBuf>,
    identities: Vec<Identity>,
    /// Held by whoever archives.
    _lock: Option<FileLock>,
}

impl Archiver {
    /// Opens the ledger in the file at `path` to archive it. A server of this version must have opened it before.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`] when the ledger or the directory cannot be used, or another process archives it.
    pub fn open(path: &Path, options: ArchiveOptions) -> Result<Self, ArchiveError> {
        let connection = open_to_archive(path)?;
        let path = path.canonicalize().map_err(failed(path))?;
        let mut beside = path.clone().into_os_string();
        beside.push(".archive");
        let mut lock = FileLock::take(Path::new(&beside)).map_err(|error| match error {
            LockError::Held { said } => ArchiveError::Locked(said),
            LockError::File { path, source } => ArchiveError::File { path, source },
        })?;
        lock.say(&format!("process {}", std::process::id()))
            .map_err(failed(Path::new(&beside)))?;
        let ledger = LedgerFile {
            connection,
            path,
            directory: Some(options.directory.clone()),
            identities: options.identities.clone(),
            _lock: Some(lock),
        };
        Self::of(Box::new(ledger), options)
    }
}

impl Holds {
    /// Opens the ledger in the file at `path`, whose segments are in the directory `archive` if not where they were
    /// written. A server of this version must have opened it before. Setting and lifting a hold is put on record by the
    /// server, or by the next one.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`] when it cannot be used.
    pub fn open(path: &Path, archive: Option<PathBuf>) -> Result<Self, ArchiveError> {
        let connection = open_to_archive(path)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        Ok(Self::of(Box::new(LedgerFile {
            connection,
            path: path.to_owned(),
            directory: archive,
            identities: Vec::new(),
            _lock: None,
        })))
    }
}

impl LedgerFile {
    fn reader(&self) -> Result<LedgerReader, ArchiveError> {
        Ok(LedgerReader::open(&self.path)?
            .with_archive(self.directory.clone())
            .with_identities(self.identities.clone()))
    }
}

impl Retention for LedgerFile {
    fn identify(&mut self, identities: Vec<Identity>) {
        self.identities = identities;
    }

    fn archive(&mut self) -> Result<(State, Vec<Listed>), ArchiveError> {
        let snapshot = self.connection.transaction()?;
        Ok((State::read(&snapshot)?, Listed::all(&snapshot)?))
    }

    fn holds(&mut self) -> Result<Vec<Hold>, ArchiveError> {
        Ok(stored_holds(&self.connection)?)
    }

    fn set_hold(
        &mut self,
        of: &HoldFilter,
        by: &str,
        reason: &str,
        now_us: u64,
    ) -> Result<u64, ArchiveError> {
        let transaction = self
            .connection
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
        let detail = set_detail(number, of, reason);
        leave_note(&transaction, now_us, by, &format!("hold-{number}"), &detail)?;
        transaction.commit()?;
        Ok(number)
    }

    fn lift_hold(
        &mut self,
        number: u64,
        by: &str,
        reason: &str,
        now_us: u64,
    ) -> Result<Option<Hold>, ArchiveError> {
        let mut reader = self.reader()?;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let stored = stored_holds(&transaction)?;
        let mut hold = stored.into_iter().find(|hold| hold.number == number);
        if hold.is_none() {
            hold = reader.hold_noted(number)?;
        }
        if hold.is_some() {
            transaction.execute("DELETE FROM legal_hold WHERE number = ?1", [signed(number)])?;
            let detail = lifted_detail(number, reason);
            leave_note(&transaction, now_us, by, &format!("hold-{number}"), &detail)?;
        }
        transaction.commit()?;
        Ok(hold)
    }

    fn mark_deleted(
        &mut self,
        listed: &Listed,
        by: &str,
        now_us: u64,
        may_be: &mut dyn FnMut(&[Hold]) -> Result<Option<Days>, ArchiveError>,
    ) -> Result<bool, ArchiveError> {
        let mut reader = self.reader()?;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Nobody changes them until the transaction ends, and what is deleted does not come back.
        if State::read(&transaction)?.through < listed.last {
            return Ok(false);
        }
        reader.expect_holds()?;
        let Some(days) = may_be(&stored_holds(&transaction)?)? else {
            return Ok(false);
        };
        take_out::carry_days(&transaction, &days)?;
        index::add_days(&transaction, days)?;
        transaction.execute(
            "UPDATE archive_segment SET deleted_us = ?1 WHERE number = ?2",
            [signed(now_us), listed.number],
        )?;
        let detail = deleted_detail(listed);
        leave_note(&transaction, now_us, by, &listed.file, &detail)?;
        transaction.commit()?;
        Ok(true)
    }
}

impl ArchivedLedger for LedgerFile {
    fn is_shared(&self) -> bool {
        false
    }

    fn cut(&mut self, before_us: u64, now_us: u64) -> Result<u64, ArchiveError> {
        // What is dated in the future says nothing of the time of what comes after it.
        let stays: Option<i64> = self.connection.query_row(
            "SELECT min(stays) FROM (
                SELECT min(start_sequence) AS stays FROM call INDEXED BY call_by_time
                    WHERE started_us >= ?1 AND started_us <= ?2
                UNION ALL SELECT min(sequence) FROM note WHERE at_us >= ?1 AND at_us <= ?2
                UNION ALL SELECT through + 1 FROM indexed
                UNION ALL SELECT max(first_sequence) FROM entry_group
                UNION ALL SELECT note_group FROM (SELECT note_group FROM note INDEXED BY note_by_kind
                    WHERE kind = 'checkpoint' ORDER BY at_us DESC, sequence DESC LIMIT 1)
                UNION ALL SELECT min(call.start_group) FROM idempotency_key
                    JOIN call ON call.call = idempotency_key.call
             ) WHERE stays IS NOT NULL",
            [before_us as i64, now_us as i64],
            |row| row.get(0),
        )?;
        let cut: Option<i64> = self
            .connection
            .query_row(
                "SELECT first_sequence + count - 1 FROM entry_group
                 WHERE first_sequence < ?1 AND first_sequence + count - 1 < ?1
                 ORDER BY first_sequence DESC LIMIT 1",
                [stays.unwrap_or(0)],
                |row| row.get(0),
            )
            .optional()?;
        Ok(cut.unwrap_or(0).unsigned_abs())
    }

    fn hash_after(&mut self, sequence: u64) -> Result<Option<Digest>, ArchiveError> {
        Ok(self.connection.query_row(
            "SELECT (SELECT hash FROM entry_group WHERE first_sequence + count - 1 = ?1
                    AND first_sequence <= ?1 ORDER BY first_sequence DESC LIMIT 1)",
            [signed(sequence)],
            |row| row.get(0),
        )?)
    }

    fn copy(&mut self, cut: u64, segment: &mut SegmentWriter<'_>) -> Result<(), ArchiveError> {
        let source = self.connection.transaction()?;
        let (from, target) = (segment.first(), segment.target());
        {
            let mut select = source.prepare(
                "SELECT first_sequence, count, hash, body FROM entry_group
                 WHERE first_sequence >= ?1 AND first_sequence <= ?2 ORDER BY first_sequence",
            )?;
            let mut rows = select.query([signed(from), signed(cut)])?;
            while !segment.is_full()
                && let Some(row) = rows.next()?
            {
                let hash: Vec<u8> = row.get(2)?;
                segment.add_group(&StoredGroup {
                    first_sequence: row.get::<_, i64>(0)? as u64,
                    count: row.get::<_, i64>(1)? as u64,
                    hash: hash.try_into().unwrap_or_default(),
                    body: row.get(3)?,
                })?;
            }
        }
        let range = [signed(from - 1), signed(segment.last())];
        copy_rows(
            &source,
            target,
            "SELECT * FROM call WHERE start_sequence <= ?2 AND end_sequence > ?1 AND end_sequence <= ?2",
            "INSERT INTO call VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            range,
        )?;
        copy_rows(
            &source,
            target,
            "SELECT * FROM note WHERE sequence > ?1 AND sequence <= ?2",
            "INSERT INTO note VALUES (?,?,?,?,?,?,?,?)",
            range,
        )?;
        copy_rows(
            &source,
            target,
            "SELECT carried_start.* FROM carried_start JOIN call ON start_sequence = sequence
             WHERE end_sequence > ?1 AND end_sequence <= ?2",
            "INSERT INTO carried_start VALUES (?,?,?,?)",
            range,
        )?;
        source.commit()?;
        Ok(())
    }

    fn list(
        &mut self,
        segment: &Listed,
        directory: &Path,
        detail: &Json,
        now_us: u64,
    ) -> Result<(), ArchiveError> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute(
            "INSERT INTO archive_segment VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL)",
            params![
                segment.number,
                segment.file,
                signed(segment.first),
                signed(segment.last),
                segment.last_hash,
                signed(segment.first_start),
                signed(segment.from_us),
                signed(segment.until_us),
            ],
        )?;
        let directory = directory.to_string_lossy();
        transaction.execute("UPDATE archived SET directory = ?1", [&directory])?;
        leave_note(&transaction, now_us, "system", &segment.file, detail)?;
        transaction.commit()?;
        Ok(())
    }

    fn take_out(
        &mut self,
        part: &Part,
        tell: &mut dyn FnMut(ArchiveStep),
    ) -> Result<(), ArchiveError> {
        take_out::of_file(&mut self.connection, part, tell)
    }
}

fn copy_rows(
    source: &Connection,
    target: &Connection,
    select: &str,
    insert: &str,
    range: [i64; 2],
) -> rusqlite::Result<()> {
    let mut select = source.prepare(select)?;
    let columns = select.column_count();
    let mut insert = target.prepare(insert)?;
    let mut rows = select.query(range)?;
    while let Some(row) = rows.next()? {
        let values = (0..columns)
            .map(|index| Ok(Value(row, index)))
            .collect::<rusqlite::Result<Vec<_>>>()?;
        insert.execute(params_from_iter(values))?;
    }
    Ok(())
}

/// A value as it is stored.
struct Value<'a>(&'a Row<'a>, usize);

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.0.get_ref(self.1)?))
    }
}

/// Leaves a note for the server to put on record, or for the next one.
fn leave_note(
    connection: &Connection,
    now_us: u64,
    actor: &str,
    subject: &str,
    detail: &Json,
) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO unsaid_note (at_us, kind, actor, subject, detail) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            signed(now_us),
            NoteKind::RETENTION.as_str(),
            actor,
            subject,
            detail.to_string()
        ],
    )?;
    Ok(())
}

/// Encodes the notes that were left, which are forgotten with that; tells how many there are.
pub(crate) fn say_notes(connection: &Connection, body: &mut Vec<u8>) -> rusqlite::Result<u64> {
    let mut select = connection
        .prepare_cached("SELECT at_us, actor, subject, detail FROM unsaid_note ORDER BY number")?;
    let mut rows = select.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let at_us = row.get::<_, i64>(0)?.unsigned_abs();
        let (actor, subject, detail): (String, String, String) =
            (row.get(1)?, row.get(2)?, row.get(3)?);
        // Of whatever kind a row says that it is: notes of other kinds are the server's own.
        let note = Note {
            actor: &actor,
            subject: &subject,
            detail: &detail,
            ..Note::new(at_us, NoteKind::RETENTION)
        };
        codec::encode_note(CallId::new(at_us), &note, body);
        count += 1;
    }
    if count != 0 {
        connection.execute("DELETE FROM unsaid_note", [])?;
    }
    Ok(count)
}

/// The holds in force, the oldest first.
pub(crate) fn stored_holds(connection: &Connection) -> rusqlite::Result<Vec<Hold>> {
    let mut select = connection.prepare_cached(
        "SELECT number, principal, capability, since_us, until_us, set_by, reason, set_us
         FROM main.legal_hold ORDER BY number",
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

impl From<OpenError> for ArchiveError {
    fn from(error: OpenError) -> Self {
        Self::Ledger(Box::new(error))
    }
}

/// Times beyond the range are the end of it.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
