//! Finding calls in groups: the rows that make a ledger quick to ask.
//!
//! They are made after the groups, by whichever node, or reader, has the time, and can be made anew
//! from them.

use super::{
    migrations,
    rows::signed,
    session::{Session, SessionError},
    text::stored,
};
use crate::{
    fault::Fault,
    query::{MAX_INDEXED, statistics::rounded},
    record::{
        codec::{self, DecodeError},
        entry::{Ended, Event, Outcome, Started},
        id::CallId,
        note::Noted,
    },
};
use std::{collections::HashMap, error::Error as StdError};
use tokio_postgres::{Error, error::SqlState};
use uuid::Uuid;

/// The most groups that are looked at together.
const MAX_GROUPS: i64 = 1024;

/// The most bytes of groups that are read together, unless the first alone is larger.
const MAX_BYTES: i64 = 4 * 1024 * 1024;

/// Reason why groups cannot be indexed.
#[derive(Debug, thiserror::Error)]
pub(super) enum IndexError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("the entry {sequence} of the ledger is damaged")]
    Damaged {
        sequence: i64,
        #[source]
        source: DecodeError,
    },
    /// There is nothing to index where the tables say that there is, or it is indexed already.
    #[error("the ledger cannot be indexed: {0}")]
    Unsound(Fault),
}

impl From<Error> for IndexError {
    fn from(error: Error) -> Self {
        Self::Session(error.into())
    }
}

impl IndexError {
    pub(super) fn boxed(self) -> Box<dyn StdError + Send + Sync> {
        match self {
            Self::Session(error) => Box::new(error),
            other => Box::new(other),
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Session(error) if error.state() == Some(&SqlState::UNIQUE_VIOLATION))
    }
}

/// Returns true if there is anything to index.
pub(super) async fn is_behind(session: &mut Session) -> Result<bool, Error> {
    let row = session
        .query_opt(
            "SELECT indexed.through < tail.next_sequence - 1
             FROM owlclaw_ledger.indexed, owlclaw_ledger.tail",
            &[],
        )
        .await?;
    row.map_or(Ok(false), |row| row.try_get(0))
}

/// Indexes some more in a transaction of its own; tells whether there is more yet. After an error
/// the transaction is still open.
pub(super) async fn index(session: &mut Session) -> Result<bool, IndexError> {
    // What is lost with the machine is indexed again.
    session
        .run("BEGIN; SET LOCAL synchronous_commit = off")
        .await?;
    let indexed = index_here(session).await;
    if indexed.as_ref().is_err_and(IndexError::is_conflict) {
        session.run("ROLLBACK").await?;
        if let Some(fault) = migrations::fault(session).await? {
            return Err(IndexError::Unsound(fault));
        }
    }
    let more = indexed?;
    session.run("COMMIT").await?;
    Ok(more)
}

/// Indexes some more in the transaction that there is.
pub(super) async fn index_here(session: &mut Session) -> Result<bool, IndexError> {
    let sql = "SELECT through FROM owlclaw_ledger.indexed FOR UPDATE";
    let Some(row) = session.query_opt(sql, &[]).await? else {
        return Ok(false);
    };
    let mut through: i64 = row.try_get(0)?;
    let mut rows = Rows::default();
    // An index that is made anew begins after what was taken out into an archive.
    let sql = "SELECT through FROM owlclaw_ledger.archived WHERE $1 < through";
    if let Some(row) = session.query_opt(sql, &[&through]).await? {
        through = row.try_get(0)?;
        rows.add_carried(session).await?;
    }
    // As many groups as do not take too much memory.
    let last: Option<i64> = session
        .query_opt(
            "SELECT max(first_sequence) FROM (
                SELECT first_sequence, row_number() OVER page AS number,
                    sum(octet_length(body)) OVER page AS bytes
                FROM (SELECT first_sequence, body FROM owlclaw_ledger.entry_group
                    WHERE first_sequence > $1 ORDER BY first_sequence LIMIT $2) AS next
                WINDOW page AS (ORDER BY first_sequence)) AS numbered
             WHERE number = 1 OR bytes <= $3",
            &[&through, &MAX_GROUPS, &MAX_BYTES],
        )
        .await?
        .map_or(Ok(None), |row| row.try_get(0))?;
    let Some(last) = last else {
        if !rows.begun.is_empty() {
            rows.write(session).await?;
            index_ends_at(session, through).await?;
        }
        return match migrations::fault(session).await? {
            None => Ok(is_behind(session).await?),
            Some(fault) => Err(IndexError::Unsound(fault)),
        };
    };
    let groups = session
        .query(
            "SELECT first_sequence, body FROM owlclaw_ledger.entry_group
             WHERE first_sequence > $1 AND first_sequence <= $2 ORDER BY first_sequence",
            &[&through, &last],
        )
        .await?;
    for group in &groups {
        let (first, body): (i64, &[u8]) = (group.try_get(0)?, group.try_get(1)?);
        for (sequence, entry) in (first..).zip(codec::split(body)) {
            let damaged = |source| IndexError::Damaged { sequence, source };
            let (offset, bytes) = entry.map_err(damaged)?;
            let (call, event) = codec::decode(bytes).map_err(damaged)?;
            let place = Place {
                sequence,
                group: first,
                offset,
            };
            rows.add(call, event, place, bytes);
            through = sequence;
        }
    }
    rows.write(session).await?;
    index_ends_at(session, through).await?;
    Ok(is_behind(session).await?)
}

async fn index_ends_at(session: &mut Session, through: i64) -> Result<(), Error> {
    let sql = "UPDATE owlclaw_ledger.indexed SET through = $1";
    session.execute(sql, &[&through]).await?;
    Ok(())
}

/// Place of an entry.
#[derive(Clone, Copy, Debug)]
struct Place {
    sequence: i64,
    group: i64,
    offset: usize,
}

/// An end, and where it is.
#[derive(Debug)]
struct End {
    place: Place,
    length: usize,
    ended: Ended,
    result_offset: usize,
}

/// A call whose start is new.
#[derive(Debug)]
struct Begun {
    call: CallId,
    place: Place,
    length: usize,
    started: Started,
    arguments_offset: usize,
    end: Option<End>,
}

/// Calls of which something new is known. Most begin and end close to each other and make one row.
#[derive(Debug, Default)]
struct Rows {
    begun: Vec<Begun>,
    positions: HashMap<CallId, usize>,
    /// Ends of calls that began before.
    ended: HashMap<CallId, End>,
    /// Notes, where they are, and how long.
    noted: Vec<(Noted, Place, usize)>,
}

impl Rows {
    /// Adds the starts of calls that had not ended when they were taken out into an archive.
    async fn add_carried(&mut self, session: &mut Session) -> Result<(), Error> {
        let sql =
            "SELECT sequence, start_group, start_offset, entry FROM owlclaw_ledger.carried_start
            ORDER BY sequence";
        for row in session.query(sql, &[]).await? {
            let (offset, entry): (i32, &[u8]) = (row.try_get(2)?, row.try_get(3)?);
            let place = Place {
                sequence: row.try_get(0)?,
                group: row.try_get(1)?,
                offset: usize::try_from(offset).unwrap_or_default(),
            };
            // One that is damaged is missed by verification.
            if let Ok((call, event)) = codec::decode(entry) {
                self.add(call, event, place, entry);
            }
        }
        Ok(())
    }

    fn add(&mut self, call: CallId, event: Event, place: Place, entry: &[u8]) {
        match event {
            Event::Started(started) => {
                self.positions.insert(call, self.begun.len());
                self.begun.push(Begun {
                    call,
                    place,
                    length: entry.len(),
                    arguments_offset: place.offset + find(&started.arguments.text, entry),
                    started,
                    end: None,
                });
            }
            Event::Ended(ended) => {
                let end = End {
                    place,
                    length: entry.len(),
                    result_offset: place.offset + find(&ended.result.text, entry),
                    ended,
                };
                match self.positions.get(&call) {
                    Some(&position) => {
                        let known = &mut self.begun[position].end;
                        if known.as_ref().is_none_or(|known| known.gives_way_to(&end)) {
                            *known = Some(end);
                        }
                    }
                    None => {
                        let known = self.ended.get(&call);
                        if known.is_none_or(|known| known.gives_way_to(&end)) {
                            self.ended.insert(call, end);
                        }
                    }
                }
            }
            Event::Noted(noted) => self.noted.push((noted, place, entry.len())),
        }
    }

    async fn write(self, session: &mut Session) -> Result<(), Error> {
        let (begun, ended) = (self.begun, self.ended);
        if !self.noted.is_empty() {
            insert_notes(session, &self.noted).await?;
        }
        if !begun.is_empty() {
            insert(session, &begun).await?;
        }
        if !ended.is_empty() {
            let (calls, ends): (Vec<_>, Vec<_>) = ended.into_iter().unzip();
            update(session, &calls, &ends).await?;
        }
        Ok(())
    }
}

impl End {
    /// Returns true if `other` is the better end: a server that was given up may live and know its
    /// call's outcome.
    fn gives_way_to(&self, other: &Self) -> bool {
        self.ended.outcome == Outcome::Unknown && other.ended.outcome != Outcome::Unknown
    }
}

async fn insert(session: &mut Session, rows: &[Begun]) -> Result<(), Error> {
    let ends: Vec<Option<&End>> = rows.iter().map(|row| row.end.as_ref()).collect();
    let ends = Ends::of(&ends);
    let calls: Vec<Uuid> = rows.iter().map(|row| row.call.0).collect();
    let numbers = |of: fn(&Begun) -> i64| rows.iter().map(of).collect::<Vec<i64>>();
    let places =
        |of: fn(&Begun) -> usize| rows.iter().map(|row| place(of(row))).collect::<Vec<i32>>();
    let texts = |of: for<'a> fn(&'a Begun) -> &'a str| {
        rows.iter().map(|row| stored(of(row))).collect::<Vec<_>>()
    };
    let traces: Vec<_> = rows
        .iter()
        .map(|row| row.started.trace_id.as_deref().map(stored))
        .collect();
    let approvals: Vec<Option<Uuid>> = rows
        .iter()
        .map(|row| row.started.approval.map(|approval| approval.0))
        .collect();
    session
        .execute(
            "INSERT INTO owlclaw_ledger.call (start_sequence, call, started_us, principal, kind,
                capability, request_id, trace_id, approval, estimated_cost_micros, start_group,
                start_offset, start_length, arguments_offset, arguments_length, end_sequence,
                outcome, reason, cost_micros, duration_us, duration_rounded, end_group,
                end_offset, end_length, result_offset, result_length, message)
             SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::text[], $5::text[],
                $6::text[], $7::text[], $8::text[], $9::uuid[], $10::bigint[], $11::bigint[],
                $12::integer[], $13::integer[], $14::integer[], $15::integer[], $16::bigint[],
                $17::text[], $18::text[], $19::bigint[], $20::bigint[], $21::bigint[],
                $22::bigint[], $23::integer[], $24::integer[], $25::integer[], $26::integer[],
                $27::text[])",
            &[
                &numbers(|row| row.place.sequence),
                &calls,
                &numbers(|row| bounded(row.started.at_us)),
                &texts(|row| &row.started.principal),
                &texts(|row| row.started.kind.as_str()),
                &texts(|row| &row.started.capability),
                &texts(|row| &row.started.request_id),
                &traces,
                &approvals,
                &numbers(|row| bounded(row.started.estimated_cost_micros)),
                &numbers(|row| row.place.group),
                &places(|row| row.place.offset),
                &places(|row| row.length),
                &places(|row| row.arguments_offset),
                &places(|row| row.started.arguments.text.len()),
                &ends.sequences,
                &ends.outcomes,
                &ends.reasons,
                &ends.costs,
                &ends.durations,
                &ends.rounded,
                &ends.groups,
                &ends.offsets,
                &ends.lengths,
                &ends.result_offsets,
                &ends.result_lengths,
                &ends.messages,
            ],
        )
        .await?;
    Ok(())
}

async fn insert_notes(session: &mut Session, notes: &[(Noted, Place, usize)]) -> Result<(), Error> {
    let numbers = |of: fn(&Noted, Place) -> i64| {
        let numbers = notes.iter().map(|(noted, place, _)| of(noted, *place));
        numbers.collect::<Vec<_>>()
    };
    let texts = |of: for<'a> fn(&'a Noted) -> &'a str| {
        let texts = notes.iter().map(|(noted, ..)| stored(of(noted)));
        texts.collect::<Vec<_>>()
    };
    let offsets: Vec<i32> = notes.iter().map(|(_, at, _)| place(at.offset)).collect();
    let lengths: Vec<i32> = notes.iter().map(|(.., length)| place(*length)).collect();
    session
        .execute(
            "INSERT INTO owlclaw_ledger.note (sequence, at_us, kind, actor, subject, note_group,
                note_offset, note_length)
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[],
                $6::bigint[], $7::integer[], $8::integer[])",
            &[
                &numbers(|_, place| place.sequence),
                &numbers(|noted, _| bounded(noted.at_us)),
                &texts(|noted| noted.kind.as_str()),
                &texts(|noted| &noted.actor),
                &texts(|noted| &noted.subject),
                &numbers(|_, place| place.group),
                &offsets,
                &lengths,
            ],
        )
        .await?;
    Ok(())
}

async fn update(session: &mut Session, calls: &[CallId], ends: &[End]) -> Result<(), Error> {
    let calls: Vec<Uuid> = calls.iter().map(|call| call.0).collect();
    let ends: Vec<Option<&End>> = ends.iter().map(Some).collect();
    let ends = Ends::of(&ends);
    let updated = session
        .execute(
            "UPDATE owlclaw_ledger.call SET end_sequence = more.sequence, outcome = more.outcome,
                reason = more.reason, cost_micros = more.cost, duration_us = more.duration,
                duration_rounded = more.rounded, end_group = more.place_group,
                end_offset = more.place_offset, end_length = more.length,
                result_offset = more.result_offset, result_length = more.result_length,
                message = more.message
             FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[],
                $6::bigint[], $7::bigint[], $8::bigint[], $9::integer[], $10::integer[],
                $11::integer[], $12::integer[], $13::text[])
                AS more (call, sequence, outcome, reason, cost, duration, rounded, place_group,
                    place_offset, length, result_offset, result_length, message)
             WHERE call.call = more.call AND (call.outcome IS NULL
                OR (call.outcome = 'unknown' AND more.outcome <> 'unknown'))",
            &[
                &calls,
                &ends.sequences,
                &ends.outcomes,
                &ends.reasons,
                &ends.costs,
                &ends.durations,
                &ends.rounded,
                &ends.groups,
                &ends.offsets,
                &ends.lengths,
                &ends.result_offsets,
                &ends.result_lengths,
                &ends.messages,
            ],
        )
        .await?;
    if (updated as usize) < calls.len() {
        let without = calls.len() - updated as usize;
        tracing::warn!(
            ends = without,
            "the ledger has ends without a start, or second ones"
        );
    }
    Ok(())
}

/// Ends of calls, column by column.
struct Ends<'a> {
    sequences: Vec<Option<i64>>,
    outcomes: Vec<Option<&'static str>>,
    reasons: Vec<Option<std::borrow::Cow<'a, str>>>,
    costs: Vec<Option<i64>>,
    durations: Vec<Option<i64>>,
    rounded: Vec<Option<i64>>,
    groups: Vec<Option<i64>>,
    offsets: Vec<Option<i32>>,
    lengths: Vec<Option<i32>>,
    result_offsets: Vec<Option<i32>>,
    result_lengths: Vec<Option<i32>>,
    messages: Vec<Option<std::borrow::Cow<'a, str>>>,
}

impl<'a> Ends<'a> {
    fn of(ends: &[Option<&'a End>]) -> Self {
        let numbers = |of: fn(&End) -> i64| ends.iter().map(|end| end.map(of)).collect::<Vec<_>>();
        let places = |of: fn(&End) -> usize| {
            let places = ends.iter().map(|end| end.map(|end| place(of(end))));
            places.collect::<Vec<_>>()
        };
        Self {
            sequences: numbers(|end| end.place.sequence),
            outcomes: ends
                .iter()
                .map(|end| end.map(|end| end.ended.outcome.as_str()))
                .collect(),
            reasons: ends
                .iter()
                .map(|end| match end.map(|end| &end.ended.outcome) {
                    Some(Outcome::Denied { reason }) => Some(stored(reason)),
                    _ => None,
                })
                .collect(),
            costs: numbers(|end| bounded(end.ended.cost_micros)),
            durations: numbers(|end| bounded(end.ended.duration_us)),
            rounded: numbers(|end| bounded(rounded(end.ended.duration_us))),
            groups: numbers(|end| end.place.group),
            offsets: places(|end| end.place.offset),
            lengths: places(|end| end.length),
            result_offsets: places(|end| end.result_offset),
            result_lengths: places(|end| end.ended.result.text.len()),
            messages: ends
                .iter()
                .map(|end| end.and_then(|end| end.ended.message.as_deref()).map(stored))
                .collect(),
        }
    }
}

/// Index of the bytes of `text` in an entry. There may be more than one such index, and then any
/// will do.
fn find(text: &str, entry: &[u8]) -> usize {
    memchr::memmem::find(entry, text.as_bytes()).unwrap_or(0)
}

/// A place in a body: bodies are far smaller than 2 GiB.
fn place(offset: usize) -> i32 {
    i32::try_from(offset).unwrap_or(i32::MAX)
}

fn bounded(number: u64) -> i64 {
    signed(number.min(MAX_INDEXED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::statistics::Durations;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rounding_changes_no_percentile(duration_us: u64) {
            let of = |duration_us| {
                let mut durations = Durations::default();
                durations.add(duration_us, 1);
                durations
            };
            prop_assert_eq!(of(rounded(duration_us)), of(duration_us));
        }
    }
}
