//! The ledger and its index from one end to the other, as verification reads them.
//!
//! Each page is read by itself: a transaction that lasted would keep a server's log from being
//! folded into its file for as long.

use super::{signed, tail::Tail};
use crate::{
    CallId, Digest, Extent, IndexedCall, IndexedEnd, MAX_PAGE_BYTES, MAX_PAGE_ROWS, QueryError,
    StoredGroup,
};
use rusqlite::{Connection, OptionalExtension, Row};
use uuid::Uuid;

pub(super) fn extent(connection: &Connection, tail: Tail) -> Result<Extent, QueryError> {
    let through = if tail.hides_index {
        "0"
    } else {
        "(SELECT through FROM main.indexed)"
    };
    let sql = format!(
        "SELECT coalesce((SELECT first_sequence + count - 1 FROM entry_group
            ORDER BY first_sequence DESC LIMIT 1), 0), {through}"
    );
    Ok(connection.query_row(&sql, [], |row| {
        Ok(Extent {
            last_sequence: number(row, 0)?,
            indexed_through: number(row, 1)?,
        })
    })?)
}

pub(super) fn groups(connection: &Connection, from: u64) -> Result<Vec<StoredGroup>, QueryError> {
    let mut select = connection.prepare_cached(
        "SELECT first_sequence, count, hash, body, length(body) FROM entry_group
         WHERE first_sequence >= ?1 ORDER BY first_sequence",
    )?;
    let mut rows = select.query([beginning(from)])?;
    let (mut groups, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        bytes += usize::try_from(row.get::<_, i64>(4)?).unwrap_or(MAX_PAGE_BYTES);
        if MAX_PAGE_BYTES < bytes && !groups.is_empty() {
            break;
        }
        // A hash of another length is none that any group has.
        let hash: Vec<u8> = row.get(2)?;
        groups.push(StoredGroup {
            first_sequence: number(row, 0)?,
            count: number(row, 1)?,
            hash: hash.try_into().unwrap_or_default(),
            body: row.get(3)?,
        });
    }
    Ok(groups)
}

pub(super) fn hash_after(
    connection: &Connection,
    sequence: u64,
) -> Result<Option<Digest>, QueryError> {
    let mut select = connection.prepare_cached(
        "SELECT first_sequence + count - 1, hash FROM entry_group WHERE first_sequence <= ?1
         ORDER BY first_sequence DESC LIMIT 1",
    )?;
    let last: Option<(u64, Vec<u8>)> = select
        .query_row([signed(sequence)], |row| Ok((number(row, 0)?, row.get(1)?)))
        .optional()?;
    Ok(last
        .filter(|(last, _)| *last == sequence)
        .and_then(|(_, hash)| hash.try_into().ok()))
}

const CALL: &str = "SELECT call, start_sequence, started_us, principal, kind, capability,
    request_id, trace_id, estimated_cost_micros, end_sequence, outcome, reason, cost_micros,
    duration_us FROM main.call";

pub(super) fn indexed_calls(
    connection: &Connection,
    from: u64,
) -> Result<Vec<IndexedCall>, QueryError> {
    let sql = format!("{CALL} WHERE start_sequence >= ?1 ORDER BY start_sequence LIMIT ?2");
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map((beginning(from), MAX_PAGE_ROWS as i64), call)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn indexed_call(
    connection: &Connection,
    id: CallId,
) -> Result<Option<IndexedCall>, QueryError> {
    let sql = format!("{CALL} WHERE call = ?1 ORDER BY start_sequence LIMIT 1");
    let mut select = connection.prepare_cached(&sql)?;
    Ok(select.query_row([id.0.as_bytes()], call).optional()?)
}

fn call(row: &Row<'_>) -> rusqlite::Result<IndexedCall> {
    let end = match row.get::<_, Option<i64>>(9)? {
        None => None,
        Some(sequence) => Some(IndexedEnd {
            sequence: sequence.unsigned_abs(),
            outcome: row.get::<_, Option<String>>(10)?.unwrap_or_default(),
            reason: row.get(11)?,
            cost_micros: row.get::<_, Option<i64>>(12)?.unwrap_or(-1) as u64,
            duration_us: row.get::<_, Option<i64>>(13)?.unwrap_or(-1) as u64,
        }),
    };
    // Bytes that are no UUID name no call.
    let id: Vec<u8> = row.get(0)?;
    Ok(IndexedCall {
        call: CallId(Uuid::from_slice(&id).unwrap_or_default()),
        sequence: number(row, 1)?,
        started_us: number(row, 2)?,
        principal: row.get(3)?,
        kind: row.get(4)?,
        capability: row.get(5)?,
        request_id: row.get(6)?,
        trace_id: row.get(7)?,
        estimated_cost_micros: number(row, 8)?,
        end,
    })
}

/// Negative numbers, which are in no ledger, become numbers that are in none either.
fn number(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(index).map(|number| number as u64)
}

/// From the beginning on, also what is before any beginning.
fn beginning(from: u64) -> i64 {
    if from == 0 { i64::MIN } else { signed(from) }
}
