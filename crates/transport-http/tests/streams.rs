//! Streams: when an answer becomes one, what ends it, and what hanging up does.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{A_WHILE, AN_HOUR, start};
use mcp_service::Change;
use serde_json::{Value, json};
use std::{sync::atomic::Ordering, time::Duration};
use testkit::{GENEROUS, HttpClient, HttpConnection, HttpRequest, MODERN, SseStream, wait_until};
use tokio::{net::TcpSocket, time::timeout};
use transport_http::HttpOptions;

fn call(tool: &str, token: Option<&str>) -> Value {
    let mut params = json!({ "name": tool, "arguments": {} });
    if let Some(token) = token {
        params["_meta"] = json!({ "progressToken": token });
    }
    params
}

async fn open_listen(client: &mut HttpClient) -> SseStream {
    client.speak(MODERN);
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let message = client.voice.request("subscriptions/listen", filter);
    client.stream(&client.post_of(&message)).await
}

#[tokio::test]
async fn an_answer_is_a_stream_only_if_something_comes_before_it() {
    let running = start(HttpOptions::default()).await;
    let mut modern = running.client();
    let mut legacy = running.client();
    legacy.initialize("2025-11-25").await;
    for tool in ["echo", "steps"] {
        for client in [&mut modern, &mut legacy] {
            let plain = match client.session() {
                None => client.post_modern("tools/call", call(tool, None)).await,
                Some(_) => client.post_legacy("tools/call", call(tool, None)).await,
            };
            assert_eq!(plain.http.media_type(), Some("application/json"));
            assert_eq!(
                plain.http.header("content-length").unwrap(),
                plain.http.body.len().to_string()
            );
        }
    }
    for client in [&mut modern, &mut legacy] {
        let params = call("steps", Some("t"));
        let streamed = match client.session() {
            None => client.post_modern("tools/call", params).await,
            Some(_) => client.post_legacy("tools/call", params).await,
        };
        assert_eq!(streamed.http.media_type(), Some("text/event-stream"));
        assert_eq!(streamed.http.header("x-accel-buffering"), Some("no"));
        assert_eq!(streamed.http.header("cache-control"), Some("no-cache"));
        assert_eq!(streamed.messages.len(), 4);
        for (step, message) in (1..).zip(&streamed.messages[..3]) {
            assert_eq!(message["method"], "notifications/progress");
            assert_eq!(message["params"]["progress"], json!(f64::from(step)));
        }
        assert!(streamed.response().get("result").is_some());
    }
}

#[tokio::test]
async fn a_client_that_takes_one_kind_of_answer_gets_that() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    client.speak(MODERN);
    let steps = client.voice.request("tools/call", call("steps", Some("t")));
    let json = client.post_of(&steps).with("accept", "application/json");
    let answer = client.post(&json).await;
    assert_eq!(answer.http.media_type(), Some("application/json"));
    let echo = client.voice.request("tools/call", call("echo", None));
    let stream = client.post_of(&echo).with("accept", "text/event-stream");
    let answer = client.post(&stream).await;
    assert_eq!(answer.events.len(), 1);
    assert!(answer.response().get("result").is_some());
    let filter = json!({ "notifications": {} });
    let listen = client.voice.request("subscriptions/listen", filter);
    let listen = client.post_of(&listen).with("accept", "application/json");
    assert_eq!(client.exchange(&listen).await.status, 406);
}

#[tokio::test]
async fn line_ends_in_json_break_no_event() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    let answer = client
        .post_modern("tools/call", call("lines", Some("t")))
        .await;
    assert_eq!(answer.events.len(), 2);
    assert_eq!(
        answer.result()["_meta"]["com.example/lines"],
        json!({ "a": 1 })
    );
}

#[tokio::test]
async fn what_is_large_arrives_whole() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    let answer = client.post_modern("tools/call", call("big", None)).await;
    let text = answer.result()["content"][0]["text"].as_str().unwrap();
    assert_eq!(text.len(), 300_000);
}

#[tokio::test]
async fn hints_become_headers() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    let answer = client.post_modern("tools/call", call("hint", None)).await;
    assert_eq!(answer.http.header("ratelimit"), Some("\"minute\";r=9;t=60"));
    assert_eq!(answer.http.header("x-broken"), None);
    assert_eq!(answer.http.status, 200);
}

#[tokio::test]
async fn a_panic_is_answered_and_the_connection_lives_on() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    client.speak(MODERN);
    let mut connection = client.connect().await;
    for (tool, code) in [("panic", json!(-32603)), ("echo", Value::Null)] {
        let message = client.voice.request("tools/call", call(tool, None));
        let (answer, kept) = connection.exchange(&client.post_of(&message)).await;
        connection = kept;
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (200, &code)
        );
    }
}

#[tokio::test]
async fn hanging_up_cancels_a_modern_request_at_once() {
    // No comment finds out.
    let running = start(HttpOptions {
        keep_alive: AN_HOUR,
        ..HttpOptions::default()
    })
    .await;
    let seen = &running.seen;
    let mut client = running.client();
    client.speak(MODERN);
    // Before it has said anything, and in the middle of its stream.
    for (round, token) in [(1, None), (2, Some("t"))] {
        let message = client.voice.request("tools/call", call("stuck", token));
        let mut connection = client.connect().await;
        connection
            .send_bytes(&client.post_of(&message).to_bytes())
            .await
            .unwrap();
        seen.wait(&seen.begun, round).await;
        if token.is_some() {
            seen.reporter
                .lock()
                .unwrap()
                .as_ref()
                .unwrap()
                .report(1.0, None, None);
            let head = connection.read_head().await.unwrap();
            assert_eq!(head.media_type(), Some("text/event-stream"));
        }
        drop(connection);
        seen.wait(&seen.dropped, round).await;
    }
    assert_eq!(seen.finished.load(Ordering::SeqCst), 0);
    assert_eq!(running.engine.in_flight(), 0);
}

#[tokio::test]
async fn hanging_up_is_no_cancellation_in_a_session() {
    let running = start(HttpOptions::default()).await;
    let seen = &running.seen;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let mut sessionless = running.client();
    sessionless.speak("2025-11-25");
    let mut round = 0;
    for client in [&mut client, &mut sessionless] {
        for token in [None, Some("t")] {
            round += 1;
            let message = client.voice.request("tools/call", call("stuck", token));
            let mut connection = client.connect().await;
            connection
                .send_bytes(&client.post_of(&message).to_bytes())
                .await
                .unwrap();
            seen.wait(&seen.begun, round).await;
            if token.is_some() {
                seen.reporter
                    .lock()
                    .unwrap()
                    .as_ref()
                    .unwrap()
                    .report(1.0, None, None);
                connection.read_head().await.unwrap();
            }
            drop(connection);
            wait_until("the server knows", GENEROUS, || {
                running.server.connections() == 0
            })
            .await;
            assert_eq!(seen.dropped.load(Ordering::SeqCst), round - 1);
            seen.release.notify_one();
            seen.wait(&seen.dropped, round).await;
            assert_eq!(
                seen.finished.load(Ordering::SeqCst),
                round,
                "it ended by itself"
            );
            wait_until("it is done", GENEROUS, || running.engine.in_flight() == 0).await;
        }
    }
}

#[tokio::test]
async fn a_session_cancels_by_saying_so_or_by_ending() {
    let running = start(HttpOptions::default()).await;
    let seen = &running.seen;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    for round in 1..=2 {
        let message = client.voice.request("tools/call", call("stuck", None));
        let mut connection = client.connect().await;
        connection
            .send_bytes(&client.post_of(&message).to_bytes())
            .await
            .unwrap();
        seen.wait(&seen.begun, round).await;
        if round == 1 {
            let cancel = json!({ "requestId": message["id"] });
            let cancel = client.voice.notification("notifications/cancelled", cancel);
            assert_eq!(client.exchange(&client.post_of(&cancel)).await.status, 202);
        } else {
            let delete = client.dress(HttpRequest::new("DELETE", "/mcp"));
            assert_eq!(client.exchange(&delete).await.status, 204);
        }
        seen.wait(&seen.dropped, round).await;
        let head = connection.read_head().await.unwrap();
        assert_eq!(head.status, 202, "nothing is said about it any more");
    }
    assert_eq!(seen.finished.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_listen_is_acknowledged_told_and_ended() {
    let mut running = start(HttpOptions::default()).await;
    let mut client = running.client();
    let mut stream = open_listen(&mut client).await;
    let acknowledged = stream.message().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(
        acknowledged["params"]["notifications"],
        json!({ "toolsListChanged": true })
    );
    running.engine.publish(&Change::Resources);
    running.engine.publish(&Change::Tools);
    let changed = stream.message().await;
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    let id = &changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    assert_eq!(
        id,
        &acknowledged["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
    );
    running.stop();
    let rest = stream.rest().await;
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert_eq!(rest[0]["id"], *id);
    assert_eq!(rest[0]["result"]["resultType"], "complete");
    running.stopped().await;
    assert!(running.engine.subscriptions().is_empty());
}

#[tokio::test]
async fn a_thousand_streams_leave_nothing_behind() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    let mut streams = Vec::new();
    for _ in 0..1_000 {
        let mut stream = open_listen(&mut client).await;
        stream.message().await;
        streams.push(stream);
    }
    assert_eq!(running.engine.subscriptions().len(), 1_000);
    assert_eq!(running.server.connections(), 1_000);
    running.engine.publish(&Change::Tools);
    for stream in &mut streams {
        stream.message().await;
    }
    drop(streams);
    wait_until("all is freed", GENEROUS, || {
        running.engine.subscriptions().is_empty() && running.server.connections() == 0
    })
    .await;
    assert_eq!(running.engine.in_flight(), 0);
}

#[tokio::test]
async fn a_session_has_one_stream_of_what_it_did_not_ask_for() {
    let mut running = start(HttpOptions::default()).await;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    // Kept until there is a stream.
    running.engine.publish(&Change::Tools);
    let mut stream = client.listen().await;
    assert_eq!(
        stream.message().await["method"],
        "notifications/tools/list_changed"
    );
    running.engine.publish(&Change::Resources);
    assert_eq!(
        stream.message().await["method"],
        "notifications/resources/list_changed"
    );

    let second = client.dress(HttpRequest::get("/mcp"));
    assert_eq!(
        client
            .exchange(&second.with("accept", "text/html"))
            .await
            .status,
        406
    );
    // Its network may be lost without a word: the last one counts, and the one before ends.
    let lost = stream;
    let mut stream = client.listen().await;
    let mut lost = lost;
    assert_eq!(
        timeout(GENEROUS, lost.rest()).await.expect("it ends"),
        Vec::<Value>::new()
    );
    running.engine.publish(&Change::Tools);
    assert_eq!(
        stream.message().await["method"],
        "notifications/tools/list_changed"
    );

    running.stop();
    assert!(
        stream.rest().await.is_empty(),
        "the stream ends with the server"
    );
    running.stopped().await;
    assert_eq!(running.server.sessions(), 0);
    assert!(running.engine.subscriptions().is_empty());
}

#[tokio::test]
async fn a_lost_peer_does_not_block_its_sessions_stream() {
    let running = start(HttpOptions::default()).await;
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = running.client();
        client.initialize(version).await;
        // Neither read from nor closed: that is what the server sees of a network that is gone.
        let socket = TcpSocket::new_v4().unwrap();
        let gone = socket.connect(client.address()).await.unwrap();
        let mut gone = HttpConnection::over(gone);
        let listen = client.dress(HttpRequest::get("/mcp").header("accept", "text/event-stream"));
        gone.send_bytes(&listen.to_bytes()).await.unwrap();
        assert_eq!(gone.read_head().await.unwrap().status, 200);

        let mut stream = client.listen().await;
        running.engine.publish(&Change::Tools);
        assert_eq!(
            stream.message().await["method"],
            "notifications/tools/list_changed",
            "{version}"
        );
        stream.expect_silence(A_WHILE).await;
        drop(gone);
    }
}

#[tokio::test]
async fn a_sessions_stream_is_taken_over_by_its_own_principal_alone() {
    let running = start(HttpOptions::default()).await;
    let named = |name| running.client().with_header("x-mcp-client-id", name);
    let mut client = named("ann");
    client.initialize("2025-11-25").await;
    let mut stream = client.listen().await;
    let mut other = named("bob");
    other.speak("2025-11-25");
    other.set_session(client.session());
    let listen = other.dress(HttpRequest::get("/mcp").header("accept", "text/event-stream"));
    assert_eq!(other.exchange(&listen).await.status, 404);
    running.engine.publish(&Change::Tools);
    assert_eq!(
        stream.message().await["method"],
        "notifications/tools/list_changed"
    );
}

#[tokio::test]
async fn deleting_a_session_ends_its_stream() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let mut stream = client.listen().await;
    let delete = client.dress(HttpRequest::new("DELETE", "/mcp"));
    assert_eq!(client.exchange(&delete).await.status, 204);
    assert!(stream.rest().await.is_empty());
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive_by_comments() {
    let running = start(HttpOptions {
        keep_alive: Duration::from_millis(30),
        ..HttpOptions::default()
    })
    .await;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let mut stream = client.listen().await;
    stream.next_event().await.unwrap();
    stream.wait_comment(1).await;
    running.engine.publish(&Change::Tools);
    assert_eq!(
        stream.message().await["method"],
        "notifications/tools/list_changed"
    );
    let mut listen = open_listen(&mut client).await;
    listen.message().await;
    listen.wait_comment(1).await;
    listen.expect_silence(A_WHILE).await;
}
