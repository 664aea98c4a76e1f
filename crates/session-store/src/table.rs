//! Queries of the table of sessions. Each function is part of a transaction.

use crate::{SessionRecord, waiting::Change};
use rusqlite::{Connection, Row, params};

/// The most sessions that are read.
const MAX_READ: i64 = 1_000_000;

/// All sessions, the last used one first.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<SessionRecord>> {
    connection
        .prepare(
            "SELECT id, principal, lives, last_used_ms, state FROM session
             ORDER BY last_used_ms DESC LIMIT ?1",
        )?
        .query_map([MAX_READ], record)?
        .collect()
}

pub(crate) fn change(connection: &Connection, id: &str, change: &Change) -> rusqlite::Result<()> {
    match change {
        Change::Put(session) => connection
            .prepare_cached("INSERT OR REPLACE INTO session VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![
                session.id,
                session.principal,
                session.lives,
                signed(session.last_used_ms),
                session.state,
            ])?,
        Change::Touch(last_used_ms) => connection
            .prepare_cached("UPDATE session SET last_used_ms = ?2 WHERE id = ?1")?
            .execute(params![id, signed(*last_used_ms)])?,
        Change::Remove => connection
            .prepare_cached("DELETE FROM session WHERE id = ?1")?
            .execute([id])?,
    };
    Ok(())
}

pub(crate) fn forget_all(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM session", [])?;
    Ok(())
}

fn record(row: &Row<'_>) -> rusqlite::Result<SessionRecord> {
    let (lives, last_used_ms): (i64, i64) = (row.get(2)?, row.get(3)?);
    Ok(SessionRecord {
        id: row.get(0)?,
        principal: row.get(1)?,
        state: row.get(4)?,
        lives: u32::try_from(lives)
            .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(2, lives))?,
        last_used_ms: u64::try_from(last_used_ms)
            .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(3, last_used_ms))?,
    })
}

/// No clock shows so late a time.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
