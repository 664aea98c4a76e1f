use super::{calls::NOT_IN_TAIL, signed};
use crate::{
    Bucket, Counts, Kind, QueryError, Statistics, StatisticsQuery, Tally, Usage,
    index::MAX_INDEXED,
    statistics::{DAY_US, day_of},
};
use rusqlite::{Connection, Row, ToSql, Transaction, params, params_from_iter};
use std::{collections::BTreeMap, ops::Range, time::Duration};

pub(super) fn count(snapshot: &Transaction<'_>) -> Result<Counts, QueryError> {
    let sql = format!(
        "SELECT
            coalesce((SELECT first_sequence + count - 1 FROM entry_group
                ORDER BY first_sequence DESC LIMIT 1), 0),
            (SELECT count(*) FROM call) + (SELECT count(*) FROM temp.tail_call
                WHERE (SELECT through FROM indexed) < start_sequence),
            (SELECT count(*) FROM call WHERE outcome IS NULL AND {NOT_IN_TAIL})
                + (SELECT count(*) FROM temp.tail_call WHERE outcome IS NULL)"
    );
    Ok(snapshot.query_row(&sql, [], |row| {
        let number = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
        Ok(Counts {
            entries: number(0)?,
            calls: number(1)?,
            open_calls: number(2)?,
        })
    })?)
}

pub(super) fn usage(
    snapshot: &Transaction<'_>,
    range: Range<u64>,
    bucket: Duration,
) -> Result<Vec<Usage>, QueryError> {
    let columns = "principal, kind, capability, started_us, outcome, estimated_cost_micros,
        cost_micros";
    let condition = "started_us >= ?1 AND started_us < ?2
        AND (outcome IS NULL OR outcome <> 'denied')";
    let sql = format!(
        "SELECT principal, kind, capability, max(started_us), count(*),
            sum(CASE WHEN outcome IS NULL THEN estimated_cost_micros ELSE cost_micros END)
         FROM (SELECT {columns} FROM temp.tail_call WHERE {condition}
            UNION ALL SELECT {columns} FROM call WHERE {condition} AND {NOT_IN_TAIL})
         GROUP BY principal, kind, capability, started_us / ?3
         ORDER BY principal, kind, capability, started_us / ?3"
    );
    let bucket_us = i64::try_from(bucket.as_micros()).unwrap_or(i64::MAX).max(1);
    let mut select = snapshot.prepare_cached(&sql)?;
    let rows = select.query_map((signed(range.start), signed(range.end), bucket_us), |row| {
        Ok(Usage {
            principal: row.get(0)?,
            kind: kind(row.get_ref(1)?.as_str()?),
            capability: row.get(2)?,
            latest_us: row.get::<_, i64>(3)?.unsigned_abs(),
            calls: row.get::<_, i64>(4)?.unsigned_abs(),
            cost_micros: row.get::<_, i64>(5)?.unsigned_abs(),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What a row of statistics is about: principal, kind, capability and when its stretch begins.
type Key = (String, String, String, u64);

/// Adds up calls by what was asked for.
struct Sums<'a> {
    query: &'a StatisticsQuery<'a>,
    tallies: BTreeMap<Key, Tally>,
}

impl Sums<'_> {
    /// The tally for the principal, kind and capability in the first columns, and this time.
    fn of(&mut self, row: &Row<'_>, at_us: u64) -> rusqlite::Result<&mut Tally> {
        let since_us = match self.query.bucket {
            Bucket::Day => day_of(at_us) * DAY_US,
            Bucket::Whole => self.query.since_us,
        };
        let key = (row.get(0)?, row.get(1)?, row.get(2)?, since_us);
        Ok(self.tallies.entry(key).or_default())
    }

    /// Adds the calls that this selects, each by itself.
    fn add_calls(
        &mut self,
        snapshot: &Transaction<'_>,
        from: &str,
        range: Range<u64>,
    ) -> Result<(), QueryError> {
        let mut values: Vec<Box<dyn ToSql>> =
            vec![Box::new(signed(range.start)), Box::new(signed(range.end))];
        let condition = self.condition(&mut values);
        let sql = format!(
            "SELECT principal, kind, capability, started_us, outcome, reason,
                coalesce(cost_micros, estimated_cost_micros), coalesce(duration_us, 0)
             FROM {from} AND started_us >= ? AND started_us < ?{condition}"
        );
        let mut select = snapshot.prepare_cached(&sql)?;
        let mut rows = select.query(params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            let number = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
            let tally = self.of(row, number(3)?)?;
            match row.get_ref(4)?.as_str_or_null().unwrap_or_default() {
                None => tally.add_open(number(6)?),
                Some(outcome) => tally.add_ended(
                    outcome,
                    row.get_ref(5)?.as_str_or_null().unwrap_or_default(),
                    number(6)?,
                    number(7)?,
                ),
            }
        }
        Ok(())
    }

    /// Adds what has been summed up for whole days.
    fn add_days(&mut self, snapshot: &Transaction<'_>, days: Range<u64>) -> Result<(), QueryError> {
        let mut values: Vec<Box<dyn ToSql>> =
            vec![Box::new(signed(days.start)), Box::new(signed(days.end))];
        let condition = self.condition(&mut values);
        let sql = format!(
            "SELECT principal, kind, capability, day, tally FROM usage_day
             WHERE day >= ? AND day < ?{condition}"
        );
        let mut select = snapshot.prepare_cached(&sql)?;
        let mut rows = select.query(params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?;
            let stored = Tally::decode(bytes).ok_or_else(damaged)?;
            let day = row.get::<_, i64>(3)?.unsigned_abs();
            self.of(row, day.saturating_mul(DAY_US))?.merge(&stored);
        }
        Ok(())
    }

    fn condition(&self, values: &mut Vec<Box<dyn ToSql>>) -> String {
        let mut sql = String::new();
        for (column, text) in [
            ("principal", self.query.principal),
            ("capability", self.query.capability),
        ] {
            if let Some(text) = text {
                sql.push_str(&format!(" AND {column} = ?"));
                values.push(Box::new(text.to_owned()));
            }
        }
        sql
    }
}

pub(super) fn statistics(
    snapshot: &Transaction<'_>,
    query: &StatisticsQuery<'_>,
) -> Result<Vec<Statistics>, QueryError> {
    let (since, until) = (query.since_us, query.until_us.min(MAX_INDEXED + 1));
    let mut sums = Sums {
        query,
        tallies: BTreeMap::new(),
    };
    let days = since.div_ceil(DAY_US)..day_of(until);
    let by = match (query.principal, query.capability) {
        (Some(_), _) => "call_by_principal",
        (None, Some(_)) => "call_by_capability",
        (None, None) => "call_by_time",
    };
    let ended = format!("call INDEXED BY {by} WHERE outcome IS NOT NULL");
    if days.is_empty() {
        sums.add_calls(snapshot, &ended, since..until)?;
    } else {
        sums.add_calls(snapshot, &ended, since..days.start * DAY_US)?;
        sums.add_calls(snapshot, &ended, days.end * DAY_US..until)?;
        sums.add_days(snapshot, days)?;
    }
    // Sums have what the ledger has indexed and what has ended.
    let open = format!("call INDEXED BY call_open WHERE outcome IS NULL AND {NOT_IN_TAIL}");
    sums.add_calls(snapshot, &open, since..until)?;
    sums.add_calls(snapshot, "temp.tail_call WHERE true", since..until)?;
    let rows = sums.tallies.into_iter();
    Ok(rows
        .map(
            |((principal, kind_name, capability, since_us), tally)| Statistics {
                principal,
                kind: kind(&kind_name),
                capability,
                since_us,
                tally,
            },
        )
        .collect())
}

/// Compares sums with what they sum up, a day at a time: both are read in one transaction, for a
/// server changes them in one.
pub(super) fn differing(connection: &mut Connection) -> Result<Option<&'static str>, QueryError> {
    let beyond = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM main.call
            WHERE (SELECT through FROM main.indexed) < start_sequence)",
        [],
        |row| row.get(0),
    )?;
    if beyond {
        return Ok(Some("indexed"));
    }
    let mut day = Some(i64::MIN);
    while let Some(after) = day {
        let snapshot = connection.transaction()?;
        day = next_day(&snapshot, after)?;
        if let Some(day) = day
            && !day_agrees(&snapshot, day)?
        {
            return Ok(Some("usage_day"));
        }
    }
    Ok(None)
}

/// The first day after this one that something is known of.
fn next_day(snapshot: &Transaction<'_>, after: i64) -> Result<Option<i64>, QueryError> {
    let from_us = after.saturating_add(1).saturating_mul(DAY_US as i64);
    let first_us: Option<i64> = snapshot.query_row(
        "SELECT min(started_us) FROM main.call WHERE started_us >= ?1",
        [from_us],
        |row| row.get(0),
    )?;
    let summed: Option<i64> = snapshot.query_row(
        "SELECT min(day) FROM main.usage_day WHERE day > ?1",
        [after],
        |row| row.get(0),
    )?;
    let called = first_us.map(|at_us| at_us.div_euclid(DAY_US as i64));
    Ok([called, summed].into_iter().flatten().min())
}

fn day_agrees(snapshot: &Transaction<'_>, day: i64) -> Result<bool, QueryError> {
    let mut select = snapshot.prepare_cached(
        "SELECT principal, kind, capability, tally FROM main.usage_day WHERE day = ?1
         ORDER BY principal, kind, capability",
    )?;
    let mut stored = select.query([day])?;
    // Takes the next sum that is stored, and tells whether it is this one.
    let mut is_next = |key: &(String, String, String), tally: &Tally| {
        Ok::<_, QueryError>(match stored.next()? {
            None => false,
            Some(row) => {
                row.get_ref(0)?.as_str() == Ok(&key.0)
                    && row.get_ref(1)?.as_str() == Ok(&key.1)
                    && row.get_ref(2)?.as_str() == Ok(&key.2)
                    && row.get_ref(3)?.as_blob() == Ok(&tally.encode())
            }
        })
    };
    let mut select = snapshot.prepare_cached(
        "SELECT principal, kind, capability, outcome, reason, cost_micros, duration_us
         FROM main.call WHERE started_us >= ?1 AND started_us < ?2 AND outcome IS NOT NULL
         ORDER BY principal, kind, capability",
    )?;
    let from_us = day.saturating_mul(DAY_US as i64);
    let mut rows = select.query(params![from_us, from_us.saturating_add(DAY_US as i64)])?;
    let mut sum: Option<((String, String, String), Tally)> = None;
    while let Some(row) = rows.next()? {
        let text = |index| row.get_ref(index)?.as_str().map_err(rusqlite::Error::from);
        let number =
            |index| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.unwrap_or(0) as u64);
        let is_same = match &sum {
            Some(((principal, kind, capability), _)) => {
                text(0)? == principal && text(1)? == kind && text(2)? == capability
            }
            None => false,
        };
        if !is_same {
            let key = (row.get(0)?, row.get(1)?, row.get(2)?);
            if let Some((key, tally)) = sum.replace((key, Tally::default()))
                && !is_next(&key, &tally)?
            {
                return Ok(false);
            }
        }
        if let Some((_, tally)) = &mut sum {
            let reason: Option<String> = row.get(4)?;
            tally.add_ended(text(3)?, reason.as_deref(), number(5)?, number(6)?);
        }
    }
    if let Some((key, tally)) = sum
        && !is_next(&key, &tally)?
    {
        return Ok(false);
    }
    Ok(stored.next()?.is_none())
}

fn damaged() -> QueryError {
    QueryError::Damaged(crate::DecodeError::Unknown)
}

fn kind(name: &str) -> Kind {
    [Kind::Tool, Kind::Resource]
        .into_iter()
        .find(|kind| kind.as_str() == name)
        .unwrap_or(Kind::Other)
}
