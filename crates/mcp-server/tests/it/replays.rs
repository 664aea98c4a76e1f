//! Calls that come again under their idempotency key.

use crate::{
    house::{Bench, Client, Setup, policy},
    tasks_house::{LEGACY, created, options, reaches, setup as with_tasks},
};
use adapter_tools::{Elicited, Needed, Tool, ToolCx, ToolError};
use governance::{Policy, Quota, Rules};
use ledger::DEFAULT_MAX_REFUSALS;
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{MODERN, failure_of};

const REPLAY: &str = "io.owlclaw/replay";

fn keyed(tool: &str, key: &str) -> Value {
    json!({
        "name": tool,
        "arguments": { "a": 1, "b": 2 },
        "_meta": { "io.owlclaw/idempotencyKey": key },
    })
}

fn is_replay(answer: &Value) -> bool {
    answer["result"]["_meta"][REPLAY]["call"].is_string()
}

async fn add(client: &mut Client) -> Value {
    client.ask("tools/call", keyed("add", "k")).await
}

#[tokio::test]
async fn who_may_no_longer_call_is_not_answered_again() {
    let open = Rules::default();
    for (rules, code, reason) in [
        (
            Rules {
                deny: vec!["tool/add".to_owned()],
                ..open.clone()
            },
            -32003,
            Some("permission"),
        ),
        (
            Rules {
                hidden: vec!["tool/add".to_owned()],
                ..open.clone()
            },
            -32602,
            None,
        ),
    ] {
        let house = Setup::default().build();
        let mut client = house.connect("anna", MODERN).await;
        assert!(!is_replay(&add(&mut client).await));
        assert!(is_replay(&add(&mut client).await));
        house
            .mcp_server
            .replace_policy(Policy::new(policy(rules)).unwrap());
        let refused = add(&mut client).await;
        assert_eq!(failure_of(&refused)["code"], code, "{refused}");
        assert_eq!(failure_of(&refused)["data"]["reason"].as_str(), reason);
        assert_eq!(house.bench.runs(), 1);
    }
}

#[tokio::test]
async fn an_answer_that_is_given_again_uses_nothing_up() {
    let house = Setup {
        policy: policy(Rules {
            quota: Quota {
                max_calls_per_day: Some(1),
                ..Quota::default()
            },
            ..Rules::default()
        }),
        ..Setup::default()
    }
    .build();
    let mut client = house.connect("anna", MODERN).await;
    assert!(!is_replay(&add(&mut client).await));
    let usage = house.usage().await;
    for _ in 0..3 {
        assert!(is_replay(&add(&mut client).await));
    }
    assert_eq!(house.usage().await, usage);
    let other = client.ask("tools/call", keyed("add", "other")).await;
    assert_eq!(failure_of(&other)["data"]["reason"], "rate_day", "{other}");
    let record = house.record().await;
    let first = record[0].started.clone();
    assert_eq!(first.idempotency_key.as_deref(), Some("k"));
    assert_eq!(first.replay_of, None);
    for again in &record[1..4] {
        assert!(again.started.replay_of.is_some());
        assert_eq!(again.reason(), Some("idempotency_done"));
        // The operator must not be told that an answer was lost which the client has.
        let message = again.ended.message.as_deref().unwrap();
        assert!(message.ends_with("is answered as before"), "{message}");
    }
}

#[tokio::test]
async fn a_task_of_what_was_done_is_over_when_it_is_made() {
    let house = with_tasks(options()).await.build();
    let mut client = house.connect("anna", LEGACY).await;
    add(&mut client).await;
    let mut params = keyed("add", "k");
    params["task"] = json!({});
    let id = created(&client.ask("tools/call", params).await);
    reaches(&mut client, &id, "completed").await;
    let result = client.ask("tasks/result", json!({ "taskId": id })).await;
    assert!(is_replay(&result), "{result}");
    assert_eq!(house.bench.runs(), 1);
}

/// Asks once, and then does it.
fn asking(bench: &Bench) -> Tool {
    bench
        .tool("order", json!({}), &[], |cx: ToolCx, _| async move {
            let schema = json!({ "type": "object", "properties": {} });
            let asked = Needed::form("size", "Which size?", schema);
            match cx.answers().elicited("size", &asked) {
                Some(Elicited::Accepted(_)) => Ok("ordered".into()),
                _ => Err(ToolError::NeedsInput(asked.with_state(1))),
            }
        })
        .with_input_schema(json!({ "type": "object" }))
}

#[tokio::test]
async fn a_call_that_asks_goes_on_under_its_key_and_is_done_once() {
    let bench = Bench::new();
    let house = Setup {
        more_tools: vec![asking(&bench)],
        bench,
        ..Setup::default()
    }
    .build();
    let mut client = house.join("anna", Duration::ZERO);
    client.voice.capabilities = json!({ "elicitation": {} });
    client.open(MODERN).await;
    let asks = client.ask("tools/call", keyed("order", "k")).await;
    let mut params = keyed("order", "k");
    params["inputResponses"] = json!({ "size": { "action": "accept", "content": {} } });
    params["requestState"] = asks["result"]["requestState"].clone();
    assert!(params["requestState"].is_string(), "{asks}");
    let done = client.ask("tools/call", params.clone()).await;
    assert_eq!(done["result"]["content"][0]["text"], "ordered", "{done}");
    assert!(!is_replay(&done));
    for params in [params, keyed("order", "k")] {
        let again = client.ask("tools/call", params).await;
        assert_eq!(again["result"]["content"][0]["text"], "ordered", "{again}");
        assert!(is_replay(&again));
    }
    assert_eq!(house.bench.runs(), 2);
}

#[tokio::test]
async fn a_call_that_was_given_up_is_not_made_again() {
    let house = Setup::default().build();
    let mut client = house.connect("anna", MODERN).await;
    let wait = json!({
        "name": "wait",
        "arguments": {},
        "_meta": { "io.owlclaw/idempotencyKey": "k" },
    });
    let id = client.begin("tools/call", wait.clone()).await;
    house.bench.begun().await;
    let busy = client.ask("tools/call", wait.clone()).await;
    assert_eq!(failure_of(&busy)["data"]["state"], "in_flight", "{busy}");
    client.cancel(&id).await;
    client.settle().await;
    let again = client.ask("tools/call", wait).await;
    assert_eq!(failure_of(&again)["data"]["state"], "unknown", "{again}");
    assert_eq!(failure_of(&again)["data"]["retryable"], false);
    assert_eq!(house.bench.runs(), 1);
}

/// A refusal before counting costs its caller nothing, so it must not cost us the disk.
#[tokio::test]
async fn keys_and_names_that_callers_make_up_do_not_fill_the_ledger() {
    let house = Setup::default().build();
    let mut client = house.connect("anna", MODERN).await;
    for _ in 0..30 {
        let answer = client.ask("tools/call", keyed("add", "no key")).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    assert_eq!(house.record().await.len(), DEFAULT_MAX_REFUSALS as usize);
    for number in 0..30 {
        let name = format!("made-up-{number}");
        let answer = client.ask("tools/call", keyed(&name, "k")).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let record = house.record().await;
    assert_eq!(record.len(), 2 * DEFAULT_MAX_REFUSALS as usize);
    assert_eq!(house.bench.runs(), 0);
}
