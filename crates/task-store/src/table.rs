//! What is asked of the table of tasks. Each function is part of a transaction.

use crate::{
    CreateError, LimitKind, MAX_LISTED, TaskId, TaskLimits, TaskRecord, TaskState,
    record::RecordError,
};
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};

/// The columns of a record, as `record` reads them.
macro_rules! columns {
    ($text:literal) => {
        concat!(
            "id, principal, capability, protocol_version, created_us, updated_us, expires_us,
             sequence, state, is_error, message, ",
            $text
        )
    };
}

/// Adds a task that has passed [`TaskRecord::check_first`].
pub(crate) fn create(
    connection: &Connection,
    task: &TaskRecord,
    limits: TaskLimits,
) -> rusqlite::Result<Result<(), CreateError>> {
    if let Some(known) = get(connection, &task.id)? {
        return Ok(match known == *task {
            true => Ok(()),
            false => Err(RecordError::Taken.into()),
        });
    }
    // Rows are counted up to the limits and no further, so these bound what it costs.
    let (now, max) = (signed(task.created_us), limits.max_per_principal);
    let sql = "SELECT count(*) FROM
               (SELECT 1 FROM task WHERE principal = ?1 AND ?2 < expires_us LIMIT ?3)";
    let of_principal: i64 = connection
        .prepare_cached(sql)?
        .query_row(params![task.principal, now, count(max)], |row| row.get(0))?;
    if count(max) <= of_principal {
        let what = LimitKind::PerPrincipal;
        return Ok(Err(CreateError::TooMany { max, what }));
    }
    let max = limits.max_total;
    let sql = "SELECT count(*) FROM (SELECT 1 FROM task WHERE ?1 < expires_us LIMIT ?2)";
    let in_all: i64 = connection
        .prepare_cached(sql)?
        .query_row(params![now, count(max)], |row| row.get(0))?;
    if count(max) <= in_all {
        let what = LimitKind::Total;
        return Ok(Err(CreateError::TooMany { max, what }));
    }
    let sql = "INSERT INTO task VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    connection.prepare_cached(sql)?.execute(params![
        task.id.as_str(),
        task.principal,
        task.capability,
        task.protocol_version,
        signed(task.created_us),
        signed(task.updated_us),
        signed(task.expires_us),
        signed(task.sequence),
        task.state.name(),
        is_error(&task.state),
        task.message,
        task.state.text(),
    ])?;
    Ok(Ok(()))
}

pub(crate) fn get(connection: &Connection, id: &TaskId) -> rusqlite::Result<Option<TaskRecord>> {
    connection
        .prepare_cached(concat!(
            "SELECT ",
            columns!("text"),
            " FROM task WHERE id = ?1"
        ))?
        .query_row([id.as_str()], record)
        .optional()
}

/// Makes the next step of a task that has passed [`TaskRecord::check`].
pub(crate) fn update(connection: &Connection, task: &TaskRecord) -> rusqlite::Result<bool> {
    let sql = "UPDATE task SET updated_us = ?6, expires_us = ?7, sequence = ?8, state = ?9,
                               is_error = ?10, message = ?11, text = ?12
               WHERE id = ?1 AND principal = ?2 AND capability = ?3 AND protocol_version = ?4
                 AND created_us = ?5 AND sequence = ?8 - 1
                 AND state IN ('working', 'input_required')";
    let changed = connection.prepare_cached(sql)?.execute(params![
        task.id.as_str(),
        task.principal,
        task.capability,
        task.protocol_version,
        signed(task.created_us),
        signed(task.updated_us),
        signed(task.expires_us),
        signed(task.sequence),
        task.state.name(),
        is_error(&task.state),
        task.message,
        task.state.text(),
    ])?;
    Ok(changed != 0 || get(connection, &task.id)?.as_ref() == Some(task))
}

pub(crate) fn list(
    connection: &Connection,
    principal: &str,
    protocol_version: &str,
    after: Option<&(u64, TaskId)>,
    most: usize,
) -> rusqlite::Result<Vec<TaskRecord>> {
    // Nothing stored is that late: everything comes after it.
    let after = after.filter(|(created_us, _)| i64::try_from(*created_us).is_ok());
    let (created_us, id) = match after {
        Some((created_us, id)) => (signed(*created_us), id.as_str()),
        // A name begins with an ASCII character.
        None => (i64::MAX, "\u{7f}"),
    };
    connection
        .prepare_cached(concat!(
            "SELECT ",
            columns!("''"),
            " FROM task
             WHERE principal = ?1 AND protocol_version = ?2 AND (created_us, id) < (?3, ?4)
             ORDER BY created_us DESC, id DESC LIMIT ?5"
        ))?
        .query_map(
            params![
                principal,
                protocol_version,
                created_us,
                id,
                count(most.min(MAX_LISTED))
            ],
            record,
        )?
        .collect()
}

pub(crate) fn remove(connection: &Connection, id: &TaskId) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM task WHERE id = ?1")?
        .execute([id.as_str()])?;
    Ok(())
}

/// Removes up to `most` of what has expired by `now_us`; tells how many that were.
pub(crate) fn remove_expired(
    connection: &Connection,
    now_us: u64,
    most: usize,
) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM task WHERE rowid IN
               (SELECT rowid FROM task WHERE expires_us <= ?1 LIMIT ?2)";
    connection
        .prepare_cached(sql)?
        .execute(params![signed(now_us), count(most)])
}

pub(crate) fn unfinished(connection: &Connection) -> rusqlite::Result<Vec<TaskRecord>> {
    connection
        .prepare(concat!(
            "SELECT ",
            columns!("text"),
            " FROM task WHERE state IN ('working', 'input_required') ORDER BY created_us, id"
        ))?
        .query_map([], record)?
        .collect()
}

fn record(row: &Row<'_>) -> rusqlite::Result<TaskRecord> {
    let id: String = row.get(0)?;
    Ok(TaskRecord {
        id: id.parse().map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
        })?,
        principal: row.get(1)?,
        capability: row.get(2)?,
        protocol_version: row.get(3)?,
        created_us: unsigned(row, 4)?,
        updated_us: unsigned(row, 5)?,
        expires_us: unsigned(row, 6)?,
        sequence: unsigned(row, 7)?,
        state: state(row)?,
        message: row.get(10)?,
    })
}

fn state(row: &Row<'_>) -> rusqlite::Result<TaskState> {
    let name: String = row.get(8)?;
    Ok(match name.as_str() {
        "working" => TaskState::Working,
        "input_required" => TaskState::InputRequired {
            requests: row.get(11)?,
        },
        "completed" => TaskState::Completed {
            result: row.get(11)?,
            is_error: row.get(9)?,
        },
        "failed" => TaskState::Failed {
            error: row.get(11)?,
        },
        "cancelled" => TaskState::Cancelled,
        _ => {
            let unknown = format!("a task has the unknown state {name:?}");
            return Err(rusqlite::Error::FromSqlConversionFailure(
                8,
                Type::Text,
                unknown.into(),
            ));
        }
    })
}

fn is_error(state: &TaskState) -> bool {
    matches!(state, TaskState::Completed { is_error: true, .. })
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

/// Numbers of records have been checked; what else is compared with them may be larger than all.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A bound that no count of rows can reach is as good as a larger one.
fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
