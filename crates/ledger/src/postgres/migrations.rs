//! Schema of the database, its migrations, and what does not belong to it.

use super::{
    PostgresOpenError, PostgresOptions,
    session::{Session, SessionError},
};
use crate::fault::Fault;
use tokio_postgres::Error;

/// Scripts that make each version of the tables from the one before; the first from nothing.
/// Released scripts are never changed.
const MIGRATIONS: &[&str] = &[
    include_str!("1.sql"),
    include_str!("2.sql"),
    include_str!("3.sql"),
];

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

/// Triggers, rules and policies that can change or leave out rows, of which the program makes none: a name, and the
/// statement that removes it. Row security that does not apply to this user changes nothing.
const PLANTED: &str = "SELECT * FROM (
    SELECT format('the trigger %I of %s', tgname, tgrelid::regclass),
        format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass)
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE relnamespace = to_regnamespace('owlclaw_ledger') AND NOT tgisinternal AND tgenabled <> 'D'
    UNION ALL
    SELECT format('the rule %I of %s', rulename, ev_class::regclass),
        format('DROP RULE %I ON %s', rulename, ev_class::regclass)
    FROM pg_rewrite JOIN pg_class ON pg_class.oid = ev_class
    WHERE relnamespace = to_regnamespace('owlclaw_ledger') AND rulename <> '_RETURN'
        AND ev_enabled <> 'D'
    UNION ALL
    SELECT format('the row security of %s', oid::regclass),
        format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', oid::regclass)
    FROM pg_class WHERE relnamespace = to_regnamespace('owlclaw_ledger') AND relkind IN ('r', 'p')
        AND row_security_active(oid)
 ) AS planted (what, cure) ORDER BY what LIMIT 1";

/// The ends of the ledger and of its index: what the tables say, and what they have. One statement sees all of them as
/// they are between two commits.
const ENDS: &str = "SELECT tail.next_sequence - 1, coalesce(last.sequence, 0),
        tail.hash = coalesce(last.hash, decode(repeat('00', 32), 'hex')), indexed.through,
        greatest((SELECT max(start_sequence) FROM owlclaw_ledger.call),
            (SELECT max(sequence) FROM owlclaw_ledger.note), 0),
        EXISTS (SELECT FROM owlclaw_ledger.archived)
    FROM (SELECT 1) AS one
    LEFT JOIN owlclaw_ledger.tail ON true
    LEFT JOIN owlclaw_ledger.indexed ON true
    LEFT JOIN (SELECT first_sequence + count - 1 AS sequence, hash FROM owlclaw_ledger.entry_group
        ORDER BY first_sequence DESC LIMIT 1) AS last ON true";

/// The fault of tables that do not fit the entries or do not do what they are told to: see
/// [`crate::query::ReadLedger::fault`].
pub(super) async fn fault(session: &mut Session) -> Result<Option<Fault>, Error> {
    if let Some(row) = session.query_opt(PLANTED, &[]).await? {
        let (what, cure) = (row.try_get(0)?, row.try_get(1)?);
        return Ok(Some(Fault::Planted { what, cure }));
    }
    let Some(row) = session.query_opt(ENDS, &[]).await? else {
        return Ok(None);
    };
    let (said, last): (Option<i64>, i64) = (row.try_get(0)?, row.try_get(1)?);
    let (through, rows): (Option<i64>, i64) = (row.try_get(3)?, row.try_get(4)?);
    let is_same: Option<bool> = row.try_get(2)?;
    Ok(match (said, through) {
        (None, _) => Some(Fault::NoRow { table: "tail" }),
        (_, None) => Some(Fault::NoRow { table: "indexed" }),
        _ if !row.try_get::<_, bool>(5)? => Some(Fault::NoRow { table: "archived" }),
        (Some(said), _) if said != last => Some(Fault::TailDiffers {
            said: said.unsigned_abs(),
            last: last.unsigned_abs(),
        }),
        _ if is_same == Some(false) => Some(Fault::TableDiffers { table: "tail" }),
        (_, Some(said)) if said < rows || last < said => Some(Fault::IndexEnds {
            said: said.unsigned_abs(),
        }),
        _ => None,
    })
}

/// Refuses a ledger with a [`fault`]: a server would lose entries, or find none.
pub(super) async fn expect_sound(
    session: &mut Session,
    options: &PostgresOptions,
) -> Result<(), PostgresOpenError> {
    let found = fault(session).await;
    match found.map_err(|error| SessionError::from(error).explain(options))? {
        None => Ok(()),
        Some(fault) => Err(PostgresOpenError::Unsound {
            address: options.to_string(),
            fault,
        }),
    }
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
