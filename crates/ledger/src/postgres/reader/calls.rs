use super::super::{rows::signed, session::Session, text::stored};
use crate::{
    query::{CallRecord, Filter, OPEN_CALLS, QueryError},
    record::{
        codec::{self, DecodeError},
        entry::Event,
        id::CallId,
    },
};
use tokio_postgres::{Row, types::ToSql};

/// The columns of a call with the bytes of its two entries, of the calls that are selected. The start may have been taken
/// out into an archive.
const RECORD: &str = "SELECT picked.call, picked.start_sequence,
        coalesce(substring(begun.body FROM picked.start_offset + 1 FOR picked.start_length),
            carried.entry) AS start,
        picked.end_sequence IS NOT NULL AS has_ended,
        substring(ended.body FROM picked.end_offset + 1 FOR picked.end_length) AS end
    FROM picked
    LEFT JOIN owlclaw_ledger.entry_group AS begun ON begun.first_sequence = picked.start_group
    LEFT JOIN owlclaw_ledger.carried_start AS carried ON carried.sequence = picked.start_sequence
    LEFT JOIN owlclaw_ledger.entry_group AS ended ON ended.first_sequence = picked.end_group";

pub(super) async fn recent(
    session: &mut Session,
    limit: usize,
    filter: &Filter<'_>,
) -> Result<Vec<CallRecord>, QueryError> {
    let (condition, values) = condition(filter);
    let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| &**value as _).collect();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let sql = format!(
        "WITH picked AS MATERIALIZED (
            SELECT * FROM owlclaw_ledger.call WHERE {condition}
            ORDER BY started_us DESC, start_sequence DESC LIMIT {limit})
         {RECORD} ORDER BY picked.started_us DESC, picked.start_sequence DESC"
    );
    let rows = session.query_once(&sql, &values).await?;
    rows.iter().map(record).collect()
}

pub(super) async fn open(session: &mut Session) -> Result<Vec<CallRecord>, QueryError> {
    let sql = format!(
        "WITH picked AS MATERIALIZED (
            SELECT * FROM owlclaw_ledger.call WHERE outcome IS NULL)
         {RECORD} ORDER BY picked.start_sequence"
    );
    let rows = session.query_once(&sql, &[]).await?;
    rows.iter().map(record).collect()
}

pub(super) type Values = Vec<Box<dyn ToSql + Sync + Send>>;

fn condition(filter: &Filter<'_>) -> (String, Values) {
    let mut sql = String::from("true");
    let mut values: Values = Vec::new();
    let texts = [
        ("principal", filter.principal),
        ("capability", filter.capability),
        ("kind", filter.kind.map(crate::record::entry::Kind::as_str)),
        ("outcome", filter.outcome.filter(|it| *it != OPEN_CALLS)),
        ("reason", filter.reason),
        ("request_id", filter.request_id),
        ("trace_id", filter.trace_id),
    ];
    for (column, text) in texts {
        if let Some(text) = text {
            values.push(Box::new(stored(text).into_owned()));
            sql.push_str(&format!(" AND {column} = ${}", values.len()));
        }
    }
    if filter.outcome == Some(OPEN_CALLS) {
        sql.push_str(" AND outcome IS NULL");
    } else if filter.outcome.is_some_and(|outcome| outcome != "succeeded") {
        // For the database to see that an index has them.
        sql.push_str(" AND outcome <> 'succeeded'");
    }
    let numbers = [
        ("started_us >=", filter.since_us),
        ("started_us <", filter.until_us),
        ("duration_us >=", filter.min_duration_us),
    ];
    for (comparison, number) in numbers {
        if let Some(number) = number {
            values.push(Box::new(signed(number)));
            sql.push_str(&format!(" AND {comparison} ${}", values.len()));
        }
    }
    if let Some(call) = filter.call {
        values.push(Box::new(call.0));
        sql.push_str(&format!(" AND call = ${}", values.len()));
    }
    if let Some(approval) = filter.approval {
        values.push(Box::new(approval.0));
        sql.push_str(&format!(" AND approval = ${}", values.len()));
    }
    if let Some(before) = filter.before {
        values.push(Box::new(signed(before.at_us)));
        values.push(Box::new(signed(before.sequence)));
        let (at, sequence) = (values.len() - 1, values.len());
        sql.push_str(&format!(
            " AND (started_us, start_sequence) < (${at}, ${sequence})"
        ));
    }
    (sql, values)
}

fn record(row: &Row) -> Result<CallRecord, QueryError> {
    let call = CallId(row.try_get("call")?);
    let misplaced = || QueryError::Damaged(DecodeError::Unknown);
    let event = |column| {
        let bytes: Option<&[u8]> = row.try_get(column)?;
        match codec::decode(bytes.ok_or_else(misplaced)?).map_err(QueryError::Damaged)? {
            (it, event) if it == call => Ok(event),
            _ => Err(misplaced()),
        }
    };
    let sequence = row.try_get::<_, i64>("start_sequence")?.unsigned_abs();
    if row.try_get::<_, Option<&[u8]>>("start")?.is_none() {
        return Err(QueryError::NoStart { sequence });
    }
    let Event::Started(started) = event("start")? else {
        return Err(misplaced());
    };
    let ended = if row.try_get("has_ended")? {
        match event("end")? {
            Event::Ended(ended) => Some(ended),
            _ => return Err(misplaced()),
        }
    } else {
        None
    };
    Ok(CallRecord {
        call,
        sequence,
        started,
        ended,
    })
}
