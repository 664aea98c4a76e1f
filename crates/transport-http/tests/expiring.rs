//! Streams that end with what has proved whose they are, and sessions that do not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{A_WHILE, Running, start};
use mcp_service::{Change, Principal};
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use testkit::{Conversation, GENEROUS, HttpClient, HttpRequest, SseStream, wait_until};
use tokio::time::timeout;
use transport_http::{HttpOptions, Peer};

/// For how many milliseconds a request's token is still good; without it, for ever.
const GOOD_FOR: &str = "x-good-for";

/// Lifetime of a short token, in milliseconds. No test depends on it: a client that was let in
/// receives the beginning of a stream.
const SHORT: &str = "200";

async fn with_tokens() -> Running {
    let who = |request: &http::request::Parts, _: &Peer| {
        let principal = Principal::new("somebody");
        let Some(left) = request.headers.get(GOOD_FOR) else {
            return Ok(principal);
        };
        let left = Duration::from_millis(left.to_str().unwrap().parse().unwrap());
        Ok(principal.until(SystemTime::now() + left))
    };
    start(HttpOptions {
        authenticate: Arc::new(who),
        ..HttpOptions::default()
    })
    .await
}

async fn ends(stream: &mut SseStream) {
    let rest = timeout(GENEROUS, stream.rest()).await;
    assert_eq!(rest.expect("it ends in time"), Vec::<Value>::new());
}

fn listening(client: &HttpClient) -> HttpRequest {
    client.dress(HttpRequest::get("/mcp").header("accept", "text/event-stream"))
}

#[tokio::test]
async fn a_session_outlives_its_stream() {
    let running = with_tokens().await;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let short = listening(&client).header(GOOD_FOR, SHORT);
    let mut stream = client.stream(&short).await;
    ends(&mut stream).await;

    // What is said meanwhile is there for whoever comes back.
    assert_eq!(running.server.sessions(), 1);
    running.engine.publish(&Change::Resources);
    let long = listening(&client).header(GOOD_FOR, "3600000");
    let mut again = client.stream(&long).await;
    assert_eq!(
        again.message().await["method"],
        "notifications/resources/list_changed"
    );
    again.expect_silence(A_WHILE).await;
}

#[tokio::test]
async fn the_rest_of_an_answer_is_waited_for_until_the_token_expires() {
    let running = with_tokens().await;
    let seen = &running.seen;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let params = json!({ "name": "away", "arguments": {}, "_meta": { "progressToken": "t" } });
    let away = client.voice.request("tools/call", params);
    let mut stream = client.stream(&client.post_of(&away)).await;
    ends(&mut stream).await;
    let rest = listening(&client).header("last-event-id", "1-0");
    let mut waiting = client.stream(&rest.clone().header(GOOD_FOR, SHORT)).await;
    ends(&mut waiting).await;

    let mut waiting = client.stream(&rest).await;
    waiting.dialogue.sent(away.to_string().as_bytes());
    seen.release.notify_one();
    assert!(waiting.message().await["result"].is_object());
}

#[tokio::test]
async fn the_old_transport_s_session_ends_with_its_stream() {
    let running = with_tokens().await;
    let short = running.client().with_header(GOOD_FOR, SHORT);
    let mut client = short.open_old_sse("/mcp/sse").await;
    ends(client.stream()).await;
    wait_until("the session has ended", GENEROUS, || {
        running.server.sessions() == 0
    })
    .await;

    let mut lasting = running.client.open_old_sse("/mcp/sse").await;
    lasting.open("2024-11-05").await;
    let listed = lasting.request("tools/list", json!({})).await;
    assert!(listed.result()["tools"].is_array());
}
