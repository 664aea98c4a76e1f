//! Archiving of a ledger in PostgreSQL, beside the servers that share it.
//!
//! An archiving process holds an advisory lock of its session until it has ended, and does all with that one connection: a
//! process that has lost the connection can change nothing any more. Two rows keep order beside it. `indexed` is locked while entries
//! are taken out, so that no row of a call changes meanwhile; the table of holds is locked while a segment is marked as
//! deleted.

pub(super) mod reading;
mod take_out;

use self::{
    reading::{archive, calls, carried_start, holds},
    take_out::{carry_days, take_out},
};
use super::{
    PostgresOpenError, PostgresOptions, PostgresReader,
    blocking::Blocking,
    chain::{self, Locked},
    migrations,
    reader::scan,
    rows::{digest, signed},
    session::{Session, SessionError, within},
    text::stored,
};
use crate::{
    query::{IndexedCall, IndexedNote, QueryError, StoredGroup},
    record::{
        codec,
        entry::Digest,
        id::CallId,
        note::{Note, NoteKind},
    },
    sqlite::{
        archive::{
            ArchiveError, ArchiveOptions, ArchiveStep, ArchivedLedger, Archiver, Days, Hold,
            HoldFilter, Holds, Listed, Part, Retention, SegmentWriter, State, deleted_detail,
            lifted_detail, set_detail,
        },
        reader::ReadHolds,
    },
};
use age_format::Identity;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Lock of whoever archives: "OWLLARCH".
const LOCK: i64 = 0x4F57_4C4C_4152_4348;

/// Longest time of a statement, as a multiple of that of an attempt to store.
const PATIENCE: u32 = 12;

/// Begins a transaction in which no other process sets or lifts a hold, and which may take its time.
const BEGIN_WITH_HOLDS: &str = "BEGIN; SET LOCAL synchronous_commit = on;
    SET LOCAL idle_in_transaction_session_timeout = '10min';
    LOCK TABLE owlclaw_ledger.legal_hold IN SHARE ROW EXCLUSIVE MODE";

/// Ledger in a database.
#[derive(Debug)]
struct LedgerDatabase {
    blocking: Blocking,
    options: PostgresOptions,
    session: Session,
    /// Directory of the archive, if it is named.
    directory: Option<PathBuf>,
    identities: Vec<Identity>,
}

impl Archiver {
    /// Opens the ledger in this database to archive it. A server of this version must have opened it before.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`] when the ledger or the directory cannot be used, or another process archives it.
    pub fn in_database(
        database: &PostgresOptions,
        options: ArchiveOptions,
    ) -> Result<Self, ArchiveError> {
        let mut ledger = LedgerDatabase::open(database, Some(options.directory.clone()))?;
        ledger.identify(options.identities.clone());
        ledger.lock()?;
        Self::of(Box::new(ledger), options)
    }
}

impl Holds {
    /// Opens the ledger in this database, whose segments are in the directory `archive` if not where they were written. A
    /// server of this version must have opened it before.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`] when it cannot be used.
    pub fn in_database(
        database: &PostgresOptions,
        archive: Option<PathBuf>,
    ) -> Result<Self, ArchiveError> {
        Ok(Self::of(Box::new(LedgerDatabase::open(database, archive)?)))
    }
}

impl LedgerDatabase {
    fn open(options: &PostgresOptions, directory: Option<PathBuf>) -> Result<Self, ArchiveError> {
        let blocking = Blocking::new()?;
        let session = blocking.wait(async || {
            let explain = |error: SessionError| error.explain(options);
            let mut session = Session::connect(options).await.map_err(explain)?;
            migrations::check(&mut session, options).await?;
            migrations::expect_sound(&mut session, options).await?;
            Ok::<_, PostgresOpenError>(session)
        })?;
        Ok(Self {
            blocking,
            options: options.clone(),
            session,
            directory,
            identities: Vec::new(),
        })
    }

    /// Takes the lock of whoever archives.
    fn lock(&mut self) -> Result<(), ArchiveError> {
        let holder = self.run(async |session| {
            // A machine that vanishes does not hold it for long.
            session
                .run(
                    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5;
                     SET tcp_keepalives_count = 3",
                )
                .await?;
            let sql = "SELECT pg_try_advisory_lock($1)";
            let row = session.query_opt(sql, &[&LOCK]).await?;
            if row.map_or(Ok(false), |row| row.try_get::<_, bool>(0))? {
                return Ok(None);
            }
            let sql =
                "SELECT coalesce('a process on ' || host(client_addr), 'a process of this machine')
                FROM pg_locks LEFT JOIN pg_stat_activity USING (pid)
                WHERE locktype = 'advisory' AND pg_locks.database =
                        (SELECT oid FROM pg_database WHERE datname = current_database())
                    AND (classid::bigint << 32) | objid::bigint = $1 LIMIT 1";
            let row = session.query_opt(sql, &[&LOCK]).await?;
            let name = row
                .map(|row| row.try_get::<_, Option<String>>(0))
                .transpose()?;
            Ok(Some(name.flatten().unwrap_or_default()))
        })?;
        match holder {
            None => Ok(()),
            Some(holder) => Err(ArchiveError::Locked(holder)),
        }
    }

    /// Does something with the one connection, in a time that is bounded.
    fn run<T: Send>(
        &mut self,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, SessionError> + Send,
    ) -> Result<T, ArchiveError> {
        let Self {
            blocking,
            options,
            session,
            ..
        } = self;
        let limit = options.max_attempt * PATIENCE;
        let done = blocking.wait(async || within(limit, work(session)).await);
        done.map_err(database)
    }

    /// Takes back what a transaction has done that was not committed.
    fn take_back(&mut self) -> Result<(), ArchiveError> {
        self.run(async |session| Ok(session.run("ROLLBACK").await?))
    }

    fn reader(&self) -> Result<PostgresReader, ArchiveError> {
        Ok(PostgresReader::open(&self.options)?
            .with_archive(self.directory.clone())
            .with_identities(self.identities.clone()))
    }
}

impl Retention for LedgerDatabase {
    fn identify(&mut self, identities: Vec<Identity>) {
        self.identities = identities;
    }

    fn archive(&mut self) -> Result<(State, Vec<Listed>), ArchiveError> {
        self.run(async |session| {
            session
                .run("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                .await?;
            let archive = archive(session).await?;
            session.run("COMMIT").await?;
            Ok(archive)
        })
    }

    fn holds(&mut self) -> Result<Vec<Hold>, ArchiveError> {
        self.run(async |session| Ok(holds(session).await?))
    }

    fn set_hold(
        &mut self,
        of: &HoldFilter,
        by: &str,
        reason: &str,
        now_us: u64,
    ) -> Result<u64, ArchiveError> {
        self.run(async |session| {
            let locked = chain::lock_after(session, Uuid::nil(), BEGIN_WITH_HOLDS).await?;
            let row = session
                .query_opt(
                    "INSERT INTO owlclaw_ledger.legal_hold
                        (principal, capability, since_us, until_us, set_by, reason, set_us)
                     VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING number",
                    &[
                        &of.principal.as_deref().map(stored),
                        &of.capability.as_deref().map(stored),
                        &of.since_us.map(signed),
                        &of.until_us.map(signed),
                        &stored(by),
                        &stored(reason),
                        &signed(now_us),
                    ],
                )
                .await?;
            let row = row.ok_or(SessionError::NotStored)?;
            let number = row.try_get::<_, i64>(0)?.unsigned_abs();
            let detail = set_detail(number, of, reason);
            say(
                session,
                locked,
                by,
                &format!("hold-{number}"),
                &detail,
                now_us,
            )
            .await?;
            Ok(number)
        })
    }

    fn lift_hold(
        &mut self,
        number: u64,
        by: &str,
        reason: &str,
        now_us: u64,
    ) -> Result<Option<Hold>, ArchiveError> {
        let mut hold = self.holds()?.into_iter().find(|hold| hold.number == number);
        if hold.is_none() {
            hold = self.reader()?.hold_noted(number)?;
        }
        if hold.is_none() {
            return Ok(None);
        }
        self.run(async |session| {
            let locked = chain::lock_after(session, Uuid::nil(), BEGIN_WITH_HOLDS).await?;
            let sql = "DELETE FROM owlclaw_ledger.legal_hold WHERE number = $1";
            session.execute(sql, &[&signed(number)]).await?;
            let detail = lifted_detail(number, reason);
            say(
                session,
                locked,
                by,
                &format!("hold-{number}"),
                &detail,
                now_us,
            )
            .await
        })?;
        Ok(hold)
    }

    fn mark_deleted(
        &mut self,
        listed: &Listed,
        by: &str,
        now_us: u64,
        may_be: &mut dyn FnMut(&[Hold]) -> Result<Option<Days>, ArchiveError>,
    ) -> Result<bool, ArchiveError> {
        let (through, holds) = self.run(async |session| {
            session.run(BEGIN_WITH_HOLDS).await?;
            let (state, _) = archive(session).await?;
            Ok((state.through, holds(session).await?))
        })?;
        // Nobody changes them until the transaction ends, and what is deleted does not come back.
        let judged = (|| {
            if through < listed.last {
                return Ok(None);
            }
            self.reader()?.expect_holds()?;
            may_be(&holds)
        })();
        let days = match judged {
            Ok(Some(days)) => days,
            Ok(None) | Err(_) => {
                self.take_back()?;
                return judged.map(|_| false);
            }
        };
        self.run(async |session| {
            let locked = chain::lock_after(session, Uuid::nil(), "").await?;
            session
                .store(
                    "UPDATE owlclaw_ledger.archive_segment SET deleted_us = $1
                     WHERE number = $2 AND deleted_us IS NULL",
                    &[&signed(now_us), &listed.number],
                )
                .await?;
            carry_days(session, &days).await?;
            let detail = deleted_detail(listed);
            say(session, locked, by, &listed.file, &detail, now_us).await
        })?;
        Ok(true)
    }
}

impl ArchivedLedger for LedgerDatabase {
    fn is_shared(&self) -> bool {
        true
    }

    fn cut(&mut self, before_us: u64, now_us: u64) -> Result<u64, ArchiveError> {
        self.run(async |session| {
            // What is dated in the future says nothing of the time of what comes after it.
            let row = session
                .query_opt(
                    "SELECT min(stays) FROM (
                        SELECT min(start_sequence) FROM owlclaw_ledger.call
                            WHERE started_us >= $1 AND started_us <= $2
                        UNION ALL SELECT min(sequence) FROM owlclaw_ledger.note
                            WHERE at_us >= $1 AND at_us <= $2
                        UNION ALL SELECT through + 1 FROM owlclaw_ledger.indexed
                        UNION ALL SELECT max(first_sequence) FROM owlclaw_ledger.entry_group
                        UNION ALL (SELECT note_group FROM owlclaw_ledger.note WHERE kind = 'checkpoint'
                            ORDER BY at_us DESC, sequence DESC LIMIT 1)
                        UNION ALL SELECT min(call.start_group) FROM owlclaw_ledger.idempotency_key
                            JOIN owlclaw_ledger.call USING (call)
                     ) AS all_that (stays)",
                    &[&signed(before_us), &signed(now_us)],
                )
                .await?;
            let stays: Option<i64> = row.map_or(Ok(None), |row| row.try_get(0))?;
            let row = session
                .query_opt(
                    "SELECT first_sequence + count - 1 FROM owlclaw_ledger.entry_group
                     WHERE first_sequence < $1 AND first_sequence + count - 1 < $1
                     ORDER BY first_sequence DESC LIMIT 1",
                    &[&stays.unwrap_or(0)],
                )
                .await?;
            let cut: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
            Ok(cut.unsigned_abs())
        })
    }

    fn hash_after(&mut self, sequence: u64) -> Result<Option<Digest>, ArchiveError> {
        self.run(async |session| {
            let sql = "SELECT hash FROM owlclaw_ledger.entry_group
                WHERE first_sequence <= $1 AND first_sequence + count - 1 = $1
                ORDER BY first_sequence DESC LIMIT 1";
            let row = session.query_opt(sql, &[&signed(sequence)]).await?;
            Ok(row.map(|row| row.try_get(0).map(digest)).transpose()?)
        })
    }

    fn copy(&mut self, cut: u64, segment: &mut SegmentWriter<'_>) -> Result<(), ArchiveError> {
        let copied = self.copy_all(cut, segment);
        if copied.is_err() {
            // The error is told, whatever becomes of this.
            let _ = self.take_back();
        }
        copied
    }

    fn list(
        &mut self,
        segment: &Listed,
        directory: &Path,
        detail: &Json,
        now_us: u64,
    ) -> Result<(), ArchiveError> {
        let directory = directory.to_string_lossy();
        self.run(async |session| {
            let locked = chain::lock(session, Uuid::nil(), true).await?;
            session
                .store(
                    "INSERT INTO owlclaw_ledger.archive_segment
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, NULL)",
                    &[
                        &segment.number,
                        &segment.file,
                        &signed(segment.first),
                        &signed(segment.last),
                        &&segment.last_hash[..],
                        &signed(segment.first_start),
                        &signed(segment.from_us),
                        &signed(segment.until_us),
                    ],
                )
                .await?;
            let sql = "UPDATE owlclaw_ledger.archived SET directory = $1 WHERE through = $2";
            let before = signed(segment.first - 1);
            session.store(sql, &[&directory, &before]).await?;
            say(session, locked, "system", &segment.file, detail, now_us).await
        })
    }

    fn take_out(
        &mut self,
        part: &Part,
        tell: &mut dyn FnMut(ArchiveStep),
    ) -> Result<(), ArchiveError> {
        let is_taken = self.run(async |session| {
            // What is taken out is in a segment that has reached the disk: a crash may undo the taking out.
            session
                .run("BEGIN; SET LOCAL synchronous_commit = off")
                .await?;
            take_out(session, part).await
        })?;
        if !is_taken {
            self.take_back()?;
            return Err(ArchiveError::Locked("it went on meanwhile".to_owned()));
        }
        tell(ArchiveStep::TakingOut);
        self.run(async |session| Ok(session.run("COMMIT").await?))?;
        tell(ArchiveStep::TakenOut);
        Ok(())
    }
}

impl LedgerDatabase {
    fn copy_all(&mut self, cut: u64, segment: &mut SegmentWriter<'_>) -> Result<(), ArchiveError> {
        self.run(async |session| {
            // All of it as it is at one moment; the pages in between are written to a file.
            Ok(session
                .run(
                    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;
                     SET LOCAL idle_in_transaction_session_timeout = '10min'",
                )
                .await?)
        })?;
        let mut from = segment.first();
        while from <= cut && !segment.is_full() {
            let page: Vec<StoredGroup> =
                self.ask(async |session| scan::groups(session, from).await)?;
            let Some(last) = page.last() else {
                return Err(ArchiveError::Damaged(from));
            };
            from = last.first_sequence.saturating_add(last.count);
            for group in page {
                if segment.is_full() || cut < group.first_sequence {
                    break;
                }
                segment.add_group(&group)?;
            }
        }
        let (after, last) = (signed(segment.first() - 1), signed(segment.last()));
        let mut next = i64::MIN;
        loop {
            let page: Vec<IndexedCall> =
                self.run(async |session| Ok(calls(session, next, [after, last]).await?))?;
            let Some(row) = page.last() else { break };
            next = signed(row.sequence).saturating_add(1);
            page.iter().try_for_each(|call| segment.add_call(call))?;
        }
        let mut next = segment.first();
        loop {
            let page: Vec<IndexedNote> =
                self.ask(async |session| scan::indexed_notes(session, next).await)?;
            let Some(row) = page.last() else { break };
            next = row.sequence.saturating_add(1);
            let end = segment.last();
            for note in page.iter().filter(|it| it.sequence <= end) {
                segment.add_note(note)?;
            }
            if end < next {
                break;
            }
        }
        let starts = self.run(async |session| {
            let starts = session
                .query(
                    "SELECT sequence, carried_start.start_group, carried_start.start_offset, entry
                     FROM owlclaw_ledger.carried_start
                     JOIN owlclaw_ledger.call ON call.start_sequence = carried_start.sequence
                     WHERE call.end_sequence > $1 AND call.end_sequence <= $2",
                    &[&after, &last],
                )
                .await?;
            let starts = starts.iter().map(carried_start);
            let starts = starts.collect::<Result<Vec<_>, _>>()?;
            session.run("COMMIT").await?;
            Ok(starts)
        })?;
        for start in starts {
            let place = [signed(start.sequence), start.group, start.offset];
            segment.add_start(place, &start.entry)?;
        }
        Ok(())
    }

    /// Asks a question of readers.
    fn ask<T: Send>(
        &mut self,
        question: impl AsyncFnOnce(&mut Session) -> Result<T, QueryError> + Send,
    ) -> Result<T, ArchiveError> {
        let answer = self.run(async |session| Ok(question(session).await))?;
        answer.map_err(|error| ArchiveError::Database(Box::new(error)))
    }
}

/// Puts something on record and commits.
async fn say(
    session: &mut Session,
    Locked { end, .. }: Locked,
    actor: &str,
    subject: &str,
    detail: &Json,
    now_us: u64,
) -> Result<(), SessionError> {
    let detail = detail.to_string();
    let note = Note {
        actor,
        subject,
        detail: &detail,
        ..Note::new(now_us, NoteKind::RETENTION)
    };
    let mut body = Vec::new();
    codec::encode_note(CallId::new(now_us), &note, &mut body);
    chain::write(session, Uuid::nil(), Uuid::new_v4(), (&body, 1), end).await?;
    Ok(())
}

fn database(error: SessionError) -> ArchiveError {
    ArchiveError::Database(Box::new(error))
}

impl From<PostgresOpenError> for ArchiveError {
    fn from(error: PostgresOpenError) -> Self {
        Self::Ledger(Box::new(error))
    }
}
