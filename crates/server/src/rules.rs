//! Rules that change while the server runs (R8.8).
//!
//! What the file says is read again when it changes and when the process is sent SIGHUP. Rules that
//! are right take the place of those in force all at once; a file that is wrong changes nothing, and
//! is told in the log, in the ledger and to whoever asks after the server's health.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::select_all;
use mcp_server::{Component, ComponentState};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::file_watch::FileWatch;
use super::reading::Reading;
use super::upstreams;
use config::{Change, Config, Loaded, Origin, Problem, Rejected, Severity, Source};

/// Name of the component of `/health` for the rules.
pub(super) const COMPONENT: &str = "rules";
/// Stands in the place of a path where the configuration is given in code.
const IN_CODE: &str = "(in code)";
/// A reading that takes longer is told of: a file system may hang, and rules that are not in force guard nothing.
const SLOW: Duration = Duration::from_secs(5);

/// The configuration that a running server goes by, and where it comes from.
#[derive(Debug)]
pub(super) struct Rules {
    source: Source,
    /// Configuration in force.
    running: Loaded,
    /// `None` where the configuration is given in code.
    watch: Option<FileWatch>,
    /// Files of hosts with upstreams.
    host_files: Vec<FileWatch>,
    /// The vault, if the configuration refers to it.
    vault: Option<FileWatch>,
    /// The other layers of the configuration.
    layers: Vec<FileWatch>,
    hangup: Option<Signal>,
    state: Arc<Mutex<State>>,
}

/// State of the rules for `/health`.
#[derive(Debug, Default)]
struct State {
    /// Reason why the content of the file is not in force.
    problem: Option<String>,
    /// Changed keys that take effect at the next start.
    at_restart: Vec<String>,
    /// Reasons why files of hosts cannot be read.
    host_files: Vec<String>,
}

/// Event that made the server read the configuration again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The file has other content.
    File,
    /// The process was sent SIGHUP.
    Signal,
    /// A host's file with upstreams has other content.
    HostFile,
    /// The vault has other content.
    Vault,
    /// An operator has changed the file on the desk.
    Desk,
}

/// Result of reading the configuration again.
#[derive(Debug)]
pub(super) enum Found {
    /// No difference that matters.
    Same,
    /// Other settings; they are still to be put in force.
    Changed(Box<Changed>),
    /// Mistakes.
    Wrong(Vec<Problem>),
}

/// A configuration that can be put in force.
#[derive(Debug)]
pub(super) struct Changed {
    /// Configuration to put in force.
    pub(super) config: Config,
    /// Changes it makes.
    pub(super) live: Vec<Change>,
    loaded: Loaded,
    at_restart: Vec<String>,
}

impl Rules {
    /// Watches over `loaded`, which came from `source`.
    pub(super) fn watch(source: Source, loaded: Loaded) -> Self {
        let hangup = signal(SignalKind::hangup());
        let hangup = hangup.inspect_err(|error| {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "SIGHUP cannot be watched"
            );
        });
        Self {
            watch: source.path().map(FileWatch::start),
            host_files: watched(&loaded.config),
            vault: vault(&loaded.config),
            layers: loaded
                .others
                .iter()
                .cloned()
                .map(FileWatch::start)
                .collect(),
            source,
            state: Arc::new(Mutex::new(State {
                host_files: broken_host_files(&loaded.config),
                ..State::default()
            })),
            running: loaded,
            hangup: hangup.ok(),
        }
    }

    /// Configuration in force.
    pub(super) fn config(&self) -> &Config {
        &self.running.config
    }

    /// The configuration in force, with its places.
    pub(super) fn loaded(&self) -> &Loaded {
        &self.running
    }

    /// The same with its source, for whoever reads it again.
    pub(super) fn reading(&self) -> Reading {
        Reading::new(self.source.clone(), self.running.clone())
    }

    /// The file, or that there is none.
    pub(super) fn path(&self) -> PathBuf {
        let path = self.source.path();
        path.unwrap_or_else(|| PathBuf::from(IN_CODE))
    }

    /// Component of `/health` for the rules.
    pub(super) fn component(&self) -> Component {
        let state = Arc::clone(&self.state);
        Component::new(move || state.lock().unwrap_or_else(PoisonError::into_inner).told())
    }

    /// Resolves when the configuration may be another one.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(super) async fn changed(&mut self) -> Cause {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let written = async {
            match &mut self.watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        let of_hosts = async {
            let files = self.host_files.iter_mut();
            let changes: Vec<_> = files.map(|it| Box::pin(it.changed())).collect();
            match changes.is_empty() {
                true => std::future::pending().await,
                false => drop(select_all(changes).await),
            }
        };
        let of_vault = async {
            match &mut self.vault {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        let of_layers = async {
            let files = self.layers.iter_mut();
            let changes: Vec<_> = files.map(|it| Box::pin(it.changed())).collect();
            match changes.is_empty() {
                true => std::future::pending().await,
                false => drop(select_all(changes).await),
            }
        };
        tokio::select! {
            () = of_layers => Cause::File,
            () = of_vault => Cause::Vault,
            () = written => Cause::File,
            _ = hangup => Cause::Signal,
            () = of_hosts => Cause::HostFile,
        }
    }

    /// Reads the configuration again.
    pub(super) async fn look(&self) -> Found {
        let (source, running) = (self.source.clone(), self.running.clone());
        let seen = self.watch.as_ref().map(|watch| watch.seen().clone());
        let compare = move || compare(&source, running.clone());
        let looked = tokio::task::spawn_blocking(move || match seen {
            Some(seen) => seen.reading(compare),
            None => compare(),
        });
        let looked = telling(looked, SLOW, |message| {
            tracing::error!(file = %self.path().display(), "{message}");
            self.set(Some(message), Vec::new());
        });
        let looked = looked.await;
        looked.unwrap_or_else(|error| {
            let message = format!("the configuration cannot be read: {error}");
            Found::Wrong(vec![Problem::error(Origin::Default, message)])
        })
    }

    /// Notes that the content of the file is in force, except for settings that need a restart.
    pub(super) fn accept(&mut self, changed: Changed) {
        if !changed.at_restart.is_empty() {
            tracing::warn!(
                keys = changed.at_restart.join(", "),
                "some changes of the configuration take effect at the next start"
            );
        }
        let mut loaded = changed.loaded;
        loaded.config = changed.config;
        if loaded.config.upstreams_files != self.running.config.upstreams_files {
            self.host_files = watched(&loaded.config);
        }
        let path = |config: &Config| config.environment.vault_used().map(|(it, _)| it.to_owned());
        if path(&loaded.config) != path(&self.running.config) {
            self.vault = vault(&loaded.config);
        }
        if loaded.others != self.running.others {
            let others = loaded.others.iter().cloned();
            self.layers = others.map(FileWatch::start).collect();
        }
        self.running = loaded;
        self.set(None, changed.at_restart);
    }

    /// Notes that the content of the file equals the configuration in force.
    pub(super) fn same(&self, cause: Cause) {
        // Whoever sends a signal waits for an answer.
        if cause == Cause::Signal {
            tracing::info!("the configuration says the same");
        }
        self.set(None, Vec::new());
    }

    /// Notes that the content of the file cannot be put in force.
    pub(super) fn reject(&self, problems: &[Problem]) {
        for problem in problems.iter().filter(|it| it.severity == Severity::Error) {
            tracing::error!(
                origin = %problem.origin,
                problem = problem.message,
                hint = problem.hint,
                "the configuration is not valid; what was in force stays in force"
            );
        }
        self.set(Some(summary(problems)), Vec::new());
    }

    fn set(&self, problem: Option<String>, at_restart: Vec<String>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.problem, state.at_restart) = (problem, at_restart);
    }

    /// Notes which files of hosts cannot be read, with the reasons.
    pub(super) fn set_broken_host_files(&self, reasons: Vec<String>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.host_files = reasons;
    }
}

impl Changed {
    /// The configuration in the file, with its places.
    pub(super) fn loaded(&self) -> &Loaded {
        &self.loaded
    }
}

impl State {
    fn told(&self) -> ComponentState {
        let keys = &self.at_restart;
        let restart = (!keys.is_empty()).then(|| {
            format!(
                "changed, and in force at the next start: {}",
                keys.join(", ")
            )
        });
        ComponentState {
            name: COMPONENT,
            ok: self.problem.is_none() && self.host_files.is_empty(),
            detail: self
                .problem
                .clone()
                .or_else(|| self.host_files.first().cloned())
                .or(restart),
        }
    }
}

impl Cause {
    /// Name in the ledger and the log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Cause::File => "file",
            Cause::Signal => "signal",
            Cause::HostFile => "host_file",
            Cause::Vault => "vault",
            Cause::Desk => "desk",
        }
    }
}

/// Watches over the vault, if a reference led to it.
fn vault(config: &Config) -> Option<FileWatch> {
    let (path, _) = config.environment.vault_used()?;
    Some(FileWatch::start(path.to_owned()))
}

fn broken_host_files(config: &Config) -> Vec<String> {
    let declared = upstreams::declared_upstreams(config).ok();
    declared.map(|it| it.broken).unwrap_or_default()
}

/// Watches over the files of hosts.
fn watched(config: &Config) -> Vec<FileWatch> {
    let files = upstreams::host_files(config).into_iter();
    let files = files.filter_map(|it| std::path::absolute(it).ok());
    files.map(FileWatch::start).collect()
}

/// The outcome of a reading; that one takes long is told while it does.
async fn telling<T>(
    reading: impl Future<Output = T>,
    usual: Duration,
    tell: impl FnOnce(String),
) -> T {
    let mut reading = std::pin::pin!(reading);
    if let Ok(read) = tokio::time::timeout(usual, &mut reading).await {
        return read;
    }
    tell(format!(
        "the configuration is being read for more than {} s, and a change of it is not in force: see to the file systems \
         of its files, and to the programs that it names",
        usual.as_secs()
    ));
    reading.await
}

fn compare(source: &Source, running: Loaded) -> Found {
    let loaded = match source.reload(&running) {
        Ok(loaded) => loaded,
        Err(Rejected { problems }) => return Found::Wrong(problems),
    };
    let changes = running.config.changes_to(&loaded.config);
    if changes.live.is_empty() && changes.at_restart.is_empty() {
        return Found::Same;
    }
    Found::Changed(Box::new(Changed {
        config: running.config.with_live_settings_of(&loaded.config),
        live: changes.live,
        at_restart: changes.at_restart,
        loaded,
    }))
}

/// The first mistake with its place, and how many more there are.
pub(super) fn summary(problems: &[Problem]) -> String {
    let errors = problems.iter().filter(|it| it.severity == Severity::Error);
    let mut errors = errors.map(|problem| format!("{}: {}", problem.origin, problem.message));
    let first = errors.next().unwrap_or_default();
    match errors.count() {
        0 => first,
        1 => format!("{first} (and another mistake)"),
        more => format!("{first} (and {more} more mistakes)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reading_that_takes_long_is_told_while_it_does() {
        let told = std::cell::Cell::new(false);
        let tell = |_| told.set(true);
        let usual = Duration::from_millis(100);
        telling(std::future::ready(()), usual, tell).await;
        assert!(!told.get());
        let long = async {
            while !told.get() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        telling(long, usual, tell).await;
    }
}
