//! While the ledger cannot be written nothing runs, and when it can be again everything does.

use crate::house::{House, Place, SPOKEN, Setup, policy};
use governance::{Quota, Rules};
use serde_json::json;
use std::time::Duration;
use testkit::{GENEROUS, failure_of, succeeded, wait_until};

/// Fails, and everybody knows it.
async fn fail(house: &House) {
    house.ledger.set_failing(true);
    let mut client = house.connect("canary", "2025-06-18").await;
    client.call("add", json!({ "a": 0, "b": 0 })).await;
    assert!(!house.mcp_server.health().is_ok());
}

async fn recover(house: &House) {
    house.ledger.set_failing(false);
    let is_ok = || house.mcp_server.health().is_ok();
    wait_until("the ledger works again", GENEROUS, is_ok).await;
}

#[tokio::test]
async fn while_the_ledger_fails_calls_are_refused_and_do_not_run() {
    for version in SPOKEN {
        for place in Place::of(version) {
            let house = Setup::default().build();
            let mut client = house.connect("anna", version).await;
            house.ledger.set_failing(true);
            let params = json!({ "name": "add", "arguments": { "a": 1, "b": 2 } });
            for _ in 0..3 {
                let answer = client.ask_at(*place, "tools/call", params.clone()).await;
                assert_eq!(failure_of(&answer)["code"], -32003, "{version}: {answer}");
                let data = &failure_of(&answer)["data"];
                assert_eq!(data["reason"], "ledger_unavailable");
                assert_eq!(data["retryable"], true);
                assert!(failure_of(&answer)["message"].is_string());
            }
            let usage = house.usage_of("anna").await;
            let used = usage.map(|usage| (usage.spent.0, usage.calls_total, usage.running));
            assert_eq!(used.unwrap_or_default(), (0, 0, 0));
            assert_eq!(house.bench.runs(), 0);
            // Lists and pings need no record.
            assert!(!client.tool_names().await.is_empty());
            client.settle().await;
        }
    }
}

#[tokio::test]
async fn a_call_during_which_the_ledger_fails_is_answered_once_its_end_is_on_disk_or_says_that_it_is_not()
 {
    for recovers in [true, false] {
        for version in SPOKEN {
            let setup = Setup::default();
            let ledger = setup.ledger.clone();
            let tool = setup.bench.tool("cut_off", json!({}), &[], move |cx, _| {
                ledger.set_failing(true);
                cx.add_cost_micros(7);
                async { Ok("paid".into()) }
            });
            let house = Setup {
                more_tools: vec![tool],
                ..setup
            }
            .build();
            let mut client = house.connect("anna", version).await;
            client.begin_call("cut_off", json!({})).await;
            let is_ok = || !house.mcp_server.health().is_ok();
            wait_until("the ledger fails", GENEROUS, is_ok).await;
            if recovers {
                let early = client.receive_within(Duration::from_millis(300)).await;
                assert_eq!(early, None, "it is not on disk yet");
                house.ledger.set_failing(false);
            }
            let answer = client.receive_within(GENEROUS).await.unwrap();
            assert!(succeeded(&answer), "{version}: {answer}");
            let record = &answer["result"]["_meta"]["io.owlclaw/record"];
            assert_eq!(record["state"] == "pending", !recovers, "{answer}");
            assert_eq!(record["call"].is_string(), !recovers, "{answer}");
            recover(&house).await;
            let record = house.record().await;
            assert_eq!(record.last().unwrap().ended.cost_micros, 7);
        }
    }
}

#[tokio::test]
async fn resources_are_not_read_either() {
    use mcp_server::StaticResources;
    let documents = StaticResources::new().text("doc://a", "a", "text/plain", "secret");
    let house = Setup {
        resources: std::sync::Arc::new(documents),
        ..Setup::default()
    }
    .build();
    fail(&house).await;
    for version in SPOKEN {
        let mut client = house.connect("anna", version).await;
        let answer = client
            .ask("resources/read", json!({ "uri": "doc://a" }))
            .await;
        assert_eq!(
            failure_of(&answer)["data"]["reason"],
            "ledger_unavailable",
            "{answer}"
        );
        assert!(!answer.to_string().contains("secret"));
    }
}

#[tokio::test]
async fn an_outage_uses_up_nobodys_quota() {
    let house = Setup {
        policy: policy(Rules {
            quota: Quota {
                max_calls_per_minute: Some(2),
                ..Quota::default()
            },
            ..Rules::default()
        }),
        ..Setup::default()
    }
    .build();
    fail(&house).await;
    let mut client = house.connect("anna", "2025-06-18").await;
    for _ in 0..5 {
        let answer = client.call("add", json!({ "a": 1, "b": 2 })).await;
        assert_eq!(
            failure_of(&answer)["data"]["reason"],
            "ledger_unavailable",
            "{answer}"
        );
    }
    assert!(house.usage_of("anna").await.is_none());
    recover(&house).await;
    for _ in 0..2 {
        let answer = client.call("add", json!({ "a": 1, "b": 2 })).await;
        assert!(succeeded(&answer), "{answer}");
    }
}

#[tokio::test]
async fn what_is_refused_anyway_keeps_its_reason_in_an_outage() {
    let house = Setup {
        policy: policy(Rules {
            hidden: vec!["tool/spend".to_owned()],
            deny: vec!["tool/add".to_owned()],
            ..Rules::default()
        }),
        ..Setup::default()
    }
    .build();
    fail(&house).await;
    house.ledger.set_failing(true);
    let mut client = house.connect("anna", "2025-06-18").await;
    client.call("priced", json!({})).await;
    let answer = client.call("add", json!({ "a": 1, "b": 2 })).await;
    assert_eq!(failure_of(&answer)["data"]["reason"], "permission");
    for unknown in ["spend", "nothing"] {
        let answer = client.call(unknown, json!({})).await;
        assert_eq!(answer["error"]["code"], -32001, "{unknown}");
    }
}

#[tokio::test]
async fn when_the_ledger_works_again_so_does_everything() {
    let house = Setup::default().build();
    let mut client = house.connect("anna", "2025-06-18").await;
    let add = json!({ "a": 1, "b": 2 });
    assert!(succeeded(&client.call("add", add.clone()).await));
    for round in 1..3 {
        fail(&house).await;
        let refused = client.call("add", add.clone()).await;
        assert_eq!(failure_of(&refused)["data"]["reason"], "ledger_unavailable");
        assert_eq!(house.bench.runs(), round);
        recover(&house).await;
        let answer = client.call("add", add.clone()).await;
        assert_eq!(answer["result"]["structuredContent"]["sum"], 3, "{answer}");
        assert_eq!(house.bench.runs(), round + 1);
    }
    // Whatever had been handed over before it was known to fail is on record as never run.
    let record = house.record().await;
    for call in record.iter().filter(|it| it.started.principal == "canary") {
        assert_eq!(call.reason(), Some("ledger_unavailable"));
    }
}

#[tokio::test]
async fn a_call_that_runs_when_the_ledger_fails_is_answered_and_recorded_later() {
    let house = Setup::default().build();
    let mut client = house.connect("anna", "2025-06-18").await;
    let id = client.begin_call("wait", json!({ "micros": 7 })).await;
    house.bench.begun().await;
    fail(&house).await;
    house.bench.gate.notify_waiters();
    let answer = client.receive_answer(&id).await;
    assert!(succeeded(&answer), "it has run, and says so: {answer}");
    recover(&house).await;
    let record = house.record().await;
    let call = record
        .iter()
        .find(|it| it.started.principal == "anna")
        .unwrap();
    assert_eq!(call.ended.outcome, ledger::Outcome::Succeeded);
    assert_eq!(call.ended.cost_micros, 7);
}

#[tokio::test]
async fn once_the_ledger_is_closed_nothing_runs() {
    let house = Setup::default().build();
    let mut client = house.connect("anna", "2025-06-18").await;
    house.mcp_server.recorder().close().await.unwrap();
    let answer = client.call("add", json!({ "a": 1, "b": 2 })).await;
    assert_eq!(failure_of(&answer)["data"]["reason"], "ledger_unavailable");
    assert_eq!(house.bench.runs(), 0);
}

#[tokio::test]
async fn what_changes_nothing_may_go_on_if_the_operator_would_have_it() {
    use governance::{CapabilityFacts, Risk};
    let read_only = Risk {
        read_only: true,
        ..Risk::default()
    };
    let both = Risk {
        mutating: true,
        ..read_only
    };
    for (exempt, risk, runs) in [
        (true, read_only, 2),
        (true, both, 0),
        (true, Risk::default(), 0),
        (false, read_only, 0),
    ] {
        let mut setup = Setup::default();
        setup.options.read_only_exempt = exempt;
        setup.policy.capabilities.insert(
            "tool/add".to_owned(),
            CapabilityFacts {
                risk,
                ..CapabilityFacts::default()
            },
        );
        let house = setup.build();
        house.ledger.set_failing(true);
        let mut client = house.connect("anna", "2025-06-18").await;
        for _ in 0..2 {
            let answer = client.call("add", json!({ "a": 1, "b": 2 })).await;
            assert_eq!(succeeded(&answer), runs != 0, "{answer}");
        }
        assert_eq!(house.bench.runs(), runs, "{exempt} {risk:?}");
    }
}
