//! HTTP status and headers beside the messages.

use crate::house::{NEWEST_LEGACY, Program, call};
use serde_json::{Value, json};
use testkit::{HttpClient, HttpRequest, MODERN};

/// Clients of either era, for whom the same holds.
async fn clients(server: &testkit::HttpServer) -> [HttpClient; 2] {
    let (mut legacy, mut modern) = (server.client(), server.client());
    legacy.initialize(NEWEST_LEGACY).await;
    modern.speak(MODERN);
    [legacy, modern]
}

/// `Host` is ours: what alone is wrong is where the page comes from.
#[tokio::test]
async fn a_foreign_origin_alone_is_refused() {
    let server = Program::Suite.http().await;
    for mut client in clients(&server).await {
        let message = client.voice.request("tools/list", Value::Null);
        let post = client.post_of(&message);
        let others = ["GET", "DELETE", "OPTIONS"];
        let others = others.map(|method| client.dress(HttpRequest::new(method, "/mcp")));
        for origin in [
            "https://evil.example",
            "null",
            "http://localhost.evil.example",
        ] {
            for request in others.iter().chain([&post]) {
                let answer = client.post(&request.clone().header("origin", origin)).await;
                assert_eq!(answer.http.status, 403, "{origin} {request:?}");
                let header = answer.http.header("access-control-allow-origin");
                assert_eq!(header, None, "{origin}");
            }
        }
        let own = format!("http://{}", server.address());
        for origin in [&*own, "http://localhost:3000"] {
            let answer = client.post(&post.clone().header("origin", origin)).await;
            assert_eq!(answer.http.status, 200, "{origin}");
        }
    }
}

#[tokio::test]
async fn headers_that_contradict_the_body_are_refused() {
    let server = Program::Suite.http().await;
    let mut client = server.client();
    client.speak(MODERN);
    let message = client
        .voice
        .request("tools/call", call("test_simple_text", json!({})));
    let good = client.post_of(&message);
    #[rustfmt::skip]
    let rows = [
        ("all is well", good.clone(), 200, 0),
        ("a session is none of its business", good.clone().header("mcp-session-id", "x"), 200, 0),
        ("no method", good.clone().without("mcp-method"), 400, -32020),
        ("another method", good.clone().with("mcp-method", "tools/list"), 400, -32020),
        ("two methods", good.clone().header("mcp-method", "tools/list"), 400, -32020),
        ("two methods, the other way round", good.clone().with("mcp-method", "tools/list").header("mcp-method", "tools/call"), 400, -32020),
        ("no name", good.clone().without("mcp-name"), 400, -32020),
        ("another name", good.clone().with("mcp-name", "test_error_handling"), 400, -32020),
        ("two names", good.clone().header("mcp-name", "test_error_handling"), 400, -32020),
        ("badly encoded", good.clone().with("mcp-name", "=?base64?dGVzdA?="), 400, -32020),
        ("no version", good.clone().without("mcp-protocol-version"), 400, -32020),
        ("another version", good.clone().with("mcp-protocol-version", NEWEST_LEGACY), 400, -32020),
        ("two versions", good.clone().header("mcp-protocol-version", NEWEST_LEGACY), 400, -32020),
    ];
    for (what, request, status, code) in rows {
        let answer = client.post(&request).await;
        assert_eq!(answer.http.status, status, "{what}: {answer:?}");
        let found = answer.response()["error"]["code"].as_i64();
        assert_eq!(found.unwrap_or(0), code, "{what}: {answer:?}");
        assert_eq!(answer.response()["id"], message["id"], "{what}");
    }
}

#[tokio::test]
async fn a_client_that_takes_anything_is_served() {
    let server = Program::Suite.http().await;
    for mut client in clients(&server).await {
        let message = client.voice.request("tools/list", Value::Null);
        let post = client.post_of(&message);
        for (accept, status) in [
            (Some("*/*"), 200),
            (Some("application/*"), 200),
            (Some("application/json;q=0.5, */*;q=0.1"), 200),
            (None, 200),
            (Some("text/html"), 406),
        ] {
            let mut request = post.clone().without("accept");
            if let Some(accept) = accept {
                request = request.header("accept", accept);
            }
            let answer = client.post(&request).await;
            assert_eq!(answer.http.status, status, "{accept:?}");
        }
    }
}

#[tokio::test]
async fn a_modern_client_posts_no_responses() {
    let server = Program::Suite.http().await;
    let mut client = server.client();
    client.speak(MODERN);
    for response in [
        json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
        json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -1, "message": "no" } }),
    ] {
        let answer = client.post(&client.post_of(&response)).await;
        assert_eq!((answer.http.status, answer.code()), (400, -32600));
    }
}

#[tokio::test]
async fn a_modern_notification_needs_no_method_header() {
    let server = Program::Suite.http().await;
    let mut client = server.client();
    client.speak(MODERN);
    let params = json!({ "requestId": 1 });
    let message = client.voice.notification("notifications/cancelled", params);
    let with = client.post_of(&message);
    for request in [with.clone().without("mcp-method"), with] {
        let answer = client.post(&request).await;
        assert_eq!((answer.http.status, answer.http.body.len()), (202, 0));
    }
}

/// Description of a row, the headers of the call, and the status of the answer.
type Compared = (&'static str, &'static [(&'static str, &'static str)], u16);

/// `größe`, as a header has it.
const ENCODED: &str = "=?base64?Z3LDtsOfZQ==?=";

/// Nested, compared as what they are, and looked at whatever the tool.
#[tokio::test]
async fn arguments_are_compared_with_the_headers_that_repeat_them() {
    let server = Program::Fixture.http().await;
    let mut client = server.client();
    client.speak(MODERN);
    let arguments = json!({ "place": { "region": "größe", "floor": 42 }, "urgent": true });
    #[rustfmt::skip]
    let rows: [Compared; 12] = [
        ("as they are", &[("region", ENCODED), ("floor", "42"), ("urgent", "true")], 200),
        ("another way to write a number", &[("region", ENCODED), ("floor", "42.0"), ("urgent", "true")], 200),
        ("another number", &[("region", ENCODED), ("floor", "43"), ("urgent", "true")], 400),
        ("no number", &[("region", ENCODED), ("floor", "forty-two"), ("urgent", "true")], 400),
        ("another text", &[("region", "north"), ("floor", "42"), ("urgent", "true")], 400),
        ("raw bytes", &[("region", "größe"), ("floor", "42"), ("urgent", "true")], 400),
        ("bad base64", &[("region", "=?base64?!?="), ("floor", "42"), ("urgent", "true")], 400),
        ("another truth", &[("region", ENCODED), ("floor", "42"), ("urgent", "TRUE")], 400),
        ("one is missing", &[("region", ENCODED), ("floor", "42")], 400),
        ("a nested one is missing", &[("floor", "42"), ("urgent", "true")], 400),
        ("twice the same", &[("region", ENCODED), ("floor", "42"), ("floor", "42"), ("urgent", "true")], 200),
        ("two that differ", &[("region", ENCODED), ("floor", "42"), ("floor", "43"), ("urgent", "true")], 400),
    ];
    for (what, headers, status) in rows {
        let message = client
            .voice
            .request("tools/call", call("mirrored", arguments.clone()));
        let mut request = client.post_of(&message);
        for (name, value) in headers {
            request = request.header(&format!("mcp-param-{name}"), value);
        }
        let answer = client.post(&request).await;
        assert_eq!(answer.http.status, status, "{what}: {answer:?}");
        if status == 400 {
            assert_eq!(answer.code(), -32020, "{what}");
        }
    }
    // What is not in the body, or null there, must not be in the headers.
    for (arguments, header, status) in [
        (json!({}), None, 200),
        (json!({}), Some("north"), 400),
        (json!({ "place": { "region": null } }), Some("north"), 400),
        (json!({ "place": 7 }), Some("north"), 400),
    ] {
        let message = client
            .voice
            .request("tools/call", call("mirrored", arguments.clone()));
        let mut request = client.post_of(&message);
        if let Some(header) = header {
            request = request.header("mcp-param-region", header);
        }
        let answer = client.post(&request).await;
        assert_eq!(
            answer.http.status, status,
            "{arguments} {header:?}: {answer:?}"
        );
    }
}

/// The modern revision resumes nothing: its streams have no ids, and there is none to come back to.
#[tokio::test]
async fn modern_streams_cannot_be_resumed() {
    let server = Program::Suite.http().await;
    let mut client = server.client();
    client.speak(MODERN);
    let mut params = call("test_tool_with_progress", json!({}));
    params["_meta"] = json!({ "progressToken": "p" });
    let answer = client.post_modern("tools/call", params).await;
    assert_eq!(answer.messages.len(), 4);
    assert_eq!(answer.http.header("mcp-session-id"), None);
    for event in &answer.events {
        assert_eq!((&event.id, event.retry), (&None, None), "{event:?}");
    }
    for method in ["GET", "DELETE"] {
        let request = client.dress(HttpRequest::new(method, "/mcp"));
        for request in [request.clone(), request.header("last-event-id", "1")] {
            let request = request.header("accept", "text/event-stream");
            let answer = client.exchange(&request).await;
            assert_eq!(answer.status, 405, "{method}");
            assert!(answer.header("allow").unwrap().contains("POST"));
        }
    }
}
