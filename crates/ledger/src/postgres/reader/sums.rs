use super::super::{
    rows::signed,
    session::Session,
    text::{restored, stored},
};
use crate::{
    query::{
        Counts, QueryError, Usage,
        statistics::{Bucket, DAY_US, Statistics, StatisticsQuery, Totals},
    },
    record::entry::Kind,
};
use std::{collections::BTreeMap, ops::Range, time::Duration};
use tokio_postgres::{Error, Row};

pub(super) async fn count(session: &mut Session) -> Result<Counts, QueryError> {
    let row = session
        .query_opt(
            "SELECT coalesce((SELECT first_sequence + count - 1 FROM owlclaw_ledger.entry_group
                    ORDER BY first_sequence DESC LIMIT 1), 0),
                (SELECT count(*) FROM owlclaw_ledger.call),
                (SELECT count(*) FROM owlclaw_ledger.call WHERE outcome IS NULL)",
            &[],
        )
        .await?;
    let Some(row) = row else {
        return Ok(Counts::default());
    };
    Ok(Counts {
        entries: number(&row, 0)?,
        calls: number(&row, 1)?,
        open_calls: number(&row, 2)?,
    })
}

pub(super) async fn usage(
    session: &mut Session,
    range: Range<u64>,
    bucket: Duration,
) -> Result<Vec<Usage>, QueryError> {
    let bucket_us = i64::try_from(bucket.as_micros()).unwrap_or(i64::MAX).max(1);
    let rows = session
        .query(
            "SELECT principal, kind, capability, max(started_us), count(*),
                least(sum(coalesce(cost_micros, estimated_cost_micros)), 9e18)::bigint,
                least(coalesce(sum(estimated_cost_micros) FILTER (WHERE outcome IS NULL), 0), 9e18)::bigint,
                max(coalesce(cost_micros, estimated_cost_micros))
             FROM owlclaw_ledger.call
             WHERE started_us >= $1 AND started_us < $2
                AND (outcome IS NULL OR outcome <> 'denied')
             GROUP BY principal, kind, capability, started_us / $3
             ORDER BY principal COLLATE \"C\", kind COLLATE \"C\", capability COLLATE \"C\",
                started_us / $3",
            &[&signed(range.start), &signed(range.end), &bucket_us],
        )
        .await?;
    let usage = |row: &Row| {
        Ok(Usage {
            principal: restored(row.try_get(0)?),
            kind: kind(row.try_get(1)?),
            capability: restored(row.try_get(2)?),
            latest_us: number(row, 3)?,
            calls: number(row, 4)?,
            cost_micros: number(row, 5)?,
            open_micros: number(row, 6)?,
            dearest_micros: number(row, 7)?,
        })
    };
    rows.iter().map(usage).collect()
}

/// Calls are counted by the database, by all that a tally tells apart.
pub(super) async fn statistics(
    session: &mut Session,
    query: &StatisticsQuery<'_>,
) -> Result<Vec<Statistics>, QueryError> {
    let stretch_us = match query.bucket {
        Bucket::Day => signed(DAY_US),
        Bucket::Whole => i64::MAX,
    };
    let rows = session
        .query(
            "SELECT principal, kind, capability, started_us / $3, outcome, reason,
                duration_rounded, count(*),
                least(sum(coalesce(cost_micros, estimated_cost_micros)), 9e18)::bigint
             FROM owlclaw_ledger.call
             WHERE started_us >= $1 AND started_us < $2
                AND ($4::text IS NULL OR principal = $4) AND ($5::text IS NULL OR capability = $5)
             GROUP BY principal, kind, capability, started_us / $3, outcome, reason,
                duration_rounded",
            &[
                &signed(query.since_us),
                &signed(query.until_us),
                &stretch_us,
                &query.principal.map(stored),
                &query.capability.map(stored),
            ],
        )
        .await?;
    let mut tallies: BTreeMap<(String, String, String, u64), Totals> = BTreeMap::new();
    for row in &rows {
        let since_us = match query.bucket {
            Bucket::Day => number(row, 3)? * DAY_US,
            Bucket::Whole => query.since_us,
        };
        let key = (
            restored(row.try_get(0)?),
            row.try_get(1)?,
            restored(row.try_get(2)?),
            since_us,
        );
        let (calls, cost_micros) = (number(row, 7)?, number(row, 8)?);
        let tally = tallies.entry(key).or_default();
        match row.try_get(4)? {
            None => tally.open += calls,
            Some(outcome) => {
                let reason: Option<String> = row.try_get(5)?;
                let rounded: Option<i64> = row.try_get(6)?;
                let reason = reason.map(restored).unwrap_or_default();
                add(tally, outcome, reason, rounded.unwrap_or(0) as u64, calls);
            }
        }
        tally.cost_micros = tally.cost_micros.saturating_add(cost_micros);
    }
    let rows = tallies.into_iter();
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

/// Counts calls that ended alike.
fn add(tally: &mut Totals, outcome: &str, reason: String, duration_us: u64, calls: u64) {
    let ran = match outcome {
        "succeeded" => &mut tally.succeeded,
        "failed" => &mut tally.failed,
        "timed_out" => &mut tally.timed_out,
        "cancelled" => &mut tally.cancelled,
        "abandoned" => &mut tally.abandoned,
        "invalid" => return tally.invalid += calls,
        "denied" => return *tally.refused.entry(reason).or_default() += calls,
        _ => return tally.unknown += calls,
    };
    *ran += calls;
    tally.durations.add(duration_us, calls);
}

fn number(row: &Row, index: usize) -> Result<u64, Error> {
    row.try_get(index).map(i64::unsigned_abs)
}

fn kind(name: &str) -> Kind {
    [Kind::Tool, Kind::Resource]
        .into_iter()
        .find(|kind| kind.as_str() == name)
        .unwrap_or(Kind::Other)
}
