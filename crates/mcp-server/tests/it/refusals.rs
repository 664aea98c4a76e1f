//! Refused calls do not run, use nothing up, and are on record (Property 4, decisions D5, D6 and
//! D28).

use crate::house::{Client, House, Place, SPOKEN, Setup, block_on, pass, policy, reason_of};
use governance::{CapabilityFacts, Micros, PolicySpec, Quota, RateLimits, Rules};
use ledger::Outcome;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{MODERN, failure_of, succeeded};

/// One way to be refused openly.
struct Case {
    reason: &'static str,
    policy: PolicySpec,
    /// Number of calls before the refusal.
    calls_before: usize,
    retryable: bool,
    /// True if the client is told when to retry.
    has_retry_after: bool,
    /// The members of `remaining`, if it is there.
    remaining: &'static [&'static str],
}

const PRICE: u64 = 6_000;

fn quota(quota: Quota) -> PolicySpec {
    PolicySpec {
        default_estimated_cost: Micros(PRICE),
        ..policy(Rules {
            quota,
            ..Rules::default()
        })
    }
}

fn cases() -> Vec<Case> {
    let case = |reason, policy| Case {
        reason,
        policy,
        calls_before: 0,
        retryable: false,
        has_retry_after: false,
        remaining: &[],
    };
    let limited = |reason, quota_, remaining| Case {
        calls_before: 1,
        retryable: true,
        has_retry_after: true,
        remaining,
        ..case(reason, quota(quota_))
    };
    vec![
        case(
            "permission",
            policy(Rules {
                deny: vec!["tool/add".to_owned()],
                ..Rules::default()
            }),
        ),
        case(
            "cost_per_call",
            quota(Quota {
                max_cost_per_call: Some(Micros(PRICE - 1)),
                ..Quota::default()
            }),
        ),
        limited(
            "budget",
            Quota {
                monthly_budget: Some(Micros(2 * PRICE - 1)),
                ..Quota::default()
            },
            &["budget"],
        ),
        limited(
            "rate_minute",
            Quota {
                max_calls_per_minute: Some(1),
                ..Quota::default()
            },
            &["minute"],
        ),
        limited(
            "rate_day",
            Quota {
                max_calls_per_day: Some(1),
                ..Quota::default()
            },
            &["day"],
        ),
        // A limit of the tool alone.
        Case {
            calls_before: 1,
            retryable: true,
            has_retry_after: true,
            remaining: &["minute"],
            ..case(
                "rate_minute",
                PolicySpec {
                    capabilities: [(
                        "tool/add".to_owned(),
                        CapabilityFacts {
                            limits: RateLimits {
                                per_minute: Some(1),
                                per_day: None,
                            },
                            ..CapabilityFacts::default()
                        },
                    )]
                    .into(),
                    ..policy(Rules::default())
                },
            )
        },
    ]
}

fn add() -> Value {
    json!({ "name": "add", "arguments": { "a": 1, "b": 2 } })
}

#[tokio::test]
async fn what_is_refused_never_runs_and_uses_nothing_up_and_says_why() {
    for version in SPOKEN {
        for place in Place::of(version) {
            for case in cases() {
                let says = format!("{} in {version}, {place:?}", case.reason);
                let house = Setup {
                    policy: case.policy.clone(),
                    ..Setup::default()
                }
                .build();
                let mut client = house.connect("anna", version).await;
                for _ in 0..case.calls_before {
                    let answer = client.call("add", json!({ "a": 1, "b": 2 })).await;
                    assert!(succeeded(&answer), "{says}: {answer}");
                }
                let usage = house.usage().await;

                let answer = client.ask_at(*place, "tools/call", add()).await;

                let told = failure_of(&answer);
                assert_eq!(told["code"], -32003, "{says}: {answer}");
                let data = told["data"].as_object().expect("data");
                assert_eq!(data["reason"], case.reason, "{says}");
                assert_eq!(data["retryable"], case.retryable, "{says}");
                assert!(told["message"].is_string(), "{says}");
                // A model reads it in every revision that has a date (decision D40).
                if version == "1.0" {
                    assert_eq!(told["message"], data["details"], "{says}");
                    assert!(answer.get("result").is_none(), "{says}");
                } else {
                    assert!(!data.contains_key("details"), "said twice: {says}");
                    assert_eq!(answer["result"]["isError"], true, "{says}");
                    assert_eq!(answer["result"]["content"].as_array().unwrap().len(), 1);
                }
                assert_eq!(data.contains_key("retry_after"), case.has_retry_after);
                if case.has_retry_after {
                    assert!(
                        1 <= data["retry_after"].as_u64().expect("seconds"),
                        "{says}"
                    );
                }
                let remaining = data.get("remaining").map(|it| it.as_object().unwrap());
                let members: Vec<_> = remaining.iter().flat_map(|it| it.keys()).collect();
                assert_eq!(members, case.remaining, "{says}");
                let known = [
                    "code",
                    "details",
                    "reason",
                    "remaining",
                    "retry_after",
                    "retryable",
                ];
                assert!(
                    data.keys().all(|key| known.contains(&key.as_str())),
                    "{says}"
                );

                assert_eq!(house.bench.runs(), case.calls_before, "{says}: it ran");
                assert_eq!(house.usage().await, usage, "{says}: it used something up");
                check_refusal_on_record(&house, version, "tool/add", case.reason).await;
            }
        }
    }
}

/// The last call in the ledger was refused for `reason`.
async fn check_refusal_on_record(house: &House, version: &str, capability: &str, reason: &str) {
    let record = house.record().await;
    let call = record.last().expect("it is on record");
    assert_eq!(call.reason(), Some(reason));
    assert_eq!(call.started.principal, "anna");
    assert_eq!(call.started.capability, capability);
    assert_eq!(call.started.method, "tools/call");
    assert_eq!(call.started.transport, "stdio");
    let dated = if version == "1.0" {
        "2024-11-05"
    } else {
        version
    };
    assert_eq!(call.started.protocol_version, dated);
    assert_eq!(call.started.arguments.text, r#"{"a":1,"b":2}"#);
    let policy = house.mcp_server.governor().policy();
    assert_eq!(call.started.policy_version, policy.version());
    assert_eq!(call.ended.cost_micros, 0);
    assert_eq!(call.ended.result.text, "");
    assert!(call.ended.message.is_some());
}

#[tokio::test]
async fn the_time_to_wait_is_neither_too_short_nor_forever() {
    for (limit, reason, most) in [
        (
            Quota {
                max_calls_per_minute: Some(2),
                ..Quota::default()
            },
            "rate_minute",
            61,
        ),
        (
            Quota {
                max_calls_per_day: Some(2),
                ..Quota::default()
            },
            "rate_day",
            24 * 3_600 + 301,
        ),
        (
            Quota {
                monthly_budget: Some(Micros(2 * PRICE)),
                ..Quota::default()
            },
            "budget",
            31 * 24 * 3_600,
        ),
    ] {
        let house = Setup {
            policy: quota(limit),
            ..Setup::default()
        }
        .build();
        let mut client = house.connect("anna", "2025-06-18").await;
        for _ in 0..2 {
            assert!(succeeded(
                &client.call("add", json!({ "a": 1, "b": 2 })).await
            ));
        }
        let refused = client.call("add", json!({ "a": 1, "b": 2 })).await;
        assert_eq!(failure_of(&refused)["data"]["reason"], reason);
        let wait = failure_of(&refused)["data"]["retry_after"].clone();
        let wait = wait.as_u64().unwrap();
        assert!((1..=most).contains(&wait), "{reason}: {wait}");
        pass(Duration::from_secs(wait));
        let later = client.call("add", json!({ "a": 1, "b": 2 })).await;
        assert!(succeeded(&later), "{reason}: {later}");
    }
}

#[tokio::test]
async fn a_call_that_can_never_be_paid_is_refused_without_a_time_to_wait() {
    let house = Setup {
        policy: quota(Quota {
            monthly_budget: Some(Micros(PRICE - 1)),
            ..Quota::default()
        }),
        ..Setup::default()
    }
    .build();
    let mut client = house.connect("anna", MODERN).await;
    let refused = client.call("add", json!({ "a": 1, "b": 2 })).await;
    let data = &failure_of(&refused)["data"];
    assert_eq!(data["reason"], "budget");
    assert_eq!(data["retryable"], false);
    assert!(data.get("retry_after").is_none(), "{data}");
}

#[tokio::test]
async fn counters_without_room_refuse_instead_of_letting_through() {
    for version in SPOKEN {
        let house = Setup {
            policy: quota(Quota {
                max_calls_per_minute: Some(10),
                ..Quota::default()
            }),
            max_principals: 1,
            ..Setup::default()
        }
        .build();
        let mut first = house.connect("first", version).await;
        assert!(succeeded(
            &first.call("add", json!({ "a": 1, "b": 2 })).await
        ));
        let mut second = house.connect("anna", version).await;
        let refused = second.call("add", json!({ "a": 1, "b": 2 })).await;
        assert_eq!(failure_of(&refused)["code"], -32003);
        assert_eq!(failure_of(&refused)["data"]["reason"], "too_many_clients");
        assert_eq!(failure_of(&refused)["data"]["retryable"], true);
        assert_eq!(house.bench.runs(), 1);
        check_refusal_on_record(&house, version, "tool/add", "too_many_clients").await;
    }
}

#[tokio::test]
async fn invisible_tools_and_absent_ones_are_told_apart_by_the_ledger_alone() {
    for version in SPOKEN {
        for place in Place::of(version) {
            // A quota is there to be used up, and a denial is there to show through.
            let hidden = policy(Rules {
                hidden: vec!["tool/add".to_owned()],
                deny: vec!["tool/add".to_owned()],
                quota: Quota {
                    max_calls_per_minute: Some(1),
                    monthly_budget: Some(Micros(1)),
                    ..Quota::default()
                },
                ..Rules::default()
            });
            let with = Setup {
                policy: hidden.clone(),
                ..Setup::default()
            }
            .build();
            let without = Setup {
                policy: hidden,
                ..Setup::default()
            }
            .build();
            let rest = without
                .bench
                .tools()
                .into_iter()
                .filter(|it| it.name() != "add");
            let rest =
                crate::house::offer(rest.collect(), std::sync::Arc::new(mcp_server::NoResources));
            without.mcp_server.replace_offer(rest);
            let mut answers = Vec::new();
            for house in [&with, &without] {
                let mut client = house.connect("anna", version).await;
                for _ in 0..3 {
                    let answer = client.ask_at(*place, "tools/call", add()).await;
                    answers.push(answer["error"].clone());
                }
                assert_eq!(house.bench.runs(), 0);
                assert!(house.usage().await.is_empty(), "nothing is used up");
            }
            for answer in &answers {
                assert_eq!(answer, &answers[0], "{version}");
            }
            let error = &answers[0];
            if version == MODERN {
                assert_eq!(error["code"], -32602);
                assert_eq!(error["data"]["code"], -32001);
            } else {
                assert_eq!(error["code"], -32001);
            }
            assert_eq!(error["data"]["retryable"], false);
            assert!(error["message"].as_str().unwrap().contains("add"));
            check_refusal_on_record(&with, version, "tool/add", "not_visible").await;
            check_refusal_on_record(&without, version, "tool/add", "unknown").await;
        }
    }
}

#[tokio::test]
async fn wrong_arguments_do_not_betray_a_hidden_tool() {
    let house = Setup {
        policy: policy(Rules {
            hidden: vec!["tool/add".to_owned()],
            ..Rules::default()
        }),
        ..Setup::default()
    }
    .build();
    for version in SPOKEN {
        let mut client = house.connect("anna", version).await;
        let right = client.call("add", json!({ "a": 1, "b": 2 })).await;
        let wrong = client.call("add", json!({ "a": "one" })).await;
        assert_eq!(right["error"], wrong["error"], "{version}");
    }
}

#[tokio::test]
async fn clients_have_quotas_and_rights_of_their_own() {
    let one = |deny: &[&str]| Rules {
        deny: deny.iter().map(|&it| it.to_owned()).collect(),
        quota: Quota {
            max_calls_per_minute: Some(1),
            monthly_budget: Some(Micros(2 * PRICE)),
            ..Quota::default()
        },
        ..Rules::default()
    };
    let house = Setup {
        policy: PolicySpec {
            default_estimated_cost: Micros(PRICE),
            principals: [
                ("anna".to_owned(), one(&[])),
                ("bert".to_owned(), one(&[])),
                ("carl".to_owned(), one(&["tool/add"])),
            ]
            .into(),
            ..PolicySpec::default()
        },
        ..Setup::default()
    }
    .build();
    let reason = async |client: &mut Client| {
        let answer = client.call("add", json!({ "a": 1, "b": 2 })).await;
        json!(reason_of(&answer))
    };
    let mut anna = house.connect("anna", "2025-06-18").await;
    let mut anna_again = house.connect("anna", MODERN).await;
    let mut bert = house.connect("bert", "2025-06-18").await;
    let mut carl = house.connect("carl", "2025-06-18").await;
    let mut dora = house.connect("dora", "2025-06-18").await;
    assert_eq!(reason(&mut anna).await, Value::Null);
    assert_eq!(reason(&mut anna).await, "rate_minute");
    assert_eq!(
        reason(&mut anna_again).await,
        "rate_minute",
        "the same principal"
    );
    assert_eq!(reason(&mut bert).await, Value::Null, "not touched by anna");
    assert_eq!(reason(&mut carl).await, "permission");
    for _ in 0..3 {
        assert_eq!(reason(&mut dora).await, Value::Null, "no limit by default");
    }
    let spent = |usage: Option<governance::Usage>| usage.map(|it| (it.spent.0, it.calls_total));
    assert_eq!(spent(house.usage_of("anna").await), Some((PRICE, 1)));
    assert_eq!(spent(house.usage_of("bert").await), Some((PRICE, 1)));
    assert_eq!(spent(house.usage_of("carl").await), None);
    assert_eq!(spent(house.usage_of("dora").await), Some((3 * PRICE, 3)));
}

#[tokio::test]
async fn rules_change_without_a_restart() {
    let house = Setup::default().build();
    let mut client = house.connect("anna", "2025-06-18").await;
    assert!(succeeded(
        &client.call("add", json!({ "a": 1, "b": 2 })).await
    ));
    let deny = policy(Rules {
        deny: vec!["tool/*".to_owned()],
        ..Rules::default()
    });
    house
        .mcp_server
        .replace_policy(governance::Policy::new(deny).unwrap());
    let refused = client.call("add", json!({ "a": 1, "b": 2 })).await;
    assert_eq!(failure_of(&refused)["data"]["reason"], "permission");
    assert_eq!(house.bench.runs(), 1);
    let (then, now) = (
        &house.record().await[0],
        house.mcp_server.governor().policy(),
    );
    assert_eq!(
        house.record().await[1].started.policy_version,
        now.version()
    );
    assert_ne!(then.started.policy_version, now.version());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Property 4, and that every permitted call runs: a policy that knows no exception.
    #[test]
    fn exactly_the_admitted_calls_run(
        per_minute in proptest::option::of(0_u32..5),
        per_day in proptest::option::of(0_u32..5),
        budget in proptest::option::of(0_u64..5 * PRICE),
        per_call in proptest::option::of(PRICE - 1..=PRICE),
        denied in any::<bool>(),
        hidden in proptest::bool::weighted(0.2),
        version in proptest::sample::select(SPOKEN.to_vec()),
        calls in 1_usize..8,
    ) {
        block_on(async move {
            let patterns = |on: bool| if on { vec!["tool/add".to_owned()] } else { Vec::new() };
            let house = Setup {
                policy: PolicySpec {
                    default_estimated_cost: Micros(PRICE),
                    ..policy(Rules {
                        hidden: patterns(hidden),
                        deny: patterns(denied),
                        quota: Quota {
                            monthly_budget: budget.map(Micros),
                            max_calls_per_minute: per_minute,
                            max_calls_per_day: per_day,
                            max_cost_per_call: per_call.map(Micros),
                        },
                        ..Rules::default()
                    })
                },
                ..Setup::default()
            }
            .build();
            let most = if hidden || denied || per_call.is_some_and(|most| most < PRICE) {
                0
            } else {
                let rate = per_minute.into_iter().chain(per_day).min().unwrap_or(u32::MAX);
                let paid = budget.map_or(u64::MAX, |budget| budget / PRICE);
                calls.min(rate as usize).min(usize::try_from(paid).unwrap_or(usize::MAX))
            };
            let mut client = house.connect("anna", version).await;
            for index in 0..calls {
                let answer = client.call("add", json!({ "a": 1, "b": 2 })).await;
                if index < most {
                    assert_eq!(house.bench.runs(), index + 1, "{answer}");
                } else if hidden {
                    let code = if version == MODERN { -32602 } else { -32001 };
                    assert_eq!(answer["error"]["code"], code);
                } else {
                    assert_eq!(failure_of(&answer)["code"], -32003, "{answer}");
                }
            }
            assert_eq!(house.bench.runs(), most);
            let spent = house.usage_of("anna").await.map_or(0, |usage| usage.spent.0);
            assert_eq!(spent, PRICE * most as u64);
            let record = house.record().await;
            assert_eq!(record.len(), calls);
            let ran = record.iter().filter(|it| it.ended.outcome == Outcome::Succeeded);
            assert_eq!(ran.count(), most);
        });
    }
}
