//! Explanation of how the rules would decide on a call.

use std::time::Duration;

use governance::{Caller, Explanation, Remaining};
use ledger::ApprovalId;
use serde_json::{Value, json};

use super::sheet::{Sheet, pretty, row};
use crate::request::{ListFormat, RowsFormat, What};
use config::Config;
use server::Failure;
use server::{self, Callee, Explained};

/// `governance explain`.
pub(crate) fn explain(
    config: &Config,
    caller: Caller<'_>,
    what: &What,
    arguments: Option<&str>,
    format: ListFormat,
) -> Result<String, Failure> {
    if let Some(arguments) = arguments {
        let value: Value = serde_json::from_str(arguments)
            .map_err(|error| format!("--args is not JSON: {error}"))?;
        if !value.is_object() {
            return Err("--args must be a JSON object".into());
        }
    }
    let (callee, name) = match (&what.tool, &what.resource, &what.prompt) {
        (Some(tool), ..) => (Callee::Tool(tool), tool),
        (None, Some(uri), _) => (Callee::Resource(uri), uri),
        (None, None, Some(prompt)) => (Callee::Prompt(prompt), prompt),
        (None, None, None) => return Err("name a tool, a resource or a prompt".into()),
    };
    let explained = server::explain(config, caller, callee, arguments)?;
    if matches!(format, ListFormat::Json) {
        return Ok(pretty(&explanation(&explained)));
    }
    match explained {
        Explained::Unknown(meant) => {
            let meant = meant.map(|meant| format!("; did you mean `{meant}`?"));
            let meant = meant.unwrap_or_default();
            Ok(format!(
                "{name} is unknown: nothing on offer is called so{meant}"
            ))
        }
        Explained::Known {
            capability,
            explanation,
            violations,
            approval,
        } => table(caller, &capability, &explanation, &violations, approval),
    }
}

/// An explanation as an object.
#[must_use]
pub fn explanation(explained: &Explained) -> Value {
    match explained {
        Explained::Unknown(meant) => json!({
            "verdict": "unknown",
            "reason": "unknown",
            "meant": meant,
        }),
        Explained::Known {
            explanation,
            violations,
            approval,
            ..
        } => object(explanation, violations, *approval),
    }
}

/// The reason of a call whose arguments do not fit.
const ARGUMENTS: &str = "arguments";

/// `allowed`, `to be confirmed` or `refused`.
fn verdict(
    explanation: &Explanation,
    violations: &[String],
    approval: Option<ApprovalId>,
) -> &'static str {
    match (explanation.reason(), explanation.confirmation()) {
        (Some(_), _) => "refused",
        (None, _) if !violations.is_empty() => "refused",
        (None, Some(_)) if approval.is_none() => "to_be_confirmed",
        (None, _) => "allowed",
    }
}

/// Reason why the call is refused. Rules come before arguments, as they do when a call is made.
fn reason(explanation: &Explanation, violations: &[String]) -> Option<&'static str> {
    let by_rule = explanation.reason().map(|reason| reason.as_str());
    by_rule.or((!violations.is_empty()).then_some(ARGUMENTS))
}

fn object(explanation: &Explanation, violations: &[String], approval: Option<ApprovalId>) -> Value {
    let steps = explanation.steps.iter().map(|step| {
        json!({
            "check": step.check.as_str(),
            "outcome": step.outcome.to_string(),
            "rule": step.rule,
        })
    });
    json!({
        "verdict": verdict(explanation, violations, approval),
        "reason": reason(explanation, violations),
        "violations": violations,
        "confirmation": explanation.confirmation().map(|who| who.as_str()),
        "approval": approval.map(|id| id.to_string()),
        "policy_version": explanation.policy_version,
        "steps": steps.collect::<Vec<_>>(),
        "remaining": remaining(&explanation.remaining),
    })
}

fn remaining(left: &Remaining) -> Value {
    let seconds = |duration: Option<Duration>| duration.map(|it| it.as_secs_f64());
    json!({
        "budget": left.budget.map(|it| it.to_string()),
        "budget_limit": left.budget_limit.map(|it| it.to_string()),
        "calls_this_minute": left.minute,
        "calls_this_minute_limit": left.minute_limit,
        "calls_this_day": left.day,
        "calls_this_day_limit": left.day_limit,
        "cooldown_seconds": seconds(left.cooldown),
        "running": left.running,
        "running_limit": left.running_limit,
    })
}

fn table(
    caller: Caller<'_>,
    capability: &str,
    explanation: &Explanation,
    violations: &[String],
    approval: Option<ApprovalId>,
) -> Result<String, Failure> {
    let client = match caller.roles {
        [] => caller.principal.to_owned(),
        roles => format!("{} with {}", caller.principal, roles.join(", ")),
    };
    let steps = explanation.steps.iter().map(|step| {
        row![
            json!(step.check.as_str()),
            json!(step.outcome.to_string()),
            json!(step.rule),
        ]
    });
    let wrong = violations
        .iter()
        .map(|it| row![json!(ARGUMENTS), json!("refused (arguments)"), json!(it)]);
    let steps = steps.chain(wrong);
    let steps = Sheet {
        columns: &["check", "outcome", "rule"],
        shown: &[("check", "CHECK"), ("outcome", "OUTCOME"), ("rule", "RULE")],
        rows: steps.collect(),
    };
    let left = &explanation.remaining;
    let of = |left: Option<String>, limit: Option<String>| match (left, limit) {
        (Some(left), Some(limit)) => format!("{left} of {limit}"),
        _ => "no limit".to_owned(),
    };
    let count = |number: Option<u32>| number.map(|it| it.to_string());
    let amount = |amount: Option<governance::Micros>| amount.map(|it| it.to_string());
    let reason = reason(explanation, violations);
    let verdict = match (reason, explanation.confirmation(), approval) {
        (Some(reason), ..) => format!("refused: {reason}"),
        (None, Some(_), Some(approval)) => format!("allowed once, by {approval}"),
        (None, Some(who), None) => format!("to be confirmed by: {who}"),
        (None, None, _) => "allowed".to_owned(),
    };
    Ok(format!(
        "{}\n\nbudget left   {}\nthis minute   {}\nthis day      {}\nrunning       {}\n\
         policy        {}\n{client} calls {capability}: {verdict}",
        steps.print(RowsFormat::Table)?,
        of(amount(left.budget), amount(left.budget_limit)),
        of(count(left.minute), count(left.minute_limit)),
        of(count(left.day), count(left.day_limit)),
        of(count(left.running), count(left.running_limit)),
        explanation.policy_version,
    ))
}
