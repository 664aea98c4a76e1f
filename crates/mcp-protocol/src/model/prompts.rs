use super::{CacheHint, Content, Icon, InputRetry, ResultMeta, all_objects, objects, or_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A prompt as clients see it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Prompt {
    /// Unique among the server's prompts.
    pub name: String,
    /// Name for people; since 2025-06-18.
    pub title: Option<String>,
    /// Purpose of the prompt.
    pub description: Option<String>,
    /// Arguments.
    #[serde(default, deserialize_with = "objects")]
    pub arguments: Vec<PromptArgument>,
    /// Pictures that stand for it; since 2025-11-25.
    #[serde(default, deserialize_with = "objects")]
    pub icons: Vec<Icon>,
    /// More about it.
    #[serde(default, rename = "_meta", deserialize_with = "or_default")]
    pub meta: ResultMeta,
}

/// Argument of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptArgument {
    /// Name.
    pub name: String,
    /// Name for people; since 2025-06-18.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Purpose of the argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// True if the prompt needs it.
    #[serde(default, deserialize_with = "or_default")]
    pub required: bool,
}

/// One page of prompts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListPromptsResult {
    /// The page, in an order that only depends on who asks.
    pub prompts: Vec<Prompt>,
    /// Cursor of the next page, if there is one.
    pub next_cursor: Option<String>,
    /// Time for which the client may keep it.
    pub cache: CacheHint,
}

/// `prompts/get`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetPrompt {
    /// Name of the prompt.
    pub name: String,
    /// Arguments; all of them are strings.
    pub arguments: BTreeMap<String, String>,
    /// Answers to the server's questions, if this repeats a request.
    pub retry: InputRetry,
}

/// A prompt, filled in.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct GetPromptResult {
    /// Purpose of the prompt.
    pub description: Option<String>,
    /// Messages for the model.
    #[serde(deserialize_with = "all_objects")]
    pub messages: Vec<PromptMessage>,
    /// More about it.
    #[serde(default, rename = "_meta", deserialize_with = "or_default")]
    pub meta: ResultMeta,
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PromptMessage {
    /// Role of the speaker.
    pub role: Role,
    /// Content of the message.
    pub content: Content,
}

/// Role of a speaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
}
