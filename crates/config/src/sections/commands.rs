//! Programs as tools, as configured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use adapter_skills::ToolDeclaration;
use adapter_tools::ToolSet;
use adapter_tools::command::{CommandLine, TemplateError, Word};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::environment;
use crate::layer::{Origins, child};
use crate::nearest::nearest;
use crate::problem::{Origin, Problem};

/// A program that is a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Command {
    /// Description of the tool for the model. Without one, the description of the skill of the same
    /// name.
    #[schemars(extend("format" = "prose"))]
    pub description: Option<String>,
    /// The program and its arguments, one element each; no shell is asked. `{name}` stands for what
    /// the caller gives for `name`, and a list within the list is left out as a whole where one of
    /// its names is not given. See docs/commands.md.
    #[schemars(extend("x-groups" = true, "x-items" = "word"))]
    pub run: Vec<Words>,
    /// Input of the program. Without one, nothing where `run` has placeholders, else `json`.
    pub stdin: Option<Stdin>,
    /// The JSON Schema of the arguments, or their names and types alone. Without one, what the
    /// skill of the same name declares.
    #[schemars(with = "serde_json::Map<String, Value>", extend("x-json" = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// Format of the program's output.
    pub output: Output,
    /// The JSON Schema of what it writes, where that is an object.
    #[schemars(with = "serde_json::Map<String, Value>", extend("x-json" = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The directory it runs in. Without one, that of the configuration file.
    #[schemars(extend("format" = "path"))]
    pub cwd: Option<PathBuf>,
    /// All environment variables of the program: none are inherited. `${NAME}` refers to the
    /// server's own.
    #[schemars(extend("additionalProperties" = {"type": "string", "format": "secret"}))]
    pub env: BTreeMap<String, String>,
    /// A call that takes longer is ended.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<u64>,
    /// A program that writes more is ended.
    #[schemars(range(min = 1, max = 67_108_864))]
    pub max_output_bytes: usize,
    /// Bytes that the program's address space may have.
    #[schemars(range(min = 1_048_576, max = 1_099_511_627_776_u64))]
    pub max_memory_bytes: Option<u64>,
    /// Calls that run at once.
    #[schemars(range(min = 1, max = 1_024))]
    pub max_concurrent: usize,
    /// Calls that wait for their turn; further ones are refused.
    #[schemars(range(max = 100_000))]
    pub max_waiting: usize,
    /// The exit statuses that mean that all went well.
    pub success_exit_codes: Vec<u8>,
    /// Show clients the end of what the program writes to its standard error when it fails.
    pub stderr_in_errors: bool,
    /// The command changes nothing.
    pub read_only: Option<bool>,
    /// The command's changes may destroy data.
    pub destructive: Option<bool>,
    /// Twice does no more than once.
    pub idempotent: Option<bool>,
    /// The command deals with an open set of things, such as the web.
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

impl Command {
    /// Command line of the tool.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] when it is none.
    pub fn line(&self) -> Result<CommandLine, TemplateError> {
        let word = |words: &Words| match words {
            Words::One(word) => Word::One(word.clone()),
            Words::Group(words) => Word::Group(words.clone()),
        };
        CommandLine::parse(&self.run.iter().map(word).collect::<Vec<_>>())
    }

    /// The schema of its arguments, in full; `None` if it is left to a skill.
    pub fn schema(&self) -> Option<Value> {
        self.input_schema
            .as_ref()
            .and_then(ToolDeclaration::schema_of)
    }

    /// Makes its paths absolute.
    pub(crate) fn begin_at(&mut self, base: &Path) {
        let directory = self.cwd.as_deref().unwrap_or(Path::new("."));
        self.cwd = Some(environment::absolute(base, directory));
        if let Some(Words::One(program)) = self.run.first_mut()
            && program.contains('/')
            && let Some(base) = base.to_str()
        {
            // The name of a directory is no template.
            let base = base.replace('{', "{{").replace('}', "}}");
            let path = environment::absolute(Path::new(&base), &*program);
            *program = path.to_string_lossy().into_owned();
        }
    }
}

/// Adds the problems of commands that can be found without looking at the machine.
pub(crate) fn check(
    commands: &BTreeMap<String, Command>,
    origins: &Origins,
    problems: &mut Vec<Problem>,
) {
    for (name, command) in commands {
        let path = child("commands", name);
        let mut error = |key: &str, message: String, hint: Option<String>| {
            let key = child(&path, key);
            // What did not fit was left out, and is not missing.
            let is_known =
                |problem: &Problem| problem.key.as_ref().is_some_and(|it| it.starts_with(&key));
            if problems.iter().any(is_known) {
                return;
            }
            let begins = |(origin, _): &(&String, &Origin)| {
                origin
                    .strip_prefix(&path)
                    .is_some_and(|rest| rest.starts_with('.'))
            };
            // What is missing is told where the rest is.
            let origin = origins
                .get(&key)
                .or_else(|| Some(origins.iter().find(begins)?.1));
            let origin = origin.cloned().unwrap_or(Origin::Default);
            problems.push(Problem::error(origin, message).key(key).hint_if(hint));
        };
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if ToolSet::MAX_NAME < name.len() || !name.bytes().all(legal) {
            let message = format!("`{path}` is no name for a tool");
            let hint = "a name is 1 to 128 of the characters A-Z a-z 0-9 _ . -".to_owned();
            error("run", message, Some(hint));
        }
        let schema = command.schema();
        if command.input_schema.is_some() && schema.is_none() {
            let message = format!("`{path}.input_schema` must be a JSON Schema or a map of names");
            error("input_schema", message, None);
        }
        let line = command.line().and_then(|line| match &schema {
            Some(schema) => line.check(schema),
            None => Ok(()),
        });
        if let Err(why) = line {
            error("run", format!("`{path}.run`: {why}"), hint(&why));
        }
        if command.success_exit_codes.is_empty() {
            let message = format!("`{path}.success_exit_codes` must not be empty");
            error("success_exit_codes", message, None);
        }
        let is_text = matches!(command.output, Output::Text | Output::Lines);
        if command.output_schema.is_some() && is_text {
            let message = format!("`{path}.output_schema` describes JSON, and `output` is not");
            error("output_schema", message, None);
        }
    }
}

fn hint(error: &TemplateError) -> Option<String> {
    Some(match error {
        TemplateError::NoProgram => "write `run: [program, argument, ...]`".to_owned(),
        TemplateError::ProgramIsChosen(_) => "name the program itself".to_owned(),
        TemplateError::StrayBrace(_) => {
            "write `{name}`, `{name...}` or `{name?}`, and `{{` or `}}` for a brace".to_owned()
        }
        TemplateError::ItemsNotAlone(_) => "make it an element of its own".to_owned(),
        TemplateError::OptionIsChosen(_) => {
            "write the option's name, as in `--name={name}`".to_owned()
        }
        TemplateError::Unknown { name, known } => {
            match nearest(name, known.iter().map(String::as_str)) {
                Some(meant) => format!("did you mean `{{{meant}}}`?"),
                None if known.is_empty() => "`input_schema` has no properties".to_owned(),
                None => format!("the properties are `{}`", known.join("`, `")),
            }
        }
        _ => return None,
    })
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

impl Words {
    pub(crate) fn words(&self) -> impl Iterator<Item = &String> {
        match self {
            Self::One(word) => std::slice::from_ref(word),
            Self::Group(words) => words,
        }
        .iter()
    }
}

/// Input that a program reads from its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stdin {
    /// The arguments of the call, as one JSON object and a line end.
    Json,
    /// No input.
    None,
}

/// Format of the output that a program writes to its standard output.
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
