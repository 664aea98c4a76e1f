//! The configured rules as governance understands them.

use std::collections::BTreeMap;

use adapter_skills::SkillCatalog;
use gateway::{capability_facts, resource_capability, tool_capability};
use governance::{
    CapabilityFacts, Micros, Policy, PolicyError, PolicySpec, Quota, RateLimits, Rules, TimeWindows,
};

use crate::config::{self, Access, AccessRules, Governance};

/// Builds the policy in force.
///
/// # Errors
///
/// A pattern, a role or a condition that cannot be used.
pub(super) fn policy(config: &Governance, skills: &SkillCatalog) -> Result<Policy, PolicyError> {
    let mut capabilities = capability_facts(skills, &TimeWindows::trading_hours());
    super::services::inherit_facts(&mut capabilities, skills);
    for (name, rule) in &config.tools {
        let facts = capabilities.entry(tool_capability(name)).or_default();
        *facts = over(rule, std::mem::take(facts));
    }
    let principals: BTreeMap<_, _> = config
        .clients
        .keys()
        .map(|name| {
            let rules = rules(&config.access_of(name), config.quota_of(name));
            (name.clone(), rules)
        })
        .collect();
    let spec = PolicySpec {
        default: rules(&config.default, config.default_quota),
        principals,
        capabilities,
        ..PolicySpec::default()
    };
    Policy::new(if config.enabled {
        spec
    } else {
        spec.without_limits()
    })
}

/// What an operator has configured wins over what a skill says of itself.
fn over(rule: &config::ToolRule, skill: CapabilityFacts) -> CapabilityFacts {
    CapabilityFacts {
        estimated_cost: rule.estimated_cost.map(micros).or(skill.estimated_cost),
        limits: RateLimits {
            per_minute: rule.max_calls_per_minute.or(skill.limits.per_minute),
            per_day: rule.max_calls_per_day.or(skill.limits.per_day),
        },
        ..skill
    }
}

/// What is allowed or denied can be seen; what is in neither list, or hidden, does not exist.
fn rules(access: &Access, quota: config::Quota) -> Rules {
    let named = |select: fn(&AccessRules) -> &[String]| -> Vec<String> {
        let tools = select(&access.tools).iter().map(|it| tool_capability(it));
        let resources = select(&access.resources)
            .iter()
            .map(|it| resource_capability(it));
        tools.chain(resources).collect()
    };
    let (allow, deny) = (named(|it| &it.allow), named(|it| &it.deny));
    Rules {
        visible: allow.iter().chain(&deny).cloned().collect(),
        hidden: named(|it| &it.hide),
        allow,
        deny,
        quota: Quota {
            monthly_budget: Some(micros(quota.monthly_budget)),
            max_calls_per_minute: Some(quota.max_calls_per_minute),
            max_calls_per_day: Some(quota.max_calls_per_day),
            max_cost_per_call: Some(micros(quota.max_cost_per_call)),
        },
        // Reads are counted apart from calls, and limited to as many.
        reads: RateLimits {
            per_minute: Some(quota.max_calls_per_minute),
            per_day: Some(quota.max_calls_per_day),
        },
        ..Rules::default()
    }
}

fn micros(amount: config::Micros) -> Micros {
    Micros(amount.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use governance::Kind;

    fn access(allow: &[&str], deny: &[&str], hide: &[&str]) -> AccessRules {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        AccessRules {
            allow: list(allow),
            deny: list(deny),
            hide: list(hide),
        }
    }

    fn policy_of(config: &Governance) -> Policy {
        policy(config, &SkillCatalog::default()).unwrap()
    }

    #[test]
    fn allow_deny_and_hide_mean_what_the_file_says() {
        let config = Governance {
            default: Access {
                tools: access(
                    &["stock-*", "refund-*"],
                    &["stock-write-off"],
                    &["refund-*"],
                ),
                resources: access(&[], &[], &[]),
            },
            ..Governance::default()
        };
        let policy = policy_of(&config);
        let rows = [
            ("tool/stock-count", true, true),
            ("tool/stock-write-off", true, false),
            ("tool/refund-issue", false, false),
            ("tool/anything", false, false),
            ("resource/skill://a/b", false, false),
        ];
        for (capability, visible, permitted) in rows {
            assert_eq!(
                (
                    policy.visible("x", capability),
                    policy.permitted("x", capability)
                ),
                (visible, permitted),
                "{capability}"
            );
        }
    }

    #[test]
    fn without_governance_everything_may_be_done() {
        let config = Governance {
            enabled: false,
            default: Access {
                tools: access(&[], &[], &["*"]),
                resources: access(&[], &[], &["*"]),
            },
            ..Governance::default()
        };
        let policy = policy_of(&config);
        assert!(policy.permitted("x", "tool/y"));
        let hints = policy.hints("x", "tool/y", Kind::Tool);
        assert_eq!(hints.max_calls_per_minute, None);
    }
}
