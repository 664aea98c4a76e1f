//! The stored form of a call, from which it can be begun again.

use crate::{input::rounds, tasks::convert};
use adapter_tools::Answers;
use jsonrpc_core::{ErrorCode, Id, RawJson};
use ledger::CallId;
use mcp_protocol::{
    ProtocolVersion, TraceContext,
    model::{ClientCapabilities, Effect, TaskState},
};
use mcp_service::{McpError, RequestCx, TransportKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use task_store::TaskRecord;

/// The most bytes that are stored of a call: 4 MiB. One that is larger is not begun again.
const MAX_SAVED_BYTES: usize = 4 * 1024 * 1024;

/// A call as it was made: it is governed, and its arguments are checked, as if it came now. What is
/// believed of it is what is believed of the record around it, which says whose it is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredCall {
    arguments: Box<RawValue>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    responses: BTreeMap<String, Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<Value>,
    transport: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
    /// The roles that were vouched for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    roles: Vec<String>,
    /// Expiry of the roles: microseconds since the epoch, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    roles_until_us: Option<u64>,
    #[serde(default)]
    capabilities: ClientCapabilities,
    /// As in [`Invocation`](crate::Invocation).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_most: Option<Effect>,
    /// The place where it is carried out: it is gone on with, and not begun again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resume: Option<Value>,
    /// True if it was queued: the first attempt that a worker makes is the first at all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_queued: bool,
    /// Idempotency key of a queued call, as its client sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<Box<str>>,
}

/// Attempt that a worker makes first of a queued call: that of the server which has accepted it is the one before.
pub(crate) const FIRST_OF_QUEUED: u64 = 2;

/// The text of a call; `None` if it is too large.
pub(crate) fn text_of(
    cx: &RequestCx,
    arguments: &RawJson,
    at_most: Option<Effect>,
    answers: Option<&Answers>,
) -> Option<String> {
    text(cx, arguments, at_most, answers, None, false)
}

/// The text of a call that waits for a worker; `None` if it is too large.
pub(crate) fn text_to_queue(
    cx: &RequestCx,
    arguments: &RawJson,
    at_most: Option<Effect>,
    answers: Option<&Answers>,
) -> Option<String> {
    text(cx, arguments, at_most, answers, None, true)
}

/// The text of a call that is carried out elsewhere; `None` if it is too large.
pub(crate) fn text_to_resume(
    cx: &RequestCx,
    arguments: &RawJson,
    at_most: Option<Effect>,
    resume: &Value,
) -> Option<String> {
    text(cx, arguments, at_most, None, Some(resume.clone()), false)
}

fn text(
    cx: &RequestCx,
    arguments: &RawJson,
    at_most: Option<Effect>,
    answers: Option<&Answers>,
    resume: Option<Value>,
    is_queued: bool,
) -> Option<String> {
    let trace = cx.trace();
    let roles = cx.principal.roles();
    let saved = StoredCall {
        arguments: rounds::boxed(arguments)?,
        responses: answers.map(|it| it.responses.clone()).unwrap_or_default(),
        state: answers.and_then(|it| it.state.clone()),
        transport: cx.transport.as_str().to_owned(),
        session: cx.session.as_deref().map(str::to_owned),
        traceparent: trace.map(TraceContext::traceparent),
        tracestate: trace.and_then(|it| it.tracestate().map(str::to_owned)),
        roles: roles.iter().map(|role| (**role).to_owned()).collect(),
        roles_until_us: cx.principal.expires().map(micros_of),
        capabilities: cx.capabilities.clone(),
        at_most,
        resume,
        is_queued,
        idempotency_key: cx.meta.idempotency_key.clone().filter(|_| is_queued),
    };
    let text = serde_json::to_string(&saved).ok()?;
    (text.len() <= MAX_SAVED_BYTES).then_some(text)
}

/// Microseconds since the epoch; none of what was before.
fn micros_of(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A call that was read back.
pub(crate) struct Again {
    pub(crate) cx: RequestCx,
    pub(crate) arguments: RawJson,
    pub(crate) at_most: Option<Effect>,
    pub(crate) answers: Option<Arc<Answers>>,
    pub(crate) resume: Option<Value>,
    /// True if no attempt before this one can have begun the call.
    pub(crate) is_first: bool,
}

/// Reads a call back at `now_us`, for the `attempt`-th time that `record` is begun; `None` if it
/// cannot be. It has the roles that it was made with for as long as they were vouched for, and none
/// afterwards.
pub(crate) fn read(record: &TaskRecord, attempt: u64, text: &str, now_us: u64) -> Option<Again> {
    let saved: StoredCall = serde_json::from_str(text).ok()?;
    let version: ProtocolVersion = record.protocol_version.parse().ok()?;
    let transport = TransportKind::ALL
        .into_iter()
        .find(|it| it.as_str() == saved.transport)?;
    let mut cx = RequestCx::detached(version, &record.principal).with_transport(transport);
    if saved.roles_until_us.is_none_or(|until| now_us < until) {
        let roles = saved.roles.into_iter().map(Into::into).collect();
        let principal = cx.principal.clone().with_roles(roles);
        cx.principal = match saved.roles_until_us {
            Some(until) => principal.until(UNIX_EPOCH + Duration::from_micros(until)),
            None => principal,
        };
    }
    // The record has the task and the attempt where it has the id of a request.
    cx.id = Id::String(format!("task/{}/{attempt}", record.id).into());
    cx.session = saved.session.map(Into::into);
    let parent = saved.traceparent.as_deref();
    let trace = parent.and_then(|it| TraceContext::parse(it, saved.tracestate.as_deref()));
    cx.meta.trace = trace.map(Box::new);
    cx.capabilities = saved.capabilities;
    let is_first = saved.is_queued && attempt == FIRST_OF_QUEUED;
    cx.meta.idempotency_key = saved.idempotency_key.filter(|_| is_first);
    let has_answers = !saved.responses.is_empty() || saved.state.is_some();
    Some(Again {
        cx,
        at_most: saved.at_most,
        resume: saved.resume,
        is_first,
        arguments: RawJson::from_serialized(String::from(Box::<str>::from(saved.arguments)).into()),
        answers: has_answers.then(|| {
            Arc::new(Answers {
                responses: saved.responses,
                state: saved.state,
            })
        }),
    })
}

/// The outcome of a task whose call was cut short, and is not begun again for this reason. `call` names its
/// entry in the ledger, if it is known.
pub(crate) fn cut_short(details: &str, call: Option<CallId>) -> (TaskState, Option<String>) {
    let message = "the server stopped before the call had ended";
    let error = McpError::new(ErrorCode::INTERNAL_ERROR, message);
    // It may have done what it does: whether to call it again is for somebody who can find out.
    let mut data = json!({ "details": details, "retryable": false });
    if let Some(call) = call {
        data["call"] = json!(call.to_string());
    }
    let error = convert::error_json(&McpError(error.0.with(&data)));
    (TaskState::Failed { error }, Some(message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use task_store::{TaskId, TaskState as Stored};

    fn record() -> TaskRecord {
        TaskRecord {
            id: TaskId::random(),
            principal: "anna".to_owned(),
            capability: "tool/t".to_owned(),
            protocol_version: "2026-07-28".to_owned(),
            created_us: 0,
            updated_us: 0,
            expires_us: 1,
            sequence: 1,
            state: Stored::Working,
            message: None,
        }
    }

    #[test]
    fn a_call_comes_back_as_it_was() {
        let mut cx = RequestCx::detached(ProtocolVersion::V2026_07_28, "anna")
            .with_transport(TransportKind::Http);
        cx.session = Some("s".into());
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        cx.meta.trace = TraceContext::parse(parent, Some("a=1")).map(Box::new);
        let declared = json!({ "elicitation": { "form": {}, "url": {} }, "roots": {},
                               "extensions": { "io.modelcontextprotocol/tasks": {} } });
        cx.capabilities = serde_json::from_value(declared).unwrap();
        // As it was written: digits that no number has, and a member that is there twice.
        let arguments = RawJson::from_serialized(br#"{ "a":1.00e0, "a":"\u0000" }"#.to_vec());
        let answer = RawValue::from_string(r#"{"action":"accept"}"#.to_owned()).unwrap();
        let answers = Answers {
            responses: [("k".to_owned(), answer)].into(),
            state: Some(json!({ "step": 2 })),
        };
        for answers in [None, Some(&answers)] {
            let text = text_of(&cx, &arguments, Some(Effect::Read), answers).unwrap();
            let record = record();
            let again = read(&record, 2, &text, 0).unwrap();
            assert_eq!(again.arguments.as_str(), arguments.as_str());
            assert_eq!(again.at_most, Some(Effect::Read));
            assert_eq!(again.cx.principal, cx.principal);
            assert_eq!(again.cx.version, cx.version);
            assert_eq!(again.cx.transport, cx.transport);
            assert_eq!(again.cx.session, cx.session);
            assert_eq!(again.cx.meta.trace, cx.meta.trace);
            assert_eq!(again.cx.capabilities, cx.capabilities);
            assert_eq!(
                again.cx.id,
                Id::String(format!("task/{}/2", record.id).into())
            );
            let came = again
                .answers
                .map(|it| (it.responses["k"].to_string(), it.state.clone()));
            let went = answers.map(|it| (it.responses["k"].to_string(), it.state.clone()));
            assert_eq!(came, went);
        }
    }

    #[test]
    fn roles_come_back_for_as_long_as_they_were_vouched_for() {
        let roles: Arc<[Arc<str>]> = ["clerk".into()].into();
        let mut cx = RequestCx::detached(ProtocolVersion::V2026_07_28, "anna");
        let roles_at = |cx: &RequestCx, now_us| {
            let text = text_of(cx, &RawJson::EMPTY_OBJECT, None, None).unwrap();
            let again = read(&record(), 2, &text, now_us).unwrap();
            // And once more, as when the next process ends as well.
            let text = text_of(&again.cx, &RawJson::EMPTY_OBJECT, None, None).unwrap();
            let again = read(&record(), 3, &text, now_us).unwrap();
            again.cx.principal.roles().to_vec()
        };
        assert_eq!(roles_at(&cx, 0), []);
        cx.principal = cx.principal.clone().with_roles(Arc::clone(&roles));
        assert_eq!(roles_at(&cx, u64::MAX), *roles);
        let soon = UNIX_EPOCH + Duration::from_micros(7);
        cx.principal = cx.principal.clone().until(soon);
        assert_eq!(roles_at(&cx, 6), *roles);
        assert_eq!(roles_at(&cx, 7), []);
    }

    #[test]
    fn what_is_too_large_is_not_stored_and_what_cannot_be_read_is_no_call() {
        let cx = RequestCx::detached(ProtocolVersion::V2026_07_28, "anna");
        let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_SAVED_BYTES));
        let large = RawJson::from_serialized(large.into_bytes());
        assert_eq!(text_of(&cx, &large, None, None), None);
        let text = text_of(&cx, &RawJson::EMPTY_OBJECT, None, None).unwrap();
        assert!(read(&record(), 2, &text, 0).is_some());
        for bad in ["", "{}", &text[1..], &text.replace("stdio", "pigeons")] {
            assert!(read(&record(), 2, bad, 0).is_none(), "{bad}");
        }
        let unknown = TaskRecord {
            protocol_version: "1999-01-01".to_owned(),
            ..record()
        };
        assert!(read(&unknown, 2, &text, 0).is_none());
    }
}
