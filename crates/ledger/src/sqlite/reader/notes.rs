use super::{Source, calls::Groups, signed};
use crate::{
    query::{ApprovalFilter, NoteFilter, NoteRecord, QueryError},
    record::{approval::Approval, codec::DecodeError, entry::Event},
    sqlite::rows,
};
use rusqlite::{Connection, ToSql, Transaction, params_from_iter};

pub(super) fn notes(
    snapshot: &Transaction<'_>,
    source: Source,
    limit: usize,
    filter: &NoteFilter<'_>,
) -> Result<Vec<NoteRecord>, QueryError> {
    let mut sql = String::from("true");
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    let mut index = "note_by_time";
    // The later an index is chosen the better it is.
    let texts = [
        ("actor = ?", filter.actor, None),
        ("kind = ?", filter.kind, Some("note_by_kind")),
        (
            "subject = ? AND subject <> ''",
            filter.subject,
            Some("note_by_subject"),
        ),
    ];
    for (clause, text, by) in texts {
        if let Some(text) = text {
            sql.push_str(" AND ");
            sql.push_str(clause);
            values.push(Box::new(text.to_owned()));
            index = by.unwrap_or(index);
        }
    }
    for (clause, number) in [
        (" AND at_us >= ?", filter.since_us),
        (" AND at_us < ?", filter.until_us),
    ] {
        if let Some(number) = number {
            sql.push_str(clause);
            values.push(Box::new(signed(number)));
        }
    }
    if let Some(before) = filter.before {
        sql.push_str(" AND (at_us, sequence) < (?, ?)");
        values.push(Box::new(signed(before.at_us)));
        values.push(Box::new(signed(before.sequence)));
    }
    sql.push_str(&source.owns("sequence"));
    let max = i64::try_from(limit).unwrap_or(i64::MAX);
    let order = format!("ORDER BY at_us DESC, sequence DESC LIMIT {max}");
    let mut records = Vec::new();
    let mut groups = Groups::new(snapshot, source);
    for from in [
        "temp.tail_note".to_owned(),
        format!("note INDEXED BY {index}"),
    ] {
        let mut select =
            snapshot.prepare_cached(&format!("SELECT * FROM {from} WHERE {sql} {order}"))?;
        let mut rows = select.query(params_from_iter(&values))?;
        while let Some(row) = rows.next()? {
            let place = ["note_group", "note_offset", "note_length"];
            let Some((_, Event::Noted(noted))) = groups.entry(row, place)? else {
                return Err(QueryError::Damaged(DecodeError::Unknown));
            };
            records.push(NoteRecord {
                sequence: row.get::<_, i64>("sequence")?.unsigned_abs(),
                noted,
            });
        }
    }
    records.sort_by_key(|record| std::cmp::Reverse((record.noted.at_us, record.sequence)));
    records.truncate(limit);
    Ok(records)
}

pub(super) fn approvals(
    connection: &Connection,
    limit: usize,
    filter: &ApprovalFilter<'_>,
) -> Result<Vec<Approval>, QueryError> {
    let mut sql = String::from("SELECT * FROM approval WHERE true");
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    if let Some(approval) = filter.approval {
        sql.push_str(" AND id = ?");
        values.push(Box::new(approval.0.as_bytes().to_vec()));
    }
    for (clause, text) in [
        (" AND state = ?", filter.state.map(|state| state.as_str())),
        (" AND principal = ?", filter.principal),
        (" AND capability = ?", filter.capability),
    ] {
        if let Some(text) = text {
            sql.push_str(clause);
            values.push(Box::new(text.to_owned()));
        }
    }
    if let Some(at_us) = filter.expires_after_us {
        sql.push_str(" AND expires_us > ?");
        values.push(Box::new(signed(at_us)));
    }
    sql.push_str(" ORDER BY requested_us DESC, id DESC LIMIT ?");
    values.push(Box::new(i64::try_from(limit).unwrap_or(i64::MAX)));
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map(params_from_iter(values), rows::approval)?;
    Ok(rows.collect::<Result<_, _>>()?)
}
