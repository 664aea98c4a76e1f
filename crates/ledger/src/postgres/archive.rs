//! Archiving of a ledger in PostgreSQL, beside the servers that share it.
//!
//! An archiving process holds an advisory lock of its session until it has ended, and does all with that one connection: a
//! process that has lost the connection can change nothing any more. Two rows keep order beside it. `indexed` is locked while entries
//! are taken out, so that no row of a call changes meanwhile; the table of holds is locked while a segment is marked as
//! deleted.

use super::{
    PostgresOpenError, PostgresOptions, PostgresReader,
    blocking::Blocking,
    chain::{self, Locked},
    migrations,
    reader::scan,
    rows::{digest, signed},
    session::{Session, SessionError, within},
    text::{restored, stored},
};
use crate::{
    query::{IndexedCall, IndexedNote, QueryError, StoredGroup, statistics::Totals},
    record::{
        codec,
        entry::Digest,
        id::CallId,
        note::{Note, NoteKind},
    },
    sqlite::{
        archive::{
            ArchiveError, ArchiveOptions, ArchiveStep, ArchivedLedger, Archiver, Days, Hold,
            HoldFilter, Holds, Listed, Of, Part, Retention, SegmentWriter, State, deleted_detail,
            lifted_detail, set_detail,
        },
        index::Used,
        reader::{CarriedStart, OfDay, OfQuarters, ReadHolds, View},
    },
};
use age_format::Identity;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use tokio_postgres::{Error, Row};
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

/// Takes a part out of the tables; tells whether nobody else has taken it out.
async fn take_out(session: &mut Session, part: &Part) -> Result<bool, SessionError> {
    let (from, through) = (signed(part.before.through), signed(part.through));
    // No row of a call changes while this is locked.
    let sql = "SELECT through FROM owlclaw_ledger.indexed FOR UPDATE";
    session.query(sql, &[]).await?;
    let moved = session
        .execute(
            "UPDATE owlclaw_ledger.archived SET through = $1, hash = $2
             WHERE through = $3 AND hash = $4",
            &[&through, &&part.hash[..], &from, &&part.before.hash[..]],
        )
        .await?;
    if moved != 1 {
        return Ok(false);
    }
    // A call is taken out with its end, and its start stays for as long as it has none.
    session
        .execute(
            "INSERT INTO owlclaw_ledger.carried_start (sequence, start_group, start_offset, entry, node)
             SELECT call.start_sequence, call.start_group, call.start_offset,
                substring(body FROM call.start_offset + 1 FOR call.start_length), entry_group.node
             FROM owlclaw_ledger.call
             JOIN owlclaw_ledger.entry_group ON entry_group.first_sequence = call.start_group
             WHERE call.start_sequence > $1 AND call.start_sequence <= $2
                AND NOT call.start_sequence = ANY ($3)",
            &[&from, &through, &part.starts],
        )
        .await?;
    session
        .execute(
            "UPDATE owlclaw_ledger.node SET archived_group = last.id
             FROM (SELECT DISTINCT ON (node) node, id FROM owlclaw_ledger.entry_group
                WHERE first_sequence <= $1 ORDER BY node, first_sequence DESC) AS last
             WHERE node.id = last.node",
            &[&through],
        )
        .await?;
    carry_days(session, &part.days).await?;
    carry_quarters(session, part).await?;
    let sql = "DELETE FROM owlclaw_ledger.carried_start WHERE sequence = ANY ($1)";
    session.execute(sql, &[&part.starts]).await?;
    let sql = "DELETE FROM owlclaw_ledger.call WHERE start_sequence = ANY ($1)";
    let calls = session.execute(sql, &[&part.starts]).await?;
    let sql = "DELETE FROM owlclaw_ledger.note WHERE sequence <= $1";
    session.execute(sql, &[&through]).await?;
    let sql = "DELETE FROM owlclaw_ledger.entry_group WHERE first_sequence <= $1";
    session.execute(sql, &[&through]).await?;
    let sql = "UPDATE owlclaw_ledger.archived SET calls = calls + $1";
    session.store(sql, &[&signed(calls)]).await?;
    Ok(true)
}

/// Sums column by column.
struct Columns<'a> {
    times: Vec<i64>,
    principals: Vec<std::borrow::Cow<'a, str>>,
    kinds: Vec<&'a str>,
    capabilities: Vec<std::borrow::Cow<'a, str>>,
    latest_us: Vec<i64>,
    calls: Vec<i64>,
    micros: Vec<i64>,
    dearest: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn of(rows: impl Iterator<Item = (&'a (i64, Of), Used)>) -> Self {
        let mut columns = Self {
            times: Vec::new(),
            principals: Vec::new(),
            kinds: Vec::new(),
            capabilities: Vec::new(),
            latest_us: Vec::new(),
            calls: Vec::new(),
            micros: Vec::new(),
            dearest: Vec::new(),
        };
        for ((time, (principal, kind, capability)), used) in rows {
            columns.times.push(*time);
            columns.principals.push(stored(principal));
            columns.kinds.push(kind);
            columns.capabilities.push(stored(capability));
            columns.latest_us.push(used.latest_us);
            columns.calls.push(used.calls);
            columns.micros.push(used.cost_micros);
            columns.dearest.push(used.dearest_micros);
        }
        columns
    }
}

/// Adds sums of days to those that stay.
async fn carry_days(session: &mut Session, days: &Days) -> Result<(), Error> {
    let columns = Columns::of(days.iter().map(|(key, (_, used))| (key, *used)));
    let rows = session
        .query(
            "SELECT day, principal, kind, capability, latest_us, used_calls, used_micros, dearest_micros, tally
             FROM owlclaw_ledger.carried_day
             JOIN unnest($1::bigint[], $2::text[], $3::text[], $4::text[])
                AS more (day, principal, kind, capability) USING (day, principal, kind, capability)",
            &[
                &columns.times,
                &columns.principals,
                &columns.kinds,
                &columns.capabilities,
            ],
        )
        .await?;
    let mut days = days.clone();
    for row in &rows {
        let key = (row.try_get(0)?, of(row, 1)?);
        if let Some((totals, used)) = days.get_mut(&key) {
            used.add(used_of(row, 4)?);
            // A sum that is damaged is overwritten here and then found by verification.
            totals.merge(&Totals::decode(row.try_get(8)?).unwrap_or_default());
        }
    }
    let columns = Columns::of(days.iter().map(|(key, (_, used))| (key, *used)));
    let tallies: Vec<Vec<u8>> = days.values().map(|(totals, _)| totals.encode()).collect();
    session
        .execute(
            "INSERT INTO owlclaw_ledger.carried_day
             SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[],
                $7::bigint[], $8::bigint[], $9::bytea[])
             ON CONFLICT (day, principal, kind, capability) DO UPDATE SET latest_us = excluded.latest_us,
                used_calls = excluded.used_calls, used_micros = excluded.used_micros,
                dearest_micros = excluded.dearest_micros, tally = excluded.tally",
            &[
                &columns.times,
                &columns.principals,
                &columns.kinds,
                &columns.capabilities,
                &columns.latest_us,
                &columns.calls,
                &columns.micros,
                &columns.dearest,
                &tallies,
            ],
        )
        .await?;
    Ok(())
}

/// Adds the use of a part by quarters of an hour to what stays, and forgets what is too old.
async fn carry_quarters(session: &mut Session, part: &Part) -> Result<(), Error> {
    let columns = Columns::of(part.quarters.iter().map(|(key, used)| (key, *used)));
    session
        .execute(
            "INSERT INTO owlclaw_ledger.carried_quarter AS own
             SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[],
                $7::bigint[], $8::bigint[])
             ON CONFLICT (quarter, principal, kind, capability) DO UPDATE SET
                latest_us = greatest(own.latest_us, excluded.latest_us),
                used_calls = own.used_calls + excluded.used_calls,
                used_micros = own.used_micros + excluded.used_micros,
                dearest_micros = greatest(own.dearest_micros, excluded.dearest_micros)",
            &[
                &columns.times,
                &columns.principals,
                &columns.kinds,
                &columns.capabilities,
                &columns.latest_us,
                &columns.calls,
                &columns.micros,
                &columns.dearest,
            ],
        )
        .await?;
    let sql = "DELETE FROM owlclaw_ledger.carried_quarter WHERE quarter < $1";
    session.execute(sql, &[&part.kept_from]).await?;
    Ok(())
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

const STATE: &str = "SELECT through, hash, directory FROM owlclaw_ledger.archived";

/// State of the archive, and its segments in order.
async fn archive(session: &mut Session) -> Result<(State, Vec<Listed>), Error> {
    let state = state(session.query_opt(STATE, &[]).await?)?;
    Ok((state, segments(session).await?))
}

fn state(row: Option<Row>) -> Result<State, Error> {
    let Some(row) = row else {
        return Ok(State::default());
    };
    Ok(State {
        through: number(&row, 0)?,
        hash: digest(row.try_get(1)?),
        directory: row.try_get::<_, String>(2)?.into(),
    })
}

async fn segments(session: &mut Session) -> Result<Vec<Listed>, Error> {
    let rows = session
        .query(
            "SELECT number, file, first_sequence, last_sequence, last_hash, first_start, from_us, until_us,
                deleted_us IS NOT NULL
             FROM owlclaw_ledger.archive_segment ORDER BY number",
            &[],
        )
        .await?;
    let listed = |row: &Row| {
        Ok(Listed {
            number: row.try_get(0)?,
            file: row.try_get(1)?,
            first: number(row, 2)?,
            last: number(row, 3)?,
            last_hash: digest(row.try_get(4)?),
            first_start: number(row, 5)?,
            from_us: number(row, 6)?,
            until_us: number(row, 7)?,
            is_deleted: row.try_get(8)?,
            is_unread: false,
        })
    };
    rows.iter().map(listed).collect()
}

/// Begins a transaction to which nothing changes, and tells what readers see of the archive.
pub(super) async fn begin_view(session: &mut Session) -> Result<View, Error> {
    // It keeps nobody waiting, and a long answer may take its time to be read.
    const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;
        SET LOCAL idle_in_transaction_session_timeout = '60s'";
    let read = session.prepare(STATE).await?;
    let client = session.client();
    // Sent together: questions are many.
    let (begun, row) = tokio::join!(
        biased;
        client.batch_execute(BEGIN),
        client.query_opt(&read, &[]),
    );
    begun?;
    let state = state(row?)?;
    if state.through == 0 {
        return Ok(View::default());
    }
    let mut listed = segments(session).await?;
    listed.retain(|it| it.first <= state.through);
    Ok(View { state, listed })
}

/// The holds in force, the oldest first.
pub(super) async fn holds(session: &mut Session) -> Result<Vec<Hold>, Error> {
    let rows = session
        .query(
            "SELECT number, principal, capability, since_us, until_us, set_by, reason, set_us
             FROM owlclaw_ledger.legal_hold ORDER BY number",
            &[],
        )
        .await?;
    let text = |row: &Row, index| {
        let text: Option<String> = row.try_get(index)?;
        Ok::<_, Error>(text.map(restored))
    };
    let time = |row: &Row, index| {
        let time: Option<i64> = row.try_get(index)?;
        Ok::<_, Error>(time.map(i64::unsigned_abs))
    };
    let hold = |row: &Row| {
        Ok(Hold {
            number: number(row, 0)?,
            of: HoldFilter {
                principal: text(row, 1)?,
                capability: text(row, 2)?,
                since_us: time(row, 3)?,
                until_us: time(row, 4)?,
            },
            by: restored(row.try_get(5)?),
            reason: restored(row.try_get(6)?),
            at_us: number(row, 7)?,
        })
    };
    rows.iter().map(hold).collect()
}

/// A page of the rows of calls that end in a range of entries, of those that begin at `from` or later.
async fn calls(
    session: &mut Session,
    from: i64,
    [after, last]: [i64; 2],
) -> Result<Vec<IndexedCall>, Error> {
    let rows = session
        .query(
            "SELECT * FROM owlclaw_ledger.call
             WHERE start_sequence >= $1 AND start_sequence <= $3 AND end_sequence > $2 AND end_sequence <= $3
             ORDER BY start_sequence LIMIT 4096",
            &[&from, &after, &last],
        )
        .await?;
    rows.iter().map(scan::call).collect()
}

/// The first day after this one of which sums are kept, and these; `None` in their place if they cannot be read.
pub(super) async fn next_day(
    session: &mut Session,
    after: i64,
) -> Result<Option<(i64, Option<OfDay>)>, Error> {
    let rows = session
        .query(
            "SELECT day, principal, kind, capability, latest_us, used_calls, used_micros, dearest_micros, tally
             FROM owlclaw_ledger.carried_day
             WHERE day = (SELECT min(day) FROM owlclaw_ledger.carried_day WHERE day > $1)",
            &[&after],
        )
        .await?;
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let day = first.try_get(0)?;
    let mut sums = OfDay::new();
    for row in &rows {
        let Some(totals) = Totals::decode(row.try_get(8)?) else {
            return Ok(Some((day, None)));
        };
        sums.insert(of(row, 1)?, (totals, used_of(row, 4)?));
    }
    Ok(Some((day, Some(sums))))
}

/// The use by quarters of an hour that is kept.
pub(super) async fn quarters(session: &mut Session) -> Result<OfQuarters, Error> {
    let rows = session
        .query(
            "SELECT quarter, principal, kind, capability, latest_us, used_calls, used_micros, dearest_micros
             FROM owlclaw_ledger.carried_quarter",
            &[],
        )
        .await?;
    let quarter = |row: &Row| Ok(((row.try_get(0)?, of(row, 1)?), used_of(row, 4)?));
    rows.iter().map(quarter).collect()
}

/// Number of calls whose rows are gone.
pub(super) async fn calls_taken_out(session: &mut Session) -> Result<i64, Error> {
    let sql = "SELECT calls FROM owlclaw_ledger.archived";
    let row = session.query_opt(sql, &[]).await?;
    row.map_or(Ok(0), |row| row.try_get(0))
}

/// The starts of calls that had not ended when they were taken out.
pub(super) async fn carried_starts(session: &mut Session) -> Result<Vec<CarriedStart>, Error> {
    let sql = "SELECT sequence, start_group, start_offset, entry FROM owlclaw_ledger.carried_start";
    let rows = session.query(sql, &[]).await?;
    rows.iter().map(carried_start).collect()
}

/// Returns true if the start of each call that has a row, and whose start was taken out, is kept.
pub(super) async fn has_starts(session: &mut Session) -> Result<bool, Error> {
    let sql = "SELECT NOT EXISTS (SELECT FROM owlclaw_ledger.call
            LEFT JOIN owlclaw_ledger.carried_start ON carried_start.sequence = call.start_sequence
        WHERE call.start_sequence <= (SELECT through FROM owlclaw_ledger.archived)
            AND carried_start.sequence IS NULL)";
    let row = session.query_opt(sql, &[]).await?;
    row.map_or(Ok(true), |row| row.try_get(0))
}

fn carried_start(row: &Row) -> Result<CarriedStart, Error> {
    Ok(CarriedStart {
        sequence: number(row, 0)?,
        group: row.try_get(1)?,
        offset: row.try_get::<_, i32>(2)?.into(),
        entry: row.try_get(3)?,
    })
}

/// Principal, kind and capability.
fn of(row: &Row, first: usize) -> Result<Of, Error> {
    Ok((
        restored(row.try_get(first)?),
        row.try_get(first + 1)?,
        restored(row.try_get(first + 2)?),
    ))
}

fn used_of(row: &Row, first: usize) -> Result<Used, Error> {
    Ok(Used {
        latest_us: row.try_get(first)?,
        calls: row.try_get(first + 1)?,
        cost_micros: row.try_get(first + 2)?,
        dearest_micros: row.try_get(first + 3)?,
    })
}

fn number(row: &Row, index: usize) -> Result<u64, Error> {
    row.try_get::<_, i64>(index).map(|number| number as u64)
}

fn database(error: SessionError) -> ArchiveError {
    ArchiveError::Database(Box::new(error))
}

impl From<PostgresOpenError> for ArchiveError {
    fn from(error: PostgresOpenError) -> Self {
        Self::Ledger(Box::new(error))
    }
}
