//! Requests of a server to a client's model, and its answers. Tools came with 2025-11-25.

use super::{
    Content, ResultMeta, Role, Tool, object_or_null, objects, or_default, raw_if_present,
    raw_object, raw_object_or_null, whole,
};
use super::{content::Tagged, read::Object};
use jsonrpc_core::RawJson;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::{Value, value::RawValue};

/// The parameters of `sampling/createMessage`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateMessage {
    /// Messages so far.
    #[serde(deserialize_with = "objects")]
    pub messages: Vec<SamplingMessage>,
    /// Preferences for the model. The client decides.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object_or_null"
    )]
    pub model_preferences: Option<ModelPreferences>,
    /// Text that the model is given before everything else. The client may change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Servers whose context goes along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_context: Option<IncludeContext>,
    /// Temperature: how freely the model chooses its words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The most tokens the model may write.
    #[serde(deserialize_with = "tokens")]
    pub max_tokens: u64,
    /// Texts at which the model is to stop.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "or_default"
    )]
    pub stop_sequences: Vec<String>,
    /// For the provider of the model: an object.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "raw_object_or_null"
    )]
    pub metadata: Option<RawJson>,
    /// Tools that the model can call; since 2025-11-25.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "objects"
    )]
    pub tools: Vec<Tool>,
    /// Need for the model to call tools; since 2025-11-25.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object_or_null"
    )]
    pub tool_choice: Option<ToolChoice>,
    /// More about it.
    #[serde(
        default,
        rename = "_meta",
        skip_serializing_if = "ResultMeta::is_empty",
        deserialize_with = "or_default"
    )]
    pub meta: ResultMeta,
}

impl CreateMessage {
    /// Reads what [`InputRequest::CreateMessage`](super::InputRequest::CreateMessage) holds.
    ///
    /// # Errors
    ///
    /// What does not fit.
    pub fn of(params: &Value) -> Result<Self, serde_json::Error> {
        let Object(read) = Object::deserialize(params)?;
        Ok(read)
    }

    /// Parameters of [`InputRequest::CreateMessage`](super::InputRequest::CreateMessage).
    ///
    /// # Errors
    ///
    /// What serializing reports, which for this vocabulary means a fault of ours.
    pub fn to_params(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self)
    }
}

fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    whole(deserializer)?.ok_or_else(|| D::Error::custom("not a whole number"))
}

/// One message of what has been said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingMessage {
    /// Role of the speaker.
    pub role: Role,
    /// Content. Before 2025-11-25 it is one block.
    #[serde(serialize_with = "blocks", deserialize_with = "read_blocks")]
    pub content: Vec<SamplingContent>,
    /// More about it.
    #[serde(
        default,
        rename = "_meta",
        skip_serializing_if = "ResultMeta::is_empty",
        deserialize_with = "or_default"
    )]
    pub meta: ResultMeta,
}

/// One block of a message to or from a model.
#[derive(Clone, Debug, PartialEq)]
pub enum SamplingContent {
    /// Text, an image or sound; other content has no place here.
    Content(Content),
    /// The model calls a tool; since 2025-11-25.
    ToolUse {
        /// Ties the result to it.
        id: String,
        /// Name of the tool.
        name: String,
        /// The arguments: an object.
        input: RawJson,
        /// More about it.
        meta: ResultMeta,
    },
    /// Result of a tool; since 2025-11-25.
    ToolResult {
        /// The call's id.
        tool_use_id: String,
        /// For the model to read.
        content: Vec<Content>,
        /// The same for programs.
        structured_content: Option<RawJson>,
        /// True if the tool failed.
        is_error: bool,
        /// More about it.
        meta: ResultMeta,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename = "tool_use")]
struct ToolUse {
    id: String,
    name: String,
    #[serde(deserialize_with = "raw_object")]
    input: RawJson,
    #[serde(
        default,
        rename = "_meta",
        skip_serializing_if = "ResultMeta::is_empty",
        deserialize_with = "or_default"
    )]
    meta: ResultMeta,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename = "tool_result", rename_all = "camelCase")]
struct ToolResult {
    tool_use_id: String,
    content: Vec<Content>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "raw_if_present"
    )]
    structured_content: Option<RawJson>,
    #[serde(
        default,
        skip_serializing_if = "std::ops::Not::not",
        deserialize_with = "or_default"
    )]
    is_error: bool,
    #[serde(
        default,
        rename = "_meta",
        skip_serializing_if = "ResultMeta::is_empty",
        deserialize_with = "or_default"
    )]
    meta: ResultMeta,
}

impl Serialize for SamplingContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Self::Content(content) = self {
            return content.serialize(serializer);
        }
        match self.clone() {
            Self::Content(content) => content.serialize(serializer),
            Self::ToolUse {
                id,
                name,
                input,
                meta,
            } => ToolUse {
                id,
                name,
                input,
                meta,
            }
            .serialize(serializer),
            Self::ToolResult {
                tool_use_id,
                content,
                structured_content,
                is_error,
                meta,
            } => ToolResult {
                tool_use_id,
                content,
                structured_content,
                is_error,
                meta,
            }
            .serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for SamplingContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tagged = Tagged::deserialize(deserializer)?;
        match tagged.kind.as_str() {
            "tool_use" => {
                let wire: ToolUse = tagged.read().map_err(D::Error::custom)?;
                Ok(Self::ToolUse {
                    id: wire.id,
                    name: wire.name,
                    input: wire.input,
                    meta: wire.meta,
                })
            }
            "tool_result" => {
                let wire: ToolResult = tagged.read().map_err(D::Error::custom)?;
                Ok(Self::ToolResult {
                    tool_use_id: wire.tool_use_id,
                    content: wire.content,
                    structured_content: wire.structured_content,
                    is_error: wire.is_error,
                    meta: wire.meta,
                })
            }
            "text" | "image" | "audio" => {
                let content = tagged.content().map_err(D::Error::custom)?;
                content
                    .map(Self::Content)
                    .ok_or_else(|| D::Error::custom("not a kind of content"))
            }
            _ => Err(D::Error::custom("not a kind of content for models")),
        }
    }
}

/// One block stands for itself, as it does in all revisions; several are an array.
fn blocks<S: Serializer>(blocks: &[SamplingContent], serializer: S) -> Result<S::Ok, S::Error> {
    match blocks {
        [block] => block.serialize(serializer),
        blocks => blocks.serialize(serializer),
    }
}

fn read_blocks<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<SamplingContent>, D::Error> {
    let value = Box::<RawValue>::deserialize(deserializer)?;
    if value.get().starts_with('[') {
        serde_json::from_str(value.get()).map_err(D::Error::custom)
    } else {
        let block = serde_json::from_str(value.get()).map_err(D::Error::custom)?;
        Ok(vec![block])
    }
}

/// Preferences for a model: names first, and then priorities, from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelPreferences {
    /// Names, or parts of names, best first.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "objects"
    )]
    pub hints: Vec<ModelHint>,
    /// Priority of low cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_priority: Option<f64>,
    /// Priority of speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_priority: Option<f64>,
    /// Priority of intelligence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intelligence_priority: Option<f64>,
}

/// A model that would be right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelHint {
    /// Name of a model, or a part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Servers whose context goes along with a request to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IncludeContext {
    /// None.
    None,
    /// Context of the server that asks.
    ThisServer,
    /// Context of all servers the client has.
    AllServers,
}

/// Need for a model to call tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolChoice {
    /// Mode.
    #[serde(default, deserialize_with = "or_default")]
    pub mode: ToolChoiceMode,
}

/// Need for a model to call tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolChoiceMode {
    /// As it likes.
    #[default]
    Auto,
    /// At least one.
    Required,
    /// The model must not call tools.
    None,
}

/// Answer of a client's model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateMessageResult {
    /// Role of the speaker.
    pub role: Role,
    /// Content. Before 2025-11-25 it is one block.
    #[serde(serialize_with = "blocks", deserialize_with = "read_blocks")]
    pub content: Vec<SamplingContent>,
    /// Name of the model.
    pub model: String,
    /// Reason why it stopped, such as `endTurn`, `stopSequence`, `maxTokens` or `toolUse`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// More about it.
    #[serde(
        default,
        rename = "_meta",
        skip_serializing_if = "ResultMeta::is_empty",
        deserialize_with = "or_default"
    )]
    pub meta: ResultMeta,
}
