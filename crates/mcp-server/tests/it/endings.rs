//! Endings of calls decide whether a tool rests: failures do, and nothing else.

use crate::house::{Setup, pass, policy, reason_of};
use adapter_tools::{Needed, ToolError, ToolOutput};
use governance::{BreakerSpec, PolicySpec, Rules};
use ledger::Outcome;
use serde_json::json;
use std::time::Duration;
use testkit::{MODERN, failure_of, succeeded};

/// A tool rests after two failures.
fn rests() -> PolicySpec {
    PolicySpec {
        default_breaker: BreakerSpec {
            failures: 2,
            rest: Duration::from_secs(30),
        },
        ..policy(Rules::default())
    }
}

fn setup() -> Setup {
    let setup = Setup {
        policy: rests(),
        ..Setup::default()
    };
    let bench = setup.bench.clone();
    let none = json!({});
    let more_tools = vec![
        bench.tool("admits", none.clone(), &[], |_, _| async {
            Ok(ToolOutput {
                is_error: true,
                ..ToolOutput::from("it did not work")
            })
        }),
        bench.tool("asks", none, &[], |_, _| async {
            let schema = json!({ "type": "object", "properties": {} });
            Err(ToolError::NeedsInput(Needed::form("k", "What?", schema)))
        }),
    ];
    Setup {
        more_tools,
        ..setup
    }
}

#[tokio::test]
async fn a_tool_rests_when_it_fails_and_not_when_its_callers_do() {
    for (tool, arguments, rests) in [
        ("fail", json!({}), true),
        ("admits", json!({}), true),
        ("crash", json!({}), true),
        ("broken", json!({}), true),
        ("panic", json!({}), true),
        ("add", json!({ "a": "x" }), false),
        ("busy", json!({}), false),
        ("suspended", json!({}), false),
        ("asks", json!({}), false),
        ("add", json!({ "a": 1, "b": 2 }), false),
    ] {
        let house = setup().build();
        let mut client = house.join("anna", Duration::ZERO);
        client.voice.capabilities = json!({ "elicitation": {} });
        client.open(MODERN).await;
        for _ in 0..2 {
            let answer = client.call(tool, arguments.clone()).await;
            assert_ne!(reason_of(&answer), Some("circuit_open"), "{tool}: {answer}");
        }
        let runs = house.bench.runs();
        let mut other = house.connect("bob", MODERN).await;
        let answer = other.call(tool, arguments.clone()).await;
        let refused = reason_of(&answer) == Some("circuit_open");
        assert_eq!(refused, rests, "{tool} {arguments}: {answer}");
        if rests {
            assert_eq!(house.bench.runs(), runs, "{tool}");
            let data = failure_of(&answer)["data"].clone();
            assert_eq!(
                (&data["retryable"], &data["retry_after"]),
                (&json!(true), &json!(30))
            );
            // One is let through to try when it has rested; it fails, and the tool rests again.
            pass(Duration::from_secs(31));
            let answer = other.call(tool, arguments.clone()).await;
            assert_ne!(reason_of(&answer), Some("circuit_open"), "{tool}: {answer}");
            assert_eq!(house.bench.runs(), runs + 1, "{tool}");
            let answer = other.call(tool, arguments).await;
            assert_eq!(reason_of(&answer), Some("circuit_open"), "{tool}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_has_on_record_where_it_was_carried_out() {
    let setup = setup();
    let (bench, begun) = (setup.bench.clone(), setup.bench.begun.clone());
    let elsewhere = bench.tool("elsewhere", json!({}), &[], move |cx, _| {
        let begun = begun.clone();
        async move {
            cx.meter().note_place("upstream up, tool slow");
            begun.add_permits(1);
            std::future::pending().await
        }
    });
    let house = Setup {
        more_tools: vec![elsewhere],
        ..setup
    }
    .build();
    for version in [MODERN, "2025-06-18"] {
        let mut client = house.connect("anna", version).await;
        let id = client.begin_call("elsewhere", json!({})).await;
        house.bench.begun().await;
        client.cancel(&id).await;
        client.settle().await;
        let record = house.record().await;
        let ended = &record.last().unwrap().ended;
        assert_eq!(ended.outcome, Outcome::Cancelled);
        assert_eq!(ended.message.as_deref(), Some("upstream up, tool slow"));
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_says_nothing_of_its_tool() {
    let house = setup().build();
    let mut client = house.connect("anna", MODERN).await;
    for _ in 0..3 {
        let id = client.begin_call("wait", json!({})).await;
        house.bench.begun().await;
        client.cancel(&id).await;
        client.settle().await;
    }
    let id = client.begin_call("wait", json!({})).await;
    house.bench.begun().await;
    house.bench.gate.notify_waiters();
    let answer = client.receive_answer(&id).await;
    assert!(succeeded(&answer), "{answer}");
}
