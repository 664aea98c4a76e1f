use super::{CacheHint, Content, InputRetry, ResultMeta, TaskRequest, TaskSupport};
use jsonrpc_core::RawJson;
use serde::Serialize;

/// A tool as clients see it.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Unique among the server's tools; 1 to 128 of `A-Z a-z 0-9 _ - .`.
    pub name: String,
    /// Its name for people; since 2025-06-18.
    pub title: Option<String>,
    /// For the model.
    pub description: Option<String>,
    /// JSON Schema 2020-12 of the arguments; an object whose root says `"type": "object"`.
    pub input_schema: RawJson,
    /// JSON Schema of the structured content; since 2025-06-18, which allow objects alone.
    pub output_schema: Option<RawJson>,
    /// What it does to the world; since 2025-03-26.
    pub annotations: Option<ToolAnnotations>,
    /// Whether its calls can be tasks; revision 2025-11-25 alone says so.
    pub task_support: TaskSupport,
    /// More about it.
    pub meta: ResultMeta,
}

/// What a tool does to the world. Hints: nobody is protected by believing them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    /// It changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// It may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Doing it twice is doing it once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// It reaches out of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// One page of tools.
#[derive(Clone, Debug, Default)]
pub struct ListToolsResult {
    /// The page, in an order that only depends on who asks.
    pub tools: Vec<Tool>,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<String>,
    /// How long the client may keep it.
    pub cache: CacheHint,
}

/// `tools/call`.
#[derive(Clone, Debug)]
pub struct CallTool {
    /// The tool's name.
    pub name: String,
    /// Its arguments: the object as it was sent, not yet checked against the tool's schema.
    pub arguments: RawJson,
    /// What the client was asked before, if it was.
    pub retry: InputRetry,
    /// That it is to be a task; revision 2025-11-25 alone lets clients say so.
    pub task: Option<TaskRequest>,
}

/// A tool's answer.
#[derive(Clone, Debug, Default)]
pub struct CallToolResult {
    /// For the model to read.
    pub content: Vec<Content>,
    /// The same for programs; since 2025-06-18, which allow objects alone.
    pub structured_content: Option<RawJson>,
    /// Whether the tool ran and failed; a tool that never ran is a protocol error instead.
    pub is_error: bool,
    /// More about it.
    pub meta: ResultMeta,
}
