//! Sums beside the rows of the index.

use crate::query::MAX_INDEXED;
use crate::{
    query::statistics::{Totals, day_of, month_of},
    record::entry::{Ended, Outcome},
};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;

/// Calls that are gathered before their sums are written, when all are summed up anew.
const MAX_GATHERED: usize = 65_536;

/// Principal, kind and capability.
type Of = (String, String, String);

/// Amounts to be added: by day, principal, kind and capability.
#[derive(Debug, Default)]
pub(super) struct Sums(BTreeMap<(i64, Of), (Totals, Used)>);

/// Use by calls that ended and were not refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Time at which the last of them began.
    pub(crate) latest_us: i64,
    pub(crate) calls: i64,
    pub(crate) cost_micros: i64,
    pub(crate) dearest_micros: i64,
}

impl Used {
    /// Reads it from four columns of a row, of which this is the first.
    pub(crate) fn of_row(row: &rusqlite::Row<'_>, first: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            latest_us: row.get(first)?,
            calls: row.get(first + 1)?,
            cost_micros: row.get(first + 2)?,
            dearest_micros: row.get(first + 3)?,
        })
    }

    pub(crate) fn add_ended(&mut self, started_us: u64, outcome: &str, cost_micros: u64) {
        if outcome != (Outcome::Denied { reason: "" }).as_str() {
            self.add(Self {
                latest_us: started_us as i64,
                calls: 1,
                cost_micros: cost_micros as i64,
                dearest_micros: cost_micros as i64,
            });
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.latest_us = self.latest_us.max(other.latest_us);
        self.calls = self.calls.saturating_add(other.calls);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
        self.dearest_micros = self.dearest_micros.max(other.dearest_micros);
    }
}

impl Sums {
    /// Adds a call that ended; it began at a time that is indexed as it is.
    pub(super) fn add(&mut self, started_us: u64, of: Of, ended: &Ended) {
        let (tally, used) = self.entry(started_us, of);
        let (outcome, cost_micros) = (ended.outcome.as_str(), ended.cost_micros.min(MAX_INDEXED));
        let duration_us = ended.duration_us.min(MAX_INDEXED);
        tally.add_ended(outcome, ended.reason(), cost_micros, duration_us);
        used.add_ended(started_us, outcome, cost_micros);
    }

    fn entry(&mut self, started_us: u64, of: Of) -> &mut (Totals, Used) {
        let day = day_of(started_us) as i64;
        self.0.entry((day, of)).or_default()
    }
}

/// Begins the sums with those of what was taken out into archives: `schema` has the tables of the index, still
/// without sums.
pub(super) fn begin_with_carried(connection: &Connection, schema: &str) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "INSERT INTO {schema}.usage_day SELECT * FROM main.carried_day"
    ))?;
    let last: Option<i64> =
        connection.query_row("SELECT max(day) FROM main.carried_day", [], |row| {
            row.get(0)
        })?;
    match last {
        Some(last) => fold(connection, 0, last),
        None => Ok(()),
    }
}

/// Adds to what is stored.
pub(super) fn add_up(connection: &Connection, sums: Sums) -> rusqlite::Result<()> {
    let mut select = connection.prepare_cached(
        "SELECT latest_us, used_calls, used_micros, dearest_micros, tally FROM usage_day
         WHERE day = ?1 AND principal = ?2 AND kind = ?3 AND capability = ?4",
    )?;
    let mut replace = connection.prepare_cached(
        "INSERT OR REPLACE INTO usage_day VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let folded: i64 = connection
        .prepare_cached("SELECT folded FROM indexed")?
        .query_row([], |row| row.get(0))?;
    let last = sums.0.last_key_value().map(|((day, _), _)| *day);
    for ((day, (principal, kind, capability)), (mut tally, mut used)) in sums.0 {
        if day < folded {
            add_to_month(connection, day, [&principal, &kind, &capability], &tally)?;
        }
        let stored: Option<(Used, Vec<u8>)> = select
            .query_row(params![day, principal, kind, capability], |row| {
                Ok((Used::of_row(row, 0)?, row.get(4)?))
            })
            .optional()?;
        if let Some((stored_used, stored)) = stored {
            used.add(stored_used);
            // A sum that is damaged is overwritten here and then found by verification.
            if let Some(stored) = Totals::decode(&stored) {
                tally.merge(&stored);
            }
        }
        let Used {
            latest_us,
            calls,
            cost_micros,
            dearest_micros,
        } = used;
        replace.execute(params![
            day,
            principal,
            kind,
            capability,
            latest_us,
            calls,
            cost_micros,
            dearest_micros,
            tally.encode()
        ])?;
    }
    match last {
        Some(last) if folded < last => fold(connection, folded, last),
        _ => Ok(()),
    }
}

/// Adds sums of days, of what no row of a call says.
pub(crate) fn add_days(
    connection: &Connection,
    days: BTreeMap<(i64, Of), (Totals, Used)>,
) -> rusqlite::Result<()> {
    add_up(connection, Sums(days))
}

/// Adds the days from the one to before the other to their months.
fn fold(connection: &Connection, from: i64, until: i64) -> rusqlite::Result<()> {
    let mut select = connection.prepare_cached(
        "SELECT day, principal, kind, capability, tally FROM usage_day
         WHERE day >= ?1 AND day < ?2",
    )?;
    let mut rows = select.query([from, until])?;
    while let Some(row) = rows.next()? {
        let text = |index| row.get_ref(index)?.as_str().map_err(rusqlite::Error::from);
        if let Some(tally) = Totals::decode(row.get_ref(4)?.as_blob()?) {
            add_to_month(
                connection,
                row.get(0)?,
                [text(1)?, text(2)?, text(3)?],
                &tally,
            )?;
        }
    }
    connection
        .prepare_cached("UPDATE indexed SET folded = ?1")?
        .execute([until])?;
    Ok(())
}

fn add_to_month(
    connection: &Connection,
    day: i64,
    [principal, kind, capability]: [&str; 3],
    tally: &Totals,
) -> rusqlite::Result<()> {
    let month = month_of(day.unsigned_abs()) as i64;
    let stored: Option<Vec<u8>> = connection
        .prepare_cached(
            "SELECT tally FROM usage_month
             WHERE month = ?1 AND principal = ?2 AND kind = ?3 AND capability = ?4",
        )?
        .query_row(params![month, principal, kind, capability], |row| {
            row.get(0)
        })
        .optional()?;
    let mut sum = stored
        .as_deref()
        .and_then(Totals::decode)
        .unwrap_or_default();
    sum.merge(tally);
    connection
        .prepare_cached("INSERT OR REPLACE INTO usage_month VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![month, principal, kind, capability, sum.encode()])?;
    Ok(())
}

/// Sums up the rows of calls, of which no sums are stored.
pub(crate) fn sum_up(connection: &Connection) -> rusqlite::Result<()> {
    let mut select = connection.prepare(
        "SELECT started_us, principal, kind, capability, outcome, reason, cost_micros, duration_us
         FROM call WHERE outcome IS NOT NULL",
    )?;
    let mut rows = select.query([])?;
    let (mut sums, mut gathered) = (Sums::default(), 0);
    while let Some(row) = rows.next()? {
        let number = |index| {
            let number: Option<i64> = row.get(index)?;
            Ok::<_, rusqlite::Error>(number.unwrap_or(0).unsigned_abs())
        };
        let started_us = number(0)?;
        let (outcome, reason) = (row.get_ref(4)?.as_str()?, row.get_ref(5)?.as_str_or_null()?);
        let (cost_micros, duration_us) = (number(6)?, number(7)?);
        let (tally, used) = sums.entry(started_us, (row.get(1)?, row.get(2)?, row.get(3)?));
        tally.add_ended(outcome, reason, cost_micros, duration_us);
        used.add_ended(started_us, outcome, cost_micros);
        gathered += 1;
        if MAX_GATHERED <= gathered {
            add_up(connection, std::mem::take(&mut sums))?;
            gathered = 0;
        }
    }
    add_up(connection, sums)
}
