//! What governance can say of single tools, and when it asks somebody.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::governance::{AccessRules, PartialQuota};
use super::money::Micros;
use super::secret::Secret;
use super::window::Window;

/// What clients of one kind have in common.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Role {
    /// Patterns over tool names. Nothing, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<AccessRules>,
    /// Patterns over resource URIs. Nothing, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<AccessRules>,
    /// Limits of its clients, where they have none of their own. The most generous of several roles
    /// holds.
    pub quota: PartialQuota,
    /// Tools, by patterns, of which each call must be confirmed.
    #[schemars(extend("x-items" = "pattern"))]
    pub confirm: Vec<String>,
    /// Conditions on calls, by a name of the operator's choice.
    pub conditions: BTreeMap<String, Condition>,
}

/// What calls have to be like, or must not be like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Condition {
    /// The tools it is about, as one pattern.
    #[schemars(extend("format" = "pattern"))]
    pub tool: String,
    /// An expression of the Common Expression Language that is true or false. It knows `args`,
    /// `principal`, `roles` and `capability`.
    #[schemars(extend("format" = "prose"))]
    pub when: String,
    /// What follows.
    pub effect: Effect,
}

impl Default for Condition {
    fn default() -> Self {
        Self {
            tool: "*".to_owned(),
            when: String::new(),
            effect: Effect::default(),
        }
    }
}

/// What follows from a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Calls of which it is true are refused.
    #[default]
    Deny,
    /// Calls of which it is true must be confirmed.
    Confirm,
    /// Calls of which it is not true are refused.
    AllowOnly,
}

/// What is known about one tool. What is said wins over the skill of the same name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolRule {
    /// What a call is expected to cost; it is reserved before the call and settled after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_cost: Option<Micros>,
    /// Calls of this tool by one client in any 60 seconds, besides the client's own limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_calls_per_minute: Option<u32>,
    /// Calls of this tool by one client in any 24 hours, besides the client's own limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_calls_per_day: Option<u32>,
    /// What it may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<Vec<Risk>>,
    /// Who has to agree to each call. Without one, the client's user if the risk is `financial`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
    /// The least time between two calls by one client.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub cooldown_seconds: Option<u64>,
    /// When it may be called: `Mon-Fri 09:30-15:00 Asia/Shanghai`. Always, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-items" = "window"))]
    pub windows: Option<Vec<Window>>,
    /// Calls that run at once, of all clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_running: Option<u32>,
    /// When it is given a rest because it keeps failing. Without one, as `governance.breaker`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<Breaker>,
}

/// One thing that a tool may do. A tool of which nothing is said may do anything but spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Nothing but look.
    ReadOnly,
    /// Change something.
    Mutating,
    /// Talk to somebody outside. It always has a limit per minute.
    External,
    /// Move money. Each call must be confirmed.
    Financial,
}

/// Who has to agree to each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Confirmation {
    /// Nobody, whatever a skill says. Not for what moves money.
    None,
    /// The person at the client, or an operator.
    User,
    /// An operator, by command line or HTTP.
    Operator,
}

/// When a tool is given a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Breaker {
    /// After so many failures in a row, whoever called; 0: never.
    #[schemars(range(max = 1_000_000))]
    pub failures: u32,
    /// How long; then one call is tried.
    #[schemars(range(min = 1, max = 86_400))]
    pub rest_seconds: u64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            failures: 0,
            rest_seconds: 30,
        }
    }
}

/// A shorter token of operators could be guessed.
pub const MIN_TOKEN_CHARS: usize = 16;

/// Calls that wait until somebody decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Approvals {
    /// How long an approval can be given and used, from when it was asked for.
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
    /// How long a key stands for its call.
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
