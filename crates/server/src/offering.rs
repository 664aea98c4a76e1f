//! The offer of a server: tools of its sources, resources and skills; and the skills' directory.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use adapter_skills::{ScanOptions, SkillCatalog};
use adapter_tools::{Tool, ToolSet};
use config::{Config, OnOffer, UnmatchedFilter, pattern_meets_template};
use governance::pattern_matches;
use mcp_server::{
    CombinedResources, IncludeSkill, NotOffered, Offer, ResourceEntry, Resources, SearchOptions,
    SearchView, SkillResources, SourceTools, prompt_capability, resource_capability,
    tool_capability,
};
use resources::DATABASE_SCHEME;
use serde_json::Value;

use crate::sources::Sources;
use crate::{Failure, application};

/// The directory with the skills: the configured one, or the one that the application has `mounted`.
///
/// # Errors
///
/// When the configured directory and the mounted one differ, or the one that is named cannot be read: rules
/// of skills would silently not be in force.
fn skills_dir(config: &Config, mounted: Option<&Path>) -> Result<PathBuf, Failure> {
    let Some(configured) = &config.resources.skills_dir else {
        let Some(mounted) = mounted else {
            return Ok(config.resources.default_dir());
        };
        resolved(mounted).map_err(|why| {
            format!(
                "app.mount_skills: {why}, so that no rule in a SKILL.md would be in force; make it, or \
                 correct the path in the application"
            )
        })?;
        return Ok(mounted.to_owned());
    };
    let place = configured.display();
    let resolved = resolved(configured).map_err(|why| {
        format!(
            "resources.skills_dir: {why}, so that no rule in a SKILL.md would be in force; make it, or \
             correct the key (--skills-dir)"
        )
    })?;
    match mounted.and_then(|mounted| mounted.canonicalize().ok()) {
        Some(mounted) if mounted != resolved => Err(format!(
            "resources.skills_dir is {place}, and the application mounts {}: the rules in one of the \
             two would not be in force; leave the key out (--skills-dir), or mount the same directory",
            mounted.display()
        )
        .into()),
        _ => Ok(configured.clone()),
    }
}

/// The path of a directory without links; an error if it is none, or cannot be read.
fn resolved(directory: &Path) -> Result<PathBuf, String> {
    let place = directory.display();
    let resolved = directory.canonicalize();
    let resolved = resolved.and_then(|it| std::fs::read_dir(&it).map(|_| it));
    resolved.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no directory {place}"),
        _ => format!("{place} cannot be read as a directory ({error})"),
    })
}

pub(super) fn scan_options(
    config: &Config,
    mounted: Option<&Path>,
) -> Result<ScanOptions, Failure> {
    let mut options = ScanOptions::new(skills_dir(config, mounted)?);
    options.host.python = Some(application::as_interpreter(config));
    options.host.configuration = config.switches.settings.clone();
    let options = match config.resources.skills_dir.is_some() || mounted.is_some() {
        true => options.required(),
        false => options,
    };
    match &config.resources.root_category {
        Some(category) => options
            .with_flat_category(category)
            .map_err(|reason| format!("resources.root_category {reason}").into()),
        None => Ok(options),
    }
}

/// Names of the tools, resources and prompts that rules can match, and filters that match nothing.
pub(super) fn on_offer(
    offer: &Offer,
    catalog: &SkillCatalog,
    sources: &Sources,
    filters: &[UnmatchedFilter],
    lost: &[NotOffered],
) -> OnOffer {
    let lost = lost.iter().map(|it| it.tool.as_str());
    let names: BTreeSet<&str> = offer
        .tools()
        .iter()
        .map(Tool::own_name)
        .chain(lost)
        .collect();
    let idle = catalog.without_tool(|name| names.contains(name));
    let idle_skills = idle
        .map(|skill| (skill.path().display().to_string(), skill.name().to_owned()))
        .collect();
    let tools = offer.tools().iter();
    let resources = offer.resources().entries().iter();
    let resources = resources.map(|it| governed(it).to_owned());
    let (listed, templates) = templates(offer);
    OnOffer {
        tools: tools
            .map(|tool| (tool.name().to_owned(), tool.own_name().to_owned()))
            .collect(),
        arguments: offer
            .tools()
            .iter()
            .filter_map(|tool| Some((tool.name().to_owned(), arguments(tool.input_schema())?)))
            .collect(),
        schemas: {
            let tools = offer.tools().iter();
            let schemas = tools.map(|tool| {
                let schemas = (
                    Arc::clone(tool.input_schema()),
                    tool.output_schema().cloned(),
                );
                (tool.name().to_owned(), schemas)
            });
            schemas.collect()
        },
        resources: resources.chain(listed).collect(),
        templates,
        prompts: {
            let prompts = offer.prompts().entries().iter();
            prompts.map(|it| it.name.clone()).collect()
        },
        unmatched_filters: {
            let now = sources.unmatched_now();
            filters.iter().cloned().chain(now).collect()
        },
        idle_skills,
        unheard: sources.gateway().beginnings(false),
        overlaps: sources.gateway().overlaps(),
    }
}

/// Names of the arguments that a schema allows; `None` if it leaves any open.
fn arguments(schema: &Value) -> Option<BTreeSet<String>> {
    const OPEN: [&str; 7] = [
        "$ref",
        "allOf",
        "anyOf",
        "dependentSchemas",
        "if",
        "oneOf",
        "patternProperties",
    ];
    let more = &schema["additionalProperties"];
    let is_open = OPEN.iter().any(|key| schema.get(key).is_some());
    let is_closed = more.is_null() || *more == Value::Bool(false);
    let properties = schema["properties"].as_object();
    properties
        .filter(|_| is_closed && !is_open)
        .map(|it| it.keys().cloned().collect())
}

/// Templates of skills and of tables, all of which are in the list, so that an address which is not there is misspelt; and
/// templates of addresses that no list has one by one.
fn templates(offer: &Offer) -> (Vec<String>, Vec<String>) {
    let templates = offer.resources().templates().iter();
    let templates = templates.map(|it| it.uri_template.clone());
    let entries = offer.resources().entries().iter().map(governed);
    let databases: BTreeSet<&str> = entries
        .clone()
        .filter_map(|it| it.strip_prefix(DATABASE_SCHEME)?.strip_suffix("/schema"))
        .collect();
    let table = |it: &str| {
        let (database, table) = it.strip_prefix(DATABASE_SCHEME)?.split_once("/tables/")?;
        databases.contains(database).then(|| table.to_owned())
    };
    let (listed, mut families): (Vec<_>, Vec<_>) =
        templates.partition(|it| it.starts_with("skill://") || table(it).is_some());
    // All tables are in the list, and rows are those of one.
    let tables = entries.filter(|it| table(it).is_some());
    families.extend(tables.map(|it| format!("{it}/{{key}}")));
    (listed, families)
}

/// Address by which rules know a resource.
fn governed(entry: &ResourceEntry) -> &str {
    entry.governed_by.as_ref().unwrap_or(&entry.resource.uri)
}

/// The tools, resources and prompts on offer, as rules know them, each with what tells another version of its arguments
/// apart.
pub(super) fn capabilities(offer: &Offer) -> BTreeMap<String, u64> {
    let tools = offer.tools().iter();
    let tools = tools.map(|tool| {
        let mut hasher = DefaultHasher::new();
        tool.input_schema().to_string().hash(&mut hasher);
        (tool_capability(tool.name()), hasher.finish())
    });
    let resources = offer.resources().entries().iter();
    let resources = resources.map(|it| (resource_capability(governed(it)), 0));
    let prompts = offer.prompts().entries().iter();
    let prompts = prompts.map(|it| (prompt_capability(&it.name), 0));
    tools.chain(resources).chain(prompts).collect()
}

/// Patterns of services and switches of the application that match no tool.
pub(super) fn filters(
    config: &Config,
    catalog: &SkillCatalog,
    offer: &Offer,
    sources: &Sources,
    lost: &[NotOffered],
) -> Vec<UnmatchedFilter> {
    let mut filters = sources.unmatched().to_vec();
    let tools = offer.tools().iter().map(Tool::own_name);
    let skills = catalog.iter().map(|skill| skill.name());
    let lost = lost.iter().map(|it| it.tool.as_str());
    let names: BTreeSet<&str> = tools.chain(skills).chain(lost).collect();
    let off = config.switches.off.iter();
    let weights = config.switches.weights.iter();
    let weights = weights.map(|(name, (_, place))| (name, place));
    for (name, place) in off.chain(weights) {
        if !names.contains(name.as_str()) {
            filters.push(UnmatchedFilter {
                key: place.clone(),
                pattern: name.clone(),
                names: names.iter().map(|&name| name.to_owned()).collect(),
            });
        }
    }
    let unheard = sources.gateway().beginnings(false);
    let resources = offer.resources().entries().iter();
    let resources = resources.map(|it| it.governed_by.as_ref().unwrap_or(&it.resource.uri).clone());
    let resources: Vec<String> = resources.collect();
    let prompts = offer.prompts().entries().iter();
    let prompts: Vec<String> = prompts.map(|it| it.name.clone()).collect();
    let (_, families) = templates(offer);
    for (name, filter) in &config.filters {
        for (kind, patterns, names, families) in [
            ("resources", &filter.resources, &resources, &families[..]),
            ("prompts", &filter.prompts, &prompts, &[]),
        ] {
            let is_heard =
                |it: &&String| !unheard.iter().any(|beginning| it.starts_with(beginning));
            for pattern in patterns.iter().filter(is_heard) {
                let mut templates = families.iter();
                if !names.iter().any(|it| pattern_matches(pattern, it))
                    && !templates.any(|it| pattern_meets_template(pattern, it))
                {
                    filters.push(UnmatchedFilter {
                        key: format!("filters.{name}.{kind}"),
                        pattern: pattern.clone(),
                        names: names.iter().chain(families).cloned().collect(),
                    });
                }
            }
        }
        for pattern in &filter.tools {
            let is_unheard = unheard.iter().any(|it| pattern.starts_with(it));
            let mut offered = offer.tools().iter().map(Tool::name);
            if !is_unheard && !offered.any(|it| pattern_matches(pattern, it)) {
                filters.push(UnmatchedFilter {
                    key: format!("filters.{name}.tools"),
                    pattern: pattern.clone(),
                    names: offer
                        .tools()
                        .iter()
                        .map(|it| it.name().to_owned())
                        .collect(),
                });
            }
        }
    }
    let direct = config.tools.search_view.direct.iter();
    let direct = direct.map(|it| ("tools.search_view.direct".to_owned(), it));
    let limits = config.results.limits.iter().flat_map(|(name, limit)| {
        let of = move |list: &str| format!("results.limits.{name}.{list}");
        let tools = limit.tools.iter().map(move |it| (of("tools"), it));
        tools.chain(limit.except.iter().map(move |it| (of("except"), it)))
    });
    let temporal = config.tasks.temporal.iter();
    let queues = temporal.flat_map(|it| &it.queues);
    let queues = queues.flat_map(|(name, queue)| {
        let key = format!("tasks.temporal.queues.{name}.tools");
        queue.tools.iter().map(move |it| (key.clone(), it))
    });
    for (key, pattern) in direct.chain(limits).chain(queues) {
        let is_unheard = unheard.iter().any(|it| pattern.starts_with(it));
        let mut offered = offer.tools().iter().map(Tool::name);
        if !is_unheard && !offered.any(|name| pattern_matches(pattern, name)) {
            filters.push(UnmatchedFilter {
                key,
                pattern: pattern.clone(),
                names: offer
                    .tools()
                    .iter()
                    .map(|tool| tool.name().to_owned())
                    .collect(),
            });
        }
    }
    filters
}

/// The search view, if a client has it.
pub(super) fn search_view(config: &Config) -> Option<Arc<SearchView>> {
    let config::SearchView {
        clients,
        roles,
        direct,
    } = config.tools.search_view.clone();
    let options = SearchOptions {
        clients,
        roles,
        direct,
    };
    // The reader of the configuration lets no empty pattern through.
    SearchView::new(&options).ok().flatten().map(Arc::new)
}

/// The tools and skills on offer, and the tools that cannot be offered.
pub(super) fn offer(
    config: &Config,
    sources: &Sources,
    catalog: &Arc<SkillCatalog>,
) -> (Offer, Vec<NotOffered>) {
    let SourceTools { tools, mut lost } = sources.tools(catalog);
    let (tools, problems) = ToolSet::collect(tools);
    lost.extend(problems.into_iter().map(|problem| NotOffered {
        why: crate::with_causes(&problem.reason),
        place: problem.tool_source,
        tool: problem.name,
    }));
    let include = match config.tools.include_skill {
        config::IncludeSkill::Full => IncludeSkill::Full,
        config::IncludeSkill::Excerpt => IncludeSkill::Excerpt,
        config::IncludeSkill::Link => IncludeSkill::Link,
        config::IncludeSkill::None => IncludeSkill::None,
    };
    if tools.iter().next().is_none()
        && catalog.iter().next().is_none()
        && sources.prompts().is_none()
    {
        let hint = match &config.app {
            Some(_) => {
                "the application that `app` names registers nothing: register tools on the object that it \
                 names, or set `commands` or `services`, and put skills into `resources.skills_dir`"
            }
            None => {
                "set `app`, `commands` or `services`, or --app, and put skills into `resources.skills_dir`"
            }
        };
        tracing::warn!(hint, "there is nothing on offer: no tool and no skill");
    }
    let ttl_ms = config.resources.cache_ttl_seconds * 1_000;
    let skills = Arc::new(SkillResources::new(Arc::clone(catalog), ttl_ms));
    let mut resources: Vec<Arc<dyn Resources>> = vec![skills];
    resources.extend(sources.resources());
    let resources = match resources.len() {
        1 => resources.remove(0),
        _ => Arc::new(CombinedResources::new(resources)),
    };
    let timeout = Duration::from_secs(config.tools.default_timeout_seconds);
    let offer = Offer::new(tools, resources, Some(catalog), include, timeout);
    let offer = offer.with_sources(sources.all());
    let offer = match search_view(config) {
        Some(view) => offer.with_search_view(view, Some(catalog)),
        None => offer,
    };
    let offer = match sources.results() {
        Some(results) => offer.with_result_limits(Arc::clone(results)),
        None => offer,
    };
    let offer = match sources.prompts() {
        Some(prompts) => offer.with_prompts(Arc::new(prompts)),
        None => offer,
    };
    (offer, lost)
}
