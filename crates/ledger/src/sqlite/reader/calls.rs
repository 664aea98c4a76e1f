use super::{Source, signed};
use crate::{
    query::{CallRecord, Filter, OPEN_CALLS, QueryError},
    record::{
        codec::{self, DecodeError},
        entry::{Event, Outcome},
        id::CallId,
    },
    sqlite::archive::segment::LastFrame,
};
use rusqlite::{OptionalExtension, Row, ToSql, Transaction, params_from_iter};
use std::collections::VecDeque;
use uuid::Uuid;

/// The names of outcomes, which are written into queries as they are, for the database to see that
/// an index has them.
const OUTCOMES: [Outcome<&str>; 8] = [
    Outcome::Succeeded,
    Outcome::Failed,
    Outcome::Denied { reason: "" },
    Outcome::Invalid,
    Outcome::TimedOut,
    Outcome::Cancelled,
    Outcome::Abandoned,
    Outcome::Unknown,
];

/// Condition by which calls in the reader's own index hide those in the ledger's index.
pub(super) const NOT_IN_TAIL: &str = "NOT EXISTS
    (SELECT 1 FROM temp.tail_call AS tail WHERE tail.start_sequence = call.start_sequence)";

pub(super) fn recent(
    snapshot: &Transaction<'_>,
    source: Source,
    limit: usize,
    filter: &Filter<'_>,
) -> Result<Vec<CallRecord>, QueryError> {
    let Some(Condition { index, sql, values }) = condition(filter) else {
        return Ok(Vec::new());
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let order = format!("ORDER BY started_us DESC, start_sequence DESC LIMIT {limit}");
    let tail = format!("SELECT * FROM temp.tail_call AS call WHERE {sql} {order}");
    let owned = source.owns("end_sequence");
    let indexed = format!(
        "SELECT * FROM call INDEXED BY {index} WHERE {sql}{owned} AND {NOT_IN_TAIL} {order}"
    );
    let mut records = calls(snapshot, source, &tail, &values)?;
    records.extend(calls(snapshot, source, &indexed, &values)?);
    records.sort_by_key(|record| std::cmp::Reverse((record.started.at_us, record.sequence)));
    records.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(records)
}

pub(super) fn open(
    snapshot: &Transaction<'_>,
    source: Source,
) -> Result<Vec<CallRecord>, QueryError> {
    let indexed = format!(
        "SELECT * FROM call INDEXED BY call_open WHERE outcome IS NULL AND {NOT_IN_TAIL}
         ORDER BY start_sequence"
    );
    let tail = "SELECT * FROM temp.tail_call WHERE outcome IS NULL ORDER BY start_sequence";
    let mut records = calls(snapshot, source, &indexed, &[])?;
    records.extend(calls(snapshot, source, tail, &[])?);
    // Those of the tail began later, all but what a server has indexed while it was asked.
    records.sort_by_key(|record| record.sequence);
    Ok(records)
}

/// Condition of a query, and the index that finds its calls.
struct Condition {
    index: &'static str,
    sql: String,
    values: Vec<Box<dyn ToSql>>,
}

/// `None` when nothing can meet it.
///
/// The index is chosen here: whichever leaves the fewest calls to look at, by what the columns are.
/// The database would have to guess.
fn condition(filter: &Filter<'_>) -> Option<Condition> {
    let mut sql = String::from("true");
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    let mut index = "call_by_time";
    let mut choose = |by: &'static str| index = by;
    // The later an index is chosen the better it is.
    let texts = [
        ("capability", filter.capability, Some("call_by_capability")),
        ("principal", filter.principal, Some("call_by_principal")),
        (
            "kind",
            filter.kind.map(crate::record::entry::Kind::as_str),
            None,
        ),
    ];
    for (column, text, by) in texts {
        if let Some(text) = text {
            sql.push_str(&format!(" AND {column} = ?"));
            values.push(Box::new(text.to_owned()));
            by.map(&mut choose);
        }
    }
    if filter.outcome == Some(OPEN_CALLS) {
        sql.push_str(" AND outcome IS NULL");
        choose("call_open");
    } else if let Some(outcome) = filter.outcome {
        let known = OUTCOMES.iter().map(Outcome::as_str);
        let outcome = known.into_iter().find(|name| *name == outcome)?;
        sql.push_str(&format!(" AND outcome = '{outcome}'"));
        if outcome != Outcome::<&str>::Succeeded.as_str() {
            sql.push_str(" AND outcome <> 'succeeded'");
            choose("call_by_outcome");
        }
    }
    let texts = [
        ("reason", filter.reason, "call_by_reason"),
        ("request_id", filter.request_id, "call_by_request"),
        ("trace_id", filter.trace_id, "call_by_trace"),
    ];
    for (column, text, by) in texts {
        if let Some(text) = text {
            sql.push_str(&format!(" AND {column} = ?"));
            values.push(Box::new(text.to_owned()));
            choose(by);
        }
    }
    if let Some(approval) = filter.approval {
        sql.push_str(" AND approval = ?");
        values.push(Box::new(approval.to_string()));
        choose("call_by_approval");
    }
    if let Some(call) = filter.call {
        sql.push_str(" AND call = ?");
        values.push(Box::new(call.0.as_bytes().to_vec()));
        choose("call_by_id");
    }
    let numbers = [
        (" AND started_us >= ?", filter.since_us),
        (" AND started_us < ?", filter.until_us),
        (" AND duration_us >= ?", filter.min_duration_us),
    ];
    for (clause, number) in numbers {
        if let Some(number) = number {
            sql.push_str(clause);
            values.push(Box::new(signed(number)));
        }
    }
    if let Some(before) = filter.before {
        sql.push_str(" AND (started_us, start_sequence) < (?, ?)");
        values.push(Box::new(signed(before.at_us)));
        values.push(Box::new(signed(before.sequence)));
    }
    Some(Condition { index, sql, values })
}

fn calls(
    snapshot: &Transaction<'_>,
    source: Source,
    sql: &str,
    values: &[Box<dyn ToSql>],
) -> Result<Vec<CallRecord>, QueryError> {
    let mut select = snapshot.prepare_cached(sql)?;
    let mut rows = select.query(params_from_iter(values))?;
    let mut records = Vec::new();
    let mut groups = Groups::new(snapshot, source);
    while let Some(row) = rows.next()? {
        let call = CallId(Uuid::from_bytes(row.get("call")?));
        let misplaced = || QueryError::Damaged(DecodeError::Unknown);
        let places = ["start_group", "start_offset", "start_length"];
        let started = match groups.entry(row, places)? {
            Some((it, Event::Started(started))) if it == call => started,
            _ => return Err(misplaced()),
        };
        let ended = match groups.entry(row, ["end_group", "end_offset", "end_length"])? {
            None => None,
            Some((it, Event::Ended(ended))) if it == call => Some(ended),
            Some(_) => return Err(misplaced()),
        };
        records.push(CallRecord {
            call,
            sequence: row.get::<_, i64>("start_sequence")?.unsigned_abs(),
            started,
            ended,
        });
    }
    Ok(records)
}

/// Groups that are kept while a page is read: calls that are found together are often in the same
/// ones, and the database can only read a group from its beginning.
const MAX_GROUPS: usize = 4;

/// Reads entries.
pub(super) struct Groups<'a> {
    snapshot: &'a Transaction<'a>,
    source: Source,
    /// The bodies of the last groups that were read.
    last: VecDeque<(i64, Vec<u8>)>,
    frame: LastFrame,
}

impl<'a> Groups<'a> {
    pub(super) fn new(snapshot: &'a Transaction<'a>, source: Source) -> Self {
        Self {
            snapshot,
            source,
            last: VecDeque::with_capacity(MAX_GROUPS),
            frame: LastFrame::default(),
        }
    }

    /// Reads the entry at the place that these columns name, if they name one.
    pub(super) fn entry(
        &mut self,
        row: &Row<'_>,
        [group, offset, length]: [&str; 3],
    ) -> Result<Option<(CallId, Event)>, QueryError> {
        let Some(group) = row.get::<_, Option<i64>>(group)? else {
            return Ok(None);
        };
        let (offset, length): (i64, i64) = (row.get(offset)?, row.get(length)?);
        if self.source.keeps_starts_before(group) {
            let mut select = self.snapshot.prepare_cached(
                "SELECT entry FROM main.carried_start
                 WHERE start_group = ?1 AND start_offset = ?2 AND length(entry) = ?3",
            )?;
            let entry: Option<Vec<u8>> = select
                .query_row([group, offset, length], |row| row.get(0))
                .optional()?;
            if let Some(entry) = entry {
                return codec::decode(&entry).map(Some).map_err(QueryError::Damaged);
            }
            if matches!(self.source, Source::Ledger { .. }) {
                let sequence = row.get::<_, i64>("start_sequence")?.unsigned_abs();
                return Err(QueryError::NoStart { sequence });
            }
        }
        let body = self.body(group)?;
        let bytes = match (usize::try_from(offset), usize::try_from(length)) {
            (Ok(offset), Ok(length)) => offset
                .checked_add(length)
                .and_then(|end| body.get(offset..end)),
            _ => None,
        };
        let bytes = bytes.ok_or(QueryError::Damaged(DecodeError::Unknown))?;
        codec::decode(bytes).map(Some).map_err(QueryError::Damaged)
    }

    fn body(&mut self, group: i64) -> Result<&[u8], QueryError> {
        if let Source::Segment { .. } = self.source {
            let body = self.frame.group(self.snapshot, group)?;
            return body.ok_or(QueryError::Damaged(DecodeError::Unknown));
        }
        let place = match self.last.iter().position(|(last, _)| *last == group) {
            Some(place) => place,
            None => {
                let mut select = self
                    .snapshot
                    .prepare_cached("SELECT body FROM entry_group WHERE first_sequence = ?1")?;
                let body = select.query_row([group], |row| row.get(0))?;
                self.last.truncate(MAX_GROUPS - 1);
                self.last.push_front((group, body));
                0
            }
        };
        Ok(&self.last[place].1)
    }
}
