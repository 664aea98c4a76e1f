use crate::{
    CallId, DecodeError, Digest, Ended, Event, Kind, OpenError, Started, codec,
    index::{self, Target},
    schema::{CALL_COLUMNS, open_to_read},
};
use rusqlite::{Connection, Row, ToSql, Transaction, params_from_iter};
use std::{error::Error, ops::Range, path::Path, time::Duration};
use uuid::Uuid;

/// Reads a ledger, also beside a server that writes to it. It blocks.
#[derive(Debug)]
pub struct LedgerReader {
    connection: Connection,
}

/// Which calls are asked for: those that meet every condition given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'a> {
    /// Of this principal.
    pub principal: Option<&'a str>,
    /// Of this capability, `kind/name`.
    pub capability: Option<&'a str>,
    /// That ended like this, as [`crate::Outcome::as_str`] names it.
    pub outcome: Option<&'a str>,
    /// This call.
    pub call: Option<CallId>,
    /// That began at this time or later: microseconds since the epoch, UTC.
    pub since_us: Option<u64>,
    /// That began before this time.
    pub until_us: Option<u64>,
    /// Whose start is before this place in the ledger: the `sequence` of the last call of a page
    /// gives the next page.
    pub before_sequence: Option<u64>,
}

/// A call, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Names it.
    pub call: CallId,
    /// The place of its start in the ledger.
    pub sequence: u64,
    /// How it began.
    pub started: Started,
    /// How it ended; `None` while it is open.
    pub ended: Option<Ended>,
}

/// What a principal used of a capability in one stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Who.
    pub principal: String,
    /// What kind of thing.
    pub kind: Kind,
    /// What, as `kind/name`.
    pub capability: String,
    /// When the last of the calls began: microseconds since the epoch, UTC.
    pub latest_us: u64,
    /// How many calls there were, without those that were refused.
    pub calls: u64,
    /// What they cost together; open ones at their estimates.
    pub cost_micros: u64,
}

/// How much is in a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries.
    pub entries: u64,
    /// Calls, refused ones included.
    pub calls: u64,
    /// Calls that have not ended.
    pub open_calls: u64,
}

/// A ledger cannot be queried.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The database failed, or an entry is damaged.
    #[error("the ledger cannot be read")]
    Store(#[source] Box<dyn Error + Send + Sync>),
    /// An entry is not where the index says.
    #[error("an entry of the ledger is damaged")]
    Damaged(#[source] DecodeError),
}

impl From<rusqlite::Error> for QueryError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(Box::new(error))
    }
}

/// What the ledger has indexed and what it has not, as one table.
const ALL_CALLS: &str = "(SELECT * FROM temp.tail_call UNION ALL SELECT * FROM main.call
    WHERE start_sequence NOT IN (SELECT start_sequence FROM temp.tail_call))";

impl LedgerReader {
    /// Opens the ledger at `path`.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when it is missing or not a ledger of a known version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        open_to_read(path.as_ref()).map(|connection| Self { connection })
    }

    /// The calls that began last, newest first, `limit` of them at most.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    pub fn recent(
        &mut self,
        limit: usize,
        filter: Filter<'_>,
    ) -> Result<Vec<CallRecord>, QueryError> {
        let snapshot = self.snapshot()?;
        let (condition, mut values) = filter.condition();
        values.push(Box::new(i64::try_from(limit).unwrap_or(i64::MAX)));
        let sql = format!(
            "SELECT * FROM {ALL_CALLS} WHERE {condition} ORDER BY start_sequence DESC LIMIT ?"
        );
        calls(&snapshot, &sql, values)
    }

    /// The calls that have begun and not ended, oldest first. In a ledger that no server writes to,
    /// a crash cut them short.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    pub fn open_calls(&mut self) -> Result<Vec<CallRecord>, QueryError> {
        let snapshot = self.snapshot()?;
        let sql =
            format!("SELECT * FROM {ALL_CALLS} WHERE outcome IS NULL ORDER BY start_sequence");
        calls(&snapshot, &sql, Vec::new())
    }

    /// What was used by calls that began in `range` (microseconds since the epoch, UTC), summed up
    /// for each principal, capability and stretch of `bucket`, in that order. Refused calls use
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    pub fn usage_between(
        &mut self,
        range: Range<u64>,
        bucket: Duration,
    ) -> Result<Vec<Usage>, QueryError> {
        let snapshot = self.snapshot()?;
        let sql = format!(
            "SELECT principal, kind, capability, max(started_us), count(*),
                sum(CASE WHEN outcome IS NULL THEN estimated_cost_micros ELSE cost_micros END)
             FROM {ALL_CALLS}
             WHERE started_us >= ?1 AND started_us < ?2
                AND (outcome IS NULL OR outcome <> 'denied')
             GROUP BY principal, kind, capability, started_us / ?3
             ORDER BY principal, kind, capability, started_us / ?3"
        );
        let bucket_us = i64::try_from(bucket.as_micros()).unwrap_or(i64::MAX).max(1);
        let mut select = snapshot.prepare(&sql)?;
        let rows =
            select.query_map((signed(range.start), signed(range.end), bucket_us), |row| {
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

    /// What was used since `since_us`, as [`LedgerReader::usage_between`] has it.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    pub fn usage_since(
        &mut self,
        since_us: u64,
        bucket: Duration,
    ) -> Result<Vec<Usage>, QueryError> {
        self.usage_between(since_us..u64::MAX, bucket)
    }

    /// How much there is.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    pub fn count(&mut self) -> Result<Counts, QueryError> {
        let snapshot = self.snapshot()?;
        let sql = format!(
            "SELECT (SELECT coalesce(sum(count), 0) FROM entry_group), count(*),
                count(*) FILTER (WHERE outcome IS NULL) FROM {ALL_CALLS}"
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

    /// Where the ledger ends: the hash of its last entry covers all before it.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    pub fn last_hash(&mut self) -> Result<Option<Digest>, QueryError> {
        let mut select = self
            .connection
            .prepare("SELECT hash FROM entry_group ORDER BY first_sequence DESC LIMIT 1")?;
        let mut hashes = select.query_map([], |row| row.get(0))?;
        Ok(hashes.next().transpose()?)
    }

    /// The ledger as it is now, with an index to what it has not indexed itself. Both are gone when
    /// the transaction is dropped.
    fn snapshot(&mut self) -> Result<Transaction<'_>, QueryError> {
        let snapshot = self.connection.transaction()?;
        snapshot.execute_batch(&format!(
            "CREATE TEMP TABLE tail_call ({CALL_COLUMNS}) STRICT;
             CREATE INDEX temp.tail_call_by_id ON tail_call (call);"
        ))?;
        let from = index::indexed_through(&snapshot)?;
        index::index(&snapshot, Target::Reader, from, u64::MAX)
            .map_err(|error| QueryError::Store(error.boxed()))?;
        Ok(snapshot)
    }
}

impl Filter<'_> {
    fn condition(&self) -> (String, Vec<Box<dyn ToSql>>) {
        let mut condition = String::from("true");
        let mut values: Vec<Box<dyn ToSql>> = Vec::new();
        let texts = [
            (" AND principal = ?", self.principal),
            (" AND capability = ?", self.capability),
            (" AND outcome = ?", self.outcome),
        ];
        for (clause, text) in texts {
            if let Some(text) = text {
                condition.push_str(clause);
                values.push(Box::new(text.to_owned()));
            }
        }
        let numbers = [
            (" AND started_us >= ?", self.since_us),
            (" AND started_us < ?", self.until_us),
            (" AND start_sequence < ?", self.before_sequence),
        ];
        for (clause, number) in numbers {
            if let Some(number) = number {
                condition.push_str(clause);
                values.push(Box::new(signed(number)));
            }
        }
        if let Some(call) = self.call {
            condition.push_str(" AND call = ?");
            values.push(Box::new(call.0.as_bytes().to_vec()));
        }
        (condition, values)
    }
}

fn calls(
    snapshot: &Transaction<'_>,
    sql: &str,
    values: Vec<Box<dyn ToSql>>,
) -> Result<Vec<CallRecord>, QueryError> {
    let mut select = snapshot.prepare(sql)?;
    let mut rows = select.query(params_from_iter(values))?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let started = match entry(
            snapshot,
            row,
            ["start_group", "start_offset", "start_length"],
        )? {
            Some(Event::Started(started)) => started,
            _ => return Err(QueryError::Damaged(DecodeError::Unknown)),
        };
        let ended = match entry(snapshot, row, ["end_group", "end_offset", "end_length"])? {
            None => None,
            Some(Event::Ended(ended)) => Some(ended),
            Some(Event::Started(_)) => return Err(QueryError::Damaged(DecodeError::Unknown)),
        };
        records.push(CallRecord {
            call: CallId(Uuid::from_bytes(row.get("call")?)),
            sequence: row.get::<_, i64>("start_sequence")?.unsigned_abs(),
            started,
            ended,
        });
    }
    Ok(records)
}

/// Reads the entry at the place that these columns name, if they name one.
fn entry(
    snapshot: &Transaction<'_>,
    row: &Row<'_>,
    [group, offset, length]: [&str; 3],
) -> Result<Option<Event>, QueryError> {
    let Some(group) = row.get::<_, Option<i64>>(group)? else {
        return Ok(None);
    };
    let mut select = snapshot.prepare_cached(
        "SELECT substr(body, ?2 + 1, ?3) FROM entry_group WHERE first_sequence = ?1",
    )?;
    let (offset, length) = (row.get::<_, i64>(offset)?, row.get::<_, i64>(length)?);
    let bytes: Vec<u8> = select.query_row((group, offset, length), |row| row.get(0))?;
    let (_, event) = codec::decode(&bytes).map_err(QueryError::Damaged)?;
    Ok(Some(event))
}

fn kind(name: &str) -> Kind {
    [Kind::Tool, Kind::Resource]
        .into_iter()
        .find(|kind| kind.as_str() == name)
        .unwrap_or(Kind::Other)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
