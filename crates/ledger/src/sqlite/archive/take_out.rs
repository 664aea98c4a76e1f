//! Taking entries that are in a segment out of the ledger.

use super::{ArchiveError, ArchiveStep, KEPT_QUARTERS, Listed, QUARTER_US, State};
use crate::{
    query::statistics::{Totals, day_of},
    record::entry::Digest,
    sqlite::index::Used,
};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::collections::BTreeMap;

/// Entries that are taken out in one transaction, but for the rest of the last group: nothing is appended while
/// it lasts.
const MAX_ENTRIES: u64 = 1_000;

/// Principal, kind and capability.
pub(crate) type Of = (String, String, String);

/// Sums of calls by days.
pub(crate) type Days = BTreeMap<(i64, Of), (Totals, Used)>;

/// Part of a segment that is taken out of the ledger at once.
#[derive(Debug)]
pub(crate) struct Part {
    /// State before it is taken out.
    pub(crate) before: State,
    /// The last entry of the part.
    pub(crate) through: u64,
    pub(crate) hash: Digest,
    /// Starts of the calls that end in it.
    pub(crate) starts: Vec<i64>,
    /// Sums of these calls by days.
    pub(crate) days: Days,
    /// Their use by quarters of an hour, as far as budgets may depend on it.
    pub(crate) quarters: BTreeMap<(i64, Of), Used>,
    /// The first quarter that is kept.
    pub(crate) kept_from: i64,
}

/// Makes an index of the ends of calls in a segment, for as long as it is open.
pub(super) fn index_ends(segment: &Connection) -> rusqlite::Result<()> {
    segment.execute_batch(
        "CREATE TEMP TABLE call_end AS SELECT end_sequence, start_sequence FROM main.call;
         CREATE INDEX temp.call_by_end ON call_end (end_sequence, start_sequence);",
    )
}

impl Part {
    /// The part of a segment that follows what was taken out. The segment says what ends in it: in a store that several
    /// servers share, the rows of calls may be other ones by now.
    pub(super) fn of(
        segment: &Connection,
        before: &State,
        listed: &Listed,
        now_us: u64,
    ) -> Result<Self, ArchiveError> {
        let from = before.through as i64;
        let until = before.through.saturating_add(MAX_ENTRIES).min(listed.last) as i64;
        // The group that has the last of so many entries.
        let end: Option<(i64, Digest)> = segment
            .query_row(
                "SELECT first_sequence + count - 1, hash FROM entry_group
                 WHERE first_sequence > ?1 AND first_sequence <= ?2
                 ORDER BY first_sequence DESC LIMIT 1",
                [from, until],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()?;
        let (through, hash) = end
            .filter(|(through, _)| *through <= listed.last as i64)
            .ok_or(ArchiveError::Damaged(before.through + 1))?;
        let kept_from = (now_us / QUARTER_US).saturating_sub(KEPT_QUARTERS);
        let mut part = Self {
            before: before.clone(),
            through: through.unsigned_abs(),
            hash,
            starts: Vec::new(),
            days: BTreeMap::new(),
            quarters: BTreeMap::new(),
            kept_from: kept_from as i64,
        };
        let mut select = segment.prepare_cached(
            "SELECT principal, kind, capability, started_us, outcome, reason, cost_micros, duration_us,
                start_sequence
             FROM temp.call_end JOIN main.call USING (start_sequence)
             WHERE call_end.end_sequence > ?1 AND call_end.end_sequence <= ?2",
        )?;
        let mut rows = select.query([from, through])?;
        while let Some(row) = rows.next()? {
            let number = |index| {
                let number: Option<i64> = row.get(index)?;
                Ok::<_, rusqlite::Error>(number.unwrap_or(0).unsigned_abs())
            };
            let of: Of = (row.get(0)?, row.get(1)?, row.get(2)?);
            let started_us = number(3)?;
            let text = |index| row.get::<_, Option<String>>(index);
            let (outcome, reason) = (text(4)?.unwrap_or_default(), text(5)?);
            let (cost_micros, duration_us) = (number(6)?, number(7)?);
            let quarter = started_us / QUARTER_US;
            let mut used = Used::default();
            used.add_ended(started_us, &outcome, cost_micros);
            if kept_from <= quarter && used.calls != 0 {
                let key = (quarter as i64, of.clone());
                part.quarters.entry(key).or_default().add(used);
            }
            let day = (day_of(started_us) as i64, of);
            let (totals, sum) = part.days.entry(day).or_default();
            totals.add_ended(&outcome, reason.as_deref(), cost_micros, duration_us);
            sum.add(used);
            part.starts.push(row.get(8)?);
        }
        Ok(part)
    }
}

/// Takes a part out of a ledger in a file.
pub(super) fn of_file(
    connection: &mut Connection,
    part: &Part,
    tell: &mut dyn FnMut(ArchiveStep),
) -> Result<(), ArchiveError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (from, through) = (part.before.through as i64, part.through as i64);
    // In one statement each: a call is taken out with its end, and its start stays for as long as it has none.
    transaction.execute(
        "INSERT INTO carried_start
         SELECT call.start_sequence, call.start_group, call.start_offset,
            substr(entry_group.body, call.start_offset + 1, call.start_length)
         FROM call JOIN entry_group ON entry_group.first_sequence = call.start_group
         WHERE call.start_sequence > ?1 AND call.start_sequence <= ?2
            AND (call.end_sequence IS NULL OR call.end_sequence > ?2)",
        [from, through],
    )?;
    carry_sums(&transaction, part)?;
    transaction.execute(
        "DELETE FROM carried_start WHERE sequence IN
            (SELECT start_sequence FROM call WHERE start_sequence <= ?1 AND end_sequence <= ?1)",
        [through],
    )?;
    let calls = transaction.execute(
        "DELETE FROM call WHERE start_sequence <= ?1 AND end_sequence <= ?1",
        [through],
    )?;
    transaction.execute("DELETE FROM note WHERE sequence <= ?1", [through])?;
    transaction.execute(
        "DELETE FROM entry_group WHERE first_sequence <= ?1",
        [through],
    )?;
    transaction.execute(
        "UPDATE archived SET through = ?1, hash = ?2, calls = calls + ?3",
        params![through, part.hash, calls as i64],
    )?;
    tell(ArchiveStep::TakingOut);
    transaction.commit()?;
    tell(ArchiveStep::TakenOut);
    Ok(())
}

/// Adds sums of days to those that stay.
pub(super) fn carry_days(connection: &Connection, days: &Days) -> Result<(), ArchiveError> {
    for ((day, (principal, kind, capability)), (totals, used)) in days {
        let (mut totals, mut used) = (totals.clone(), *used);
        let stored: Option<(Used, Vec<u8>)> = connection
            .prepare_cached(
                "SELECT latest_us, used_calls, used_micros, dearest_micros, tally FROM carried_day
                 WHERE day = ?1 AND principal = ?2 AND kind = ?3 AND capability = ?4",
            )?
            .query_row(params![day, principal, kind, capability], |row| {
                Ok((Used::of_row(row, 0)?, row.get(4)?))
            })
            .optional()?;
        if let Some((stored_used, stored)) = stored {
            used.add(stored_used);
            let stored = Totals::decode(&stored);
            totals.merge(&stored.unwrap_or_default());
        }
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO carried_day VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                day,
                principal,
                kind,
                capability,
                used.latest_us,
                used.calls,
                used.cost_micros,
                used.dearest_micros,
                totals.encode()
            ])?;
    }
    Ok(())
}

/// Adds the sums of a part to those that stay.
fn carry_sums(connection: &Connection, part: &Part) -> Result<(), ArchiveError> {
    carry_days(connection, &part.days)?;
    for ((quarter, (principal, kind, capability)), used) in &part.quarters {
        connection
            .prepare_cached(
                "INSERT INTO carried_quarter VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 ON CONFLICT DO UPDATE SET latest_us = max(latest_us, excluded.latest_us),
                    used_calls = used_calls + excluded.used_calls,
                    used_micros = used_micros + excluded.used_micros,
                    dearest_micros = max(dearest_micros, excluded.dearest_micros)",
            )?
            .execute(params![
                quarter,
                principal,
                kind,
                capability,
                used.latest_us,
                used.calls,
                used.cost_micros,
                used.dearest_micros
            ])?;
    }
    connection
        .prepare_cached("DELETE FROM carried_quarter WHERE quarter < ?1")?
        .execute([part.kept_from])?;
    Ok(())
}
