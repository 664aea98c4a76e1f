//! Answers to operators as JSON, the same for routes and commands.

use crate::{
    clock::{rfc3339_millis, timestamp},
    mcp_server::McpServer,
};
use governance::{BreakerPhase, Micros, QuotaStore, UnavailableError};
use ledger::{
    Approval, ApprovalError, ApprovalFilter, ApprovalId, QueryError, ReadLedger, StatisticsQuery,
    Verdict, statistics,
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue, value::to_raw_value};
use std::collections::BTreeMap;

/// The most approvals that are told at once.
pub const MAX_APPROVALS: usize = 1_000;

impl<Q: QuotaStore> McpServer<Q> {
    /// Use of its limits by every principal, tools that rest, and roles of callers that the policy does
    /// not know, as of now.
    ///
    /// # Errors
    ///
    /// [`UnavailableError`] when the counters cannot be reached.
    pub async fn usage_json(&self) -> Result<Value, UnavailableError> {
        let now_us = self.now_us();
        let usage = self.governor().usage(timestamp(now_us)).await?;
        let policy = self.governor().policy();
        let usage: Vec<_> = usage
            .into_iter()
            .map(|it| {
                let (quota, reads) = policy.limits(&*it.principal);
                json!({
                    "limits": {
                        "monthly_budget": quota.monthly_budget.map(|it| it.to_string()),
                        "calls_minute": quota.max_calls_per_minute,
                        "calls_day": quota.max_calls_per_day,
                        "cost_per_call": quota.max_cost_per_call.map(|it| it.to_string()),
                        "reads_minute": reads.per_minute,
                        "reads_day": reads.per_day,
                    },
                    "principal": it.principal,
                    "spent": it.spent.to_string(),
                    "calls_minute": it.calls_minute,
                    "calls_day": it.calls_day,
                    "reads_minute": it.reads_minute,
                    "reads_day": it.reads_day,
                    "running": it.running,
                })
            })
            .collect();
        let breakers = self.governor().breaker_states(timestamp(now_us));
        let breakers: Vec<_> = breakers
            .into_iter()
            .map(|it| {
                let mut breaker = match it.phase {
                    BreakerPhase::Closed { failures } => {
                        json!({ "state": "closed", "failures": failures })
                    }
                    BreakerPhase::Open { rest } => {
                        json!({ "state": "open", "rest_seconds": rest.as_secs_f64() })
                    }
                    BreakerPhase::HalfOpen { trying } => {
                        json!({ "state": "half_open", "trying": trying })
                    }
                };
                breaker["capability"] = json!(it.capability);
                breaker
            })
            .collect();
        let unknown = self.governor().unknown_roles();
        Ok(json!({
            "at": rfc3339_millis(now_us),
            "policy_version": self.governor().policy().version(),
            "usage": usage,
            "breakers": breakers,
            "unknown_roles": { "asks": unknown.asks, "names": unknown.names },
        }))
    }

    /// Decides an approval, or revokes a decision, as an operator, who is on record as `operator:` and
    /// the name in `verdict`. Returns the approval as it is then.
    ///
    /// # Errors
    ///
    /// [`ApprovalError`]: it cannot be decided, or nobody can say whether it was.
    pub async fn decide_approval(
        &self,
        approval: ApprovalId,
        verdict: Verdict,
    ) -> Result<Box<RawValue>, ApprovalError> {
        let now_us = self.now_us();
        let verdict = Verdict {
            // Whatever they call themselves, they are not the user at a client.
            by: format!("operator:{}", verdict.by),
            at_us: now_us,
            ..verdict
        };
        let decided = self.recorder().decide_approval(approval, verdict);
        Ok(approval_json(&decided.await?, now_us))
    }
}

/// Calls in numbers, of a ledger. Blocks.
///
/// # Errors
///
/// [`QueryError`] when the ledger cannot be read.
pub fn statistics_json(
    ledger: &mut dyn ReadLedger,
    query: StatisticsQuery<'_>,
) -> Result<Value, QueryError> {
    let rows = statistics(ledger, query)?.into_iter().map(|row| {
        let tally = &row.tally;
        let seconds = |percent| {
            let duration = tally.durations.percentile(percent);
            duration.map(|it| it.as_secs_f64())
        };
        json!({
            "principal": row.principal,
            "capability": row.capability,
            "since": rfc3339_millis(row.since_us),
            "calls": tally.calls(),
            "open": tally.open,
            "succeeded": tally.succeeded,
            "failed": tally.failed,
            "invalid": tally.invalid,
            "timed_out": tally.timed_out,
            "cancelled": tally.cancelled,
            "abandoned": tally.abandoned,
            "unknown": tally.unknown,
            "refused": tally.refused,
            "cost": Micros(tally.cost_micros).to_string(),
            "seconds": { "p50": seconds(50), "p95": seconds(95), "p99": seconds(99) },
        })
    });
    Ok(rows.collect())
}

/// The approvals of a ledger that meet `filter`, [`MAX_APPROVALS`] at most, the newest first. Blocks.
///
/// # Errors
///
/// [`QueryError`] when the ledger cannot be read.
pub fn approvals_json(
    ledger: &mut dyn ReadLedger,
    filter: ApprovalFilter<'_>,
    now_us: u64,
) -> Result<Box<RawValue>, QueryError> {
    let approvals = ledger.approvals(MAX_APPROVALS, filter)?;
    let approvals = approvals.iter().map(|it| approval_json(it, now_us));
    Ok(raw(&approvals.collect::<Vec<_>>()))
}

/// One approval, as it is at `now_us`: microseconds since the epoch, UTC. Numbers in its arguments
/// are as they are kept.
#[must_use]
pub fn approval_json(approval: &Approval, now_us: u64) -> Box<RawValue> {
    let arguments = RawValue::from_string(approval.arguments.clone());
    let arguments = arguments.unwrap_or_else(|_| raw(&approval.arguments));
    let (decided, revoked) = (approval.decided.as_ref(), approval.revoked.as_ref());
    let at = |verdict: &Verdict| rfc3339_millis(verdict.at_us);
    raw(&[
        ("id", raw(&approval.id.to_string())),
        ("state", raw(approval.state_at(now_us).as_str())),
        ("principal", raw(&approval.principal)),
        ("capability", raw(&approval.capability)),
        ("arguments", arguments),
        ("reason", raw(&approval.reason)),
        ("needs", raw(approval.needs.as_str())),
        ("policy_version", raw(&approval.policy_version)),
        ("requested_at", raw(&rfc3339_millis(approval.requested_us))),
        ("expires_at", raw(&rfc3339_millis(approval.expires_us))),
        ("decided_by", raw(&decided.map(|it| &it.by))),
        ("decided_at", raw(&decided.map(at))),
        ("decided_proof", raw(&decided.map(|it| &it.proof))),
        ("decided_reason", raw(&decided.map(|it| &it.reason))),
        ("revoked_by", raw(&revoked.map(|it| &it.by))),
        ("revoked_at", raw(&revoked.map(at))),
        ("revoked_proof", raw(&revoked.map(|it| &it.proof))),
        ("revoked_reason", raw(&revoked.map(|it| &it.reason))),
        (
            "used_by",
            raw(&approval.used_by.map(|call| call.to_string())),
        ),
    ]
    .into_iter()
    .collect::<BTreeMap<_, _>>())
}

fn raw(value: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    to_raw_value(value).expect("plain data serializes")
}
