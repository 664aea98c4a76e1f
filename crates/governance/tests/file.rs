//! Policy files: what they mean, and what is a mistake.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use governance::{
    Ask, BreakerSpec, Caller, Confirmation, ConfirmationRule, Kind, Micros, Policy, PolicyFile,
    PolicySpec, Reason, Timestamp, ZonedWindow,
    file::{self, Access, AccessRules, Client, PartialQuota, Quota, Role, ToolRule},
};
use std::{sync::Arc, time::Duration};

fn access(allow: &[&str], deny: &[&str], hide: &[&str]) -> AccessRules {
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    AccessRules {
        allow: list(allow),
        deny: list(deny),
        hide: list(hide),
    }
}

fn policy_of(file: &PolicyFile) -> Policy {
    let spec = PolicySpec::try_from(file.clone()).unwrap();
    Policy::new(spec).unwrap()
}

#[test]
fn allow_deny_and_hide_mean_what_the_file_says() {
    let file = PolicyFile {
        default: Access {
            tools: access(
                &["stock-*", "refund-*"],
                &["stock-write-off"],
                &["refund-*"],
            ),
            resources: access(&[], &[], &[]),
            prompts: access(&["mail-*"], &["mail-all"], &["mail-draft"]),
        },
        ..PolicyFile::default()
    };
    let policy = policy_of(&file);
    let rows = [
        ("tool/stock-count", true, true),
        ("tool/stock-write-off", true, false),
        ("tool/refund-issue", false, false),
        ("tool/anything", false, false),
        ("resource/skill://a/b", false, false),
        ("prompt/mail-reply", true, true),
        ("prompt/mail-all", true, false),
        ("prompt/mail-draft", false, false),
        ("prompt/anything", false, false),
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
fn what_forbids_a_table_forbids_its_rows() {
    let file = PolicyFile {
        default: Access {
            resources: access(
                &["*"],
                &[
                    "db://shop/tables/sale",
                    "db://*/tables/till",
                    "*://shop/tables/salary",
                    "*/tables/wage",
                ],
                &["db://shop/tables/customer"],
            ),
            ..Access::default()
        },
        ..PolicyFile::default()
    };
    let policy = policy_of(&file);
    for (address, visible, permitted) in [
        ("db://shop/tables/sale", true, false),
        ("db://shop/tables/sale/7", true, false),
        ("db://shop/tables/sales", true, true),
        ("db://other/tables/till/7", true, false),
        ("db://shop/tables/salary/7", true, false),
        ("db://shop/tables/wage/7", true, false),
        ("db://shop/tables/customer", false, false),
        ("db://shop/tables/customer/7", false, false),
        ("db://shop/tables/customers/7", true, true),
    ] {
        let capability = format!("resource/{address}");
        let found = (
            policy.visible("x", &capability),
            policy.permitted("x", &capability),
        );
        assert_eq!(found, (visible, permitted), "{address}");
    }
    // What allows a table allows no more than it says.
    let file = PolicyFile {
        default: Access {
            resources: access(&["db://shop/tables/sale"], &[], &[]),
            ..Access::default()
        },
        ..PolicyFile::default()
    };
    let policy = policy_of(&file);
    assert!(policy.permitted("x", "resource/db://shop/tables/sale"));
    assert!(!policy.permitted("x", "resource/db://shop/tables/sale/7"));
}

#[test]
fn without_governance_everything_may_be_done() {
    let file = PolicyFile {
        enabled: false,
        default: Access {
            tools: access(&[], &[], &["*"]),
            resources: access(&[], &[], &["*"]),
            prompts: access(&[], &[], &["*"]),
        },
        ..PolicyFile::default()
    };
    let policy = policy_of(&file);
    assert!(policy.permitted("x", "tool/y"));
    let hints = policy.hints("x", "tool/y", Kind::Tool);
    assert_eq!(hints.max_calls_per_minute, None);
}

fn ask<'a>(principal: &'a str, tool: &'a str) -> Ask<'a> {
    // A Saturday.
    Ask::new(principal, tool, Timestamp(1_795_255_200_000))
}

#[test]
fn a_client_with_roles_has_what_they_say_and_its_own_limits() {
    let role = |allow: &[&str], deny: &[&str], per_day| Role {
        tools: Some(access(allow, deny, &[])),
        quota: PartialQuota {
            max_calls_per_day: per_day,
            ..PartialQuota::default()
        },
        ..Role::default()
    };
    let client = Client {
        roles: vec!["teller".to_owned(), "auditor".to_owned()],
        quota: PartialQuota {
            max_calls_per_minute: Some(3),
            ..PartialQuota::default()
        },
        ..Client::default()
    };
    let file = PolicyFile {
        roles: [
            ("teller".to_owned(), role(&["pay-*"], &[], Some(10))),
            (
                "auditor".to_owned(),
                role(&["list-*"], &["pay-out"], Some(20)),
            ),
        ]
        .into(),
        clients: [("ana".to_owned(), client)].into(),
        ..PolicyFile::default()
    };
    let policy = policy_of(&file);
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
    let role = Role {
        tools: Some(only("r")),
        ..Role::default()
    };
    let entry = Client {
        tools: Some(only("e")),
        ..Client::default()
    };
    for hide in [vec!["*".to_owned()], Vec::new()] {
        let policy = policy_of(&PolicyFile {
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
                ("quota".to_owned(), Client::default()),
            ]
            .into(),
            ..PolicyFile::default()
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

/// Settings that a client's entry lacks are the default ones, until one of its roles is vouched
/// for.
#[test]
fn limits_of_roles_that_are_vouched_for_go_over_default_ones_and_not_over_own_ones() {
    let client = Client {
        quota: PartialQuota {
            max_calls_per_day: Some(5),
            ..PartialQuota::default()
        },
        ..Client::default()
    };
    let teller = Role {
        quota: PartialQuota {
            max_calls_per_minute: Some(7_000),
            max_calls_per_day: Some(70_000),
            ..PartialQuota::default()
        },
        ..Role::default()
    };
    let file = PolicyFile {
        clients: [("ana".to_owned(), client)].into(),
        roles: [("teller".to_owned(), teller)].into(),
        ..PolicyFile::default()
    };
    let default = Quota::default();
    let policy = policy_of(&file);
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
    assert_eq!(charges.budget, Some(default.monthly_budget));
    assert_eq!(charges.max_running, default.max_running);
}

#[test]
fn what_is_said_of_a_tool_is_enforced() {
    let hours: ZonedWindow = "Mon-Fri 08:00-24:00 Europe/Berlin".parse().unwrap();
    let rule = ToolRule {
        estimated_cost: "0.50".parse().ok(),
        risk: Some(vec![file::Risk::External, file::Risk::Financial]),
        confirmation: Some(file::Confirmation::Operator),
        ..ToolRule::default()
    };
    let closed = ToolRule {
        windows: Some(vec![hours]),
        ..ToolRule::default()
    };
    let mut file = PolicyFile {
        tools: [("pay".to_owned(), rule), ("closed".to_owned(), closed)].into(),
        confirm: vec!["ask-*".to_owned()],
        clients: [("ana".to_owned(), Client::default())].into(),
        breaker: BreakerSpec {
            failures: 7,
            rest: Duration::from_secs(30),
        },
        ..PolicyFile::default()
    };
    let policy = policy_of(&file);
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
    file.enabled = false;
    let policy = policy_of(&file);
    assert!(policy.check(ask("x", "tool/closed")).is_ok());
    let verdict = policy.check(ask("x", "tool/pay")).unwrap();
    assert_eq!(verdict.confirmation, None);
}

/// A file as it was written is the same file; every key is in it.
#[test]
fn a_file_survives_being_written() {
    let text = r#"{
        "currency": "EUR",
        "default_quota": {"monthly_budget": 50, "max_running": 2},
        "default": {"tools": {"allow": ["stock-*"], "hide": ["*-all"]}},
        "roles": {"teller": {"tools": {"allow": ["pay-*"]}, "quota": {"max_calls_per_day": 10}}},
        "clients": {"ana": {"roles": ["teller"], "confirm": ["pay-out"]}},
        "confirm": ["ask-*"],
        "conditions": {},
        "tools": {"pay-in": {
            "estimated_cost": "0.05", "risk": ["external", "financial"], "confirmation": "operator",
            "cooldown_seconds": "5 min", "windows": ["Mon-Fri 08:00-24:00 Europe/Berlin"],
            "max_running": 1, "breaker": {"failures": 3}
        }},
        "trading_hours": ["10:00-11:00"],
        "breaker": {"failures": 5, "rest_seconds": "1m"}
    }"#;
    let read: PolicyFile = serde_json::from_str(text).unwrap();
    assert_eq!(read.mistakes(""), []);
    assert_eq!(read.tools["pay-in"].cooldown_seconds, Some(300));
    let breaker = read.tools["pay-in"].breaker.unwrap();
    assert_eq!((breaker.failures, breaker.rest.as_secs()), (3, 30));
    assert_eq!(read.breaker.rest.as_secs(), 60);
    let written = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<PolicyFile>(&written).unwrap(), read);
    let spec: PolicySpec = serde_json::from_str(text).unwrap();
    let same = PolicySpec::try_from(read).unwrap();
    let version = |spec| Policy::new(spec).unwrap().version();
    assert_eq!(version(spec), version(same));
}

/// The words that a refusal needs: the place and the cure.
#[test]
fn mistakes_name_their_place_and_their_cure() {
    let rows = [
        ("{}", "the policy is empty"),
        (r#"{"defaults": {}}"#, "unknown field `defaults`"),
        (
            r#"{"clients": {"ana": {"tool": {}}}}"#,
            "unknown field `tool`",
        ),
        (r#"{"default": null}"#, "a value; leave the key out"),
        (
            r#"{"default": {"tools": {"deny": null}}}"#,
            "a value; leave the key out",
        ),
        (
            r#"{"clients": {"ana": {"tools": null}}}"#,
            "a value; leave the key out",
        ),
        (
            r#"{"clients": {"ana": null}}"#,
            "a value; leave the key out",
        ),
        (
            r#"{"tools": {"pay": {"windows": null}}}"#,
            "a value; leave the key out",
        ),
        (
            r#"{"tools": {"pay": {"cooldown_seconds": null}}}"#,
            "a value; leave the key out",
        ),
        (
            r#"{"tools": {"pay": {"cooldown_seconds": "1 week"}}}"#,
            "a whole number of seconds",
        ),
        (
            r#"{"tools": {"pay": {"risk": ["spicy"]}}}"#,
            "unknown variant `spicy`",
        ),
        (
            r#"{"tools": {"pay": {"windows": ["Mon-Fry 9:00-10:00"]}}}"#,
            "`Fry` is no day",
        ),
        (
            r#"{"default_quota": {"monthly_budget": -1}}"#,
            "an amount cannot be negative",
        ),
        (
            r#"{"default_quota": {"monthly_budget": 0}}"#,
            "`default_quota.monthly_budget` must be more than zero; to forbid calls",
        ),
        (
            r#"{"default_quota": {"max_calls_per_day": 0}}"#,
            "`default_quota.max_calls_per_day` must be an integer from 1 to 1000000000; leave",
        ),
        (
            r#"{"tools": {"pay": {"cooldown_seconds": 0}}}"#,
            "`tools.pay.cooldown_seconds` must be an integer from 1 to 31536000",
        ),
        (
            r#"{"breaker": {"rest_seconds": 0}}"#,
            "`breaker.rest_seconds` must be an integer from 1 to 86400",
        ),
        (
            r#"{"clients": {"ana": {"roles": ["tellr"]}}, "roles": {"teller": {}}}"#,
            "`clients.ana.roles`: there is no role `tellr`; roles are described under `roles`",
        ),
        (
            r#"{"clients": {"ana*": {}}}"#,
            "`clients.\"ana*\"` is a name and cannot hold `*`; patterns go into the lists",
        ),
        (
            r#"{"tools": {" pay": {"max_running": 1}}}"#,
            "a name must be a text",
        ),
        (
            r#"{"roles": {"x": {"tools": {"deny": ["pay "]}}}}"#,
            "`roles.x.tools.deny`: a pattern must not be empty; leave it out",
        ),
        (
            r#"{"confirm": [""]}"#,
            "`confirm`: a pattern must not be empty",
        ),
        (
            r#"{"conditions": {"large": {"tool": "pay"}}}"#,
            "`conditions.large` has no `when`; write an expression",
        ),
        (
            r#"{"tools": {"pay": {"windows": []}}}"#,
            "`tools.pay.windows` must not be empty; to forbid calls, use `deny` or `hide`",
        ),
        (
            r#"{"trading_hours": ["10:00-11:00 UTC", "10:00-11:00 Asia/Tokyo"]}"#,
            "`trading_hours`: the hours are in several time zones; write all of them in one",
        ),
        (
            r#"{"tools": {"pay": {"risk": ["financial"], "confirmation": "none"}}}"#,
            "`tools.pay.confirmation`: what moves money must be confirmed; take `financial` out",
        ),
        (
            r#"{"tools": {"pay": {"risk": ["read_only", "mutating"]}}}"#,
            "`tools.pay.risk`: what is `read_only` changes nothing; leave out",
        ),
        (
            r#"{"currency": "euro"}"#,
            "`currency` must be three capital letters such as `USD`",
        ),
    ];
    for (text, expected) in rows {
        let error = serde_json::from_str::<PolicySpec>(text).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn several_mistakes_are_told_together() {
    let text = r#"{"confirm": [""], "clients": {"a": {"roles": ["x"]}}}"#;
    let file: PolicyFile = serde_json::from_str(text).unwrap();
    let error = PolicySpec::try_from(file).unwrap_err();
    assert_eq!(error.mistakes.len(), 2);
    assert_eq!(error.to_string().lines().count(), 2);
}

/// With CEL its words, without it how to get it.
#[test]
fn a_condition_that_cannot_be_used_is_a_mistake() {
    let text = r#"{"conditions": {"large": {"when": "args.amount >", "effect": "confirm"}}}"#;
    let error = serde_json::from_str::<PolicySpec>(text).unwrap_err();
    let words = match cfg!(feature = "cel") {
        true => "`conditions.large.when`: line 1",
        false => "`conditions.large.when`: this build reads no conditions",
    };
    assert!(error.to_string().contains(words), "{error}");
}
