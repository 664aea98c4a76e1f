//! Answers of a client to the questions of a server.

use super::{
    CreateMessageResult, InputRequest, ResultMeta, SamplingContent, objects, or_default,
    read::Object,
};
use jsonrpc_core::RawJson;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Answer of a client to an [`InputRequest`].
#[derive(Clone, Debug, PartialEq)]
pub enum InputResponse {
    /// Answer of the user.
    Elicit(ElicitResult),
    /// Message of the model.
    CreateMessage(CreateMessageResult),
    /// List of the roots.
    ListRoots(ListRootsResult),
}

impl InputResponse {
    /// Reads the answer to `request`.
    ///
    /// # Errors
    ///
    /// What does not fit.
    pub fn of(request: &InputRequest, response: &RawJson) -> Result<Self, serde_json::Error> {
        fn read<'a, T: Deserialize<'a>>(response: &'a RawJson) -> Result<T, serde_json::Error> {
            response.parse().map(|Object(read)| read)
        }
        match request {
            InputRequest::ElicitForm { .. } | InputRequest::ElicitUrl { .. } => {
                read(response).map(Self::Elicit)
            }
            InputRequest::CreateMessage(_) => read(response).map(Self::CreateMessage),
            InputRequest::ListRoots => read(response).map(Self::ListRoots),
        }
    }

    /// Returns true if it has parts that came with 2025-11-25: several blocks, or tools.
    pub(crate) fn has_tools(&self) -> bool {
        match self {
            Self::CreateMessage(result) => {
                !matches!(result.content.as_slice(), [SamplingContent::Content(_)])
            }
            Self::Elicit(_) | Self::ListRoots(_) => false,
        }
    }
}

/// Answer of a user to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ElicitResult {
    /// Action of the user.
    pub action: ElicitAction,
    /// The form's fields by name, if the user has filled it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<BTreeMap<String, FormValue>>,
    /// More about it.
    #[serde(
        default,
        rename = "_meta",
        skip_serializing_if = "ResultMeta::is_empty",
        deserialize_with = "or_default"
    )]
    pub meta: ResultMeta,
}

impl ElicitResult {
    /// The user did this, and filled in nothing.
    pub fn without_content(action: ElicitAction) -> Self {
        Self {
            action,
            content: None,
            meta: ResultMeta::default(),
        }
    }
}

/// Action of a user on a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElicitAction {
    /// Answered it, or went where it sent the user.
    Accept,
    /// Said no.
    Decline,
    /// Did not say anything.
    Cancel,
}

/// Value of a field of a form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FormValue {
    /// Text, or the one that was chosen.
    Text(String),
    /// True if the box was ticked.
    Boolean(bool),
    /// A number.
    Number(serde_json::Number),
    /// Chosen values; since 2025-11-25.
    Many(Vec<String>),
}

/// A place a client lets a server work in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Address; a `file:` URI.
    pub uri: String,
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// More about it.
    #[serde(
        default,
        rename = "_meta",
        skip_serializing_if = "ResultMeta::is_empty",
        deserialize_with = "or_default"
    )]
    pub meta: ResultMeta,
}

/// The places a client lets a server work in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRootsResult {
    /// All of them.
    #[serde(deserialize_with = "objects")]
    pub roots: Vec<Root>,
    /// More about it.
    #[serde(
        default,
        rename = "_meta",
        skip_serializing_if = "ResultMeta::is_empty",
        deserialize_with = "or_default"
    )]
    pub meta: ResultMeta,
}
