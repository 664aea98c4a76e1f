use super::{
    IndexError, Target,
    sums::{Sums, add_up},
};
use crate::query::MAX_INDEXED;
use crate::record::{
    codec,
    entry::{Ended, Event, Started},
    id::CallId,
    note::Noted,
};
use rusqlite::{Connection, OptionalExtension, Statement, ToSql, params};

/// Place of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) sequence: i64,
    pub(super) group: i64,
    pub(super) offset: i64,
    pub(super) length: i64,
}

/// A call whose start is new.
#[derive(Debug)]
struct Begun {
    call: CallId,
    started: Started,
    place: Place,
    end: Option<(Ended, Place)>,
}

impl Begun {
    /// Binds its row to the parameters of `insert` behind those of the rows before.
    fn bind(&self, insert: &mut Statement<'_>, columns_before: usize) -> rusqlite::Result<()> {
        let Self { started, place, .. } = self;
        let ended = self.end.as_ref().map(|(ended, _)| ended);
        let end_place = self.end.as_ref().map(|(_, place)| place);
        let row: [&dyn ToSql; COLUMNS] = [
            &place.sequence,
            self.call.0.as_bytes(),
            &bounded(started.at_us),
            &started.principal,
            &started.kind.as_str(),
            &started.capability,
            &started.request_id,
            &started.trace_id,
            &started.approval.map(|approval| approval.to_string()),
            &bounded(started.estimated_cost_micros),
            &place.group,
            &place.offset,
            &place.length,
            &end_place.map(|place| place.sequence),
            &ended.map(|ended| ended.outcome.as_str()),
            &ended.and_then(Ended::reason),
            &ended.map(|ended| bounded(ended.cost_micros)),
            &ended.map(|ended| bounded(ended.duration_us)),
            &end_place.map(|place| place.group),
            &end_place.map(|place| place.offset),
            &end_place.map(|place| place.length),
        ];
        (columns_before + 1..)
            .zip(row)
            .try_for_each(|(at, value)| insert.raw_bind_parameter(at, value))
    }
}

/// Calls of which something new is known. Most begin and end close to each other and make one row.
#[derive(Debug, Default)]
pub(super) struct Rows {
    begun: Vec<Begun>,
    positions: foldhash::HashMap<CallId, usize>,
    ended: Vec<(CallId, Ended, Place)>,
    noted: Vec<(Noted, Place)>,
}

impl Rows {
    pub(super) fn count(&self) -> usize {
        self.begun.len() + self.ended.len() + self.noted.len()
    }

    /// Adds the entries of a group, which begins at this sequence; tells the last one.
    pub(super) fn add_group(&mut self, first: i64, body: &[u8]) -> Result<i64, IndexError> {
        let mut last = first.saturating_sub(1);
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
            self.add(call, event, place);
            last = sequence;
        }
        Ok(last)
    }

    pub(super) fn add(&mut self, call: CallId, event: Event, place: Place) {
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
            Event::Noted(noted) => self.noted.push((noted, place)),
        }
    }

    pub(super) fn write(self, connection: &Connection, target: Target) -> rusqlite::Result<()> {
        let (table, update, note) = match target {
            Target::Ledger => ("call", UPDATE, INSERT_NOTE),
            Target::Tail => ("temp.tail_call", UPDATE_TAIL, INSERT_TAIL_NOTE),
        };
        let mut note = connection.prepare_cached(note)?;
        for (noted, place) in self.noted {
            note.execute(params![
                place.sequence,
                bounded(noted.at_us),
                noted.kind.as_str(),
                noted.actor,
                noted.subject,
                place.group,
                place.offset,
                place.length,
            ])?;
        }
        let mut sums = Sums::default();
        let begun = self.begun.len();
        let (many, few) = self.begun.as_chunks::<MANY>();
        if !many.is_empty() {
            let mut insert = connection.prepare_cached(&insert_into(table, MANY))?;
            for rows in many {
                insert_rows(&mut insert, rows)?;
            }
        }
        let mut insert = connection.prepare_cached(&insert_into(table, 1))?;
        for row in few {
            insert_rows(&mut insert, std::slice::from_ref(row))?;
        }
        for Begun { started, end, .. } in self.begun {
            if let Some((ended, _)) = &end {
                let started_us = started.at_us.min(MAX_INDEXED);
                let kind = started.kind.as_str().to_owned();
                let of = (started.principal, kind, started.capability);
                sums.add(started_us, of, ended);
            }
        }
        let mut update = connection.prepare_cached(update)?;
        for (call, ended, place) in self.ended {
            if target == Target::Tail {
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
                        ended.reason(),
                        bounded(ended.cost_micros),
                        bounded(ended.duration_us),
                        place.group,
                        place.offset,
                        place.length,
                    ],
                    |row| {
                        let started_us: i64 = row.get(0)?;
                        let of = (row.get(1)?, row.get(2)?, row.get(3)?);
                        Ok((started_us.unsigned_abs(), of))
                    },
                )
                .optional()?;
            match updated {
                Some((started_us, of)) => sums.add(started_us, of, &ended),
                None => tracing::warn!(call = %call, "the ledger has an end without a start"),
            }
        }
        match target {
            Target::Ledger => {
                connection
                    .prepare_cached("UPDATE indexed SET calls = calls + ?1")?
                    .execute([begun as i64])?;
                add_up(connection, sums)
            }
            // Readers sum up their few rows when they are asked.
            Target::Tail => Ok(()),
        }
    }
}

/// The columns of a row of a call.
const COLUMNS: usize = 21;

/// Rows that are inserted at once, where there are as many. The table and its six indexes are opened once for all of
/// them, and each row is looked for from where the one before was put.
const MANY: usize = 32;

fn insert_into(table: &str, rows: usize) -> String {
    let row = format!("({})", ["?"; COLUMNS].join(", "));
    format!("INSERT INTO {table} VALUES {}", vec![row; rows].join(", "))
}

/// Inserts as many rows as `insert` has.
fn insert_rows(insert: &mut Statement<'_>, rows: &[Begun]) -> rusqlite::Result<()> {
    for (row, columns_before) in rows.iter().zip((0..).step_by(COLUMNS)) {
        row.bind(insert, columns_before)?;
    }
    insert.raw_execute().map(drop)
}

const INSERT_NOTE: &str = "INSERT INTO note VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

const INSERT_TAIL_NOTE: &str = "INSERT INTO temp.tail_note VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

const UPDATE: &str = "UPDATE call SET end_sequence = ?2, outcome = ?3, reason = ?4,
    cost_micros = ?5, duration_us = ?6, end_group = ?7, end_offset = ?8, end_length = ?9
    WHERE call = ?1 AND outcome IS NULL RETURNING started_us, principal, kind, capability";

const UPDATE_TAIL: &str = "UPDATE temp.tail_call SET end_sequence = ?2, outcome = ?3, reason = ?4,
    cost_micros = ?5, duration_us = ?6, end_group = ?7, end_offset = ?8, end_length = ?9
    WHERE call = ?1 AND outcome IS NULL RETURNING started_us, principal, kind, capability";

const COPY_TO_TAIL: &str = "INSERT OR IGNORE INTO temp.tail_call
    SELECT * FROM main.call WHERE call = ?1 AND outcome IS NULL";

fn bounded(number: u64) -> i64 {
    i64::try_from(number.min(MAX_INDEXED)).expect("the bound fits")
}
