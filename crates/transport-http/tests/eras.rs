//! Both eras on one endpoint.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{start, start_with};
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{Conversation, GENEROUS, HttpRequest, MODERN, REVISIONS, wait_until};
use transport_http::{HttpLimits, HttpOptions};

const CALL: fn() -> Value = || json!({ "name": "echo", "arguments": { "a": 1.0 } });

#[tokio::test]
async fn every_revision_is_spoken_on_one_endpoint() {
    let running = start(HttpOptions::default()).await;
    for version in REVISIONS {
        let mut client = running.client();
        client.open(version).await;
        let answer = client.request("tools/call", CALL()).await;
        assert_eq!(
            answer.result()["content"][0]["text"],
            r#"{"a": 1.0}"#.replace(' ', "")
        );
        let listed = client.request("tools/list", json!({})).await;
        assert_eq!(listed.result()["tools"][0]["name"], "echo");
        assert_eq!(client.session().is_some(), version != MODERN, "{version}");
        assert_eq!(
            listed.result().get("resultType").is_some(),
            version == MODERN
        );
    }
    assert_eq!(running.server.sessions(), REVISIONS.len() - 1);
}

#[tokio::test]
async fn a_session_lives_until_it_is_deleted() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    let opened = client.initialize("2025-11-25").await;
    let session = opened.http.header("mcp-session-id").unwrap().to_owned();
    assert!(session.bytes().all(|byte| byte.is_ascii_graphic()));
    assert_eq!(client.post_legacy("ping", json!({})).await.http.status, 200);

    // A second handshake is an error, and changes nothing.
    let again = client.voice.initialize("2025-03-26");
    let again = client.post(&client.post_of(&again)).await;
    assert_eq!((again.http.status, again.code()), (400, -32600));
    assert_eq!(running.server.sessions(), 1);

    // Somebody else's session is as unknown as none.
    let mut other = running
        .client()
        .with_header("x-mcp-client-id", "somebody-else");
    other.speak("2025-11-25");
    other.set_session(Some(&session));
    for request in [
        HttpRequest::post("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#),
        HttpRequest::get("/mcp"),
        HttpRequest::new("DELETE", "/mcp"),
    ] {
        let response = other.exchange(&other.dress(request.clone())).await;
        assert_eq!(response.status, 404, "{request:?}");
        assert_eq!(response.json()["error"]["code"], -32600);
        // What was read is told by its id.
        let id = (!request.body_bytes().is_empty()).then(|| json!(1));
        assert_eq!(response.json().get("id"), id.as_ref());
    }
    other.set_session(Some("never-was"));
    let ping = HttpRequest::post("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    assert_eq!(other.exchange(&other.dress(ping.clone())).await.status, 404);
    assert_eq!(
        other
            .exchange(&HttpRequest::new("DELETE", "/mcp"))
            .await
            .status,
        400
    );
    assert_eq!(other.exchange(&HttpRequest::get("/mcp")).await.status, 400);

    let delete = client.dress(HttpRequest::new("DELETE", "/mcp"));
    let deleted = client.exchange(&delete).await;
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    assert_eq!(client.exchange(&delete).await.status, 404);
    assert_eq!(client.exchange(&client.dress(ping)).await.status, 404);
    assert_eq!(running.server.sessions(), 0);
    assert!(running.engine.subscriptions().is_empty());

    // A client whose session is dead starts anew, whatever it still sends.
    let anew = client.voice.initialize("2025-11-25");
    let anew = client.post(&client.post_of(&anew)).await;
    assert_eq!(anew.http.status, 200);
    assert_ne!(anew.http.header("mcp-session-id"), Some(&*session));
}

#[tokio::test]
async fn who_never_shook_hands_is_served_all_the_same() {
    let running = start(HttpOptions::default()).await;
    let client = running.client();
    let post = |body: &str| client.dress(HttpRequest::post("/mcp", body));
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let listed = client.post(&post(list)).await;
    assert_eq!(listed.http.status, 200);
    assert!(listed.http.header("mcp-session-id").is_none());
    assert_eq!(listed.result()["tools"][0]["name"], "echo");
    for version in ["1.0", "2024-11-05", "2025-11-25"] {
        let request = post(list).header("mcp-protocol-version", version);
        assert_eq!(client.post(&request).await.http.status, 200, "{version}");
    }
    let bad = post(list).header("mcp-protocol-version", "2025-01-01");
    assert_eq!(client.exchange(&bad).await.status, 400);
    for silent in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
    ] {
        let response = client.exchange(&post(silent)).await;
        assert_eq!((response.status, response.body.len()), (202, 0));
    }
    assert_eq!(running.server.sessions(), 0);

    let strict = start(HttpOptions {
        allow_sessionless: false,
        ..HttpOptions::default()
    })
    .await;
    let refused = strict.client.exchange(&post(list)).await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn the_version_header_of_a_session_must_mean_something() {
    let running = start(HttpOptions::default()).await;
    for (opened, header, status) in [
        ("2025-11-25", "2025-11-25", 200),
        ("2025-11-25", "1999-01-01", 400),
        ("2025-11-25", "v999", 400),
        ("2025-06-18", "1999-01-01", 400),
        ("2025-03-26", "1999-01-01", 200),
    ] {
        let mut client = running.client();
        client.initialize(opened).await;
        let message = client.voice.request("ping", json!({}));
        let request = client
            .post_of(&message)
            .with("mcp-protocol-version", header);
        let response = client.exchange(&request).await;
        assert_eq!(response.status, status, "{opened} {header}");
    }
}

#[tokio::test]
async fn batches_are_for_old_sessions() {
    let running = start(HttpOptions::default()).await;
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},
                    {"jsonrpc":"2.0","id":null,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#;
    for version in ["2024-11-05", "2025-03-26"] {
        let mut client = running.client();
        client.initialize(version).await;
        let post = client.dress(HttpRequest::post("/mcp", batch));
        let answers = client.exchange(&post).await.json();
        let answers = answers.as_array().unwrap().clone();
        assert_eq!(answers.len(), 3);
        assert_eq!(answers[0]["id"], 1);
        assert_eq!(answers[1]["error"]["code"], -32600);
        assert_eq!(answers[2]["id"], 2);
        let silent = r#"[{"jsonrpc":"2.0","method":"x"}]"#;
        let post = client.dress(HttpRequest::post("/mcp", silent));
        assert_eq!(client.exchange(&post).await.status, 202);
    }
    for version in ["2025-06-18", "2025-11-25"] {
        let mut client = running.client();
        client.initialize(version).await;
        let post = client.dress(HttpRequest::post("/mcp", batch));
        let refused = client.exchange(&post).await;
        assert_eq!(
            (refused.status, refused.json()["error"]["code"].as_i64()),
            (400, Some(-32600))
        );
    }
    let client = running.client();
    let plain = HttpRequest::post("/mcp", batch);
    assert_eq!(
        client.exchange(&plain).await.status,
        200,
        "nothing was agreed on"
    );
    for version in [MODERN, "2025-06-18"] {
        let refused = client
            .exchange(&plain.clone().header("mcp-protocol-version", version))
            .await;
        assert_eq!(refused.status, 400, "{version}");
        assert_eq!(refused.json()["error"]["code"], -32600);
    }
    assert_eq!(
        client
            .exchange(&HttpRequest::post("/mcp", "[]"))
            .await
            .status,
        400
    );
}

/// A modern call of `echo`, and what to do to its headers and body.
#[tokio::test]
async fn the_headers_of_a_modern_request_mirror_its_body() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    client.speak(MODERN);
    let message = client.voice.request("tools/call", CALL());
    let unicode = client
        .voice
        .request("tools/call", json!({ "name": "größe" }));
    let good = client.post_of(&message);
    let with_version = |version: &str| {
        let mut message = message.clone();
        message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = version.into();
        client.post_of(&message)
    };
    let without = |key: &str| {
        let mut message = message.clone();
        message["params"]["_meta"]
            .as_object_mut()
            .unwrap()
            .remove(key);
        client.post_of(&message)
    };
    let mut no_meta = message.clone();
    no_meta["params"].as_object_mut().unwrap().remove("_meta");
    let encoded = client.post_of(&unicode);
    assert!(String::from_utf8_lossy(&encoded.to_bytes()).contains("=?base64?"));

    let version_key = "io.modelcontextprotocol/protocolVersion";
    let capabilities_key = "io.modelcontextprotocol/clientCapabilities";
    #[rustfmt::skip]
    let rows: Vec<(&str, HttpRequest, u16, i64)> = vec![
        ("all is well", good.clone(), 200, 0),
        ("names are case-insensitive", good.clone().without("mcp-method").header("MCP-METHOD", "tools/call"), 200, 0),
        ("space around is trimmed", good.clone().with("mcp-name", "  echo\t"), 200, 0),
        ("the same twice", good.clone().header("mcp-name", "echo"), 200, 0),
        ("a session is ignored", good.clone().header("mcp-session-id", "never-was"), 200, 0),
        ("an event id is ignored", good.clone().header("last-event-id", "7"), 200, 0),
        ("encoded without need", good.clone().with("mcp-name", "=?base64?ZWNobw==?="), 200, 0),
        ("encoded by need, unknown tool", encoded.clone(), 200, -32602),
        ("no version header", good.clone().without("mcp-protocol-version"), 400, -32020),
        ("two version headers", good.clone().header("mcp-protocol-version", "2025-11-25"), 400, -32020),
        ("another version in the header", good.clone().with("mcp-protocol-version", "2025-11-25"), 400, -32020),
        ("an unknown one in the header", good.clone().with("mcp-protocol-version", "v999"), 400, -32020),
        ("an unknown one in the body", with_version("v999"), 400, -32020),
        ("an unknown one in both", with_version("v999").with("mcp-protocol-version", "v999"), 400, -32022),
        ("a legacy one in both", with_version("2025-11-25").with("mcp-protocol-version", "2025-11-25"), 400, -32022),
        ("no version in the body", without(version_key), 400, -32602),
        ("no capabilities in the body", without(capabilities_key), 400, -32602),
        ("no _meta", client.post_of(&no_meta), 400, -32602),
        ("no _meta, unknown version", client.post_of(&no_meta).with("mcp-protocol-version", "v999"), 400, -32022),
        ("no method header", good.clone().without("mcp-method"), 400, -32020),
        ("another method", good.clone().with("mcp-method", "tools/list"), 400, -32020),
        ("values are case-sensitive", good.clone().with("mcp-method", "Tools/Call"), 400, -32020),
        ("two methods", good.clone().header("mcp-method", "tools/list"), 400, -32020),
        ("no name header", good.clone().without("mcp-name"), 400, -32020),
        ("another name", good.clone().with("mcp-name", "ech"), 400, -32020),
        ("an empty name", good.clone().with("mcp-name", ""), 400, -32020),
        ("bad base64", good.clone().with("mcp-name", "=?base64?ZWNobw?="), 400, -32020),
        ("a half sentinel is literal", good.clone().with("mcp-name", "=?base64?ZWNobw=="), 400, -32020),
        ("characters to be encoded", good.clone().with("mcp-name", "größe"), 400, -32020),
    ];
    for (what, request, status, code) in rows {
        let answer = client.exchange(&request).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert_eq!(
            answer.json()["error"]["code"].as_i64().unwrap_or(0),
            code,
            "{what}"
        );
        let sent: Value = serde_json::from_slice(request.body_bytes()).unwrap();
        assert_eq!(answer.json()["id"], sent["id"], "{what}");
    }
    let unsupported = with_version("v999").with("mcp-protocol-version", "v999");
    let data = client.exchange(&unsupported).await.json()["error"]["data"].clone();
    assert_eq!(data["supported"], json!([MODERN]));
    assert_eq!(data["requested"], "v999");
    assert_eq!(running.server.sessions(), 0, "none was made");
}

#[tokio::test]
async fn a_resource_is_named_by_its_uri() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    client.speak(MODERN);
    let message = client
        .voice
        .request("resources/read", json!({ "uri": "skill://a/b" }));
    let good = client.post_of(&message);
    assert_eq!(client.exchange(&good).await.status, 200);
    let bad = good.with("mcp-name", "skill://a/c");
    assert_eq!(client.exchange(&bad).await.json()["error"]["code"], -32020);
}

#[tokio::test]
async fn a_task_is_named_by_its_id() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    client.speak(MODERN);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        // Whatever becomes of it: the headers are compared first, and are not to blame.
        for params in [
            json!({ "taskId": "größe", "name": "echo" }),
            json!({ "name": "echo" }),
        ] {
            let message = client.voice.request(method, params);
            let answer = client.exchange(&client.post_of(&message)).await;
            assert_ne!(answer.json()["error"]["code"], -32020, "{message}");
        }
        let params = json!({ "name": "echo", "taskId": "786512e2" });
        let message = client.voice.request(method, params);
        let good = client.post_of(&message);
        for (what, bad) in [
            ("missing", good.clone().without("mcp-name")),
            ("another", good.clone().with("mcp-name", "786512e")),
            ("of another member", good.clone().with("mcp-name", "echo")),
            ("there twice", good.clone().header("mcp-name", "echo")),
            ("bad base64", good.with("mcp-name", "=?base64?Zg?=")),
        ] {
            let answer = client.exchange(&bad).await;
            assert_eq!(answer.status, 400, "{method}: {what}");
            assert_eq!(answer.json()["error"]["code"], -32020, "{method}: {what}");
        }
    }
}

#[tokio::test]
async fn what_the_modern_era_has_removed_does_not_exist() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "nope",
    ] {
        let answer = client.post_modern(method, json!({ "uri": "x" })).await;
        assert_eq!(
            (answer.http.status, answer.code()),
            (404, -32601),
            "{method}"
        );
    }
    let malformed = client.post_modern("tools/call", json!({ "arguments": {} }));
    assert_eq!(
        (malformed.await.http.status, running.server.sessions()),
        (200, 0)
    );

    let dressed = |body: &str| client.dress(HttpRequest::post("/mcp", body));
    for (body, status) in [
        (
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            202,
        ),
        (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, 400),
    ] {
        let response = client.exchange(&dressed(body)).await;
        assert_eq!(response.status, status, "{body}");
    }
    for method in ["GET", "DELETE"] {
        let response = client
            .exchange(&client.dress(HttpRequest::new(method, "/mcp")))
            .await;
        assert_eq!(response.status, 405);
        assert!(response.header("allow").unwrap().starts_with("POST"));
    }
}

#[tokio::test]
async fn sessions_are_bounded_and_end_when_nobody_uses_them() {
    let running = start_with(HttpLimits {
        max_sessions_per_principal: 2,
        session_idle: Duration::from_millis(200),
        ..HttpLimits::default()
    })
    .await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut client = running.client();
        assert_eq!(client.initialize("2025-11-25").await.http.status, 200);
        streams.push(client.listen().await);
    }
    let refused = running.client().initialize("2025-11-25").await;
    assert_eq!((refused.http.status, refused.code()), (503, -32603));
    let mut other = running.client().with_header("x-mcp-client-id", "other");
    assert_eq!(other.initialize("2025-11-25").await.http.status, 200);
    drop(streams);
    wait_until("idle sessions end", GENEROUS, || {
        running.server.sessions() == 0
    })
    .await;
    assert!(running.engine.subscriptions().is_empty());
}

#[tokio::test]
async fn the_principal_is_the_header_or_the_address() {
    let running = start(HttpOptions::default()).await;
    running.client().post_modern("tools/list", json!({})).await;
    let mut named = running.client().with_header("x-mcp-client-id", "desk-4");
    named.post_modern("tools/list", json!({})).await;
    named.initialize("2025-11-25").await;
    named.post_legacy("tools/list", json!({})).await;
    assert_eq!(
        *running.seen.principals.lock().unwrap(),
        ["127.0.0.1", "desk-4", "desk-4"]
    );
    let mut bad = running.client().with_header("x-mcp-client-id", "größe");
    assert_eq!(
        bad.post_modern("tools/list", json!({})).await.http.status,
        400
    );
}
