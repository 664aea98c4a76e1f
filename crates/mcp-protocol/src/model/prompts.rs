use super::{CacheHint, Content, Icon, InputRetry, ResultMeta, objects, or_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A prompt as clients see it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Prompt {
    /// Unique among the server's prompts.
    pub name: String,
    /// Its name for people; since 2025-06-18.
    pub title: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// What it takes.
    #[serde(default, deserialize_with = "objects")]
    pub arguments: Vec<PromptArgument>,
    /// Pictures that stand for it; since 2025-11-25.
    #[serde(default, deserialize_with = "objects")]
    pub icons: Vec<Icon>,
    /// More about it.
    #[serde(default, rename = "_meta", deserialize_with = "or_default")]
    pub meta: ResultMeta,
}

/// What a prompt takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// Its name for people; since 2025-06-18.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether the prompt cannot do without it.
    #[serde(default, deserialize_with = "or_default")]
    pub required: bool,
}

/// One page of prompts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListPromptsResult {
    /// The page, in an order that only depends on who asks.
    pub prompts: Vec<Prompt>,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<String>,
    /// How long the client may keep it.
    pub cache: CacheHint,
}

/// `prompts/get`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetPrompt {
    /// Which.
    pub name: String,
    /// Its arguments; strings all of them.
    pub arguments: BTreeMap<String, String>,
    /// What the client was asked before, if it was.
    pub retry: InputRetry,
}

/// A prompt, filled in.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct GetPromptResult {
    /// What it is for.
    pub description: Option<String>,
    /// What to give the model.
    #[serde(deserialize_with = "objects")]
    pub messages: Vec<PromptMessage>,
    /// More about it.
    #[serde(default, rename = "_meta", deserialize_with = "or_default")]
    pub meta: ResultMeta,
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PromptMessage {
    /// Who is taken to say it.
    pub role: Role,
    /// What is said.
    pub content: Content,
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
}
