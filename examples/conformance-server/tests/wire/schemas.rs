//! Validation by schemas: of arguments before a tool runs, and of results before they are sent.

use crate::house::{Program, WAYS};
use serde_json::{Value, json};
use testkit::{MODERN, REVISIONS};

#[tokio::test]
async fn arguments_that_miss_the_schema_never_reach_a_tool() {
    for way in WAYS {
        for version in REVISIONS {
            let mut peer = Program::Fixture.open(way, version, "{}").await;
            for (arguments, pointer) in [
                (json!({ "b": 99 }), "/b"),
                (json!({ "b": "3" }), "/b"),
                (json!({ "b": 1.5 }), "/b"),
                (json!({ "b": null }), "/b"),
                (json!({}), "b"),
            ] {
                let answer = peer.call("few", arguments.clone()).await;
                let what = format!("{version} {arguments}: {answer:?}");
                if version < "2025-11-25" {
                    answer.is_error(-32602, 200, &what);
                } else {
                    // The model is told, so that it can do better (SEP-1303).
                    assert_eq!(answer.result()["isError"], true, "{what}");
                    assert!(answer.text().contains(pointer), "{what}");
                }
            }
            assert_eq!(peer.call("few", json!({ "b": 10 })).await.text(), "10");
        }
    }
}

#[tokio::test]
async fn a_result_that_misses_its_schema_is_not_sent() {
    for way in WAYS {
        for version in ["2025-06-18", "2025-11-25", MODERN] {
            let mut peer = Program::Fixture.open(way, version, "{}").await;
            let listed = peer.ask("tools/list", Value::Null).await;
            let tools = listed.result()["tools"].as_array().unwrap();
            let liar = tools.iter().find(|it| it["name"] == "liar").unwrap();
            let promised = &liar["outputSchema"]["properties"]["count"]["type"];
            assert_eq!(promised, "integer");
            let answer = peer.call("liar", json!({})).await;
            // A failure of the tool, which is not held against the schema (decision D4).
            assert_eq!(answer.result()["isError"], true, "{answer:?}");
            assert_eq!(answer.result().get("structuredContent"), None);
            assert!(answer.text().contains("/count"), "{answer:?}");
            // The same answer without a promise is one.
            let answer = peer.call("mirrored", json!({})).await;
            assert_eq!(
                answer.result()["structuredContent"],
                json!({ "count": "many" })
            );
        }
    }
}

#[tokio::test]
async fn arguments_deeper_than_anybody_follows_are_refused() {
    for way in WAYS {
        for version in ["2025-06-18", MODERN] {
            let mut peer = Program::Fixture.open(way, version, "{}").await;
            for depth in [100, 1_000, 100_000] {
                let nested = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
                let head = peer.request("tools/call", json!({ "name": "few" }));
                let text = head.to_string();
                let text = text.replace(
                    r#""name":"few""#,
                    &format!(r#""name":"few","arguments":{{"b":{nested}}}"#),
                );
                assert!(depth < text.len());
                let (answer, _) = peer.say_bytes(&head, text.as_bytes()).await;
                let is_refused = answer.response.get("error").is_some()
                    || answer.response["result"]["isError"] == true;
                assert!(is_refused, "{way:?} {version} {depth}: {answer:?}");
                if depth == 100_000 {
                    answer.is_error(-32600, 400, "the deepest");
                }
            }
            assert_eq!(peer.call("few", json!({ "b": 10 })).await.text(), "10");
        }
    }
}
