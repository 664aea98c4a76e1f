//! Lists for the command line: the same offer and the same rules as clients get, without serving.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use adapter_skills::{SkillCatalog, SkillMemory};
use adapter_tools::Tool;
use governance::{Kind, Micros, Policy};
use mcp_server::{
    NotOffered, Offer, SearchOptions, SearchView, resource_capability, tool_capability,
};
use mcp_service::Principal;
use tempfile::TempDir;

use super::sources::Sources;
use super::{application, offering, policy, results, standing, upstreams};
use crate::Failure;
use crate::{ResourceFilter, ResourceRow, ToolRow, ViewRow, estimated_tokens};
use config::{Config, Loaded, Origin, Problem, UnmatchedRules};

/// The tools that a server would offer, and their problems.
#[derive(Debug)]
pub struct Survey {
    /// The tools.
    pub tools: Vec<ToolRow>,
    /// Cost of each view of them.
    pub views: Vec<ViewRow>,
    /// Number of skills.
    pub skills: usize,
    /// Directory of the skills.
    pub skills_dir: PathBuf,
    /// Problems of skills, of tools and of rules that match neither.
    pub problems: Problems,
}

/// Problems, by their subject.
#[derive(Debug, Default)]
pub struct Problems {
    /// Of skills.
    pub skills: Vec<Problem>,
    /// Of tools, also of those that cannot be offered.
    pub tools: Vec<Problem>,
    /// Of rules that match nothing on offer.
    pub rules: Vec<Problem>,
    /// Of databases: what in them cannot be read, in words.
    pub databases: Vec<String>,
}

/// All that a server has to judge calls by, made as a server makes it.
pub(super) struct Bench {
    pub(super) catalog: Arc<SkillCatalog>,
    pub(super) offer: Arc<Offer>,
    pub(super) policy: Policy,
    sources: Sources,
    skills_dir: PathBuf,
    skill_problems: Vec<adapter_skills::Problem>,
    lost: Vec<NotOffered>,
    _stored: Option<TempDir>,
    _aside: TempDir,
}

impl Bench {
    pub(super) async fn prepare(config: &Config) -> Result<Self, Failure> {
        // What a server keeps is its own, and may be in use by one.
        let aside = TempDir::new()?;
        let config = &config.aside(aside.path());
        let app = application::start(config).await?;
        let scan = offering::scan_options(config, application::mounted(app.as_ref()).as_deref())?;
        let (catalog, skill_problems) = SkillCatalog::scan(&scan);
        let memory = SkillMemory::read(config.skills_path())?;
        let catalog = Arc::new(catalog.following(&memory.catalog(), false));
        let (gateway, stored) = upstreams::open_aside(config).await?;
        let sources = Sources::prepare(
            config,
            &catalog,
            app,
            gateway,
            Vec::new(),
            results::surveyed(config),
        )?;
        let (offer, lost) = offering::offer(config, &sources, &catalog);
        let policy = policy::policy(config, &catalog, &offer)?;
        Ok(Self {
            catalog,
            offer: Arc::new(offer),
            policy,
            sources,
            skills_dir: scan.root().to_owned(),
            skill_problems,
            lost,
            _stored: stored,
            _aside: aside,
        })
    }

    pub(super) async fn close(self) {
        self.sources.close().await;
    }
}

/// Complete offer to `client`, or to any client, without serving it.
///
/// # Errors
///
/// When the application cannot be loaded, or the configuration of its tools or rules cannot be used.
pub fn survey(loaded: &Loaded, client: Option<&str>) -> Result<Survey, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let config = &loaded.config;
    runtime.block_on(async {
        let mut bench = Bench::prepare(config).await?;
        let unheeded = loaded.unheeded(&application::governed_elsewhere(bench.sources.app()));
        let lost = std::mem::take(&mut bench.lost);
        let filters =
            offering::filters(config, &bench.catalog, &bench.offer, &bench.sources, &lost);
        let on_offer = offering::on_offer(
            &bench.offer,
            &bench.catalog,
            &bench.sources,
            &filters,
            &lost,
        );
        let Bench {
            catalog,
            offer,
            policy,
            ..
        } = &bench;
        let is_strict = config.governance.unmatched_rules == UnmatchedRules::Error;
        let problems = Problems {
            skills: told(&bench.skill_problems, is_strict),
            tools: standing::problems(config, catalog, offer.tools(), lost),
            rules: [unheeded, loaded.unmatched(&on_offer)].concat(),
            databases: bench.sources.broken().collect(),
        };
        let principal = client.unwrap_or_default();
        let default_timeout = Duration::from_secs(config.tools.default_timeout_seconds);
        let tools: Vec<_> = offer
            .tools()
            .iter()
            .filter(|tool| {
                client.is_none() || policy.visible(principal, &tool_capability(tool.name()))
            })
            .map(|tool| tool_row(offer, policy, catalog, default_timeout, principal, tool))
            .collect();
        let survey = Survey {
            views: views(config, &tools, client),
            tools,
            skills: catalog.len(),
            skills_dir: bench.skills_dir.clone(),
            problems,
        };
        bench.close().await;
        Ok(survey)
    })
}

/// A tool on offer, as the rules have it for `principal`.
pub(super) fn tool_row(
    offer: &Offer,
    policy: &Policy,
    catalog: &SkillCatalog,
    default_timeout: Duration,
    principal: &str,
    tool: &Tool,
) -> ToolRow {
    let capability = tool_capability(tool.name());
    let hints = policy.hints(principal, &capability, Kind::Tool);
    let skill = catalog.by_name(tool.own_name());
    let risk = mcp_server::risk_level(tool, skill.map(|it| &**it));
    let description = match tool.description() {
        "" => skill.map_or("", |skill| skill.description()),
        description => description,
    };
    let model_text = offer.model_text(tool.name()).unwrap_or_default();
    ToolRow {
        name: tool.name().to_owned(),
        title: tool.title().map(str::to_owned),
        kind: tool.kind().as_str().to_owned(),
        estimated_tokens: estimated_tokens(&model_text),
        description: description.to_owned(),
        held: policy.held(&capability).map(str::to_owned),
        risk: match risk {
            Some(risk) => Some(risk.as_str().to_owned()),
            None => {
                Some(hints.risk.names().collect::<Vec<_>>().join(", ")).filter(|it| !it.is_empty())
            }
        },
        requires_confirmation: hints.confirmation.is_some(),
        confirmation: hints.confirmation.map(|who| who.as_str().to_owned()),
        estimated_cost: Some(hints.estimated_cost).filter(|&cost| cost != Micros::ZERO),
        max_calls_per_minute: hints.max_calls_per_minute,
        max_calls_per_day: hints.max_calls_per_day,
        timeout_seconds: tool.timeout().unwrap_or(default_timeout).as_secs(),
        input_schema: (**tool.input_schema()).clone(),
    }
}

/// The cost of the direct view and of the search view: of that which is configured, or of one without direct tools.
fn views(config: &Config, tools: &[ToolRow], client: Option<&str>) -> Vec<ViewRow> {
    let configured = offering::search_view(config);
    let has_search = configured.as_ref().zip(client);
    let has_search = has_search.is_some_and(|(view, it)| view.is_for(&Principal::new(it)));
    let for_all = || {
        let options = SearchOptions {
            clients: vec!["*".to_owned()],
            ..SearchOptions::default()
        };
        SearchView::new(&options).ok().flatten().map(Arc::new)
    };
    let direct = tools.iter().map(|it| it.estimated_tokens);
    let mut views = vec![ViewRow {
        view: "direct",
        tools: tools.len(),
        estimated_tokens: direct.sum(),
        in_force: client.map(|_| !has_search),
    }];
    if let Some(view) = configured.or_else(for_all) {
        let own = view.model_texts().map(|text| estimated_tokens(&text));
        let besides = tools.iter().filter(|it| view.lists(&it.name));
        let besides = besides.map(|it| it.estimated_tokens);
        let listed: Vec<usize> = own.chain(besides).collect();
        views.push(ViewRow {
            view: "search",
            tools: listed.len(),
            estimated_tokens: listed.iter().sum(),
            in_force: client.map(|_| has_search),
        });
    }
    views
}

/// Texts of the problems of skills. `is_strict` makes errors of unknown keys.
pub(super) fn told(problems: &[adapter_skills::Problem], is_strict: bool) -> Vec<Problem> {
    let told = problems.iter().map(|problem| {
        let is_unknown = matches!(
            &problem.kind,
            adapter_skills::ProblemKind::Field(field) if field.is_unknown()
        );
        let told = Problem::warning(Origin::Default, problem.to_string()).hint(problem.hint());
        match is_strict && is_unknown {
            true => told.as_error(),
            false => told,
        }
    });
    told.collect()
}

/// The resources that `client` may see and `filter` lets through, all of them without either; and the
/// problems of skills, which may be missing for them.
///
/// # Errors
///
/// When the skills cannot be read, or the rules cannot be used.
pub fn resources_list(
    config: Config,
    client: Option<String>,
    filter: ResourceFilter,
) -> Result<(Vec<ResourceRow>, Vec<Problem>), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let bench = Bench::prepare(&config).await?;
        let (category, tag) = (filter.category.as_deref(), filter.tag.as_deref());
        let entries = bench.offer.resources().entries().iter();
        let rows = entries
            .filter(|it| category.is_none_or(|category| it.category == category))
            .filter(|it| tag.is_none_or(|tag| it.tags.iter().any(|own| own == tag)))
            .filter(|it| {
                client.as_deref().is_none_or(|client| {
                    let governed = it.governed_by.as_ref().unwrap_or(&it.resource.uri);
                    let capability = resource_capability(governed);
                    bench.policy.visible(client, &capability)
                })
            })
            .map(|it| ResourceRow {
                uri: it.resource.uri.clone(),
                name: it.resource.name.clone(),
                description: it.resource.description.clone().unwrap_or_default(),
                mime_type: it.resource.mime_type.clone().unwrap_or_default(),
                size: it.resource.size,
                last_modified: it.resource.last_modified.clone().unwrap_or_default(),
                tags: it.tags.clone(),
            });
        let rows = rows.collect();
        let problems = told(&bench.skill_problems, false);
        bench.close().await;
        Ok((rows, problems))
    })
}
