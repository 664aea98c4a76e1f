//! Arguments that do not fit never reach a tool, and what a failing one answers (Property 12,
//! decisions D3 and D4).

use crate::house::{PRICE, SPOKEN, Setup, block_on, has_error_results, policy};
use adapter_tools::{Annotations, Repeat, Tool, ToolError};
use governance::{Rules, Usage};
use ledger::Outcome;
use mcp_server::{AnswerOptions, ErrorStyle, Options};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use testkit::{failure_of, succeeded};

fn setup(style: ErrorStyle, development: bool) -> Setup {
    let setup = Setup::default();
    Setup {
        options: Options {
            answering: AnswerOptions {
                style,
                development,
                ..AnswerOptions::default()
            },
            ..setup.options
        },
        ..setup
    }
}

const STYLES: [ErrorStyle; 3] = [ErrorStyle::Auto, ErrorStyle::Protocol, ErrorStyle::Result];

fn wants_result(style: ErrorStyle, version: &str) -> bool {
    match style {
        ErrorStyle::Auto => has_error_results(version),
        ErrorStyle::Protocol => false,
        ErrorStyle::Result => true,
    }
}

/// True if failures and refusals of tools are results (decisions D4 and D40).
fn tells_models(style: ErrorStyle, version: &str) -> bool {
    match style {
        ErrorStyle::Auto => version != "1.0",
        ErrorStyle::Protocol => false,
        ErrorStyle::Result => true,
    }
}

/// The failure that the answer tells of, in the form that is due.
fn failure(answer: &Value, is_result: bool, says: &str) -> Value {
    assert_eq!(
        answer.get("result").is_some(),
        is_result,
        "{says}: {answer}"
    );
    failure_of(answer)
}

/// The answer to arguments that do not fit has the form of decision D3.
fn check_invalid(answer: &Value, style: ErrorStyle, version: &str, pointers: &[&str]) {
    let says = format!("{style:?}, {version}: {answer}");
    let violations = if wants_result(style, version) {
        let result = &answer["result"];
        assert_eq!(result["isError"], true, "{says}");
        let error = &result["_meta"]["io.owlclaw/error"];
        assert_eq!(error["code"], -32602, "{says}");
        let text = result["content"][0]["text"].as_str().expect("text");
        let violations = error["violations"].as_array().expect("violations");
        assert_eq!(text.lines().count(), violations.len(), "{says}");
        violations.clone()
    } else {
        let error = &answer["error"];
        assert_eq!(error["code"], -32602, "{says}");
        assert_eq!(error["data"]["retryable"], false, "{says}");
        assert!(
            !error["data"]["details"].as_array().unwrap().is_empty(),
            "{says}"
        );
        error["data"]["violations"]
            .as_array()
            .expect("violations")
            .clone()
    };
    let told: Vec<_> = violations
        .iter()
        .map(|it| it["pointer"].as_str().unwrap())
        .collect();
    for pointer in pointers {
        assert!(told.contains(pointer), "{says}");
    }
    for violation in &violations {
        assert!(
            violation["message"]
                .as_str()
                .unwrap()
                .starts_with("expected"),
            "{says}"
        );
    }
}

#[tokio::test]
async fn wrong_arguments_never_run_and_are_answered_as_the_revision_has_it() {
    for style in STYLES {
        for version in SPOKEN {
            let house = setup(style, false).build();
            let mut client = house.connect("anna", version).await;
            let answer = client
                .call("add", json!({ "a": "one", "b": 2.5, "c": 0 }))
                .await;
            check_invalid(&answer, style, version, &["", "/a", "/b"]);
            assert_eq!(house.bench.runs(), 0);
            let record = house.record().await;
            assert_eq!(record.len(), 1);
            assert_eq!(record[0].ended.outcome, Outcome::Invalid);
            assert_eq!(record[0].ended.error_code, Some(-32602));
            assert!(
                record[0]
                    .ended
                    .message
                    .as_ref()
                    .unwrap()
                    .contains("/a: expected integer")
            );
        }
    }
}

#[tokio::test]
async fn an_invalid_call_counts_as_a_call_and_costs_nothing() {
    let house = Setup::default().build();
    let mut client = house.connect("anna", "2025-11-25").await;
    client.call("priced", json!({ "no": "such" })).await;
    let Usage {
        spent,
        calls_total,
        calls_minute,
        ..
    } = house.usage_of("anna").await.unwrap();
    assert_eq!((spent.0, calls_total, calls_minute), (0, 1, 1));
    let call = &house.record().await[0];
    assert_eq!(call.started.estimated_cost_micros, PRICE);
    assert_eq!(call.ended.cost_micros, 0);
    client.call("priced", json!({})).await;
    assert_eq!(house.usage_of("anna").await.unwrap().spent.0, PRICE);
}

#[tokio::test]
async fn arguments_that_only_the_types_refuse_are_invalid_too() {
    // A schema takes 1.0 for an integer; the Rust type does not.
    let strict = Tool::native("strict", |_, numbers: HashMap<String, u8>| async move {
        Ok(format!("{}", numbers.len()))
    });
    let house = Setup {
        more_tools: vec![strict.with_estimated_cost_micros(PRICE)],
        ..Setup::default()
    }
    .build();
    let mut client = house.connect("anna", "2025-06-18").await;
    let answer = client.call("strict", json!({ "n": 1.0 })).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let call = &house.record().await[0];
    assert_eq!(call.ended.outcome, Outcome::Invalid);
    assert_eq!(call.ended.cost_micros, 0);
    assert_eq!(house.usage_of("anna").await.unwrap().spent.0, 0);
}

#[tokio::test]
async fn params_that_are_no_call_at_all_are_an_error_in_every_style() {
    for style in STYLES {
        for version in SPOKEN {
            let house = setup(style, false).build();
            let mut client = house.connect("anna", version).await;
            for params in [
                json!({}),
                json!({ "name": 7 }),
                json!({ "name": "add", "arguments": [1, 2] }),
                json!({ "name": "add", "arguments": "{}" }),
            ] {
                let answer = client.ask("tools/call", params.clone()).await;
                assert_eq!(
                    answer["error"]["code"], -32602,
                    "{style:?} {version} {params}"
                );
            }
            assert_eq!(house.bench.runs(), 0);
            assert!(house.record().await.is_empty());
        }
    }
}

#[tokio::test]
async fn a_failing_tool_is_a_result_or_an_error_as_the_revision_has_it() {
    for style in STYLES {
        for version in SPOKEN {
            let house = setup(style, false).build();
            let mut client = house.connect("anna", version).await;
            let answer = client.call("fail", json!({})).await;
            let says = format!("{style:?} {version}");
            let told = failure(&answer, tells_models(style, version), &says);
            assert_eq!(told["code"], -32005, "{says}");
            assert_eq!(told["message"], "the order is gone");
            let data = &told["data"];
            assert_eq!(data["details"], json!({ "order": 7 }));
            assert_eq!(data["retryable"], false);
            let call = &house.record().await[0];
            assert_eq!(call.ended.outcome, Outcome::Failed);
            assert_eq!(call.ended.error_code, Some(-32005));
            assert!(
                call.ended
                    .message
                    .as_ref()
                    .unwrap()
                    .contains("the order is gone")
            );
        }
    }
}

#[tokio::test]
async fn what_keeps_a_tool_from_answering_is_told_and_what_is_ours_is_an_error_everywhere() {
    for style in STYLES {
        for version in SPOKEN {
            let setup = setup(style, false);
            let crash = |_, _| async {
                Err(ToolError::Crashed {
                    message: "the worker has died".to_owned(),
                    repeat: Repeat::IfIdempotent,
                    detail: String::new(),
                })
            };
            let reading = setup
                .bench
                .tool("crash_while_reading", json!({}), &[], crash);
            let reading = reading.with_annotations(Annotations {
                read_only: Some(true),
                ..Annotations::default()
            });
            let house = Setup {
                more_tools: vec![reading],
                ..setup
            }
            .build();
            let mut client = house.connect("anna", version).await;
            for (tool, code, retryable, retry_after, words) in [
                (
                    "crash",
                    -32005,
                    Some(false),
                    None,
                    "the worker has died. The outcome of the call is unknown: it may have been done",
                ),
                (
                    "crash_while_reading",
                    -32005,
                    Some(true),
                    None,
                    "the worker has died",
                ),
                (
                    "busy",
                    -32005,
                    Some(true),
                    Some(2),
                    "the tool is busy; try again in 2 s",
                ),
                (
                    "suspended",
                    -32005,
                    Some(true),
                    Some(30),
                    "the tool is suspended because it has ended its process several times; try \
                     again in 30 s",
                ),
                ("broken", -32603, Some(false), None, "internal error"),
                ("panic", -32603, None, None, "internal error"),
            ] {
                let answer = client.call(tool, json!({})).await;
                let says = format!("{tool} {style:?} {version}");
                let is_result = code == -32005 && tells_models(style, version);
                let told = failure(&answer, is_result, &says);
                assert_eq!(told["code"], code, "{says}: {answer}");
                assert_eq!(told["message"], words, "{says}");
                let data = &told["data"];
                assert_eq!(data["retryable"].as_bool(), retryable, "{says}");
                assert_eq!(data["retry_after"].as_u64(), retry_after, "{says}");
                assert!(!answer.to_string().contains("secret"), "{answer}");
                assert!(!answer.to_string().contains("as asked"), "{answer}");
            }
            // And the connection lives on.
            assert!(succeeded(
                &client.call("add", json!({ "a": 1, "b": 2 })).await
            ));
        }
    }
}

#[tokio::test]
async fn refusals_have_the_form_of_the_error_style_and_unknown_tools_are_always_errors() {
    for style in STYLES {
        for version in SPOKEN {
            let setup = Setup {
                policy: policy(Rules {
                    deny: vec!["tool/add".to_owned()],
                    hidden: vec!["tool/fail".to_owned()],
                    ..Rules::default()
                }),
                ..setup(style, false)
            };
            let house = setup.build();
            let mut client = house.connect("anna", version).await;
            let says = format!("{style:?} {version}");
            let refused = client.call("add", json!({ "a": 1, "b": 2 })).await;
            let told = failure(&refused, tells_models(style, version), &says);
            assert_eq!(told["code"], -32003, "{says}");
            assert_eq!(told["message"], "permission is missing for this capability");
            assert_eq!(told["data"]["reason"], "permission");
            assert_eq!(told["data"]["retryable"], false);
            for unknown in ["fail", "nothing"] {
                let answer = client.call(unknown, json!({})).await;
                failure(&answer, false, &format!("{unknown} {says}"));
            }
            let metrics = house.mcp_server.metrics().render();
            let counted = r#"owlclaw_mcp_requests_total{code="-32003",method="tools/call"} 1"#;
            assert!(metrics.contains(counted), "{says}: {metrics}");
        }
    }
}

#[tokio::test]
async fn tracebacks_are_for_development_alone() {
    use adapter_tools::Failure;
    for version in SPOKEN {
        for development in [false, true] {
            let setup = setup(ErrorStyle::Auto, development);
            let traced = setup
                .bench
                .tool("traced", json!({}), &[], |_, _| async move {
                    Err(ToolError::Failed(Failure {
                        message: "no".to_owned(),
                        details: None,
                        traceback: Some("orders.py, line 7".to_owned()),
                    }))
                });
            let house = Setup {
                more_tools: vec![traced],
                ..setup
            }
            .build();
            let mut client = house.connect("anna", version).await;
            for (tool, trace) in [("traced", "orders.py, line 7"), ("crash", "its last words")] {
                let answer = client.call(tool, json!({})).await;
                let told = answer.to_string().contains(trace);
                assert_eq!(told, development, "{tool} {version}: {answer}");
            }
        }
    }
}

/// A few kinds of values; `true` for those the schema takes for an integer.
fn value() -> impl Strategy<Value = (Value, bool)> {
    prop_oneof![
        4 => (-1_000_i64..1_000).prop_map(|n| (json!(n), true)),
        1 => (-9_i64..9).prop_map(|n| (json!(n as f64 + 0.5), false)),
        1 => "[a-z]{0,4}".prop_map(|text| (json!(text), false)),
        1 => any::<bool>().prop_map(|it| (json!(it), false)),
        1 => Just((Value::Null, false)),
        1 => Just((json!([1]), false)),
        1 => Just((json!({ "a": 1 }), false)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Property 12.
    #[test]
    fn only_arguments_that_fit_reach_the_tool(
        calls in proptest::collection::vec((
            proptest::option::weighted(0.9, value()),
            proptest::option::weighted(0.9, value()),
            proptest::option::weighted(0.1, "[c-z]{1,3}"),
        ), 1..12),
        version in proptest::sample::select(SPOKEN.to_vec()),
        style in proptest::sample::select(STYLES.to_vec()),
    ) {
        block_on(async move {
            let house = setup(style, false).build();
            let mut client = house.connect("anna", version).await;
            let mut expected = 0;
            for (a, b, other) in &calls {
                let mut arguments = json!({});
                for (name, value) in [("a", a), ("b", b)] {
                    if let Some((value, _)) = value {
                        arguments[name] = value.clone();
                    }
                }
                if let Some(name) = other {
                    arguments[name.as_str()] = json!(1);
                }
                let fits = |it: &Option<(Value, bool)>| it.as_ref().is_some_and(|it| it.1);
                let valid = fits(a) && fits(b) && other.is_none();
                let answer = client.call("add", arguments.clone()).await;
                if valid {
                    expected += 1;
                    assert_ne!(answer["result"]["isError"], true, "{arguments}: {answer}");
                } else {
                    check_invalid(&answer, style, version, &[]);
                }
                assert_eq!(house.bench.runs(), expected, "{arguments}");
            }
            let record = house.record().await;
            let invalid = record.iter().filter(|it| it.ended.outcome == Outcome::Invalid);
            assert_eq!(invalid.count(), calls.len() - expected);
            assert_eq!(house.usage_of("anna").await.unwrap().calls_total, calls.len() as u64);
        });
    }
}
