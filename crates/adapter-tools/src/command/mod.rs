//! Programs as tools: one process for each call, and no shell.
//!
//! What a caller gives becomes arguments ([`CommandLine`]), or one JSON object on the standard input.
//! What the program writes to its standard output is the answer; its standard error goes into the
//! log. It starts with an empty environment, in a process group of its own, and nothing of that group
//! outlives the call: a call that is given up ends its program, whoever drops what.
//!
//! ```no_run
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use adapter_tools::command::{Command, CommandLine, CommandOptions, Word};
//!
//! let words = ["./bin/export", "--warehouse={warehouse}"].map(|it| Word::One(it.into()));
//! let options = CommandOptions::new("stock-export", CommandLine::parse(&words)?, "/srv/shop");
//! let tool = Command::new(options)?.tool(serde_json::json!({
//!     "type": "object",
//!     "properties": {"warehouse": {"type": "string"}},
//!     "required": ["warehouse"],
//! }))?;
//! # let _ = tool;
//! # Ok(())
//! # }
//! ```

mod call;
mod error;
mod guard;
mod options;
mod output;
mod process;
mod runner;
mod stderr;
mod template;

pub use self::{
    error::{CommandError, TemplateError},
    guard::guard,
    options::{CommandOptions, Input, Output},
    template::{CommandLine, Word},
};

use self::runner::Runner;
use crate::{Tool, ToolKind};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// A program that is there and can be a tool. Cheap to clone; all tools made of it share its bounds.
#[derive(Clone, Debug)]
pub struct Command(Arc<Runner>);

impl Command {
    /// Looks for the program: below [`directory`](CommandOptions::directory) if it is a relative path,
    /// and on the `PATH` of its own environment, else of this process, if it is a name.
    ///
    /// # Errors
    ///
    /// [`CommandError`] when the program or the directory is not there, or cannot be executed.
    pub fn new(options: CommandOptions) -> Result<Self, CommandError> {
        if !options.directory.is_dir() {
            return Err(CommandError::NoDirectory(options.directory));
        }
        let program = find(&options)?;
        Ok(Self(Arc::new(Runner::new(options, program))))
    }

    /// Path of the program.
    pub fn program(&self) -> &Path {
        self.0.program()
    }

    /// Options of the tool.
    pub fn options(&self) -> &CommandOptions {
        self.0.options()
    }

    /// The program as a tool whose arguments `input_schema` describes.
    ///
    /// # Errors
    ///
    /// [`CommandError::Template`] when the command line asks for something else than that.
    pub fn tool(&self, input_schema: Value) -> Result<Tool, CommandError> {
        let options = self.options();
        options
            .line
            .check(&input_schema)
            .map_err(CommandError::Template)?;
        let tool = Tool::new(options.name.clone(), input_schema, self.0.executor())
            .describe(options.description.clone())
            .with_kind(ToolKind::Command)
            .with_annotations(options.annotations)
            .with_source(self.program().display().to_string());
        let tool = match (&options.output_schema, options.output) {
            (Some(schema), _) => tool.with_output_schema(schema.clone()),
            (None, Output::Lines) => tool.with_sure_output_schema(Some(output::lines_schema())),
            (None, _) => tool,
        };
        Ok(match options.timeout {
            Some(timeout) => tool.with_timeout(timeout),
            None => tool,
        })
    }
}

fn find(options: &CommandOptions) -> Result<PathBuf, CommandError> {
    let name = options.line.program();
    if name.contains('/') {
        let path = options.directory.join(name);
        return match (process::is_executable(&path), path.exists()) {
            (true, _) => Ok(path),
            (false, true) => Err(CommandError::NotExecutable(path)),
            (false, false) => Err(CommandError::NoProgram(path)),
        };
    }
    let own = process::variable(&options.environment, "PATH").cloned();
    let path = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    std::env::split_paths(&path)
        // A relative directory of the search path would be another one than the program's.
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|path| process::is_executable(path))
        .ok_or_else(|| CommandError::NotOnPath(name.to_owned()))
}
