//! Taking out of a part that is in a segment, and the sums that stay of it.

use super::reading::{of, used_of};
use crate::{
    postgres::{
        rows::signed,
        session::{Session, SessionError},
        text::stored,
    },
    query::statistics::Totals,
    sqlite::{
        archive::{Days, Of, Part},
        index::Used,
    },
};
use std::borrow::Cow;
use tokio_postgres::Error;

/// Takes a part out of the tables; tells whether nobody else has taken it out.
pub(super) async fn take_out(session: &mut Session, part: &Part) -> Result<bool, SessionError> {
    let (from, through) = (signed(part.before.through), signed(part.through));
    // No row of a call changes while this is locked.
    let sql = "SELECT through FROM owlclaw_ledger.indexed FOR UPDATE";
    session.query(sql, &[]).await?;
    let moved = session
        .execute(
            "UPDATE owlclaw_ledger.archived SET through = $1, hash = $2
             WHERE through = $3 AND hash = $4",
            &[&through, &&part.hash[..], &from, &&part.before.hash[..]],
        )
        .await?;
    if moved != 1 {
        return Ok(false);
    }
    // A call is taken out with its end, and its start stays for as long as it has none.
    session
        .execute(
            "INSERT INTO owlclaw_ledger.carried_start (sequence, start_group, start_offset, entry, node)
             SELECT call.start_sequence, call.start_group, call.start_offset,
                substring(body FROM call.start_offset + 1 FOR call.start_length), entry_group.node
             FROM owlclaw_ledger.call
             JOIN owlclaw_ledger.entry_group ON entry_group.first_sequence = call.start_group
             WHERE call.start_sequence > $1 AND call.start_sequence <= $2
                AND NOT call.start_sequence = ANY ($3)",
            &[&from, &through, &part.starts],
        )
        .await?;
    session
        .execute(
            "UPDATE owlclaw_ledger.node SET archived_group = last.id
             FROM (SELECT DISTINCT ON (node) node, id FROM owlclaw_ledger.entry_group
                WHERE first_sequence <= $1 ORDER BY node, first_sequence DESC) AS last
             WHERE node.id = last.node",
            &[&through],
        )
        .await?;
    carry_days(session, &part.days).await?;
    carry_quarters(session, part).await?;
    let sql = "DELETE FROM owlclaw_ledger.carried_start WHERE sequence = ANY ($1)";
    session.execute(sql, &[&part.starts]).await?;
    let sql = "DELETE FROM owlclaw_ledger.call WHERE start_sequence = ANY ($1)";
    let calls = session.execute(sql, &[&part.starts]).await?;
    let sql = "DELETE FROM owlclaw_ledger.note WHERE sequence <= $1";
    session.execute(sql, &[&through]).await?;
    let sql = "DELETE FROM owlclaw_ledger.entry_group WHERE first_sequence <= $1";
    session.execute(sql, &[&through]).await?;
    let sql = "UPDATE owlclaw_ledger.archived SET calls = calls + $1";
    session.store(sql, &[&signed(calls)]).await?;
    Ok(true)
}

/// Sums column by column.
struct Columns<'a> {
    times: Vec<i64>,
    principals: Vec<Cow<'a, str>>,
    kinds: Vec<&'a str>,
    capabilities: Vec<Cow<'a, str>>,
    latest_us: Vec<i64>,
    calls: Vec<i64>,
    micros: Vec<i64>,
    dearest: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn of(rows: impl Iterator<Item = (&'a (i64, Of), Used)>) -> Self {
        let mut columns = Self {
            times: Vec::new(),
            principals: Vec::new(),
            kinds: Vec::new(),
            capabilities: Vec::new(),
            latest_us: Vec::new(),
            calls: Vec::new(),
            micros: Vec::new(),
            dearest: Vec::new(),
        };
        for ((time, (principal, kind, capability)), used) in rows {
            columns.times.push(*time);
            columns.principals.push(stored(principal));
            columns.kinds.push(kind);
            columns.capabilities.push(stored(capability));
            columns.latest_us.push(used.latest_us);
            columns.calls.push(used.calls);
            columns.micros.push(used.cost_micros);
            columns.dearest.push(used.dearest_micros);
        }
        columns
    }
}

/// Adds sums of days to those that stay.
pub(super) async fn carry_days(session: &mut Session, days: &Days) -> Result<(), Error> {
    let columns = Columns::of(days.iter().map(|(key, (_, used))| (key, *used)));
    let rows = session
        .query(
            "SELECT day, principal, kind, capability, latest_us, used_calls, used_micros, dearest_micros, tally
             FROM owlclaw_ledger.carried_day
             JOIN unnest($1::bigint[], $2::text[], $3::text[], $4::text[])
                AS more (day, principal, kind, capability) USING (day, principal, kind, capability)",
            &[
                &columns.times,
                &columns.principals,
                &columns.kinds,
                &columns.capabilities,
            ],
        )
        .await?;
    let mut days = days.clone();
    for row in &rows {
        let key = (row.try_get(0)?, of(row, 1)?);
        if let Some((totals, used)) = days.get_mut(&key) {
            used.add(used_of(row, 4)?);
            // A sum that is damaged is overwritten here and then found by verification.
            totals.merge(&Totals::decode(row.try_get(8)?).unwrap_or_default());
        }
    }
    let columns = Columns::of(days.iter().map(|(key, (_, used))| (key, *used)));
    let tallies: Vec<Vec<u8>> = days.values().map(|(totals, _)| totals.encode()).collect();
    session
        .execute(
            "INSERT INTO owlclaw_ledger.carried_day
             SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[],
                $7::bigint[], $8::bigint[], $9::bytea[])
             ON CONFLICT (day, principal, kind, capability) DO UPDATE SET latest_us = excluded.latest_us,
                used_calls = excluded.used_calls, used_micros = excluded.used_micros,
                dearest_micros = excluded.dearest_micros, tally = excluded.tally",
            &[
                &columns.times,
                &columns.principals,
                &columns.kinds,
                &columns.capabilities,
                &columns.latest_us,
                &columns.calls,
                &columns.micros,
                &columns.dearest,
                &tallies,
            ],
        )
        .await?;
    Ok(())
}

/// Adds the use of a part by quarters of an hour to what stays, and forgets what is too old.
async fn carry_quarters(session: &mut Session, part: &Part) -> Result<(), Error> {
    let columns = Columns::of(part.quarters.iter().map(|(key, used)| (key, *used)));
    session
        .execute(
            "INSERT INTO owlclaw_ledger.carried_quarter AS own
             SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[],
                $7::bigint[], $8::bigint[])
             ON CONFLICT (quarter, principal, kind, capability) DO UPDATE SET
                latest_us = greatest(own.latest_us, excluded.latest_us),
                used_calls = own.used_calls + excluded.used_calls,
                used_micros = own.used_micros + excluded.used_micros,
                dearest_micros = greatest(own.dearest_micros, excluded.dearest_micros)",
            &[
                &columns.times,
                &columns.principals,
                &columns.kinds,
                &columns.capabilities,
                &columns.latest_us,
                &columns.calls,
                &columns.micros,
                &columns.dearest,
            ],
        )
        .await?;
    let sql = "DELETE FROM owlclaw_ledger.carried_quarter WHERE quarter < $1";
    session.execute(sql, &[&part.kept_from]).await?;
    Ok(())
}
