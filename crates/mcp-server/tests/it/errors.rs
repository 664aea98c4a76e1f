//! Errors are well-formed, with the right code and id (Property 5, R9).

use crate::house::{SPOKEN, Setup, block_on, has_batches};
use mcp_protocol::{Method, ProtocolVersion};
use proptest::prelude::*;
use serde_json::{Value, json};
use testkit::{Conversation, MODERN, succeeded};

fn check(answer: &Value, code: i64, id: &Value) {
    assert_eq!(answer["jsonrpc"], "2.0", "{answer}");
    assert!(answer.get("result").is_none(), "{answer}");
    assert_eq!(answer["error"]["code"], code, "{answer}");
    assert!(
        !answer["error"]["message"].as_str().unwrap().is_empty(),
        "{answer}"
    );
    match id {
        Value::Null => assert!(answer.get("id").is_none_or(Value::is_null), "{answer}"),
        id => assert_eq!(answer["id"], *id, "{answer}"),
    }
}

#[tokio::test]
async fn what_is_malformed_is_answered_with_the_code_for_it() {
    for version in SPOKEN {
        let house = Setup::default().build();
        let mut client = house.connect("anna", version).await;
        for (frame, code, id) in [
            ("{", -32700, json!(null)),
            ("nonsense", -32700, json!(null)),
            ("\u{7f}", -32700, json!(null)),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping""#,
                -32700,
                json!(null),
            ),
            ("7", -32600, json!(null)),
            ("\"x\"", -32600, json!(null)),
            ("[]", -32600, json!(null)),
            (
                r#"{"jsonrpc":"1.0","id":71,"method":"ping"}"#,
                -32600,
                json!(71),
            ),
            (r#"{"id":72,"method":"ping"}"#, -32600, json!(72)),
            (r#"{"jsonrpc":"2.0","id":73}"#, -32600, json!(73)),
            (r#"{"jsonrpc":"2.0","id":74,"method":7}"#, -32600, json!(74)),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                -32600,
                json!(null),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                -32600,
                json!(null),
            ),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
                -32600,
                json!(null),
            ),
        ] {
            let answer = client.ask_raw(frame.as_bytes()).await;
            check(&answer, code, &id);
        }
        let answer = client
            .ask_raw(b"{\"jsonrpc\":\"2.0\",\"id\":75,\"method\":\"\xff\"}")
            .await;
        check(&answer, -32700, &Value::Null);
        assert_eq!(house.bench.runs(), 0);
        client.settle().await;
    }
}

#[tokio::test]
async fn methods_that_do_not_exist_are_not_found() {
    for version in SPOKEN {
        let house = Setup::default().build();
        let mut client = house.connect("anna", version).await;
        let mut absent = vec![
            "prompts/list",
            "completion/complete",
            "tasks/get",
            "tools",
            "",
        ];
        if version == MODERN {
            absent.extend(["resources/subscribe", "ping", "initialize"]);
        } else {
            absent.push("subscriptions/listen");
        }
        for method in absent {
            let request = client.voice.request(method, json!({}));
            client.send(&request).await;
            let answer = client.receive_answer(&request["id"]).await;
            check(&answer, -32601, &request["id"]);
        }
    }
}

#[tokio::test]
async fn ids_come_back_as_they_were_sent() {
    for version in SPOKEN {
        let house = Setup::default().build();
        let mut client = house.connect("anna", version).await;
        for id in [
            json!(0),
            json!(-1),
            json!(i64::MAX),
            json!(9_007_199_254_740_993_i64),
            json!(""),
            json!("1"),
            json!("ü\n\"\u{0}"),
        ] {
            let mut request = client.voice.request("tools/list", json!({}));
            request["id"] = id.clone();
            client.send(&request).await;
            assert_eq!(client.receive_answer(&id).await["id"], id);
            request["method"] = json!("nothing");
            client.send(&request).await;
            check(&client.receive_answer(&id).await, -32601, &id);
        }
    }
}

#[tokio::test]
async fn a_second_request_with_an_id_in_flight_is_refused_and_the_first_goes_on() {
    for version in SPOKEN {
        let house = Setup::default().build();
        let mut client = house.connect("anna", version).await;
        let mut request = client
            .voice
            .request("tools/call", json!({ "name": "wait" }));
        request["id"] = json!("same");
        client.send(&request).await;
        house.bench.begun().await;
        client.send(&request).await;
        check(&client.receive().await, -32600, &json!("same"));
        house.bench.gate.notify_waiters();
        let answer = client.receive().await;
        assert!(succeeded(&answer), "{answer}");
        assert_eq!(house.bench.runs(), 1);
    }
}

#[tokio::test]
async fn a_batch_is_answered_where_there_are_batches_and_refused_elsewhere() {
    // A modern client opens no session, so that its batch is refused message by message.
    for version in SPOKEN.into_iter().filter(|it| *it != MODERN) {
        let house = Setup::default().build();
        let mut client = house.connect("anna", version).await;
        let call = client
            .voice
            .request("tools/call", json!({ "name": "priced" }));
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let bad = json!({ "jsonrpc": "2.0", "id": "bad" });
        let batch = json!([call, note, bad]);
        if has_batches(version) {
            client.send(&batch).await;
            let answers = client.receive().await;
            let answers = answers.as_array().unwrap();
            assert_eq!(answers.len(), 2);
            assert_eq!(answers[0]["id"], call["id"]);
            check(&answers[1], -32600, &json!("bad"));
            assert_eq!(house.bench.runs(), 1);
            client.send(&json!([note, note])).await;
            assert!(client.settle().await.is_empty());
        } else {
            let line = batch.to_string() + "\n";
            client.send_bytes(line.as_bytes()).await;
            check(&client.receive().await, -32600, &Value::Null);
            assert_eq!(house.bench.runs(), 0);
        }
    }
}

/// A value of any kind, not too large.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e6..1e6).prop_map(|it: f64| json!(it)),
        "[ -~ü]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z_/]{0,8}", inner, 0..4)
                .prop_map(|it| Value::Object(it.into_iter().collect())),
        ]
    })
}

fn method() -> impl Strategy<Value = String> {
    let known = [
        "tools/call",
        "tools/list",
        "resources/read",
        "resources/list",
        "resources/templates/list",
        "resources/subscribe",
        "resources/unsubscribe",
        "ping",
        "server/discover",
        "initialize",
    ];
    prop_oneof![
        4 => proptest::sample::select(known.to_vec()).prop_map(str::to_owned),
        1 => "[a-z/]{0,12}".prop_map(|it: String| it),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Property 5. Besides what is said here, every answer is judged by the official schema.
    #[test]
    fn any_params_to_any_method_get_one_well_formed_answer_with_the_id(
        requests in proptest::collection::vec((method(), any_value(), any::<bool>()), 1..8),
        version in proptest::sample::select(SPOKEN.to_vec()),
    ) {
        block_on(async move {
            let house = Setup::default().build();
            let mut client = house.connect("anna", version).await;
            for (method, params, with_name) in requests {
                let mut request = client.voice.request(&method, params);
                if with_name && request["params"].is_object() {
                    for (member, value) in [("name", "add"), ("uri", "skill://x/y")] {
                        request["params"][member] = json!(value);
                    }
                }
                let id = request["id"].clone();
                client.send(&request).await;
                let answer = client.receive_answer(&id).await;
                assert_eq!(answer["jsonrpc"], "2.0");
                let spoken: ProtocolVersion = if version == "1.0" { "2024-11-05" } else { version }.parse().unwrap();
                let exists = Method::named(&method).is_some_and(|it| it.exists_in(spoken));
                if request["params"].is_object() || request.get("params").is_none() {
                    // Of what does not exist there is nothing else to say, and of what does never this.
                    assert_eq!(answer["error"]["code"] == -32601, !exists, "{request} {answer}");
                }
                if let Some(error) = answer.get("error") {
                    let code = error["code"].as_i64().unwrap();
                    check(&answer, code, &id);
                    let is_known = [-32700, -32600, -32601, -32602, -32001, -32002, -32022].contains(&code);
                    assert!(is_known, "{request} {answer}");
                    assert_ne!(code, -32603, "a peer's doing is no fault of ours: {request} {answer}");
                }
            }
            client.settle().await;
            assert_eq!(house.mcp_server.engine().in_flight(), 0);
        });
    }

    /// No line, whatever is in it, silences the server or makes it say what nobody asked.
    #[test]
    fn any_line_at_all_leaves_the_connection_working(
        lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..8),
        version in proptest::sample::select(SPOKEN.to_vec()),
    ) {
        block_on(async move {
            let house = Setup::default().build();
            let mut client = house.connect("anna", version).await;
            for line in lines {
                let line: Vec<u8> = line.into_iter().filter(|byte| *byte != b'\n').collect();
                client.send_line(&line).await;
            }
            for message in client.settle().await {
                let code = message["error"]["code"].as_i64();
                assert!(matches!(code, Some(-32700 | -32600)), "{message}");
            }
        });
    }
}
