use super::{ClientCapabilities, ElicitationCapability, SamplingCapability};
use jsonrpc_core::RawJson;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Question that a client must answer before its server can answer a request.
///
/// In the modern era it is part of a result, and the client asks again; in the legacy era it is a
/// request of the server's own. Handlers need not know which.
#[derive(Clone, Debug, PartialEq)]
pub enum InputRequest {
    /// The user is shown a form.
    ElicitForm {
        /// Message for the user.
        message: String,
        /// A flat JSON Schema object of the form's fields, in the order in which they are shown.
        requested_schema: RawJson,
    },
    /// The user is sent to a URL.
    ElicitUrl {
        /// Message for the user.
        message: String,
        /// Address to visit.
        url: String,
        /// Ties the notification of its completion to it; revision 2025-11-25 alone has it.
        elicitation_id: String,
    },
    /// The client's model writes a message; the parameters are those of `sampling/createMessage`.
    CreateMessage(Value),
    /// The client says which roots it has.
    ListRoots,
}

/// Parameters of a question. The schema of a form stays as it was written, the order of its fields included.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InputParams<'a> {
    #[serde(flatten)]
    pub(crate) members: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_schema: Option<&'a RawJson>,
}

/// Questions that a server needs answered by its client, under keys of its own choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputRequired {
    /// Questions; may be empty if there is a state.
    pub requests: BTreeMap<String, InputRequest>,
    /// State that the client must send back unchanged. Clients can change it all the same.
    pub state: Option<String>,
}

/// Members that a client adds when it repeats a request: the answers, and the state it was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputRetry {
    /// The answers, under the keys of the questions. Keys that no question has are to be ignored.
    pub responses: BTreeMap<String, RawJson>,
    /// The state, which the client may have changed.
    pub state: Option<String>,
}

impl InputRetry {
    /// Returns true if the request is no retry.
    pub fn is_empty(&self) -> bool {
        self.responses.is_empty() && self.state.is_none()
    }
}

impl InputRequest {
    /// The method that asks for it.
    pub fn method(&self) -> &'static str {
        match self {
            Self::ElicitForm { .. } | Self::ElicitUrl { .. } => "elicitation/create",
            Self::CreateMessage(_) => "sampling/createMessage",
            Self::ListRoots => "roots/list",
        }
    }

    /// The members of its parameters.
    pub(crate) fn params(&self) -> InputParams<'_> {
        let mut schema = None;
        let members = match self {
            Self::ElicitForm {
                message,
                requested_schema,
            } => {
                schema = Some(requested_schema);
                json!({ "message": message })
            }
            Self::ElicitUrl {
                message,
                url,
                elicitation_id,
            } => json!({
                "mode": "url",
                "message": message,
                "url": url,
                "elicitationId": elicitation_id,
            }),
            Self::CreateMessage(params) => params.clone(),
            Self::ListRoots => json!({}),
        };
        InputParams {
            members: match members {
                Value::Object(members) => members,
                _ => Map::new(),
            },
            requested_schema: schema,
        }
    }

    /// Capabilities that a client must have declared to be asked this question.
    pub fn required_capability(&self) -> ClientCapabilities {
        let mut required = ClientCapabilities::default();
        match self {
            Self::ElicitForm { .. } => {
                required.elicitation = Some(ElicitationCapability {
                    form: true,
                    url: false,
                });
            }
            Self::ElicitUrl { .. } => {
                required.elicitation = Some(ElicitationCapability {
                    form: false,
                    url: true,
                });
            }
            Self::CreateMessage(params) => {
                let asks_for_tools =
                    params.get("tools").is_some() || params.get("toolChoice").is_some();
                required.sampling = Some(SamplingCapability {
                    context: false,
                    tools: asks_for_tools,
                });
            }
            Self::ListRoots => required.roots = true,
        }
        required
    }

    /// Returns true if `declared` has the capabilities for this question. A server must not ask
    /// otherwise (2026-07-28, client capabilities).
    pub fn is_declared_by(&self, declared: &ClientCapabilities) -> bool {
        match self {
            Self::ElicitForm { .. } => declared.elicitation.is_some_and(|modes| modes.form),
            Self::ElicitUrl { .. } => declared.elicitation.is_some_and(|modes| modes.url),
            Self::CreateMessage(_) => {
                let needed = self.required_capability().sampling.unwrap_or_default();
                declared
                    .sampling
                    .is_some_and(|sampling| sampling.tools || !needed.tools)
            }
            Self::ListRoots => declared.roots,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_that_was_not_declared() {
        let declared = |text| serde_json::from_str::<ClientCapabilities>(text).unwrap();
        let form = InputRequest::ElicitForm {
            message: String::new(),
            requested_schema: RawJson::EMPTY_OBJECT,
        };
        let url = InputRequest::ElicitUrl {
            message: String::new(),
            url: String::new(),
            elicitation_id: String::new(),
        };
        let plain = InputRequest::CreateMessage(json!({}));
        let with_tools = InputRequest::CreateMessage(json!({ "tools": [] }));
        let all = [&form, &url, &plain, &with_tools, &InputRequest::ListRoots];
        for (text, allowed) in [
            ("{}", [false; 5]),
            (r#"{"elicitation":{}}"#, [true, false, false, false, false]),
            (
                r#"{"elicitation":{"url":{}}}"#,
                [false, true, false, false, false],
            ),
            (r#"{"sampling":{}}"#, [false, false, true, false, false]),
            (
                r#"{"sampling":{"tools":{}}}"#,
                [false, false, true, true, false],
            ),
            (r#"{"roots":{}}"#, [false, false, false, false, true]),
        ] {
            let declared = declared(text);
            assert_eq!(
                all.map(|it| it.is_declared_by(&declared)),
                allowed,
                "{text}"
            );
            for it in all {
                assert!(it.is_declared_by(&it.required_capability()));
            }
        }
    }
}
