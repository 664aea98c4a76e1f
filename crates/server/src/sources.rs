//! The sources of a server's tools, all of them alike.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::pending;
use std::sync::Arc;

use adapter_skills::SkillCatalog;
use adapter_tools::python::PythonApp;
use adapter_tools::{Tool, ToolKind};
use config::{Config, UnmatchedFilter};
use futures_util::future::{join_all, select_all};
use gateway::Gateway;
use mcp_server::{
    CombinedPrompts, Component, ComponentState, NotOffered, Offer, Resources, ResultLimits,
    SourceTools, ToolSource,
};
use resources::{Databases, Files, Search};
use tokio::sync::watch;

use crate::Failure;
use crate::application::{self, Application};
use crate::commands::Commands;
use crate::files;
use crate::prompts::{InForce, PromptFiles};
use crate::services::{Bindings, Services};
use crate::upstreams::unmatched_patterns;

/// All sources of tools, ready to be called.
pub(super) struct Sources {
    /// Of two tools with one name, the first source's is offered.
    all: Vec<Arc<dyn ToolSource>>,
    /// The application among them, if one is configured.
    app: Option<Arc<PythonApp>>,
    /// Other servers, as they are configured now.
    gateway: Gateway,
    /// The directory of prompts, if one is configured.
    prompt_files: Option<Arc<PromptFiles>>,
    /// Directories of files, if any are configured.
    files: Option<Arc<Files>>,
    /// Databases, if any are configured.
    databases: Option<Arc<Databases>>,
    /// Services whose answers are resources, if any are configured.
    answering: Option<Arc<resources::Services>>,
    /// The index of searches, if they are offered.
    search: Option<Arc<Search>>,
    /// Patterns of services that match no operation.
    unmatched: Vec<UnmatchedFilter>,
    /// Limits of results, with the tool that reads on in one.
    results: Option<Arc<ResultLimits>>,
    /// Tools that the application's own configuration switches off, and where.
    off: BTreeMap<String, String>,
}

impl Sources {
    /// Makes the sources that the configuration names, and adds those that were `given` in code. The
    /// application runs already, and may have said where the skills of `catalog` are.
    ///
    /// # Errors
    ///
    /// When a source cannot be made, or two of them have tools of one name.
    pub(super) fn prepare(
        config: &Config,
        catalog: &SkillCatalog,
        app: Option<Arc<PythonApp>>,
        gateway: Gateway,
        given: Vec<Arc<dyn ToolSource>>,
        results: Option<Arc<ResultLimits>>,
    ) -> Result<Self, Failure> {
        let commands = Commands::prepare(config, catalog)?;
        let services = Services::prepare(config)?;
        let unmatched = services.unmatched().to_vec();
        let services = Arc::new(services);
        let mut all: Vec<Arc<dyn ToolSource>> = Vec::new();
        if let Some(app) = &app {
            all.push(Arc::new(Application::new(Arc::clone(app), config.states)));
        }
        all.push(Arc::new(commands));
        all.push(Arc::clone(&services) as Arc<dyn ToolSource>);
        all.extend(given);
        let prompt_files = PromptFiles::open(config)?.map(Arc::new);
        if let Some(prompts) = &prompt_files {
            all.push(Arc::clone(prompts) as Arc<dyn ToolSource>);
        }
        let files =
            files::open(config, application::mounted(app.as_ref()).as_deref())?.map(Arc::new);
        if let Some(files) = &files {
            all.push(Arc::clone(files) as Arc<dyn ToolSource>);
        }
        let databases = files::open_databases(config)?.map(Arc::new);
        if let Some(databases) = &databases {
            all.push(Arc::clone(databases) as Arc<dyn ToolSource>);
        }
        let answering = files::open_services(config)?.map(Arc::new);
        if let Some(answering) = &answering {
            all.push(Arc::clone(answering) as Arc<dyn ToolSource>);
        }
        let search = files::open_search(config, files.as_deref())?.map(Arc::new);
        if let Some(search) = &search {
            all.push(Arc::clone(search) as Arc<dyn ToolSource>);
        }
        if let Some(results) = &results {
            all.push(Arc::clone(results) as Arc<dyn ToolSource>);
        }
        all.push(Arc::new(Bindings(services)));
        all.push(Arc::new(gateway.clone()));
        let sources = Self {
            all,
            app,
            gateway,
            prompt_files,
            files,
            databases,
            answering,
            search,
            unmatched,
            results,
            off: config.switches.off.clone(),
        };
        sources.check(catalog)?;
        Ok(sources)
    }

    /// The application, if one is configured.
    pub(super) fn app(&self) -> Option<&Arc<PythonApp>> {
        self.app.as_ref()
    }

    /// The other servers.
    pub(super) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Versions in force of the prompts in files.
    pub(super) fn prompts_in_force(&self) -> InForce {
        let files = self.prompt_files.as_ref();
        files.map(|it| it.in_force()).unwrap_or_default()
    }

    /// Resources of which somebody is told that they have changed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(super) async fn changed_resources(&self) -> BTreeSet<String> {
        let files = async {
            match &self.files {
                Some(files) => files.changed().await,
                None => pending().await,
            }
        };
        let databases = async {
            match &self.databases {
                Some(databases) => databases.changed().await,
                None => pending().await,
            }
        };
        let answering = async {
            match &self.answering {
                Some(answering) => answering.changed().await,
                None => pending().await,
            }
        };
        tokio::select! {
            changed = files => changed,
            changed = databases => changed,
            changed = answering => changed,
        }
    }

    /// Hears of changes of these resources from now on, where that takes something.
    pub(super) fn listen_to(&self, uris: BTreeSet<String>) {
        if let Some(databases) = &self.databases {
            databases.listen_to(&uris);
        }
        if let Some(answering) = &self.answering {
            answering.listen_to(&uris);
        }
        self.gateway.listen_to(uris);
    }

    /// Tells the index of searches what is on offer now.
    pub(super) fn offered(&self, offer: &Offer) {
        if let Some(search) = &self.search {
            search.offered(offer.resources().entries());
        }
    }

    /// Limits of results, if there are any.
    pub(super) fn results(&self) -> Option<&Arc<ResultLimits>> {
        self.results.as_ref()
    }

    /// Patterns of services that match no operation.
    pub(super) fn unmatched(&self) -> &[UnmatchedFilter] {
        &self.unmatched
    }

    /// Patterns of upstreams that match nothing which those list now, patterns of databases that match nothing which
    /// is in those now, and patterns of files that have matched nothing.
    pub(super) fn unmatched_now(&self) -> impl Iterator<Item = UnmatchedFilter> {
        let databases = self.databases.iter();
        let of_databases = databases.flat_map(|it| it.unmatched_patterns());
        let of_databases = of_databases.map(|it| UnmatchedFilter {
            key: format!("resources.databases.{}.{}", it.database, it.list),
            pattern: it.pattern,
            names: it.names,
        });
        let of_files = self.files.iter().flat_map(|it| it.idle_patterns());
        let of_files = of_files.map(|it| UnmatchedFilter {
            key: format!("resources.files.{}.{}", it.folder, it.list),
            pattern: it.pattern,
            names: it.names,
        });
        unmatched_patterns(&self.gateway)
            .chain(of_databases)
            .chain(of_files)
    }

    /// Word of what cannot be read in databases.
    pub(super) fn broken(&self) -> impl Iterator<Item = String> {
        self.databases.iter().flat_map(|it| it.broken())
    }

    /// All tools, source by source, and definitions that cannot be offered. Of two tools with one name the
    /// first can be offered.
    pub(super) fn tools(&self, catalog: &SkillCatalog) -> SourceTools {
        let mut found = SourceTools::default();
        for source in self.all.iter().filter(|it| !it.gives_way()) {
            let SourceTools { tools, lost } = source.tools(catalog);
            let tools = tools.into_iter();
            let tools = tools.map(|tool| described_by_its_skill(tool, catalog));
            found.tools.extend(tools.map(understood));
            found.lost.extend(lost);
        }
        for source in self.all.iter().filter(|it| it.gives_way()) {
            let SourceTools { tools, lost } = source.tools(catalog);
            let is_taken = |name: &str| found.tools.iter().any(|tool| tool.name() == name);
            let (taken, free): (Vec<_>, Vec<_>) =
                tools.into_iter().partition(|tool| is_taken(tool.name()));
            for tool in taken {
                if tool.kind() == ToolKind::Upstream {
                    found.lost.push(NotOffered {
                        tool: tool.name().to_owned(),
                        place: None,
                        why: "another tool has this name: give this one another by `gateway.names`, or by `prefix` of its upstream"
                            .to_owned(),
                    });
                    continue;
                }
                tracing::debug!(
                    tool = tool.name(),
                    kind = %tool.kind(),
                    "a tool gives way to another one of its name"
                );
            }
            let lost = lost.into_iter().filter(|it| !is_taken(&it.tool));
            found.lost.extend(lost);
            found.tools.extend(free);
        }
        found.tools.retain(|tool| match self.off.get(tool.name()) {
            Some(place) => {
                found.lost.push(NotOffered {
                    tool: tool.name().to_owned(),
                    place: Some(place.clone()),
                    why: "it is switched off".to_owned(),
                });
                false
            }
            None => true,
        });
        found
    }

    /// All sources.
    pub(super) fn all(&self) -> Vec<Arc<dyn ToolSource>> {
        self.all.clone()
    }

    /// Resources of the sources.
    pub(super) fn resources(&self) -> impl Iterator<Item = Arc<dyn Resources>> {
        self.all.iter().filter_map(|source| source.resources())
    }

    /// Prompts of the sources, as one offer; `None` if no source has any.
    pub(super) fn prompts(&self) -> Option<CombinedPrompts> {
        let parts: Vec<_> = self.all.iter().filter_map(|it| it.prompts()).collect();
        (!parts.is_empty()).then(|| CombinedPrompts::new(parts))
    }

    /// Parts of `/health`, one for each source that can fail by itself.
    pub(super) fn components(&self) -> impl Iterator<Item = Component> {
        self.all.iter().filter_map(|source| {
            let name = source.health()?.name;
            let source = Arc::clone(source);
            Some(Component::new(move || {
                source.health().unwrap_or(ComponentState {
                    name,
                    ok: true,
                    detail: None,
                })
            }))
        })
    }

    /// Reports of the sources that their tools or resources may have changed.
    pub(super) fn changes(&self) -> Changes {
        Changes(self.all.iter().filter_map(|it| it.changes()).collect())
    }

    /// Ends what the sources keep running.
    pub(super) async fn close(&self) {
        join_all(self.all.iter().map(|source| source.close())).await;
    }

    /// Refuses two tools or prompts of one name from two sources: who configures a tool means it to be
    /// called.
    fn check(&self, catalog: &SkillCatalog) -> Result<(), Failure> {
        let mut seen: HashMap<String, (usize, Tool)> = HashMap::new();
        let mut problems = Vec::new();
        let settled = self.all.iter().filter(|it| !it.gives_way()).enumerate();
        for (at, source) in settled {
            for tool in source.tools(catalog).tools {
                match seen.get(tool.name()) {
                    // Two of one source are the source's own affair.
                    Some((first, other)) if *first != at => problems.push(format!(
                        "two tools are called `{}`: {} and {}; give one of them another name",
                        tool.name(),
                        place(other),
                        place(&tool),
                    )),
                    Some(_) => {}
                    None => drop(seen.insert(tool.name().to_owned(), (at, tool))),
                }
            }
        }
        if let Some(prompts) = self.prompts() {
            problems.extend(prompts.duplicates().values().cloned());
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(problems.join("\n").into()),
        }
    }
}

/// Reports of changes of all sources.
pub(super) struct Changes(Vec<watch::Receiver<u64>>);

impl Changes {
    /// Resolves when a source has changed since the last time.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) {
        while !self.0.is_empty() {
            let waiting = self.0.iter_mut().map(|it| Box::pin(it.changed()));
            let (changed, at, others) = select_all(waiting).await;
            drop(others);
            if changed.is_ok() {
                return;
            }
            // This source changes no more.
            self.0.swap_remove(at);
        }
        pending().await
    }
}

/// Gives a tool the arguments that the skill of its name declares, where its code has only hints of them.
fn described_by_its_skill(tool: Tool, catalog: &SkillCatalog) -> Tool {
    if !tool.has_derived_schema() {
        return tool;
    }
    let declared = catalog.by_name(tool.name()).and_then(|skill| {
        let tools = &skill.frontmatter().tools;
        tools.get(tool.name())?.parameters.clone()
    });
    let Some(declared) = declared else {
        return tool;
    };
    // If nothing can be made of it, the tool cannot be offered: what its code only hints at may let
    // through what its skill forbids.
    tool.with_input_schema(declared)
}

/// Refuses a tool whose code states rules that cannot be understood.
fn understood(tool: Tool) -> Tool {
    let unclear = mcp_server::own_rules(&tool).find_map(Result::err);
    match unclear {
        Some(why) => tool.refused(why),
        None => tool,
    }
}

fn place(tool: &Tool) -> String {
    match tool.source() {
        Some(source) => format!("the {} tool at {source}", tool.kind()),
        None => format!("a {} tool", tool.kind()),
    }
}
