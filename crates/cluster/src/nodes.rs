//! Servers that have the database, as they say of themselves.

use crate::{database::Cluster, error::Failed};
use tokio_postgres::Row;

/// A server, as it says of itself.
#[derive(Clone, Copy, Debug)]
pub struct NodeSign<'a> {
    /// Name under which it owns tasks: each start of each server has another.
    pub id: &'a str,
    /// Name for people: host and process.
    pub name: &'a str,
    /// Version of the program.
    pub version: &'a str,
    /// Number of sessions of legacy clients that are open there; `None` where there can be none, or not yet.
    pub sessions: Option<usize>,
}

/// A server, as others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name under which it owns tasks.
    pub id: String,
    /// Name for people: host and process.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Number of sessions of legacy clients that were open at its last sign of life, if there can be any.
    pub sessions: Option<u64>,
    /// Number of tasks that it owns.
    pub tasks: u64,
    /// Microseconds since its first sign of life, by the database's clock.
    pub age_us: u64,
    /// Microseconds since its last sign of life, by the database's clock.
    pub silent_us: u64,
    /// True if it has said that it stops.
    pub has_stopped: bool,
}

impl Cluster {
    /// Shows that a server is alive. What was not heard of for a day is forgotten.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn show_node(&self, sign: NodeSign<'_>) -> Result<(), Failed> {
        let sql = "WITH forgotten AS (
                DELETE FROM owlclaw_cluster.node
                WHERE seen_at < clock_timestamp() - interval '1 day' AND id <> $1)
            INSERT INTO owlclaw_cluster.node AS known (id, name, version, sessions)
            VALUES ($1, $2, $3, $4)
            ON CONFLICT (id) DO UPDATE SET sessions = excluded.sessions, seen_at = clock_timestamp()
            WHERE NOT known.has_stopped";
        let sessions = sign
            .sessions
            .map(|it| i64::try_from(it).unwrap_or(i64::MAX));
        self.shared
            .query(sql, &[&sign.id, &sign.name, &sign.version, &sessions])
            .await
            .map(drop)
    }

    /// Says that a server stops, after which it gives no signs of life any more.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn end_node(&self, id: &str) -> Result<(), Failed> {
        let sql = "UPDATE owlclaw_cluster.node
            SET has_stopped = true, seen_at = clock_timestamp(), sessions = NULL WHERE id = $1";
        self.shared.query(sql, &[&id]).await.map(drop)
    }

    /// The servers that were heard of within a day, those that were heard of last first.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn nodes(&self) -> Result<Vec<Node>, Failed> {
        let sql = "SELECT id, name, version, sessions,
                (SELECT count(*) FROM owlclaw_cluster.task_run WHERE owner = node.id),
                floor(extract(epoch FROM clock_timestamp() - started_at) * 1000000)::bigint,
                floor(extract(epoch FROM clock_timestamp() - seen_at) * 1000000)::bigint,
                has_stopped
            FROM owlclaw_cluster.node ORDER BY has_stopped, seen_at DESC, id LIMIT 1000";
        let rows = self.shared.query(sql, &[]).await?;
        rows.iter().map(node).collect()
    }
}

fn node(row: &Row) -> Result<Node, Failed> {
    let unsigned = |column| {
        let number: i64 = row.try_get(column)?;
        Ok::<_, Failed>(u64::try_from(number).unwrap_or_default())
    };
    Ok(Node {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        version: row.try_get(2)?,
        sessions: row
            .try_get::<_, Option<i64>>(3)?
            .and_then(|it| u64::try_from(it).ok()),
        tasks: unsigned(4)?,
        age_us: unsigned(5)?,
        silent_us: unsigned(6)?,
        has_stopped: row.try_get(7)?,
    })
}
