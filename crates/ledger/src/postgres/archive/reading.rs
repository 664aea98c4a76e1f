//! Reading of the tables about an archive: its state, its segments, the holds, and the sums and starts that stay.

use crate::{
    postgres::{reader::scan, rows::digest, session::Session, text::restored},
    query::{IndexedCall, statistics::Totals},
    sqlite::{
        archive::{Hold, HoldFilter, Listed, Of, State},
        index::Used,
        reader::{CarriedStart, OfDay, OfQuarters, View},
    },
};
use tokio_postgres::{Error, Row};

const STATE: &str = "SELECT through, hash, directory FROM owlclaw_ledger.archived";

/// State of the archive, and its segments in order.
pub(super) async fn archive(session: &mut Session) -> Result<(State, Vec<Listed>), Error> {
    let state = state(session.query_opt(STATE, &[]).await?)?;
    Ok((state, segments(session).await?))
}

fn state(row: Option<Row>) -> Result<State, Error> {
    let Some(row) = row else {
        return Ok(State::default());
    };
    Ok(State {
        through: number(&row, 0)?,
        hash: digest(row.try_get(1)?),
        directory: row.try_get::<_, String>(2)?.into(),
    })
}

async fn segments(session: &mut Session) -> Result<Vec<Listed>, Error> {
    let rows = session
        .query(
            "SELECT number, file, first_sequence, last_sequence, last_hash, first_start, from_us, until_us,
                deleted_us IS NOT NULL
             FROM owlclaw_ledger.archive_segment ORDER BY number",
            &[],
        )
        .await?;
    let listed = |row: &Row| {
        Ok(Listed {
            number: row.try_get(0)?,
            file: row.try_get(1)?,
            first: number(row, 2)?,
            last: number(row, 3)?,
            last_hash: digest(row.try_get(4)?),
            first_start: number(row, 5)?,
            from_us: number(row, 6)?,
            until_us: number(row, 7)?,
            is_deleted: row.try_get(8)?,
            is_unread: false,
        })
    };
    rows.iter().map(listed).collect()
}

/// Begins a transaction to which nothing changes, and tells what readers see of the archive.
pub(in crate::postgres) async fn begin_view(session: &mut Session) -> Result<View, Error> {
    // It keeps nobody waiting, and a long answer may take its time to be read.
    const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;
        SET LOCAL idle_in_transaction_session_timeout = '60s'";
    let read = session.prepare(STATE).await?;
    let client = session.client();
    // Sent together: questions are many.
    let (begun, row) = tokio::join!(
        biased;
        client.batch_execute(BEGIN),
        client.query_opt(&read, &[]),
    );
    begun?;
    let state = state(row?)?;
    if state.through == 0 {
        return Ok(View::default());
    }
    let mut listed = segments(session).await?;
    listed.retain(|it| it.first <= state.through);
    Ok(View { state, listed })
}

/// The holds in force, the oldest first.
pub(in crate::postgres) async fn holds(session: &mut Session) -> Result<Vec<Hold>, Error> {
    let rows = session
        .query(
            "SELECT number, principal, capability, since_us, until_us, set_by, reason, set_us
             FROM owlclaw_ledger.legal_hold ORDER BY number",
            &[],
        )
        .await?;
    let text = |row: &Row, index| {
        let text: Option<String> = row.try_get(index)?;
        Ok::<_, Error>(text.map(restored))
    };
    let time = |row: &Row, index| {
        let time: Option<i64> = row.try_get(index)?;
        Ok::<_, Error>(time.map(i64::unsigned_abs))
    };
    let hold = |row: &Row| {
        Ok(Hold {
            number: number(row, 0)?,
            of: HoldFilter {
                principal: text(row, 1)?,
                capability: text(row, 2)?,
                since_us: time(row, 3)?,
                until_us: time(row, 4)?,
            },
            by: restored(row.try_get(5)?),
            reason: restored(row.try_get(6)?),
            at_us: number(row, 7)?,
        })
    };
    rows.iter().map(hold).collect()
}

/// A page of the rows of calls that end in a range of entries, of those that begin at `from` or later.
pub(super) async fn calls(
    session: &mut Session,
    from: i64,
    [after, last]: [i64; 2],
) -> Result<Vec<IndexedCall>, Error> {
    let rows = session
        .query(
            "SELECT * FROM owlclaw_ledger.call
             WHERE start_sequence >= $1 AND start_sequence <= $3 AND end_sequence > $2 AND end_sequence <= $3
             ORDER BY start_sequence LIMIT 4096",
            &[&from, &after, &last],
        )
        .await?;
    rows.iter().map(scan::call).collect()
}

/// The first day after this one of which sums are kept, and these; `None` in their place if they cannot be read.
pub(in crate::postgres) async fn next_day(
    session: &mut Session,
    after: i64,
) -> Result<Option<(i64, Option<OfDay>)>, Error> {
    let rows = session
        .query(
            "SELECT day, principal, kind, capability, latest_us, used_calls, used_micros, dearest_micros, tally
             FROM owlclaw_ledger.carried_day
             WHERE day = (SELECT min(day) FROM owlclaw_ledger.carried_day WHERE day > $1)",
            &[&after],
        )
        .await?;
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let day = first.try_get(0)?;
    let mut sums = OfDay::new();
    for row in &rows {
        let Some(totals) = Totals::decode(row.try_get(8)?) else {
            return Ok(Some((day, None)));
        };
        sums.insert(of(row, 1)?, (totals, used_of(row, 4)?));
    }
    Ok(Some((day, Some(sums))))
}

/// The use by quarters of an hour that is kept.
pub(in crate::postgres) async fn quarters(session: &mut Session) -> Result<OfQuarters, Error> {
    let rows = session
        .query(
            "SELECT quarter, principal, kind, capability, latest_us, used_calls, used_micros, dearest_micros
             FROM owlclaw_ledger.carried_quarter",
            &[],
        )
        .await?;
    let quarter = |row: &Row| Ok(((row.try_get(0)?, of(row, 1)?), used_of(row, 4)?));
    rows.iter().map(quarter).collect()
}

/// Number of calls whose rows are gone.
pub(in crate::postgres) async fn calls_taken_out(session: &mut Session) -> Result<i64, Error> {
    let sql = "SELECT calls FROM owlclaw_ledger.archived";
    let row = session.query_opt(sql, &[]).await?;
    row.map_or(Ok(0), |row| row.try_get(0))
}

/// The starts of calls that had not ended when they were taken out.
pub(in crate::postgres) async fn carried_starts(
    session: &mut Session,
) -> Result<Vec<CarriedStart>, Error> {
    let sql = "SELECT sequence, start_group, start_offset, entry FROM owlclaw_ledger.carried_start";
    let rows = session.query(sql, &[]).await?;
    rows.iter().map(carried_start).collect()
}

/// Returns true if the start of each call that has a row, and whose start was taken out, is kept.
pub(in crate::postgres) async fn has_starts(session: &mut Session) -> Result<bool, Error> {
    let sql = "SELECT NOT EXISTS (SELECT FROM owlclaw_ledger.call
            LEFT JOIN owlclaw_ledger.carried_start ON carried_start.sequence = call.start_sequence
        WHERE call.start_sequence <= (SELECT through FROM owlclaw_ledger.archived)
            AND carried_start.sequence IS NULL)";
    let row = session.query_opt(sql, &[]).await?;
    row.map_or(Ok(true), |row| row.try_get(0))
}

pub(super) fn carried_start(row: &Row) -> Result<CarriedStart, Error> {
    Ok(CarriedStart {
        sequence: number(row, 0)?,
        group: row.try_get(1)?,
        offset: row.try_get::<_, i32>(2)?.into(),
        entry: row.try_get(3)?,
    })
}

/// Principal, kind and capability.
pub(super) fn of(row: &Row, first: usize) -> Result<Of, Error> {
    Ok((
        restored(row.try_get(first)?),
        row.try_get(first + 1)?,
        restored(row.try_get(first + 2)?),
    ))
}

pub(super) fn used_of(row: &Row, first: usize) -> Result<Used, Error> {
    Ok(Used {
        latest_us: row.try_get(first)?,
        calls: row.try_get(first + 1)?,
        cost_micros: row.try_get(first + 2)?,
        dearest_micros: row.try_get(first + 3)?,
    })
}

fn number(row: &Row, index: usize) -> Result<u64, Error> {
    row.try_get::<_, i64>(index).map(|number| number as u64)
}
