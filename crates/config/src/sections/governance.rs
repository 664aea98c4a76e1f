//! The rules, as configured.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ::governance::{DEFAULT_MAX_PRINCIPALS, PolicyFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::{Origins, origin_near};
use crate::problem::Problem;
use crate::sections::secret::Secret;

/// Permissions, limits and budgets of clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Governance {
    /// The rules themselves.
    #[serde(flatten)]
    pub rules: PolicyFile,
    /// Permission records of founding document 004, by the client that each is about: files of JSON, in either of its two
    /// forms. They become the rules of that client.
    pub permission_records: BTreeMap<String, PathBuf>,
    /// Treatment of rules that match no tool and no resource on offer.
    pub unmatched_rules: UnmatchedRules,
    /// Calls that wait for an operator's decision.
    pub approvals: Approvals,
    /// Calls with an idempotency key.
    pub idempotency: Idempotency,
    /// Clients whose use is counted at once, besides those under `clients`. One more is refused until
    /// one can be forgotten without freeing anything. With `ledger.url` there is no bound.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_clients: usize,
}

impl Default for Governance {
    fn default() -> Self {
        Self {
            rules: PolicyFile::default(),
            permission_records: BTreeMap::new(),
            unmatched_rules: UnmatchedRules::default(),
            approvals: Approvals::default(),
            idempotency: Idempotency::default(),
            max_clients: DEFAULT_MAX_PRINCIPALS,
        }
    }
}

impl Governance {
    /// Adds a warning for each of the roles under `key` that is not described: one that is misspelt is nobody's.
    pub(crate) fn warn_of_unknown(
        &self,
        roles: &[String],
        key: &str,
        origins: &Origins,
        problems: &mut Vec<Problem>,
    ) {
        for role in roles {
            if !self.rules.roles.contains_key(role) {
                let message = format!(
                    "`{key}` has `{role}`, which is no role of `governance.roles`: only a key or token can bring it"
                );
                let problem = Problem::warning(origin_near(origins, key), message).key(key);
                problems.push(problem.hint("correct it, or add it to `governance.roles`"));
            }
        }
    }
}

/// Treatment of rules that match nothing on offer, as a misspelt name does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnmatchedRules {
    /// A warning for each.
    #[default]
    Warn,
    /// The server does not start with them, and does not take them over while it runs. Nor does it
    /// start with a skill that has unknown keys where others limit calls.
    Error,
}

/// A shorter token of operators could be guessed.
pub const MIN_TOKEN_CHARS: usize = 16;

/// Calls that wait for an operator's decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Approvals {
    /// Seconds, from the request on, in which an approval can be given and used.
    #[schemars(range(min = 1, max = 2_592_000))]
    pub expire_seconds: u64,
    /// With this bearer token approvals are decided, and statistics are read, over HTTP. Without
    /// one, not at all. It has 16 characters at least.
    pub http_token: Option<Secret>,
}

impl Default for Approvals {
    fn default() -> Self {
        Self {
            expire_seconds: 3_600,
            http_token: None,
        }
    }
}

/// Calls with an idempotency key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Idempotency {
    /// Seconds for which an idempotency key stands for its call.
    #[schemars(range(min = 1, max = 2_592_000))]
    pub keep_seconds: u64,
}

impl Default for Idempotency {
    fn default() -> Self {
        Self {
            keep_seconds: 86_400,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_neither_the_rules_nor_the_server_know_are_errors() {
        let read = serde_json::from_str::<Governance>;
        let known = read(r#"{"confirm": ["pay-*"], "max_clients": 5}"#).expect("both are known");
        assert_eq!((known.rules.confirm.len(), known.max_clients), (1, 5));
        for text in [
            r#"{"confrim": []}"#,
            r#"{"confirm": null}"#,
            r#"{"default": {"x": 1}}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
