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

mod alerts;
mod application;
mod check;
mod coerce;
mod commands;
mod document;
mod editor;
mod environment;
mod file;
mod governance;
mod host;
mod identity;
mod interpolate;
mod layer;
mod limits;
mod live;
mod model;
mod nearest;
mod needs;
mod overrides;
mod owlclaw;
mod problem;
mod record;
mod reference;
mod rules_check;
mod secret;
mod services;
mod shape;
mod show;
mod shutdown;
mod summary;
mod telemetry;
mod tls;
mod unmatched;
mod websocket;

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::Serialized;

use self::document::Document;
use self::layer::{Layer, Origins};

pub use self::alerts::{AlertEvent, Alerts, Webhook};
pub use self::application::{States, WorkerStart, Workers};
pub use self::commands::{Command, Output, Stdin, Words};
pub use self::editor::schema;
pub use self::environment::Environment;
pub use self::governance::{Approvals, Governance, Idempotency, MIN_TOKEN_CHARS, UnmatchedRules};
pub use self::identity::{
    Algorithm, ApiKeys, ClientCertificates, Identity, Jwt, NameIn, StdioIdentity,
};
pub use self::limits::Limits;
pub use self::live::{Change, Changes, Source};
pub use self::model::{
    BrokenSkill, Config, Cors, ErrorStyle, Http, IncludeSkill, LogFormat, LogLevel, LogOutput,
    LogRequests, Logging, Resources, Tools, Transport,
};
pub use self::nearest::{nearest, nearest_of};
pub use self::needs::Needs;
pub use self::overrides::Overrides;
pub use self::owlclaw::Switches;
pub use self::problem::printable;
pub use self::problem::{Origin, Position, Problem, Severity};
pub use self::record::{Checkpoint, Detectors, Durability, Ledger, Redaction};
pub use self::reference::reference;
pub use self::secret::Secret;
pub use self::services::{Mode, OpenApi, Operations, RetryRule, Services};
pub use self::show::Setting;
pub use self::shutdown::Shutdown;
pub use self::telemetry::{Capture, Otlp, Telemetry};
pub use self::tls::{ForwardedHeader, Tls};
pub use self::unmatched::{OnOffer, UnmatchedFilter};
pub use self::websocket::WebSocket;

/// The file that is read if none is named and it exists.
pub const DEFAULT_FILE: &str = "mcp-server.yaml";

/// A file to begin with: what most servers set, and in comments what else they may.
pub const STARTER: &str = include_str!("starter.yaml");

/// A longer file is refused: it is not a configuration.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

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
}

impl Loaded {
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
    check_directory(directory)?;
    let mut problems = Vec::new();
    let keys = shape::root();
    let name = overrides
        .config
        .as_deref()
        .unwrap_or(Path::new(DEFAULT_FILE));
    let path = coerce::absolute(directory, name);
    let base = path.parent().unwrap_or(directory);
    let text = read(name, &path, overrides.config.is_some(), &mut problems);
    let texts: Vec<_> = text
        .into_iter()
        .map(|text| Text {
            name: name.display().to_string(),
            text,
        })
        .collect();
    let file = (!texts.is_empty()).then(|| path.clone());
    let place = Surroundings {
        environment,
        directory,
        base,
    };
    let mut files = Files::read(&texts, &place, &mut problems);
    files.layers.push(environment::layer(
        environment,
        keys,
        directory,
        &mut problems,
    ));
    files
        .layers
        .push(overrides::layer(overrides, keys, directory, &mut problems));
    let mut loaded = merge(needs, files, &place, problems)?;
    loaded.file = file;
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
    let place = Surroundings {
        environment,
        directory,
        base: directory,
    };
    let files = Files::read(texts, &place, &mut problems);
    merge(Needs::Everything, files, &place, problems)
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
}

/// Layers of files.
struct Files {
    layers: Vec<Layer>,
    says_nothing: bool,
}

impl Files {
    fn read(texts: &[Text], place: &Surroundings<'_>, problems: &mut Vec<Problem>) -> Self {
        let mut files = Self {
            layers: Vec::new(),
            says_nothing: true,
        };
        for Text { name, text } in texts {
            let Some(document) = Document::parse(name, text, problems) else {
                continue;
            };
            files.says_nothing &= document.is_empty();
            files.layers.push(file::layer(
                &document,
                shape::root(),
                place.environment,
                place.base,
                problems,
            ));
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
    } = *place;
    let mut figment = Figment::from(Serialized::defaults(Config::default()));
    let mut origins = Origins::new();
    let mut secret_lines = BTreeSet::new();
    for layer in files.layers {
        origins.extend(layer.origins.clone());
        secret_lines.extend(layer.secret_lines.iter().copied());
        figment = figment.merge(layer);
    }
    match figment.extract::<Config>() {
        Ok(mut config) => {
            let paths = [&mut config.ledger.path].into_iter();
            let paths = paths.chain(&mut config.resources.skills_dir);
            for path in paths.chain(&mut config.tasks.path) {
                *path = coerce::absolute(base, &path);
            }
            if let Some(keys) = &mut config.identity.api_keys {
                keys.file = coerce::absolute(base, &keys.file);
            }
            for command in config.commands.values_mut() {
                command.begin_at(base);
            }
            config.workers.begin_at(base, config.app.as_deref());
            config.resources.base = base.to_owned();
            config.switches =
                owlclaw::switches(&config, environment, directory, &origins, &mut problems);
            check::check(&config, &origins, &mut problems);
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
                });
            }
        }
        // Every value was checked on its way here, so this is a fault of ours; refuse all the same.
        Err(error) => problems.push(Problem::error(Origin::Default, error.to_string())),
    }
    Err(Rejected { problems })
}

/// `None` if there is no file to read, or if it cannot be read and `problems` says why.
fn read(name: &Path, path: &Path, is_named: bool, problems: &mut Vec<Problem>) -> Option<String> {
    let origin = || {
        let file = name.display().to_string();
        Origin::File(Position {
            file,
            line: 0,
            column: 0,
            snippet: None,
        })
    };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    match file.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_named => return None,
        Err(error) => {
            let message = format!("the configuration file cannot be read: {error}");
            let hint = match error.kind() {
                io::ErrorKind::NotFound => {
                    let name = name.display();
                    Some(format!(
                        "name the file that is there, or write one: owlclaw-mcp config init --output {name}"
                    ))
                }
                io::ErrorKind::PermissionDenied => {
                    Some("let the user who runs this read it and its directory".to_owned())
                }
                _ => None,
            };
            problems.push(Problem::error(origin(), message).hint_if(hint));
            return None;
        }
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!("the configuration file is longer than {MAX_FILE_BYTES} bytes");
        problems.push(Problem::error(origin(), message));
        return None;
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
            let message = format!("the configuration file is not UTF-8: see line {line}");
            problems.push(Problem::error(origin(), message));
            None
        }
    }
}
