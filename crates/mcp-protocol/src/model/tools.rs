use super::{
    CacheHint, Content, Icon, InputRetry, ResultMeta, TaskRequest, TaskSupport, object_or_null,
    objects, or_default, raw_if_present, raw_object, raw_object_or_null,
};
use jsonrpc_core::RawJson;
use serde::{Deserialize, Deserializer, Serialize, de::Error};

/// A tool as clients see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tool {
    /// Unique among the server's tools; 1 to 128 of `A-Z a-z 0-9 _ - .`.
    pub name: String,
    /// Name for people; since 2025-06-18.
    pub title: Option<String>,
    /// For the model.
    pub description: Option<String>,
    /// JSON Schema 2020-12 of the arguments; an object whose root says `"type": "object"`.
    pub input_schema: RawJson,
    /// JSON Schema of the structured content; since 2025-06-18, which allow objects alone.
    pub output_schema: Option<RawJson>,
    /// Effects of the tool; since 2025-03-26.
    pub annotations: Option<ToolAnnotations>,
    /// Support for calls as tasks; revision 2025-11-25 alone declares it.
    pub task_support: TaskSupport,
    /// Pictures that stand for it; since 2025-11-25.
    pub icons: Vec<Icon>,
    /// More about it.
    pub meta: ResultMeta,
}

impl<'de> Deserialize<'de> for Tool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            name: String,
            title: Option<String>,
            description: Option<String>,
            #[serde(deserialize_with = "raw_object")]
            input_schema: RawJson,
            #[serde(default, deserialize_with = "raw_object_or_null")]
            output_schema: Option<RawJson>,
            #[serde(default, deserialize_with = "object_or_null")]
            annotations: Option<ToolAnnotations>,
            #[serde(default, deserialize_with = "object_or_null")]
            execution: Option<Execution>,
            #[serde(default, deserialize_with = "objects")]
            icons: Vec<Icon>,
            #[serde(default, rename = "_meta", deserialize_with = "or_default")]
            meta: ResultMeta,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Execution {
            #[serde(default, deserialize_with = "or_default")]
            task_support: TaskSupport,
        }
        let wire = Wire::deserialize(deserializer)?;
        Ok(Self {
            name: wire.name,
            title: wire.title,
            description: wire.description,
            input_schema: wire.input_schema,
            output_schema: wire.output_schema,
            annotations: wire.annotations,
            task_support: wire.execution.map(|it| it.task_support).unwrap_or_default(),
            icons: wire.icons,
            meta: wire.meta,
        })
    }
}

/// Effects of a tool. Hints: believing them protects no server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    /// The tool's name for people, which its own title goes before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The tool changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// The tool may destroy data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Doing it twice is doing it once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// The tool reaches out of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// One page of tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListToolsResult {
    /// The page, in an order that only depends on who asks.
    pub tools: Vec<Tool>,
    /// Cursor of the next page, if there is one.
    pub next_cursor: Option<String>,
    /// Time for which the client may keep it.
    pub cache: CacheHint,
}

/// `tools/call`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTool {
    /// The tool's name.
    pub name: String,
    /// Arguments: the object as it was sent, not yet checked against the tool's schema.
    pub arguments: RawJson,
    /// Answers to the server's questions, if this repeats a request.
    pub retry: InputRetry,
    /// Request that the call be a task; revision 2025-11-25 alone lets clients make it.
    pub task: Option<TaskRequest>,
    /// The gravest effect that the tool may have; `None`: any. No client says it: a server sets it where a call
    /// came through a tool that calls others.
    pub at_most: Option<Effect>,
}

/// Effect of a tool, by which hosts decide if their users are asked. Each is graver than those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// None: nothing changes.
    Read,
    /// A change that destroys nothing.
    Write,
    /// Any effect, or one that is not known.
    Destructive,
}

/// A tool's answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallToolResult {
    /// For the model to read.
    pub content: Vec<Content>,
    /// The same for programs; since 2025-06-18, which allow objects alone.
    pub structured_content: Option<RawJson>,
    /// True if the tool ran and failed; a tool that never ran is a protocol error instead.
    pub is_error: bool,
    /// More about it.
    pub meta: ResultMeta,
}

impl<'de> Deserialize<'de> for CallToolResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            #[serde(default)]
            content: Option<Vec<Content>>,
            #[serde(default, deserialize_with = "raw_if_present")]
            structured_content: Option<RawJson>,
            #[serde(default, deserialize_with = "or_default")]
            is_error: bool,
            #[serde(default, rename = "_meta", deserialize_with = "or_default")]
            meta: ResultMeta,
        }
        let wire = Wire::deserialize(deserializer)?;
        // The schemas require it. Servers exist that leave it out where there is the other.
        if wire.content.is_none() && wire.structured_content.is_none() {
            return Err(D::Error::missing_field("content"));
        }
        Ok(Self {
            content: wire.content.unwrap_or_default(),
            structured_content: wire.structured_content,
            is_error: wire.is_error,
            meta: wire.meta,
        })
    }
}
