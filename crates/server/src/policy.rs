//! The configured rules as governance understands them.

use std::collections::BTreeMap;
use std::time::Duration;

use adapter_skills::SkillCatalog;
use adapter_tools::ToolSet;
use governance::{
    Access as Opened, BreakerSpec, CapabilityFacts, Condition, Confirmation, Days, Effect, Micros,
    Policy, PolicyError, PolicySpec, Quota, RateLimits, Risk, RoleRules, Rules, TimeOfDay,
    TimeWindow, TimeWindows, Zone,
};
use mcp_server::{BrokenSkill, capability_facts, hold_back, resource_capability, tool_capability};

use config::{
    self, Access, AccessRules, Config, Governance, PartialQuota, ToolRule, UnmatchedRules, Window,
};

/// Builds the policy in force for these tools.
///
/// # Errors
///
/// A pattern, a role or a condition that cannot be used.
pub(super) fn policy(
    config: &Config,
    skills: &SkillCatalog,
    tools: &ToolSet,
) -> Result<Policy, PolicyError> {
    holding(config, skills, tools, &BTreeMap::new())
}

/// The same, with these capabilities held back, each for a reason.
///
/// # Errors
///
/// As [`policy`].
pub(super) fn holding(
    config: &Config,
    skills: &SkillCatalog,
    tools: &ToolSet,
    held: &BTreeMap<String, String>,
) -> Result<Policy, PolicyError> {
    let broken = match config.tools.broken_skill {
        config::BrokenSkill::Refuse => BrokenSkill::Refuse,
        config::BrokenSkill::Confirm => BrokenSkill::Confirm,
    };
    let mut spec = spec(&config.governance, skills, tools, broken);
    if config.governance.enabled {
        weigh(&mut spec, &config.switches, tools);
        for (capability, why) in held {
            let facts = spec.capabilities.entry(capability.clone()).or_default();
            facts.held = Some(why.as_str().into());
        }
    }
    Policy::new(spec)
}

/// Leaves to a tool what the application's own configuration leaves to it: nothing, or what an operator
/// confirms.
fn weigh(spec: &mut PolicySpec, switches: &config::Switches, tools: &ToolSet) {
    for tool in tools.iter() {
        let Some((weight @ ..=99, place)) = switches.weights.get(tool.own_name()) else {
            continue;
        };
        let facts = spec.capabilities.entry(tool_capability(tool.name()));
        let facts = facts.or_default();
        match weight {
            0 => facts.held = Some(format!("{place}: its `migration_weight` is 0").into()),
            _ => facts.confirmation = Some(Confirmation::Operator),
        }
    }
}

fn spec(
    config: &Governance,
    skills: &SkillCatalog,
    tools: &ToolSet,
    broken: BrokenSkill,
) -> PolicySpec {
    let trading_hours = hours(&config.trading_hours).unwrap_or_else(TimeWindows::trading_hours);
    let mut capabilities = capability_facts(skills, tools, &trading_hours);
    for (name, rule) in &config.tools {
        let facts = capabilities.entry(tool_capability(name)).or_default();
        *facts = over(rule, std::mem::take(facts));
    }
    let is_strict = config.unmatched_rules == UnmatchedRules::Error;
    hold_back(&mut capabilities, skills, tools, broken, is_strict);
    let everybody = |own: Rules| Rules {
        confirm: [all_of(&config.confirm), own.confirm].concat(),
        conditions: [conditions(&config.conditions), own.conditions].concat(),
        ..own
    };
    let principals = config.clients.iter();
    let principals = principals.map(|(name, client)| {
        let own = match client.roles.is_empty() {
            true => Rules {
                // What it does not set gives way to what roles set that a token vouches for, and what
                // it does not say is then as they say.
                default_limits: true,
                beside_roles: Some(
                    Lists::of(client.tools.as_ref(), client.resources.as_ref()).into(),
                ),
                ..with_limits(rules(&config.access_of(name)), client.quota)
            },
            false => besides_roles(client),
        };
        let own = Rules {
            confirm: all_of(&client.confirm),
            conditions: conditions(&client.conditions),
            ..own
        };
        (name.clone(), everybody(own))
    });
    let roles = config.roles.iter();
    let spec = PolicySpec {
        default: everybody(Rules {
            quota: limits(config.default_quota),
            reads: reads(limits(config.default_quota)),
            max_running: config.default_quota.max_running,
            beside_roles: Some(Opened::default()),
            ..rules(&config.default)
        }),
        principals: principals.collect(),
        roles: roles.map(|(name, it)| (name.clone(), role(it))).collect(),
        capabilities,
        default_breaker: breaker(config.breaker),
        ..PolicySpec::default()
    };
    match config.enabled {
        true => spec,
        false => spec.without_limits(),
    }
}

/// What an operator has configured wins over what a skill says of itself.
fn over(rule: &ToolRule, skill: CapabilityFacts) -> CapabilityFacts {
    CapabilityFacts {
        held: skill.held,
        estimated_cost: rule.estimated_cost.map(micros).or(skill.estimated_cost),
        limits: RateLimits {
            per_minute: rule.max_calls_per_minute.or(skill.limits.per_minute),
            per_day: rule.max_calls_per_day.or(skill.limits.per_day),
        },
        risk: rule.risk.as_deref().map_or(skill.risk, risk),
        confirmation: match rule.confirmation {
            Some(config::Confirmation::None) => None,
            Some(config::Confirmation::User) => Some(Confirmation::User),
            Some(config::Confirmation::Operator) => Some(Confirmation::Operator),
            None => skill.confirmation,
        },
        cooldown: rule
            .cooldown_seconds
            .map(Duration::from_secs)
            .or(skill.cooldown),
        windows: rule.windows.as_deref().and_then(hours).or(skill.windows),
        max_running: rule.max_running.or(skill.max_running),
        breaker: rule.breaker.map(breaker).or(skill.breaker),
    }
}

fn risk(names: &[config::Risk]) -> Risk {
    Risk {
        read_only: names.contains(&config::Risk::ReadOnly),
        mutating: names.contains(&config::Risk::Mutating),
        external: names.contains(&config::Risk::External),
        financial: names.contains(&config::Risk::Financial),
    }
}

fn breaker(breaker: config::Breaker) -> BreakerSpec {
    BreakerSpec {
        failures: breaker.failures,
        rest: Duration::from_secs(breaker.rest_seconds),
    }
}

/// `None` without windows. The configuration has checked that they are in one zone.
fn hours(windows: &[Window]) -> Option<TimeWindows> {
    let zone = Zone::iana(&windows.first()?.zone).ok()?;
    let time = |minutes: u16| {
        // The end of a day is the beginning of the next.
        let minutes = minutes % (24 * 60);
        let part = |number: u16| u8::try_from(number).unwrap_or_default();
        TimeOfDay::new(part(minutes / 60), part(minutes % 60)).unwrap_or_default()
    };
    let window = |window: &Window| TimeWindow {
        days: Days::new((0..7).filter(|day| window.days[usize::from(*day)])),
        from: time(window.from),
        to: time(window.to),
    };
    Some(TimeWindows {
        zone,
        windows: windows.iter().map(window).collect(),
    })
}

/// What is allowed or denied can be seen; what is in neither list, or hidden, does not exist.
fn rules(access: &Access) -> Rules {
    let lists = Lists::of(Some(&access.tools), Some(&access.resources));
    Rules {
        visible: lists.visible,
        hidden: lists.hidden,
        allow: lists.allow,
        deny: lists.deny,
        ..Rules::default()
    }
}

fn with_limits(rules: Rules, quota: PartialQuota) -> Rules {
    let limits = partial_limits(quota);
    Rules {
        quota: limits,
        reads: reads(limits),
        max_running: quota.max_running,
        ..rules
    }
}

/// The rules of a client with roles: what it does not say it has of them.
fn besides_roles(client: &config::Client) -> Rules {
    let lists = Lists::of(client.tools.as_ref(), client.resources.as_ref());
    let own = Rules {
        visible: lists.visible,
        hidden: lists.hidden,
        allow: lists.allow,
        deny: lists.deny,
        roles: client.roles.clone(),
        ..Rules::default()
    };
    with_limits(own, client.quota)
}

fn role(role: &config::Role) -> RoleRules {
    let lists = Lists::of(role.tools.as_ref(), role.resources.as_ref());
    let limits = partial_limits(role.quota);
    RoleRules {
        visible: lists.visible,
        hidden: lists.hidden,
        allow: lists.allow,
        deny: lists.deny,
        confirm: all_of(&role.confirm),
        conditions: conditions(&role.conditions),
        quota: limits,
        reads: reads(limits),
        max_running: role.quota.max_running,
    }
}

/// Patterns over capabilities.
struct Lists {
    visible: Vec<String>,
    hidden: Vec<String>,
    allow: Vec<String>,
    deny: Vec<String>,
}

impl Lists {
    /// Nothing, where nothing is said.
    fn of(tools: Option<&AccessRules>, resources: Option<&AccessRules>) -> Self {
        let named = |select: fn(&AccessRules) -> &[String]| -> Vec<String> {
            let tools = tools.into_iter().flat_map(select);
            let resources = resources.into_iter().flat_map(select);
            tools
                .map(|name| tool_capability(name))
                .chain(resources.map(|uri| resource_capability(uri)))
                .collect()
        };
        let (allow, deny) = (named(|it| &it.allow), named(|it| &it.deny));
        Self {
            visible: [allow.as_slice(), deny.as_slice()].concat(),
            hidden: named(|it| &it.hide),
            allow,
            deny,
        }
    }
}

impl From<Lists> for Opened {
    fn from(lists: Lists) -> Self {
        Self {
            visible: lists.visible,
            hidden: lists.hidden,
            allow: lists.allow,
            deny: lists.deny,
        }
    }
}

fn all_of(patterns: &[String]) -> Vec<String> {
    patterns.iter().map(|it| tool_capability(it)).collect()
}

fn conditions(conditions: &BTreeMap<String, config::Condition>) -> Vec<Condition> {
    let condition = |(name, condition): (&String, &config::Condition)| Condition {
        name: name.clone(),
        capability: tool_capability(&condition.tool),
        when: condition.when.clone(),
        effect: match condition.effect {
            config::Effect::Deny => Effect::Deny,
            config::Effect::Confirm => Effect::Confirm,
            config::Effect::AllowOnly => Effect::AllowOnly,
        },
    };
    conditions.iter().map(condition).collect()
}

fn limits(quota: config::Quota) -> Quota {
    Quota {
        monthly_budget: Some(micros(quota.monthly_budget)),
        max_calls_per_minute: Some(quota.max_calls_per_minute),
        max_calls_per_day: Some(quota.max_calls_per_day),
        max_cost_per_call: Some(micros(quota.max_cost_per_call)),
    }
}

fn partial_limits(quota: PartialQuota) -> Quota {
    Quota {
        monthly_budget: quota.monthly_budget.map(micros),
        max_calls_per_minute: quota.max_calls_per_minute,
        max_calls_per_day: quota.max_calls_per_day,
        max_cost_per_call: quota.max_cost_per_call.map(micros),
    }
}

/// Reads are counted apart from calls, and limited to as many.
fn reads(quota: Quota) -> RateLimits {
    RateLimits {
        per_minute: quota.max_calls_per_minute,
        per_day: quota.max_calls_per_day,
    }
}

fn micros(amount: config::Micros) -> Micros {
    Micros(amount.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Micros as Amount;
    use governance::{Ask, Caller, ConfirmationRule, Kind, Reason, Timestamp};
    use std::sync::Arc;

    fn access(allow: &[&str], deny: &[&str], hide: &[&str]) -> AccessRules {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        AccessRules {
            allow: list(allow),
            deny: list(deny),
            hide: list(hide),
        }
    }

    fn policy_of(config: &Governance) -> Policy {
        let config = Config {
            governance: config.clone(),
            ..Config::default()
        };
        policy(&config, &SkillCatalog::default(), &ToolSet::default()).unwrap()
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

    fn ask<'a>(principal: &'a str, tool: &'a str) -> Ask<'a> {
        Ask {
            principal,
            roles: &[],
            capability: tool,
            kind: Kind::Tool,
            estimate: None,
            // A Saturday.
            now: Timestamp(1_795_255_200_000),
            arguments: None,
        }
    }

    #[test]
    fn a_client_with_roles_has_what_they_say_and_its_own_limits() {
        let role = |allow: &[&str], deny: &[&str], per_day| config::Role {
            tools: Some(access(allow, deny, &[])),
            quota: PartialQuota {
                max_calls_per_day: per_day,
                ..PartialQuota::default()
            },
            ..config::Role::default()
        };
        let client = config::Client {
            roles: vec!["teller".to_owned(), "auditor".to_owned()],
            quota: PartialQuota {
                max_calls_per_minute: Some(3),
                ..PartialQuota::default()
            },
            ..config::Client::default()
        };
        let config = Governance {
            roles: [
                ("teller".to_owned(), role(&["pay-*"], &[], Some(10))),
                (
                    "auditor".to_owned(),
                    role(&["list-*"], &["pay-out"], Some(20)),
                ),
            ]
            .into(),
            clients: [("ana".to_owned(), client)].into(),
            ..Governance::default()
        };
        let policy = policy_of(&config);
        let rows = [
            ("tool/pay-in", true, true),
            ("tool/pay-out", true, false),
            ("tool/list-all", true, true),
            ("tool/other", false, false),
        ];
        for (tool, visible, permitted) in rows {
            assert_eq!(
                (policy.visible("ana", tool), policy.permitted("ana", tool)),
                (visible, permitted),
                "{tool}"
            );
        }
        let hints = policy.hints("ana", "tool/pay-in", Kind::Tool);
        assert_eq!(hints.max_calls_per_minute, Some(3));
        assert_eq!(hints.max_calls_per_day, Some(20));
        assert_eq!(hints.max_cost_per_call, Some(Micros(10_000_000)));
    }

    /// As for a client whose entry has the roles.
    #[test]
    fn roles_that_are_vouched_for_take_the_place_of_the_default() {
        let only = |tool: &str| AccessRules {
            allow: vec![tool.to_owned()],
            ..AccessRules::default()
        };
        let role = config::Role {
            tools: Some(only("r")),
            ..config::Role::default()
        };
        let entry = config::Client {
            tools: Some(only("e")),
            ..config::Client::default()
        };
        for hide in [vec!["*".to_owned()], Vec::new()] {
            let policy = policy_of(&Governance {
                default: Access {
                    tools: AccessRules {
                        hide: hide.clone(),
                        ..AccessRules::default()
                    },
                    ..Access::default()
                },
                roles: [("teller".to_owned(), role.clone())].into(),
                clients: [
                    ("entry".to_owned(), entry.clone()),
                    ("quota".to_owned(), config::Client::default()),
                ]
                .into(),
                ..Governance::default()
            });
            let permitted = |principal, roles: &[Arc<str>], tool| {
                policy.permitted(Caller { principal, roles }, tool)
            };
            let teller = ["teller".into()];
            for principal in ["x", "quota"] {
                assert!(permitted(principal, &teller, "tool/r"), "{hide:?}");
                assert!(!permitted(principal, &teller, "tool/other"), "{hide:?}");
                assert_eq!(permitted(principal, &[], "tool/other"), hide.is_empty());
            }
            assert!(permitted("entry", &teller, "tool/r") && permitted("entry", &teller, "tool/e"));
            assert!(!permitted("entry", &teller, "tool/other"));
        }
    }

    /// What a client's entry does not set is the default, until somebody vouches for a role of it.
    #[test]
    fn limits_of_roles_that_are_vouched_for_go_over_default_ones_and_not_over_own_ones() {
        let client = config::Client {
            quota: PartialQuota {
                max_calls_per_day: Some(5),
                ..PartialQuota::default()
            },
            ..config::Client::default()
        };
        let teller = config::Role {
            quota: PartialQuota {
                max_calls_per_minute: Some(7_000),
                max_calls_per_day: Some(70_000),
                ..PartialQuota::default()
            },
            ..config::Role::default()
        };
        let config = Governance {
            clients: [("ana".to_owned(), client)].into(),
            roles: [("teller".to_owned(), teller)].into(),
            ..Governance::default()
        };
        let default = config::Quota::default();
        let policy = policy_of(&config);
        let limits = |principal, roles: &[Arc<str>]| {
            let hints = policy.hints(Caller { principal, roles }, "tool/x", Kind::Tool);
            (hints.max_calls_per_minute, hints.max_calls_per_day)
        };
        let default_minute = Some(default.max_calls_per_minute);
        let default_day = Some(default.max_calls_per_day);
        let teller = ["teller".into()];
        assert_eq!(limits("ana", &[]), (default_minute, Some(5)));
        assert_eq!(limits("ana", &teller), (Some(7_000), Some(5)));
        assert_eq!(limits("x", &[]), (default_minute, default_day));
        assert_eq!(limits("x", &teller), (Some(7_000), Some(70_000)));
        let ask = ask("ana", "tool/x");
        let charges = policy.check(ask).unwrap().charges;
        assert_eq!(charges.budget, Some(micros(default.monthly_budget)));
        assert_eq!(charges.max_running, default.max_running);
    }

    #[test]
    fn what_is_said_of_a_tool_is_enforced() {
        let hours: Window = "Mon-Fri 08:00-24:00 Europe/Berlin".parse().unwrap();
        let rule = ToolRule {
            estimated_cost: Amount::parse("0.50").ok(),
            risk: Some(vec![config::Risk::External, config::Risk::Financial]),
            confirmation: Some(config::Confirmation::Operator),
            ..ToolRule::default()
        };
        let closed = ToolRule {
            windows: Some(vec![hours]),
            ..ToolRule::default()
        };
        let mut config = Governance {
            tools: [("pay".to_owned(), rule), ("closed".to_owned(), closed)].into(),
            confirm: vec!["ask-*".to_owned()],
            clients: [("ana".to_owned(), config::Client::default())].into(),
            breaker: config::Breaker {
                failures: 7,
                ..config::Breaker::default()
            },
            ..Governance::default()
        };
        let policy = policy_of(&config);
        let verdict = policy.check(ask("x", "tool/pay")).unwrap();
        assert_eq!(verdict.confirmation, Some(Confirmation::Operator));
        assert_eq!(verdict.charges.cost, Micros(500_000));
        assert_eq!(verdict.charges.capability_rates.per_minute, Some(60));
        assert!(verdict.risk.is_mutating());
        assert_eq!(verdict.breaker.failures, 7);
        let denial = policy.check(ask("x", "tool/closed")).unwrap_err();
        assert_eq!(denial.reason, Reason::TimeWindow);
        // Everybody's rules are everybody's, also of clients with rules of their own.
        for principal in ["x", "ana"] {
            let verdict = policy.check(ask(principal, "tool/ask-me")).unwrap();
            let rule = ConfirmationRule::Pattern("tool/ask-*".into());
            assert_eq!(verdict.rule, Some(rule), "{principal}");
        }
        config.enabled = false;
        let policy = policy_of(&config);
        assert!(policy.check(ask("x", "tool/closed")).is_ok());
        let verdict = policy.check(ask("x", "tool/pay")).unwrap();
        assert_eq!(verdict.confirmation, None);
    }
}
