//! The ledger and its index from one end to the other, as verification reads them.

use super::super::{
    rows::{self, digest, signed},
    session::Session,
    text::{restored, stored},
};
use crate::{
    query::{
        ApprovalRow, EndCopies, Extent, IndexedCall, IndexedEnd, IndexedNote, KeyHeld,
        MAX_PAGE_BYTES, MAX_PAGE_ROWS, Place, QueryError, StoredGroup,
    },
    record::{approval::ApprovalId, entry::Digest, id::CallId, kept},
};
use std::ops::Range;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

/// The most groups in a page.
const MAX_PAGE_GROUPS: i64 = 4096;

pub(super) async fn extent(session: &mut Session) -> Result<Extent, QueryError> {
    let row = session
        .query_opt(
            "SELECT coalesce((SELECT first_sequence + count - 1 FROM owlclaw_ledger.entry_group
                ORDER BY first_sequence DESC LIMIT 1), 0),
                coalesce((SELECT through FROM owlclaw_ledger.indexed), 0)",
            &[],
        )
        .await?;
    let Some(row) = row else {
        return Ok(Extent::default());
    };
    Ok(Extent {
        last_sequence: number(&row, 0)?,
        indexed_through: number(&row, 1)?,
    })
}

pub(in crate::postgres) async fn groups(
    session: &mut Session,
    from: u64,
) -> Result<Vec<StoredGroup>, QueryError> {
    let max_bytes = i64::try_from(MAX_PAGE_BYTES).unwrap_or(i64::MAX);
    let rows = session
        .query(
            "SELECT first_sequence, count, hash, body FROM owlclaw_ledger.entry_group
             WHERE first_sequence IN (
                SELECT first_sequence FROM (
                    SELECT first_sequence, row_number() OVER page AS number,
                        sum(octet_length(body)) OVER page AS bytes
                    FROM (SELECT first_sequence, body FROM owlclaw_ledger.entry_group
                        WHERE first_sequence >= $1 ORDER BY first_sequence LIMIT $2) AS next
                    WINDOW page AS (ORDER BY first_sequence)) AS numbered
                WHERE number = 1 OR bytes <= $3)
             ORDER BY first_sequence",
            &[&beginning(from), &MAX_PAGE_GROUPS, &max_bytes],
        )
        .await?;
    let group = |row: &Row| {
        Ok(StoredGroup {
            first_sequence: number(row, 0)?,
            count: number(row, 1)?,
            hash: digest(row.try_get(2)?),
            body: row.try_get(3)?,
        })
    };
    rows.iter().map(group).collect()
}

pub(super) async fn hash_after(
    session: &mut Session,
    sequence: u64,
) -> Result<Option<Digest>, QueryError> {
    let row = session
        .query_opt(
            "SELECT first_sequence + count - 1, hash FROM owlclaw_ledger.entry_group
             WHERE first_sequence <= $1 ORDER BY first_sequence DESC LIMIT 1",
            &[&signed(sequence)],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let hash: &[u8] = row.try_get(1)?;
    Ok((number(&row, 0)? == sequence)
        .then(|| hash.try_into().ok())
        .flatten())
}

/// Hashes of the groups that end with these entries, in the same order.
pub(super) async fn hashes_after(
    session: &mut Session,
    sequences: &[u64],
) -> Result<Vec<Option<Digest>>, QueryError> {
    let sequences: Vec<i64> = sequences.iter().copied().map(signed).collect();
    let rows = session
        .query(
            "SELECT found.hash FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted (sequence, place)
             LEFT JOIN LATERAL (
                SELECT first_sequence + count - 1 AS last, hash FROM owlclaw_ledger.entry_group
                WHERE first_sequence <= wanted.sequence ORDER BY first_sequence DESC LIMIT 1
             ) AS found ON found.last = wanted.sequence
             ORDER BY wanted.place",
            &[&sequences],
        )
        .await?;
    let hash = |row: &Row| {
        let hash: Option<&[u8]> = row.try_get(0)?;
        Ok(hash.and_then(|hash| hash.try_into().ok()))
    };
    rows.iter().map(hash).collect()
}

pub(super) async fn indexed_calls(
    session: &mut Session,
    from: u64,
) -> Result<Vec<IndexedCall>, QueryError> {
    let max_rows = i64::try_from(MAX_PAGE_ROWS).unwrap_or(i64::MAX);
    let rows = session
        .query(
            "SELECT * FROM owlclaw_ledger.call WHERE start_sequence >= $1
             ORDER BY start_sequence LIMIT $2",
            &[&beginning(from), &max_rows],
        )
        .await?;
    Ok(rows.iter().map(call).collect::<Result<_, _>>()?)
}

pub(super) async fn indexed_call(
    session: &mut Session,
    id: CallId,
) -> Result<Option<IndexedCall>, QueryError> {
    let row = session
        .query_opt(
            "SELECT * FROM owlclaw_ledger.call WHERE call = $1 ORDER BY start_sequence LIMIT 1",
            &[&id.0],
        )
        .await?;
    Ok(row.as_ref().map(call).transpose()?)
}

pub(in crate::postgres) async fn indexed_notes(
    session: &mut Session,
    from: u64,
) -> Result<Vec<IndexedNote>, QueryError> {
    let max_rows = i64::try_from(MAX_PAGE_ROWS).unwrap_or(i64::MAX);
    let rows = session
        .query(
            "SELECT * FROM owlclaw_ledger.note WHERE sequence >= $1 ORDER BY sequence LIMIT $2",
            &[&beginning(from), &max_rows],
        )
        .await?;
    Ok(rows.iter().map(note).collect::<Result<_, _>>()?)
}

fn note(row: &Row) -> Result<IndexedNote, Error> {
    let text = |name| row.try_get(name).map(restored);
    Ok(IndexedNote {
        sequence: known(row, "sequence")?,
        at_us: known(row, "at_us")?,
        kind: text("kind")?,
        actor: text("actor")?,
        subject: text("subject")?,
        place: Some(place(row, ["note_group", "note_offset", "note_length"])?),
    })
}

pub(super) async fn approval_rows(
    session: &mut Session,
    after: Option<ApprovalId>,
) -> Result<Vec<ApprovalRow>, QueryError> {
    // They are large: their arguments are in them.
    let max_rows = i64::try_from(MAX_PAGE_ROWS / 16).unwrap_or(i64::MAX);
    let rows = session
        .query(
            "SELECT * FROM owlclaw_ledger.approval WHERE $1::uuid IS NULL OR id > $1
             ORDER BY id LIMIT $2",
            &[&after.map(|after| after.0), &max_rows],
        )
        .await?;
    let approval = |row: &Row| {
        Ok(ApprovalRow {
            approval: rows::approval(row)?,
            noted: row.try_get("noted")?,
        })
    };
    rows.iter().map(approval).collect()
}

/// Most idempotency keys that are read at once, with the answers that are kept.
const MAX_PAGE_KEYS: i64 = 64;

pub(super) async fn holds_key(session: &mut Session, call: CallId) -> Result<bool, QueryError> {
    let sql = "SELECT FROM owlclaw_ledger.idempotency_key WHERE call = $1";
    Ok(!session.query(sql, &[&call.0]).await?.is_empty())
}

pub(super) async fn keys_held(
    session: &mut Session,
    from: Option<(&str, &str)>,
) -> Result<Vec<KeyHeld>, QueryError> {
    let (principal, key) = from.unwrap_or_default();
    let rows = session
        .query(
            "SELECT principal, key, capability, call, state, until_us, result, digest
             FROM owlclaw_ledger.idempotency_key
             WHERE (principal, key) >= ($1, $2) ORDER BY principal, key LIMIT $3",
            &[&stored(principal), &stored(key), &MAX_PAGE_KEYS],
        )
        .await?;
    let text = |row: &Row, name| row.try_get(name).map(restored);
    // A page goes on from a text that was read: one that is not stored so would be read elsewhere.
    let exact = |row: &Row, name| -> Result<String, QueryError> {
        let kept: String = row.try_get(name)?;
        let text = restored(kept.clone());
        match stored(&text) == kept {
            true => Ok(text),
            false => Err(QueryError::Store(
                format!("the {name} {kept:?} of an idempotency key was not written by a server")
                    .into(),
            )),
        }
    };
    let result = |row: &Row| {
        let result: Option<String> = row.try_get("result")?;
        Ok::<_, QueryError>(result.map(restored))
    };
    let held = |row: &Row| {
        let digest: Vec<u8> = row.try_get("digest")?;
        Ok(KeyHeld {
            arguments: digest.try_into().unwrap_or_default(),
            principal: exact(row, "principal")?,
            key: exact(row, "key")?,
            capability: text(row, "capability")?,
            call: CallId(row.try_get("call")?),
            state: text(row, "state")?,
            until_us: row.try_get::<_, i64>("until_us")? as u64,
            kept: kept::digest(result(row)?.as_deref()),
        })
    };
    rows.iter().map(held).collect()
}

pub(in crate::postgres) fn call(row: &Row) -> Result<IndexedCall, Error> {
    let text = |name| row.try_get(name).map(restored);
    let optional = |name| Ok::<_, Error>(row.try_get::<_, Option<String>>(name)?.map(restored));
    let outcome = optional("outcome")?;
    let end = match row.try_get::<_, Option<i64>>("end_sequence")? {
        None if outcome.is_none() => None,
        sequence => Some(IndexedEnd {
            sequence: sequence.unwrap_or(-1) as u64,
            outcome: outcome.unwrap_or_default(),
            reason: optional("reason")?,
            cost_micros: known(row, "cost_micros")?,
            duration_us: known(row, "duration_us")?,
            place: Some(place(row, ["end_group", "end_offset", "end_length"])?),
            copies: Some(EndCopies {
                result: range(row, ["result_offset", "result_length"])?,
                message: optional("message")?,
                duration_rounded: known(row, "duration_rounded")?,
            }),
        }),
    };
    let approval: Option<Uuid> = row.try_get("approval")?;
    Ok(IndexedCall {
        call: CallId(row.try_get("call")?),
        sequence: known(row, "start_sequence")?,
        started_us: known(row, "started_us")?,
        principal: text("principal")?,
        kind: text("kind")?,
        capability: text("capability")?,
        request_id: text("request_id")?,
        trace_id: optional("trace_id")?,
        approval: approval.map(|approval| ApprovalId(approval).to_string()),
        estimated_cost_micros: known(row, "estimated_cost_micros")?,
        place: Some(place(row, ["start_group", "start_offset", "start_length"])?),
        arguments: Some(range(row, ["arguments_offset", "arguments_length"])?),
        end,
    })
}

/// The place that these columns name.
fn place(row: &Row, [group, offset, length]: [&str; 3]) -> Result<Place, Error> {
    Ok(Place {
        group: known(row, group)?,
        offset: small(row, offset)?,
        length: small(row, length)?,
    })
}

/// The bytes of a body that these columns name; none if they name none.
fn range(row: &Row, [offset, length]: [&str; 2]) -> Result<Range<u64>, Error> {
    let (offset, length) = (small(row, offset)?, small(row, length)?);
    Ok(offset..offset.saturating_add(length))
}

fn small(row: &Row, name: &str) -> Result<u64, Error> {
    let number: Option<i32> = row.try_get(name)?;
    Ok(i64::from(number.unwrap_or(-1)) as u64)
}

/// A number, or one that is in no ledger where there is none.
fn known(row: &Row, name: &str) -> Result<u64, Error> {
    let number: Option<i64> = row.try_get(name)?;
    Ok(number.unwrap_or(-1) as u64)
}

/// Negative numbers, which are in no ledger, become numbers that are in none either.
fn number(row: &Row, index: usize) -> Result<u64, Error> {
    row.try_get::<_, i64>(index).map(|number| number as u64)
}

/// From the beginning on, also what is before any beginning.
fn beginning(from: u64) -> i64 {
    if from == 0 { i64::MIN } else { signed(from) }
}
