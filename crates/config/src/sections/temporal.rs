//! Temporal as the engine that hands calls to workers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::{Origins, origin_near};
use crate::problem::Problem;
use crate::sections::Config;
use crate::sections::secret::{Secret, url_fault};

/// Schemes of addresses of Temporal servers.
const SCHEMES: &[&str] = &["http", "https"];

/// Temporal as the engine that hands calls of tools to workers (`owlclaw-mcp worker`). Only in programs that were
/// built with the feature `temporal`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Temporal {
    /// Address of the Temporal server; with TLS if it begins with `https://`.
    pub address: String,
    /// Namespace in Temporal, which must exist.
    pub namespace: String,
    /// Queues of workers, by their names in Temporal.
    pub queues: BTreeMap<String, Queue>,
    /// Calls that one worker carries out at once, of each queue.
    #[schemars(range(min = 1, max = 10_000))]
    pub worker_calls: usize,
    /// API key for Temporal.
    pub api_key: Option<Secret>,
    /// Authorities that the certificate of the Temporal server may come from, instead of the system's, PEM.
    #[schemars(extend("format" = "path"))]
    pub ca_file: Option<PathBuf>,
    /// Certificate by which this program proves who it is, PEM.
    #[schemars(extend("format" = "path"))]
    pub certificate_file: Option<PathBuf>,
    /// Key of that certificate, PEM.
    #[schemars(extend("format" = "path"))]
    pub key_file: Option<PathBuf>,
}

/// Queue of workers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// Tools whose calls wait in it, by name; `*` stands for any text.
    #[schemars(extend("x-items" = "pattern"))]
    pub tools: Vec<String>,
}

impl Default for Temporal {
    fn default() -> Self {
        Self {
            address: "http://127.0.0.1:7233".to_owned(),
            namespace: "default".to_owned(),
            queues: BTreeMap::new(),
            worker_calls: 100,
            api_key: None,
            ca_file: None,
            certificate_file: None,
            key_file: None,
        }
    }
}

/// Refuses what cannot work.
pub(crate) fn check(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    const SECTION: &str = "tasks.temporal";
    let Some(temporal) = &config.tasks.temporal else {
        return;
    };
    let mut error = |key: &str, message: String, hint: &str| {
        let problem = Problem::error(origin_near(origins, key), message).key(key);
        problems.push(problem.hint(hint));
    };
    if !config.tasks.enabled {
        let message = format!("`{SECTION}` is for tasks, and `tasks.enabled` is false");
        error(
            SECTION,
            message,
            "set `tasks.enabled: true`, or leave the section out",
        );
    } else if !config.shares_tasks() {
        let message = format!(
            "`{SECTION}` needs tasks and a ledger that servers and workers share, and they are in files of one process"
        );
        let hint = "set `ledger.url` to a PostgreSQL database, and leave `tasks.path` out";
        error(SECTION, message, hint);
    }
    if let Some(why) = url_fault(&temporal.address, SCHEMES) {
        let key = "tasks.temporal.address";
        let message = format!("`{key}` cannot be used: {why}");
        error(key, message, "write `http://127.0.0.1:7233`");
    }
    let has_tls = temporal.address.starts_with("https:");
    for (key, is_set) in [
        ("tasks.temporal.ca_file", temporal.ca_file.is_some()),
        (
            "tasks.temporal.certificate_file",
            temporal.certificate_file.is_some(),
        ),
        ("tasks.temporal.api_key", temporal.api_key.is_some()),
    ] {
        if is_set && !has_tls {
            let message = format!("`{key}` is for encrypted connections, and the address has none");
            error(key, message, "write the address with `https://`");
        }
    }
    if temporal.certificate_file.is_some() != temporal.key_file.is_some() {
        let key = match temporal.key_file {
            None => "tasks.temporal.certificate_file",
            Some(_) => "tasks.temporal.key_file",
        };
        let message = "a certificate and its key belong together, and one is missing".to_owned();
        let hint = "set both `tasks.temporal.certificate_file` and `tasks.temporal.key_file`";
        error(key, message, hint);
    }
    if temporal.queues.is_empty() {
        let message = format!("`{SECTION}` has no queue, so that no call is left to a worker");
        error(
            SECTION,
            message,
            "name tools: `queues: {reports: {tools: [\"report-*\"]}}`",
        );
    }
    for (name, queue) in &temporal.queues {
        if name.is_empty() || queue.tools.is_empty() {
            let key = crate::layer::child("tasks.temporal.queues", name);
            let message = format!("the queue `{name}` names no tool");
            error(&key, message, "write `tools: [\"report-*\"]`");
        }
    }
}
