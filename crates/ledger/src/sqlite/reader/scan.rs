//! The ledger and its index from one end to the other, as verification reads them.
//!
//! Each page is read by itself: a transaction that lasted would keep a server's log from being
//! folded into its file for as long.

use super::{CarriedStart, signed, tail::Tail};
use crate::{
    query::{
        ApprovalRow, Extent, IndexedCall, IndexedEnd, IndexedNote, KeyHeld, MAX_PAGE_BYTES,
        MAX_PAGE_ROWS, Place, QueryError, StoredGroup,
    },
    record::{approval::ApprovalId, entry::Digest, id::CallId, kept},
    sqlite::rows,
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

pub(super) const CALL: &str =
    "SELECT call, start_sequence, started_us, principal, kind, capability,
    request_id, trace_id, approval, estimated_cost_micros, start_group, start_offset, start_length,
    end_sequence, outcome, reason, cost_micros, duration_us, end_group, end_offset, end_length
    FROM main.call";

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

pub(super) fn indexed_notes(
    connection: &Connection,
    from: u64,
) -> Result<Vec<IndexedNote>, QueryError> {
    let mut select = connection.prepare_cached(
        "SELECT sequence, at_us, kind, actor, subject, note_group, note_offset, note_length
         FROM main.note WHERE sequence >= ?1 ORDER BY sequence LIMIT ?2",
    )?;
    let rows = select.query_map((beginning(from), MAX_PAGE_ROWS as i64), |row| {
        Ok(IndexedNote {
            sequence: number(row, 0)?,
            at_us: number(row, 1)?,
            kind: row.get(2)?,
            actor: row.get(3)?,
            subject: row.get(4)?,
            place: Some(place(row, 5)?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn call(row: &Row<'_>) -> rusqlite::Result<IndexedCall> {
    // Nobody can have used or said what is missing here.
    let missing =
        |index| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.unwrap_or(-1) as u64);
    let outcome: Option<String> = row.get(14)?;
    let end = match row.get::<_, Option<i64>>(13)? {
        None if outcome.is_none() => None,
        sequence => Some(IndexedEnd {
            sequence: sequence.unwrap_or(-1) as u64,
            outcome: outcome.unwrap_or_default(),
            reason: row.get(15)?,
            cost_micros: missing(16)?,
            duration_us: missing(17)?,
            place: Some(Place {
                group: missing(18)?,
                offset: missing(19)?,
                length: missing(20)?,
            }),
            copies: None,
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
        approval: row.get(8)?,
        estimated_cost_micros: number(row, 9)?,
        place: Some(place(row, 10)?),
        arguments: None,
        end,
    })
}

/// The place that these three columns name.
fn place(row: &Row<'_>, first: usize) -> rusqlite::Result<Place> {
    Ok(Place {
        group: number(row, first)?,
        offset: number(row, first + 1)?,
        length: number(row, first + 2)?,
    })
}

/// The starts of calls that had not ended when they were taken out.
pub(super) fn carried_starts(snapshot: &Connection) -> rusqlite::Result<Vec<CarriedStart>> {
    let mut select = snapshot.prepare_cached(
        "SELECT sequence, start_group, start_offset, entry FROM main.carried_start ORDER BY sequence",
    )?;
    let rows = select.query_map([], |row| {
        Ok(CarriedStart {
            sequence: number(row, 0)?,
            group: row.get(1)?,
            offset: row.get(2)?,
            entry: row.get(3)?,
        })
    })?;
    rows.collect()
}

/// Returns true if the start of each call that has a row, and whose start was taken out, is kept.
pub(super) fn has_starts(snapshot: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT NOT EXISTS (SELECT 1 FROM main.call
        WHERE start_sequence <= (SELECT through FROM main.archived)
            AND start_sequence NOT IN (SELECT sequence FROM main.carried_start))";
    snapshot.query_row(sql, [], |row| row.get(0))
}

pub(super) fn approval_rows(
    connection: &Connection,
    after: Option<ApprovalId>,
) -> Result<Vec<ApprovalRow>, QueryError> {
    let mut select = connection.prepare_cached(
        "SELECT * FROM approval WHERE ?1 IS NULL OR id > ?1 ORDER BY id LIMIT ?2",
    )?;
    let after = after.map(|after| after.0.as_bytes().to_vec());
    // They are large: their arguments are in them.
    let values = (after, MAX_PAGE_ROWS as i64 / 16);
    let rows = select.query_map(values, |row| {
        Ok(ApprovalRow {
            approval: rows::approval(row)?,
            noted: row.get("noted")?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn holds_key(connection: &Connection, call: CallId) -> Result<bool, QueryError> {
    let mut select = connection.prepare_cached("SELECT 1 FROM idempotency_key WHERE call = ?1")?;
    Ok(select.exists([&call.0.as_bytes()[..]])?)
}

pub(super) fn keys_held(
    connection: &Connection,
    from: Option<(&str, &str)>,
) -> Result<Vec<KeyHeld>, QueryError> {
    let mut select = connection.prepare_cached(
        "SELECT principal, key, capability, call, state, until_us, result, digest
         FROM idempotency_key
         WHERE (principal, key) >= (?1, ?2) ORDER BY principal, key LIMIT ?3",
    )?;
    let (principal, key) = from.unwrap_or_default();
    let rows = select.query_map((principal, key, MAX_PAGE_ROWS as i64), |row| {
        let (call, digest): (Vec<u8>, Vec<u8>) = (row.get(3)?, row.get(7)?);
        Ok(KeyHeld {
            arguments: digest.try_into().unwrap_or_default(),
            principal: row.get(0)?,
            key: row.get(1)?,
            capability: row.get(2)?,
            // Bytes that are no UUID name no call, as the nil one does.
            call: CallId(Uuid::from_slice(&call).unwrap_or_default()),
            state: row.get(4)?,
            until_us: number(row, 5)?,
            kept: kept::digest(row.get_ref(6)?.as_str_or_null()?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Negative numbers, which are in no ledger, become numbers that are in none either.
pub(super) fn number(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(index).map(|number| number as u64)
}

/// From the beginning on, also what is before any beginning.
pub(super) fn beginning(from: u64) -> i64 {
    if from == 0 { i64::MIN } else { signed(from) }
}
