//! Sessions that all servers have.

use crate::{
    database::{Cluster, Values},
    error::Failed,
};
use std::{sync::Arc, time::Duration};
use tokio_postgres::Row;

/// Start of 2026 in seconds since the epoch: numbers of lives are seconds since then, so that they fit `u32`.
const LIVES_BEGIN: i64 = 1_767_225_600;

/// Time for which messages that were passed on can be read: an outage of the database that is shorter loses none.
pub const PASSED_ON_KEPT: Duration = Duration::from_mins(3);

/// The most messages that are listed at once.
pub const MAX_PASSED_ON_LISTED: usize = 1_000;

/// A session, as far as servers share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSession {
    /// Principal that it belongs to.
    pub principal: String,
    /// State of the session, for its server.
    pub state: String,
    /// The resources that it hears of.
    pub resources: Vec<String>,
    /// The tasks that it hears of.
    pub tasks: Vec<String>,
    /// Number of this life: a later server to take it up has a larger one, 0 is the server that it began on.
    pub lives: u32,
}

/// Names that a session hears of from now on, and no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Names that come.
    pub more: Vec<String>,
    /// Names that go.
    pub less: Vec<String>,
}

impl Difference {
    /// Difference that makes `now` of `before`.
    #[must_use]
    pub fn between(before: &[String], now: &[String]) -> Self {
        let without = |all: &[String], some: &[String]| {
            let left = all.iter().filter(|it| !some.contains(it));
            left.cloned().collect()
        };
        Self {
            more: without(now, before),
            less: without(before, now),
        }
    }
}

impl Cluster {
    /// Keeps a session that is new, or what has changed of it. One that has ended stays so.
    ///
    /// # Errors
    ///
    /// [`Failed`], as for all of these.
    pub async fn keep_session(
        &self,
        id: &str,
        (principal, state): (&str, &str),
        resources: &Difference,
        tasks: &Difference,
    ) -> Result<(), Failed> {
        let sql = "SELECT owlclaw_cluster.keep_session($1, $2, $3, $4, $5, $6, $7)";
        self.shared
            .query(
                sql,
                &[
                    &id,
                    &principal,
                    &state,
                    &resources.more,
                    &resources.less,
                    &tasks.more,
                    &tasks.less,
                ],
            )
            .await
            .map(drop)
    }

    /// Notes that sessions were used so many milliseconds ago.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn touch_sessions(&self, ids: &[String], ages_ms: &[i64]) -> Result<(), Failed> {
        let sql = "UPDATE owlclaw_cluster.session SET last_used = greatest(last_used,
                clock_timestamp() - used.age * interval '1 millisecond')
            FROM unnest($1::text[], $2::bigint[]) AS used (session, age)
            WHERE id = used.session AND NOT has_ended";
        self.shared.query(sql, &[&ids, &ages_ms]).await.map(drop)
    }

    /// Ends a session on all servers. The mark of its end stays for as long as a session may be idle, and what a
    /// server writes of it meanwhile is left out.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn end_session(&self, id: &str) -> Result<(), Failed> {
        let sql = "WITH ended AS (
                UPDATE owlclaw_cluster.session
                SET has_ended = true, state = '', resources = '{}', tasks = '{}',
                    last_used = clock_timestamp()
                WHERE id = $1 AND NOT has_ended RETURNING id
            )
            SELECT pg_notify('owlclaw_cluster', 'session ' || id) FROM ended";
        self.shared.query(sql, &[&id]).await.map(drop)
    }

    /// Takes a session up that its principal has used in the time `idle`, as a life with a number that
    /// no other server has, also if the session was forgotten and written again in between.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn take_session_up(
        &self,
        id: &str,
        principal: &str,
        idle: Duration,
    ) -> Result<Option<SharedSession>, Failed> {
        let sql =
            "UPDATE owlclaw_cluster.session SET last_used = clock_timestamp(),
                lives = greatest(lives + 1, floor(extract(epoch FROM clock_timestamp()))::bigint - $4)
            WHERE id = $1 AND principal = $2 AND NOT has_ended
                AND clock_timestamp() - $3::float8 * interval '1 second' < last_used
            RETURNING principal, state, resources, tasks, lives";
        let seconds = idle.as_secs_f64();
        let values: Values<'_> = &[&id, &principal, &seconds, &LIVES_BEGIN];
        let row = self.shared.query_opt(sql, values).await?;
        row.as_ref().map(read).transpose()
    }

    /// The session now; `None` if it has ended.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn session(&self, id: &str) -> Result<Option<SharedSession>, Failed> {
        let sql = "SELECT principal, state, resources, tasks, lives FROM owlclaw_cluster.session
            WHERE id = $1 AND NOT has_ended";
        let row = self.shared.query_opt(sql, &[&id]).await?;
        row.as_ref().map(read).transpose()
    }

    /// Passes what a client has sent in a session to the servers that have the session.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn pass_on(&self, session: &str, body: &[u8]) -> Result<(), Failed> {
        let sql = "WITH sent AS (
                INSERT INTO owlclaw_cluster.session_message (session, body) VALUES ($1, $2)
                RETURNING number, session
            )
            SELECT pg_notify('owlclaw_cluster', 'said ' || number || ' ' || session) FROM sent";
        self.shared.query(sql, &[&session, &body]).await.map(drop)
    }

    /// Message that a client has sent to another server, by its number.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn passed_on(&self, number: i64) -> Result<Option<Vec<u8>>, Failed> {
        let sql = "SELECT body FROM owlclaw_cluster.session_message WHERE number = $1";
        let row = self.shared.query_opt(sql, &[&number]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Numbers and sessions of messages that clients have sent in these sessions and that are not forgotten yet, in the
    /// order of their numbers, of those after `after`; at most [`MAX_PASSED_ON_LISTED`]. For a server that has missed news.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn all_passed_on(
        &self,
        sessions: &[Arc<str>],
        after: i64,
    ) -> Result<Vec<(i64, Arc<str>)>, Failed> {
        let sql = "SELECT number, session FROM owlclaw_cluster.session_message
            WHERE session = ANY($1) AND $2 < number ORDER BY number LIMIT $3";
        let sessions: Vec<_> = sessions.iter().map(|it| &**it).collect();
        let limit = i64::try_from(MAX_PASSED_ON_LISTED).unwrap_or(i64::MAX);
        let rows = self.shared.query(sql, &[&sessions, &after, &limit]).await?;
        let all = rows.iter();
        all.map(|row| Ok((row.try_get(0)?, row.try_get::<_, &str>(1)?.into())))
            .collect()
    }

    /// Forgets sessions that no client has used for as long as `idle`, and what was passed on [`PASSED_ON_KEPT`] ago. Forgets
    /// no session within a lease after an outage: other servers write first which of them were used meanwhile.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn sweep_sessions(&self, idle: Duration) -> Result<(), Failed> {
        if self.shared.may_judge() {
            let sql = "DELETE FROM owlclaw_cluster.session
                WHERE last_used <= clock_timestamp() - $1::float8 * interval '1 second'";
            self.shared.query(sql, &[&idle.as_secs_f64()]).await?;
        }
        let sql = "DELETE FROM owlclaw_cluster.session_message
            WHERE sent_at <= clock_timestamp() - $1::float8 * interval '1 second'";
        let kept = PASSED_ON_KEPT.as_secs_f64();
        self.shared.query(sql, &[&kept]).await.map(drop)
    }
}

fn read(row: &Row) -> Result<SharedSession, Failed> {
    let lives: i64 = row.try_get(4)?;
    Ok(SharedSession {
        principal: row.try_get(0)?,
        state: row.try_get(1)?,
        resources: row.try_get(2)?,
        tasks: row.try_get(3)?,
        lives: u32::try_from(lives).map_err(|_| Failed::Row("a session has too many lives"))?,
    })
}
