//! Deny wins, then confirm, then allow; and it can be told which rule decided.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{
    JANUARY, admit, ask, governor,
    made::{condition, names, role_of, rules},
    ready,
};
use governance::{
    Access, Ask, CapabilityFacts, Check, ConditionError, Confirmation, ConfirmationRule,
    EXTERNAL_PER_MINUTE, Effect, ExpressionError, Governor, Kind, Micros, Policy, PolicyError,
    PolicySpec, Quota, RateLimits, Reason, Risk, RoleRules, Rules, RulesOf, StepOutcome,
    TimeWindows, Timestamp,
};
use proptest::prelude::*;
use std::time::Duration;

fn policy(spec: PolicySpec) -> Policy {
    Policy::new(spec).unwrap()
}

/// A principal that may use nothing by itself, with these roles.
fn with_roles(roles: &[(&str, RoleRules)]) -> PolicySpec {
    let rules = Rules {
        visible: Vec::new(),
        allow: Vec::new(),
        roles: roles.iter().map(|(name, _)| (*name).to_owned()).collect(),
        ..Rules::default()
    };
    let roles = roles
        .iter()
        .map(|(name, rules)| ((*name).to_owned(), rules.clone()));
    PolicySpec {
        principals: [("a".to_owned(), rules)].into(),
        roles: roles.collect(),
        ..PolicySpec::default()
    }
}

/// Answer of a policy to a call: permission, the person who has to confirm, or the reason for a
/// refusal.
fn says(
    policy: &Policy,
    capability: &str,
    arguments: &str,
) -> Result<Option<Confirmation>, Reason> {
    let ask = Ask {
        capability,
        arguments: Some(arguments),
        ..ask("a", JANUARY)
    };
    match policy.check(ask) {
        Ok(verdict) => Ok(verdict.confirmation),
        Err(denial) => Err(denial.reason),
    }
}

const USER: Result<Option<Confirmation>, Reason> = Ok(Some(Confirmation::User));
const OPERATOR: Result<Option<Confirmation>, Reason> = Ok(Some(Confirmation::Operator));
const FREE: Result<Option<Confirmation>, Reason> = Ok(None);
const DENIED: Result<Option<Confirmation>, Reason> = Err(Reason::Permission);
const UNSEEN: Result<Option<Confirmation>, Reason> = Err(Reason::NotVisible);

#[test]
fn roles_add_what_they_allow_and_win_with_what_they_deny() {
    let clerk = RoleRules {
        visible: names(&["tool/*"]),
        allow: names(&["tool/read.*", "tool/refund"]),
        confirm: names(&["tool/refund"]),
        ..RoleRules::default()
    };
    let auditor = RoleRules {
        visible: names(&["resource/*"]),
        hidden: names(&["tool/secret"]),
        allow: names(&["*"]),
        deny: names(&["tool/write.*"]),
        ..RoleRules::default()
    };
    let rows = [
        ("tool/read.x", FREE, UNSEEN, FREE),
        ("tool/refund", USER, UNSEEN, USER),
        ("tool/write.x", DENIED, UNSEEN, DENIED),
        ("tool/other", DENIED, UNSEEN, FREE),
        ("tool/secret", DENIED, UNSEEN, UNSEEN),
        ("resource/x", UNSEEN, FREE, FREE),
    ];
    let first = policy(with_roles(&[("clerk", clerk.clone())]));
    let second = policy(with_roles(&[("auditor", auditor.clone())]));
    let both = policy(with_roles(&[("clerk", clerk), ("auditor", auditor)]));
    for (capability, of_first, of_second, of_both) in rows {
        assert_eq!(says(&first, capability, "{}"), of_first, "{capability}");
        assert_eq!(says(&second, capability, "{}"), of_second, "{capability}");
        assert_eq!(says(&both, capability, "{}"), of_both, "{capability}");
    }
}

#[test]
fn limits_are_ones_own_else_the_most_generous_else_the_default() {
    let role = |per_minute, per_day| RoleRules {
        visible: names(&["*"]),
        allow: names(&["*"]),
        quota: Quota {
            max_calls_per_minute: per_minute,
            max_calls_per_day: per_day,
            ..Quota::default()
        },
        ..RoleRules::default()
    };
    let mut spec = with_roles(&[
        ("few", role(Some(3), Some(30))),
        ("many", role(Some(5), None)),
        ("none", role(None, None)),
    ]);
    spec.default.quota = Quota {
        monthly_budget: Some(Micros(7)),
        max_calls_per_minute: Some(1),
        max_calls_per_day: Some(1),
        max_cost_per_call: Some(Micros(6)),
    };
    let hints = |spec: &PolicySpec| policy(spec.clone()).hints("a", "tool/x", Kind::Tool);
    assert_eq!(hints(&spec).max_calls_per_minute, Some(5));
    assert_eq!(hints(&spec).max_calls_per_day, Some(30));
    assert_eq!(hints(&spec).max_cost_per_call, Some(Micros(6)));
    let own = spec.principals.get_mut("a").unwrap();
    own.quota.max_calls_per_minute = Some(2);
    assert_eq!(hints(&spec).max_calls_per_minute, Some(2));
    // Without roles, its rules stand alone, unless they say otherwise.
    spec.principals.get_mut("a").unwrap().roles.clear();
    assert_eq!(hints(&spec).max_calls_per_day, None);
    spec.principals.get_mut("a").unwrap().default_limits = true;
    assert_eq!(hints(&spec).max_calls_per_day, Some(1));
    assert_eq!(hints(&spec).max_calls_per_minute, Some(2));
}

#[test]
fn what_cannot_be_understood_is_no_policy_and_says_where() {
    let role = with_roles(&[("clerk", RoleRules::default())]);
    let mut missing = role.clone();
    missing.roles.clear();
    assert_eq!(
        Policy::new(missing).unwrap_err(),
        PolicyError::UnknownRole {
            rules: RulesOf::Principal("a".to_owned()),
            role: "clerk".to_owned()
        }
    );
    let mut pattern = role.clone();
    pattern.roles.get_mut("clerk").unwrap().confirm = names(&[""]);
    let error = Policy::new(pattern).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a pattern of the rules of the role \"clerk\" cannot be used"
    );
    let mut unnamed = role.clone();
    let conditions = vec![condition("large", "tool/*", "args.amount >", Effect::Deny)];
    unnamed.roles.get_mut("clerk").unwrap().conditions = conditions;
    let error = Policy::new(unnamed).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the condition \"large\" of the rules of the role \"clerk\" cannot be used"
    );
    let PolicyError::Condition {
        source: ConditionError::Expression(ExpressionError::Syntax { line, column, .. }),
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((line, column), (1, 14));
    for (name, capability) in [("", "tool/*"), ("x", "")] {
        let mut spec = PolicySpec::default();
        spec.default.conditions = vec![condition(name, capability, "true", Effect::Deny)];
        assert!(matches!(
            Policy::new(spec),
            Err(PolicyError::Condition { .. })
        ));
    }
}

#[test]
fn conditions_decide_and_what_they_cannot_say_is_held_against_the_caller() {
    use Effect::{AllowOnly, Confirm, Deny};
    let large = r#"{"amount": 501}"#;
    let small = r#"{"amount": 500}"#;
    let other = r#"{"amount": "501"}"#;
    let rows = [
        (Deny, large, DENIED),
        (Deny, small, FREE),
        (Deny, other, DENIED),
        (Deny, "{}", DENIED),
        (Deny, "no JSON", DENIED),
        (Confirm, large, USER),
        (Confirm, small, FREE),
        (Confirm, other, USER),
        (Confirm, "{}", USER),
        (Confirm, "no JSON", USER),
        (AllowOnly, large, FREE),
        (AllowOnly, small, DENIED),
        (AllowOnly, other, DENIED),
        (AllowOnly, "{}", DENIED),
        (AllowOnly, "no JSON", DENIED),
    ];
    for (effect, arguments, expected) in rows {
        let mut spec = PolicySpec::default();
        spec.default.conditions = vec![condition("large", "tool/pay", "args.amount > 500", effect)];
        let policy = policy(spec);
        assert_eq!(
            says(&policy, "tool/pay", arguments),
            expected,
            "{effect:?} {arguments}"
        );
        assert_eq!(
            says(&policy, "tool/x", "no JSON"),
            FREE,
            "it is about another"
        );
        let ask = Ask {
            capability: "tool/pay",
            ..ask("a", JANUARY)
        };
        let without = policy.check(ask).map(|it| it.confirmation);
        let empty = says(&policy, "tool/pay", "{}");
        assert_eq!(without.map_err(|denial| denial.reason), empty);
    }
}

#[test]
fn a_denying_condition_wins_over_a_confirming_one_and_is_named() {
    let mut spec = PolicySpec::default();
    spec.default.conditions = vec![
        condition("1 confirms", "*", "true", Effect::Confirm),
        condition(
            "2 denies",
            "*",
            "principal == 'a' && size(roles) == 0",
            Effect::Deny,
        ),
    ];
    let both = policy(spec.clone());
    let denial = both.check(ask("a", JANUARY)).unwrap_err();
    assert_eq!(denial.condition.as_deref(), Some("2 denies"));
    assert_eq!(
        denial.to_string(),
        "the condition \"2 denies\" does not permit this call"
    );
    let verdict = both.check(ask("b", JANUARY)).unwrap();
    assert_eq!(
        verdict.rule,
        Some(ConfirmationRule::Condition("1 confirms".into()))
    );
    // What patterns deny, no condition is asked about.
    spec.default.deny = names(&["*"]);
    let denial = policy(spec).check(ask("a", JANUARY)).unwrap_err();
    assert_eq!(
        (denial.reason, denial.condition),
        (Reason::Permission, None)
    );
}

#[test]
fn conditions_of_roles_count_and_know_of_roles() {
    let clerk = RoleRules {
        visible: names(&["*"]),
        allow: names(&["*"]),
        conditions: vec![condition(
            "not at night",
            "tool/*",
            "'night' in roles",
            Effect::Deny,
        )],
        ..RoleRules::default()
    };
    let night = RoleRules::default();
    let by_day = policy(with_roles(&[("clerk", clerk.clone())]));
    let by_night = policy(with_roles(&[("clerk", clerk), ("night", night)]));
    assert_eq!(says(&by_day, "tool/x", "{}"), FREE);
    assert_eq!(says(&by_night, "tool/x", "{}"), DENIED);
}

#[test]
fn the_strongest_confirmation_counts_and_money_is_always_confirmed() {
    let facts = |financial, confirmation| CapabilityFacts {
        risk: Risk {
            financial,
            ..Risk::default()
        },
        confirmation,
        ..CapabilityFacts::default()
    };
    let (user, operator) = (Some(Confirmation::User), Some(Confirmation::Operator));
    let rows = [
        (facts(false, None), false, FREE, None),
        (
            facts(false, None),
            true,
            USER,
            Some(ConfirmationRule::Pattern("tool/*".into())),
        ),
        (
            facts(true, None),
            false,
            USER,
            Some(ConfirmationRule::Financial),
        ),
        (
            facts(false, user),
            true,
            USER,
            Some(ConfirmationRule::Capability),
        ),
        (
            facts(true, operator),
            true,
            OPERATOR,
            Some(ConfirmationRule::Capability),
        ),
        (
            facts(false, operator),
            true,
            OPERATOR,
            Some(ConfirmationRule::Capability),
        ),
    ];
    for (facts, is_pattern, expected, rule) in rows {
        let mut spec = PolicySpec::default();
        spec.capabilities.insert("tool/x".to_owned(), facts.clone());
        if is_pattern {
            spec.default.confirm = names(&["resource/*", "tool/*"]);
        }
        let limitless = policy(spec.clone().without_limits());
        let policy = policy(spec);
        assert_eq!(says(&policy, "tool/x", "{}"), expected, "{facts:?}");
        let verdict = policy.check(ask("a", JANUARY)).unwrap();
        assert_eq!(verdict.rule, rule);
        assert_eq!(verdict.risk.is_mutating(), facts.risk.financial);
        assert_eq!(
            policy.hints("a", "tool/x", Kind::Tool).confirmation,
            verdict.confirmation
        );
        let limitless = limitless.check(ask("a", JANUARY)).unwrap();
        assert_eq!(limitless.confirmation, None, "governance is off");
        assert_eq!(limitless.risk.is_mutating(), facts.risk.financial);
    }
}

#[test]
fn a_capability_that_is_held_back_is_refused_to_everybody() {
    const WHY: &str = "its skill cannot be read";
    let mut spec = PolicySpec::default();
    let facts = CapabilityFacts {
        held: Some(WHY.into()),
        ..CapabilityFacts::default()
    };
    spec.capabilities.insert("tool/x".to_owned(), facts);
    let governor = governor(spec);
    let denial = admit(&governor, ask("a", JANUARY)).unwrap_err();
    assert_eq!((denial.reason, denial.retry_after), (Reason::Held, None));
    assert!(
        governor.quota().tracked_principals() == 0,
        "nothing is counted"
    );
    assert!(governor.visible("a", "tool/x"));
    let policy = governor.policy();
    assert_eq!(policy.held("tool/x"), Some(WHY));
    assert_eq!(policy.held("tool/y"), None);
    let explained = ready(governor.explain(ask("a", JANUARY))).unwrap();
    assert_eq!(explained.reason(), Some(Reason::Held));
    assert!(explained.steps.iter().any(|step| step.rule == WHY));
}

#[test]
fn a_call_may_cost_as_much_as_its_limit_and_no_more() {
    let mut spec = PolicySpec::default();
    spec.default.quota.max_cost_per_call = Some(Micros(10));
    let policy = policy(spec);
    let says = |cost| {
        let ask = Ask {
            estimate: Some(Micros(cost)),
            ..ask("a", JANUARY)
        };
        policy.check(ask).map(drop).map_err(|denial| denial.reason)
    };
    assert_eq!(says(10), Ok(()));
    assert_eq!(says(11), Err(Reason::CostPerCall));
}

#[test]
fn an_estimate_is_the_capabilitys_own_else_the_default_and_reads_cost_nothing() {
    let calendar = governance::Calendar::posix("CST-8").unwrap();
    let mut spec = PolicySpec {
        default_estimated_cost: Micros(5),
        calendar: calendar.clone(),
        ..PolicySpec::default()
    };
    let facts = CapabilityFacts {
        estimated_cost: Some(Micros(7)),
        ..CapabilityFacts::default()
    };
    spec.capabilities.insert("tool/x".to_owned(), facts);
    let policy = policy(spec);
    assert_eq!(policy.estimate("tool/x", Kind::Tool), Micros(7));
    assert_eq!(policy.estimate("tool/y", Kind::Tool), Micros(5));
    assert_eq!(policy.estimate("resource/y", Kind::Resource), Micros::ZERO);
    assert_eq!(policy.calendar(), &calendar);
}

#[test]
fn what_is_external_is_never_without_a_rate() {
    let facts = |per_day| CapabilityFacts {
        limits: RateLimits {
            per_minute: None,
            per_day,
        },
        risk: Risk {
            external: true,
            ..Risk::default()
        },
        ..CapabilityFacts::default()
    };
    for (facts, minute) in [
        (facts(None), Some(EXTERNAL_PER_MINUTE)),
        (facts(Some(1)), None),
    ] {
        let mut spec = PolicySpec::default();
        spec.capabilities.insert("tool/x".to_owned(), facts);
        let governor = governor(spec.clone());
        let remaining = admit(&governor, ask("a", JANUARY)).unwrap().remaining();
        assert_eq!(remaining.minute_limit, minute);
        let limitless = common::governor(spec.without_limits());
        let remaining = admit(&limitless, ask("a", JANUARY)).unwrap().remaining();
        assert_eq!((remaining.minute_limit, remaining.day_limit), (None, None));
    }
}

#[test]
fn outside_of_its_hours_a_tool_is_refused_until_they_begin() {
    let mut spec = PolicySpec::default();
    let facts = CapabilityFacts {
        windows: Some(TimeWindows::trading_hours()),
        ..CapabilityFacts::default()
    };
    spec.capabilities.insert("tool/x".to_owned(), facts);
    let governor = governor(spec);
    // A Thursday, midnight in London, eight in the morning in Shanghai.
    let denial = admit(&governor, ask("a", JANUARY)).unwrap_err();
    assert_eq!(denial.reason, Reason::TimeWindow);
    let wait = denial.retry_after.unwrap();
    assert_eq!(wait, Duration::from_secs(90 * 60));
    let opens = JANUARY + u64::try_from(wait.as_millis()).unwrap();
    assert!(admit(&governor, ask("a", opens - 1)).is_err());
    assert!(admit(&governor, ask("a", opens)).is_ok());
    assert!(denial.is_retryable());
}

fn spec_of_everything() -> PolicySpec {
    let mut spec = with_roles(&[(
        "clerk",
        RoleRules {
            visible: names(&["tool/*"]),
            allow: names(&["tool/*"]),
            deny: names(&["tool/b", "tool/a"]),
            conditions: vec![
                condition("x", "tool/*", "args.a > 1", Effect::Deny),
                condition("y", "tool/*", "args.a > 2", Effect::Confirm),
            ],
            quota: Quota {
                max_calls_per_day: Some(9),
                ..Quota::default()
            },
            ..RoleRules::default()
        },
    )]);
    let facts = CapabilityFacts {
        cooldown: Some(Duration::from_secs(3)),
        windows: Some(TimeWindows::trading_hours()),
        ..CapabilityFacts::default()
    };
    spec.capabilities.insert("tool/x".to_owned(), facts);
    spec
}

#[test]
fn the_same_rules_have_the_same_version_and_others_another() {
    let version = |spec: &PolicySpec| policy(spec.clone()).version();
    let spec = spec_of_everything();
    let first = version(&spec);
    assert_eq!(first, version(&spec));
    // Numbers of payment cards have thirteen digits and more.
    assert!(first < 1_000_000_000_000);
    let mut same = spec.clone();
    let clerk = same.roles.get_mut("clerk").unwrap();
    clerk.deny = names(&["tool/a", "tool/b", "tool/a"]);
    clerk.conditions.reverse();
    assert_eq!(version(&same), first, "lists are sets");
    // A version that anything depends on must never change by itself.
    assert_eq!(version(&PolicySpec::default()), DEFAULT_VERSION);

    type Change = fn(&mut PolicySpec);
    let changes: [Change; 25] = [
        |it| it.default.beside_roles = Some(Access::default()),
        |it| {
            it.default.beside_roles = Some(Access {
                deny: names(&["*"]),
                ..Access::default()
            });
        },
        |it| it.default.default_limits = true,
        |it| it.default_estimated_cost = Micros(1),
        |it| it.default_breaker.failures = 1,
        |it| it.default_breaker.rest = Duration::from_nanos(1),
        |it| it.calendar = governance::Calendar::posix("CST-8").unwrap(),
        |it| it.default.visible.clear(),
        |it| it.default.hidden = names(&["*"]),
        |it| it.default.allow.clear(),
        |it| it.default.deny = names(&["*"]),
        |it| it.default.confirm = names(&["*"]),
        |it| it.default.quota.monthly_budget = Some(Micros(0)),
        |it| it.default.reads.per_day = Some(0),
        |it| it.default.max_running = Some(0),
        |it| it.default.roles = names(&["clerk"]),
        |it| it.principals.get_mut("a").unwrap().allow = names(&["*"]),
        |it| it.roles.get_mut("clerk").unwrap().max_running = Some(0),
        |it| {
            it.roles.get_mut("clerk").unwrap().conditions[0]
                .when
                .push(' ')
        },
        |it| it.roles.get_mut("clerk").unwrap().conditions[0].effect = Effect::AllowOnly,
        |it| it.capabilities.get_mut("tool/x").unwrap().risk.external = true,
        |it| it.capabilities.get_mut("tool/x").unwrap().confirmation = Some(Confirmation::User),
        |it| it.capabilities.get_mut("tool/x").unwrap().cooldown = None,
        |it| it.capabilities.get_mut("tool/x").unwrap().windows = None,
        |it| it.capabilities.get_mut("tool/x").unwrap().breaker = Some(Default::default()),
    ];
    let mut seen = std::collections::BTreeSet::from([first]);
    for (index, change) in changes.into_iter().enumerate() {
        let mut changed = spec.clone();
        change(&mut changed);
        assert!(seen.insert(version(&changed)), "change {index} is none");
    }
}

/// Version of `PolicySpec::default()`.
const DEFAULT_VERSION: u64 = 93_907_612_044;

#[test]
fn an_explanation_names_every_check_and_the_rule_that_decided() {
    let mut spec = with_roles(&[(
        "clerk",
        RoleRules {
            visible: names(&["tool/*"]),
            allow: names(&["tool/*"]),
            confirm: names(&["tool/refund*"]),
            conditions: vec![
                condition(
                    "a large one",
                    "tool/refund",
                    "args.amount > 500",
                    Effect::Deny,
                ),
                condition("any", "tool/other", "true", Effect::Deny),
            ],
            ..RoleRules::default()
        },
    )]);
    spec.default.quota.max_calls_per_minute = Some(1);
    spec.default_breaker.failures = 3;
    let governor = governor(spec);
    let about = |amount| Ask {
        capability: "tool/refund",
        arguments: Some(amount),
        ..ask("a", JANUARY)
    };
    let explain = |ask| ready(governor.explain(ask)).unwrap();
    let rows = |ask| -> Vec<(Check, StepOutcome, String)> {
        let steps = explain(ask).steps;
        steps
            .into_iter()
            .map(|it| (it.check, it.outcome, it.rule))
            .collect()
    };
    let passed = |check, rule: &str| (check, StepOutcome::Passed, rule.to_owned());
    let confirm = StepOutcome::Confirm(Confirmation::User);
    let refused = StepOutcome::Refused(Reason::Permission);
    assert_eq!(
        rows(about(r#"{"amount": 501}"#)),
        [
            passed(
                Check::Visible,
                "visible \"tool/*\" of the rules of the role \"clerk\""
            ),
            passed(
                Check::Permitted,
                "allow \"tool/*\" of the rules of the role \"clerk\""
            ),
            (
                Check::Condition,
                refused,
                "the condition \"a large one\" is true".to_owned()
            ),
            passed(
                Check::CostPerCall,
                "0.00001 is expected, and there is no limit"
            ),
            (
                Check::Confirmation,
                confirm,
                "the pattern \"tool/refund*\"".to_owned()
            ),
            passed(Check::Breaker, "it has not failed of late"),
            passed(Check::RateMinute, "1 of 1 calls are left in this minute"),
        ]
    );
    let small = explain(about(r#"{"amount": 1}"#));
    assert_eq!(
        (small.reason(), small.confirmation()),
        (None, Some(Confirmation::User))
    );
    let none = explain(about("{}")).steps.remove(2);
    assert_eq!(
        none.rule,
        "the condition \"a large one\" fails, or is neither true nor false"
    );
    let _ = admit(&governor, about(r#"{"amount": 1}"#)).unwrap();
    assert_eq!(
        explain(about(r#"{"amount": 1}"#)).reason(),
        Some(Reason::RateMinute)
    );
    let hidden = Ask {
        capability: "resource/x",
        kind: Kind::Resource,
        ..ask("a", JANUARY)
    };
    assert_eq!(rows(hidden)[0].2, "no pattern of visible matches");
}

/// The definition, as plain as it is slow.
fn plainly(all: &[&Rules], capability: &str, n: Option<i64>) -> Result<bool, Reason> {
    let matches = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => capability.starts_with(prefix),
        None => capability == pattern,
    };
    let any = |of: fn(&Rules) -> &Vec<String>| all.iter().any(|it| of(it).iter().any(matches));
    if any(|it| &it.hidden) || !any(|it| &it.visible) {
        return Err(Reason::NotVisible);
    }
    if any(|it| &it.deny) || !any(|it| &it.allow) {
        return Err(Reason::Permission);
    }
    let mut is_confirmed = any(|it| &it.confirm);
    for condition in all.iter().flat_map(|it| &it.conditions) {
        if !matches(&condition.capability) {
            continue;
        }
        let truth = match (condition.when.split_once("args.n "), n) {
            (None, n) => Some(n.is_some()),
            (Some(_), None) => None,
            (Some((_, rest)), Some(n)) => {
                let limit: i64 = rest[2..].parse().unwrap();
                Some(if rest.starts_with('<') {
                    n < limit
                } else {
                    limit < n
                })
            }
        };
        match (condition.effect, truth) {
            (Effect::Deny, Some(false)) | (Effect::AllowOnly, Some(true)) => {}
            (Effect::Deny | Effect::AllowOnly, _) => return Err(Reason::Permission),
            (Effect::Confirm, truth) => is_confirmed |= truth != Some(false),
        }
    }
    Ok(is_confirmed)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(512)
    })]

    /// For any spread of rules over a principal and its roles, the decision is that of the
    /// definition, and the explanation agrees.
    #[test]
    fn decisions_are_as_defined(
        own in rules(),
        roles in proptest::collection::vec(rules(), 0..3),
        capability in "tool/[abc]",
        n in proptest::option::of(0..4_i64),
    ) {
        let all: Vec<&Rules> = std::iter::once(&own).chain(&roles).collect();
        let expected = plainly(&all, &capability, n);
        let named: Vec<(String, RoleRules)> = roles
            .iter()
            .enumerate()
            .map(|(index, rules)| (format!("role {index}"), role_of(rules.clone())))
            .collect();
        let own = Rules {
            roles: named.iter().map(|(name, _)| name.clone()).collect(),
            ..own.clone()
        };
        let governor = governor(PolicySpec {
            principals: [("a".to_owned(), own)].into(),
            roles: named.into_iter().collect(),
            ..PolicySpec::default()
        });
        let arguments = n.map_or("{}".to_owned(), |n| format!(r#"{{"n": {n}}}"#));
        let ask = Ask { capability: &capability, arguments: Some(&arguments), ..ask("a", JANUARY) };
        let verdict = governor.policy().check(ask).map(|it| it.confirmation.is_some());
        prop_assert_eq!(verdict.map_err(|denial| denial.reason), expected);
        // And with the counters.
        let mut held = Vec::new();
        for _ in 0..3 {
            let explained = ready(governor.explain(ask)).unwrap();
            match admit(&governor, ask) {
                Ok(permit) => {
                    prop_assert_eq!(explained.reason(), None);
                    prop_assert_eq!(explained.confirmation(), permit.confirmation());
                    held.push(permit);
                }
                Err(denial) => prop_assert_eq!(explained.reason(), Some(denial.reason)),
            }
        }
    }

    /// No text that could be in a file causes a panic.
    #[test]
    fn any_text_is_an_expression_or_an_error(
        parts in proptest::collection::vec(
            prop_oneof![
                "args|principal|roles|has|all|exists|map|filter|size|in|true|null|[a-z]",
                r"[-+*/%<>=!&|?:.,()\[\]{}]",
                "[0-9]{1,20}|0x[0-9a-f]{0,20}|[0-9.]{1,5}e[0-9]{1,4}|[0-9]u",
                "\"|'|'''|b'|r'|'[a-z]*'|\\\\|\\PC",
            ],
            0..40,
        ),
        space in " ?",
        arguments in prop_oneof![
            Just(r#"{"a": [1, {"b": "c"}, null], "x": 1.5}"#.to_owned()),
            "\\PC*",
        ],
    ) {
        let when = parts.join(&space);
        let mut spec = PolicySpec::default();
        spec.default.conditions = vec![condition("x", "*", &when, Effect::Deny)];
        if let Ok(policy) = Policy::new(spec) {
            let ask = Ask { arguments: Some(&arguments), now: Timestamp(0), ..ask("a", 0) };
            let _ = policy.check(ask);
        }
    }
}

#[test]
fn a_governor_and_its_permits_say_what_the_policy_says() {
    let spec = PolicySpec {
        default: Rules {
            hidden: names(&["tool/secret"]),
            confirm: names(&["tool/p*"]),
            quota: Quota {
                max_cost_per_call: Some(Micros(7)),
                ..Quota::default()
            },
            ..Rules::default()
        },
        capabilities: [(
            "tool/pay".to_owned(),
            CapabilityFacts {
                risk: Risk {
                    mutating: true,
                    ..Risk::default()
                },
                estimated_cost: Some(Micros(5)),
                ..CapabilityFacts::default()
            },
        )]
        .into(),
        ..PolicySpec::default()
    };
    let policy = policy(spec.clone());
    let governor = governor(spec);
    assert!(!governor.visible("a", "tool/secret"));
    assert!(governor.visible("a", "tool/pay"));
    let view = (policy.version(), policy.view_of("a"));
    assert_eq!(governor.view_of("a"), view);
    let of = |capability| Ask {
        capability,
        estimate: None,
        ..ask("a", JANUARY)
    };
    let pay = admit(&governor, of("tool/pay")).unwrap();
    assert!(pay.risk().mutating && pay.durable_start());
    assert_eq!(pay.policy_version(), policy.version());
    assert_eq!(pay.confirmation(), Some(Confirmation::User));
    assert_eq!(pay.confirmation_rule(), Some("the pattern \"tool/p*\""));
    assert_eq!(
        (pay.reserved(), pay.max_cost()),
        (Micros(5), Some(Micros(7)))
    );
    assert_eq!(
        pay.name(),
        None,
        "what is counted in memory is settled there"
    );
    let look = admit(&governor, of("tool/look")).unwrap();
    assert!(!look.risk().mutating && !look.durable_start());
    assert_eq!(
        (look.confirmation(), look.confirmation_rule()),
        (None, None)
    );
    let usage = ready(governor.usage(Timestamp(JANUARY))).unwrap();
    assert_eq!((usage.len(), usage[0].running), (1, 2));
    drop(look);
    let settled =
        pay.settle_on_record(Micros(6), governance::Ending::Succeeded, Timestamp(JANUARY));
    assert_eq!(settled.cost, Micros(6));
    let usage = ready(governor.usage(Timestamp(JANUARY))).unwrap();
    assert_eq!((usage[0].running, usage[0].spent), (0, Micros(6)));
}

#[test]
fn what_is_reserved_has_a_name_by_which_a_record_can_settle_it() {
    let quota = std::sync::Arc::new(common::Shared::default());
    let governor = Governor::new(policy(PolicySpec::default()), std::sync::Arc::clone(&quota));
    let permit = ready(governor.admit(ask("a", JANUARY))).unwrap();
    let name = permit.name().unwrap();
    assert_eq!((&*name.principal, name.node, name.sequence), ("a", 1, 2));
    permit.settle_on_record(Micros(6), governance::Ending::Succeeded, Timestamp(JANUARY));
    let permit = ready(governor.admit(ask("a", JANUARY))).unwrap();
    permit.settle(Micros(7), governance::Ending::Succeeded, Timestamp(JANUARY));
    assert_eq!(*quota.on_record.lock().unwrap(), [Micros(6)]);
}
