//! Rounds that only ask are charged, and so is what a handler does that gets no answer.

use crate::house::{Setup, policy, reason_of};
use adapter_tools::{Needed, ToolCx, ToolError, Waiting};
use governance::{Micros, PolicySpec, Quota, Rules};
use ledger::Outcome;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use testkit::{GENEROUS, MODERN, wait_until};
use tokio::sync::Notify;

const PRICE: u64 = 1_000_000;

fn budget(of: u64) -> PolicySpec {
    policy(Rules {
        quota: Quota {
            monthly_budget: Some(Micros(of)),
            ..Quota::default()
        },
        ..Rules::default()
    })
}

fn form() -> Needed {
    let schema = json!({ "type": "object", "properties": {} });
    Needed::form("k", "What?", schema)
}

#[tokio::test]
async fn a_question_that_nobody_answers_costs_what_its_tool_is_expected_to() {
    for version in [MODERN, "2025-06-18"] {
        let setup = Setup {
            policy: budget(2 * PRICE),
            ..Setup::default()
        };
        let bench = setup.bench.clone();
        let asks = bench.tool("asks", json!({}), &[], |_, _| async {
            Err(ToolError::NeedsInput(form()))
        });
        let more_tools = vec![asks.with_estimated_cost_micros(PRICE)];
        let house = Setup {
            more_tools,
            ..setup
        }
        .build();
        let mut client = house.join("anna", Duration::ZERO);
        client.voice.capabilities = json!({ "elicitation": {} });
        client.open(version).await;
        for round in 0..3 {
            let params = json!({ "name": "asks", "arguments": {} });
            let call = client.begin("tools/call", params).await;
            let mut said = client.receive().await;
            if said["method"] == "elicitation/create" {
                let refusal = json!({ "code": -1, "message": "never" });
                client
                    .send(&json!({ "jsonrpc": "2.0", "id": said["id"], "error": refusal }))
                    .await;
                said = client.receive_answer(&call).await;
            }
            let refused = reason_of(&said) == Some("budget");
            assert_eq!(refused, round == 2, "{version}: {said}");
        }
        assert_eq!(house.bench.runs(), 2, "{version}");
        let record = house.record().await;
        let costs: Vec<_> = record.iter().map(|it| it.ended.cost_micros).collect();
        assert_eq!(costs, [PRICE, PRICE, 0], "{version}");
        let used = house.usage_of("anna").await.unwrap();
        assert_eq!((used.spent, used.calls_total), (Micros(2 * PRICE), 2));
    }
}

#[tokio::test]
async fn a_call_that_asks_again_and_again_has_failed_on_record() {
    let setup = Setup::default();
    let bench = setup.bench.clone();
    let asks = bench.tool("asks", json!({}), &[], |_, _| async {
        Err(ToolError::NeedsInput(form()))
    });
    let more_tools = vec![asks.with_estimated_cost_micros(PRICE)];
    let house = Setup {
        more_tools,
        ..setup
    }
    .build();
    let mut client = house.join("anna", Duration::ZERO);
    client.voice.capabilities = json!({ "elicitation": {} });
    client.open("2025-06-18").await;
    let call = client
        .begin("tools/call", json!({ "name": "asks", "arguments": {} }))
        .await;
    let mut asked = 0;
    let answer = loop {
        let said = client.receive().await;
        if said["method"] != "elicitation/create" {
            break said;
        }
        asked += 1;
        let accepted = json!({ "action": "accept", "content": {} });
        client
            .send(&json!({ "jsonrpc": "2.0", "id": said["id"], "result": accepted }))
            .await;
    };
    assert_eq!((&answer["id"], asked), (&call, 15));
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert_eq!(answer["error"]["message"], "the call asks again and again");
    let record = house.record().await;
    let (last, before) = record.split_last().unwrap();
    assert_eq!((before.len(), house.bench.runs()), (15, 16));
    assert!(
        before
            .iter()
            .all(|it| it.ended.outcome == Outcome::Succeeded)
    );
    assert_eq!(last.ended.outcome, Outcome::Failed);
    assert_eq!(
        last.ended.message.as_deref(),
        Some("the call asks again and again")
    );
    assert_eq!(last.ended.cost_micros, PRICE);
}

#[tokio::test]
async fn what_a_handler_uses_after_its_question_is_charged_and_on_record() {
    let setup = Setup {
        policy: budget(5 * PRICE),
        ..Setup::default()
    };
    let bench = setup.bench.clone();
    let goes_on = Arc::new(Notify::new());
    let gate = Arc::clone(&goes_on);
    let works = bench.tool("works", json!({}), &[], move |cx: ToolCx, _| {
        let gate = Arc::clone(&gate);
        async move {
            cx.add_cost_micros(PRICE);
            let rest = ToolCx::new(Arc::clone(&cx.principal), Arc::clone(&cx.request_id));
            let meter = Arc::clone(rest.meter());
            tokio::spawn(async move {
                gate.notified().await;
                rest.add_cost_micros(4 * PRICE);
                rest.meter().note("went on".to_owned());
            });
            let waiting = Some(Waiting::new(|| ()).with_meter(meter));
            let needed = Needed { waiting, ..form() };
            Err(ToolError::NeedsInput(needed))
        }
    });
    let house = Setup {
        more_tools: vec![works],
        ..setup
    }
    .build();
    let mut client = house.join("anna", Duration::ZERO);
    client.voice.capabilities = json!({ "elicitation": {} });
    client.open(MODERN).await;
    let asked = client.call("works", json!({})).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    assert_eq!(house.usage_of("anna").await.unwrap().spent, Micros(PRICE));
    goes_on.notify_one();
    wait_until("the rest is on record", GENEROUS, || {
        house.ledger.entries().len() == 4
    })
    .await;
    let record = house.record().await;
    let [question, rest] = &record[..] else {
        panic!("two entries: {record:?}");
    };
    assert_eq!(question.ended.cost_micros, PRICE);
    assert_eq!(
        (rest.ended.cost_micros, &*rest.started.capability),
        (4 * PRICE, "tool/works")
    );
    assert_eq!(rest.ended.outcome, Outcome::Cancelled);
    let message = rest.ended.message.as_deref().unwrap_or_default();
    assert!(
        message.starts_with("used after the question of ") && message.ends_with(": went on"),
        "{message}"
    );
    let used = house.usage_of("anna").await.unwrap();
    assert_eq!((used.spent, used.calls_total), (Micros(5 * PRICE), 2));
    let refused = client.call("works", json!({})).await;
    assert_eq!(reason_of(&refused), Some("budget"), "{refused}");
}
