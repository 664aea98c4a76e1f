//! Remaining quota in results, errors and HTTP headers (decision D21).

use bytes::Bytes;
use governance::{Denial, Micros, Remaining};
use jsonrpc_core::RawJson;
use mcp_protocol::model::ResultMeta;
use mcp_service::{RequestCx, TransportKind};
use std::{cell::RefCell, time::Duration};

/// The `_meta` entry of tool results.
const META_KEY: &str = "io.owlclaw/quota";

/// The remaining quota as one JSON object; `None` where nothing is limited. Names are short because
/// some frameworks show the object to models with each result. Written by hand for the same reason as
/// the headers.
pub(crate) fn report(remaining: &Remaining) -> Option<RawJson> {
    let mut json = Line::default();
    let begin = |json: &mut Line, name: &str| {
        json.push(if json.is_empty() { "{\"" } else { ",\"" });
        json.push(name);
    };
    if let Some(budget) = remaining.budget {
        begin(&mut json, "budget\":\"");
        json.push_amount(budget);
        json.push("\"");
    }
    if let Some(minute) = remaining.minute {
        begin(&mut json, "minute\":");
        json.push_number(minute.into());
    }
    if let Some(day) = remaining.day {
        begin(&mut json, "day\":");
        json.push_number(day.into());
    }
    if json.is_empty() {
        return None;
    }
    json.push("}");
    Some(RawJson::from_serialized(json.bytes().to_vec()))
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
    let limits = [
        minute.0.filter(|_| minute.1.is_some()),
        day.0.filter(|_| day.1.is_some()),
    ];
    // Written by hand: every call over HTTP has them, and formatting cost a tenth of the call.
    let mut state = Line::default();
    for (name, (limit, left, resets)) in [("minute", minute), ("day", day)] {
        let (Some(_), Some(left)) = (limit, left) else {
            continue;
        };
        state.push(if state.is_empty() { "\"" } else { ", \"" });
        state.push(name);
        state.push("\";r=");
        state.push_number(left.into());
        if let Some(resets) = resets {
            state.push(";t=");
            state.push_number(ceiling_seconds(resets));
        }
    }
    if !state.is_empty() {
        cx.hint("ratelimit-policy", policy_of(limits));
        cx.hint("ratelimit", state.to_bytes());
    }
    if let Some(budget) = remaining.budget {
        let text = Bytes::copy_from_slice(budget.write_to(&mut [0; Micros::MOST_BYTES]));
        cx.hint("x-owlclaw-budget-remaining", text);
    }
}

/// Limits per minute and per day.
type Limits = [Option<u32>; 2];

thread_local! {
    /// The header of the limits that were told last: most callers of a server have the same.
    static LAST_POLICY: RefCell<(Limits, Bytes)> = const { RefCell::new(([None; 2], Bytes::new())) };
}

/// The header that tells of limits.
fn policy_of(limits: Limits) -> Bytes {
    LAST_POLICY.with_borrow_mut(|(known, header)| {
        if *known != limits {
            let mut policy = Line::default();
            let windows = [("\"minute\";q=", ";w=60"), ("\"day\";q=", ";w=86400")];
            for ((begin, end), limit) in windows.into_iter().zip(limits) {
                let Some(limit) = limit else { continue };
                policy.push(if policy.is_empty() { "" } else { ", " });
                policy.push(begin);
                policy.push_number(limit.into());
                policy.push(end);
            }
            (*known, *header) = (limits, policy.to_bytes());
        }
        header.clone()
    })
}

/// A short text that is put together without an allocation: longer than any of the above.
struct Line {
    bytes: [u8; 160],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            bytes: [0; 160],
            length: 0,
        }
    }
}

impl Line {
    fn push(&mut self, text: &str) {
        self.push_bytes(text.as_bytes());
    }

    /// Appends text, or nothing of it if it does not fit.
    fn push_bytes(&mut self, text: &[u8]) {
        let end = self.length + text.len();
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(text);
            self.length = end;
        }
    }

    fn push_amount(&mut self, amount: Micros) {
        self.push_bytes(amount.write_to(&mut [0; Micros::MOST_BYTES]));
    }

    fn push_number(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number));
    }

    fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.bytes())
    }
}

/// Rounded up: who comes back after that many seconds must not be too early.
pub(crate) fn ceiling_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
