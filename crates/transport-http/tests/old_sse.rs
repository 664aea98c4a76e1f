//! HTTP with SSE, the transport of 2024-11-05.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{A_WHILE, Running, start, start_with};
use mcp_service::Change;
use serde_json::{Value, json};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use testkit::{Conversation, GENEROUS, HttpRequest, OldSse, wait_until};
use transport_http::{HttpLimits, HttpOptions};

async fn open(running: &Running) -> OldSse {
    let mut client = running.client.open_old_sse("/mcp/sse").await;
    client.open("2024-11-05").await;
    client
}

fn call(id: i64, tool: &str) -> Vec<u8> {
    let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": "t" } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
        .to_string()
        .into_bytes()
}

async fn nothing_is_left(running: &Running) {
    wait_until("all is freed", GENEROUS, || {
        running.server.sessions() == 0
            && running.engine.in_flight() == 0
            && running.engine.subscriptions().is_empty()
    })
    .await;
}

#[tokio::test]
async fn everything_comes_on_the_stream() {
    let running = start(HttpOptions::default()).await;
    for path in ["/mcp/sse", "/sse"] {
        for version in ["2024-11-05", "2025-11-25"] {
            let mut client = running.client.open_old_sse(path).await;
            assert!(client.endpoint.starts_with("/mcp/messages?sessionId="));
            assert_eq!(client.open(version).await["protocolVersion"], version);
            let listed = client.request("tools/list", json!({})).await;
            assert_eq!(listed.result()["tools"][0]["name"], "echo");
            assert_eq!(client.request("nope", json!({})).await.code(), -32601);
            let params = json!({ "name": "steps", "_meta": { "progressToken": "t" } });
            let stepped = client.request("tools/call", params).await;
            let steps: Vec<_> = stepped
                .earlier
                .iter()
                .map(|message| &message["params"]["progress"])
                .collect();
            assert_eq!(steps, [1.0, 2.0, 3.0], "each before the answer");
            let _ = stepped.result();
            running.engine.publish(&Change::Tools);
            assert_eq!(
                client.stream().message().await["method"],
                "notifications/tools/list_changed"
            );
            let big = client.request("tools/call", json!({ "name": "big" })).await;
            let text = big.result()["content"][0]["text"].as_str().unwrap().len();
            assert_eq!(text, 300_000);
            assert_eq!(running.server.sessions(), 1);
            drop(client);
            nothing_is_left(&running).await;
        }
    }
}

#[tokio::test]
async fn calls_run_side_by_side_and_each_is_answered() {
    let running = start(HttpOptions::default()).await;
    let seen = &running.seen;
    let mut client = open(&running).await;
    assert_eq!(client.post(&call(100, "stuck")).await.status, 202);
    seen.wait(&seen.begun, 1).await;
    for id in 101..150 {
        assert_eq!(client.post(&call(id, "echo")).await.status, 202);
    }
    let mut answered = Vec::new();
    while answered.len() < 49 {
        answered.push(client.stream().message().await["id"].as_i64().unwrap());
    }
    answered.sort_unstable();
    assert_eq!(answered, (101..150).collect::<Vec<_>>());
    seen.release.notify_one();
    assert_eq!(client.stream().message().await["id"], 100);
}

#[tokio::test]
async fn a_batch_is_answered_one_by_one() {
    let running = start(HttpOptions::default()).await;
    let mut client = open(&running).await;
    let batch = br#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},
                     {"jsonrpc":"2.0","id":"b","method":"ping"}]"#;
    assert_eq!(client.post(batch).await.status, 202);
    assert_eq!(client.stream().message().await["id"], 1);
    assert_eq!(client.stream().message().await["id"], "b");
}

#[tokio::test]
async fn hanging_up_ends_the_session_and_its_requests() {
    let running = start(HttpOptions::default()).await;
    let seen = &running.seen;
    let mut client = open(&running).await;
    let endpoint = client.endpoint.clone();
    client.post(&call(100, "stuck")).await;
    client.post(&call(101, "stuck")).await;
    seen.wait(&seen.begun, 2).await;
    drop(client);
    seen.wait(&seen.dropped, 2).await;
    nothing_is_left(&running).await;
    assert_eq!(seen.finished.load(Ordering::SeqCst), 0);
    let late = HttpRequest::post(&endpoint, call(102, "echo"));
    assert_eq!(running.client.exchange(&late).await.status, 404);
}

#[tokio::test]
async fn a_request_is_cancelled_and_nothing_more_is_said_of_it() {
    let running = start(HttpOptions::default()).await;
    let seen = &running.seen;
    let mut client = open(&running).await;
    client.post(&call(100, "stuck")).await;
    seen.wait(&seen.begun, 1).await;
    client
        .notify("notifications/cancelled", json!({ "requestId": 100 }))
        .await;
    seen.wait(&seen.dropped, 1).await;
    let _ = client.request("ping", json!({})).await.result();
    client.stream().expect_silence(A_WHILE).await;
}

#[tokio::test]
async fn a_thousand_clients_leave_nothing_behind() {
    let running = start(HttpOptions::default()).await;
    let mut clients = Vec::new();
    for _ in 0..1_000 {
        clients.push(running.client.open_old_sse("/mcp/sse").await);
    }
    assert_eq!(running.server.sessions(), 1_000);
    drop(clients);
    nothing_is_left(&running).await;
    wait_until("all have gone", GENEROUS, || {
        running.server.connections() == 0
    })
    .await;
}

#[tokio::test]
async fn a_session_is_its_principal_s_and_its_transport_s() {
    let running = start(HttpOptions::default()).await;
    let mut client = open(&running).await;
    let id = client.endpoint.split_once('=').unwrap().1.to_owned();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let mut streamable = running.client();
    let opened = streamable.initialize("2025-11-25").await;
    let streamable = opened.http.header("mcp-session-id").unwrap().to_owned();
    let messages = |id: &str| HttpRequest::post(&format!("/mcp/messages?sessionId={id}"), ping);
    let other = HttpRequest::post(&client.endpoint, ping).header("x-mcp-client-id", "other");
    for (what, request, status) in [
        ("somebody else's", other, 404),
        ("unknown", messages("never-was"), 404),
        ("of the other transport", messages(&streamable), 404),
        (
            "of this transport, on the other",
            HttpRequest::post("/mcp", ping).header("mcp-session-id", &id),
            404,
        ),
        ("none", HttpRequest::post("/mcp/messages", ping), 400),
        ("two", messages(&format!("{id}&sessionId={id}")), 400),
        ("its own", messages(&id), 202),
        ("another parameter", messages(&format!("{id}&a=b")), 202),
    ] {
        let response = running.client.exchange(&request).await;
        assert_eq!(response.status, status, "{what}: {response:?}");
        if status == 202 {
            client.stream().dialogue.sent(ping.as_bytes());
            assert_eq!(client.stream().message().await["result"], json!({}));
        }
    }
    client.stream().expect_silence(A_WHILE).await;
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_where_it_was_posted() {
    let running = start_with(HttpLimits {
        max_body_bytes: 1_000,
        ..HttpLimits::default()
    })
    .await;
    let mut client = open(&running).await;
    let post = |body: &str| HttpRequest::post(&client.endpoint, body);
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let modern = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":
                    {"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    for (what, request, status) in [
        ("not JSON", post("{"), 400),
        ("no message", post("7"), 400),
        ("too long", post(&" ".repeat(1_001)), 413),
        (
            "another type",
            post(ping).with("content-type", "text/plain"),
            415,
        ),
        (
            "a page",
            post(ping).header("origin", "https://evil.example"),
            403,
        ),
        ("a name", post(ping).with("host", "evil.example"), 403),
        (
            "modern by its header",
            post(ping).header("mcp-protocol-version", "2026-07-28"),
            400,
        ),
        ("modern by its body", post(modern), 400),
        (
            "a stream where messages go",
            HttpRequest::get(&client.endpoint),
            405,
        ),
        (
            "a message where streams are",
            HttpRequest::post("/mcp/sse", ping),
            405,
        ),
        (
            "no stream wanted",
            HttpRequest::get("/sse").header("accept", "application/json"),
            406,
        ),
        (
            "a modern stream",
            HttpRequest::get("/sse").header("mcp-protocol-version", "2026-07-28"),
            400,
        ),
        (
            "a page's stream",
            HttpRequest::get("/sse").header("origin", "https://evil.example"),
            403,
        ),
    ] {
        let response = running.client.exchange(&request).await;
        assert_eq!(response.status, status, "{what}");
        let code = response.json()["error"]["code"].as_i64().unwrap();
        assert!([-32600, -32700].contains(&code), "{what}: {code}");
    }
    let named = br#"{"jsonrpc":"1.0","id":9,"method":"ping"}"#;
    assert_eq!(client.post(named).await.status, 202);
    let answer = client.stream().message().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(9), &json!(-32600))
    );
    client.stream().expect_silence(A_WHILE).await;
    assert_eq!(running.server.sessions(), 1);
}

#[tokio::test]
async fn who_may_not_call_may_not_listen() {
    let authenticate = |parts: &http::request::Parts, peer: &transport_http::Peer| match parts
        .headers
        .get("authorization")
        .map(|it| it.as_bytes())
    {
        Some(b"Bearer good") => Ok(peer.named("good")),
        _ => Err(Box::new(transport_http::refusal(
            http::StatusCode::UNAUTHORIZED,
            "who are you?",
        ))),
    };
    let running = start(HttpOptions {
        authenticate: Arc::new(authenticate),
        ..HttpOptions::default()
    })
    .await;
    let refused = running.client.exchange(&HttpRequest::get("/mcp/sse")).await;
    assert_eq!((refused.status, running.server.sessions()), (401, 0));
    let good = running.client().with_header("authorization", "Bearer good");
    let mut client = good.open_old_sse("/mcp/sse").await;
    client.open("2024-11-05").await;
    let _ = client.request("tools/list", json!({})).await.result();
    assert_eq!(*running.seen.principals.lock().unwrap(), ["good"]);
    let stranger = HttpRequest::post(&client.endpoint, call(1, "echo"));
    assert_eq!(running.client.exchange(&stranger).await.status, 401);
}

#[tokio::test]
async fn sessions_of_both_transports_share_their_bounds() {
    let running = start_with(HttpLimits {
        max_sessions_per_principal: 2,
        session_idle: Duration::from_millis(50),
        ..HttpLimits::default()
    })
    .await;
    let first = running.client.open_old_sse("/mcp/sse").await;
    let mut second = running.client.open_old_sse("/mcp/sse").await;
    let third = HttpRequest::get("/mcp/sse");
    let refused = running.client.exchange(&third).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["error"]["data"]["retryable"], true);
    assert_eq!(
        running.client().initialize("2025-11-25").await.http.status,
        503
    );
    drop(first);
    wait_until("there is room", GENEROUS, || running.server.sessions() == 1).await;
    // Whoever listens is not idle.
    tokio::time::sleep(A_WHILE).await;
    second.open("2024-11-05").await;
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_progress_first_and_then_its_session() {
    let running = start_with(HttpLimits {
        max_session_queue_bytes: 1_000,
        max_unread_answer_bytes: 10_000_000,
        ..HttpLimits::default()
    })
    .await;
    let seen = &running.seen;
    // Says nothing and reads nothing but the first event.
    let mut reader = open(&running).await;
    let endpoint = reader.endpoint.clone();
    let post = async |id: i64, tool: &str| {
        let request = HttpRequest::post(&endpoint, call(id, tool));
        running.client.exchange(&request).await.status
    };
    reader.stream().dialogue.sent(&call(1, "stuck"));
    assert_eq!(post(1, "stuck").await, 202);
    seen.wait(&seen.begun, 1).await;
    let reporter = seen.reporter.lock().unwrap().take().unwrap();
    let mut id = 1;
    let mut left_out = false;
    let last = loop {
        id += 1;
        let status = post(id, "big").await;
        if status == 202 {
            reader.stream().dialogue.sent(&call(id, "big"));
        }
        // The queue is full of answers, so nothing but answers is taken.
        left_out |= !reporter.report(id as f64, None, None);
        if status != 202 {
            break status;
        }
        assert!(id < 1_000, "it never ends");
    };
    assert!(left_out);
    assert_eq!(last, 404, "the session has ended");
    seen.wait(&seen.dropped, 1).await;
    assert_eq!(running.server.sessions(), 0);
    // What was taken comes all the same, in order, and then the end.
    let rest = reader.stream().rest().await;
    let answers: Vec<_> = rest
        .iter()
        .filter_map(|message| {
            message
                .get("result")
                .map(|_| message["id"].as_i64().unwrap())
        })
        .collect();
    assert_eq!(answers, (2..2 + answers.len() as i64).collect::<Vec<_>>());
    assert!(10_000_000 / 300_000 < answers.len() && answers.len() < id as usize);
}

#[tokio::test]
async fn a_stopping_server_owes_its_answers() {
    let mut running = start(HttpOptions::default()).await;
    let seen = Arc::clone(&running.seen);
    let mut idle = open(&running).await;
    let mut client = open(&running).await;
    client.post(&call(100, "stuck")).await;
    seen.wait(&seen.begun, 1).await;
    running.stop();
    assert!(idle.stream().rest().await.is_empty());
    assert!(!running.stops_within(A_WHILE).await);
    seen.release.notify_one();
    let rest = client.stream().rest().await;
    let ids: Vec<&Value> = rest.iter().map(|message| &message["id"]).collect();
    assert_eq!(ids, [100]);
    running.stopped().await;
    assert_eq!(running.server.sessions(), 0);
    assert!(running.engine.subscriptions().is_empty());
}

#[tokio::test]
async fn a_server_that_cannot_wait_stops_all_the_same() {
    let mut running = start(HttpOptions {
        drain: Duration::from_millis(100),
        ..HttpOptions::default()
    })
    .await;
    let seen = Arc::clone(&running.seen);
    let mut client = open(&running).await;
    client.post(&call(100, "stuck")).await;
    seen.wait(&seen.begun, 1).await;
    running.stop();
    running.stopped().await;
    seen.wait(&seen.dropped, 1).await;
    assert_eq!(seen.finished.load(Ordering::SeqCst), 0);
    assert_eq!(running.server.sessions(), 0);
}

#[tokio::test]
async fn silence_is_broken_by_comments() {
    let running = start(HttpOptions {
        keep_alive: Duration::from_millis(30),
        ..HttpOptions::default()
    })
    .await;
    let mut client = open(&running).await;
    let before = client.stream().comments();
    client.stream().wait_comment(before + 1).await;
    let _ = client.request("ping", json!({})).await.result();
}

#[tokio::test]
async fn the_places_are_options() {
    let running = start(HttpOptions {
        old_sse_paths: vec!["/events".to_owned()],
        old_sse_messages_path: "/say".to_owned(),
        ..HttpOptions::default()
    })
    .await;
    let mut client = running.client.open_old_sse("/events").await;
    assert!(client.endpoint.starts_with("/say?sessionId="));
    client.open("2024-11-05").await;
    assert_eq!(
        running
            .client
            .exchange(&HttpRequest::get("/sse"))
            .await
            .status,
        404
    );
    let without = start(HttpOptions {
        old_sse_paths: Vec::new(),
        ..HttpOptions::default()
    })
    .await;
    for request in [
        HttpRequest::get("/mcp/sse"),
        HttpRequest::post("/mcp/messages?sessionId=x", "{}"),
    ] {
        assert_eq!(without.client.exchange(&request).await.status, 404);
    }
}
