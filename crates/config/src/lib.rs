//! Configuration: read once, checked as a whole, handed on as plain structs.
//!
//! Four layers, each over the one before: the defaults, the file `mcp-server.yaml`, the
//! environment, the command line. Every layer is checked value by value against the
//! `shape` that the types in `model` describe, so that all mistakes are reported at once and
//! each with its place; what is left is merged and turned into a [`Config`], and then checked for
//! what only the whole can show.
//!
//! Relative paths begin at the directory of the file that names them, defaults included; those of
//! the environment and the command line begin at the current directory.

mod check;
mod environment;
mod host;
mod layer;
mod live;
mod nearest;
mod problem;
mod reading;
mod sections;
mod show;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::Serialized;

use self::layer::{Layer, Origins};
use self::reading::document::Document;
use self::reading::layers::{Rank, Source as FileSource};

pub use self::check::family::pattern_meets_template;
pub use self::check::needs::Needs;
pub use self::check::unmatched::{OnOffer, RuleAbout, UnmatchedFilter, upstream_key};
pub use self::environment::Environment;
pub use self::environment::interpolate::{
    Reference, ReferenceSource, TemplatePart, vault_references,
};
pub use self::environment::vault_place::{KeySource, VaultPlace};
pub use self::live::{Change, Changes, Source};
pub use self::nearest::{nearest, nearest_of};
pub use self::problem::printable;
pub use self::problem::{Origin, Position, Problem, Severity};
pub use self::reading::overrides::Overrides;
pub use self::sections::alerts::{AlertEvent, Alerts, Webhook};
pub use self::sections::application::{States, Switches, WorkerStart, Workers};
pub use self::sections::commands::{Command, Output, Stdin, Words};
pub use self::sections::costs::{Costs, Langfuse, LangfuseApi};
pub use self::sections::databases::{Database, Query};
pub use self::sections::desk::{Desk, DeskRole};
pub use self::sections::files::{FileRoot, ResourceSearch};
pub use self::sections::filters::{
    FilterAction, FilterMode, FilterOn, FilterSetting, OnFilterFailure,
};
pub use self::sections::governance::{
    Approvals, Governance, Idempotency, MIN_TOKEN_CHARS, UnmatchedRules,
};
pub use self::sections::host_dialect::HostDialect;
pub use self::sections::identity::{
    Algorithm, ApiKeys, ClientCertificates, Dpop, Identity, Introspection, Jwt, NameIn,
    OpenIdClient, StdioIdentity,
};
pub use self::sections::limits::Limits;
pub use self::sections::record::{
    Archive, Checkpoint, Detectors, Durability, Ledger, Redaction, Timestamps, Verification,
    Witness,
};
pub use self::sections::registry::Registry;
pub use self::sections::results::{Host, OutputSchema, ResultLimit, Results};
pub use self::sections::secret::Secret;
pub use self::sections::service_resources::{ServiceResource, ServiceResources, ServiceVariable};
pub use self::sections::services::{Mode, OpenApi, Operations, RetryRule, Services};
pub use self::sections::shutdown::Shutdown;
pub use self::sections::telemetry::{Capture, Otlp, Telemetry};
pub use self::sections::temporal::{Queue, Temporal};
pub use self::sections::tls::{ForwardedHeader, Tls};
pub use self::sections::upstreams::{
    AssertionFor, Gateway, Isolation, RiskClass, RiskPatterns, SubjectTokenType, Texts, Trust,
    Upstream, UpstreamAuth, UpstreamCost, UpstreamCredentials, UpstreamExchange, UpstreamTransport,
    Uris,
};
pub use self::sections::vault::Vault;
pub use self::sections::websocket::WebSocket;
pub use self::sections::{
    BrokenPrompt, BrokenSkill, Config, Cors, ErrorStyle, Http, IncludeSkill, LogFormat, LogLevel,
    LogOutput, LogRequests, Logging, Prompts, Resources, SearchView, Tools, Transport,
};
pub use self::show::editor::schema;
pub use self::show::reference::reference;
pub use self::show::{Layered, Setting};

/// The file that is read if none is named and it exists.
pub const DEFAULT_FILE: &str = "mcp-server.yaml";

/// A file to begin with: what most servers set, and in comments what else they may.
pub const STARTER: &str = include_str!("starter.yaml");

/// A configuration that can be used.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration itself.
    pub config: Config,
    /// Warnings about the configuration; the severity is always [`Severity::Warning`].
    pub warnings: Vec<Problem>,
    /// The file that was read, absolute.
    pub file: Option<PathBuf>,
    /// There is no file, or nothing in it.
    says_nothing: bool,
    origins: Origins,
    /// Layers below the one in force that set a key, too, by keys; the lowest first.
    overridden: BTreeMap<String, Vec<Origin>>,
    /// Ranks of files, by their names as origins have them.
    ranks: BTreeMap<String, Rank>,
    /// The references in force, by the keys whose values they stand in.
    references: Vec<(String, Reference)>,
    /// The other files of the configuration: that of the system a domain inherits from, and that of a session, which need
    /// not be there.
    pub others: Vec<PathBuf>,
}

impl Loaded {
    /// The references in force, with the keys whose values they stand in and the sources of their values.
    pub fn references(&self) -> impl Iterator<Item = (&str, &Reference)> {
        self.references.iter().map(|(key, it)| (key.as_str(), it))
    }

    /// True if the file that was named is a system's, so that rules stand in it and not in one that it inherits from.
    pub fn has_own_rules(&self) -> bool {
        let mut ranks = self.ranks.values();
        !ranks.any(|rank| *rank == Rank::Domain)
    }

    /// True if `governance.approvals.http_token` is written out where it stands, so that the text of the rules is a
    /// secret.
    pub fn has_secret_rules(&self) -> bool {
        let token = &self.config.governance.approvals.http_token;
        token.as_ref().is_some_and(Secret::is_written_out)
    }

    /// True if the file says anything of `governance`, be it that there is nothing.
    fn governs(&self) -> bool {
        let mut origins = self.origins.iter();
        origins.any(|(key, origin)| {
            let is_rule = key == "governance" || key.starts_with("governance.");
            is_rule && matches!(origin, Origin::File(_))
        })
    }
}

/// A configuration that cannot be used, with everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the configuration has {} problems", .problems.len())]
pub struct Rejected {
    /// At least one error, and the warnings.
    pub problems: Vec<Problem>,
}

/// Reads, merges and checks all layers.
///
/// `directory` is the current directory, absolute.
///
/// # Errors
///
/// All problems together, if one of them is an error.
pub fn load(
    overrides: &Overrides,
    environment: &Environment,
    directory: &Path,
) -> Result<Loaded, Rejected> {
    load_for(Needs::Everything, overrides, environment, directory)
}

/// Loads the configuration for a command that needs only the parts in `needs`: a mistake elsewhere
/// is a warning, and the key has its default.
///
/// # Errors
///
/// All problems together, if one of them is an error that concerns what is needed.
pub fn load_for(
    needs: Needs,
    overrides: &Overrides,
    environment: &Environment,
    directory: &Path,
) -> Result<Loaded, Rejected> {
    load_as(None, needs, overrides, environment, directory)
}

/// The same with `text` in the place of what the file says, if there is one.
fn load_as(
    text: Option<&str>,
    needs: Needs,
    overrides: &Overrides,
    environment: &Environment,
    directory: &Path,
) -> Result<Loaded, Rejected> {
    check_directory(directory)?;
    let mut problems = Vec::new();
    let keys = reading::shape::root();
    let name = overrides
        .config
        .as_deref()
        .unwrap_or(Path::new(DEFAULT_FILE));
    let path = environment::absolute(directory, name);
    let base = path.parent().unwrap_or(directory);
    let text = match text {
        Some(text) => Some(text.to_owned()),
        None => reading::text(name, &path, overrides.config.is_some(), &mut problems),
    };
    let main = text.map(|text| Text {
        name: name.display().to_string(),
        text,
    });
    let file = main.is_some().then(|| path.clone());
    let sources = match main {
        Some(main) => reading::layers::sources(main, &path, &mut problems),
        None => Vec::new(),
    };
    // Paths of the whole begin where the system is.
    let base = sources.first().map_or(base, |it| it.base.as_path());
    // The vault is the system's.
    let system = sources.iter().filter(|it| it.rank == Rank::System);
    let system: Vec<_> = system.map(|it| it.text.clone()).collect();
    let environment = &with_sources(&system, environment, directory, base);
    // Its own file as well where it is not there yet: nobody else is to make one.
    let sources_read = sources
        .iter()
        .map(|it| environment::absolute(directory, &it.text.name));
    let files_read: Vec<_> = sources_read.chain([path.clone()]).collect();
    let place = Surroundings {
        environment,
        directory,
        base,
        files: &files_read,
    };
    let mut files = Files::read(&sources, &place, &mut problems);
    files.layers.push(reading::variables::layer(
        environment,
        keys,
        directory,
        &mut problems,
    ));
    files.layers.push(reading::overrides::layer(
        overrides,
        keys,
        directory,
        &mut problems,
    ));
    let mut loaded = merge(needs, files, &place, problems)?;
    loaded.file = file;
    let session = reading::layers::session_of(&path);
    let others: BTreeSet<_> = sources
        .iter()
        .map(|it| environment::absolute(directory, &it.text.name))
        // It may come to be.
        .chain(session)
        .filter(|it| Some(it) != loaded.file.as_ref())
        .collect();
    loaded.others = others.into_iter().collect();
    Ok(loaded)
}

/// A configuration, or a part of one, that is given in code: a text in the form of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Name of the text in messages about it.
    pub name: String,
    /// The text.
    pub text: String,
}

/// Checks and merges texts that take the place of a file, each over the one before.
///
/// Neither files nor `MCP_SERVER_…` variables are read; `environment` is what `${NAME}` refers to.
/// Relative paths begin at `directory`, which is absolute.
///
/// # Errors
///
/// All problems together, if one of them is an error.
pub fn load_texts(
    texts: &[Text],
    environment: &Environment,
    directory: &Path,
) -> Result<Loaded, Rejected> {
    check_directory(directory)?;
    let mut problems = Vec::new();
    let environment = &with_sources(texts, environment, directory, directory);
    let place = Surroundings {
        environment,
        directory,
        base: directory,
        files: &[],
    };
    let sources: Vec<_> = texts
        .iter()
        .map(|text| FileSource {
            text: text.clone(),
            rank: Rank::System,
            base: directory.to_owned(),
        })
        .collect();
    let files = Files::read(&sources, &place, &mut problems);
    merge(Needs::Everything, files, &place, problems)
}

/// The environment with the vault that the configuration names. It is needed before the configuration can be read as
/// a whole, so that its section is read by itself first; its mistakes are found when all of it is read.
fn with_sources(
    texts: &[Text],
    environment: &Environment,
    directory: &Path,
    base: &Path,
) -> Environment {
    let settings = vault_settings(texts, environment, directory, base);
    let place = settings.place(environment, base);
    environment.with_sources(place, settings.allow_commands)
}

fn vault_settings(
    texts: &[Text],
    environment: &Environment,
    directory: &Path,
    base: &Path,
) -> Vault {
    const SECTION: &str = "vault";
    let mut ignored = Vec::new();
    let keys = reading::shape::root();
    let keys = keys.iter().filter(|(name, _)| *name == SECTION);
    let keys = keys.map(|(name, shape)| (name.clone(), shape.clone()));
    let keys: reading::shape::Keys = keys.collect();
    let mut figment = Figment::new();
    for Text { name, text } in texts {
        if !text.contains(SECTION) {
            continue;
        }
        if let Some(document) = Document::parse(name, text, &mut ignored) {
            let layer = reading::file::layer(&document, &keys, environment, base, &mut ignored);
            figment = figment.merge(layer);
        }
    }
    let variables = reading::variables::layer(environment, &keys, directory, &mut ignored);
    let figment = figment.merge(variables);
    let mut settings: Vault = figment.extract_inner(SECTION).unwrap_or_default();
    settings.begin_at(base);
    settings
}

/// Refuses a current directory that is not Unicode: paths are text from there on.
fn check_directory(directory: &Path) -> Result<(), Rejected> {
    if directory.to_str().is_some() {
        return Ok(());
    }
    let message = format!(
        "the current directory `{}` is not Unicode",
        directory.display()
    );
    Err(Rejected {
        problems: vec![Problem::error(Origin::Default, message)],
    })
}

/// Surroundings of a configuration.
struct Surroundings<'a> {
    environment: &'a Environment,
    directory: &'a Path,
    /// Beginning of relative paths in files.
    base: &'a Path,
    /// The files, and where one would be.
    files: &'a [PathBuf],
}

/// Layers of files.
struct Files {
    layers: Vec<Layer>,
    /// Ranks of the files, by their names.
    ranks: BTreeMap<String, Rank>,
    says_nothing: bool,
}

impl Files {
    fn read(sources: &[FileSource], place: &Surroundings<'_>, problems: &mut Vec<Problem>) -> Self {
        let mut files = Self {
            layers: Vec::new(),
            ranks: BTreeMap::new(),
            says_nothing: true,
        };
        let mut below = Origins::new();
        for FileSource { text, rank, base } in sources {
            let Text { name, text } = text;
            files.ranks.insert(name.clone(), *rank);
            let Some(mut document) = Document::parse(name, text, problems) else {
                continue;
            };
            files.says_nothing &= document.is_empty();
            let unusable = reading::layers::normalize(&mut document, *rank, problems);
            let mut layer = reading::file::layer(
                &document,
                reading::shape::root(),
                place.environment,
                base,
                problems,
            );
            layer.unresolved.extend(unusable);
            reading::layers::check(*rank, &layer, &below, &files.ranks, problems);
            below.extend(layer.origins.clone());
            files.layers.push(layer);
        }
        files
    }
}

/// Merges the layers over the defaults, and checks the whole.
fn merge(
    needs: Needs,
    files: Files,
    place: &Surroundings<'_>,
    mut problems: Vec<Problem>,
) -> Result<Loaded, Rejected> {
    let Surroundings {
        environment,
        directory,
        base,
        files: files_read,
    } = *place;
    let mut figment = Figment::from(Serialized::defaults(Config::default()));
    let mut origins = Origins::new();
    let mut secret_lines = BTreeSet::new();
    let mut references: Vec<(String, Reference)> = Vec::new();
    let mut unresolved = Vec::new();
    let mut overridden: BTreeMap<String, Vec<Origin>> = BTreeMap::new();
    for layer in files.layers {
        for key in layer.origins.keys() {
            if let Some(below) = origins.get(key) {
                let below = Origin::clone(below);
                overridden.entry(key.clone()).or_default().push(below);
            }
        }
        // A layer that sets a key again does away with the references of those before.
        references.retain(|(key, _)| !layer.origins.contains_key(key));
        references.extend(layer.references.clone());
        unresolved.extend(layer.unresolved.clone());
        origins.extend(layer.origins.clone());
        secret_lines.extend(layer.secret_lines.iter().copied());
        figment = figment.merge(layer);
    }
    match figment.extract::<Config>() {
        Ok(mut config) => {
            let paths = [&mut config.ledger.path].into_iter();
            let paths = paths.chain(&mut config.resources.skills_dir);
            let paths = paths.chain(&mut config.prompts.dir);
            let paths = paths.chain(&mut config.results.directory);
            let paths = paths.chain(&mut config.gateway.directory);
            let paths = paths.chain(&mut config.registry.directory);
            for path in paths.chain(&mut config.tasks.path) {
                *path = environment::absolute(base, &path);
            }
            if let Some(temporal) = &mut config.tasks.temporal {
                let files = [&mut temporal.ca_file, &mut temporal.certificate_file];
                for path in files.into_iter().chain([&mut temporal.key_file]).flatten() {
                    *path = environment::absolute(base, &path);
                }
            }
            if let Some(keys) = &mut config.identity.api_keys {
                keys.file = environment::absolute(base, &keys.file);
            }
            for command in config.commands.values_mut() {
                command.begin_at(base);
            }
            for upstream in config.upstreams.values_mut() {
                upstream.begin_at(base);
            }
            for (name, why) in unresolved {
                if let Some(upstream) = config.upstreams.get_mut(&name) {
                    upstream.unresolved.get_or_insert(why);
                }
            }
            config.vault.begin_at(base);
            config.environment = environment.clone();
            config.workers.begin_at(base, config.app.as_deref());
            config.resources.base = base.to_owned();
            config.resources.read_from = files_read.to_owned();
            config.switches =
                check::owlclaw::switches(&config, environment, directory, &origins, &mut problems);
            sections::permission_records::take(&mut config, base, &origins, &mut problems);
            check::whole(&config, &origins, &mut problems);
            check::owlclaw_token(&config, environment, &mut problems);
            for problem in &mut problems {
                needs.soften(problem);
                problem.hide_lines(&secret_lines);
            }
            if problems
                .iter()
                .all(|problem| problem.severity == Severity::Warning)
            {
                return Ok(Loaded {
                    config,
                    warnings: problems,
                    file: None,
                    says_nothing: files.says_nothing,
                    origins,
                    overridden,
                    ranks: files.ranks,
                    references,
                    others: Vec::new(),
                });
            }
        }
        // Every value was checked on its way here, so this is a fault of ours; refuse all the same.
        Err(error) => problems.push(Problem::error(Origin::Default, error.to_string())),
    }
    Err(Rejected { problems })
}
