//! Servers from parts that are given in code.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use config::{Environment, Loaded, Overrides, Rejected, Source, Text, Transport};
use mcp_protocol::model::Implementation;
use mcp_server::{FilterRule, ToolSource};
use serde_json::{Map, Value, json};

use crate::build::Server;
use crate::commands::GUARD;
use crate::in_code::InCode;
use crate::logging::{LevelHandle, Log};
use crate::stdio::tell_client;
use crate::{Beside, Failure, lifecycle::Lifecycle, serve, with_causes};

/// Name of settings in messages about them.
const SETTINGS: &str = "the settings in code";
/// Name of the values that the methods of [`Builder`] have set.
const VALUES: &str = "the values in code";

/// Assembles a server from code. Made by [`Server::builder`](crate::Server::builder).
///
/// What is not set has the default of the configuration file, and every setting is checked as there:
/// the server is the one that the program `owlclaw-mcp` would run with these settings, with tools that
/// are given in code besides. So compared headers, budgets that outlive a restart, the key of redaction,
/// the order of the end, `/health` and `/metrics` are as in the program. Neither a file nor
/// `MCP_SERVER_…` variables are read.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is run"]
pub struct Builder {
    parts: InCode,
    beside: Option<Arc<dyn Beside>>,
    texts: Vec<Text>,
    values: Map<String, Value>,
    environment: Environment,
    directory: Option<PathBuf>,
    /// Values that no setting can have.
    wrong: Vec<String>,
}

impl Server {
    /// Assembles a server of this name and version from code.
    pub fn builder(name: &str, version: &str) -> Builder {
        Builder::new(name, version)
    }
}

impl Builder {
    fn new(name: &str, version: &str) -> Self {
        let parts = InCode::default();
        Self {
            parts: InCode {
                info: Implementation {
                    name: name.to_owned(),
                    version: version.to_owned(),
                    ..Implementation::default()
                },
                ..parts
            },
            beside: None,
            texts: Vec::new(),
            values: Map::new(),
            environment: Environment::of_process(),
            directory: None,
            wrong: Vec::new(),
        }
    }

    /// Adds a source of tools, such as a [`ToolSet`](adapter_tools::ToolSet). Of two sources with a tool of
    /// one name neither is preferred: the server does not start.
    pub fn tools(mut self, source: impl ToolSource + 'static) -> Self {
        self.parts.sources.push(Arc::new(source));
        self
    }

    /// Adds a filter of calls, which is asked behind those of the configuration and those that were added before.
    pub fn filter(mut self, filter: FilterRule) -> Self {
        self.parts.filters.push(filter);
        self
    }

    /// Serves operators beside the clients, such as at a desk.
    pub fn beside(mut self, beside: impl Beside + 'static) -> Self {
        self.beside = Some(Arc::new(beside));
        self
    }

    /// Sets the text that clients give their models about the whole server.
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.parts.instructions = text.into();
        self
    }

    /// Offers the skills below a directory, and puts their rules in force. The directory must exist.
    pub fn skills(self, directory: impl AsRef<Path>) -> Self {
        self.set_path("resources.skills_dir", directory.as_ref())
    }

    /// Keeps the ledger in a file, which is made if it does not exist, and other files of the server
    /// beside it.
    pub fn ledger(self, path: impl AsRef<Path>) -> Self {
        self.set_path("ledger.path", path.as_ref())
    }

    /// Serves HTTP at an address instead of one client on standard input and output. Port 0 lets the
    /// system choose.
    pub fn http(self, address: impl Into<SocketAddr>) -> Self {
        let address = address.into();
        self.set("transport", "http")
            .set("http.host", address.ip().to_string())
            .set("http.port", address.port())
    }

    /// Adds settings in the form of the configuration file (`docs/config.md`): YAML below `mcp_server:`.
    /// `${NAME}` refers to variables of the process. Settings that are added later win, and those of
    /// the other methods win over all.
    pub fn settings(mut self, yaml: impl Into<String>) -> Self {
        self.texts.push(Text {
            name: SETTINGS.to_owned(),
            text: yaml.into(),
        });
        self
    }

    /// Sets one value by its key in the configuration file without `mcp_server.`, such as
    /// `tools.default_timeout_seconds`.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        let (sections, name) = key.rsplit_once('.').unwrap_or(("", key));
        let mut values = &mut self.values;
        for section in sections.split('.').filter(|it| !it.is_empty()) {
            let Value::Object(inner) = values.entry(section).or_insert_with(|| json!({})) else {
                let why = format!("{VALUES}: `{key}`: `{section}` has a value and is no section");
                self.wrong.push(why);
                return self;
            };
            values = inner;
        }
        values.insert(name.to_owned(), value.into());
        self
    }

    /// Resolves relative paths from this directory instead of the current one.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Takes the variables that `${NAME}` refers to from here instead of from the process.
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Serves until the client goes or a signal comes, on threads of its own, and logs to standard error as
    /// configured. The codes to exit with are those of `docs/operations.md`: 1, and the reason on standard
    /// error and to the client, if the settings cannot be used, a part of the server cannot be made, or
    /// serving fails.
    ///
    /// If the settings have `commands`, the program must not look at its arguments before this: commands run
    /// below a guard, which is the same program with [`GUARD`] as its first argument.
    pub fn run(self) -> ExitCode {
        let mut arguments = std::env::args_os().skip(1);
        if arguments.next().is_some_and(|word| word == GUARD) {
            return adapter_tools::command::guard(arguments);
        }
        let on_http = self.values.get("transport") == Some(&json!("http"));
        let beside = self.beside.clone();
        let (parts, source, loaded) = match self.load() {
            Ok(loaded) => loaded,
            Err(failure) => {
                // Nobody is left to be told if that fails.
                let _ = writeln!(io::stderr().lock(), "{failure}");
                return failed(&*failure, !on_http);
            }
        };
        let (log, level) = Log::start_adjustable(&loaded.config.logging);
        warn_of(&loaded);
        let on_stdio = loaded.config.transport == Transport::Stdio;
        let ended = serve::run((parts, beside), source, loaded, level).unwrap_or_else(|failure| {
            let error = with_causes(&*failure);
            tracing::error!(error, "the server failed");
            log.flush();
            failed(&*failure, on_stdio)
        });
        log.flush();
        ended
    }

    /// Serves on the runtime of the caller until the client goes or `shutdown` resolves, and closes in
    /// order. Watches no signals, starts no log, and never ends the process: `shutdown.drain_seconds`
    /// bounds what runs, and the caller the rest. `commands` cannot be configured. Returns false if something may be missing from the
    /// ledger.
    ///
    /// # Errors
    ///
    /// When the settings cannot be used, a part of the server cannot be made, or serving fails.
    pub async fn serve_until(self, shutdown: impl Future<Output = ()>) -> Result<bool, Failure> {
        let beside = self.beside.clone();
        let (parts, source, loaded) = self.load()?;
        if !loaded.config.commands.is_empty() {
            // The guard of a command is this program, which only `run` makes one.
            return Err("`commands` can only be configured for a server that `run` serves".into());
        }
        warn_of(&loaded);
        let lifecycle = Lifecycle::unwatched(loaded.config.shutdown);
        let level = LevelHandle::of_no_log();
        let serving = serve::serve((parts, beside), source, loaded, level, lifecycle.clone());
        let mut serving = pin!(serving);
        tokio::select! {
            ended = &mut serving => return ended,
            () = shutdown => lifecycle.ask(),
        }
        serving.await
    }

    fn load(self) -> Result<(InCode, Source, Loaded), Failure> {
        let directory = match self.directory {
            Some(directory) => std::path::absolute(directory)?,
            None => std::env::current_dir()?,
        };
        if !self.wrong.is_empty() {
            return Err(self.wrong.join("\n").into());
        }
        let mut texts = self.texts;
        if !self.values.is_empty() {
            // JSON is YAML.
            texts.push(Text {
                name: VALUES.to_owned(),
                text: json!({ "mcp_server": self.values }).to_string(),
            });
        }
        let source = Source {
            overrides: Overrides::default(),
            environment: self.environment,
            directory,
            texts: Some(texts),
        };
        let loaded = source.load().map_err(|Rejected { problems }| {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            problems.join("\n")
        })?;
        Ok((self.parts, source, loaded))
    }

    fn set_path(mut self, key: &str, path: &Path) -> Self {
        if let Some(text) = path.to_str() {
            return self.set(key, text);
        }
        let why = format!("{VALUES}: `{key}`: {} is not Unicode", path.display());
        self.wrong.push(why);
        self
    }
}

/// Answers a client on standard input with the reason why there is no server for it.
fn failed(failure: &(dyn Error + Send + Sync + 'static), on_stdio: bool) -> ExitCode {
    // One that was served has seen its streams end.
    let was_served =
        failure.is::<transport_stdio::ServeError>() || failure.is::<transport_stdio::RelayError>();
    if on_stdio && !was_served {
        tell_client(&with_causes(failure));
    }
    ExitCode::FAILURE
}

fn warn_of(loaded: &Loaded) {
    for warning in &loaded.warnings {
        tracing::warn!(
            problem = warning.message,
            origin = %warning.origin,
            hint = warning.hint,
            "a setting of the configuration is questionable"
        );
    }
}
