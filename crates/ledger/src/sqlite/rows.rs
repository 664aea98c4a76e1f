//! Approvals and keys in `SQLite`.

use crate::{
    record::{
        approval::{Approval, ApprovalId, ApprovalState, Approver, Decision, NewApproval, Verdict},
        id::CallId,
        operation::{Kept, KeyClaim},
    },
    sqlite::one_row,
    store::claims::{ClaimStore, KeyRow, KeyState},
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use std::future::{Future, ready};
use uuid::Uuid;

const RUNNING: &str = "running";
const SUCCEEDED: &str = "succeeded";
const FAILED: &str = "failed";
const UNKNOWN: &str = "unknown";

/// The rows of one transaction.
pub(crate) struct Rows<'a>(&'a Connection);

impl<'a> Rows<'a> {
    pub(crate) fn new(transaction: &'a Transaction<'_>) -> Self {
        Self(transaction)
    }

    /// Marks the keys of running calls as unknown: the process of these calls has ended.
    pub(crate) fn give_up_running(connection: &Connection) -> rusqlite::Result<()> {
        connection.execute(
            "UPDATE idempotency_key SET state = ?1 WHERE state = ?2",
            [UNKNOWN, RUNNING],
        )?;
        Ok(())
    }

    /// Returns true if any row expires at this time or has expired long ago.
    pub(crate) fn any_due(connection: &Connection, now_us: u64) -> rusqlite::Result<bool> {
        let mut select = connection.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM unsaid_note)
                OR EXISTS (SELECT 1 FROM approval WHERE noted = 0)
                OR EXISTS (SELECT 1 FROM approval
                    WHERE expires_us <= ?1 AND state IN ('pending', 'approved'))
                OR EXISTS (SELECT 1 FROM approval WHERE expires_us < ?2)
                OR EXISTS (SELECT 1 FROM idempotency_key
                    WHERE until_us <= ?1 AND state <> 'running')",
        )?;
        let old_us = now_us.saturating_sub(crate::store::claims::KEEP_APPROVALS_US);
        select.query_row([signed(now_us), signed(old_us)], |row| row.get(0))
    }

    fn one_approval(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> rusqlite::Result<Option<Approval>> {
        let mut select = self.0.prepare_cached(sql)?;
        select.query_row(values, approval).optional()
    }

    fn approvals(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> rusqlite::Result<Vec<Approval>> {
        let mut select = self.0.prepare_cached(sql)?;
        let rows = select.query_map(values, approval)?;
        rows.collect()
    }

    fn one_key(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> rusqlite::Result<Option<KeyRow>> {
        let mut select = self.0.prepare_cached(sql)?;
        select.query_row(values, key).optional()
    }

    fn execute(&self, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<()> {
        self.0.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// Stores a row, in the place of one that may be there.
    fn put(&self, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<()> {
        one_row(self.0.prepare_cached(sql)?.execute(values)?)
    }
}

impl ClaimStore for Rows<'_> {
    type Error = rusqlite::Error;

    fn approval(
        &mut self,
        id: ApprovalId,
    ) -> impl Future<Output = rusqlite::Result<Option<Approval>>> + Send {
        let sql = "SELECT * FROM approval WHERE id = ?1";
        ready(self.one_approval(sql, [id.0.as_bytes()]))
    }

    fn live_approval(
        &mut self,
        new: &NewApproval,
        now_us: u64,
    ) -> impl Future<Output = rusqlite::Result<Option<Approval>>> + Send {
        ready(self.one_approval(
            "SELECT * FROM approval WHERE binding = ?1 AND needs = ?2 AND expires_us > ?3
                AND state IN ('pending', 'approved', 'denied')
             ORDER BY state = 'approved' DESC, requested_us DESC LIMIT 1",
            params![new.binding, new.needs.as_str(), signed(now_us)],
        ))
    }

    fn pending(
        &mut self,
        principal: &str,
        now_us: u64,
    ) -> impl Future<Output = rusqlite::Result<(u64, u64)>> + Send {
        let count = || {
            let mut select = self.0.prepare_cached(
                "SELECT count(*) FILTER (WHERE principal = ?1) + (SELECT count(*) FROM approval
                        WHERE expires_us > ?2 AND principal = ?1 AND state = 'denied'
                            AND substr(decided_by, 1, 5) = 'user:'),
                    count(*)
                 FROM approval WHERE state = 'pending' AND expires_us > ?2",
            )?;
            select.query_row(params![principal, signed(now_us)], |row| {
                let number = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
                Ok((number(0)?, number(1)?))
            })
        };
        ready(count())
    }

    fn put_approval(
        &mut self,
        it: &Approval,
        noted: bool,
    ) -> impl Future<Output = rusqlite::Result<()>> + Send {
        let (decided, revoked) = (it.decided.as_ref(), it.revoked.as_ref());
        ready(self.put(
            "INSERT OR REPLACE INTO approval (id, binding, principal, capability, arguments,
                policy_version, reason, needs, requested_us, expires_us, state, decided_by,
                decided_us, used_by, used_us, noted, decision, decided_proof, decided_reason,
                revoked_by, revoked_us, revoked_proof, revoked_reason)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
                ?19, ?20, ?21, ?22, ?23)",
            params![
                it.id.0.as_bytes(),
                it.binding,
                it.principal,
                it.capability,
                it.arguments,
                it.policy_version.cast_signed(),
                it.reason,
                it.needs.as_str(),
                signed(it.requested_us),
                signed(it.expires_us),
                it.state.as_str(),
                decided.map(|it| &it.by),
                decided.map(|it| signed(it.at_us)),
                it.used_by.map(|call| *call.0.as_bytes()),
                it.used_us.map(signed),
                noted,
                decided.map(|it| it.decision.as_str()),
                decided.and_then(|it| it.proof.as_deref()),
                decided.and_then(|it| it.reason.as_deref()),
                revoked.map(|it| &it.by),
                revoked.map(|it| signed(it.at_us)),
                revoked.and_then(|it| it.proof.as_deref()),
                revoked.and_then(|it| it.reason.as_deref()),
            ],
        ))
    }

    fn unnoted(
        &mut self,
        max: usize,
    ) -> impl Future<Output = rusqlite::Result<Vec<Approval>>> + Send {
        ready(self.approvals(
            "SELECT * FROM approval WHERE noted = 0 ORDER BY decided_us LIMIT ?1",
            [signed(max as u64)],
        ))
    }

    fn expired(
        &mut self,
        now_us: u64,
        max: usize,
    ) -> impl Future<Output = rusqlite::Result<Vec<Approval>>> + Send {
        ready(self.approvals(
            "SELECT * FROM approval WHERE expires_us <= ?1 AND state IN ('pending', 'approved')
             ORDER BY expires_us LIMIT ?2",
            [signed(now_us), signed(max as u64)],
        ))
    }

    fn remove_old(
        &mut self,
        approvals_us: u64,
        keys_us: u64,
    ) -> impl Future<Output = rusqlite::Result<()>> + Send {
        let approvals = self.execute(
            "DELETE FROM approval WHERE expires_us < ?1 AND noted = 1
                AND state NOT IN ('pending', 'approved')",
            [signed(approvals_us)],
        );
        let keys = || {
            self.execute(
                "DELETE FROM idempotency_key WHERE until_us <= ?1 AND state <> 'running'",
                [signed(keys_us)],
            )
        };
        ready(approvals.and_then(|()| keys()))
    }

    fn key(
        &mut self,
        principal: &str,
        key: &str,
    ) -> impl Future<Output = rusqlite::Result<Option<KeyRow>>> + Send {
        let sql = "SELECT * FROM idempotency_key WHERE principal = ?1 AND key = ?2";
        ready(self.one_key(sql, [principal, key]))
    }

    fn key_of(
        &mut self,
        call: CallId,
    ) -> impl Future<Output = rusqlite::Result<Option<KeyRow>>> + Send {
        let sql = "SELECT * FROM idempotency_key WHERE call = ?1";
        ready(self.one_key(sql, [call.0.as_bytes()]))
    }

    fn put_key(&mut self, row: &KeyRow) -> impl Future<Output = rusqlite::Result<()>> + Send {
        let (state, result) = match &row.state {
            KeyState::Running => (RUNNING, None),
            KeyState::Done(kept) if kept.succeeded => (SUCCEEDED, kept.result.as_deref()),
            KeyState::Done(kept) => (FAILED, kept.result.as_deref()),
            KeyState::Unknown => (UNKNOWN, None),
        };
        let claim = &row.claim;
        ready(self.put(
            "INSERT OR REPLACE INTO idempotency_key
                (principal, key, capability, digest, call, at_us, until_us, state, result)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                claim.principal,
                claim.key,
                claim.capability,
                claim.digest,
                claim.call.0.as_bytes(),
                signed(claim.at_us),
                signed(claim.until_us),
                state,
                result,
            ],
        ))
    }

    fn remove_key(
        &mut self,
        principal: &str,
        key: &str,
    ) -> impl Future<Output = rusqlite::Result<()>> + Send {
        let sql = "DELETE FROM idempotency_key WHERE principal = ?1 AND key = ?2";
        ready(self.execute(sql, [principal, key]))
    }
}

/// An approval from its row.
pub(crate) fn approval(row: &Row<'_>) -> rusqlite::Result<Approval> {
    let state: String = row.get("state")?;
    // What nobody knows may not be used.
    let state = ApprovalState::named(&state).unwrap_or(ApprovalState::Expired);
    let decision: Option<String> = newer(row.get("decision"))?;
    let decision = Decision::stored(decision.as_deref(), state);
    Ok(Approval {
        id: ApprovalId(Uuid::from_bytes(row.get("id")?)),
        binding: row.get("binding")?,
        principal: row.get("principal")?,
        capability: row.get("capability")?,
        arguments: row.get("arguments")?,
        policy_version: row.get::<_, i64>("policy_version")?.cast_unsigned(),
        reason: row.get("reason")?,
        needs: Approver::named(row.get_ref("needs")?.as_str()?),
        requested_us: row.get::<_, i64>("requested_us")?.unsigned_abs(),
        expires_us: row.get::<_, i64>("expires_us")?.unsigned_abs(),
        state,
        decided: verdict(row, "decided", decision)?,
        revoked: verdict(row, "revoked", Decision::Revoke)?,
        used_by: row
            .get::<_, Option<[u8; 16]>>("used_by")?
            .map(|call| CallId(Uuid::from_bytes(call))),
        used_us: unsigned(row.get("used_us")?),
    })
}

/// A decision, in the columns that begin with this word.
fn verdict(row: &Row<'_>, of: &str, decision: Decision) -> rusqlite::Result<Option<Verdict>> {
    let column = |name: &str| format!("{of}_{name}");
    let by: Option<String> = newer(row.get(&*column("by")))?;
    let at_us: Option<i64> = newer(row.get(&*column("us")))?;
    let (Some(by), Some(at_us)) = (by, at_us) else {
        return Ok(None);
    };
    Ok(Some(Verdict {
        decision,
        by,
        proof: newer(row.get(&*column("proof")))?,
        reason: newer(row.get(&*column("reason")))?,
        at_us: at_us.unsigned_abs(),
    }))
}

/// A value of a column that files of older versions do not have.
fn newer<T>(value: rusqlite::Result<Option<T>>) -> rusqlite::Result<Option<T>> {
    match value {
        Err(rusqlite::Error::InvalidColumnName(_)) => Ok(None),
        value => value,
    }
}

fn key(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
    let state: String = row.get("state")?;
    let kept = |succeeded| -> rusqlite::Result<KeyState> {
        let result = row.get("result")?;
        Ok(KeyState::Done(Kept { succeeded, result }))
    };
    Ok(KeyRow {
        claim: KeyClaim {
            principal: row.get("principal")?,
            key: row.get("key")?,
            capability: row.get("capability")?,
            digest: row.get("digest")?,
            call: CallId(Uuid::from_bytes(row.get("call")?)),
            at_us: row.get::<_, i64>("at_us")?.unsigned_abs(),
            until_us: row.get::<_, i64>("until_us")?.unsigned_abs(),
        },
        state: match state.as_str() {
            RUNNING => KeyState::Running,
            SUCCEEDED => kept(true)?,
            FAILED => kept(false)?,
            _ => KeyState::Unknown,
        },
    })
}

fn unsigned(number: Option<i64>) -> Option<u64> {
    number.map(i64::unsigned_abs)
}

/// Times beyond the range are the end of it.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
