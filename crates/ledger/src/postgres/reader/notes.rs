use super::{
    super::{
        rows::{self, signed},
        session::Session,
        text::stored,
    },
    calls::Values,
};
use crate::{
    query::{ApprovalFilter, NoteFilter, NoteRecord, QueryError},
    record::{
        approval::Approval,
        codec::{self, DecodeError},
        entry::Event,
    },
};
use tokio_postgres::{Row, types::ToSql};

pub(super) async fn notes(
    session: &mut Session,
    limit: usize,
    filter: &NoteFilter<'_>,
) -> Result<Vec<NoteRecord>, QueryError> {
    let (mut sql, mut values) = (String::from("true"), Values::new());
    for (column, text) in [
        ("kind", filter.kind),
        ("actor", filter.actor),
        ("subject", filter.subject),
    ] {
        if let Some(text) = text {
            values.push(Box::new(stored(text).into_owned()));
            sql.push_str(&format!(" AND {column} = ${}", values.len()));
        }
    }
    if filter.subject.is_some_and(|subject| !subject.is_empty()) {
        // For the database to see that an index has them.
        sql.push_str(" AND subject <> ''");
    }
    for (comparison, number) in [("at_us >=", filter.since_us), ("at_us <", filter.until_us)] {
        if let Some(number) = number {
            values.push(Box::new(signed(number)));
            sql.push_str(&format!(" AND {comparison} ${}", values.len()));
        }
    }
    if let Some(before) = filter.before {
        values.push(Box::new(signed(before.at_us)));
        values.push(Box::new(signed(before.sequence)));
        let (at, sequence) = (values.len() - 1, values.len());
        sql.push_str(&format!(" AND (at_us, sequence) < (${at}, ${sequence})"));
    }
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let sql = format!(
        "WITH picked AS MATERIALIZED (
            SELECT * FROM owlclaw_ledger.note WHERE {sql}
            ORDER BY at_us DESC, sequence DESC LIMIT {limit})
         SELECT picked.sequence,
            substring(body FROM picked.note_offset + 1 FOR picked.note_length) AS entry
         FROM picked
         LEFT JOIN owlclaw_ledger.entry_group ON entry_group.first_sequence = picked.note_group
         ORDER BY picked.at_us DESC, picked.sequence DESC"
    );
    let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| &**value as _).collect();
    let rows = session.query_once(&sql, &values).await?;
    rows.iter().map(note).collect()
}

fn note(row: &Row) -> Result<NoteRecord, QueryError> {
    let misplaced = || QueryError::Damaged(DecodeError::Unknown);
    let bytes: Option<&[u8]> = row.try_get("entry")?;
    let entry = codec::decode(bytes.ok_or_else(misplaced)?).map_err(QueryError::Damaged)?;
    match entry {
        (_, Event::Noted(noted)) => Ok(NoteRecord {
            sequence: row.try_get::<_, i64>("sequence")?.unsigned_abs(),
            noted,
        }),
        _ => Err(misplaced()),
    }
}

pub(super) async fn approvals(
    session: &mut Session,
    limit: usize,
    filter: &ApprovalFilter<'_>,
) -> Result<Vec<Approval>, QueryError> {
    let rows = session
        .query(
            "SELECT * FROM owlclaw_ledger.approval
             WHERE ($1::uuid IS NULL OR id = $1) AND ($2::text IS NULL OR state = $2)
                AND ($3::text IS NULL OR principal = $3)
                AND ($4::text IS NULL OR capability = $4)
                AND ($5::bigint IS NULL OR expires_us > $5)
             ORDER BY requested_us DESC, id DESC LIMIT $6",
            &[
                &filter.approval.map(|approval| approval.0),
                &filter.state.map(|state| state.as_str()),
                &filter.principal.map(stored),
                &filter.capability.map(stored),
                &filter.expires_after_us.map(signed),
                &i64::try_from(limit).unwrap_or(i64::MAX),
            ],
        )
        .await?;
    Ok(rows.iter().map(rows::approval).collect::<Result<_, _>>()?)
}
