use crate::fault::Fault;
use rusqlite::{Connection, OptionalExtension};
use std::ops::RangeInclusive;

/// The version of the tables below. Another one in a file makes it be indexed anew.
const VERSION: i64 = 4;

/// The first version whose rows of calls are those below; later ones differ in the sums alone.
const FIRST_WITH_THESE_ROWS: i64 = 2;

/// The columns of `call`, which the index to what is not yet indexed has as well. A place is a
/// group, and where in its body an entry begins and how long it is.
pub(crate) const CALL_COLUMNS: &str = "
    start_sequence INTEGER PRIMARY KEY,
    call BLOB NOT NULL,
    started_us INTEGER NOT NULL,
    principal TEXT NOT NULL,
    kind TEXT NOT NULL,
    capability TEXT NOT NULL,
    request_id TEXT NOT NULL,
    trace_id TEXT,
    approval TEXT,
    estimated_cost_micros INTEGER NOT NULL,
    start_group INTEGER NOT NULL,
    start_offset INTEGER NOT NULL,
    start_length INTEGER NOT NULL,
    end_sequence INTEGER,
    outcome TEXT,
    reason TEXT,
    cost_micros INTEGER,
    duration_us INTEGER,
    end_group INTEGER,
    end_offset INTEGER,
    end_length INTEGER
";

/// The columns of `note`, likewise.
pub(crate) const NOTE_COLUMNS: &str = "
    sequence INTEGER PRIMARY KEY,
    at_us INTEGER NOT NULL,
    kind TEXT NOT NULL,
    actor TEXT NOT NULL,
    subject TEXT NOT NULL,
    note_group INTEGER NOT NULL,
    note_offset INTEGER NOT NULL,
    note_length INTEGER NOT NULL
";

/// The tables of the index in `schema`, which is `main` or `temp`.
///
/// Each index ends with the time, so that whatever is asked for is found newest first without
/// sorting, and within any stretch of time. Success and the absence of a reason or a trace are the
/// rule, and whoever looks for them looks at the newest.
pub(crate) fn tables(schema: &str) -> String {
    format!(
        "CREATE TABLE {schema}.call ({CALL_COLUMNS}) STRICT;
         CREATE TABLE {schema}.note ({NOTE_COLUMNS}) STRICT;
         CREATE INDEX {schema}.call_by_id ON call (call);
         CREATE INDEX {schema}.call_by_time ON call (started_us);
         CREATE INDEX {schema}.call_by_principal ON call (principal, started_us);
         CREATE INDEX {schema}.call_by_capability ON call (capability, started_us);
         CREATE INDEX {schema}.call_by_request ON call (request_id, started_us);
         CREATE INDEX {schema}.call_by_trace ON call (trace_id, started_us)
            WHERE trace_id IS NOT NULL;
         CREATE INDEX {schema}.call_by_approval ON call (approval, started_us)
            WHERE approval IS NOT NULL;
         CREATE INDEX {schema}.call_by_outcome ON call (outcome, started_us)
            WHERE outcome <> 'succeeded';
         CREATE INDEX {schema}.call_by_reason ON call (reason, started_us)
            WHERE reason IS NOT NULL;
         CREATE INDEX {schema}.call_open ON call (start_sequence) WHERE outcome IS NULL;
         CREATE INDEX {schema}.note_by_time ON note (at_us);
         CREATE INDEX {schema}.note_by_kind ON note (kind, at_us);
         CREATE INDEX {schema}.note_by_subject ON note (subject, at_us) WHERE subject <> '';
         {sums}",
        sums = sums(schema)
    )
}

/// Tables with sums of calls, and with the end of the index: `through` is the last entry that is
/// indexed, `calls` how many calls are.
///
/// A tally is of all calls that have ended; `used_calls` and `used_micros` are without those that
/// were refused, `dearest_micros` is the cost of the dearest of them, and `latest_us` is when the last of them began. The days before `folded` are summed up
/// in months, too: a day only when another begins, so that most calls change the sum of a day alone.
fn sums(schema: &str) -> String {
    format!(
        "CREATE TABLE {schema}.indexed (
            through INTEGER NOT NULL,
            version INTEGER NOT NULL,
            calls INTEGER NOT NULL,
            folded INTEGER NOT NULL
         ) STRICT;
         INSERT INTO {schema}.indexed VALUES (0, {VERSION}, 0, 0);
         CREATE TABLE {schema}.usage_day (
            day INTEGER NOT NULL,
            principal TEXT NOT NULL,
            kind TEXT NOT NULL,
            capability TEXT NOT NULL,
            latest_us INTEGER NOT NULL,
            used_calls INTEGER NOT NULL,
            used_micros INTEGER NOT NULL,
            dearest_micros INTEGER NOT NULL,
            tally BLOB NOT NULL,
            PRIMARY KEY (day, principal, kind, capability)
         ) STRICT, WITHOUT ROWID;
         CREATE INDEX {schema}.usage_by_principal ON usage_day (principal, day);
         CREATE INDEX {schema}.usage_by_capability ON usage_day (capability, day);
         CREATE TABLE {schema}.usage_month (
            month INTEGER NOT NULL,
            principal TEXT NOT NULL,
            kind TEXT NOT NULL,
            capability TEXT NOT NULL,
            tally BLOB NOT NULL,
            PRIMARY KEY (month, principal, kind, capability)
         ) STRICT, WITHOUT ROWID;"
    )
}

/// Returns true if the file's index is one that this program knows.
pub(crate) fn is_current(connection: &Connection) -> rusqlite::Result<bool> {
    has_version(connection, VERSION..=VERSION)
}

/// The fault of what stands beside the entries: see [`crate::query::ReadLedger::fault`].
pub(crate) fn fault(connection: &Connection) -> rusqlite::Result<Option<Fault>> {
    match lacks_state(connection)? {
        true => Ok(Some(Fault::NoRow { table: "archived" })),
        false => index_fault(connection),
    }
}

/// Returns true if the row that says what was archived is gone.
pub(crate) fn lacks_state(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(connection.table_exists(Some("main"), "archived")?
        && connection.query_row(
            "SELECT NOT EXISTS (SELECT 1 FROM main.archived)",
            [],
            |row| row.get(0),
        )?)
}

/// The fault of an index of a known version that does not end where it says. It can be made anew from the entries.
fn index_fault(connection: &Connection) -> rusqlite::Result<Option<Fault>> {
    if !has_column(connection)? {
        return Ok(None);
    }
    let known = FIRST_WITH_THESE_ROWS..=VERSION;
    let ends = connection
        .query_row(
            "SELECT version BETWEEN ?1 AND ?2, through FROM main.indexed",
            [known.start(), known.end()],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    let Some((is_known, through)): Option<(bool, i64)> = ends else {
        return Ok(Some(Fault::NoRow { table: "indexed" }));
    };
    if !is_known {
        return Ok(None);
    }
    let archived = match has_archive(connection)? {
        true => "(SELECT through FROM main.archived)",
        false => "0",
    };
    let differs: bool = connection.query_row(
        &format!(
            "SELECT through < max(
                    coalesce((SELECT max(start_sequence) FROM main.call), 0),
                    coalesce((SELECT max(sequence) FROM main.note), 0))
                OR max({archived}, coalesce((SELECT first_sequence + count - 1 FROM main.entry_group
                    ORDER BY first_sequence DESC LIMIT 1), 0)) < through
             FROM main.indexed"
        ),
        [],
        |row| row.get(0),
    )?;
    let said = through.unsigned_abs();
    Ok(differs.then_some(Fault::IndexEnds { said }))
}

fn has_column(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM pragma_table_info('indexed', 'main') WHERE name = 'version')",
        [],
        |row| row.get(0),
    )
}

fn has_version(connection: &Connection, versions: RangeInclusive<i64>) -> rusqlite::Result<bool> {
    if !has_column(connection)? {
        return Ok(false);
    }
    let found: Option<bool> = connection
        .query_row(
            "SELECT version BETWEEN ?1 AND ?2 FROM main.indexed",
            [versions.start(), versions.end()],
            |row| row.get(0),
        )
        .optional()?;
    Ok(found.unwrap_or(false))
}

/// Makes the tables of the index, in place of those of another version. Of versions whose rows
/// are the same these are kept, and only summed up anew. What does not end where it says is made anew as a whole.
pub(crate) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    let fault = index_fault(connection)?;
    if let Some(fault) = &fault {
        tracing::error!(%fault, "the index of the ledger was changed, and is made anew from the entries");
    } else if is_current(connection)? {
        return Ok(());
    }
    if fault.is_none() && has_version(connection, FIRST_WITH_THESE_ROWS..=VERSION)? {
        let through = super::indexed_through(connection)?;
        connection.execute_batch(
            "DROP TABLE main.usage_day;
             DROP TABLE IF EXISTS main.usage_month;
             DROP TABLE main.indexed;",
        )?;
        connection.execute_batch(&sums("main"))?;
        connection.execute(
            "UPDATE indexed SET through = ?1, calls = (SELECT count(*) FROM call)",
            [through],
        )?;
        if has_archive(connection)? {
            connection.execute(
                "UPDATE indexed SET calls = calls + (SELECT calls FROM archived)",
                [],
            )?;
            super::sums::begin_with_carried(connection, "main")?;
        }
        return super::sums::sum_up(connection);
    }
    connection.execute_batch(
        "DROP TABLE IF EXISTS main.call;
         DROP TABLE IF EXISTS main.note;
         DROP TABLE IF EXISTS main.usage_day;
         DROP TABLE IF EXISTS main.usage_month;
         DROP TABLE IF EXISTS main.indexed;",
    )?;
    connection.execute_batch(&tables("main"))?;
    begin_after_archive(connection, "main")
}

/// Has an empty index in `schema` begin after what was taken out into archives: with the sums of that, and with
/// the calls that had not ended then.
pub(crate) fn begin_after_archive(connection: &Connection, schema: &str) -> rusqlite::Result<()> {
    if !has_archive(connection)? {
        return Ok(());
    }
    super::sums::begin_with_carried(connection, schema)?;
    connection.execute_batch(&format!(
        "UPDATE {schema}.indexed SET (through, calls) = (SELECT through, calls FROM main.archived)"
    ))?;
    super::index_carried(connection)
}

/// Returns true if entries of this ledger were ever taken out.
fn has_archive(connection: &Connection) -> rusqlite::Result<bool> {
    let is_there = connection.table_exists(Some("main"), "archived")?;
    Ok(is_there
        && connection.query_row("SELECT through > 0 FROM main.archived", [], |row| {
            row.get(0)
        })?)
}
