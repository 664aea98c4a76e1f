//! Calls that are sent again under the same idempotency key: done once, and answered as before.

use crate::{
    clock::rfc3339_millis,
    invocation::{
        Invoked,
        failure::{InvocationError, KeyFate},
        refusal::{BadKey, KeyTaken, MAX_KEY_CHARS, TakenBy, Unconfirmed, WhyUnconfirmed},
    },
};
use adapter_tools::{Failure, ToolError};
use jsonrpc_core::RawJson;
use ledger::{CallId, ClaimRefusal};
use mcp_protocol::model::{CallToolResult, Content, ResultMeta};
use mcp_service::RequestCx;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The `_meta` entry of answers that were given before.
const META_KEY: &str = "io.owlclaw/replay";

impl KeyTaken {
    /// `on_record` as it says.
    ///
    /// What the ledger has against the approval of a call is no business of its key's.
    pub(crate) fn of(refusal: ClaimRefusal, on_record: bool) -> InvocationError {
        let (state, call, answer) = match refusal {
            ClaimRefusal::Approval(problem) => {
                return InvocationError::Unconfirmed(Box::new(Unconfirmed {
                    why: WhyUnconfirmed::Approval(problem),
                    approval: None,
                    on_record,
                }));
            }
            ClaimRefusal::InFlight { call } => (TakenBy::InFlight, call, None),
            ClaimRefusal::AnotherCall { call } => (TakenBy::AnotherCall, call, None),
            ClaimRefusal::Unknown { call } => (TakenBy::Unknown, call, None),
            ClaimRefusal::Done { call, result } => (TakenBy::Done, call, result.result),
        };
        InvocationError::KeyTaken(Box::new(Self {
            state,
            call,
            answer: answer.map(Into::into),
            on_record,
        }))
    }

    /// The answer of the other call, if it is known.
    pub(crate) fn again(mut self: Box<Self>) -> Result<Invoked, InvocationError> {
        let answer = self.answer.take();
        let again = answer.and_then(|text| again(&text, self.call));
        again.unwrap_or(Err(InvocationError::KeyTaken(self)))
    }
}

/// The idempotency key of a request, if it has one.
pub(crate) fn key_of(cx: &RequestCx) -> Result<Option<String>, BadKey> {
    let Some(json) = &cx.meta.idempotency_key else {
        return Ok(None);
    };
    let key: String = serde_json::from_str(json).map_err(|_| BadKey::Unfit)?;
    // What cannot be seen cannot be told apart by whoever looks into the ledger.
    let is_visible = key.bytes().all(|byte| byte.is_ascii_graphic());
    match key.len() {
        1..=MAX_KEY_CHARS if is_visible => Ok(Some(key)),
        _ => Err(BadKey::Unfit),
    }
}

/// The stored answer of a call, before it was written in any revision: the client that asks again may
/// speak another one.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Kept<'a> {
    #[serde(rename_all = "camelCase")]
    Result {
        content: &'a [Content],
        #[serde(skip_serializing_if = "Option::is_none")]
        structured_content: Option<&'a RawJson>,
        is_error: bool,
        #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
        meta: &'a ResultMeta,
    },
    Failed {
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        details: Option<&'a Value>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReadBack {
    Result(CallToolResult),
    Failed {
        message: String,
        #[serde(default)]
        details: Option<Value>,
    },
}

/// The time at which a call began, to the millisecond: its name says so (RFC 9562, 5.7).
fn began_us(call: CallId) -> u64 {
    let (high, _) = call.0.as_u64_pair();
    (high >> 16).saturating_mul(1_000)
}

/// Fate of a key when its call has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyEnd {
    /// The call is not done again: this is its answer.
    Keep(String),
    /// No call was made, or not yet: the key is free for the call to be made again.
    Free,
    /// The call may have been done, and there is no answer: an operator has to find out.
    Unknown,
}

impl KeyEnd {
    pub(crate) fn of(outcome: &Result<Invoked, InvocationError>) -> Self {
        match outcome {
            Ok(Invoked::Tool(result)) => kept(&Kept::Result {
                content: &result.content,
                structured_content: result.structured_content.as_ref(),
                is_error: result.is_error,
                meta: &result.meta,
            }),
            // Keys are for tools; of nothing else is an answer kept.
            Ok(_) => Self::Free,
            Err(error) => match (error.meaning().key, error) {
                // Not the traceback: it is for the log.
                (KeyFate::Keep, InvocationError::Tool(ToolError::Failed(failure))) => {
                    kept(&Kept::Failed {
                        message: &failure.message,
                        details: failure.details.as_ref(),
                    })
                }
                (KeyFate::Keep | KeyFate::Unknown, _) => Self::Unknown,
                (KeyFate::Free, _) => Self::Free,
            },
        }
    }
}

fn kept(answer: &Kept<'_>) -> KeyEnd {
    serde_json::to_string(answer).map_or(KeyEnd::Unknown, KeyEnd::Keep)
}

/// The answer that was kept of `call`; `None` if it cannot be read back.
fn again(text: &str, call: CallId) -> Option<Result<Invoked, InvocationError>> {
    Some(match serde_json::from_str(text).ok()? {
        ReadBack::Result(mut result) => {
            let at = rfc3339_millis(began_us(call));
            let about = json!({ "call": call.to_string(), "at": at });
            result.meta.insert(META_KEY, &about);
            Ok(Invoked::Tool(result))
        }
        ReadBack::Failed { message, details } => {
            Err(InvocationError::Tool(ToolError::Failed(Failure {
                message,
                details,
                traceback: None,
            })))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use adapter_tools::Repeat;
    use mcp_protocol::ProtocolVersion;
    use std::time::Duration;

    fn read(json: Option<&str>) -> Result<Option<String>, BadKey> {
        let mut cx = RequestCx::detached(ProtocolVersion::V2026_07_28, "anna");
        cx.meta.idempotency_key = json.map(Into::into);
        key_of(&cx)
    }

    #[test]
    fn keys_are_visible_and_short() {
        assert_eq!(read(None), Ok(None));
        let longest = "k".repeat(MAX_KEY_CHARS);
        for good in ["k", "order-7!~", &longest] {
            assert_eq!(
                read(Some(&format!("\"{good}\""))),
                Ok(Some(good.to_owned()))
            );
        }
        let long = format!("\"{longest}k\"");
        for bad in [
            "7",
            "true",
            "[]",
            "{}",
            "\"\"",
            "\" \"",
            "\"a b\"",
            "\"\\u0000\"",
            "\"\\n\"",
            "\"\u{e4}\"",
            "\"\u{200b}\"",
            &long,
        ] {
            assert_eq!(read(Some(bad)), Err(BadKey::Unfit), "{bad}");
        }
    }

    #[test]
    fn answers_are_read_back_as_they_were() {
        let mut meta = ResultMeta::default();
        meta.insert("com.example/x", &json!([1, 2]));
        let result = CallToolResult {
            content: vec![
                Content::text("a \"text\"\n"),
                Content::image("AAAA", "image/png"),
            ],
            structured_content: Some(RawJson::from_serialized(
                br#"{"n":123456789012345678901234567890,"f":1.50}"#.to_vec(),
            )),
            is_error: true,
            meta,
        };
        let KeyEnd::Keep(text) = KeyEnd::of(&Ok(Invoked::Tool(result.clone()))) else {
            panic!("a result is kept");
        };
        let call = CallId::new(1_773_129_600_123_456);
        let Some(Ok(Invoked::Tool(mut back))) = again(&text, call) else {
            panic!("{text}");
        };
        let about: Value = back.meta.remove(META_KEY).unwrap().parse().unwrap();
        let expected = json!({ "at": "2026-03-10T08:00:00.123Z", "call": call.to_string() });
        assert_eq!(about, expected);
        assert_eq!(back, result);

        let failure = ToolError::failed_with("no", json!({ "order": 7 }));
        let KeyEnd::Keep(text) = KeyEnd::of(&Err(InvocationError::Tool(failure))) else {
            panic!("a failure is kept");
        };
        let back = again(&text, call);
        assert!(
            matches!(&back, Some(Err(InvocationError::Tool(ToolError::Failed(it))))
                if it.message == "no" && it.details == Some(json!({ "order": 7 }))),
            "{back:?}"
        );
        assert!(again("{}", call).is_none());
    }

    #[test]
    fn what_may_have_been_done_is_not_done_again_and_what_was_not_may_be() {
        let crashed = ToolError::Crashed {
            message: String::new(),
            repeat: Repeat::Safe,
            detail: String::new(),
        };
        for unknown in [
            InvocationError::TimedOut(Duration::ZERO),
            InvocationError::Tool(ToolError::TimedOut),
            InvocationError::Tool(crashed),
            InvocationError::Tool(ToolError::broken("x")),
        ] {
            assert_eq!(KeyEnd::of(&Err(unknown)), KeyEnd::Unknown);
        }
        let retry_after = Duration::ZERO;
        for free in [
            InvocationError::Unknown,
            InvocationError::Tool(ToolError::Busy { retry_after }),
            InvocationError::Tool(ToolError::Suspended { retry_after }),
        ] {
            assert_eq!(KeyEnd::of(&Err(free)), KeyEnd::Free);
        }
        let asks = Invoked::NeedsInput(adapter_tools::Needed::default());
        assert_eq!(KeyEnd::of(&Ok(asks)), KeyEnd::Free);
    }
}
