//! Where tools come from.

use std::collections::HashMap;
use std::sync::Arc;

use adapter_skills::SkillCatalog;
use adapter_tools::python::PythonApp;
use adapter_tools::{Tool, ToolSet};

use super::build;
use super::commands::Commands;
use super::services::Services;
use crate::Failure;
use crate::config::Config;

/// Everything that tools come from, ready to be called.
pub(super) struct Sources {
    /// The application, if one is configured.
    pub(super) app: Option<Arc<PythonApp>>,
    commands: Commands,
    services: Services,
    has_state_tool: bool,
}

impl Sources {
    /// Looks at what the configuration names, and starts the application.
    pub(super) async fn start(config: &Config, catalog: &SkillCatalog) -> Result<Self, Failure> {
        // First what takes no time.
        let commands = Commands::prepare(config, catalog)?;
        let services = Services::prepare(config)?;
        let app = build::start_app(config).await?;
        let sources = Self {
            app,
            commands,
            services,
            has_state_tool: config.states.tool,
        };
        sources.check(catalog)?;
        Ok(sources)
    }

    /// All tools, source by source. Of two with the same name the first one can be offered.
    pub(super) fn tools(&self, catalog: &SkillCatalog) -> Vec<Tool> {
        let mut tools = self.configured(catalog);
        // What skills bind gives way to all others.
        let bound = self.services.bound(catalog, &tools);
        tools.extend(bound);
        tools
    }

    /// Those that somebody has configured or written a handler for.
    fn configured(&self, catalog: &SkillCatalog) -> Vec<Tool> {
        let handlers = self.app.as_deref().map(PythonApp::tools);
        let handlers = handlers.unwrap_or_default();
        let app = self.app.as_deref().filter(|_| self.has_state_tool);
        handlers
            .into_iter()
            .map(|handler| described_by_its_skill(handler, catalog))
            .chain(app.and_then(PythonApp::query_state_tool))
            .chain(self.commands.tools(catalog))
            .chain(self.services.described().iter().cloned())
            .collect()
    }

    /// Whoever configures a tool means it to be called: that another one has its name is a mistake.
    fn check(&self, catalog: &SkillCatalog) -> Result<(), Failure> {
        let mut seen: HashMap<String, Tool> = HashMap::new();
        let mut problems = Vec::new();
        for tool in self.configured(catalog) {
            match seen.get(tool.name()) {
                // Two of one source are the source's own affair.
                Some(first) if first.kind() != tool.kind() => problems.push(format!(
                    "two tools are called `{}`: {} and {}; give one of them another name",
                    tool.name(),
                    place(first),
                    place(&tool),
                )),
                Some(_) => {}
                None => drop(seen.insert(tool.name().to_owned(), tool)),
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(problems.join("\n").into()),
        }
    }
}

/// With the arguments that the skill of its name declares, where its code only has hints of them.
fn described_by_its_skill(handler: Tool, catalog: &SkillCatalog) -> Tool {
    if !handler.has_derived_schema() {
        return handler;
    }
    let declared = catalog.by_name(handler.name()).and_then(|skill| {
        let tools = &skill.frontmatter().tools;
        tools.get(handler.name())?.parameters.clone()
    });
    let Some(declared) = declared else {
        return handler;
    };
    let described = handler.clone().with_input_schema(declared);
    match ToolSet::new([described.clone()]) {
        Ok(_) => described,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                tool = handler.name(),
                "the arguments that a skill declares cannot be used; those of the code are"
            );
            handler
        }
    }
}

fn place(tool: &Tool) -> String {
    match tool.source() {
        Some(source) => format!("the {} tool at {source}", tool.kind()),
        None => format!("a {} tool", tool.kind()),
    }
}
