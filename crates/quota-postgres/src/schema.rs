//! The tables, by version.

use crate::error::OpenError;
use tokio_postgres::Client;

/// Each brings the tables from the version before it to its own; they are numbered from 1.
const MIGRATIONS: [&str; 3] = [
    include_str!("../sql/0001_quota.sql"),
    include_str!("../sql/0002_settlement.sql"),
    include_str!("../sql/0003_comparison.sql"),
];

/// Lock by which processes that change the tables wait for each other.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1331121235, 0)";

const VERSION: &str = "SELECT coalesce(max(version), 0) FROM owlclaw_quota_migration";

/// Makes or changes the tables if need be.
pub(crate) async fn prepare(client: &mut Client) -> Result<(), OpenError> {
    // Who may not make tables can use those that somebody else has made.
    let found = find(client).await.map_err(OpenError::Prepare)?;
    if check(found)? {
        return Ok(());
    }
    migrate(client).await
}

async fn find(client: &Client) -> Result<i32, tokio_postgres::Error> {
    let exists = "SELECT to_regclass('owlclaw_quota_migration') IS NOT NULL";
    if client.query_one(exists, &[]).await?.try_get(0)? {
        client.query_one(VERSION, &[]).await?.try_get(0)
    } else {
        Ok(0)
    }
}

/// Returns true if the tables are up to date.
fn check(found: i32) -> Result<bool, OpenError> {
    let known = MIGRATIONS.len() as i32;
    if known < found {
        return Err(OpenError::Newer { found, known });
    }
    Ok(found == known)
}

async fn migrate(client: &mut Client) -> Result<(), OpenError> {
    let error = OpenError::Prepare;
    let transaction = client.transaction().await.map_err(error)?;
    transaction.batch_execute(LOCK).await.map_err(error)?;
    transaction
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS owlclaw_quota_migration (
                version int PRIMARY KEY,
                applied timestamptz NOT NULL DEFAULT clock_timestamp()
            )",
        )
        .await
        .map_err(error)?;
    let found = transaction.query_one(VERSION, &[]).await.map_err(error)?;
    let found: i32 = found.try_get(0).map_err(error)?;
    if check(found)? {
        return transaction.commit().await.map_err(error);
    }
    for (version, migration) in (1..).zip(MIGRATIONS).skip(found as usize) {
        transaction.batch_execute(migration).await.map_err(error)?;
        transaction
            .execute(
                "INSERT INTO owlclaw_quota_migration (version) VALUES ($1)",
                &[&version],
            )
            .await
            .map_err(error)?;
    }
    transaction.commit().await.map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_program_made_is_left_alone() {
        assert!(!check(0).unwrap());
        assert!(check(MIGRATIONS.len() as i32).unwrap());
        let error = check(MIGRATIONS.len() as i32 + 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the quota tables have version 4, and this program knows up to 3"
        );
    }
}
