//! Index of the last entries, made by a reader where the ledger has none yet.

use crate::{
    query::QueryError,
    sqlite::index::{self, CALL_COLUMNS, NOTE_COLUMNS, Target},
};
use rusqlite::{Connection, Transaction};

/// End of a reader's own index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    through: i64,
    /// True if the ledger's index is of another version, so that the reader has made all of it anew
    /// in tables of the same names, which hide the ledger's.
    pub(super) hides_index: bool,
}

impl Tail {
    pub(super) fn new(connection: &Connection) -> rusqlite::Result<Self> {
        let hides_index = !index::is_current(connection)?;
        if hides_index {
            connection.execute_batch(&index::tables("temp"))?;
            index::begin_after_archive(connection, "temp")?;
        }
        connection.execute_batch(&format!(
            "CREATE TEMP TABLE tail_call ({CALL_COLUMNS}) STRICT;
             CREATE TEMP TABLE tail_note ({NOTE_COLUMNS}) STRICT;
             CREATE INDEX temp.tail_call_by_id ON tail_call (call);
             CREATE INDEX temp.tail_call_by_end ON tail_call (end_sequence);"
        ))?;
        Ok(Self {
            through: 0,
            hides_index,
        })
    }

    /// Indexes what has come since, and forgets what the ledger has indexed meanwhile.
    pub(super) fn catch_up(self, snapshot: &Transaction<'_>) -> Result<Self, QueryError> {
        let failed = |error: index::IndexError| QueryError::Store(error.boxed());
        let indexed = index::indexed_through(snapshot)?;
        if self.hides_index {
            let (through, _) =
                index::index(snapshot, Target::Ledger, indexed, u64::MAX).map_err(failed)?;
            snapshot.execute("UPDATE temp.indexed SET through = ?1", [through])?;
            return Ok(Self { through, ..self });
        }
        snapshot.execute(
            "DELETE FROM temp.tail_call
             WHERE end_sequence <= ?1 OR (end_sequence IS NULL AND start_sequence <= ?1)",
            [indexed],
        )?;
        snapshot.execute("DELETE FROM temp.tail_note WHERE sequence <= ?1", [indexed])?;
        let from = self.through.max(indexed);
        let (through, _) = index::index(snapshot, Target::Tail, from, u64::MAX).map_err(failed)?;
        Ok(Self { through, ..self })
    }
}
