//! Remaining quota in results, errors and HTTP headers (decision D21).

use governance::{Denial, Remaining};
use jsonrpc_core::RawJson;
use mcp_protocol::model::ResultMeta;
use mcp_service::{RequestCx, TransportKind};
use std::time::Duration;

/// The `_meta` entry of tool results.
const META_KEY: &str = "io.owlclaw/quota";

/// The remaining quota as one JSON object; `None` where nothing is limited. Names are short because
/// some frameworks show the object to models with each result. Written by hand for the same reason as
/// the headers.
pub(crate) fn report(remaining: &Remaining) -> Option<RawJson> {
    let mut json = String::with_capacity(128);
    let mut member = |name: &str, value: &str, quote: &str| {
        json.push_str(if json.is_empty() { "{\"" } else { ",\"" });
        for part in [name, "\":", quote, value, quote] {
            json.push_str(part);
        }
    };
    if let Some(budget) = remaining.budget {
        member("budget", &budget.to_string(), "\"");
    }
    let mut number = itoa::Buffer::new();
    if let Some(minute) = remaining.minute {
        member("minute", number.format(minute), "");
    }
    if let Some(day) = remaining.day {
        member("day", number.format(day), "");
    }
    if json.is_empty() {
        return None;
    }
    json.push('}');
    Some(RawJson::from_serialized(json.into_bytes()))
}

/// The same for error data.
pub(crate) fn as_json(remaining: &Remaining) -> Option<serde_json::Value> {
    report(remaining)?.parse().ok()
}

pub(crate) fn annotate(meta: &mut ResultMeta, remaining: &Remaining) {
    if let Some(report) = report(remaining) {
        meta.insert_raw(META_KEY, report);
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
    let minute = (
        remaining.minute_limit,
        remaining.minute,
        remaining.minute_resets,
    );
    let day = (remaining.day_limit, remaining.day, remaining.day_resets);
    // Written by hand: every call over HTTP has them, and formatting cost a tenth of the call.
    let mut policy = String::with_capacity(64);
    let mut state = String::with_capacity(64);
    for (name, window, (limit, left, resets)) in [("minute", 60, minute), ("day", 86_400, day)] {
        let (Some(limit), Some(left)) = (limit, left) else {
            continue;
        };
        let comma = if policy.is_empty() { "\"" } else { ", \"" };
        policy.push_str(comma);
        policy.push_str(name);
        push_number(&mut policy, "\";q=", limit.into());
        push_number(&mut policy, ";w=", window);
        state.push_str(comma);
        state.push_str(name);
        push_number(&mut state, "\";r=", left.into());
        if let Some(resets) = resets {
            push_number(&mut state, ";t=", ceiling_seconds(resets));
        }
    }
    if !policy.is_empty() {
        cx.hint("ratelimit-policy", policy);
        cx.hint("ratelimit", state);
    }
    if let Some(budget) = remaining.budget {
        cx.hint("x-owlclaw-budget-remaining", budget.to_string());
    }
}

fn push_number(text: &mut String, before: &str, number: u64) {
    text.push_str(before);
    text.push_str(itoa::Buffer::new().format(number));
}

/// Rounded up: who comes back after that many seconds must not be too early.
pub(crate) fn ceiling_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use governance::Micros;

    #[test]
    fn what_is_left_is_told_in_json_and_in_headers_of_the_draft() {
        let remaining = Remaining {
            budget: Some(Micros(1_500_000)),
            minute: Some(4),
            minute_limit: Some(5),
            minute_resets: Some(Duration::from_millis(59_001)),
            day: Some(99),
            day_limit: Some(100),
            ..Remaining::default()
        };
        let cx = RequestCx::detached(mcp_protocol::ProtocolVersion::V2026_07_28, "x")
            .with_transport(TransportKind::Http);
        let report = as_json(&remaining).unwrap();
        let expected = serde_json::json!({ "budget": "1.5", "minute": 4, "day": 99 });
        assert_eq!(report, expected);
        assert_eq!(as_json(&Remaining::default()), None);
        hint(&cx, &remaining);
        let hints: Vec<_> = cx.hints();
        assert_eq!(
            hints,
            [
                (
                    "ratelimit-policy",
                    "\"minute\";q=5;w=60, \"day\";q=100;w=86400".to_owned()
                ),
                ("ratelimit", "\"minute\";r=4;t=60, \"day\";r=99".to_owned()),
                ("x-owlclaw-budget-remaining", "1.5".to_owned()),
            ]
        );
    }
}
