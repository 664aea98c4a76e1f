//! Records as rows of a table.

use governance::Micros;
use ledger::{Approval, CallId, CallRecord, Clipped, Cut, Digest, Ended, Noted, Outcome, Started};
use serde_json::{Value, json};

use super::export::ServerNames;
use super::sheet::{Cell, Row, row};
use crate::request::when::shown;

pub(super) const CALL: [&str; 33] = [
    "call",
    "sequence",
    "time",
    "client",
    "capability",
    "outcome",
    "reason",
    "delivery",
    "error_code",
    "is_error",
    "duration_ms",
    "estimated_cost",
    "cost",
    "policy_version",
    "transport",
    "protocol_version",
    "method",
    "request_id",
    "session",
    "trace_id",
    "client_label",
    "approval",
    "idempotency_key",
    "definition_digest",
    "task",
    "replay_of",
    "arguments",
    "arguments_digest",
    "result",
    "message",
    "result_bytes",
    "result_digest",
    "via",
];

pub(super) const CALL_SHOWN: [(&str, &str); 8] = [
    ("time", "TIME"),
    ("call", "CALL"),
    ("client", "CLIENT"),
    ("capability", "CAPABILITY"),
    ("outcome", "OUTCOME"),
    ("reason", "REASON"),
    ("cost", "COST"),
    ("duration_ms", "MILLISECONDS"),
];

pub(super) const NOTE: [&str; 7] = [
    "sequence",
    "time",
    "kind",
    "actor",
    "subject",
    "policy_version",
    "detail",
];

pub(super) const APPROVAL: [&str; 21] = [
    "id",
    "state",
    "client",
    "capability",
    "needs",
    "reason",
    "arguments",
    "policy_version",
    "requested",
    "expires",
    "decided_by",
    "decided_proof",
    "decided_reason",
    "decided",
    "revoked_by",
    "revoked_proof",
    "revoked_reason",
    "revoked",
    "used_by",
    "used",
    "binding",
];

pub(super) const APPROVAL_SHOWN: [(&str, &str); 9] = [
    ("id", "ID"),
    ("state", "STATE"),
    ("client", "CLIENT"),
    ("capability", "CAPABILITY"),
    ("needs", "NEEDS"),
    ("expires", "EXPIRES"),
    ("decided_by", "DECIDED BY"),
    ("decided_proof", "PROVED BY"),
    ("arguments", "ARGUMENTS"),
];

/// Members of a line of the audit log (founding document 003, §7.3), and behind them our own.
pub(super) const AUDIT: [&str; 9] = [
    "timestamp",
    "server",
    "tool",
    "agent",
    "args",
    "duration_ms",
    "outcome",
    "reason",
    "call",
];

/// Name of this server in the audit log.
const OWN_NAME: &str = "owlclaw-mcp";

/// A call of a tool as a line of the audit log; `None` for any other call.
pub(super) fn audit(
    call: CallId,
    it: &Started,
    ended: Option<&Ended>,
    servers: &ServerNames,
) -> Option<Row> {
    let name = it.capability.strip_prefix("tool/")?;
    let placed = ended.and_then(|ended| placed(ended.message.as_deref()?));
    let known = || {
        let (server, tool) = servers.get(name)?;
        Some((server.as_str(), tool.as_str()))
    };
    let (server, tool) = placed.or_else(known).unwrap_or((OWN_NAME, name));
    let of_end = |value: fn(&Ended) -> Value| ended.map_or(Value::Null, value);
    Some(row![
        json!(shown(it.at_us)),
        json!(server),
        json!(tool),
        json!(it.principal),
        content(&it.arguments),
        of_end(|ended| milliseconds(ended.duration_us)),
        json!(ended.map_or("open", |ended| ended.outcome.as_str())),
        of_end(|ended| match &ended.outcome {
            Outcome::Denied { reason } => json!(reason),
            _ => Value::Null,
        }),
        json!(call.to_string()),
    ])
}

/// The upstream and its own name of the tool, as the end of a call that reached it has them.
fn placed(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.rsplit_once("upstream ")?;
    let (server, rest) = rest.split_once(", tool ")?;
    let (tool, _) = rest.rsplit_once(", revision ")?;
    Some((server, tool))
}

pub(super) fn call(record: &CallRecord) -> Row {
    parts(
        record.call,
        record.sequence,
        &record.started,
        record.ended.as_ref(),
    )
}

/// The same of the parts of a record.
pub(super) fn parts(call: CallId, sequence: u64, it: &Started, ended: Option<&Ended>) -> Row {
    let of_end = |value: fn(&Ended) -> Value| ended.map_or(Value::Null, value);
    row![
        json!(call.to_string()),
        json!(sequence),
        json!(shown(it.at_us)),
        json!(it.principal),
        json!(it.capability),
        json!(ended.map_or("open", |ended| ended.outcome.as_str())),
        of_end(|ended| match &ended.outcome {
            Outcome::Denied { reason } => json!(reason),
            _ => Value::Null,
        }),
        of_end(|ended| json!(ended.transport().as_str())),
        of_end(|ended| json!(ended.error_code)),
        of_end(|ended| json!(ended.is_error)),
        of_end(|ended| milliseconds(ended.duration_us)),
        amount(it.estimated_cost_micros),
        of_end(|ended| amount(ended.cost_micros)),
        json!(it.policy_version),
        text(&it.transport),
        text(&it.protocol_version),
        text(&it.method),
        text(&it.request_id),
        json!(it.session),
        json!(it.trace_id),
        json!(it.client_label),
        json!(it.approval.map(|approval| approval.to_string())),
        json!(it.idempotency_key),
        json!(it.definition_digest.as_ref().map(hex)),
        json!(it.task),
        json!(it.replay_of.map(|call| call.to_string())),
        content(&it.arguments),
        json!(it.arguments_digest.as_ref().map(hex)),
        ended.map_or(Value::Null.into(), |ended| content(&ended.result)),
        of_end(|ended| json!(ended.message)),
        of_end(|ended| json!(whole(ended).map(|it| it.whole_bytes))),
        of_end(|ended| json!(whole(ended).map(|it| hex(&it.digest)))),
        json!(it.via),
    ]
}

/// Length and digest of a result of which the record has a part.
fn whole(ended: &Ended) -> Option<Cut> {
    ended.whole.or(ended.result.cut)
}

pub(super) fn note(sequence: u64, noted: &Noted) -> Row {
    row![
        json!(sequence),
        json!(shown(noted.at_us)),
        json!(noted.kind.as_str()),
        text(&noted.actor),
        text(&noted.subject),
        json!(noted.policy_version),
        content(&noted.detail),
    ]
}

/// As it is at `now_us`.
pub(super) fn approval(approval: &Approval, now_us: u64) -> Row {
    let time = |us: Option<u64>| json!(us.map(shown));
    let (decided, revoked) = (approval.decided.as_ref(), approval.revoked.as_ref());
    row![
        json!(approval.id.to_string()),
        json!(approval.state_at(now_us).as_str()),
        json!(approval.principal),
        json!(approval.capability),
        json!(approval.needs.as_str()),
        text(&approval.reason),
        Cell::of_json(&approval.arguments),
        json!(approval.policy_version),
        json!(shown(approval.requested_us)),
        json!(shown(approval.expires_us)),
        json!(decided.map(|it| &it.by)),
        json!(decided.map(|it| &it.proof)),
        json!(decided.map(|it| &it.reason)),
        time(decided.map(|it| it.at_us)),
        json!(revoked.map(|it| &it.by)),
        json!(revoked.map(|it| &it.proof)),
        json!(revoked.map(|it| &it.reason)),
        time(revoked.map(|it| it.at_us)),
        json!(approval.used_by.map(|call| call.to_string())),
        time(approval.used_us),
        json!(hex(&approval.binding)),
    ]
}

/// Decimal text, as everywhere.
pub(super) fn amount(micros: u64) -> Value {
    json!(Micros(micros).to_string())
}

pub(super) fn milliseconds(us: u64) -> Value {
    json!(us as f64 / 1_000.0)
}

pub(super) fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(text: &str) -> Value {
    match text {
        "" => Value::Null,
        text => json!(text),
    }
}

/// Recorded text of JSON: as JSON, if it is complete.
fn content(clipped: &Clipped) -> Cell {
    match clipped.cut {
        None => Cell::of_json(&clipped.text),
        Some(cut) => Cell::Plain(json!(format!(
            "{}… ({} bytes in all)",
            clipped.text, cut.whole_bytes
        ))),
    }
}
