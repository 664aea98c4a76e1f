//! The fixture over HTTP, where the official suite does not look.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use std::time::Duration;
use testkit::{HttpRequest, HttpServer, MODERN, Port, failure_of};
use tokio::{process::Command, time::timeout};

/// Far less than a question may stay open, and far more than any answer takes.
const SOON: Duration = Duration::from_secs(30);

async fn start() -> HttpServer {
    let port = testkit::free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance-server"));
    command.args(["--port", &port.to_string()]);
    HttpServer::spawn(command, Port::Fixed(port)).await
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

#[tokio::test]
async fn a_level_is_enough_to_hear_log_messages() {
    let server = start().await;
    let mut client = server.client();
    for (level, expected) in [(None, 0), (Some("info"), 3), (Some("error"), 0)] {
        let mut params = call("test_tool_with_logging", json!({}));
        if let Some(level) = level {
            params["_meta"] = json!({ "io.modelcontextprotocol/logLevel": level });
        }
        let answer = client.post_modern("tools/call", params).await;
        assert_eq!(answer.messages.len(), expected + 1, "{level:?}");
    }
}

#[tokio::test]
async fn a_legacy_client_is_asked_on_the_stream_of_its_request() {
    let server = start().await;
    let mut client = server.client();
    client.voice.capabilities = json!({ "elicitation": {} });
    client.initialize("2025-11-25").await;
    let params = call("test_input_required_result_elicitation", json!({}));
    let request = client.voice.request("tools/call", params);
    let mut stream = client.stream(&client.post_of(&request)).await;
    let question = stream.message().await;
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({
        "jsonrpc": "2.0",
        "id": question["id"],
        "result": { "action": "accept", "content": { "name": "Anna" } },
    });
    let accepted = client.exchange(&client.post_of(&answer)).await;
    assert_eq!(accepted.status, 202);
    let ended = stream.message().await;
    assert_eq!(ended["result"]["content"][0]["text"], "Hello, Anna!");
}

#[tokio::test]
async fn a_session_answers_only_its_own_questions() {
    let server = start().await;
    let mut asked = server.client();
    asked.voice.capabilities = json!({ "elicitation": {} });
    asked.initialize("2025-11-25").await;
    let mut stranger = server.client();
    stranger.initialize("2025-11-25").await;
    let params = call("test_input_required_result_elicitation", json!({}));
    let request = asked.voice.request("tools/call", params);
    let mut stream = asked.stream(&asked.post_of(&request)).await;
    let question = stream.message().await;
    for (client, name) in [(&stranger, "Mallory"), (&asked, "Anna")] {
        let answer = json!({
            "jsonrpc": "2.0",
            "id": question["id"],
            "result": { "action": "accept", "content": { "name": name } },
        });
        client.exchange(&client.post_of(&answer)).await;
    }
    let ended = stream.message().await;
    assert_eq!(ended["result"]["content"][0]["text"], "Hello, Anna!");
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_told_so_at_once() {
    let server = start().await;
    let mut client = server.client();
    client.voice.capabilities = json!({ "elicitation": {} });
    client.initialize("2025-11-25").await;
    let params = call("test_input_required_result_elicitation", json!({}));
    let request = client.voice.request("tools/call", params);
    let only_json = client.post_of(&request).with("accept", "application/json");
    let answer = timeout(SOON, client.post(&only_json)).await.unwrap();
    assert_eq!(failure_of(answer.response())["code"], -32603);
}

#[tokio::test]
async fn headers_that_repeat_arguments_must_agree_with_them() {
    let server = start().await;
    let mut client = server.client();
    client.speak(MODERN);
    for (arguments, header, status) in [
        (json!({ "value": "north" }), Some("north"), 200),
        (
            json!({ "value": "north" }),
            Some("=?base64?bm9ydGg=?="),
            200,
        ),
        (json!({ "value": "north" }), Some("south"), 400),
        (json!({ "value": "north" }), None, 400),
        (json!({}), Some("north"), 400),
        (json!({}), None, 200),
    ] {
        let params = call("test_custom_header", arguments.clone());
        let message = client.voice.request("tools/call", params);
        let mut request = client.post_of(&message);
        if let Some(header) = header {
            request = request.header("mcp-param-value", header);
        }
        let response = client.exchange(&request).await;
        assert_eq!(response.status, status, "{arguments} and {header:?}");
        if status == 400 {
            assert_eq!(response.json()["error"]["code"], -32020);
        }
    }
}

#[tokio::test]
async fn a_tool_hangs_up_and_is_answered_on_the_way_back() {
    let server = start().await;
    let mut client = server.client();
    client.initialize("2025-11-25").await;
    for tool in ["test_reconnection", "test_reconnection_blocking"] {
        let mut params = call(tool, json!({}));
        params["_meta"] = json!({ "progressToken": tool });
        let request = client.voice.request("tools/call", params);
        let mut stream = client.stream(&client.post_of(&request)).await;
        let mut last = None;
        let mut progress = Vec::new();
        while let Some(event) = stream.next_event().await {
            last = event.id;
            if !event.data.is_empty() {
                let message: Value = serde_json::from_str(&event.data).unwrap();
                progress.push(message["params"]["progress"].clone());
            }
        }
        assert_eq!(progress, [json!(1.0)], "{tool}");
        let back = HttpRequest::get("/mcp")
            .header("accept", "text/event-stream")
            .header("last-event-id", &last.unwrap());
        let mut rest = client.stream(&client.dress(back)).await;
        rest.dialogue.sent(request.to_string().as_bytes());
        assert_eq!(rest.message().await["params"]["progress"], 2.0, "{tool}");
        let answer = rest.message().await;
        assert_eq!(
            answer["result"]["content"][0]["text"],
            "The client has come back."
        );
        assert_eq!(timeout(SOON, rest.next_event()).await.unwrap(), None);
    }
    // Who does not know of it is answered where it waits.
    for version in ["2025-06-18", MODERN] {
        let mut other = server.client();
        let answer = match version {
            MODERN => {
                let params = call("test_reconnection", json!({}));
                other.post_modern("tools/call", params).await
            }
            version => {
                other.initialize(version).await;
                let params = call("test_reconnection", json!({}));
                let request = other.voice.request("tools/call", params);
                other.post(&other.post_of(&request)).await
            }
        };
        assert!(answer.result()["content"].is_array(), "{version}");
    }
}
