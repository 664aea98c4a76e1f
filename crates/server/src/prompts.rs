//! Prompts of a directory, as a source beside the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use adapter_prompts::{
    Broken, PromptCatalog, PromptOptions, PromptVersion, PromptWatch, RenderError, Role,
    WatchOptions,
};
use adapter_skills::SkillCatalog;
use config::{Config, Origin, Problem};
use futures_util::future::{BoxFuture, ready};
use mcp_protocol::model::{
    self, Complete, CompletionReference, Content, GetPromptResult, Prompt, PromptArgument,
    PromptMessage, ResultMeta,
};
use mcp_server::{
    ComponentState, PROMPT_VERSION, PromptCx, PromptFailure, Prompts, SourceTools, ToolSource,
};
use tokio::sync::watch;

use crate::Failure;

/// Name of the component of `/health` for prompts in files.
pub(super) const COMPONENT: &str = "prompts";

/// `/health` shows at most so many problems.
const MAX_SHOWN: usize = 5;

/// The options that a configuration has for the directory of prompts, if it has one.
///
/// # Errors
///
/// When the directory cannot be opened: its prompts would silently be missing.
pub fn prompt_options(config: &Config) -> Result<Option<PromptOptions>, Failure> {
    let Some(directory) = &config.prompts.dir else {
        return Ok(None);
    };
    if let Err(error) = std::fs::read_dir(directory) {
        let place = directory.display();
        return Err(format!("prompts.dir: {place} cannot be read as a directory ({error})").into());
    }
    let mut options = PromptOptions::new(directory);
    options.broken = match config.prompts.broken {
        config::BrokenPrompt::Refuse => Broken::Refuse,
        config::BrokenPrompt::LastGood => Broken::LastGood,
    };
    Ok(Some(options))
}

/// Problems of prompts, for people who maintain them.
pub fn prompt_problems(catalog: &PromptCatalog) -> Vec<Problem> {
    let problems = catalog.problems().iter();
    let problems = problems.map(|problem| {
        Problem::warning(Origin::Default, problem.to_string()).hint(problem.hint.clone())
    });
    problems.collect()
}

/// The directory of prompts.
#[derive(Debug)]
pub(super) enum PromptFiles {
    Watched(PromptWatch),
    Once(Arc<PromptCatalog>),
}

impl PromptFiles {
    /// The prompts that the configuration names a directory for; none without one.
    pub(super) fn open(config: &Config) -> Result<Option<Self>, Failure> {
        let Some(options) = prompt_options(config)? else {
            return Ok(None);
        };
        Ok(Some(match config.prompts.watch {
            true => Self::Watched(PromptWatch::start(options, WatchOptions::default())?),
            false => Self::Once(Arc::new(PromptCatalog::scan(&options))),
        }))
    }

    fn catalog(&self) -> Arc<PromptCatalog> {
        match self {
            Self::Watched(watch) => watch.catalog(),
            Self::Once(catalog) => Arc::clone(catalog),
        }
    }
}

/// Versions in force of all prompts that can be used, with the digests of their texts.
pub(super) type InForce = BTreeMap<String, (String, [u8; 32])>;

impl PromptFiles {
    /// Versions in force.
    pub(super) fn in_force(&self) -> InForce {
        let catalog = self.catalog();
        let usable = catalog.iter().filter_map(|entry| {
            let version = entry.current().ok()?;
            let in_force = (version.version.clone(), version.digest);
            Some((entry.name().to_owned(), in_force))
        });
        usable.collect()
    }
}

impl ToolSource for PromptFiles {
    fn tools(&self, _: &SkillCatalog) -> SourceTools {
        SourceTools::default()
    }

    fn prompts(&self) -> Option<Arc<dyn Prompts>> {
        Some(Arc::new(FilePrompts::new(self.catalog())))
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        match self {
            Self::Watched(watch) => Some(watch.changes()),
            Self::Once(_) => None,
        }
    }

    /// Prompts work as long as each can be used; what else is wrong with files is in the detail.
    fn health(&self) -> Option<ComponentState> {
        let catalog = self.catalog();
        let stale = catalog.iter().filter_map(|entry| {
            let problem = entry.stale()?;
            let version = entry.current().map(|it| it.version.clone());
            let version = version.unwrap_or_default();
            let name = entry.name();
            Some(format!("`{name}` stays at version {version}: {problem}"))
        });
        let all = catalog.problems().iter();
        let all = all.map(|problem| format!("{problem} ({})", problem.hint));
        let mut shown: Vec<String> = stale.chain(all).collect();
        let more = shown.len().saturating_sub(MAX_SHOWN);
        shown.truncate(MAX_SHOWN);
        if 0 < more {
            shown.push(format!("and {more} more"));
        }
        Some(ComponentState {
            name: COMPONENT,
            ok: catalog.held().next().is_none() && catalog.iter().all(|it| it.stale().is_none()),
            detail: (!shown.is_empty()).then(|| shown.join("; ")),
        })
    }
}

/// The prompts of a catalogue.
#[derive(Debug)]
struct FilePrompts {
    catalog: Arc<PromptCatalog>,
    entries: Vec<Prompt>,
}

impl FilePrompts {
    fn new(catalog: Arc<PromptCatalog>) -> Self {
        let entries = catalog.iter().map(|entry| {
            let versions = entry.versions().map(|(version, _)| version);
            let versions: Vec<_> = versions.collect();
            match entry.current() {
                Ok(version) => listed(version, &versions),
                Err(_) => Prompt {
                    name: entry.name().to_owned(),
                    description: Some(
                        "This prompt cannot be used until an operator has mended its file."
                            .to_owned(),
                    ),
                    ..Prompt::default()
                },
            }
        });
        Self {
            entries: entries.collect(),
            catalog,
        }
    }

    fn filled_in(&self, name: &str, arguments: &BTreeMap<String, String>) -> Filled {
        let version = match self.catalog.version(name) {
            Some(Ok(version)) => version,
            Some(Err(problem)) => return Err(PromptFailure::Broken(Box::new(problem.clone()))),
            None => {
                let entry = self.catalog.entry_of(name);
                let known = entry.into_iter().flat_map(|it| it.versions());
                let known: Vec<_> = known.map(|(version, _)| format!("`{version}`")).collect();
                let known = known.join(", ");
                let why = format!("there is no such version of the prompt; it has {known}");
                return Err(PromptFailure::Arguments(why));
            }
        };
        let messages = version.render(arguments).map_err(|error| match error {
            RenderError::Arguments(_) => PromptFailure::Arguments(error.to_string()),
            RenderError::Template(_) => PromptFailure::Broken(Box::new(error)),
        })?;
        let messages = messages.into_iter().map(|message| PromptMessage {
            role: match message.role {
                Role::User => model::Role::User,
                Role::Assistant => model::Role::Assistant,
            },
            content: Content::text(message.text),
        });
        let mut meta = ResultMeta::default();
        meta.insert(PROMPT_VERSION, &version.version);
        Ok(GetPromptResult {
            description: version.description.clone(),
            messages: messages.collect(),
            meta,
        })
    }
}

type Filled = Result<GetPromptResult, PromptFailure>;

fn listed(version: &PromptVersion, versions: &[&str]) -> Prompt {
    let arguments = version.arguments.iter().map(|argument| PromptArgument {
        name: argument.name.clone(),
        title: argument.title.clone(),
        description: Some(argument.described()).filter(|it| !it.is_empty()),
        required: argument.required,
    });
    let mut meta = ResultMeta::default();
    meta.insert(PROMPT_VERSION, &version.version);
    meta.insert("io.owlclaw/versions", versions);
    if let Some(category) = &version.category {
        meta.insert("io.owlclaw/category", category);
    }
    if !version.tags.is_empty() {
        meta.insert("io.owlclaw/tags", &version.tags);
    }
    Prompt {
        name: version.name.clone(),
        title: version.title.clone(),
        description: version.description.clone(),
        arguments: arguments.collect(),
        meta,
        ..Prompt::default()
    }
}

impl Prompts for FilePrompts {
    fn entries(&self) -> &[Prompt] {
        &self.entries
    }

    fn get(&self, cx: PromptCx) -> BoxFuture<'_, Filled> {
        Box::pin(ready(self.filled_in(&cx.name, &cx.arguments)))
    }

    fn complete(&self, request: &Complete) -> Option<Vec<String>> {
        let CompletionReference::Prompt { name } = &request.reference else {
            return None;
        };
        let version = self.catalog.version(name)?.ok()?;
        let suggested = version.suggestions(&request.argument, &request.value);
        // An argument that does not exist has nothing to suggest.
        Some(suggested.unwrap_or_default())
    }

    fn governed_by(&self, name: &str) -> Option<String> {
        self.catalog.entry_of(name).map(|it| it.name().to_owned())
    }

    fn definition(&self, name: &str) -> Option<[u8; 32]> {
        let version = self.catalog.version(name)?.ok()?;
        Some(version.digest)
    }

    fn place(&self, name: &str) -> Option<String> {
        let entry = self.catalog.entry_of(name)?;
        Some(entry.place().display().to_string())
    }

    fn held(&self) -> Vec<(String, String)> {
        let held = self.catalog.held();
        held.map(|(name, problem)| (name.to_owned(), format!("{problem} ({})", problem.hint)))
            .collect()
    }

    fn is_announced(&self) -> bool {
        true
    }
}
