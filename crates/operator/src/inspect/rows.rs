//! Records as operators see them: objects of the admin API, and rows of a table.

use data_encoding::HEXLOWER;
use governance::Micros;
use ledger::{Approval, CallId, CallRecord, Clipped, Cut, Ended, Noted, Outcome, Started};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::export::ServerNames;
use super::sheet::{Cell, Row, row};
use crate::request::when::shown;

/// An object whose members are the columns of a row.
macro_rules! object {
    (
        $(#[$about:meta])*
        $name:ident { $($(#[$meaning:meta])* $member:ident: $type:ty,)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Serialize, JsonSchema)]
        pub struct $name {
            $($(#[$meaning])* pub $member: $type,)*
        }

        impl $name {
            pub(super) const COLUMNS: &[&str] = &[$(stringify!($member)),*];

            /// A value for each column.
            pub(super) fn row(self) -> Row {
                vec![$(Cell::from(self.$member)),*]
            }
        }
    };
}
pub(super) use object;

object! {
    /// A call in the ledger: its start, and its end once there is one.
    CallRow {
        /// Name of the call, a UUID.
        call: String,
        /// Number of the entry of its start.
        sequence: u64,
        /// Time of its start, RFC 3339.
        time: String,
        /// Client.
        client: String,
        /// Capability, as `kind/name`.
        capability: String,
        /// Outcome, or `open`.
        outcome: String,
        /// Reason of a refusal.
        reason: Option<String>,
        /// Fate of the answer: handed to the client or not.
        delivery: Option<String>,
        /// Code of the error that the client got.
        error_code: Option<i64>,
        /// True if the result says that the tool failed.
        is_error: Option<bool>,
        /// Milliseconds that it took.
        duration_ms: Option<f64>,
        /// Expected cost, decimal.
        estimated_cost: String,
        /// Cost, decimal.
        cost: Option<String>,
        /// Version of the rules that decided.
        policy_version: u64,
        /// Transport by which it came.
        transport: Option<String>,
        /// Revision of the protocol.
        protocol_version: Option<String>,
        /// Method of the request.
        method: Option<String>,
        /// Id of the request, as JSON.
        request_id: Option<String>,
        /// Session.
        session: Option<String>,
        /// W3C trace.
        trace_id: Option<String>,
        /// Name that the client gave itself, unproven.
        client_label: Option<String>,
        /// Approval that the call named.
        approval: Option<String>,
        /// Idempotency key.
        idempotency_key: Option<String>,
        /// Digest of the definition that was called.
        definition_digest: Option<String>,
        /// Task that the call became.
        task: Option<String>,
        /// Call whose answer it was given again.
        replay_of: Option<String>,
        /// Arguments, redacted; numbers have all of their digits.
        arguments: Cell,
        /// Digest of the arguments in canonical form.
        arguments_digest: Option<String>,
        /// Result, redacted.
        result: Cell,
        /// Message of a failure.
        message: Option<String>,
        /// Length of a result of which the record has a part.
        result_bytes: Option<u64>,
        /// Digest of such a result.
        result_digest: Option<String>,
        /// Way by which it came, besides that of every call.
        via: Option<String>,
    }
}

object! {
    /// An event in the ledger other than a call.
    NoteRow {
        /// Number of the entry.
        sequence: u64,
        /// Time, RFC 3339.
        time: String,
        /// Kind of event.
        kind: String,
        /// Actor: a principal, `operator:` and a name, or `system`.
        actor: Option<String>,
        /// Subject.
        subject: Option<String>,
        /// Version of the rules at that time.
        policy_version: u64,
        /// More about it.
        detail: Cell,
    }
}

object! {
    /// A call that waits, or has waited, for a person's decision.
    ApprovalRow {
        /// Name of the approval, `apr_…`.
        id: String,
        /// State: `pending`, `approved`, `denied`, `used`, `expired` or `revoked`.
        state: String,
        /// Client that wants to call.
        client: String,
        /// Capability that it wants to call, as `kind/name`.
        capability: String,
        /// Person who may decide: `user` or `operator`.
        needs: String,
        /// Reason why a decision is needed.
        reason: Option<String>,
        /// Arguments in full, redacted; numbers have all of their digits.
        arguments: Cell,
        /// Version of the rules that asked for it.
        policy_version: u64,
        /// Time of the request, RFC 3339.
        requested: String,
        /// Time from which it can neither be decided nor used, RFC 3339.
        expires: String,
        /// Person who decided.
        decided_by: Option<String>,
        /// Proof of who they are.
        decided_proof: Option<String>,
        /// Reason that they gave.
        decided_reason: Option<String>,
        /// Time of the decision, RFC 3339.
        decided: Option<String>,
        /// Person who took the decision back.
        revoked_by: Option<String>,
        /// Proof of who they are.
        revoked_proof: Option<String>,
        /// Reason that they gave.
        revoked_reason: Option<String>,
        /// Time of that, RFC 3339.
        revoked: Option<String>,
        /// Call that used it.
        used_by: Option<String>,
        /// Time of its use, RFC 3339.
        used: Option<String>,
        /// Digest of exactly what is agreed to.
        binding: String,
    }
}

pub(super) const CALL: &[&str] = CallRow::COLUMNS;
pub(super) const NOTE: &[&str] = NoteRow::COLUMNS;
pub(super) const APPROVAL: &[&str] = ApprovalRow::COLUMNS;

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
        of_end(|ended| json!(milliseconds(ended.duration_us))),
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
    CallRow::of(record).row()
}

/// The same of the parts of a record.
pub(super) fn parts(call: CallId, sequence: u64, it: &Started, ended: Option<&Ended>) -> Row {
    CallRow::of_parts(call, sequence, it, ended).row()
}

pub(super) fn note(sequence: u64, noted: &Noted) -> Row {
    NoteRow::of(sequence, noted).row()
}

/// As it is at `now_us`.
pub(super) fn approval(approval: &Approval, now_us: u64) -> Row {
    ApprovalRow::of(approval, now_us).row()
}

impl CallRow {
    /// Row of a record.
    #[must_use]
    pub fn of(record: &CallRecord) -> Self {
        let ended = record.ended.as_ref();
        Self::of_parts(record.call, record.sequence, &record.started, ended)
    }

    /// Row of the parts of a record.
    #[must_use]
    pub fn of_parts(call: CallId, sequence: u64, it: &Started, ended: Option<&Ended>) -> Self {
        let whole = ended.and_then(whole);
        Self {
            call: call.to_string(),
            sequence,
            time: shown(it.at_us),
            client: it.principal.clone(),
            capability: it.capability.clone(),
            outcome: ended.map_or("open", |it| it.outcome.as_str()).to_owned(),
            reason: ended.and_then(|it| match &it.outcome {
                Outcome::Denied { reason } => Some(reason.to_string()),
                _ => None,
            }),
            delivery: ended.map(|it| it.transport().as_str().to_owned()),
            error_code: ended.and_then(|it| it.error_code.map(i64::from)),
            is_error: ended.map(|it| it.is_error),
            duration_ms: ended.map(|it| milliseconds(it.duration_us)),
            estimated_cost: amount(it.estimated_cost_micros),
            cost: ended.map(|it| amount(it.cost_micros)),
            policy_version: it.policy_version,
            transport: text(&it.transport),
            protocol_version: text(&it.protocol_version),
            method: text(&it.method),
            request_id: text(&it.request_id),
            session: it.session.clone(),
            trace_id: it.trace_id.clone(),
            client_label: it.client_label.clone(),
            approval: it.approval.map(|approval| approval.to_string()),
            idempotency_key: it.idempotency_key.clone(),
            definition_digest: it.definition_digest.as_ref().map(|it| HEXLOWER.encode(it)),
            task: it.task.clone(),
            replay_of: it.replay_of.map(|call| call.to_string()),
            arguments: content(&it.arguments),
            arguments_digest: it.arguments_digest.as_ref().map(|it| HEXLOWER.encode(it)),
            result: ended.map_or(Value::Null.into(), |it| content(&it.result)),
            message: ended.and_then(|it| it.message.clone()),
            result_bytes: whole.map(|it| it.whole_bytes),
            result_digest: whole.map(|it| HEXLOWER.encode(&it.digest)),
            via: it.via.clone(),
        }
    }
}

impl NoteRow {
    /// Row of the note of this number.
    #[must_use]
    pub fn of(sequence: u64, noted: &Noted) -> Self {
        Self {
            sequence,
            time: shown(noted.at_us),
            kind: noted.kind.as_str().to_owned(),
            actor: text(&noted.actor),
            subject: text(&noted.subject),
            policy_version: noted.policy_version,
            detail: content(&noted.detail),
        }
    }
}

impl ApprovalRow {
    /// Row of an approval as it is at `now_us`: microseconds since the epoch, UTC.
    #[must_use]
    pub fn of(approval: &Approval, now_us: u64) -> Self {
        let (decided, revoked) = (approval.decided.as_ref(), approval.revoked.as_ref());
        Self {
            id: approval.id.to_string(),
            state: approval.state_at(now_us).as_str().to_owned(),
            client: approval.principal.clone(),
            capability: approval.capability.clone(),
            needs: approval.needs.as_str().to_owned(),
            reason: text(&approval.reason),
            arguments: Cell::of_json(&approval.arguments),
            policy_version: approval.policy_version,
            requested: shown(approval.requested_us),
            expires: shown(approval.expires_us),
            decided_by: decided.map(|it| it.by.clone()),
            decided_proof: decided.and_then(|it| it.proof.clone()),
            decided_reason: decided.and_then(|it| it.reason.clone()),
            decided: decided.map(|it| shown(it.at_us)),
            revoked_by: revoked.map(|it| it.by.clone()),
            revoked_proof: revoked.and_then(|it| it.proof.clone()),
            revoked_reason: revoked.and_then(|it| it.reason.clone()),
            revoked: revoked.map(|it| shown(it.at_us)),
            used_by: approval.used_by.map(|call| call.to_string()),
            used: approval.used_us.map(shown),
            binding: HEXLOWER.encode(&approval.binding),
        }
    }
}

/// Length and digest of a result of which the record has a part.
fn whole(ended: &Ended) -> Option<Cut> {
    ended.whole.or(ended.result.cut)
}

/// Decimal text, as everywhere.
pub(super) fn amount(micros: u64) -> String {
    Micros(micros).to_string()
}

pub(super) fn milliseconds(us: u64) -> f64 {
    us as f64 / 1_000.0
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
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
