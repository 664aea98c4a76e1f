//! Appending to the one chain that all nodes share.
//!
//! The row `tail` says where the ledger ends, and whoever appends changes it: PostgreSQL lets one
//! transaction at a time do so, and the others wait. A node that appended last knows what the row
//! says and needs one statement; if another was faster, it locks the row and looks.
//!
//! An insertion may succeed and store nothing, where a trigger or a rule stands on the table. The statements that append
//! divide by zero then, and fail as a whole: the end does not move without its entries.

use super::{
    node::Node,
    rows::{Rows, digest, signed},
    session::{Session, SessionError, Values},
};
use crate::{
    record::{
        codec::DecodeError,
        operation::{Operation, OperationOutcome, decode_outcomes, encode_outcomes},
    },
    store::{Account, Appended, Charge, Group, Tail, claims, claims::Applied},
};
use tokio_postgres::{Error, error::SqlState, types::ToSql};
use uuid::Uuid;

/// Copy of the row `tail`, as a node last saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) tail: Tail,
    /// Number of times that nodes have been declared dead.
    pub(super) generation: i64,
}

/// The end of the ledger, locked: no other node appends until the transaction ends. The lock also
/// keeps other nodes from the tables of approvals and keys.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) end: End,
    /// True if the node may append: no other node has declared it dead.
    pub(super) is_alive: bool,
}

const LOCK: &str = "SELECT next_sequence, hash, generation FROM owlclaw_ledger.tail FOR UPDATE";

const APPEND: &str = "WITH moved AS (
        UPDATE owlclaw_ledger.tail SET next_sequence = $2 + $3, hash = $4
        WHERE next_sequence = $2 AND hash = $5 AND generation = $6 RETURNING 1
     ),
     stored AS (
        INSERT INTO owlclaw_ledger.entry_group (first_sequence, count, hash, body, id, node)
        SELECT $2, $3, $4, $7, $1, $8 FROM moved RETURNING 1
     )
     SELECT 1 / ((SELECT count(*) FROM stored) = 1)::int FROM moved";

const WRITE: &str = "WITH stored AS (
        INSERT INTO owlclaw_ledger.entry_group (first_sequence, count, hash, body, id, node)
        VALUES ($1, $2, $3, $4, $5, $6) RETURNING 1
     ),
     moved AS (
        UPDATE owlclaw_ledger.tail SET next_sequence = $7, hash = $3, generation = $8 RETURNING 1
     )
     SELECT 1 / ((SELECT count(*) FROM stored) = 1 AND (SELECT count(*) FROM moved) = 1)::int";

/// Entries that have been archived since are not there any more.
const IS_STORED: &str = "SELECT coalesce((
        SELECT first_sequence + count - 1 = $1 AND hash = $2 FROM owlclaw_ledger.entry_group
        WHERE first_sequence <= $1 ORDER BY first_sequence DESC LIMIT 1), false)
     OR $1 <= coalesce((SELECT through FROM owlclaw_ledger.archived), 0)";

/// The statements that tell what calls have cost, where there is a table for that.
#[derive(Debug)]
pub(super) struct ChargeStatements {
    /// [`APPEND`] with charges.
    append: String,
    alone: String,
    /// Amounts counted before, for charges that correct them.
    counted: String,
}

impl ChargeStatements {
    /// Statements for the table of charges, and for that of reservations which nothing holds any more.
    pub(super) fn new(table: &str, orphans: &str) -> Self {
        let insert = |from: &str, first: usize| {
            let [second, third, fourth] = [first + 1, first + 2, first + 3];
            format!(
                "INSERT INTO {table} (principal, node, sequence, actual)
                 SELECT told.* FROM {from} unnest(${first}::text[], ${second}::bigint[],
                    ${third}::bigint[], ${fourth}::bigint[]) AS told
                 ON CONFLICT DO NOTHING"
            )
        };
        let (moved, stored) = APPEND.split_at(APPEND.find("stored AS").unwrap_or(APPEND.len()));
        Self {
            append: format!("{moved} charged AS ({}), {stored}", insert("moved,", 9)),
            alone: insert("", 1),
            counted: format!(
                "INSERT INTO {orphans} (principal, node, sequence, capability, is_read, cost, estimate,
                    month_start_ms, counter, at_ms)
                 VALUES ($1, $2, $3, $4, false, $5, $5, $6, 0,
                    floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
                 ON CONFLICT DO NOTHING"
            ),
        }
    }
}

/// The columns of what is charged.
#[derive(Default)]
struct Charges<'a> {
    principal: Vec<&'a str>,
    node: Vec<i64>,
    sequence: Vec<i64>,
    actual: Vec<i64>,
}

impl<'a> Charges<'a> {
    fn new(all: &'a [Charge]) -> Self {
        let mut columns = Self::default();
        for Charge {
            account,
            cost_micros,
            ..
        } in all
        {
            columns.principal.push(&account.principal);
            columns.node.push(account.node);
            columns.sequence.push(account.sequence);
            columns.actual.push(signed(*cost_micros));
        }
        columns
    }
}

/// Appends if the ledger still ends where the node thinks, all in one statement; tells the new end
/// if it did. A node that has been declared dead does not, because the generation is another then.
pub(super) async fn append_at(
    session: &mut Session,
    node: Uuid,
    group: &Group<'_>,
    end: End,
    statements: Option<&ChargeStatements>,
) -> Result<Option<End>, SessionError> {
    let after = end.tail.after(group.body, group.count);
    let (next, count) = (signed(end.tail.next_sequence), signed(group.count));
    let (hash, before) = (&after.hash[..], &end.tail.hash[..]);
    let values: [&(dyn ToSql + Sync); 8] = [
        &group.id,
        &next,
        &count,
        &hash,
        &before,
        &end.generation,
        &group.body,
        &node,
    ];
    let appended = match statements.filter(|_| !group.charges.is_empty()) {
        None => session.execute(APPEND, &values).await,
        Some(statements) => {
            let told = Charges::new(group.charges);
            let charged: [&(dyn ToSql + Sync); 4] =
                [&told.principal, &told.node, &told.sequence, &told.actual];
            let values = [&values[..], &charged].concat();
            session.execute(&statements.append, &values).await
        }
    };
    let appended = appended.map_err(not_stored)?;
    Ok((appended == 1).then_some(End { tail: after, ..end }))
}

/// Meaning of an error of a statement that appends.
fn not_stored(error: Error) -> SessionError {
    match error.code() {
        Some(&SqlState::DIVISION_BY_ZERO) => SessionError::NotStored,
        _ => error.into(),
    }
}

/// Begins a transaction and locks the end of the ledger in it.
pub(super) async fn lock(
    session: &mut Session,
    node: Uuid,
    durable: bool,
) -> Result<Locked, SessionError> {
    let begin = if durable {
        "BEGIN; SET LOCAL synchronous_commit = on"
    } else {
        "BEGIN"
    };
    lock_after(session, node, begin).await
}

/// Does what [`lock`] does for a node that appends, and fails if the ledger does not have what the node has stored.
pub(super) async fn lock_as(
    session: &mut Session,
    node: &Node,
    durable: bool,
) -> Result<Locked, SessionError> {
    let locked = lock(session, node.id(), durable).await?;
    // As long as nobody else has appended, the end itself says so.
    if locked.end.tail != node.stored() {
        expect_stored(session, node).await?;
    }
    Ok(locked)
}

/// Fails if the ledger does not have what the node has stored.
pub(super) async fn expect_stored(session: &mut Session, node: &Node) -> Result<(), SessionError> {
    let stored = node.stored();
    if stored.next_sequence == 1 {
        return Ok(());
    }
    let last = stored.next_sequence - 1;
    let values: Values<'_> = &[&signed(last), &&stored.hash[..]];
    match session.query_opt(IS_STORED, values).await? {
        Some(row) if row.try_get(0)? => Ok(()),
        _ => Err(SessionError::RolledBack(last)),
    }
}

/// Locks the end of the ledger after these statements, which begin a transaction unless there is one.
pub(super) async fn lock_after(
    session: &mut Session,
    node: Uuid,
    begin: &str,
) -> Result<Locked, SessionError> {
    let lock = session.prepare(LOCK).await?;
    let alive = session
        .prepare("SELECT ended_at IS NULL FROM owlclaw_ledger.node WHERE id = $1")
        .await?;
    let client = session.client();
    // All sent together; each statement sees what was committed before it, so the second sees what
    // the lock was waited for.
    let (begun, tail, alive) = tokio::join!(
        biased;
        client.batch_execute(begin),
        client.query_one(&lock, &[]),
        async { client.query_opt(&alive, &[&node]).await },
    );
    begun?;
    let tail = tail?;
    Ok(Locked {
        end: End {
            tail: Tail {
                next_sequence: tail.try_get::<_, i64>(0)?.unsigned_abs(),
                hash: digest(tail.try_get(1)?),
            },
            generation: tail.try_get(2)?,
        },
        is_alive: alive?.is_some_and(|row| row.get(0)),
    })
}

/// Writes entries after a locked end and commits; tells the new end.
pub(super) async fn write(
    session: &mut Session,
    node: Uuid,
    id: Uuid,
    (body, count): (&[u8], u64),
    end: End,
) -> Result<End, SessionError> {
    if count == 0 {
        session.run("COMMIT").await?;
        return Ok(end);
    }
    let after = end.tail.after(body, count);
    let write = session.prepare(WRITE).await?;
    let client = session.client();
    let (first, count, next) = (
        signed(end.tail.next_sequence),
        signed(count),
        signed(after.next_sequence),
    );
    let hash = &after.hash[..];
    let values: Values<'_> = &[
        &first,
        &count,
        &hash,
        &body,
        &id,
        &node,
        &next,
        &end.generation,
    ];
    // If the first fails, committing takes everything back.
    let (written, committed) = tokio::join!(
        biased;
        client.execute(&write, values),
        client.batch_execute("COMMIT"),
    );
    written.map_err(not_stored)?;
    committed?;
    Ok(End { tail: after, ..end })
}

/// Appends a group with its operations, whatever the ledger's end is by now. A node that has been
/// declared dead registers again and appends under its new name. A group that has been stored is
/// not stored again.
pub(super) async fn append(
    session: &mut Session,
    node: &Node,
    group: &Group<'_>,
    statements: Option<&ChargeStatements>,
) -> Result<(Appended, Option<End>), SessionError> {
    let Locked { end, is_alive } = lock_as(session, node, group.durable).await?;
    if let Some(outcomes) = outcomes_of(session, group).await? {
        session.run("COMMIT").await?;
        let tail = end.tail;
        return Ok((Appended { tail, outcomes }, is_alive.then_some(end)));
    }
    let name = if is_alive {
        node.id()
    } else {
        node.register(session).await?
    };
    let Applied {
        outcomes,
        body,
        count,
    } = if group.operations.is_empty() {
        Applied::default()
    } else {
        carry_out(session, node, group).await?
    };
    if let Some(statements) = statements.filter(|_| !group.charges.is_empty()) {
        for charge in group.charges {
            if let Some(counted) = &charge.corrects {
                let Account {
                    principal,
                    node,
                    sequence,
                } = &charge.account;
                let (cost, month) = (signed(counted.cost_micros), signed(counted.month_start_ms));
                let values: Values<'_> = &[
                    &&**principal,
                    node,
                    sequence,
                    &counted.capability,
                    &cost,
                    &month,
                ];
                session.execute(&statements.counted, values).await?;
            }
        }
        let told = Charges::new(group.charges);
        let values: Values<'_> = &[&told.principal, &told.node, &told.sequence, &told.actual];
        session.execute(&statements.alone, values).await?;
    }
    let all = [group.body, &body].concat();
    let end = write(session, name, group.id, (&all, group.count + count), end).await?;
    node.took_name(name);
    let tail = end.tail;
    Ok((Appended { tail, outcomes }, Some(end)))
}

async fn carry_out(
    session: &mut Session,
    node: &Node,
    group: &Group<'_>,
) -> Result<Applied, SessionError> {
    let applied = claims::apply(&mut Rows(session), group.operations).await?;
    if group.operations.iter().any(tells_something) {
        session
            .store(
                "INSERT INTO owlclaw_ledger.operation_outcome (writer, group_id, outcomes)
                 VALUES ($1, $2, $3)
                 ON CONFLICT (writer) DO UPDATE SET group_id = excluded.group_id,
                    outcomes = excluded.outcomes, stored_at = clock_timestamp()",
                &[
                    &node.writer(),
                    &group.id,
                    &&encode_outcomes(&applied.outcomes)[..],
                ],
            )
            .await?;
    }
    Ok(applied)
}

/// Returns true if a caller waits for the outcome.
fn tells_something(operation: &Operation) -> bool {
    !matches!(operation, Operation::KeepResult { .. })
}

/// Outcomes of a group, if it has been stored.
async fn outcomes_of(
    session: &mut Session,
    group: &Group<'_>,
) -> Result<Option<Vec<OperationOutcome>>, SessionError> {
    // What was stored may have been archived since, where a server was frozen for days.
    if group.operations.iter().any(tells_something) {
        let sql =
            "SELECT (SELECT outcomes FROM owlclaw_ledger.operation_outcome WHERE group_id = $1),
            EXISTS (SELECT FROM owlclaw_ledger.node WHERE archived_group = $1)";
        let Some(row) = session.query_opt(sql, &[&group.id]).await? else {
            return Ok(None);
        };
        let outcomes: Option<&[u8]> = row.try_get(0)?;
        let outcomes = match outcomes {
            Some(outcomes) => decode_outcomes(outcomes).map(Some),
            None if row.try_get(1)? => Err(DecodeError::Short),
            None => Ok(None),
        };
        return outcomes.map_err(SessionError::Outcomes);
    }
    let sql = "SELECT 1 FROM owlclaw_ledger.entry_group WHERE id = $1
        UNION ALL SELECT 1 FROM owlclaw_ledger.node WHERE archived_group = $1 LIMIT 1";
    let row: Option<_> = session.query_opt(sql, &[&group.id]).await?;
    let kept = || group.operations.iter().map(|_| OperationOutcome::Kept);
    Ok(row.map(|_| kept().collect()))
}
