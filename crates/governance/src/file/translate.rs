//! Translation of a policy file to the rules that a policy is made of.

use super::{
    AccessRules, Client, Condition, Confirmation, PartialQuota, PolicyFile, PolicyFileError, Risk,
    Role, ToolRule,
};
use crate::{
    spec::{self, CapabilityFacts, PolicySpec, RateLimits, RoleRules, Rules},
    windows::TimeWindows,
};
use std::{collections::BTreeMap, time::Duration};

impl TryFrom<PolicyFile> for PolicySpec {
    type Error = PolicyFileError;

    fn try_from(file: PolicyFile) -> Result<Self, PolicyFileError> {
        let mistakes = file.mistakes("");
        if !mistakes.is_empty() {
            return Err(PolicyFileError { mistakes });
        }
        let mut capabilities = BTreeMap::new();
        file.apply_to(&mut capabilities);
        Ok(file.spec(capabilities))
    }
}

impl PolicyFile {
    /// Hours of tools whose skill says `trading_hours_only`.
    #[must_use]
    pub fn trading_hours(&self) -> TimeWindows {
        TimeWindows::of(&self.trading_hours).unwrap_or_else(TimeWindows::trading_hours)
    }

    /// Puts what the file says of tools and prompts over what is known of them otherwise.
    pub fn apply_to(&self, capabilities: &mut BTreeMap<String, CapabilityFacts>) {
        for (name, rule) in &self.tools {
            let facts = capabilities.entry(tool(name)).or_default();
            *facts = over(rule, std::mem::take(facts));
        }
        for (name, rule) in &self.prompts {
            let facts = capabilities.entry(format!("prompt/{name}")).or_default();
            *facts = over(rule, std::mem::take(facts));
        }
    }

    /// The rules of the file, which has been [checked](Self::mistakes), and what is known of
    /// capabilities: see [`apply_to`](Self::apply_to).
    #[must_use]
    pub fn spec(&self, capabilities: BTreeMap<String, CapabilityFacts>) -> PolicySpec {
        let everybody = |own: Rules| Rules {
            confirm: [tools(&self.confirm), own.confirm].concat(),
            conditions: [conditions(&self.conditions), own.conditions].concat(),
            ..own
        };
        let principals = self.clients.iter();
        let principals =
            principals.map(|(name, client)| (name.clone(), everybody(self.rules(name, client))));
        let roles = self.roles.iter();
        let default = Rules {
            beside_roles: Some(spec::Access::default()),
            ..with(access(self.default.lists()), self.default_quota.into())
        };
        let spec = PolicySpec {
            default: everybody(default),
            principals: principals.collect(),
            roles: roles.map(|(name, it)| (name.clone(), role(it))).collect(),
            capabilities,
            default_breaker: self.breaker,
            ..PolicySpec::default()
        };
        match self.enabled {
            true => spec,
            false => spec.without_limits(),
        }
    }

    fn rules(&self, name: &str, client: &Client) -> Rules {
        let own = access([&client.tools, &client.resources, &client.prompts].map(Option::as_ref));
        let rules = match client.roles.is_empty() {
            true => {
                let with_defaults = self.access_of(name);
                let lists = access(with_defaults.lists());
                Rules {
                    // What it does not set gives way to what roles set that a token vouches for,
                    // and what it does not say is then as they say.
                    default_limits: true,
                    beside_roles: Some(own),
                    ..with(lists, client.quota)
                }
            }
            // What it does not say it has of its roles.
            false => Rules {
                roles: client.roles.clone(),
                ..with(own, client.quota)
            },
        };
        Rules {
            confirm: tools(&client.confirm),
            conditions: conditions(&client.conditions),
            ..rules
        }
    }
}

fn tool(name: &str) -> String {
    format!("tool/{name}")
}

fn tools(patterns: &[String]) -> Vec<String> {
    patterns.iter().map(|pattern| tool(pattern)).collect()
}

/// Lists of capabilities: what is allowed or denied can be seen; what is in neither list, or hidden, does
/// not exist.
fn access(lists: [Option<&AccessRules>; 3]) -> spec::Access {
    let named = |select: fn(&AccessRules) -> &[String]| -> Vec<String> {
        let kinds = ["tool", "resource", "prompt"].into_iter().zip(lists);
        kinds
            .flat_map(|(kind, rules)| {
                let names = rules.into_iter().flat_map(select);
                names.map(move |name| format!("{kind}/{name}"))
            })
            .collect()
    };
    let (allow, deny) = (named(|it| &it.allow), with_rows(named(|it| &it.deny)));
    spec::Access {
        visible: [allow.as_slice(), deny.as_slice()].concat(),
        hidden: with_rows(named(|it| &it.hide)),
        allow,
        deny,
    }
}

/// Patterns that forbid, with those of the rows of each table of a database that they name: what may not be read as a whole
/// may not be read row by row either.
fn with_rows(mut patterns: Vec<String>) -> Vec<String> {
    let may_be_table = |it: &&String| {
        let address = it.strip_prefix("resource/").unwrap_or_default();
        let scheme = match address.split_once('*') {
            Some((before, _)) => before.starts_with("db:") || "db://".starts_with(before),
            None => address.starts_with("db:"),
        };
        scheme && !it.ends_with('*')
    };
    let of_rows = patterns.iter().filter(may_be_table);
    let of_rows: Vec<_> = of_rows.map(|it| format!("{it}/*")).collect();
    patterns.extend(of_rows);
    patterns
}

fn with(access: spec::Access, quota: PartialQuota) -> Rules {
    let spec::Access {
        visible,
        hidden,
        allow,
        deny,
    } = access;
    Rules {
        visible,
        hidden,
        allow,
        deny,
        quota: limits(quota),
        reads: reads(quota),
        max_running: quota.max_running,
        ..Rules::default()
    }
}

fn role(role: &Role) -> RoleRules {
    let spec::Access {
        visible,
        hidden,
        allow,
        deny,
    } = access([&role.tools, &role.resources, &role.prompts].map(Option::as_ref));
    RoleRules {
        visible,
        hidden,
        allow,
        deny,
        confirm: tools(&role.confirm),
        conditions: conditions(&role.conditions),
        quota: limits(role.quota),
        reads: reads(role.quota),
        max_running: role.quota.max_running,
    }
}

fn limits(quota: PartialQuota) -> spec::Quota {
    spec::Quota {
        monthly_budget: quota.monthly_budget,
        max_calls_per_minute: quota.max_calls_per_minute,
        max_calls_per_day: quota.max_calls_per_day,
        max_cost_per_call: quota.max_cost_per_call,
    }
}

/// Reads are counted apart from calls, and limited to as many.
fn reads(quota: PartialQuota) -> RateLimits {
    RateLimits {
        per_minute: quota.max_calls_per_minute,
        per_day: quota.max_calls_per_day,
    }
}

fn conditions(conditions: &BTreeMap<String, Condition>) -> Vec<spec::Condition> {
    conditions
        .iter()
        .map(|(name, it)| condition(name, it))
        .collect()
}

pub(super) fn condition(name: &str, condition: &Condition) -> spec::Condition {
    spec::Condition {
        name: name.to_owned(),
        capability: tool(&condition.tool),
        when: condition.when.clone(),
        effect: condition.effect,
    }
}

/// Facts of a tool: what an operator has configured wins over what its skill says.
fn over(rule: &ToolRule, known: CapabilityFacts) -> CapabilityFacts {
    CapabilityFacts {
        held: known.held,
        estimated_cost: rule.estimated_cost.or(known.estimated_cost),
        limits: RateLimits {
            per_minute: rule.max_calls_per_minute.or(known.limits.per_minute),
            per_day: rule.max_calls_per_day.or(known.limits.per_day),
        },
        risk: rule.risk.as_deref().map_or(known.risk, risk),
        confirmation: match rule.confirmation {
            Some(Confirmation::None) => None,
            Some(Confirmation::User) => Some(spec::Confirmation::User),
            Some(Confirmation::Operator) => Some(spec::Confirmation::Operator),
            None => known.confirmation,
        },
        cooldown: rule
            .cooldown_seconds
            .map(Duration::from_secs)
            .or(known.cooldown),
        windows: rule
            .windows
            .as_deref()
            .and_then(TimeWindows::of)
            .or(known.windows),
        max_running: rule.max_running.or(known.max_running),
        breaker: rule.breaker.or(known.breaker),
    }
}

fn risk(names: &[Risk]) -> spec::Risk {
    spec::Risk {
        read_only: names.contains(&Risk::ReadOnly),
        mutating: names.contains(&Risk::Mutating),
        external: names.contains(&Risk::External),
        financial: names.contains(&Risk::Financial),
    }
}
