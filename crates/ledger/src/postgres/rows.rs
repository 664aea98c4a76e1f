//! Approvals and keys, as rows.

use super::{
    session::{Session, SessionError},
    text::{restored, stored},
};
use crate::{
    record::{
        approval::{Approval, ApprovalId, ApprovalState, Approver, Decision, NewApproval, Verdict},
        id::CallId,
        operation::{Kept, KeyClaim},
    },
    store::claims::{ClaimStore, KEEP_APPROVALS_US, KeyRow, KeyState},
};
use tokio_postgres::{Error, Row};
use uuid::Uuid;

const RUNNING: &str = "running";
const SUCCEEDED: &str = "succeeded";
const FAILED: &str = "failed";
const UNKNOWN: &str = "unknown";

/// The rows of one transaction, in which the end of the ledger is locked: a node that changes rows
/// holds that lock, so that no two nodes do at the same time.
pub(super) struct Rows<'a>(pub(super) &'a mut Session);

impl Rows<'_> {
    /// Returns true if any row is not noted yet, expires at this time, or has expired long ago.
    pub(super) async fn any_due(session: &mut Session, now_us: u64) -> Result<bool, Error> {
        let old_us = signed(now_us.saturating_sub(KEEP_APPROVALS_US));
        let row = session
            .query_opt(
                "SELECT EXISTS (SELECT FROM owlclaw_ledger.approval WHERE NOT noted)
                    OR EXISTS (SELECT FROM owlclaw_ledger.approval
                        WHERE expires_us <= $1 AND state IN ('pending', 'approved'))
                    OR EXISTS (SELECT FROM owlclaw_ledger.approval
                        WHERE expires_us < $2 AND state NOT IN ('pending', 'approved'))
                    OR EXISTS (SELECT FROM owlclaw_ledger.idempotency_key
                        WHERE until_us <= $1 AND state <> 'running')",
                &[&signed(now_us), &old_us],
            )
            .await?;
        row.map_or(Ok(false), |row| row.try_get(0))
    }
}

impl ClaimStore for Rows<'_> {
    type Error = SessionError;

    async fn approval(&mut self, id: ApprovalId) -> Result<Option<Approval>, SessionError> {
        let sql = "SELECT * FROM owlclaw_ledger.approval WHERE id = $1";
        let row = self.0.query_opt(sql, &[&id.0]).await?;
        Ok(row.as_ref().map(approval).transpose()?)
    }

    async fn live_approval(
        &mut self,
        new: &NewApproval,
        now_us: u64,
    ) -> Result<Option<Approval>, SessionError> {
        let row = self
            .0
            .query_opt(
                "SELECT * FROM owlclaw_ledger.approval
                 WHERE binding = $1 AND needs = $2 AND expires_us > $3
                    AND state IN ('pending', 'approved', 'denied')
                 ORDER BY state = 'approved' DESC, requested_us DESC LIMIT 1",
                &[&&new.binding[..], &new.needs.as_str(), &signed(now_us)],
            )
            .await?;
        Ok(row.as_ref().map(approval).transpose()?)
    }

    async fn pending(&mut self, principal: &str, now_us: u64) -> Result<(u64, u64), SessionError> {
        let row = self
            .0
            .query_opt(
                "SELECT count(*) FILTER (WHERE principal = $1)
                    + (SELECT count(*) FROM owlclaw_ledger.approval
                        WHERE expires_us > $2 AND principal = $1 AND state = 'denied'
                            AND starts_with(decided_by, 'user:')),
                    count(*)
                 FROM owlclaw_ledger.approval WHERE state = 'pending' AND expires_us > $2",
                &[&stored(principal), &signed(now_us)],
            )
            .await?;
        let Some(row) = row else { return Ok((0, 0)) };
        let number = |index| row.try_get(index).map(i64::unsigned_abs);
        Ok((number(0)?, number(1)?))
    }

    async fn put_approval(&mut self, it: &Approval, noted: bool) -> Result<(), SessionError> {
        let (decided, revoked) = (it.decided.as_ref(), it.revoked.as_ref());
        let text = |text: Option<&String>| text.map(|text| stored(text).into_owned());
        self.0
            .store(
                "INSERT INTO owlclaw_ledger.approval (id, binding, principal, capability,
                    arguments, policy_version, reason, needs, requested_us, expires_us, state,
                    decided_by, decided_us, used_by, used_us, noted, decision, decided_proof,
                    decided_reason, revoked_by, revoked_us, revoked_proof, revoked_reason)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                    $18, $19, $20, $21, $22, $23)
                 ON CONFLICT (id) DO UPDATE SET state = excluded.state,
                    decided_by = excluded.decided_by, decided_us = excluded.decided_us,
                    decision = excluded.decision, decided_proof = excluded.decided_proof,
                    decided_reason = excluded.decided_reason, revoked_by = excluded.revoked_by,
                    revoked_us = excluded.revoked_us, revoked_proof = excluded.revoked_proof,
                    revoked_reason = excluded.revoked_reason,
                    used_by = excluded.used_by, used_us = excluded.used_us,
                    noted = excluded.noted",
                &[
                    &it.id.0,
                    &&it.binding[..],
                    &stored(&it.principal),
                    &stored(&it.capability),
                    &stored(&it.arguments),
                    &it.policy_version.cast_signed(),
                    &stored(&it.reason),
                    &it.needs.as_str(),
                    &signed(it.requested_us),
                    &signed(it.expires_us),
                    &it.state.as_str(),
                    &text(decided.map(|it| &it.by)),
                    &decided.map(|it| signed(it.at_us)),
                    &it.used_by.map(|call| call.0),
                    &it.used_us.map(signed),
                    &noted,
                    &decided.map(|it| it.decision.as_str()),
                    &text(decided.and_then(|it| it.proof.as_ref())),
                    &text(decided.and_then(|it| it.reason.as_ref())),
                    &text(revoked.map(|it| &it.by)),
                    &revoked.map(|it| signed(it.at_us)),
                    &text(revoked.and_then(|it| it.proof.as_ref())),
                    &text(revoked.and_then(|it| it.reason.as_ref())),
                ],
            )
            .await
    }

    async fn unnoted(&mut self, max: usize) -> Result<Vec<Approval>, SessionError> {
        let sql = "SELECT * FROM owlclaw_ledger.approval WHERE NOT noted
            ORDER BY decided_us LIMIT $1";
        let rows = self.0.query(sql, &[&signed(max as u64)]).await?;
        Ok(rows.iter().map(approval).collect::<Result<_, _>>()?)
    }

    async fn expired(&mut self, now_us: u64, max: usize) -> Result<Vec<Approval>, SessionError> {
        let sql = "SELECT * FROM owlclaw_ledger.approval
            WHERE expires_us <= $1 AND state IN ('pending', 'approved')
            ORDER BY expires_us LIMIT $2";
        let values: [i64; 2] = [signed(now_us), signed(max as u64)];
        let rows = self.0.query(sql, &[&values[0], &values[1]]).await?;
        Ok(rows.iter().map(approval).collect::<Result<_, _>>()?)
    }

    async fn remove_old(&mut self, approvals_us: u64, keys_us: u64) -> Result<(), SessionError> {
        self.0
            .execute(
                "DELETE FROM owlclaw_ledger.approval WHERE expires_us < $1 AND noted
                    AND state NOT IN ('pending', 'approved')",
                &[&signed(approvals_us)],
            )
            .await?;
        self.0
            .execute(
                "DELETE FROM owlclaw_ledger.idempotency_key
                 WHERE until_us <= $1 AND state <> 'running'",
                &[&signed(keys_us)],
            )
            .await?;
        Ok(())
    }

    async fn key(&mut self, principal: &str, key: &str) -> Result<Option<KeyRow>, SessionError> {
        let sql = "SELECT * FROM owlclaw_ledger.idempotency_key
            WHERE principal = $1 AND key = $2";
        let values = (stored(principal), stored(key));
        let row = self.0.query_opt(sql, &[&values.0, &values.1]).await?;
        Ok(row.as_ref().map(key_row).transpose()?)
    }

    async fn key_of(&mut self, call: CallId) -> Result<Option<KeyRow>, SessionError> {
        let sql = "SELECT * FROM owlclaw_ledger.idempotency_key WHERE call = $1 LIMIT 1";
        let row = self.0.query_opt(sql, &[&call.0]).await?;
        Ok(row.as_ref().map(key_row).transpose()?)
    }

    async fn put_key(&mut self, row: &KeyRow) -> Result<(), SessionError> {
        let (state, result) = match &row.state {
            KeyState::Running => (RUNNING, None),
            KeyState::Done(kept) if kept.succeeded => (SUCCEEDED, kept.result.as_deref()),
            KeyState::Done(kept) => (FAILED, kept.result.as_deref()),
            KeyState::Unknown => (UNKNOWN, None),
        };
        let claim = &row.claim;
        self.0
            .store(
                "INSERT INTO owlclaw_ledger.idempotency_key
                    (principal, key, capability, digest, call, at_us, until_us, state, result)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
                 ON CONFLICT (principal, key) DO UPDATE SET capability = excluded.capability,
                    digest = excluded.digest, call = excluded.call, at_us = excluded.at_us,
                    until_us = excluded.until_us, state = excluded.state,
                    result = excluded.result",
                &[
                    &stored(&claim.principal),
                    &stored(&claim.key),
                    &stored(&claim.capability),
                    &&claim.digest[..],
                    &claim.call.0,
                    &signed(claim.at_us),
                    &signed(claim.until_us),
                    &state,
                    &result.map(stored),
                ],
            )
            .await
    }

    async fn remove_key(&mut self, principal: &str, key: &str) -> Result<(), SessionError> {
        let sql = "DELETE FROM owlclaw_ledger.idempotency_key
            WHERE principal = $1 AND key = $2";
        let values = (stored(principal), stored(key));
        self.0.execute(sql, &[&values.0, &values.1]).await?;
        Ok(())
    }
}

/// An approval from its row.
pub(super) fn approval(row: &Row) -> Result<Approval, Error> {
    let text = |name| row.try_get(name).map(restored);
    let time = |name| row.try_get(name).map(i64::unsigned_abs);
    let later =
        |name: &str| Ok::<_, Error>(row.try_get::<_, Option<i64>>(name)?.map(i64::unsigned_abs));
    // What nobody knows may not be used.
    let state = ApprovalState::named(row.try_get("state")?).unwrap_or(ApprovalState::Expired);
    let decision = Decision::stored(row.try_get("decision")?, state);
    let verdict = |of: &str, decision| {
        let column = |name: &str| format!("{of}_{name}");
        let text = |name| {
            let text: Option<String> = row.try_get(&*column(name))?;
            Ok::<_, Error>(text.map(restored))
        };
        let (Some(by), Some(at_us)) = (text("by")?, later(&column("us"))?) else {
            return Ok(None);
        };
        Ok::<_, Error>(Some(Verdict {
            decision,
            by,
            proof: text("proof")?,
            reason: text("reason")?,
            at_us,
        }))
    };
    Ok(Approval {
        id: ApprovalId(row.try_get("id")?),
        binding: digest(row.try_get("binding")?),
        principal: text("principal")?,
        capability: text("capability")?,
        arguments: text("arguments")?,
        policy_version: row.try_get::<_, i64>("policy_version")?.cast_unsigned(),
        reason: text("reason")?,
        needs: Approver::named(row.try_get("needs")?),
        requested_us: time("requested_us")?,
        expires_us: time("expires_us")?,
        state,
        decided: verdict("decided", decision)?,
        revoked: verdict("revoked", Decision::Revoke)?,
        used_by: row.try_get::<_, Option<Uuid>>("used_by")?.map(CallId),
        used_us: later("used_us")?,
    })
}

fn key_row(row: &Row) -> Result<KeyRow, Error> {
    let kept = |succeeded| {
        let result: Option<String> = row.try_get("result")?;
        Ok::<_, Error>(KeyState::Done(Kept {
            succeeded,
            result: result.map(restored),
        }))
    };
    let text = |name| row.try_get(name).map(restored);
    Ok(KeyRow {
        state: match row.try_get("state")? {
            RUNNING => KeyState::Running,
            SUCCEEDED => kept(true)?,
            FAILED => kept(false)?,
            _ => KeyState::Unknown,
        },
        claim: KeyClaim {
            principal: text("principal")?,
            key: text("key")?,
            capability: text("capability")?,
            digest: digest(row.try_get("digest")?),
            call: CallId(row.try_get("call")?),
            at_us: row.try_get::<_, i64>("at_us")?.unsigned_abs(),
            until_us: row.try_get::<_, i64>("until_us")?.unsigned_abs(),
        },
    })
}

/// Bytes of another length are a digest of nothing.
pub(super) fn digest(bytes: &[u8]) -> crate::record::entry::Digest {
    bytes.try_into().unwrap_or_default()
}

/// Times beyond the range are the end of it.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
