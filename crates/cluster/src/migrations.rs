//! The tables, by version.

use crate::error::OpenError;
use tokio_postgres::Client;

/// Each brings the tables from the version before it to its own; they are numbered from 1. Released
/// scripts are never changed.
const MIGRATIONS: &[&str] = &[
    include_str!("../sql/0001_tasks.sql"),
    include_str!("../sql/0002_keys.sql"),
    include_str!("../sql/0003_sessions.sql"),
    include_str!("../sql/0004_nodes.sql"),
];

/// Lets servers that start together take turns.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1331121236, 0)";

/// Looks into the catalogue, because `to_regclass` may remember from before the lock that there was none.
const EXISTS: &str = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class
    JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = 'owlclaw_cluster' AND relname = 'migration')";
const VERSION: &str = "SELECT coalesce(max(version), 0) FROM owlclaw_cluster.migration";

/// Makes or changes the tables if need be.
pub(crate) async fn prepare(client: &mut Client) -> Result<(), OpenError> {
    let prepare = OpenError::prepare;
    if is_current(version(client).await.map_err(prepare)?)? {
        return Ok(());
    }
    let transaction = client.transaction().await.map_err(prepare)?;
    transaction.batch_execute(LOCK).await.map_err(prepare)?;
    let there: bool = transaction
        .query_one(EXISTS, &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(prepare)?;
    if !there {
        let made = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace
            WHERE nspname = 'owlclaw_cluster')";
        let made = transaction.query_one(made, &[]).await.map_err(prepare)?;
        // Even `IF NOT EXISTS` wants the right to make one.
        if !made.try_get::<_, bool>(0).map_err(prepare)? {
            let make = "CREATE SCHEMA owlclaw_cluster";
            transaction.batch_execute(make).await.map_err(prepare)?;
        }
        let make = "CREATE TABLE owlclaw_cluster.migration (
                version integer PRIMARY KEY,
                applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
            )";
        transaction.batch_execute(make).await.map_err(prepare)?;
    }
    let found: i32 = transaction
        .query_one(VERSION, &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(prepare)?;
    if !is_current(found)? {
        let done = usize::try_from(found).unwrap_or_default();
        for (number, script) in (1_i32..).zip(MIGRATIONS).skip(done) {
            transaction.batch_execute(script).await.map_err(prepare)?;
            let note = "INSERT INTO owlclaw_cluster.migration (version) VALUES ($1)";
            let noted = transaction.execute(note, &[&number]).await;
            noted.map_err(prepare)?;
        }
    }
    transaction.commit().await.map_err(prepare)
}

async fn version(client: &Client) -> Result<i32, tokio_postgres::Error> {
    match client.query_one(EXISTS, &[]).await?.try_get(0)? {
        true => client.query_one(VERSION, &[]).await?.try_get(0),
        false => Ok(0),
    }
}

/// True if the tables are up to date.
fn is_current(found: i32) -> Result<bool, OpenError> {
    let known = i32::try_from(MIGRATIONS.len()).expect("migrations are few");
    match known < found {
        true => Err(OpenError::Newer { found, known }),
        false => Ok(found == known),
    }
}
