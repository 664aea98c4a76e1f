//! What callers are told of their quota (decision D21).

use governance::{Denial, Remaining};
use mcp_protocol::model::ResultMeta;
use mcp_service::{RequestCx, TransportKind};
use serde::Serialize;
use std::{fmt::Write, time::Duration};

/// The `_meta` entry of tool results.
const META_KEY: &str = "io.owlclaw/quota";

#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_remaining: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls_remaining_minute: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls_remaining_day: Option<u32>,
}

fn report(remaining: &Remaining) -> Option<Report> {
    let report = Report {
        budget_remaining: remaining.budget.map(|budget| budget.to_string()),
        calls_remaining_minute: remaining.minute,
        calls_remaining_day: remaining.day,
    };
    let limited =
        remaining.budget.is_some() || remaining.minute.is_some() || remaining.day.is_some();
    limited.then_some(report)
}

/// As it stands in error data.
pub(crate) fn as_json(remaining: &Remaining) -> Option<serde_json::Value> {
    serde_json::to_value(report(remaining)?).ok()
}

pub(crate) fn annotate(meta: &mut ResultMeta, remaining: &Remaining) {
    if let Some(report) = report(remaining) {
        meta.insert(META_KEY, &report);
    }
}

pub(crate) fn hint_denied(cx: &RequestCx, denial: &Denial) {
    hint(cx, &denial.remaining);
    if let Some(wait) = denial.retry_after {
        cx.hint("retry-after", ceiling_seconds(wait).to_string());
    }
}

/// Headers, where the transport has them: the IETF draft's `RateLimit` fields and the budget.
pub(crate) fn hint(cx: &RequestCx, remaining: &Remaining) {
    if cx.transport != TransportKind::Http {
        return;
    }
    let mut policy = String::new();
    let mut state = String::new();
    let mut add = |name: &str,
                   window: u64,
                   limit: Option<u32>,
                   left: Option<u32>,
                   resets: Option<Duration>| {
        let (Some(limit), Some(left)) = (limit, left) else {
            return;
        };
        let comma = if policy.is_empty() { "" } else { ", " };
        let _ = write!(policy, "{comma}\"{name}\";q={limit};w={window}");
        let _ = write!(state, "{comma}\"{name}\";r={left}");
        if let Some(resets) = resets {
            let _ = write!(state, ";t={}", ceiling_seconds(resets));
        }
    };
    add(
        "minute",
        60,
        remaining.minute_limit,
        remaining.minute,
        remaining.minute_resets,
    );
    add(
        "day",
        86_400,
        remaining.day_limit,
        remaining.day,
        remaining.day_resets,
    );
    if !policy.is_empty() {
        cx.hint("ratelimit-policy", policy);
        cx.hint("ratelimit", state);
    }
    if let Some(budget) = remaining.budget {
        cx.hint("x-owlclaw-budget-remaining", budget.to_string());
    }
}

/// Rounded up: who comes back after that many seconds must not be too early.
pub(crate) fn ceiling_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() != 0)
}
