//! Finding calls in groups.
//!
//! A row for each call costs more than the call itself, so rows are made when there is time, and by
//! whoever reads for what there has been no time for yet.

use crate::{
    CallId, Ended, Event, Outcome, Started,
    codec::{self, DecodeError},
};
use rusqlite::{Connection, OptionalExtension, params};
use std::{collections::HashMap, error::Error};

/// Larger numbers are indexed as this one, so that sums do not overflow; the entries have the
/// numbers as they are.
const MAX_INDEXED: u64 = 1 << 52;

/// The table that rows are written to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// `call`, in the ledger.
    Ledger,
    /// `temp.tail_call`, which belongs to a reader and has what `call` does not have yet.
    Reader,
}

/// Why groups cannot be indexed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IndexError {
    #[error("the ledger's database failed")]
    Database(#[from] rusqlite::Error),
    #[error("the entry {sequence} of the ledger is damaged")]
    Damaged {
        sequence: i64,
        #[source]
        source: DecodeError,
    },
}

impl IndexError {
    pub(crate) fn boxed(self) -> Box<dyn Error + Send + Sync> {
        match self {
            Self::Database(error) => Box::new(error),
            damaged @ Self::Damaged { .. } => Box::new(damaged),
        }
    }
}

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
struct Place {
    sequence: i64,
    group: i64,
    offset: i64,
    length: i64,
}

/// How far `call` goes.
pub(crate) fn indexed_through(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT through FROM indexed", [], |row| row.get(0))
}

/// Indexes groups after `through`, whole ones, until at least `max_entries` have been. Tells how
/// far it came and whether there is more.
pub(crate) fn index(
    connection: &Connection,
    target: Target,
    mut through: i64,
    max_entries: u64,
) -> Result<(i64, bool), IndexError> {
    let mut select = connection.prepare_cached(
        "SELECT first_sequence, body FROM entry_group WHERE first_sequence > ?1
         ORDER BY first_sequence",
    )?;
    let mut groups = select.query([through])?;
    let mut done: u64 = 0;
    let mut rows = Rows::default();
    while let Some(group) = groups.next()? {
        if max_entries <= done {
            rows.write(connection, target)?;
            return Ok((through, true));
        }
        let first: i64 = group.get(0)?;
        let body = group.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        for (sequence, entry) in (first..).zip(codec::split(body)) {
            let damaged = |source| IndexError::Damaged { sequence, source };
            let (offset, bytes) = entry.map_err(damaged)?;
            let (call, event) = codec::decode(bytes).map_err(damaged)?;
            let place = Place {
                sequence,
                group: first,
                offset: offset as i64,
                length: bytes.len() as i64,
            };
            rows.add(call, event, place);
            through = sequence;
            done += 1;
        }
        // A reader's table is made whole at one go, and must not hold all of it in memory.
        if MAX_ROWS < rows.count() {
            std::mem::take(&mut rows).write(connection, target)?;
        }
    }
    rows.write(connection, target)?;
    Ok((through, false))
}

/// Rows that are gathered before they are written.
const MAX_ROWS: usize = 4096;

/// A call whose start is new.
#[derive(Debug)]
struct Begun {
    call: CallId,
    started: Started,
    place: Place,
    end: Option<(Ended, Place)>,
}

/// Calls of which something new is known. Most begin and end close to each other and make one row.
#[derive(Debug, Default)]
struct Rows {
    begun: Vec<Begun>,
    positions: HashMap<CallId, usize>,
    ended: Vec<(CallId, Ended, Place)>,
}

impl Rows {
    fn count(&self) -> usize {
        self.begun.len() + self.ended.len()
    }

    fn add(&mut self, call: CallId, event: Event, place: Place) {
        match event {
            Event::Started(started) => {
                self.positions.insert(call, self.begun.len());
                self.begun.push(Begun {
                    call,
                    started,
                    place,
                    end: None,
                });
            }
            Event::Ended(ended) => {
                match self
                    .positions
                    .get(&call)
                    .and_then(|&position| self.begun.get_mut(position))
                {
                    Some(row) if row.end.is_none() => row.end = Some((ended, place)),
                    _ => self.ended.push((call, ended, place)),
                }
            }
        }
    }

    fn write(self, connection: &Connection, target: Target) -> rusqlite::Result<()> {
        let (insert, update) = match target {
            Target::Ledger => (INSERT, UPDATE),
            Target::Reader => (INSERT_TAIL, UPDATE_TAIL),
        };
        let mut insert = connection.prepare_cached(insert)?;
        for Begun {
            call,
            started,
            place,
            end,
        } in self.begun
        {
            let (ended, end_place) = end.unzip();
            insert.execute(params![
                place.sequence,
                call.0.as_bytes(),
                bounded(started.at_us),
                started.principal,
                started.kind.as_str(),
                started.capability,
                bounded(started.estimated_cost_micros),
                place.group,
                place.offset,
                place.length,
                end_place.map(|place| place.sequence),
                ended.as_ref().map(|ended| ended.outcome.as_str()),
                ended.as_ref().and_then(reason),
                ended.as_ref().map(|ended| bounded(ended.cost_micros)),
                ended.as_ref().map(|ended| bounded(ended.duration_us)),
                end_place.map(|place| place.group),
                end_place.map(|place| place.offset),
                end_place.map(|place| place.length),
            ])?;
        }
        let mut update = connection.prepare_cached(update)?;
        for (call, ended, place) in self.ended {
            if let Target::Reader = target {
                // Its start may be in the ledger's own index, which a reader cannot change.
                let mut copy = connection.prepare_cached(COPY_TO_TAIL)?;
                copy.execute([call.0.as_bytes()])?;
            }
            let updated = update
                .query_row(
                    params![
                        call.0.as_bytes(),
                        place.sequence,
                        ended.outcome.as_str(),
                        reason(&ended),
                        bounded(ended.cost_micros),
                        bounded(ended.duration_us),
                        place.group,
                        place.offset,
                        place.length,
                    ],
                    |_| Ok(()),
                )
                .optional()?;
            if updated.is_none() {
                tracing::warn!(call = %call, "the ledger has an end without a start");
            }
        }
        Ok(())
    }
}

const INSERT: &str = "INSERT INTO call VALUES
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

const INSERT_TAIL: &str = "INSERT INTO temp.tail_call VALUES
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

const UPDATE: &str = "UPDATE call SET end_sequence = ?2, outcome = ?3, reason = ?4,
    cost_micros = ?5, duration_us = ?6, end_group = ?7, end_offset = ?8, end_length = ?9
    WHERE call = ?1 AND outcome IS NULL RETURNING 1";

const UPDATE_TAIL: &str = "UPDATE temp.tail_call SET end_sequence = ?2, outcome = ?3, reason = ?4,
    cost_micros = ?5, duration_us = ?6, end_group = ?7, end_offset = ?8, end_length = ?9
    WHERE call = ?1 AND outcome IS NULL RETURNING 1";

const COPY_TO_TAIL: &str = "INSERT OR IGNORE INTO temp.tail_call
    SELECT * FROM main.call WHERE call = ?1 AND outcome IS NULL";

fn reason(ended: &Ended) -> Option<&str> {
    match &ended.outcome {
        Outcome::Denied { reason } => Some(reason),
        _ => None,
    }
}

fn bounded(number: u64) -> i64 {
    i64::try_from(number.min(MAX_INDEXED)).expect("the bound fits")
}
