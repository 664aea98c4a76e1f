//! Calls that wait for a person's decision.

use http::StatusCode;
use ledger::{
    ApprovalError, ApprovalFilter, ApprovalId, ApprovalProblem, ApprovalState, Decision,
    MAX_REASON_BYTES, Verdict, system_now_us,
};
use operator::look::{self, ApprovalRow, shown};
use operator::request::{StateName, Whose};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Count, limit};
use crate::call::Call;
use crate::reply::{Problem, Reply};

/// Approvals before which a page may begin.
const MAX_LOOKED_THROUGH: usize = 10_000;

/// Filter for approvals.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// `pending`, which is the default, `approved`, `denied`, `used`, `expired`, `revoked` or `all`.
    state: Option<String>,
    /// Only those of this client.
    client: Option<String>,
    /// Only those for this tool.
    tool: Option<String>,
    /// The most to list: 50 if not said, 500 at most.
    limit: Option<Count>,
    /// Go on after this approval, which ended a page.
    before: Option<String>,
}

/// Page of approvals.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Approvals {
    /// Approvals, the last that was asked for first.
    approvals: Vec<ApprovalRow>,
    /// Value of `before` for the next page, if there is one.
    next: Option<String>,
    /// Time at which the ledger was asked, RFC 3339.
    at: String,
}

/// An approval, and what it may be compared with.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Shown {
    /// The approval.
    approval: ApprovalRow,
    /// The last approval of the same client for the same capability that was given before.
    agreed_before: Option<ApprovalRow>,
    /// Time at which the ledger was asked, RFC 3339.
    at: String,
}

/// Decision of a person.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Deciding {
    /// `approve`, `deny`, or `revoke` for an earlier decision.
    decision: String,
    /// Reason, one line of at most 512 bytes.
    #[serde(default)]
    reason: Option<String>,
    /// `binding` of what was looked at: the decision is refused if the approval is for anything else.
    #[serde(default)]
    binding: Option<String>,
}

fn state(name: Option<&str>) -> Result<StateName, Problem> {
    Ok(match name {
        None | Some("pending") => StateName::Pending,
        Some("approved") => StateName::Approved,
        Some("denied") => StateName::Denied,
        Some("used") => StateName::Used,
        Some("expired") => StateName::Expired,
        Some("revoked") => StateName::Revoked,
        Some("all") => StateName::All,
        Some(_) => return Err(Problem::bad("there is no such `state`")),
    })
}

pub(crate) async fn list(call: Call<'_>) -> Result<Reply, Problem> {
    let wanted: Wanted = call.query()?;
    let (state, most) = (state(wanted.state.as_deref())?, limit(wanted.limit)?);
    let before: Option<ApprovalId> = super::read("before", wanted.before.as_ref())?;
    let who = Whose {
        client: wanted.client,
        tool: wanted.tool,
        resource: None,
    };
    let now_us = system_now_us();
    let read = call.desk.read(move |reader, _| {
        let all = look::approvals(reader, &who, state, MAX_LOOKED_THROUGH, now_us)?;
        let from = match before {
            None => 0,
            Some(id) => all.iter().position(|it| it.id == id).map_or(0, |at| at + 1),
        };
        let page: Vec<_> = all.iter().skip(from).take(most).collect();
        let is_last = all.len() <= from + page.len();
        let next = page.last().filter(|_| !is_last).map(|it| it.id.to_string());
        let rows = page.iter().map(|it| ApprovalRow::of(it, now_us));
        Ok((rows.collect(), next))
    });
    let (approvals, next) = read.await?;
    Ok(Reply::json(&Approvals {
        approvals,
        next,
        at: shown(now_us),
    }))
}

fn id(call: &Call<'_>) -> Result<ApprovalId, Problem> {
    let missing = || Problem::missing("there is no such approval");
    call.name().parse().map_err(|_| missing())
}

async fn find(call: &Call<'_>, id: ApprovalId) -> Result<Shown, Problem> {
    let now_us = system_now_us();
    let read = call.desk.read(move |reader, _| {
        let Some(approval) = reader.approval(id)? else {
            return Ok(None);
        };
        let filter = ApprovalFilter {
            principal: Some(&approval.principal),
            capability: Some(&approval.capability),
            ..ApprovalFilter::default()
        };
        let others = reader.approvals(100, filter)?;
        let before = others.iter().find(|it| {
            let was_given = matches!(it.state, ApprovalState::Approved | ApprovalState::Used);
            it.id != id && was_given && it.requested_us <= approval.requested_us
        });
        Ok(Some(Shown {
            agreed_before: before.map(|it| ApprovalRow::of(it, now_us)),
            approval: ApprovalRow::of(&approval, now_us),
            at: shown(now_us),
        }))
    });
    let found = read.await?;
    found.ok_or_else(|| Problem::missing("there is no such approval"))
}

pub(crate) async fn show(call: Call<'_>) -> Result<Reply, Problem> {
    let id = id(&call)?;
    Ok(Reply::json(&find(&call, id).await?))
}

pub(crate) async fn decide(call: Call<'_>) -> Result<Reply, Problem> {
    let id = id(&call)?;
    let deciding: Deciding = call.body()?;
    let decision = match deciding.decision.as_str() {
        "approve" => Decision::Approve,
        "deny" => Decision::Deny,
        "revoke" => Decision::Revoke,
        _ => return Err(Problem::bad("`decision` is `approve`, `deny` or `revoke`")),
    };
    let reason = deciding.reason.as_deref().map(str::trim);
    let reason = reason.filter(|it| !it.is_empty()).map(str::to_owned);
    if let Some(reason) = &reason
        && (MAX_REASON_BYTES < reason.len() || reason.chars().any(char::is_control))
    {
        let why = format!("`reason` is one line of at most {MAX_REASON_BYTES} bytes");
        return Err(Problem::bad(why));
    }
    let found = find(&call, id).await?.approval;
    if deciding.binding.is_some_and(|it| it != found.binding) {
        let why = "this is not what was looked at: look again";
        return Err(Problem::new(StatusCode::CONFLICT, why));
    }
    let who = call.who();
    if decision != Decision::Deny && found.client == *who.name {
        let why = "you made this call: another person has to decide on it or revoke the decision";
        return Err(Problem::new(StatusCode::FORBIDDEN, why));
    }
    let verdict = Verdict {
        proof: Some(who.proof.clone()),
        reason,
        ..Verdict::new(decision, who.name.to_string(), system_now_us())
    };
    match call.desk.server.decide_approval(id, verdict).await {
        Ok(()) => Ok(Reply::json(&find(&call, id).await?.approval)),
        Err(ApprovalError::Refused(why)) => Err(Problem::new(
            match why {
                ApprovalProblem::Missing => StatusCode::NOT_FOUND,
                _ => StatusCode::CONFLICT,
            },
            why.to_string(),
        )),
        Err(error @ ApprovalError::Record(_)) => Err(Problem::undecided(&error)),
    }
}
