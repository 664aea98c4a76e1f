//! Finding calls in groups.
//!
//! A row for each call costs more than the call itself, so rows are made when there is time, and by
//! whoever reads for what there has been no time for yet. Everything here can be made anew from the
//! groups, and is when its version is another than this program's.

mod rows;
mod sums;
mod tables;

use self::rows::{Place, Rows};
pub(crate) use self::sums::{Used, add_days, sum_up};
pub(crate) use self::tables::{
    CALL_COLUMNS, NOTE_COLUMNS, begin_after_archive, fault, is_current, lacks_state, prepare,
    tables,
};
use crate::record::codec::{self, DecodeError};
use rusqlite::Connection;
use std::error::Error;

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
        let last = rows.add_group(first, body)?;
        done += last.abs_diff(through);
        through = last;
        // Much may be indexed at one go, and not all of it must be in memory.
        if MAX_ROWS < rows.count() {
            std::mem::take(&mut rows).write(connection, target)?;
        }
    }
    rows.write(connection, target)?;
    Ok((through, false))
}

/// Indexes the starts of calls that had not ended when they were taken out into an archive.
fn index_carried(connection: &Connection) -> rusqlite::Result<()> {
    let mut select = connection.prepare_cached(
        "SELECT sequence, start_group, start_offset, entry FROM main.carried_start ORDER BY sequence",
    )?;
    let mut carried = select.query([])?;
    let mut rows = Rows::default();
    while let Some(row) = carried.next()? {
        let bytes = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
        let place = Place {
            sequence: row.get(0)?,
            group: row.get(1)?,
            offset: row.get(2)?,
            length: bytes.len() as i64,
        };
        // One that is damaged is missed by verification.
        if let Ok((call, event)) = codec::decode(bytes) {
            rows.add(call, event, place);
        }
    }
    rows.write(connection, Target::Ledger)
}

/// Indexes the groups of a segment, which are read one after the other.
pub(crate) fn index_segment(
    connection: &Connection,
    mut next: impl FnMut() -> Result<Option<(i64, Vec<u8>)>, IndexError>,
) -> Result<(), IndexError> {
    index_carried(connection)?;
    let mut rows = Rows::default();
    while let Some((first, body)) = next()? {
        rows.add_group(first, &body)?;
        if MAX_ROWS < rows.count() {
            std::mem::take(&mut rows).write(connection, Target::Ledger)?;
        }
    }
    rows.write(connection, Target::Ledger)?;
    // Calls that end later are in another segment.
    connection.execute("DELETE FROM call WHERE outcome IS NULL", [])?;
    Ok(())
}
