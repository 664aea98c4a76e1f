//! Reading the configuration again while the server runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::layer::child;
use crate::problem::{Origin, Position, Problem};
use crate::sections::Config;
use crate::sections::secret::Secret;
use crate::{
    DEFAULT_FILE, Environment, Loaded, Needs, Overrides, Rejected, Text, environment, load_as,
    load_for, load_texts,
};

/// Source of a configuration, from which it can be read again.
#[derive(Debug, Clone)]
pub struct Source {
    /// Values given on the command line.
    pub overrides: Overrides,
    /// The environment, as it was when the program began.
    pub environment: Environment,
    /// The current directory, absolute.
    pub directory: PathBuf,
    /// Texts in the place of file, variables and flags; see [`crate::load_texts`].
    pub texts: Option<Vec<Text>>,
}

/// Differences between two configurations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Changes that can take effect while the server runs.
    pub live: Vec<Change>,
    /// The keys of what takes effect at the next start.
    pub at_restart: Vec<String>,
}

/// One setting that differs.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Change {
    /// Key, without the leading `mcp_server.`.
    pub key: String,
    /// Value before the change; absent if the key was not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// Value after the change; absent if the key is not there any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

/// Keys that can change while the server runs, with all below them.
const LIVE: [&str; 5] = [
    "governance",
    "logging.level",
    "logging.requests",
    "upstreams",
    "upstreams_files",
];
/// Of those, keys that cannot: they are handed out once, when serving begins.
const NOT_LIVE: [&str; 3] = [
    "governance.approvals",
    "governance.idempotency",
    "governance.max_clients",
];

impl Source {
    /// Reads, merges and checks all layers; see [`crate::load`].
    ///
    /// # Errors
    ///
    /// As [`crate::load`].
    pub fn load(&self) -> Result<Loaded, Rejected> {
        self.load_for(Needs::Everything)
    }

    /// The same for a command that needs no more than `needs`; see [`load_for`].
    ///
    /// # Errors
    ///
    /// As [`load_for`].
    pub fn load_for(&self, needs: Needs) -> Result<Loaded, Rejected> {
        match &self.texts {
            Some(texts) => load_texts(texts, &self.environment, &self.directory),
            None => load_for(needs, &self.overrides, &self.environment, &self.directory),
        }
    }

    /// The file that is read if it exists, absolute; `None` where texts take its place.
    pub fn path(&self) -> Option<PathBuf> {
        let path = || environment::absolute(&self.directory, self.name());
        self.texts.is_none().then(path)
    }

    /// Reads everything again for a server that runs with `running`.
    ///
    /// # Errors
    ///
    /// As [`crate::load`]. Besides, a file that is gone, that has become empty or that says nothing of
    /// `governance` any more is refused: each would put the defaults in force, which allow everything,
    /// and each is what a reader sees of a file that is just being written.
    pub fn reload(&self, running: &Loaded) -> Result<Loaded, Rejected> {
        self.checked(self.load()?, running)
    }

    /// The same for a file that would have this text: what a server that runs with `running` would make of it.
    ///
    /// # Errors
    ///
    /// As [`Source::reload`]; and where texts take the place of a file.
    pub fn reload_as(&self, text: &str, running: &Loaded) -> Result<Loaded, Rejected> {
        if self.texts.is_some() {
            let why = "the configuration is given in code, not in a file";
            return Err(Rejected {
                problems: vec![Problem::error(Origin::Default, why)],
            });
        }
        let (overrides, environment) = (&self.overrides, &self.environment);
        let everything = Needs::Everything;
        let loaded = load_as(
            Some(text),
            everything,
            overrides,
            environment,
            &self.directory,
        );
        self.checked(loaded?, running)
    }

    /// Refuses what a reader sees of a file that is just being written.
    fn checked(&self, loaded: Loaded, running: &Loaded) -> Result<Loaded, Rejected> {
        let for_nothing = "for the defaults, write `mcp_server: {}` and start the server again";
        let (message, hint) = if loaded.file.is_none() && running.file.is_some() {
            ("the configuration file is gone", for_nothing)
        } else if loaded.says_nothing && !running.says_nothing {
            ("the configuration file is empty", for_nothing)
        } else if running.governs() && !loaded.governs() {
            (
                "the configuration file says nothing of `governance` any more",
                "to have no rules, write `governance: {}`, or start the server again",
            )
        } else {
            return Ok(loaded);
        };
        let origin = Origin::File(Position {
            file: self.name().display().to_string(),
            line: 0,
            column: 0,
            snippet: None,
        });
        Err(Rejected {
            problems: vec![Problem::error(origin, message).hint(hint)],
        })
    }

    fn name(&self) -> &Path {
        let named = self.overrides.config.as_deref();
        named.unwrap_or(Path::new(DEFAULT_FILE))
    }
}

impl Config {
    /// Differences of `new` from this configuration.
    pub fn changes_to(&self, new: &Config) -> Changes {
        let (before, after) = (flat(self), flat(new));
        let mut changed: BTreeMap<&str, Change> = BTreeMap::new();
        for key in before.keys().chain(after.keys()) {
            let (from, to) = (before.get(key), after.get(key));
            if from != to {
                let change = Change {
                    key: key.clone(),
                    from: from.cloned(),
                    to: to.cloned(),
                };
                changed.insert(key, change);
            }
        }
        // Secrets look alike where they are shown.
        let secrets = [
            (
                "alerts.webhooks",
                self.alerts.webhooks != new.alerts.webhooks,
            ),
            (
                "telemetry.otlp.headers",
                self.telemetry.otlp.headers != new.telemetry.otlp.headers,
            ),
            ("filters", self.filters != new.filters),
            ("ledger.url", self.ledger.url != new.ledger.url),
            (
                "governance.approvals.http_token",
                self.governance.approvals.http_token != new.governance.approvals.http_token,
            ),
        ];
        let secrets = secrets.map(|(key, differs)| (key.to_owned(), differs));
        let others = self.secrets_that_differ(new);
        let secrets: Vec<_> = secrets
            .into_iter()
            .filter_map(|(key, differs)| differs.then_some(key))
            .chain(others)
            .collect();
        for key in &secrets {
            let change = Change {
                key: key.clone(),
                from: None,
                to: None,
            };
            changed.entry(key).or_insert(change);
        }
        // What references stand for may differ where the references are the same.
        let renewed: Vec<_> = self
            .upstreams
            .iter()
            .filter_map(|(name, upstream)| {
                let other = new.upstreams.get(name)?;
                let differs =
                    upstream.resolved(&self.environment) != other.resolved(&new.environment);
                differs.then(|| child("upstreams", name))
            })
            .collect();
        for key in &renewed {
            let is_told = |other: &&str| other.starts_with(key.as_str());
            if !changed.keys().any(is_told) {
                let change = Change {
                    key: key.clone(),
                    from: None,
                    to: None,
                };
                changed.insert(key, change);
            }
        }
        let (live, at_restart): (Vec<Change>, Vec<Change>) = changed
            .into_values()
            .partition(|change| is_live(&change.key));
        Changes {
            live,
            at_restart: at_restart.into_iter().map(|change| change.key).collect(),
        }
    }

    /// Keys of single secrets, which look alike where they are shown, that are not those of `new`.
    fn secrets_that_differ(&self, new: &Config) -> Vec<String> {
        let (one, other) = (self.single_secrets(), new.single_secrets());
        let keys = one
            .keys()
            .chain(other.keys().filter(|it| !one.contains_key(*it)));
        let differing = keys.filter(|key| one.get(*key) != other.get(*key));
        differing.cloned().collect()
    }

    fn single_secrets(&self) -> BTreeMap<String, &Secret> {
        let (identity, ledger) = (&self.identity, &self.ledger);
        let introspection = identity.introspection.as_ref();
        let named = [
            (
                "identity.introspection.client_secret",
                introspection.map(|it| &it.client_secret),
            ),
            ("ledger.archive.identity", ledger.archive.identity.as_ref()),
            ("ledger.witness.url", ledger.witness.url.as_ref()),
            ("ledger.witness.token", ledger.witness.token.as_ref()),
            ("ledger.timestamps.url", ledger.timestamps.url.as_ref()),
        ];
        let named = named
            .into_iter()
            .filter_map(|(key, secret)| Some((key.to_owned(), secret?)));
        let sign_ins = identity.jwt.iter().filter_map(|(name, it)| {
            let key = format!("{}.sign_in.client_secret", child("identity.jwt", name));
            Some((key, it.sign_in.as_ref()?.client_secret.as_ref()?))
        });
        let resources = &self.resources;
        let databases = resources.databases.iter().filter_map(|(name, it)| {
            let key = format!("{}.url", child("resources.databases", name));
            Some((key, it.url.as_ref()?))
        });
        let services = resources.services.iter().flat_map(|(name, it)| {
            let headers = format!("{}.headers", child("resources.services", name));
            it.headers.iter().map(move |(name, value)| {
                let key = child(&headers, name);
                (key, value)
            })
        });
        named
            .chain(sign_ins)
            .chain(databases)
            .chain(services)
            .collect()
    }

    /// Every setting that decides how a client is served, by its key: two processes that share a server
    /// have the same. Secrets look alike.
    pub fn of_serving(&self) -> BTreeMap<String, Value> {
        let mut settings = flat(self);
        // Each process has a log of its own.
        settings.retain(|key, _| !key.starts_with("logging."));
        settings
    }

    /// Copy of this configuration with the settings that can change while the server runs taken
    /// from `new`.
    #[must_use]
    pub fn with_live_settings_of(&self, new: &Config) -> Config {
        let mut config = self.clone();
        let governance = &self.governance;
        config.governance = new.governance.clone();
        config.governance.approvals = governance.approvals.clone();
        config.governance.idempotency = governance.idempotency.clone();
        config.governance.max_clients = governance.max_clients;
        config.upstreams = new.upstreams.clone();
        config.upstreams_files = new.upstreams_files.clone();
        config.environment = new.environment.clone();
        config.logging.level = new.logging.level;
        config.logging.requests = new.logging.requests;
        config
    }
}

/// Returns true if a change at `key` takes effect while the server runs.
pub(crate) fn is_live(key: &str) -> bool {
    let is_at = |section: &str| {
        let rest = key.strip_prefix(section);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    LIVE.iter().any(|it| is_at(it)) && !NOT_LIVE.iter().any(|it| is_at(it))
}

/// Every setting by its key.
fn flat(config: &Config) -> BTreeMap<String, Value> {
    let value = serde_json::to_value(config).expect("a configuration is plain data");
    let mut settings = BTreeMap::new();
    collect(value, "", &mut settings);
    settings
}

fn collect(value: Value, path: &str, settings: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (name, value) in entries {
                collect(value, &child(path, &name), settings);
            }
        }
        value => {
            settings.insert(path.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogLevel, LogRequests};
    use ::governance::file::Client;

    #[test]
    fn what_can_change_while_the_server_runs_is_told_apart() {
        let old = Config::default();
        let mut new = old.clone();
        new.governance.rules.default_quota.max_calls_per_day = 7;
        new.governance
            .rules
            .clients
            .insert("ana".to_owned(), Client::default());
        new.governance.approvals.expire_seconds = 1;
        new.ledger.url = Some(Secret::new("postgres://u:p@h/d"));
        new.logging.level = LogLevel::Debug;
        new.logging.requests = LogRequests::Errors;
        new.http.port = 1;
        let changes = old.changes_to(&new);
        let live: Vec<&str> = changes.live.iter().map(|it| it.key.as_str()).collect();
        assert!(live.contains(&"governance.default_quota.max_calls_per_day"));
        assert!(live.contains(&"logging.level"));
        assert!(live.contains(&"logging.requests"));
        assert!(live.iter().any(|key| key.starts_with("governance.clients")));
        assert_eq!(
            changes.at_restart,
            [
                "governance.approvals.expire_seconds",
                "http.port",
                "ledger.url"
            ]
        );

        let running = old.with_live_settings_of(&new);
        let left = running.changes_to(&new);
        assert_eq!((left.live.len(), left.at_restart.len()), (0, 3));
        assert_eq!(running.changes_to(&running), Changes::default());
    }

    #[test]
    fn a_secret_that_changes_is_a_change_that_nobody_sees() {
        let with = |url: &str| {
            let mut config = Config::default();
            config.ledger.url = Some(Secret::new(url));
            config
        };
        let changes = with("postgres://a").changes_to(&with("postgres://b"));
        assert_eq!(changes.at_restart, ["ledger.url"]);

        let with = |secret: &str| {
            let mut config = Config::default();
            config.ledger.witness.token = Some(Secret::new(secret));
            config.ledger.archive.identity = Some(Secret::new(secret));
            config.identity.introspection = Some(crate::Introspection {
                client_secret: Secret::new(secret),
                ..crate::Introspection::default()
            });
            let jwt = crate::Jwt {
                sign_in: Some(crate::OpenIdClient {
                    client_secret: Some(Secret::new(secret)),
                    ..crate::OpenIdClient::default()
                }),
                ..crate::Jwt::default()
            };
            config.identity.jwt.insert("corp".to_owned(), jwt);
            config
        };
        let keys = [
            "identity.introspection.client_secret",
            "identity.jwt.corp.sign_in.client_secret",
            "ledger.archive.identity",
            "ledger.witness.token",
        ];
        assert_eq!(with("a").changes_to(&with("b")).at_restart, keys);
        assert_eq!(with("a").changes_to(&with("a")), Changes::default());
    }
}
