//! The offer: tools, resources and prompts at one time, with the caches of their lists.

pub(crate) mod apps;
pub(crate) mod combined;
pub(crate) mod combined_prompts;
pub(crate) mod page_cache;
pub(crate) mod prompts;
pub(crate) mod resources;
pub(crate) mod results;
pub(crate) mod search;
pub(crate) mod skill_facts;
pub(crate) mod skills;
pub(crate) mod state_resources;
pub(crate) mod tool_listing;
pub(crate) mod tool_numbers;
pub(crate) mod tool_source;

use crate::{
    names::tool_capability,
    offer::{
        apps::PageNames,
        page_cache::PageCache,
        prompts::{Prompts, StaticPrompts},
        resources::{NoResources, Resources},
        results::{READ_RESULT, ResultLimits},
        search::{Search, SearchView},
        tool_listing::{Described, IncludeSkill},
        tool_numbers::ToolNumbers,
        tool_source::{Sought, ToolSource},
    },
};
use adapter_skills::{SkillCatalog, TaskHint, ToolHints};
use adapter_tools::{Annotations, TaskSupport, Tool, ToolError, ToolSet};
use jsonrpc_core::RawJson;
use ledger::Digest;
use mcp_protocol::{MirroredParams, model::APP_SCHEME};
use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Complete offer at one time. A change of it is another offer, with empty caches: a list can never
/// be older than what it lists (Property 11).
#[derive(Debug)]
pub struct Offer {
    tools: ToolSet,
    described: Vec<Described>,
    /// Header parameters of the tools that have any, by name.
    mirrored: HashMap<String, MirroredParams>,
    /// The tools again, by name, with what is prepared of them.
    offered: foldhash::HashMap<String, Arc<OfferedTool>>,
    resources: Arc<dyn Resources>,
    prompts: Arc<dyn Prompts>,
    search: Option<Search>,
    page_names: PageNames,
    results: Option<Arc<ResultLimits>>,
    /// Sources that may not know yet what they have.
    sources: Vec<Arc<dyn ToolSource>>,
    pub(crate) lists: PageCache,
}

/// A tool with what every call of it needs, prepared once.
#[derive(Debug)]
pub(crate) struct OfferedTool {
    pub(crate) tool: Tool,
    pub(crate) name: Arc<str>,
    /// Name in policies and the ledger.
    pub(crate) capability: Arc<str>,
    /// A digest of its definition as it is listed.
    pub(crate) definition: Digest,
    /// The same for the record of calls: that of an approved definition, where it is another.
    pub(crate) recorded_definition: Digest,
    /// False if it is offered to pages of apps alone.
    pub(crate) is_for_model: bool,
    /// Metrics of its calls, looked up once.
    pub(crate) numbers: OnceLock<Arc<ToolNumbers>>,
}

impl Offer {
    /// Puts together what is on offer. `skills` are what tool descriptions take text from, and what
    /// says of the tool of the same name what the tool does not say itself: annotations, whether its
    /// calls can be tasks, and how long they may take.
    pub fn new(
        tools: ToolSet,
        resources: Arc<dyn Resources>,
        skills: Option<&SkillCatalog>,
        include: IncludeSkill,
        default_timeout: Duration,
    ) -> Self {
        let tools = match skills {
            Some(skills) => with_hints(&tools, skills),
            None => tools,
        };
        let described: Vec<_> = tools
            .iter()
            .map(|tool| Described::new(tool, skills, include, default_timeout))
            .collect();
        let mirrored = tools.iter().filter_map(mirrored).collect();
        let offered = tools.iter().zip(&described).map(|(tool, described)| {
            let offered = OfferedTool {
                tool: tool.clone(),
                name: tool.name().into(),
                numbers: OnceLock::new(),
                capability: tool_capability(tool.name()).into(),
                definition: described.definition_digest(),
                recorded_definition: tool
                    .recorded_definition()
                    .unwrap_or_else(|| described.definition_digest()),
                is_for_model: described.is_for_model(),
            };
            (tool.name().to_owned(), Arc::new(offered))
        });
        Self {
            offered: offered.collect(),
            page_names: PageNames::new(&tools),
            tools,
            described,
            mirrored,
            resources,
            prompts: Arc::new(StaticPrompts::new()),
            search: None,
            results: None,
            sources: Vec::new(),
            lists: PageCache::default(),
        }
    }

    /// Tools and nothing else.
    pub fn of_tools(tools: ToolSet, default_timeout: Duration) -> Self {
        Self::new(
            tools,
            Arc::new(NoResources),
            None,
            IncludeSkill::None,
            default_timeout,
        )
    }

    /// With these prompts besides.
    #[must_use]
    pub fn with_prompts(mut self, prompts: Arc<dyn Prompts>) -> Self {
        self.prompts = prompts;
        self
    }

    /// With sources that are asked about names that are not on offer ([`ToolSource::absent`]).
    #[must_use]
    pub fn with_sources(mut self, sources: Vec<Arc<dyn ToolSource>>) -> Self {
        self.sources = sources;
        self
    }

    /// Error for a request for something that is not on offer, if a source cannot say yet whether it has it.
    pub(crate) fn absent(&self, sought: Sought<'_>) -> Option<ToolError> {
        self.sources.iter().find_map(|it| it.absent(sought))
    }

    /// With a search view for some of its clients; `skills` are those that the offer was made with. A server takes
    /// up calls through the view if its first offer has one.
    #[must_use]
    pub fn with_search_view(
        mut self,
        view: Arc<SearchView>,
        skills: Option<&SkillCatalog>,
    ) -> Self {
        let tools: Vec<_> = self.tools.iter().zip(&self.described).collect();
        self.search = Some(Search::new(view, &tools, skills));
        self
    }

    /// With limits of results. Those whose parts are of its sources ([`ToolSource`](crate::ToolSource)) can be read on
    /// with. A server has the limits of its first offer.
    #[must_use]
    pub fn with_result_limits(mut self, limits: Arc<ResultLimits>) -> Self {
        self.results = Some(limits);
        self
    }

    /// The limits of results, if there are any.
    pub(crate) fn results(&self) -> Option<&Arc<ResultLimits>> {
        self.results.as_ref()
    }

    /// Tests if a tool is listed to clients of the search view, too, since notes in results name it.
    pub(crate) fn is_for_notes(&self, tool: &str) -> bool {
        self.results.is_some() && tool == READ_RESULT
    }

    /// The search view, if any client has it.
    pub(crate) fn search(&self) -> Option<&Search> {
        self.search.as_ref()
    }

    /// The prompts.
    pub fn prompts(&self) -> &Arc<dyn Prompts> {
        &self.prompts
    }

    /// The tools.
    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    /// True if the tools of another offer look the same in lists. With a search view, whose lists have tools of their own, that
    /// is not known.
    pub(crate) fn lists_the_same_tools(&self, other: &Self) -> bool {
        self.described == other.described && self.search.is_none() && other.search.is_none()
    }

    /// The part of a tool that hosts put before a model: name, description with the text of its skill, and
    /// schema of its arguments. `None` if there is no such tool.
    pub fn model_text(&self, tool: &str) -> Option<String> {
        let described = self.described.iter().find(|it| it.name() == tool)?;
        Some(described.model_text())
    }

    /// Tells whether arguments of any tool are repeated in HTTP headers.
    pub(crate) fn mirrors(&self) -> bool {
        !self.mirrored.is_empty()
    }

    /// The arguments of a tool that are repeated in HTTP headers, if any are.
    pub fn mirrored(&self, tool: &str) -> Option<&MirroredParams> {
        self.mirrored.get(tool)
    }

    /// A digest of the definition of a tool, as it is listed and in canonical form: another
    /// description, schema or hint makes another tool of it for a person who has agreed to call it.
    pub fn definition(&self, tool: &str) -> Option<Digest> {
        self.offered(tool).map(|it| it.definition)
    }

    /// The arguments that are meant, where a caller has wrapped them in the name of the tool's parameter that gets
    /// them all ([`Tool::unwrapped`]).
    pub fn unwrapped(&self, tool: &str, arguments: &RawJson) -> Option<RawJson> {
        let tool = &self.offered(tool)?.tool;
        let meant = tool.unwrapped(arguments.as_str())?;
        Some(arguments.child(meant))
    }

    /// The tool of this name with what is prepared of it.
    pub(crate) fn offered(&self, tool: &str) -> Option<&Arc<OfferedTool>> {
        self.offered.get(tool)
    }

    /// Tools that the page of an app may call by other names than those that they are offered under.
    pub(crate) fn page_names(&self) -> &PageNames {
        &self.page_names
    }

    /// True if hosts can show pages of this offer.
    pub(crate) fn has_apps(&self) -> bool {
        let mut resources = self.resources.entries().iter();
        self.page_names.has_apps() || resources.any(|it| it.resource.uri.starts_with(APP_SCHEME))
    }

    /// The resources.
    pub fn resources(&self) -> &Arc<dyn Resources> {
        &self.resources
    }

    pub(crate) fn described(&self) -> &[Described] {
        &self.described
    }
}

/// The same tools, with what skills say of them.
fn with_hints(tools: &ToolSet, skills: &SkillCatalog) -> ToolSet {
    let tools = tools.iter().map(|tool| {
        let skill = skills.by_name(tool.own_name());
        let hints = skill.map(|skill| skill.frontmatter().owlclaw.hints);
        hints.map_or_else(|| tool.clone(), |hints| with_hint(tool.clone(), hints))
    });
    // Names and schemas are what they were, so there can be no problem that was not there.
    ToolSet::collect(tools).0
}

/// The tool's own word is what holds, where it has one: its author knows best.
fn with_hint(tool: Tool, hints: ToolHints) -> Tool {
    let own = tool.annotations();
    let tool = tool.with_annotations(Annotations {
        read_only: own.read_only.or(hints.read_only),
        destructive: own.destructive.or(hints.destructive),
        idempotent: own.idempotent.or(hints.idempotent),
        open_world: own.open_world.or(hints.open_world),
    });
    let tool = match (tool.timeout(), hints.timeout) {
        (None, Some(timeout)) => tool.with_timeout(timeout),
        _ => tool,
    };
    match (tool.task_support(), hints.task) {
        (TaskSupport::Optional, Some(TaskHint::Forbidden)) => {
            tool.with_task_support(TaskSupport::Forbidden)
        }
        (TaskSupport::Optional, Some(TaskHint::Required)) => {
            tool.with_task_support(TaskSupport::Required)
        }
        _ => tool,
    }
}

fn mirrored(tool: &Tool) -> Option<(String, MirroredParams)> {
    match MirroredParams::of_schema(tool.input_schema()) {
        Ok(mirrored) => (!mirrored.is_empty()).then(|| (tool.name().to_owned(), mirrored)),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn Error,
                tool = tool.name(),
                "headers are not compared with this tool's arguments, and clients may not show it"
            );
            None
        }
    }
}

#[cfg(test)]
mod tests;
