//! Queries of the table of tasks. Each function is part of a transaction.

use crate::{
    Begun, Claimed, CreateError, Lapsed, Lease, LimitKind, MAX_LISTED, Overseen, Run, TaskId,
    TaskLimits, TaskRecord, TaskState, record::RecordError,
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
    begun: &Begun,
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
    if !task.state.is_terminal() {
        let sql = "INSERT INTO task_run VALUES (?1, 1, ?2, ?3)";
        connection.prepare_cached(sql)?.execute(params![
            task.id.as_str(),
            begun.lease.owner,
            signed(begun.lease.until_us),
        ])?;
        if let Some(call) = &begun.call {
            connection
                .prepare_cached("INSERT INTO task_call VALUES (?1, ?2)")?
                .execute(params![task.id.as_str(), call])?;
        }
    }
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

/// Makes the next step of a task that has passed [`TaskRecord::check`], or has made it already.
pub(crate) fn update(connection: &Connection, task: &TaskRecord) -> rusqlite::Result<bool> {
    Ok(step(connection, task)? || get(connection, &task.id)?.as_ref() == Some(task))
}

fn step(connection: &Connection, task: &TaskRecord) -> rusqlite::Result<bool> {
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
    Ok(changed != 0)
}

/// Gives a task that has passed [`TaskRecord::check_claim`] to the owner of `lease`.
pub(crate) fn claim(
    connection: &Connection,
    task: &TaskRecord,
    lease: &Lease,
    now_us: u64,
) -> rusqlite::Result<Option<Claimed>> {
    let id = task.id.as_str();
    let sql = "SELECT attempt, owner, lease_until_us <= ?2 FROM task_run WHERE id = ?1";
    let known = connection
        .prepare_cached(sql)?
        .query_row(params![id, signed(now_us)], |row| {
            Ok((unsigned(row, 0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let Some((attempt, owner, is_free)): Option<(u64, String, bool)> = known else {
        return Ok(None);
    };
    let attempt = if is_free && step(connection, task)? {
        let sql = "UPDATE task_run SET attempt = ?2, owner = ?3, lease_until_us = ?4 WHERE id = ?1";
        connection.prepare_cached(sql)?.execute(params![
            id,
            signed(attempt + 1),
            lease.owner,
            signed(lease.until_us)
        ])?;
        attempt + 1
    } else if owner == lease.owner && get(connection, &task.id)?.as_ref() == Some(task) {
        attempt
    } else {
        return Ok(None);
    };
    let call = connection
        .prepare_cached("SELECT call FROM task_call WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    Ok(Some(Claimed { attempt, call }))
}

/// Replaces what it takes to go on with a task that is not over.
pub(crate) fn keep_call(connection: &Connection, id: &TaskId, call: &str) -> rusqlite::Result<()> {
    let sql = "INSERT INTO task_call SELECT id, ?2 FROM task_run WHERE id = ?1
               ON CONFLICT (id) DO UPDATE SET call = excluded.call";
    let id = id.as_str();
    connection.prepare_cached(sql)?.execute(params![id, call])?;
    Ok(())
}

pub(crate) fn renew(connection: &Connection, lease: &Lease) -> rusqlite::Result<Vec<TaskId>> {
    connection
        .prepare_cached("UPDATE task_run SET lease_until_us = ?2 WHERE owner = ?1 RETURNING id")?
        .query_map(params![lease.owner, signed(lease.until_us)], id)?
        .collect()
}

/// Ends all leases.
pub(crate) fn free_all(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("UPDATE task_run SET lease_until_us = 0", [])?;
    Ok(())
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

pub(crate) fn oversee(
    connection: &Connection,
    now_us: u64,
    after: Option<&(u64, TaskId)>,
    most: usize,
) -> rusqlite::Result<Vec<Overseen>> {
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
            ", owner, attempt, max(lease_until_us - ?4, 0)
             FROM task LEFT JOIN task_run USING (id)
             WHERE (created_us, id) < (?1, ?2) ORDER BY created_us DESC, id DESC LIMIT ?3"
        ))?
        .query_map(
            params![created_us, id, count(most.min(MAX_LISTED)), signed(now_us)],
            |row| {
                let owner: Option<String> = row.get(12)?;
                let run = owner.map(|owner| {
                    Ok::<_, rusqlite::Error>(Run {
                        owner,
                        attempt: unsigned(row, 13)?,
                        left_us: unsigned(row, 14)?,
                    })
                });
                Ok(Overseen {
                    record: record(row)?,
                    run: run.transpose()?,
                })
            },
        )?
        .collect()
}

pub(crate) fn remove(connection: &Connection, id: &TaskId) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM task WHERE id = ?1")?
        .execute([id.as_str()])?;
    Ok(())
}

/// Removes up to `most` records that have expired by `now_us`; returns their number.
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

pub(crate) fn lapsed(connection: &Connection, now_us: u64) -> rusqlite::Result<Vec<Lapsed>> {
    connection
        .prepare_cached(concat!(
            "SELECT ",
            columns!("text"),
            ", attempt, EXISTS (SELECT 1 FROM task_call WHERE task_call.id = task.id)
             FROM task JOIN task_run USING (id)
             WHERE lease_until_us <= ?1 ORDER BY created_us, id"
        ))?
        .query_map([signed(now_us)], |row| {
            Ok(Lapsed {
                record: record(row)?,
                attempt: unsigned(row, 12)?,
                has_call: row.get(13)?,
            })
        })?
        .collect()
}

/// The name in the first column.
fn id(row: &Row<'_>) -> rusqlite::Result<TaskId> {
    let id: String = row.get(0)?;
    id.parse()
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))
}

fn record(row: &Row<'_>) -> rusqlite::Result<TaskRecord> {
    Ok(TaskRecord {
        id: id(row)?,
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
