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
type Of = (String, String, String);

/// Takes some entries out of the ledger, with the rows of the calls that end there; tells the last of them.
pub(super) fn some(
    connection: &mut Connection,
    state: &State,
    segment: &Listed,
    now_us: u64,
    tell: &mut dyn FnMut(ArchiveStep),
) -> Result<u64, ArchiveError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let from = state.through as i64;
    let until = state.through.saturating_add(MAX_ENTRIES).min(segment.last) as i64;
    // The group that has the last of so many entries.
    let end: Option<(i64, Digest)> = transaction
        .query_row(
            "SELECT first_sequence + count - 1, hash FROM entry_group
             WHERE first_sequence > ?1 AND first_sequence <= ?2
             ORDER BY first_sequence DESC LIMIT 1",
            [from, until],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    let (through, hash) = end
        .filter(|(through, _)| *through <= segment.last as i64)
        .ok_or(ArchiveError::Damaged(state.through + 1))?;
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
    carry_sums(&transaction, through, now_us)?;
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
        params![through, hash, calls as i64],
    )?;
    tell(ArchiveStep::TakingOut);
    transaction.commit()?;
    tell(ArchiveStep::TakenOut);
    Ok(through.unsigned_abs())
}

/// Adds the calls that end at this entry or before to the sums that stay.
fn carry_sums(connection: &Connection, through: i64, now_us: u64) -> Result<(), ArchiveError> {
    let mut days: BTreeMap<(i64, Of), (Totals, Used)> = BTreeMap::new();
    let mut quarters: BTreeMap<(i64, Of), Used> = BTreeMap::new();
    let kept_from = (now_us / QUARTER_US).saturating_sub(KEPT_QUARTERS);
    let mut select = connection.prepare_cached(
        "SELECT principal, kind, capability, started_us, outcome, reason, cost_micros, duration_us
         FROM call WHERE start_sequence <= ?1 AND end_sequence <= ?1",
    )?;
    let mut rows = select.query([through])?;
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
        if kept_from <= quarter {
            let used = quarters.entry((quarter as i64, of.clone())).or_default();
            used.add_ended(started_us, &outcome, cost_micros);
        }
        let (totals, used) = days.entry((day_of(started_us) as i64, of)).or_default();
        totals.add_ended(&outcome, reason.as_deref(), cost_micros, duration_us);
        used.add_ended(started_us, &outcome, cost_micros);
    }
    for ((day, (principal, kind, capability)), (mut totals, mut used)) in days {
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
    for ((quarter, (principal, kind, capability)), used) in quarters {
        if used.calls == 0 {
            continue;
        }
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
        .execute([kept_from as i64])?;
    Ok(())
}
