//! Finding calls in groups.
//!
//! A row for each call costs more than the call itself, so rows are made when there is time, and by
//! whoever reads for what there has been no time for yet. Everything here can be made anew from the
//! groups, and is when its version is another than this program's.

mod rows;
mod sums;
mod tables;

use self::rows::{Place, Rows};
pub(crate) use self::tables::{CALL_COLUMNS, NOTE_COLUMNS, is_current, prepare, tables};
pub(crate) use self::{rows::reason, sums::Used};
use crate::record::codec::{self, DecodeError};
use rusqlite::Connection;
use std::error::Error;

/// Larger numbers are indexed as this one, so that sums do not overflow; the entries have the
/// numbers as they are.
pub(crate) const MAX_INDEXED: u64 = 1 << 52;

/// Rows that are gathered before they are written.
const MAX_ROWS: usize = 4096;

/// The tables that rows are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Index tables of the ledger.
    Ledger,
    /// `temp.tail_…`, which belong to a reader and have what the ledger's do not have yet.
    Tail,
}

/// Reason why groups cannot be indexed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IndexError {
    #[error("the ledger's database failed")]
    Database(#[from] rusqlite::Error),
    #[error("the entry {sequence} of the ledger is damaged")]
    Damaged {
        sequence: i64,
        #[source]
        source: DecodeError,
    },
}

impl IndexError {
    pub(crate) fn boxed(self) -> Box<dyn Error + Send + Sync> {
        match self {
            Self::Database(error) => Box::new(error),
            damaged @ Self::Damaged { .. } => Box::new(damaged),
        }
    }
}

/// Sequence of the last indexed entry.
pub(crate) fn indexed_through(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT through FROM indexed", [], |row| row.get(0))
}

/// Returns true if there are entries that the index does not have.
pub(crate) fn is_behind(connection: &Connection) -> rusqlite::Result<bool> {
    let mut select = connection.prepare_cached(
        "SELECT coalesce((SELECT first_sequence + count - 1 FROM entry_group
            ORDER BY first_sequence DESC LIMIT 1), 0) > through FROM indexed",
    )?;
    select.query_row([], |row| row.get(0))
}

/// Indexes groups after `through`, whole ones, until at least `max_entries` have been. Tells how
/// far it came and whether there is more.
pub(crate) fn index(
    connection: &Connection,
    target: Target,
    mut through: i64,
    max_entries: u64,
) -> Result<(i64, bool), IndexError> {
    let mut select = connection.prepare_cached(
        "SELECT first_sequence, body FROM entry_group WHERE first_sequence > ?1
         ORDER BY first_sequence",
    )?;
    let mut groups = select.query([through])?;
    let mut done: u64 = 0;
    let mut rows = Rows::default();
    while let Some(group) = groups.next()? {
        if max_entries <= done {
            rows.write(connection, target)?;
            return Ok((through, true));
        }
        let first: i64 = group.get(0)?;
        let body = group.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        for (sequence, entry) in (first..).zip(codec::split(body)) {
            let damaged = |source| IndexError::Damaged { sequence, source };
            let (offset, bytes) = entry.map_err(damaged)?;
            let (call, event) = codec::decode(bytes).map_err(damaged)?;
            let place = Place {
                sequence,
                group: first,
                offset: offset as i64,
                length: bytes.len() as i64,
            };
            rows.add(call, event, place);
            through = sequence;
            done += 1;
        }
        // Much may be indexed at one go, and not all of it must be in memory.
        if MAX_ROWS < rows.count() {
            std::mem::take(&mut rows).write(connection, target)?;
        }
    }
    rows.write(connection, target)?;
    Ok((through, false))
}
