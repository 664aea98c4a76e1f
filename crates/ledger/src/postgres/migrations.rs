//! Schema of the database, and its migrations.

use super::{
    PostgresOpenError, PostgresOptions,
    session::{Session, SessionError},
};

/// Scripts that make each version of the tables from the one before; the first from nothing.
/// Released scripts are never changed.
const MIGRATIONS: &[&str] = &[include_str!("1.sql"), include_str!("2.sql")];

/// Lets servers that start together take turns: "OWLLEDGR".
const LOCK: i64 = 0x4F57_4C4C_4544_4752;

/// The newest version known here.
pub(super) fn known_version() -> i32 {
    i32::try_from(MIGRATIONS.len()).expect("migrations are few")
}

/// Brings the tables to the newest version.
pub(super) async fn migrate(
    session: &mut Session,
    options: &PostgresOptions,
) -> Result<(), PostgresOpenError> {
    let explain = |error: SessionError| error.explain(options);
    let database = |error| SessionError::from(error).explain(options);
    session.run("BEGIN").await.map_err(database)?;
    session
        .query("SELECT pg_advisory_xact_lock($1)", &[&LOCK])
        .await
        .map_err(database)?;
    let found = match version(session).await.map_err(explain)? {
        Some(found) => found,
        None => {
            create_schema(session).await.map_err(explain)?;
            0
        }
    };
    check_not_newer(found, options)?;
    let done = usize::try_from(found).unwrap_or(0);
    for (number, statements) in (1_i32..).zip(MIGRATIONS).skip(done) {
        session.run(statements).await.map_err(database)?;
        session
            .execute(
                "INSERT INTO owlclaw_ledger.migration (version) VALUES ($1)",
                &[&number],
            )
            .await
            .map_err(database)?;
        tracing::info!(
            version = number,
            "the ledger's tables have been made or changed"
        );
    }
    session.run("COMMIT").await.map_err(database)
}

/// Checks that the tables are there and of a version that can be read.
pub(super) async fn check(
    session: &mut Session,
    options: &PostgresOptions,
) -> Result<(), PostgresOpenError> {
    let found = version(session)
        .await
        .map_err(|error| error.explain(options))?;
    match found {
        None | Some(0) => Err(PostgresOpenError::Missing {
            address: options.to_string(),
        }),
        Some(found) if found < known_version() => Err(PostgresOpenError::Older {
            address: options.to_string(),
            found,
            known: known_version(),
        }),
        Some(found) => check_not_newer(found, options),
    }
}

fn check_not_newer(found: i32, options: &PostgresOptions) -> Result<(), PostgresOpenError> {
    let known = known_version();
    if known < found {
        return Err(PostgresOpenError::Newer {
            address: options.to_string(),
            found,
            known,
        });
    }
    Ok(())
}

/// The version of the tables; `None` where there are none.
async fn version(session: &mut Session) -> Result<Option<i32>, SessionError> {
    let there: bool = session
        .query(
            "SELECT to_regclass('owlclaw_ledger.migration') IS NOT NULL",
            &[],
        )
        .await?
        .first()
        .is_some_and(|row| row.get(0));
    if !there {
        return Ok(None);
    }
    let row = session
        .query_opt(
            "SELECT coalesce(max(version), 0) FROM owlclaw_ledger.migration",
            &[],
        )
        .await?;
    Ok(row.map(|row| row.get(0)))
}

async fn create_schema(session: &mut Session) -> Result<(), SessionError> {
    let there: bool = session
        .query("SELECT to_regnamespace('owlclaw_ledger') IS NOT NULL", &[])
        .await?
        .first()
        .is_some_and(|row| row.get(0));
    // Even `IF NOT EXISTS` wants the right to make one.
    if !there {
        session.run("CREATE SCHEMA owlclaw_ledger").await?;
    }
    session
        .run(
            "CREATE TABLE owlclaw_ledger.migration (
                version integer PRIMARY KEY,
                applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
            )",
        )
        .await?;
    Ok(())
}
