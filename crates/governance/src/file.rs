//! A policy as it is written in a file.
//!
//! [`PolicyFile`] is the section `governance` of the server's configuration, key by key, without
//! those keys that only a server can honour. A [`PolicySpec`](crate::PolicySpec) can be read
//! directly:
//!
//! ```
//! use governance::{Policy, PolicySpec};
//!
//! let spec: PolicySpec = serde_json::from_str(
//!     r#"{"default": {"tools": {"deny": ["admin.*"]}}, "default_quota": {"monthly_budget": 50}}"#,
//! )?;
//! let policy = Policy::new(spec)?;
//! assert!(!policy.permitted("alice", "tool/admin.reset"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Any reader that serde knows will do, YAML included. Unknown keys are errors, and so is `null` in
//! the place of a value: a list that was commented out must not open what it closed.

mod check;
mod read;
mod strict;
mod translate;

pub use self::check::{Mistake, PolicyFileError};
use self::strict::strict;
use crate::{
    money::Micros,
    seconds,
    spec::{BreakerSpec, Effect, usual_rest},
    windows::{TimeWindows, ZonedWindow},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Rules: who may do what, how often, and at what cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyFile {
    /// Apply the rules. Calls are recorded either way.
    #[serde(deserialize_with = "strict")]
    pub enabled: bool,
    /// The currency of every amount, as three capital letters.
    #[schemars(extend("format" = "currency"))]
    #[serde(deserialize_with = "strict")]
    pub currency: String,
    /// The limits of each client without limits of its own.
    #[serde(deserialize_with = "strict")]
    pub default_quota: Quota,
    /// Tools, resources and prompts of clients without lists of their own.
    #[serde(deserialize_with = "strict")]
    pub default: Access,
    /// Rules of clients of one kind, by the name of the role.
    #[serde(deserialize_with = "strict")]
    pub roles: BTreeMap<String, Role>,
    /// Rules of single clients, by their name.
    #[serde(deserialize_with = "strict")]
    pub clients: BTreeMap<String, Client>,
    /// Tools, by patterns, of which each call of any client must be confirmed.
    #[schemars(extend("x-items" = "pattern"))]
    #[serde(deserialize_with = "strict")]
    pub confirm: Vec<String>,
    /// Conditions on the calls of every client, by a name of the operator's choice.
    #[serde(deserialize_with = "strict")]
    pub conditions: BTreeMap<String, Condition>,
    /// Facts about single tools, by their name.
    #[serde(deserialize_with = "strict")]
    pub tools: BTreeMap<String, ToolRule>,
    /// Facts about single prompts, by their name. They hold for every version of a prompt.
    #[serde(deserialize_with = "strict")]
    pub prompts: BTreeMap<String, ToolRule>,
    /// Hours of tools whose skill says `trading_hours_only`.
    #[schemars(extend("x-items" = "window"))]
    #[serde(deserialize_with = "strict")]
    pub trading_hours: Vec<ZonedWindow>,
    /// Rest of tools that keep failing.
    #[serde(deserialize_with = "strict")]
    pub breaker: BreakerSpec,
}

/// The limits of one client.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Cost of all calls in a calendar month.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub monthly_budget: Micros,
    /// Calls in any 60 seconds.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_calls_per_minute: u32,
    /// Calls in any 24 hours.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_calls_per_day: u32,
    /// The estimated cost that one call may have. A call that then costs more is charged in full.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_cost_per_call: Micros,
    /// Calls that run at once. Without one, there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_running: Option<u32>,
}

/// Limits that replace those of the default quota.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PartialQuota {
    /// Cost of all calls in a calendar month.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub monthly_budget: Option<Micros>,
    /// Calls in any 60 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_calls_per_minute: Option<u32>,
    /// Calls in any 24 hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_calls_per_day: Option<u32>,
    /// The estimated cost that one call may have. A call that then costs more is charged in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_cost_per_call: Option<Micros>,
    /// Calls that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_running: Option<u32>,
}

/// Tools, resources and prompts that are visible and usable.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Access {
    /// Patterns over tool names.
    pub tools: AccessRules,
    /// Patterns over resource URIs.
    pub resources: AccessRules,
    /// Patterns over names of prompts.
    pub prompts: AccessRules,
}

/// Patterns in which `*` stands for any text. `hide` and `deny` win over `allow`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessRules {
    /// May be used. Everything, if nothing is said; nothing, if the list is empty.
    #[schemars(extend("x-items" = "pattern"))]
    pub allow: Vec<String>,
    /// May be seen, and is refused.
    #[schemars(extend("x-items" = "pattern"))]
    pub deny: Vec<String>,
    /// Does not exist, as far as the client can tell.
    #[schemars(extend("x-items" = "pattern"))]
    pub hide: Vec<String>,
}

/// Rules of clients of one kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Role {
    /// Patterns over tool names. Nothing, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<AccessRules>,
    /// Patterns over resource URIs. Nothing, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<AccessRules>,
    /// Patterns over names of prompts. Nothing, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompts: Option<AccessRules>,
    /// Limits of its clients, where they have none of their own. The most generous of several roles
    /// holds.
    pub quota: PartialQuota,
    /// Tools, by patterns, of which each call must be confirmed.
    #[schemars(extend("x-items" = "pattern"))]
    pub confirm: Vec<String>,
    /// Conditions on calls, by a name of the operator's choice.
    pub conditions: BTreeMap<String, Condition>,
}

/// Rules of one client. Keys that are absent are as its roles say, or without roles as in the
/// defaults.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Client {
    /// The roles it has. What any of them shows or allows it may see or use; what any of them hides
    /// or denies it may not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// Replaces `governance.default.tools` as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<AccessRules>,
    /// Replaces `governance.default.resources` as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<AccessRules>,
    /// Replaces `governance.default.prompts` as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompts: Option<AccessRules>,
    /// Replaces `governance.default_quota`, limit by limit.
    pub quota: PartialQuota,
    /// Tools, by patterns, of which each of its calls must be confirmed.
    #[schemars(extend("x-items" = "pattern"))]
    pub confirm: Vec<String>,
    /// Conditions on its calls, by a name of the operator's choice.
    pub conditions: BTreeMap<String, Condition>,
}

/// A condition on the arguments of calls.
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
    /// Effect on the call.
    pub effect: Effect,
}

/// Facts about one tool, which win over the skill of the same name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolRule {
    /// Expected cost of a call; it is reserved before the call and settled after it.
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
    /// Risks of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<Vec<Risk>>,
    /// Confirmation of each call. Without one, by the client's user if the risk is `financial`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
    /// The least time between two calls by one client.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "seconds::optional"
    )]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub cooldown_seconds: Option<u64>,
    /// Hours in which it may be called: `Mon-Fri 09:30-15:00 Asia/Shanghai`. Always, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-items" = "window"))]
    pub windows: Option<Vec<ZonedWindow>>,
    /// Calls that run at once, of all clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_running: Option<u32>,
    /// Rest after failures. Without one, as `governance.breaker`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<BreakerSpec>,
}

/// One thing that a tool may do. A tool of which nothing is said may do anything but spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Only reads data.
    ReadOnly,
    /// Change something.
    Mutating,
    /// Talk to somebody outside. It always has a limit per minute.
    External,
    /// Move money. Each call must be confirmed.
    Financial,
}

/// Confirmation of each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Confirmation {
    /// None, whatever a skill says. Not for tools that move money.
    None,
    /// The person at the client, or an operator.
    User,
    /// An operator, by command line or HTTP.
    Operator,
}

impl Default for PolicyFile {
    fn default() -> Self {
        let TimeWindows { zone, windows } = TimeWindows::trading_hours();
        let zoned = |window| ZonedWindow {
            zone: zone.clone(),
            window,
        };
        Self {
            enabled: true,
            currency: "USD".to_owned(),
            default_quota: Quota::default(),
            default: Access::default(),
            roles: BTreeMap::new(),
            clients: BTreeMap::new(),
            confirm: Vec::new(),
            conditions: BTreeMap::new(),
            tools: BTreeMap::new(),
            prompts: BTreeMap::new(),
            trading_hours: windows.into_iter().map(zoned).collect(),
            breaker: BreakerSpec {
                rest: usual_rest(),
                ..BreakerSpec::OFF
            },
        }
    }
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            monthly_budget: Micros::units(500),
            max_calls_per_minute: 60,
            max_calls_per_day: 1_000,
            max_cost_per_call: Micros::units(10),
            max_running: None,
        }
    }
}

impl Default for AccessRules {
    fn default() -> Self {
        Self {
            allow: vec!["*".to_owned()],
            deny: Vec::new(),
            hide: Vec::new(),
        }
    }
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

impl PartialQuota {
    /// The limits that hold, those of `default` where nothing is said.
    #[must_use]
    pub fn over(self, default: Quota) -> Quota {
        Quota {
            monthly_budget: self.monthly_budget.unwrap_or(default.monthly_budget),
            max_calls_per_minute: self
                .max_calls_per_minute
                .unwrap_or(default.max_calls_per_minute),
            max_calls_per_day: self.max_calls_per_day.unwrap_or(default.max_calls_per_day),
            max_cost_per_call: self.max_cost_per_call.unwrap_or(default.max_cost_per_call),
            max_running: self.max_running.or(default.max_running),
        }
    }
}

impl From<Quota> for PartialQuota {
    fn from(quota: Quota) -> Self {
        Self {
            monthly_budget: Some(quota.monthly_budget),
            max_calls_per_minute: Some(quota.max_calls_per_minute),
            max_calls_per_day: Some(quota.max_calls_per_day),
            max_cost_per_call: Some(quota.max_cost_per_call),
            max_running: quota.max_running,
        }
    }
}

impl PolicyFile {
    /// The limits of the client called `name`, as the file alone says them.
    #[must_use]
    pub fn quota_of(&self, name: &str) -> Quota {
        let partial = self.clients.get(name).map(|client| client.quota);
        partial.unwrap_or_default().over(self.default_quota)
    }

    /// Lists of the client called `name`, as the file alone says them.
    #[must_use]
    pub fn access_of(&self, name: &str) -> Access {
        let client = self.clients.get(name);
        let tools = client.and_then(|client| client.tools.clone());
        let resources = client.and_then(|client| client.resources.clone());
        let prompts = client.and_then(|client| client.prompts.clone());
        Access {
            tools: tools.unwrap_or_else(|| self.default.tools.clone()),
            resources: resources.unwrap_or_else(|| self.default.resources.clone()),
            prompts: prompts.unwrap_or_else(|| self.default.prompts.clone()),
        }
    }
}

impl Access {
    /// The lists of tools, resources and prompts, in this order.
    fn lists(&self) -> [Option<&AccessRules>; 3] {
        [&self.tools, &self.resources, &self.prompts].map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_inherits_what_it_does_not_set() {
        let quota = PartialQuota {
            max_calls_per_day: Some(5),
            ..PartialQuota::default()
        };
        let rules = AccessRules {
            allow: vec![],
            ..AccessRules::default()
        };
        let client = Client {
            quota,
            tools: Some(rules.clone()),
            ..Client::default()
        };
        let file = PolicyFile {
            clients: [("ci".to_owned(), client)].into(),
            ..PolicyFile::default()
        };
        let expected = Quota {
            max_calls_per_day: 5,
            ..Quota::default()
        };
        assert_eq!(file.quota_of("ci"), expected);
        assert_eq!(file.quota_of("stranger"), Quota::default());
        let access = file.access_of("ci");
        assert_eq!(
            (access.tools, access.resources),
            (rules, AccessRules::default())
        );
    }
}
