//! Limits of results, as configured.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Config;
use crate::layer::{Origins, child, origin_near};
use crate::problem::Problem;

/// Limits of what clients are shown of results, and the results that exceeded them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Results {
    /// Limits, by a name of the operator's choice. All that fit a call hold: the smallest number of each kind counts.
    pub limits: BTreeMap<String, ResultLimit>,
    /// Seconds for which the whole of a result that was shortened can be read.
    #[schemars(range(min = 60, max = 604_800))]
    pub keep_seconds: u64,
    /// Bytes of all results that are kept. The oldest of the client that has most make room.
    #[schemars(range(min = 65_536, max = 1_099_511_627_776_u64))]
    pub max_bytes: u64,
    /// Bytes of the results that are kept for one client. Its oldest make room; a longer result is not kept.
    #[schemars(range(min = 65_536, max = 1_099_511_627_776_u64))]
    pub max_bytes_per_client: u64,
    /// The longest result that is kept in memory, in bytes; longer ones are files.
    #[schemars(range(max = 16_777_216))]
    pub memory_bytes: usize,
    /// The directory of the files, which is emptied of them at the start. Without one, `results` beside the ledger.
    #[schemars(extend("format" = "path"))]
    pub directory: Option<PathBuf>,
}

impl Default for Results {
    fn default() -> Self {
        Self {
            limits: BTreeMap::new(),
            keep_seconds: 3_600,
            max_bytes: 256 * 1024 * 1024,
            max_bytes_per_client: 64 * 1024 * 1024,
            memory_bytes: 64 * 1024,
            directory: None,
        }
    }
}

/// A limit of what some clients are shown of results of some tools.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResultLimit {
    /// Clients, by name; `*` stands for any text. Without `clients` and `roles`: all.
    #[schemars(extend("x-items" = "pattern"))]
    pub clients: Vec<String>,
    /// Roles whose clients are meant, besides `clients`.
    #[schemars(extend("x-items" = "word"))]
    pub roles: Vec<String>,
    /// Tools, by name; `*` stands for any text. Empty: all.
    #[schemars(extend("x-items" = "pattern"))]
    pub tools: Vec<String>,
    /// Tools of these that are not meant, likewise.
    #[schemars(extend("x-items" = "pattern"))]
    pub except: Vec<String>,
    /// The host that the clients run in: what it shows of a result is a limit, too.
    pub host: Option<Host>,
    /// The most characters of the content, and of the structured content likewise.
    #[schemars(range(min = 1_000))]
    pub max_characters: Option<usize>,
    /// The most tokens of the same, as they are estimated.
    #[schemars(range(min = 300))]
    pub max_tokens: Option<usize>,
    /// Structured content that is too long, of a tool that promises structured content by an output schema.
    pub output_schema: OutputSchema,
}

/// A host with a known limit of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Host {
    /// 25,000 tokens.
    ClaudeCode,
    /// 8,000 characters.
    Cline,
    /// 10,000 tokens.
    Codex,
}

impl Host {
    /// The most characters of a result that it shows.
    pub fn max_characters(self) -> Option<usize> {
        match self {
            Self::Cline => Some(8_000),
            Self::ClaudeCode | Self::Codex => None,
        }
    }

    /// The most tokens of a result that it shows.
    pub fn max_tokens(self) -> Option<usize> {
        match self {
            Self::ClaudeCode => Some(25_000),
            Self::Codex => Some(10_000),
            Self::Cline => None,
        }
    }
}

/// Treatment of structured content that is too long and was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputSchema {
    /// Answer it, as the protocol wants, beyond the limit.
    #[default]
    Keep,
    /// Leave it out. Clients that check results against the schema take that for an error.
    Break,
}

pub(crate) fn check(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    let results = &config.results;
    let limits = "results.limits";
    if results.limits.is_empty() && origins.contains_key(limits) {
        let message = format!("`{limits}` has no limit: no result is shortened");
        let problem = Problem::warning(origin_near(origins, limits), message).key(limits);
        problems.push(problem.hint("name a limit under it, or leave it out"));
    }
    for (name, limit) in &results.limits {
        let key = child(limits, name);
        config
            .governance
            .warn_of_unknown(&limit.roles, &child(&key, "roles"), origins, problems);
        if limit.host.is_none() && limit.max_characters.is_none() && limit.max_tokens.is_none() {
            let message = format!("`{key}` limits nothing");
            let hint = "set `max_characters`, `max_tokens` or `host`, or leave it out";
            let origin = origin_near(origins, &key);
            problems.push(Problem::error(origin, message).key(key).hint(hint));
        }
    }
    if results.max_bytes < results.max_bytes_per_client {
        let (one, all) = ("results.max_bytes_per_client", "results.max_bytes");
        let message = format!(
            "one client may have {} bytes kept (`{one}`), and all of them together only {} (`{all}`)",
            results.max_bytes_per_client, results.max_bytes
        );
        let key = if origins.contains_key(one) { one } else { all };
        let hint = "one could take the room of all others: lower the one or raise the other";
        let origin = origin_near(origins, key);
        problems.push(Problem::error(origin, message).key(key).hint(hint));
    }
}
