use super::super::{
    rows::signed,
    session::Session,
    text::{restored, stored},
};
use crate::{
    query::{
        Counts, QueryError, Usage,
        statistics::{Bucket, DAY_US, StatisticsQuery, Totals},
    },
    record::{codec::DecodeError, entry::Kind},
    sqlite::{
        archive::QUARTER_US,
        reader::{Sums, stretches},
    },
};
use std::{ops::Range, time::Duration};
use tokio_postgres::{Error, Row, types::ToSql};

pub(super) async fn count(session: &mut Session) -> Result<Counts, QueryError> {
    let row = session
        .query_opt(
            "SELECT coalesce((SELECT first_sequence + count - 1 FROM owlclaw_ledger.entry_group
                    ORDER BY first_sequence DESC LIMIT 1), 0),
                (SELECT count(*) FROM owlclaw_ledger.call)
                    + coalesce((SELECT calls FROM owlclaw_ledger.archived), 0),
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
    has_archive: bool,
    range: Range<u64>,
    bucket: Duration,
) -> Result<Vec<Usage>, QueryError> {
    let (range, bucket_us, [head, tail, days]) = stretches(range, bucket);
    let range = [signed(range.start), signed(range.end)];
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![&range[0], &range[1], &bucket_us];
    let quarter = |at_us: u64| signed(at_us.div_ceil(QUARTER_US));
    let carried = [
        quarter(head.start),
        quarter(head.end),
        quarter(tail.start),
        quarter(tail.end),
        signed(days.start),
        signed(days.end),
    ];
    // Of what was taken out there are no calls, but sums of whole days and quarters of hours.
    let sums = if has_archive {
        values.extend(carried.iter().map(|it| it as &(dyn ToSql + Sync)));
        "UNION ALL SELECT principal, kind, capability, latest_us, used_calls, used_micros, 0, dearest_micros
             FROM owlclaw_ledger.carried_quarter
             WHERE (quarter >= $4 AND quarter < $5) OR (quarter >= $6 AND quarter < $7)
         UNION ALL SELECT principal, kind, capability, latest_us, used_calls, used_micros, 0, dearest_micros
             FROM owlclaw_ledger.carried_day WHERE day >= $8 AND day < $9 AND used_calls > 0"
    } else {
        ""
    };
    let sql = format!(
        "SELECT principal, kind, capability, max(latest_us), sum(calls)::bigint,
            least(sum(cost), 9e18)::bigint, least(sum(open), 9e18)::bigint, max(dearest)
         FROM (SELECT principal, kind, capability, started_us, 1::bigint,
                coalesce(cost_micros, estimated_cost_micros),
                CASE WHEN outcome IS NULL THEN estimated_cost_micros ELSE 0 END,
                coalesce(cost_micros, estimated_cost_micros)
             FROM owlclaw_ledger.call
             WHERE started_us >= $1 AND started_us < $2
                AND (outcome IS NULL OR outcome <> 'denied')
             {sums}) AS used (principal, kind, capability, latest_us, calls, cost, open, dearest)
         GROUP BY principal, kind, capability, latest_us / $3
         ORDER BY principal COLLATE \"C\", kind COLLATE \"C\", capability COLLATE \"C\", latest_us / $3"
    );
    let rows = session.query(&sql, &values).await?;
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

/// Calls are counted by the database, by all that a tally tells apart. Of what was taken out the sums of whole days are
/// added.
pub(super) async fn statistics(
    session: &mut Session,
    query: &StatisticsQuery<'_>,
    sums: &mut Sums<'_>,
) -> Result<(), QueryError> {
    let stretch_us = match query.bucket {
        Bucket::Day => signed(DAY_US),
        Bucket::Whole => i64::MAX,
    };
    let of = |row: &Row, first: usize| {
        Ok::<_, Error>((
            restored(row.try_get(first)?),
            row.try_get(first + 1)?,
            restored(row.try_get(first + 2)?),
        ))
    };
    let (principal, capability) = (query.principal.map(stored), query.capability.map(stored));
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
                &principal,
                &capability,
            ],
        )
        .await?;
    for row in &rows {
        let at_us = number(row, 3)?.saturating_mul(DAY_US);
        let (calls, cost_micros) = (number(row, 7)?, number(row, 8)?);
        let tally = sums.tally(of(row, 0)?, at_us);
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
    let (days, _) = sums.stretches();
    let rows = session
        .query(
            "SELECT principal, kind, capability, day, tally FROM owlclaw_ledger.carried_day
             WHERE day >= $1 AND day < $2
                AND ($3::text IS NULL OR principal = $3) AND ($4::text IS NULL OR capability = $4)",
            &[
                &signed(days.start),
                &signed(days.end),
                &principal,
                &capability,
            ],
        )
        .await?;
    for row in &rows {
        let stored = Totals::decode(row.try_get(4)?);
        let stored = stored.ok_or(QueryError::Damaged(DecodeError::Unknown))?;
        let at_us = number(row, 3)?.saturating_mul(DAY_US);
        sums.tally(of(row, 0)?, at_us).merge(&stored);
    }
    Ok(())
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
