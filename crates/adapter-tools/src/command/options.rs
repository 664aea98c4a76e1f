use super::CommandLine;
use crate::Annotations;
use serde_json::Value;
use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Options of a program that is a tool.
#[derive(Clone)]
#[non_exhaustive]
pub struct CommandOptions {
    /// The tool's name.
    pub name: String,
    /// Description for the model; may be empty.
    pub description: String,
    /// Command line.
    pub line: CommandLine,
    /// Working directory, against which the program's path is resolved.
    pub directory: PathBuf,
    /// The whole environment of the program: nothing is inherited.
    pub environment: Vec<(OsString, OsString)>,
    /// Input of the program.
    pub input: Input,
    /// Output of the program.
    pub output: Output,
    /// The schema of what it writes, where that is an object.
    pub output_schema: Option<Value>,
    /// Longest time of one call; without it the server's own bound holds.
    pub timeout: Option<Duration>,
    /// Most bytes that it may write.
    pub max_output: usize,
    /// Most bytes of its address space. Needs a [`guard`](Self::guard).
    pub max_memory: Option<u64>,
    /// Calls that run at once; at least 1.
    pub max_concurrent: usize,
    /// Calls that wait for their turn; further ones are refused.
    pub max_waiting: usize,
    /// The exit statuses that mean that all went well.
    pub success: Vec<u8>,
    /// True to show clients the end of the standard error of a program that fails.
    pub stderr_in_errors: bool,
    /// The hints about what it does.
    pub annotations: Annotations,
    /// Time that the program has to end after it was asked to; then it is killed.
    pub grace: Duration,
    /// A program and its first arguments that run [`guard`](super::guard()) with the arguments that
    /// come after them. Without one, memory is not bounded, the program shares the server's session,
    /// and it outlives a server that is killed.
    pub guard: Option<Vec<OsString>>,
}

/// Input that a program reads from its standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// The arguments of the call, as one JSON object and a line end.
    Json,
    /// No input.
    #[default]
    None,
}

/// Format of the output that a program writes to its standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

impl CommandOptions {
    /// `line` in `directory` with an empty environment. It reads the arguments unless it has
    /// placeholders for them.
    pub fn new(name: impl Into<String>, line: CommandLine, directory: impl AsRef<Path>) -> Self {
        let input = match line.has_placeholders() {
            true => Input::None,
            false => Input::Json,
        };
        Self {
            name: name.into(),
            description: String::new(),
            line,
            directory: directory.as_ref().to_owned(),
            environment: Vec::new(),
            input,
            output: Output::default(),
            output_schema: None,
            timeout: None,
            max_output: 1024 * 1024,
            max_memory: None,
            max_concurrent: 4,
            max_waiting: 64,
            success: vec![0],
            stderr_in_errors: false,
            annotations: Annotations::default(),
            grace: Duration::from_secs(2),
            guard: None,
        }
    }
}

impl fmt::Debug for CommandOptions {
    /// The environment may hold secrets and is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandOptions")
            .field("name", &self.name)
            .field("line", &self.line)
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}
