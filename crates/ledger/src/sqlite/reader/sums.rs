use super::{Source, calls::NOT_IN_TAIL, signed};
use crate::{
    query::{
        Counts, MAX_INDEXED, QueryError, Usage,
        statistics::{
            Bucket, DAY_US, Statistics, StatisticsQuery, Totals, day_of, first_day, month_of,
        },
    },
    record::entry::Kind,
    sqlite::{
        archive::{Of, QUARTER_US},
        index::Used,
    },
};
use rusqlite::{Connection, Row, ToSql, Transaction, params, params_from_iter};
use std::{collections::BTreeMap, ops::Range, time::Duration};

pub(super) fn count(snapshot: &Transaction<'_>) -> Result<Counts, QueryError> {
    let sql = format!(
        "SELECT
            coalesce((SELECT first_sequence + count - 1 FROM entry_group
                ORDER BY first_sequence DESC LIMIT 1), 0),
            (SELECT calls FROM indexed) + (SELECT count(*) FROM temp.tail_call
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

/// A range that is asked for in stretches of this length, and what of it is before, after and in whole days, for which there
/// are sums.
pub(crate) fn stretches(range: Range<u64>, bucket: Duration) -> (Range<u64>, i64, [Range<u64>; 3]) {
    let bucket_us = i64::try_from(bucket.as_micros()).unwrap_or(i64::MAX).max(1);
    let range = range.start..range.end.min(MAX_INDEXED + 1);
    let is_of_days = bucket_us % DAY_US as i64 == 0 || bucket_us > MAX_INDEXED as i64;
    let days = match is_of_days {
        true => range.start.div_ceil(DAY_US)..day_of(range.end),
        false => 0..0,
    };
    let parts = match days.is_empty() {
        true => [range.clone(), 0..0, 0..0],
        false => {
            let head = range.start..days.start * DAY_US;
            [head, days.end * DAY_US..range.end, days]
        }
    };
    (range, bucket_us, parts)
}

pub(super) fn usage(
    snapshot: &Transaction<'_>,
    has_archive: bool,
    range: Range<u64>,
    bucket: Duration,
) -> Result<Vec<Usage>, QueryError> {
    let (range, bucket_us, [head, tail, days]) = stretches(range, bucket);
    let columns = "principal, kind, capability, started_us AS latest_us, 1 AS calls,
        coalesce(cost_micros, estimated_cost_micros) AS cost_micros,
        iif(outcome IS NULL, estimated_cost_micros, 0) AS open_micros,
        coalesce(cost_micros, estimated_cost_micros) AS dearest_micros";
    // Of what was taken out there are no calls, but sums of whole quarters of hours.
    let carried = match has_archive {
        true => format!(
            "UNION ALL SELECT principal, kind, capability, latest_us, used_calls, used_micros, 0,
                    dearest_micros
                FROM carried_quarter WHERE (quarter * {QUARTER_US} >= ?4 AND quarter * {QUARTER_US} < ?5)
                    OR (quarter * {QUARTER_US} >= ?6 AND quarter * {QUARTER_US} < ?7)"
        ),
        false => String::new(),
    };
    let sql = format!(
        "SELECT principal, kind, capability, max(latest_us), sum(calls), sum(cost_micros),
            sum(open_micros), max(dearest_micros)
         FROM (SELECT {columns} FROM temp.tail_call
                WHERE coalesce(outcome, '') <> 'denied' AND started_us >= ?1 AND started_us < ?2
            UNION ALL SELECT {columns} FROM call INDEXED BY call_open
                WHERE outcome IS NULL AND started_us >= ?1 AND started_us < ?2 AND {NOT_IN_TAIL}
            UNION ALL SELECT {columns} FROM call INDEXED BY call_by_time
                WHERE outcome <> 'denied' AND started_us >= ?4 AND started_us < ?5
            UNION ALL SELECT {columns} FROM call INDEXED BY call_by_time
                WHERE outcome <> 'denied' AND started_us >= ?6 AND started_us < ?7
            UNION ALL SELECT principal, kind, capability, latest_us, used_calls, used_micros, 0,
                    dearest_micros
                FROM usage_day WHERE day >= ?8 AND day < ?9 AND used_calls > 0
            {carried})
         GROUP BY principal, kind, capability, latest_us / ?3
         ORDER BY principal, kind, capability, latest_us / ?3"
    );
    let mut select = snapshot.prepare_cached(&sql)?;
    let values = [
        signed(range.start),
        signed(range.end),
        bucket_us,
        signed(head.start),
        signed(head.end),
        signed(tail.start),
        signed(tail.end),
        signed(days.start),
        signed(days.end),
    ];
    let rows = select.query_map(values, |row| {
        Ok(Usage {
            principal: row.get(0)?,
            kind: kind(row.get_ref(1)?.as_str()?),
            capability: row.get(2)?,
            latest_us: row.get::<_, i64>(3)?.unsigned_abs(),
            calls: row.get::<_, i64>(4)?.unsigned_abs(),
            cost_micros: row.get::<_, i64>(5)?.unsigned_abs(),
            open_micros: row.get::<_, i64>(6)?.unsigned_abs(),
            dearest_micros: row.get::<_, i64>(7)?.unsigned_abs(),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Subject of a row of statistics: principal, kind, capability and the beginning of its stretch.
type Key = (String, String, String, u64);

/// Adds up calls by what was asked for.
pub(crate) struct Sums<'a> {
    query: &'a StatisticsQuery<'a>,
    tallies: BTreeMap<Key, Totals>,
}

impl<'a> Sums<'a> {
    pub(crate) fn new(query: &'a StatisticsQuery<'a>) -> Self {
        Self {
            query,
            tallies: BTreeMap::new(),
        }
    }

    /// The tally for this principal, kind and capability at a time.
    pub(crate) fn tally(&mut self, (principal, kind, capability): Of, at_us: u64) -> &mut Totals {
        let since_us = match self.query.bucket {
            Bucket::Day => day_of(at_us) * DAY_US,
            Bucket::Whole => self.query.since_us,
        };
        let key = (principal, kind, capability, since_us);
        self.tallies.entry(key).or_default()
    }

    /// The tally for the principal, kind and capability in the first columns, and this time.
    fn of(&mut self, row: &Row<'_>, at_us: u64) -> rusqlite::Result<&mut Totals> {
        let of = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(self.tally(of, at_us))
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

    /// Adds the sums of whole days: in months, where the query does not ask for days.
    fn add_days(&mut self, snapshot: &Transaction<'_>, days: Range<u64>) -> Result<(), QueryError> {
        let end = month_of(days.end);
        let months = match month_of(days.start) {
            first if first_day(first) == days.start => first..end,
            begun => begun + 1..end,
        };
        if self.query.bucket == Bucket::Day || months.is_empty() {
            return self.add_stored(snapshot, "usage_day", "day", days);
        }
        let folded: i64 = snapshot.query_row("SELECT folded FROM indexed", [], |row| row.get(0))?;
        let whole = first_day(months.start)..first_day(months.end);
        let unfolded = whole.start.max(folded.unsigned_abs())..whole.end;
        self.add_stored(snapshot, "usage_day", "day", days.start..whole.start)?;
        self.add_stored(snapshot, "usage_month", "month", months)?;
        self.add_stored(snapshot, "usage_day", "day", unfolded)?;
        self.add_stored(snapshot, "usage_day", "day", whole.end..days.end)
    }

    /// Adds the rows of a table of sums.
    fn add_stored(
        &mut self,
        snapshot: &Transaction<'_>,
        table: &str,
        stretch: &str,
        range: Range<u64>,
    ) -> Result<(), QueryError> {
        let mut values: Vec<Box<dyn ToSql>> =
            vec![Box::new(signed(range.start)), Box::new(signed(range.end))];
        let condition = self.condition(&mut values);
        let sql = format!(
            "SELECT principal, kind, capability, {stretch}, tally FROM {table}
             WHERE {stretch} >= ? AND {stretch} < ?{condition}"
        );
        let mut select = snapshot.prepare_cached(&sql)?;
        let mut rows = select.query(params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?;
            let stored = Totals::decode(bytes).ok_or_else(damaged)?;
            // Where there is one stretch only, it does not matter where in it this is.
            let begins = row.get::<_, i64>(3)?.unsigned_abs();
            self.of(row, begins.saturating_mul(DAY_US))?.merge(&stored);
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

impl Sums<'_> {
    /// The days that the query has whole, of which sums are stored, and what is before and after them.
    pub(crate) fn stretches(&self) -> (Range<u64>, [Range<u64>; 2]) {
        let (since, until) = (
            self.query.since_us,
            self.query.until_us.min(MAX_INDEXED + 1),
        );
        let days = since.div_ceil(DAY_US)..day_of(until);
        match days.is_empty() {
            true => (0..0, [since..until, 0..0]),
            false => {
                let edges = [since..days.start * DAY_US, days.end * DAY_US..until];
                (days, edges)
            }
        }
    }

    /// The times of which calls are added one by one: segments have those that the ledger has no more.
    pub(super) fn edges(&self) -> [Range<u64>; 2] {
        self.stretches().1
    }

    /// Adds the calls of a ledger, and the sums of whole days, which have those of its segments, too.
    pub(super) fn add_ledger(&mut self, snapshot: &Transaction<'_>) -> Result<(), QueryError> {
        let query = self.query;
        let (days, _) = self.stretches();
        self.add_edges(snapshot, Source::Ledger { archived: 0 })?;
        if !days.is_empty() {
            self.add_days(snapshot, days)?;
        }
        // Sums have what the ledger has indexed and what has ended.
        let all = query.since_us..query.until_us.min(MAX_INDEXED + 1);
        let open = format!("call INDEXED BY call_open WHERE outcome IS NULL AND {NOT_IN_TAIL}");
        self.add_calls(snapshot, &open, all.clone())?;
        self.add_calls(snapshot, "temp.tail_call WHERE true", all)
    }

    /// Adds the calls that have ended in no whole day of the query.
    pub(super) fn add_edges(
        &mut self,
        snapshot: &Transaction<'_>,
        source: Source,
    ) -> Result<(), QueryError> {
        let by = match (self.query.principal, self.query.capability) {
            (Some(_), _) => "call_by_principal",
            (None, Some(_)) => "call_by_capability",
            (None, None) => "call_by_time",
        };
        let owned = source.owns("end_sequence");
        let ended = format!("call INDEXED BY {by} WHERE outcome IS NOT NULL{owned}");
        for edge in self.edges() {
            if !edge.is_empty() {
                self.add_calls(snapshot, &ended, edge)?;
            }
        }
        Ok(())
    }

    pub(crate) fn into_rows(self) -> Vec<Statistics> {
        let rows = self.tallies.into_iter();
        rows.map(
            |((principal, kind_name, capability, since_us), tally)| Statistics {
                principal,
                kind: kind(&kind_name),
                capability,
                since_us,
                tally,
            },
        )
        .collect()
    }
}

/// Compares sums with what they sum up, a day at a time: both are read in one transaction, for a
/// server changes them in one.
pub(super) fn differing(
    connection: &mut Connection,
    has_archive: bool,
) -> Result<Option<&'static str>, QueryError> {
    let beyond = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM main.call
            WHERE (SELECT through FROM main.indexed) < start_sequence)",
        [],
        |row| row.get(0),
    )?;
    let gone = match has_archive {
        true => "(SELECT calls FROM main.archived)",
        false => "0",
    };
    let miscounted = connection.query_row(
        &format!("SELECT calls <> (SELECT count(*) FROM main.call) + {gone} FROM main.indexed"),
        [],
        |row| row.get(0),
    )?;
    if beyond || miscounted {
        return Ok(Some("indexed"));
    }
    let mut day = Some(i64::MIN);
    while let Some(after) = day {
        let snapshot = connection.transaction()?;
        day = next_day(&snapshot, after)?;
        if let Some(day) = day
            && !day_agrees(&snapshot, has_archive, day)?
        {
            return Ok(Some("usage_day"));
        }
    }
    let mut month = Some(i64::MIN);
    while let Some(after) = month {
        let snapshot = connection.transaction()?;
        month = next_month(&snapshot, after)?;
        if let Some(month) = month
            && !month_agrees(&snapshot, month)?
        {
            return Ok(Some("usage_month"));
        }
    }
    Ok(None)
}

/// The first month after this one that something is known of.
fn next_month(snapshot: &Transaction<'_>, after: i64) -> Result<Option<i64>, QueryError> {
    let next = u64::try_from(after).map_or(0, |after| first_day(after.saturating_add(1)));
    let (summed, day): (Option<i64>, Option<i64>) = snapshot.query_row(
        "SELECT (SELECT min(month) FROM main.usage_month WHERE month > ?1),
            (SELECT min(day) FROM main.usage_day
                WHERE day >= ?2 AND day < (SELECT folded FROM main.indexed))",
        [after, signed(next)],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let called = day.map(|day| signed(month_of(day.unsigned_abs())));
    Ok([called, summed].into_iter().flatten().min())
}

/// Returns true if a month is the sum of its days, as far as they have been added to it.
fn month_agrees(snapshot: &Transaction<'_>, month: i64) -> Result<bool, QueryError> {
    // Nothing begins before the epoch, and no time that is indexed is in a later month.
    let last = month_of(day_of(MAX_INDEXED));
    let Some(known) = u64::try_from(month).ok().filter(|&month| month <= last) else {
        return Ok(false);
    };
    let mut select = snapshot.prepare_cached(
        "SELECT principal, kind, capability, tally FROM main.usage_month WHERE month = ?1
         ORDER BY principal, kind, capability",
    )?;
    let mut stored = select.query([month])?;
    let mut select = snapshot.prepare_cached(
        "SELECT principal, kind, capability, tally FROM main.usage_day
         WHERE day >= ?1 AND day < min(?2, (SELECT folded FROM main.indexed))
         ORDER BY principal, kind, capability",
    )?;
    let mut days = select.query([signed(first_day(known)), signed(first_day(known + 1))])?;
    let mut day = days.next()?;
    while let Some(row) = stored.next()? {
        let mut sum: Option<Totals> = None;
        while let Some(of_day) = day {
            let same = (0..3).try_fold(true, |same, index| {
                Ok::<_, QueryError>(same && of_day.get_ref(index)? == row.get_ref(index)?)
            })?;
            if !same {
                break;
            }
            let bytes = of_day
                .get_ref(3)?
                .as_blob()
                .map_err(rusqlite::Error::from)?;
            let Some(tally) = Totals::decode(bytes) else {
                return Ok(false);
            };
            sum.get_or_insert_default().merge(&tally);
            day = days.next()?;
        }
        if sum.map(|sum| sum.encode()).as_deref() != row.get_ref(3)?.as_blob().ok() {
            return Ok(false);
        }
    }
    Ok(day.is_none())
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

/// The sums of what was taken out, of this day.
pub(crate) type OfDay = BTreeMap<Of, (Totals, Used)>;

/// The use of what was taken out, by quarters of an hour.
pub(crate) type OfQuarters = BTreeMap<(i64, Of), Used>;

/// Reads the use by quarters that the ledger has kept.
pub(super) fn stored_quarters(snapshot: &Connection) -> rusqlite::Result<OfQuarters> {
    let mut select = snapshot.prepare_cached(
        "SELECT quarter, principal, kind, capability, latest_us, used_calls, used_micros, dearest_micros
         FROM main.carried_quarter",
    )?;
    let rows = select.query_map([], |row| {
        let of = (row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(((row.get(0)?, of), Used::of_row(row, 4)?))
    })?;
    rows.collect()
}

/// Adds the use by calls of a segment that began from this time on and ended at this entry or before.
pub(super) fn add_quarters(
    segment: &Connection,
    from_us: u64,
    through: u64,
    quarters: &mut OfQuarters,
) -> rusqlite::Result<()> {
    let mut select = segment.prepare_cached(
        "SELECT principal, kind, capability, started_us, outcome, cost_micros FROM call
         WHERE started_us >= ?1 AND end_sequence <= ?2",
    )?;
    let mut rows = select.query([signed(from_us), signed(through)])?;
    while let Some(row) = rows.next()? {
        let started_us = row.get::<_, i64>(3)?.unsigned_abs();
        let outcome: Option<String> = row.get(4)?;
        let cost: Option<i64> = row.get(5)?;
        let mut used = Used::default();
        used.add_ended(
            started_us,
            &outcome.unwrap_or_default(),
            cost.unwrap_or(0).unsigned_abs(),
        );
        if used.calls != 0 {
            let of = (row.get(0)?, row.get(1)?, row.get(2)?);
            let key = ((started_us / QUARTER_US) as i64, of);
            quarters.entry(key).or_default().add(used);
        }
    }
    Ok(())
}

/// Reads sums of a day from a table that has them as the index has; `None` if one cannot be read.
pub(super) fn of_day(
    snapshot: &Connection,
    table: &str,
    day: i64,
) -> Result<Option<OfDay>, QueryError> {
    let mut select = snapshot.prepare_cached(&format!(
        "SELECT principal, kind, capability, latest_us, used_calls, used_micros, dearest_micros, tally
         FROM main.{table} WHERE day = ?1"
    ))?;
    let mut rows = select.query([day])?;
    let mut sums = OfDay::new();
    while let Some(row) = rows.next()? {
        let tally = row.get_ref(7)?.as_blob().map_err(rusqlite::Error::from)?;
        let Some(tally) = Totals::decode(tally) else {
            return Ok(None);
        };
        let of = (row.get(0)?, row.get(1)?, row.get(2)?);
        sums.insert(of, (tally, Used::of_row(row, 3)?));
    }
    Ok(Some(sums))
}

/// Adds the calls of a segment that ended at this entry or before, of this day.
pub(super) fn add_calls_of_day(
    snapshot: &Connection,
    day: i64,
    through: u64,
    sums: &mut OfDay,
) -> Result<(), QueryError> {
    let mut select = snapshot.prepare_cached(
        "SELECT principal, kind, capability, started_us, outcome, reason, cost_micros, duration_us
         FROM call WHERE started_us >= ?1 AND started_us < ?2 AND end_sequence <= ?3",
    )?;
    let from_us = day.saturating_mul(DAY_US as i64);
    let until_us = from_us.saturating_add(DAY_US as i64);
    let mut rows = select.query([from_us, until_us, signed(through)])?;
    while let Some(row) = rows.next()? {
        let number =
            |index| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.unwrap_or(0) as u64);
        let outcome: Option<String> = row.get(4)?;
        let (outcome, reason) = (
            outcome.unwrap_or_default(),
            row.get::<_, Option<String>>(5)?,
        );
        let of = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (tally, used) = sums.entry(of).or_default();
        tally.add_ended(&outcome, reason.as_deref(), number(6)?, number(7)?);
        used.add_ended(number(3)?, &outcome, number(6)?);
    }
    Ok(())
}

fn day_agrees(snapshot: &Transaction<'_>, has_archive: bool, day: i64) -> Result<bool, QueryError> {
    let mut carried = match has_archive {
        true => match of_day(snapshot, "carried_day", day)? {
            Some(carried) => carried,
            None => return Ok(false),
        },
        false => OfDay::new(),
    };
    let mut select = snapshot.prepare_cached(
        "SELECT principal, kind, capability, tally, latest_us, used_calls, used_micros,
            dearest_micros FROM main.usage_day WHERE day = ?1 ORDER BY principal, kind, capability",
    )?;
    let mut stored = select.query([day])?;
    // Takes the next sum that is stored, and tells whether it is this one.
    let mut is_next = |key: &Of, (tally, used): &(Totals, Used)| {
        Ok::<_, QueryError>(match stored.next()? {
            None => false,
            Some(row) => {
                row.get_ref(0)?.as_str() == Ok(&key.0)
                    && row.get_ref(1)?.as_str() == Ok(&key.1)
                    && row.get_ref(2)?.as_str() == Ok(&key.2)
                    && row.get_ref(3)?.as_blob() == Ok(&tally.encode())
                    && row.get_ref(4)?.as_i64() == Ok(used.latest_us)
                    && row.get_ref(5)?.as_i64() == Ok(used.calls)
                    && row.get_ref(6)?.as_i64() == Ok(used.cost_micros)
                    && row.get_ref(7)?.as_i64() == Ok(used.dearest_micros)
            }
        })
    };
    let mut select = snapshot.prepare_cached(
        "SELECT principal, kind, capability, outcome, reason, cost_micros, duration_us, started_us
         FROM main.call WHERE started_us >= ?1 AND started_us < ?2 AND outcome IS NOT NULL
         ORDER BY principal, kind, capability",
    )?;
    let from_us = day.saturating_mul(DAY_US as i64);
    let mut rows = select.query(params![from_us, from_us.saturating_add(DAY_US as i64)])?;
    let mut sum: Option<(Of, (Totals, Used))> = None;
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
            let key: Of = (row.get(0)?, row.get(1)?, row.get(2)?);
            if let Some((key, sums)) = sum.take()
                && !is_next(&key, &sums)?
            {
                return Ok(false);
            }
            // Sums of what has no calls any more come in the same order.
            while let Some(of) = carried.first_entry().filter(|of| *of.key() < key) {
                let (of, sums) = of.remove_entry();
                if !is_next(&of, &sums)? {
                    return Ok(false);
                }
            }
            let begun = carried.remove(&key).unwrap_or_default();
            sum = Some((key, begun));
        }
        if let Some((_, (tally, used))) = &mut sum {
            let reason: Option<String> = row.get(4)?;
            tally.add_ended(text(3)?, reason.as_deref(), number(5)?, number(6)?);
            used.add_ended(number(7)?, text(3)?, number(5)?);
        }
    }
    for (key, sums) in sum.into_iter().chain(carried) {
        if !is_next(&key, &sums)? {
            return Ok(false);
        }
    }
    Ok(stored.next()?.is_none())
}

fn damaged() -> QueryError {
    QueryError::Damaged(crate::record::codec::DecodeError::Unknown)
}

fn kind(name: &str) -> Kind {
    [Kind::Tool, Kind::Resource]
        .into_iter()
        .find(|kind| kind.as_str() == name)
        .unwrap_or(Kind::Other)
}
