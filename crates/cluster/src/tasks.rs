//! Tasks that all servers have.

use crate::{
    database::{Cluster, TimeSource, Values},
    error::Failed,
    news::News,
};
use futures_util::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use std::time::{SystemTime, UNIX_EPOCH};
use task_store::{
    Begun, Claimed, CreateError, Lapsed, Lease, LimitKind, MAX_LISTED, Overseen, RecordError, Run,
    SharedTasks, StoreError, TaskId, TaskLimits, TaskNews, TaskRecord, TaskState, TaskStore,
};
use tokio::sync::broadcast::error::RecvError;
use tokio_postgres::{Row, types::ToSql};

/// The most expired records that are removed at one go.
const MAX_REMOVED_AT_ONCE: i64 = 64;

/// The columns of a record, as `record` reads them.
macro_rules! columns {
    ($text:literal) => {
        concat!(
            "task.id, principal, capability, protocol_version, created_us, updated_us, expires_us,
             sequence, state, is_error, message, ",
            $text
        )
    };
}

/// A record as the first twelve values of a statement.
macro_rules! given {
    () => {
        "ROW($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)::owlclaw_cluster.task"
    };
}

/// A store in PostgreSQL, which several servers have open.
///
/// Leases are given for a time, and their ends go by the database's clock ([`TimeSource::Database`]): of a
/// [`Lease`] only counts how far its end is from now. One that is not in the future gives the task up, to
/// whoever asks next. Of what has lapsed otherwise, nothing is told while this server could not reach the
/// database for as long as a lease lasts.
#[derive(Debug)]
pub struct PostgresTaskStore(Cluster);

impl Cluster {
    /// Tasks that all servers have.
    #[must_use]
    pub fn tasks(&self) -> PostgresTaskStore {
        PostgresTaskStore(self.clone())
    }
}

impl PostgresTaskStore {
    fn by_database(&self) -> bool {
        self.0.shared.options.time == TimeSource::Database
    }

    /// A lease as the functions of the database take it.
    fn lease(&self, lease: &Lease) -> i64 {
        let until = signed(lease.until_us);
        match self.by_database() {
            true => until.saturating_sub(now_us()),
            false => until,
        }
    }

    async fn query(&self, sql: &'static str, values: Values<'_>) -> Result<Vec<Row>, StoreError> {
        self.0.shared.query(sql, values).await.map_err(store_error)
    }

    async fn query_opt(
        &self,
        sql: &'static str,
        values: Values<'_>,
    ) -> Result<Option<Row>, StoreError> {
        let row = self.0.shared.query_opt(sql, values).await;
        row.map_err(store_error)
    }

    async fn get_now(&self, id: &TaskId) -> Result<Option<TaskRecord>, StoreError> {
        let sql = concat!(
            "SELECT ",
            columns!("text"),
            " FROM owlclaw_cluster.task WHERE id = $1"
        );
        let row = self.query_opt(sql, &[&id.as_str()]).await?;
        row.as_ref().map(record).transpose().map_err(store_error)
    }

    async fn records<T>(
        &self,
        sql: &'static str,
        values: Values<'_>,
        read: impl Fn(&Row) -> Result<T, Failed>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.query(sql, values).await?;
        rows.iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(store_error)
    }
}

impl TaskStore for PostgresTaskStore {
    fn create(
        &self,
        task: TaskRecord,
        begun: Begun,
        limits: TaskLimits,
    ) -> BoxFuture<'_, Result<(), CreateError>> {
        async move {
            task.check_first(&begun)?;
            let sql = concat!(
                "SELECT owlclaw_cluster.create_task(",
                given!(),
                ", $13, $14, $15, $16, $17, $18)"
            );
            let of_principal = count(limits.max_per_principal);
            let total = count(limits.max_total);
            let columns = Columns::of(&task);
            let (lease, call) = (self.lease(&begun.lease), begun.call.as_deref());
            let call = call.map(str::as_bytes);
            let by_database = self.by_database();
            let more: [&(dyn ToSql + Sync); 6] = [
                &begun.lease.owner,
                &lease,
                &by_database,
                &call,
                &of_principal,
                &total,
            ];
            let row = self.query_opt(sql, &columns.with(&more)).await?;
            let said = row.and_then(|row| row.try_get(0).ok());
            match said {
                Some(0) => Ok(()),
                Some(1) => Err(RecordError::Taken.into()),
                Some(2) => Err(CreateError::TooMany {
                    max: limits.max_per_principal,
                    what: LimitKind::PerPrincipal,
                }),
                Some(3) => Err(CreateError::TooMany {
                    max: limits.max_total,
                    what: LimitKind::Total,
                }),
                Some(4..) | Some(..0) | None => {
                    Err(store_error(Failed::Row("what came of a new task")).into())
                }
            }
        }
        .boxed()
    }

    fn get(&self, id: TaskId) -> BoxFuture<'_, Result<Option<TaskRecord>, StoreError>> {
        async move { self.get_now(&id).await }.boxed()
    }

    fn update(&self, task: TaskRecord) -> BoxFuture<'_, Result<bool, StoreError>> {
        async move {
            task.check()?;
            let sql = "UPDATE owlclaw_cluster.task
                SET updated_us = $6, expires_us = $7, sequence = $8, state = $9, is_error = $10,
                    message = $11, text = $12
                WHERE id = $1 AND principal = $2 AND capability = $3 AND protocol_version = $4
                    AND created_us = $5 AND sequence = $8::bigint - 1
                    AND state IN ('working', 'input_required')
                RETURNING 1";
            let columns = Columns::of(&task);
            let changed = self.query_opt(sql, &columns.with(&[])).await?;
            // It may have been made before, by an attempt whose answer was lost.
            Ok(changed.is_some() || self.get_now(&task.id).await?.as_ref() == Some(&task))
        }
        .boxed()
    }

    fn list(
        &self,
        principal: String,
        protocol_version: String,
        after: Option<(u64, TaskId)>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<TaskRecord>, StoreError>> {
        async move {
            // Nothing stored is that late: everything comes after it.
            let after = after.filter(|(created_us, _)| i64::try_from(*created_us).is_ok());
            let (created_us, id) = match &after {
                Some((created_us, id)) => (signed(*created_us), id.as_str()),
                // A name begins with an ASCII character.
                None => (i64::MAX, "\u{7f}"),
            };
            let most = count(most.min(MAX_LISTED));
            let sql = concat!(
                "SELECT ",
                columns!("''::bytea"),
                " FROM owlclaw_cluster.task
                 WHERE principal = $1 AND protocol_version = $2 AND (created_us, id) < ($3, $4)
                 ORDER BY created_us DESC, id DESC LIMIT $5"
            );
            let values: Values<'_> = &[&principal, &protocol_version, &created_us, &id, &most];
            self.records(sql, values, record).await
        }
        .boxed()
    }

    fn oversee(
        &self,
        now_us: u64,
        after: Option<(u64, TaskId)>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<Overseen>, StoreError>> {
        async move {
            let after = after.filter(|(created_us, _)| i64::try_from(*created_us).is_ok());
            let (created_us, id) = match &after {
                Some((created_us, id)) => (signed(*created_us), id.as_str()),
                // A name begins with an ASCII character.
                None => (i64::MAX, "\u{7f}"),
            };
            let most = count(most.min(MAX_LISTED));
            let sql = concat!(
                "SELECT ",
                columns!("''::bytea"),
                ", owner, attempt,
                    greatest(lease_until_us - CASE WHEN $4 THEN owlclaw_cluster.now_us() ELSE $5 END, 0)
                 FROM owlclaw_cluster.task LEFT JOIN owlclaw_cluster.task_run USING (id)
                 WHERE (created_us, task.id) < ($1, $2)
                 ORDER BY created_us DESC, task.id DESC LIMIT $3"
            );
            let (by_database, now_us) = (self.by_database(), signed(now_us));
            let values: Values<'_> = &[&created_us, &id, &most, &by_database, &now_us];
            self.records(sql, values, |row| {
                let owner: Option<String> = row.try_get(12)?;
                let run = owner.map(|owner| {
                    Ok::<_, Failed>(Run {
                        owner,
                        attempt: unsigned(row, 13)?,
                        left_us: unsigned(row, 14)?,
                    })
                });
                Ok(Overseen {
                    record: record(row)?,
                    run: run.transpose()?,
                })
            })
            .await
        }
        .boxed()
    }

    fn remove(&self, id: TaskId) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let sql = "DELETE FROM owlclaw_cluster.task WHERE id = $1";
            self.query(sql, &[&id.as_str()]).await.map(drop)
        }
        .boxed()
    }

    fn remove_expired(&self, now_us: u64) -> BoxFuture<'_, Result<usize, StoreError>> {
        async move {
            let sql = "DELETE FROM owlclaw_cluster.task WHERE id IN
                (SELECT id FROM owlclaw_cluster.task WHERE expires_us <= $1 LIMIT $2
                 FOR UPDATE SKIP LOCKED)
                RETURNING 1";
            let mut removed = 0;
            loop {
                let now: Values<'_> = &[&signed(now_us), &MAX_REMOVED_AT_ONCE];
                let now = self.query(sql, now).await?.len();
                removed += now;
                if count(now) < MAX_REMOVED_AT_ONCE {
                    return Ok(removed);
                }
            }
        }
        .boxed()
    }

    fn lapsed(&self, now_us: u64) -> BoxFuture<'_, Result<Vec<Lapsed>, StoreError>> {
        async move {
            let sql = concat!(
                "SELECT ",
                columns!("text"),
                ", attempt,
                    EXISTS (SELECT 1 FROM owlclaw_cluster.task_call WHERE task_call.id = task.id)
                 FROM owlclaw_cluster.task JOIN owlclaw_cluster.task_run USING (id)
                 WHERE lease_until_us <= CASE WHEN $2 THEN owlclaw_cluster.now_us() ELSE $1 END
                    AND (lease_until_us = 0 OR $3)
                 ORDER BY created_us, task.id"
            );
            let by_database = self.by_database();
            let may_judge = self.0.shared.may_judge();
            let values: Values<'_> = &[&signed(now_us), &by_database, &may_judge];
            self.records(sql, values, |row| {
                Ok(Lapsed {
                    record: record(row)?,
                    attempt: unsigned(row, 12)?,
                    has_call: row.try_get(13)?,
                })
            })
            .await
        }
        .boxed()
    }

    fn claim(
        &self,
        task: TaskRecord,
        lease: Lease,
        now_us: u64,
    ) -> BoxFuture<'_, Result<Option<Claimed>, StoreError>> {
        async move {
            task.check_claim(&lease)?;
            let sql = concat!(
                "SELECT attempts, stored_call FROM owlclaw_cluster.claim_task(",
                given!(),
                ", $13, $14, $15, $16)"
            );
            let columns = Columns::of(&task);
            let (until, by_database) = (self.lease(&lease), self.by_database());
            let now_us = signed(now_us);
            let more: [&(dyn ToSql + Sync); 4] = [&lease.owner, &until, &by_database, &now_us];
            let Some(row) = self.query_opt(sql, &columns.with(&more)).await? else {
                return Ok(None);
            };
            let call = || {
                let call = row.try_get::<_, Option<Vec<u8>>>(1)?;
                let call = call.map(text).transpose()?;
                let attempt = unsigned(&row, 0)?;
                Ok(Some(Claimed { attempt, call }))
            };
            call().map_err(store_error)
        }
        .boxed()
    }

    fn keep_call(&self, id: TaskId, call: String) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let sql = "INSERT INTO owlclaw_cluster.task_call
                SELECT id, $2::bytea FROM owlclaw_cluster.task_run WHERE id = $1
                ON CONFLICT (id) DO UPDATE SET call = excluded.call";
            let values: Values<'_> = &[&id.as_str(), &call.as_bytes()];
            self.query(sql, values).await.map(drop)
        }
        .boxed()
    }

    fn renew(&self, lease: Lease) -> BoxFuture<'_, Result<Vec<TaskId>, StoreError>> {
        async move {
            let sql = "UPDATE owlclaw_cluster.task_run
                SET lease_until_us = owlclaw_cluster.lease_end($2, $3)
                WHERE owner = $1 RETURNING id";
            let (until, by_database) = (self.lease(&lease), self.by_database());
            let values: Values<'_> = &[&lease.owner, &until, &by_database];
            self.records(sql, values, |row| id(row, 0)).await
        }
        .boxed()
    }

    fn shared(&self) -> Option<&dyn SharedTasks> {
        Some(self)
    }
}

impl SharedTasks for PostgresTaskStore {
    fn show(&self, task: TaskRecord) -> BoxFuture<'_, Result<bool, StoreError>> {
        async move {
            task.check()?;
            let sql = "UPDATE owlclaw_cluster.task
                SET updated_us = $3, state = $4, message = $5, text = $6
                WHERE id = $1 AND sequence = $2 AND state IN ('working', 'input_required')
                RETURNING 1";
            let columns = Columns::of(&task);
            let values: Values<'_> = &[
                &columns.id,
                &columns.sequence,
                &columns.updated_us,
                &columns.state,
                &columns.message,
                &columns.text,
            ];
            Ok(self.query_opt(sql, values).await?.is_some())
        }
        .boxed()
    }

    fn hand_over(
        &self,
        id: TaskId,
        answers: String,
        max_bytes: usize,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        async move {
            // Only what is asked can be answered, and what waits has a bound.
            let sql = "WITH added AS (
                    INSERT INTO owlclaw_cluster.task_answer (id, answers)
                    SELECT id, $2::bytea FROM owlclaw_cluster.task JOIN owlclaw_cluster.task_run USING (id)
                    WHERE id = $1 AND state = 'input_required'
                        AND (SELECT coalesce(sum(length(answers)), 0) FROM owlclaw_cluster.task_answer
                             WHERE task_answer.id = $1) + length($2::bytea) <= $3::bigint
                    RETURNING id
                )
                SELECT pg_notify('owlclaw_cluster', 'answers ' || id) FROM added";
            let max_bytes = count(max_bytes);
            let values: Values<'_> = &[&id.as_str(), &answers.as_bytes(), &max_bytes];
            Ok(self.query_opt(sql, values).await?.is_some())
        }
        .boxed()
    }

    fn take_answers(
        &self,
        owner: String,
    ) -> BoxFuture<'_, Result<Vec<(TaskId, String)>, StoreError>> {
        async move {
            let sql = "WITH taken AS (
                    DELETE FROM owlclaw_cluster.task_answer USING owlclaw_cluster.task_run
                    WHERE task_answer.id = task_run.id AND task_run.owner = $1
                    RETURNING number, task_answer.id, answers
                )
                SELECT id, answers FROM taken ORDER BY number";
            self.records(sql, &[&owner], |row| {
                Ok((id(row, 0)?, text(row.try_get(1)?)?))
            })
            .await
        }
        .boxed()
    }

    fn news(&self) -> BoxStream<'static, TaskNews> {
        stream::unfold(self.0.news(), async |mut news| {
            loop {
                let told = match news.recv().await {
                    Ok(News::Task(id)) => id.parse().map(TaskNews::Changed),
                    Ok(News::Answers(id)) => id.parse().map(TaskNews::Answered),
                    Ok(News::Keys | News::Session(_) | News::Said(..) | News::Changed(_)) => {
                        continue;
                    }
                    Ok(News::Missed) | Err(RecvError::Lagged(_)) => Ok(TaskNews::Missed),
                    Err(RecvError::Closed) => return None,
                };
                if let Ok(told) = told {
                    return Some((told, news));
                }
            }
        })
        .boxed()
    }
}

/// A record as values of a statement.
struct Columns<'a> {
    id: &'a str,
    principal: &'a str,
    capability: &'a str,
    protocol_version: &'a str,
    created_us: i64,
    updated_us: i64,
    expires_us: i64,
    sequence: i64,
    state: &'static str,
    is_error: bool,
    message: Option<&'a [u8]>,
    text: &'a [u8],
}

impl<'a> Columns<'a> {
    fn of(task: &'a TaskRecord) -> Self {
        let text = match &task.state {
            TaskState::InputRequired { requests: text }
            | TaskState::Completed { result: text, .. }
            | TaskState::Failed { error: text } => text.as_str(),
            TaskState::Working | TaskState::Cancelled => "",
        };
        Self {
            id: task.id.as_str(),
            principal: &task.principal,
            capability: &task.capability,
            protocol_version: &task.protocol_version,
            created_us: signed(task.created_us),
            updated_us: signed(task.updated_us),
            expires_us: signed(task.expires_us),
            sequence: signed(task.sequence),
            state: task.state.name(),
            is_error: matches!(task.state, TaskState::Completed { is_error: true, .. }),
            message: task.message.as_deref().map(str::as_bytes),
            text: text.as_bytes(),
        }
    }

    /// All values in the order of the table, and `more`.
    fn with<'v>(&'v self, more: &[&'v (dyn ToSql + Sync)]) -> Vec<&'v (dyn ToSql + Sync)> {
        let mut all: Vec<&'v (dyn ToSql + Sync)> = vec![
            &self.id,
            &self.principal,
            &self.capability,
            &self.protocol_version,
            &self.created_us,
            &self.updated_us,
            &self.expires_us,
            &self.sequence,
            &self.state,
            &self.is_error,
            &self.message,
            &self.text,
        ];
        all.extend(more);
        all
    }
}

fn record(row: &Row) -> Result<TaskRecord, Failed> {
    let message: Option<Vec<u8>> = row.try_get(10)?;
    Ok(TaskRecord {
        id: id(row, 0)?,
        principal: row.try_get(1)?,
        capability: row.try_get(2)?,
        protocol_version: row.try_get(3)?,
        created_us: unsigned(row, 4)?,
        updated_us: unsigned(row, 5)?,
        expires_us: unsigned(row, 6)?,
        sequence: unsigned(row, 7)?,
        state: state(row)?,
        message: message.map(text).transpose()?,
    })
}

fn state(row: &Row) -> Result<TaskState, Failed> {
    let said = || text(row.try_get(11)?);
    Ok(match row.try_get(8)? {
        "working" => TaskState::Working,
        "input_required" => TaskState::InputRequired { requests: said()? },
        "completed" => TaskState::Completed {
            result: said()?,
            is_error: row.try_get(9)?,
        },
        "failed" => TaskState::Failed { error: said()? },
        "cancelled" => TaskState::Cancelled,
        _ => return Err(Failed::Row("a task has an unknown state")),
    })
}

fn id(row: &Row, column: usize) -> Result<TaskId, Failed> {
    let id: &str = row.try_get(column)?;
    id.parse().map_err(|_| Failed::Row("a task has no name"))
}

fn text(bytes: Vec<u8>) -> Result<String, Failed> {
    String::from_utf8(bytes).map_err(|_| Failed::Row("a text of a task is not UTF-8"))
}

fn unsigned(row: &Row, column: usize) -> Result<u64, Failed> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|_| Failed::Row("a number of a task is negative"))
}

/// Numbers of records have been checked; what else is compared with them may be larger than all.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A bound that no count of rows can reach is as good as a larger one.
fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}

fn store_error(error: Failed) -> StoreError {
    StoreError(Box::new(error))
}
