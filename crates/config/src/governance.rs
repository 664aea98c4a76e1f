//! The rules, as configured.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::money::Micros;
use super::rules::{Approvals, Breaker, Condition, Idempotency, Role, ToolRule};
use super::window::Window;

/// Who may do what, how often, and at what cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Governance {
    /// Apply the rules. Calls are recorded either way.
    pub enabled: bool,
    /// Treatment of rules that match no tool and no resource on offer.
    pub unmatched_rules: UnmatchedRules,
    /// The currency of every amount, as three capital letters.
    #[schemars(extend("format" = "currency"))]
    pub currency: String,
    /// The limits of each client for which nothing else is said.
    pub default_quota: Quota,
    /// What a client sees and may use if nothing else is said about it.
    pub default: Access,
    /// What clients of one kind have in common, by the name of the role.
    pub roles: BTreeMap<String, Role>,
    /// What is different for single clients, by their name.
    pub clients: BTreeMap<String, Client>,
    /// Tools, by patterns, of which each call must be confirmed, whoever calls.
    #[schemars(extend("x-items" = "pattern"))]
    pub confirm: Vec<String>,
    /// Conditions on everybody's calls, by a name of the operator's choice.
    pub conditions: BTreeMap<String, Condition>,
    /// What is known about single tools, by their name.
    pub tools: BTreeMap<String, ToolRule>,
    /// When a tool may be called whose skill says `trading_hours_only`.
    #[schemars(extend("x-items" = "window"))]
    pub trading_hours: Vec<Window>,
    /// When a tool that keeps failing is given a rest.
    pub breaker: Breaker,
    /// Calls that wait until somebody decides.
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
            enabled: true,
            unmatched_rules: UnmatchedRules::default(),
            currency: "USD".to_owned(),
            default_quota: Quota::default(),
            default: Access::default(),
            roles: BTreeMap::new(),
            clients: BTreeMap::new(),
            confirm: Vec::new(),
            conditions: BTreeMap::new(),
            tools: BTreeMap::new(),
            trading_hours: vec![Window {
                days: [true, true, true, true, true, false, false],
                from: 9 * 60 + 30,
                to: 15 * 60,
                zone: "Asia/Shanghai".to_owned(),
            }],
            breaker: Breaker::default(),
            approvals: Approvals::default(),
            idempotency: Idempotency::default(),
            max_clients: governance::DEFAULT_MAX_PRINCIPALS,
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

/// The limits of one client.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// What calls may cost in a calendar month.
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

impl Default for Quota {
    fn default() -> Self {
        Self {
            monthly_budget: Micros::from_units(500),
            max_calls_per_minute: 60,
            max_calls_per_day: 1_000,
            max_cost_per_call: Micros::from_units(10),
            max_running: None,
        }
    }
}

/// What is visible and usable.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Access {
    /// Patterns over tool names.
    pub tools: AccessRules,
    /// Patterns over resource URIs.
    pub resources: AccessRules,
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

impl Default for AccessRules {
    fn default() -> Self {
        Self {
            allow: vec!["*".to_owned()],
            deny: Vec::new(),
            hide: Vec::new(),
        }
    }
}

/// What is different for one client. What is absent is as its roles say, or without roles as in the
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
    /// Replaces `governance.default_quota`, limit by limit.
    pub quota: PartialQuota,
    /// Tools, by patterns, of which each of its calls must be confirmed.
    #[schemars(extend("x-items" = "pattern"))]
    pub confirm: Vec<String>,
    /// Conditions on its calls, by a name of the operator's choice.
    pub conditions: BTreeMap<String, Condition>,
}

/// Limits that replace those of the default quota.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PartialQuota {
    /// What calls may cost in a calendar month.
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

impl PartialQuota {
    /// The limits that hold, `default` where nothing is said.
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

impl Governance {
    /// The limits of the client called `name`.
    pub fn quota_of(&self, name: &str) -> Quota {
        let partial = self
            .clients
            .get(name)
            .map(|client| client.quota)
            .unwrap_or_default();
        partial.over(self.default_quota)
    }

    /// What the client called `name` sees and may use.
    pub fn access_of(&self, name: &str) -> Access {
        let client = self.clients.get(name);
        let tools = client.and_then(|client| client.tools.clone());
        let resources = client.and_then(|client| client.resources.clone());
        Access {
            tools: tools.unwrap_or_else(|| self.default.tools.clone()),
            resources: resources.unwrap_or_else(|| self.default.resources.clone()),
        }
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
        let governance = Governance {
            clients: [("ci".to_owned(), client)].into(),
            ..Governance::default()
        };
        let expected = Quota {
            max_calls_per_day: 5,
            ..Quota::default()
        };
        assert_eq!(governance.quota_of("ci"), expected);
        assert_eq!(governance.quota_of("stranger"), Quota::default());
        let access = governance.access_of("ci");
        assert_eq!(
            (access.tools, access.resources),
            (rules, AccessRules::default())
        );
    }
}
