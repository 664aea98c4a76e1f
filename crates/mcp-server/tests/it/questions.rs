//! Rounds that only ask are charged, and so is what a handler does that gets no answer. Questions without an answer are
//! told to the model.

use crate::house::{Client, House, Setup, policy, reason_of};
use adapter_tools::{Needed, Question, ToolCx, ToolError, Waiting};
use governance::{Micros, PolicySpec, Quota, Rules};
use ledger::{Entry, Outcome};
use mcp_server::{AnswerOptions, ErrorStyle, Options};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use testkit::{GENEROUS, MODERN, failure_of, wait_until};
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
    let failure = failure_of(&answer);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(failure["code"], -32603, "{answer}");
    assert_eq!(failure["message"], "the call asks again and again");
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

/// A house with tools that ask by a form, for an address to be visited, for a message and for roots.
fn asking(style: ErrorStyle) -> House {
    let setup = Setup {
        options: Options {
            answering: AnswerOptions {
                style,
                ..AnswerOptions::default()
            },
            ..Options::default()
        },
        ..Setup::default()
    };
    let url = Question::Url {
        message: "There?".to_owned(),
        url: "https://example.com/".to_owned(),
    };
    let questions = [
        ("form", form()),
        ("url", Needed::default().and("k", url)),
        ("sample", Needed::sample("k", json!({ "messages": [] }))),
        ("roots", Needed::roots("k")),
    ];
    let more_tools = questions.map(|(name, needed)| {
        setup.bench.tool(name, json!({}), &[], move |_, _| {
            let needed = needed.clone();
            async { Err(ToolError::NeedsInput(needed)) }
        })
    });
    Setup {
        more_tools: more_tools.into(),
        ..setup
    }
    .build()
}

/// True if what goes wrong with a tool is a result.
fn tells_models(style: ErrorStyle, version: &str) -> bool {
    match style {
        ErrorStyle::Auto => version != "1.0",
        ErrorStyle::Protocol => false,
        ErrorStyle::Result => true,
    }
}

const STYLES: [ErrorStyle; 3] = [ErrorStyle::Auto, ErrorStyle::Protocol, ErrorStyle::Result];

const LEGACY: [&str; 5] = [
    "1.0",
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
];

#[tokio::test]
async fn models_are_told_what_a_client_that_cannot_be_asked_lacks() {
    for style in STYLES {
        let house = asking(style);
        for version in LEGACY {
            let mut client = house.connect("anna", version).await;
            for (tool, capability) in [
                ("form", "`elicitation`"),
                ("url", "`elicitation.url`"),
                ("sample", "`sampling`"),
                ("roots", "`roots`"),
            ] {
                let answer = client.call(tool, json!({})).await;
                let is_result = answer.get("result").is_some();
                assert_eq!(
                    is_result,
                    tells_models(style, version),
                    "{version} {answer}"
                );
                let failure = failure_of(&answer);
                assert_eq!(failure["code"], -32600, "{version} {answer}");
                assert_eq!(failure["data"]["retryable"], false, "{version} {answer}");
                let required = &failure["data"]["requiredCapabilities"];
                assert!(required.is_object(), "{version} {answer}");
                let text = failure["message"].as_str().unwrap();
                assert!(
                    text.contains(capability) && text.contains("go on without it"),
                    "{version} {text}"
                );
            }
        }
        // The specification wants an error there, in every style.
        let mut client = house.connect("anna", MODERN).await;
        let answer = client.call("form", json!({})).await;
        assert_eq!(answer["error"]["code"], -32021, "{answer}");
    }
}

#[tokio::test]
async fn models_are_told_that_a_client_did_not_answer() {
    for style in STYLES {
        let house = asking(style);
        let mut client = house.join("anna", Duration::ZERO);
        client.voice.capabilities = json!({ "elicitation": {} });
        client.open("2025-11-25").await;
        let call = client.begin_call("form", json!({})).await;
        let asked = client.receive().await;
        let refusal = json!({ "code": -1, "message": "the user is not there" });
        client
            .send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "error": refusal }))
            .await;
        let answer = client.receive_answer(&call).await;
        check_unanswered(style, &answer, "the user is not there", false);
    }
    for style in STYLES {
        let house = asking(style);
        let mut client = house.join("anna", Duration::ZERO);
        client.voice.capabilities = json!({ "elicitation": {} });
        client.open("2025-11-25").await;
        let call = client.begin_call("form", json!({})).await;
        let asked = client.receive().await;
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(10 * 60 + 1)).await;
        tokio::time::resume();
        let answer = client.receive_answer(&call).await;
        check_unanswered(style, &answer, "10 minutes", false);
    }
}

fn check_unanswered(style: ErrorStyle, answer: &Value, why: &str, retryable: bool) {
    let is_result = answer.get("result").is_some();
    assert_eq!(is_result, style != ErrorStyle::Protocol, "{answer}");
    let failure = failure_of(answer);
    assert_eq!(failure["code"], -32603, "{answer}");
    assert_eq!(failure["data"]["retryable"], retryable, "{answer}");
    let text = failure["message"].as_str().unwrap();
    assert!(text.contains(why), "{text}");
    assert!(text.contains("The call was not completed"), "{text}");
}

/// A call that waits for an answer and the connection that it came on, which is there for as long as `drain` after its
/// client has sent all.
async fn waiting(house: &House, drain: Duration) -> (Client, Value) {
    let mut client = house.join("anna", drain);
    client.voice.capabilities = json!({ "elicitation": {} });
    client.open("2025-11-25").await;
    let call = client.begin_call("form", json!({})).await;
    let asked = client.receive().await;
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    (client, call)
}

#[tokio::test]
async fn a_call_that_waits_for_an_answer_is_answered_when_the_server_stops() {
    for style in STYLES {
        let house = asking(style);
        for by_its_connection in [true, false] {
            let (mut client, call) = waiting(&house, GENEROUS).await;
            match by_its_connection {
                true => client.close_input(),
                false => house.mcp_server.engine().give_up(),
            }
            let answer = client.receive_answer(&call).await;
            let is_result = answer.get("result").is_some();
            assert_eq!(is_result, style != ErrorStyle::Protocol, "{answer}");
            let failure = failure_of(&answer);
            assert_eq!(failure["code"], -32004, "{answer}");
            let text = failure["message"].as_str().unwrap();
            assert_eq!(text, "the server stopped before the call had ended");
            let call = failure["data"]["call"].as_str().unwrap();
            let is_on_record = |it: &Entry| it.call.to_string() == call;
            assert!(house.ledger.entries().iter().any(is_on_record), "{answer}");
        }
    }
}
