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

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::Serialized;

use self::document::Document;
use self::layer::Origins;

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
    /// What is odd about it; severity is always [`Severity::Warning`].
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

/// The same for a command that needs no more than `needs`: what is wrong elsewhere is a warning, and
/// has its default.
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
    let mut problems = Vec::new();
    if directory.to_str().is_none() {
        // Paths are text from here on.
        let message = format!(
            "the current directory `{}` is not Unicode",
            directory.display()
        );
        problems.push(Problem::error(Origin::Default, message));
        return Err(Rejected { problems });
    }

    let keys = shape::root();
    let name = overrides
        .config
        .as_deref()
        .unwrap_or(Path::new(DEFAULT_FILE));
    let path = coerce::absolute(directory, name);
    let base = path.parent().unwrap_or(directory);
    let text = read(name, &path, overrides.config.is_some(), &mut problems);
    let document = text
        .as_ref()
        .and_then(|text| Document::parse(&name.display().to_string(), text, &mut problems));

    let from_file = document
        .as_ref()
        .map(|document| file::layer(document, keys, environment, base, &mut problems));
    let secret_lines = from_file
        .as_ref()
        .map(|layer| layer.secret_lines.clone())
        .unwrap_or_default();
    let from_environment = environment::layer(environment, keys, directory, &mut problems);
    let from_command_line = overrides::layer(overrides, keys, directory, &mut problems);

    let mut figment = Figment::from(Serialized::defaults(Config::default()));
    let mut origins = Origins::new();
    for layer in from_file
        .into_iter()
        .chain([from_environment, from_command_line])
    {
        origins.extend(layer.origins.clone());
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
                let file = text.is_some().then_some(path);
                return Ok(Loaded {
                    config,
                    warnings: problems,
                    file,
                    says_nothing: document.is_none_or(|document| document.is_empty()),
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
