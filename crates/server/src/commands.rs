//! Programs as tools, as the configuration names them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use adapter_skills::SkillCatalog;
use adapter_tools::command::{Command, CommandOptions, Input, Output};
use adapter_tools::{Annotations, Tool, ToolSet};
use mcp_server::{NotOffered, SourceTools, ToolSource};
use serde_json::{Value, json};

use crate::Failure;
use crate::with_causes;
use config::{Config, Environment};

/// The first argument with which the program runs as a guard of another program instead of as a server;
/// see [`adapter_tools::command`]. For the server's own use.
pub const GUARD: &str = "exec-guard";

/// The programs that are tools.
#[derive(Debug)]
pub(super) struct Commands(Vec<Prepared>);

#[derive(Debug)]
struct Prepared {
    command: Command,
    /// `None` where a skill says it.
    schema: Option<Value>,
}

impl Commands {
    /// Looks for all programs and makes tools of them once, so that problems are reported before
    /// anything is served.
    pub(super) fn prepare(config: &Config, catalog: &SkillCatalog) -> Result<Self, Failure> {
        let environment = &config.environment;
        let mut prepared = Vec::new();
        let mut problems = Vec::new();
        for (name, settings) in &config.commands {
            match prepare(name, settings, environment, catalog) {
                Ok(one) => prepared.push(one),
                Err(error) => problems.push(format!("commands.{name}: {}", with_causes(&*error))),
            }
        }
        match problems.is_empty() {
            true => Ok(Self(prepared)),
            false => Err(problems.join("\n").into()),
        }
    }
}

impl ToolSource for Commands {
    /// The programs as tools. One whose skill has come to describe other arguments than its command line
    /// asks for is not among them.
    fn tools(&self, skills: &SkillCatalog) -> SourceTools {
        let mut found = SourceTools::default();
        for prepared in &self.0 {
            match prepared.tool(skills) {
                Ok(tool) => found.tools.push(tool),
                Err(error) => {
                    let tool = prepared.command.options().name.clone();
                    found.lost.push(NotOffered {
                        place: Some(format!("commands.{tool}")),
                        tool,
                        why: with_causes(&*error),
                    });
                }
            }
        }
        found
    }
}

impl Prepared {
    fn tool(&self, catalog: &SkillCatalog) -> Result<Tool, Failure> {
        let name = &self.command.options().name;
        let declared = || {
            let skill = catalog.by_name(name)?;
            skill.frontmatter().tools.get(name)?.parameters.clone()
        };
        let nothing = || json!({"type": "object", "properties": {}, "additionalProperties": false});
        let schema = self
            .schema
            .clone()
            .or_else(declared)
            .unwrap_or_else(nothing);
        Ok(self.command.tool(schema)?)
    }
}

fn prepare(
    name: &str,
    settings: &config::Command,
    environment: &Environment,
    catalog: &SkillCatalog,
) -> Result<Prepared, Failure> {
    let directory = settings.cwd.as_deref().unwrap_or(Path::new("."));
    let mut options = CommandOptions::new(name, settings.line()?, directory);
    options.description = settings
        .description
        .clone()
        .unwrap_or_default()
        .trim()
        .to_owned();
    for (name, value) in &settings.env {
        let value = environment.resolve(value);
        // The configuration was checked in this environment.
        let value = value.ok_or_else(|| format!("the variable `{name}` has no value"))?;
        options.environment.push((name.into(), value.into()));
    }
    match settings.stdin {
        Some(config::Stdin::Json) => options.input = Input::Json,
        Some(config::Stdin::None) => options.input = Input::None,
        None => {}
    }
    options.output = match (settings.output, &settings.output_schema) {
        (config::Output::Auto, None) => Output::Auto,
        (config::Output::Auto | config::Output::Json, _) => Output::Json,
        (config::Output::Text, _) => Output::Text,
        (config::Output::Lines, _) => Output::Lines,
    };
    options.output_schema = settings.output_schema.clone();
    options.timeout = settings.timeout_seconds.map(Duration::from_secs);
    options.max_output = settings.max_output_bytes;
    options.max_memory = settings.max_memory_bytes;
    options.max_concurrent = settings.max_concurrent;
    options.max_waiting = settings.max_waiting;
    options.success = settings.success_exit_codes.clone();
    options.stderr_in_errors = settings.stderr_in_errors;
    options.annotations = Annotations {
        read_only: settings.read_only,
        destructive: settings.destructive,
        idempotent: settings.idempotent,
        open_world: settings.open_world,
    };
    options.guard = Some(vec![
        this_program()?.into_os_string(),
        OsString::from(GUARD),
    ]);
    let prepared = Prepared {
        command: Command::new(options)?,
        schema: settings.schema(),
    };
    // Whether it could be offered alone: its schemas are in order.
    ToolSet::new([prepared.tool(catalog)?])?;
    Ok(prepared)
}

/// Path of this program. Taken from its process where that is possible, so that one that was
/// replaced while it runs is still itself.
fn this_program() -> Result<PathBuf, Failure> {
    let own = Path::new("/proc/self/exe");
    match own.exists() {
        true => Ok(own.to_owned()),
        false => Ok(std::env::current_exe()?),
    }
}
