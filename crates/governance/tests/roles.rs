//! Roles that callers bring along count as if the policy gave them to their names, while they have
//! them.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{
    JANUARY, admit, ask, governor,
    made::{condition, names, role_of, rules},
    ready,
};
use governance::{
    Access, Ask, Caller, Effect, Hints, Kind, Micros, Policy, PolicySpec, Quota, RateLimits,
    Reason, RoleRules, Rules, Timestamp, UnknownRoles,
};
use proptest::{prelude::*, sample::subsequence};
use std::sync::Arc;

fn roles(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|&name| name.into()).collect()
}

fn caller<'a>(principal: &'a str, roles: &'a [Arc<str>]) -> Caller<'a> {
    Caller { principal, roles }
}

fn open(roles: &[Arc<str>]) -> Ask<'_> {
    Ask {
        capability: "tool/open",
        roles,
        ..ask("anna", JANUARY)
    }
}

/// Every principal may use `tool/open`, clerks the names that begin with `tool/stock-`, and a
/// barred principal nothing.
fn shop() -> PolicySpec {
    let role = |allow: &[&str], deny: &[&str]| RoleRules {
        visible: names(allow),
        allow: names(allow),
        deny: names(deny),
        ..RoleRules::default()
    };
    PolicySpec {
        default: Rules {
            visible: names(&["tool/open"]),
            allow: names(&["tool/open"]),
            ..Rules::default()
        },
        roles: [
            ("barred".to_owned(), role(&[], &["*"])),
            ("clerk".to_owned(), role(&["tool/stock-*"], &[])),
        ]
        .into(),
        ..PolicySpec::default()
    }
}

#[test]
fn what_is_for_those_without_roles_is_not_for_those_with_some() {
    let mut spec = shop();
    spec.default = Rules {
        hidden: names(&["tool/*"]),
        beside_roles: Some(Access::default()),
        ..Rules::default()
    };
    let policy = Policy::new(spec).unwrap();
    let clerk = roles(&["clerk"]);
    let of_another_server = roles(&["another server's"]);
    assert!(policy.permitted(caller("anna", &clerk), "tool/stock-count"));
    assert!(!policy.visible(caller("anna", &clerk), "tool/open"));
    for nothing in [&[], &of_another_server[..]] {
        assert!(!policy.visible(caller("anna", nothing), "tool/stock-count"));
    }
    let steps = policy.explain(Ask {
        capability: "tool/stock-count",
        ..open(&clerk)
    });
    assert!(steps[0].rule.contains("clerk"), "{steps:?}");
}

#[test]
fn a_role_counts_for_as_long_as_it_is_brought_along() {
    let policy = Policy::new(shop()).unwrap();
    let (clerk, both) = (roles(&["clerk"]), roles(&["barred", "clerk"]));
    let rows = [
        (&[][..], "tool/open", true, true),
        (&[], "tool/stock-count", false, false),
        (&clerk, "tool/open", true, true),
        (&clerk, "tool/stock-count", true, true),
        (&clerk, "tool/other", false, false),
        (&both, "tool/stock-count", true, false),
        (&[], "tool/stock-count", false, false),
    ];
    for (roles, capability, visible, permitted) in rows {
        let caller = caller("anna", roles);
        assert_eq!(policy.visible(caller, capability), visible, "{caller:?}");
        assert_eq!(
            policy.permitted(caller, capability),
            permitted,
            "{caller:?}"
        );
    }
    assert_eq!(policy.view_of("anna"), policy.view_of("bert"));
    let view = |roles| policy.view_of(caller("anna", roles));
    assert_ne!(view(&[]), view(&clerk));
    assert_eq!(view(&clerk), policy.view_of(caller("bert", &clerk)));
}

#[test]
fn what_is_counted_belongs_to_the_name() {
    let mut spec = shop();
    spec.default.quota.max_calls_per_minute = Some(1);
    spec.roles
        .get_mut("clerk")
        .unwrap()
        .quota
        .max_calls_per_minute = Some(3);
    let governor = governor(spec);
    let clerk = roles(&["clerk"]);
    drop(admit(&governor, open(&[])).unwrap());
    let denial = admit(&governor, open(&[])).unwrap_err();
    assert_eq!(denial.reason, Reason::RateMinute);
    // The limit of a role goes over that for everybody, and what was used without it counts.
    let permit = admit(&governor, open(&clerk)).unwrap();
    assert_eq!(permit.remaining().minute, Some(1));
    let remaining = governor.remaining(caller("anna", &clerk), Kind::Tool, Timestamp(JANUARY));
    assert_eq!(ready(remaining).unwrap().minute_limit, Some(3));
}

#[test]
fn conditions_know_of_roles_that_the_policy_knows() {
    let mut spec = shop();
    spec.default.conditions = vec![condition(
        "clerks only",
        "tool/open",
        "roles == ['clerk']",
        Effect::AllowOnly,
    )];
    let policy = Policy::new(spec).unwrap();
    let allowed = |names: &[&str]| {
        let ask = Ask {
            capability: "tool/open",
            roles: &roles(names),
            ..ask("anna", JANUARY)
        };
        policy.check(ask).is_ok()
    };
    assert!(!allowed(&[]));
    assert!(allowed(&["clerk"]));
    assert!(allowed(&["offline_access", "clerk"]), "it is not known");
    assert!(!allowed(&["offline_access"]));
}

#[test]
fn unknown_roles_say_nothing_and_are_counted() {
    let governor = governor(shop());
    drop(admit(&governor, open(&roles(&["clerk"]))).unwrap());
    assert_eq!(governor.unknown_roles(), UnknownRoles::default());
    for _ in 0..2 {
        let brought = roles(&["Clerk", "openid", "clerk"]);
        drop(admit(&governor, open(&brought)).unwrap());
    }
    let seen = governor.unknown_roles();
    assert_eq!((seen.asks, seen.names), (2, roles(&["Clerk", "openid"])));
    // A name that has come to be known is not told of any more.
    let mut spec = shop();
    spec.roles.insert("Clerk".to_owned(), RoleRules::default());
    governor.replace_policy(Policy::new(spec).unwrap());
    assert_eq!(governor.unknown_roles().names, roles(&["openid"]));
    for number in 0..100 {
        let made_up = [Arc::from(format!("role {number}"))];
        drop(admit(&governor, open(&made_up)).unwrap());
    }
    let seen = governor.unknown_roles();
    assert_eq!(seen.asks, 102);
    assert!(seen.names.len() <= 64, "{}", seen.names.len());
}

#[test]
fn an_explanation_names_the_role_that_decided() {
    let governor = governor(shop());
    let clerk = roles(&["clerk", "openid"]);
    let ask = Ask {
        capability: "tool/stock-count",
        roles: &clerk,
        ..ask("anna", JANUARY)
    };
    let explained = ready(governor.explain(ask)).unwrap();
    assert_eq!(explained.reason(), None);
    assert_eq!(
        explained.steps[1].rule,
        "allow \"tool/stock-*\" of the rules of the role \"clerk\""
    );
    let explained = ready(governor.explain(Ask { roles: &[], ..ask })).unwrap();
    assert_eq!(explained.reason(), Some(Reason::NotVisible));
}

/// More combinations than are kept, from several threads: nobody gets what belongs to others.
#[test]
fn no_number_of_combinations_mixes_them_up() {
    const ROLES: usize = 11;
    let names: Vec<String> = (0..ROLES).map(|bit| format!("r{bit:02}")).collect();
    let role = |bit: usize| RoleRules {
        visible: vec![format!("tool/{bit}")],
        allow: vec![format!("tool/{bit}")],
        ..RoleRules::default()
    };
    let policy = Policy::new(PolicySpec {
        default: Rules {
            visible: Vec::new(),
            allow: Vec::new(),
            ..Rules::default()
        },
        roles: (0..ROLES)
            .map(|bit| (names[bit].clone(), role(bit)))
            .collect(),
        ..PolicySpec::default()
    })
    .unwrap();
    let look = &|set: usize| {
        let roles: Vec<Arc<str>> = (0..ROLES)
            .filter(|bit| set & (1 << bit) != 0)
            .map(|bit| names[bit].as_str().into())
            .collect();
        for bit in 0..ROLES {
            let visible = policy.visible(caller("anna", &roles), &format!("tool/{bit}"));
            assert_eq!(visible, set & (1 << bit) != 0, "{roles:?} {bit}");
        }
        policy.view_of(caller("anna", &roles))
    };
    let mut seen: Vec<_> = std::thread::scope(|scope| {
        let look_from = |start| {
            move || {
                let sets = (0..1_usize << ROLES).map(|step| (start + step) % (1 << ROLES));
                sets.map(|set| (look(set), set)).collect::<Vec<_>>()
            }
        };
        let threads = [0_usize, 700].map(|start| scope.spawn(look_from(start)));
        let seen = threads.map(|thread| thread.join().unwrap());
        seen.into_iter().flatten().collect()
    });
    // Different lists never have the same view, however often they were forgotten.
    seen.sort_unstable();
    for pair in seen.windows(2) {
        assert!(pair[0].0 != pair[1].0 || pair[0].1 == pair[1].1, "{pair:?}");
    }
}

const NAMES: [&str; 4] = ["role 0", "role 1", "role 2", "role 3"];

fn some_roles() -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(NAMES.to_vec(), 0..=NAMES.len())
}

/// Rules that may count beside roles.
fn beside() -> impl Strategy<Value = Option<Access>> {
    let access = rules().prop_map(|rules| Access {
        visible: rules.visible,
        hidden: rules.hidden,
        allow: rules.allow,
        deny: rules.deny,
    });
    proptest::option::of(access)
}

/// All answers about one capability.
fn told(policy: &Policy, caller: Caller<'_>, capability: &str, arguments: &str) -> Told {
    let ask = Ask {
        principal: caller.principal,
        roles: caller.roles,
        capability,
        kind: Kind::Tool,
        estimate: Some(Micros(10)),
        now: Timestamp(JANUARY),
        arguments: Some(arguments),
    };
    let verdict = policy.check(ask).map(|verdict| {
        let charges = verdict.charges;
        let limits = (charges.rates, charges.budget, charges.max_running);
        (
            verdict.confirmation,
            verdict.rule.map(|it| it.to_string()),
            limits,
        )
    });
    let explained = policy.explain(ask);
    Told {
        visible: policy.visible(caller, capability),
        permitted: policy.permitted(caller, capability),
        hints: policy.hints(caller, capability, Kind::Tool),
        verdict: verdict.map_err(|denial| (denial.reason, denial.condition)),
        explained: explained.iter().map(|step| step.outcome).collect(),
    }
}

type Allowed = (Option<governance::Confirmation>, Option<String>, Limits);

type Limits = (RateLimits, Option<Micros>, Option<u32>);

#[derive(Debug, PartialEq)]
struct Told {
    visible: bool,
    permitted: bool,
    hints: Hints,
    verdict: Result<Allowed, (Reason, Option<Box<str>>)>,
    explained: Vec<governance::StepOutcome>,
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(512)
    })]

    /// A policy that gives the roles to the name says the same, whatever else was asked before.
    #[test]
    fn roles_brought_along_count_as_if_they_were_configured(
        default in (rules(), beside()),
        own in proptest::option::of((rules(), beside(), some_roles(), any::<bool>())),
        all in proptest::collection::vec(rules(), NAMES.len()),
        brought in proptest::collection::vec((some_roles(), any::<bool>(), any::<bool>()), 1..6),
        n in proptest::option::of(0..4_i64),
    ) {
        let default = Rules { beside_roles: default.1, ..default.0 };
        let own = own.map(|(rules, beside_roles, roles, default_limits)| Rules {
            roles: names(&roles),
            default_limits,
            beside_roles,
            ..rules
        });
        let spec = PolicySpec {
            default: default.clone(),
            principals: own.clone().map(|own| ("a".to_owned(), own)).into_iter().collect(),
            roles: NAMES
                .iter()
                .zip(&all)
                .map(|(name, rules)| ((*name).to_owned(), role_of(rules.clone())))
                .collect(),
            ..PolicySpec::default()
        };
        let policy = Policy::new(spec.clone()).unwrap();
        let arguments = n.map_or("{}".to_owned(), |n| format!(r#"{{"n": {n}}}"#));
        for (brought, backwards, with_unknown) in brought {
            let base = own.clone().unwrap_or_else(|| match brought.is_empty() {
                true => default.clone(),
                // What is everybody's gives way to what somebody has in particular.
                false => Rules {
                    quota: Quota::default(),
                    reads: RateLimits::default(),
                    max_running: None,
                    ..default.clone()
                },
            });
            let base = match &base.beside_roles {
                Some(access) if !brought.is_empty() => Rules {
                    visible: access.visible.clone(),
                    hidden: access.hidden.clone(),
                    allow: access.allow.clone(),
                    deny: access.deny.clone(),
                    ..base
                },
                _ => base,
            };
            let has = [base.roles.clone(), names(&brought)].concat();
            let mut configured = spec.clone();
            configured.principals.insert("a".to_owned(), Rules { roles: has, ..base });
            let configured = Policy::new(configured).unwrap();
            let mut asserted = roles(&brought);
            if with_unknown {
                asserted.push("another server's".into());
            }
            if backwards {
                asserted.reverse();
            }
            for capability in ["tool/a", "tool/b", "tool/c"] {
                prop_assert_eq!(
                    told(&policy, caller("a", &asserted), capability, &arguments),
                    told(&configured, "a".into(), capability, &arguments)
                );
            }
        }
    }

    /// Lists are made once for each view, so that whoever shares one must see the same.
    #[test]
    fn whoever_shares_a_view_sees_the_same(
        default in rules(),
        own in rules(),
        all in proptest::collection::vec(rules(), 2),
        callers in proptest::collection::vec(
            (prop_oneof!["a", "b"], subsequence(NAMES[..2].to_vec(), 0..=2)),
            2..8,
        ),
    ) {
        let policy = Policy::new(PolicySpec {
            default,
            principals: [("a".to_owned(), own)].into(),
            roles: NAMES
                .iter()
                .zip(&all)
                .map(|(name, rules)| ((*name).to_owned(), role_of(rules.clone())))
                .collect(),
            ..PolicySpec::default()
        })
        .unwrap();
        let seen: Vec<_> = callers
            .iter()
            .map(|(principal, brought)| {
                let brought = roles(brought);
                let caller = caller(principal, &brought);
                let list: Vec<_> = ["tool/a", "tool/b", "tool/c"]
                    .map(|it| policy.visible(caller, it).then(|| policy.hints(caller, it, Kind::Tool)))
                    .into();
                (policy.view_of(caller), list)
            })
            .collect();
        for (view, list) in &seen {
            for (other_view, other_list) in &seen {
                prop_assert!(view != other_view || list == other_list);
            }
        }
    }
}
