//! Programs as tools, as configured.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A program that is a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Command {
    /// What the model is told of it. Without one, what the skill of the same name says.
    #[schemars(extend("format" = "prose"))]
    pub description: Option<String>,
    /// The program and its arguments, one element each; no shell is asked. `{name}` stands for what
    /// the caller gives for `name`, and a list within the list is left out as a whole where one of
    /// its names is not given. See docs/commands.md.
    #[schemars(extend("x-groups" = true, "x-items" = "word"))]
    pub run: Vec<Words>,
    /// What the program reads. Without one, nothing where `run` has placeholders, else `json`.
    pub stdin: Option<Stdin>,
    /// The JSON Schema of the arguments, or their names and types alone. Without one, what the
    /// skill of the same name declares.
    #[schemars(with = "serde_json::Map<String, Value>", extend("x-json" = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// What the program writes.
    pub output: Output,
    /// The JSON Schema of what it writes, where that is an object.
    #[schemars(with = "serde_json::Map<String, Value>", extend("x-json" = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The directory it runs in. Without one, that of the configuration file.
    #[schemars(extend("format" = "path"))]
    pub cwd: Option<PathBuf>,
    /// Its whole environment: nothing is inherited. `${NAME}` refers to the server's own.
    #[schemars(extend("additionalProperties" = {"type": "string", "format": "secret"}))]
    pub env: BTreeMap<String, String>,
    /// A call that takes longer is ended.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<u64>,
    /// A program that writes more is ended.
    #[schemars(range(min = 1, max = 67_108_864))]
    pub max_output_bytes: usize,
    /// How large its address space may become.
    #[schemars(range(min = 1_048_576, max = 1_099_511_627_776_u64))]
    pub max_memory_bytes: Option<u64>,
    /// How many calls run at once.
    #[schemars(range(min = 1, max = 1_024))]
    pub max_concurrent: usize,
    /// How many calls wait for their turn before further ones are refused.
    #[schemars(range(max = 100_000))]
    pub max_waiting: usize,
    /// The exit statuses that mean that all went well.
    pub success_exit_codes: Vec<u8>,
    /// Show clients the end of what the program writes to its standard error when it fails.
    pub stderr_in_errors: bool,
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// What it changes may be lost.
    pub destructive: Option<bool>,
    /// Twice does no more than once.
    pub idempotent: Option<bool>,
    /// It deals with a world that is not closed, such as the web.
    pub open_world: Option<bool>,
}

impl Default for Command {
    fn default() -> Self {
        Self {
            description: None,
            run: Vec::new(),
            stdin: None,
            input_schema: None,
            output: Output::default(),
            output_schema: None,
            cwd: None,
            env: BTreeMap::new(),
            timeout_seconds: None,
            max_output_bytes: 1024 * 1024,
            max_memory_bytes: None,
            max_concurrent: 4,
            max_waiting: 64,
            success_exit_codes: vec![0],
            stderr_in_errors: false,
            read_only: None,
            destructive: None,
            idempotent: None,
            open_world: None,
        }
    }
}

/// One element of `run`, or several that are left out together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Words {
    /// One element.
    One(String),
    /// Several that stand or fall together.
    Group(Vec<String>),
}

/// What a program reads from its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stdin {
    /// The arguments of the call, as one JSON object and a line end.
    Json,
    /// Nothing.
    None,
}

/// What a program writes to its standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    /// A JSON object, else text.
    #[default]
    Auto,
    /// One JSON value.
    Json,
    /// Text.
    Text,
    /// Text whose lines are a list.
    Lines,
}
