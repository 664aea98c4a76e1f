//! Where tools come from.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use adapter_skills::SkillCatalog;
use adapter_tools::Tool;
use adapter_tools::python::PythonApp;

use super::commands::Commands;
use super::services::Services;
use crate::Failure;
use config::{Config, UnmatchedFilter};

/// A tool that is written or configured, and not on offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotOffered {
    /// Name of the tool.
    pub(super) tool: String,
    /// Place of its definition.
    pub(super) place: Option<String>,
    /// Why it is not.
    pub(super) why: String,
}

impl NotOffered {
    /// True if the configuration leaves the tool out on purpose.
    pub(super) fn is_meant(&self, config: &Config) -> bool {
        config.switches.off.contains_key(&self.tool)
    }
}

/// Everything that tools come from, ready to be called.
pub(super) struct Sources {
    /// The application, if one is configured.
    pub(super) app: Option<Arc<PythonApp>>,
    commands: Commands,
    services: Services,
    has_state_tool: bool,
    /// Tools that the application's own configuration switches off, and where.
    off: BTreeMap<String, String>,
}

impl Sources {
    /// Looks at what the configuration names. The application runs already, and may have said where
    /// the skills of `catalog` are.
    pub(super) fn prepare(
        config: &Config,
        catalog: &SkillCatalog,
        app: Option<Arc<PythonApp>>,
    ) -> Result<Self, Failure> {
        let commands = Commands::prepare(config, catalog)?;
        let services = Services::prepare(config)?;
        let sources = Self {
            app,
            commands,
            services,
            has_state_tool: config.states.tool,
            off: config.switches.off.clone(),
        };
        sources.check(catalog)?;
        Ok(sources)
    }

    /// Patterns of services that match no operation.
    pub(super) fn unmatched(&self) -> &[UnmatchedFilter] {
        self.services.unmatched()
    }

    /// All tools, source by source. Of two with the same name the first one can be offered; those that cannot
    /// be offered at all are added to `lost`.
    pub(super) fn tools(&self, catalog: &SkillCatalog, lost: &mut Vec<NotOffered>) -> Vec<Tool> {
        let mut tools = self.configured(catalog, lost);
        lost.extend_from_slice(self.services.lost());
        // What skills bind gives way to all others.
        let bound = self.services.bound(catalog, &tools, lost);
        tools.extend(bound);
        tools.retain(|tool| match self.off.get(tool.name()) {
            Some(place) => {
                lost.push(NotOffered {
                    tool: tool.name().to_owned(),
                    place: Some(place.clone()),
                    why: "it is switched off".to_owned(),
                });
                false
            }
            None => true,
        });
        tools
    }

    /// Those that somebody has configured or written a handler for.
    fn configured(&self, catalog: &SkillCatalog, lost: &mut Vec<NotOffered>) -> Vec<Tool> {
        let handlers = self.app.as_deref().map(PythonApp::tools);
        let handlers = handlers.unwrap_or_default();
        let app = self.app.as_deref().filter(|_| self.has_state_tool);
        handlers
            .into_iter()
            .map(|handler| described_by_its_skill(handler, catalog))
            .map(understood)
            .chain(app.and_then(PythonApp::query_state_tool))
            .chain(self.commands.tools(catalog, lost))
            .chain(self.services.described().iter().cloned())
            .collect()
    }

    /// Whoever configures a tool means it to be called: that another one has its name is a mistake.
    fn check(&self, catalog: &SkillCatalog) -> Result<(), Failure> {
        let mut seen: HashMap<String, Tool> = HashMap::new();
        let mut problems = Vec::new();
        for tool in self.configured(catalog, &mut Vec::new()) {
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
    // If nothing can be made of it, the tool cannot be offered: what its code only hints at may let
    // through what its skill forbids.
    handler.with_input_schema(declared)
}

/// Cannot be offered if its code states rules that cannot be understood.
fn understood(handler: Tool) -> Tool {
    let unclear = mcp_server::own_rules(&handler).find_map(Result::err);
    match unclear {
        Some(why) => handler.refused(why),
        None => handler,
    }
}

fn place(tool: &Tool) -> String {
    match tool.source() {
        Some(source) => format!("the {} tool at {source}", tool.kind()),
        None => format!("a {} tool", tool.kind()),
    }
}
