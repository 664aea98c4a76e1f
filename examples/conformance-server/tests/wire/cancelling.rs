//! Giving up on a request: what stops, how soon, and that nothing more is said.

use crate::house::{NEWEST_LEGACY, Program, call, with_progress};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit::{Conversation, HttpClient, HttpConnection, HttpServer, MODERN, SseStream};

/// Time within which a call is dropped once its client has hung up.
const SOON: Duration = Duration::from_millis(50);

/// Number of measurements, of which the median is judged: a busy machine may delay a test now and
/// then, and a server that waits for something does so always.
const ROUNDS: usize = 11;

fn wait(key: &str) -> Value {
    call("wait", json!({ "key": key }))
}

/// Waits until the call of this key has met this fate, in the server's own words.
async fn becomes(server: &HttpServer, key: &str, fate: &str) {
    let params = call("fate", json!({ "key": key, "fate": fate }));
    let told = server.client().post_modern("tools/call", params).await;
    let _ = told.result();
}

async fn release(server: &HttpServer, key: &str) {
    let params = call("release", json!({ "key": key }));
    let done = server.client().post_modern("tools/call", params).await;
    let _ = done.result();
}

/// A call that runs and has said nothing yet.
async fn silent(server: &HttpServer, client: &mut HttpClient, key: &str) -> HttpConnection {
    let message = client.voice.request("tools/call", wait(key));
    let mut connection = client.connect().await;
    let bytes = client.post_of(&message).to_bytes();
    connection.send_bytes(&bytes).await.unwrap();
    becomes(server, key, "running").await;
    connection
}

/// A call that runs and is in the middle of its stream.
async fn streaming(client: &mut HttpClient, key: &str) -> SseStream {
    let message = client.voice.request("tools/call", with_progress(wait(key)));
    let mut stream = client.stream(&client.post_of(&message)).await;
    assert_eq!(stream.message().await["method"], "notifications/progress");
    stream
}

#[tokio::test]
async fn hanging_up_cancels_a_modern_call_within_50_ms() {
    let server = Program::Fixture.http().await;
    let mut client = server.client();
    client.speak(MODERN);
    for in_a_stream in [false, true] {
        let mut took = Vec::new();
        for round in 0..ROUNDS {
            let key = format!("{in_a_stream} {round}");
            let dropped = {
                let mut observer = server.client();
                let params = call("fate", json!({ "key": key, "fate": "dropped" }));
                async move {
                    let told = observer.post_modern("tools/call", params).await;
                    let _ = told.result();
                }
            };
            let hung_up = if in_a_stream {
                let stream = streaming(&mut client, &key).await;
                let now = Instant::now();
                drop(stream);
                now
            } else {
                let connection = silent(&server, &mut client, &key).await;
                let now = Instant::now();
                drop(connection);
                now
            };
            dropped.await;
            took.push(hung_up.elapsed());
        }
        took.sort();
        assert!(
            took[ROUNDS / 2] < SOON,
            "in a stream {in_a_stream}: {took:?}"
        );
    }
}

#[tokio::test]
async fn hanging_up_cancels_no_legacy_call() {
    let server = Program::Fixture.http().await;
    for version in ["2025-03-26", "2025-06-18", NEWEST_LEGACY] {
        let mut client = server.client();
        client.open(version).await;
        let (first, second) = (format!("{version} silent"), format!("{version} stream"));
        drop(silent(&server, &mut client, &first).await);
        drop(streaming(&mut client, &second).await);
        // By the time a modern call that was hung up on later has been dropped, and the session has
        // been served several times since, these would have been as well.
        let mut modern = server.client();
        modern.speak(MODERN);
        for round in 0..5 {
            let key = format!("{version} {round}");
            drop(silent(&server, &mut modern, &key).await);
            becomes(&server, &key, "dropped").await;
            let _ = client.request("tools/list", Value::Null).await.result();
        }
        for key in [&first, &second] {
            becomes(&server, key, "running").await;
            release(&server, key).await;
            becomes(&server, key, "ended").await;
        }
    }
}

#[tokio::test]
async fn a_legacy_session_cancels_by_saying_so() {
    let server = Program::Fixture.http().await;
    for version in ["2025-03-26", "2025-06-18", NEWEST_LEGACY] {
        let mut client = server.client();
        client.open(version).await;
        let key = format!("{version} said");
        let message = client
            .voice
            .request("tools/call", with_progress(wait(&key)));
        let mut stream = client.stream(&client.post_of(&message)).await;
        assert_eq!(stream.message().await["method"], "notifications/progress");
        let cancelled = json!({ "requestId": message["id"] });
        client.notify("notifications/cancelled", cancelled).await;
        becomes(&server, &key, "dropped").await;
        let rest = stream.rest().await;
        assert_eq!(rest, Vec::<Value>::new(), "{version}: nothing more is said");
    }
}

#[tokio::test]
async fn over_stdio_nothing_is_said_after_a_cancellation() {
    for version in ["2024-11-05", NEWEST_LEGACY, MODERN] {
        let mut server = Program::Fixture.stdio();
        server.open(version).await;
        for round in 0..20 {
            let key = format!("{round}");
            let params = with_progress(wait(&key));
            let message = server.voice.request("tools/call", params);
            server.send(&message).await;
            assert_eq!(server.receive().await["method"], "notifications/progress");
            let cancelled = json!({ "requestId": message["id"], "reason": "no more" });
            server.notify("notifications/cancelled", cancelled).await;
            // Too late, and it must not make the call answer.
            let release = call("release", json!({ "key": key }));
            let released = server.request("tools/call", release).await;
            assert_eq!(released.earlier, Vec::<Value>::new(), "{version}");
        }
        let listed = server.request("tools/list", Value::Null).await;
        assert_eq!(listed.earlier, Vec::<Value>::new(), "{version}");
        assert_eq!(server.waiting(), 20, "each of them is never answered");
    }
}

/// Cancelling what floods ends the flood: what was on its way comes, and nothing after that.
#[tokio::test]
async fn a_cancelled_flood_runs_dry() {
    let mut server = Program::Fixture.stdio();
    server.open(MODERN).await;
    let params = with_progress(call("flood", json!({})));
    let message = server.voice.request("tools/call", params);
    server.send(&message).await;
    let _ = server.receive_many(100).await;
    let cancelled = json!({ "requestId": message["id"] });
    server.notify("notifications/cancelled", cancelled).await;
    let _ = server.request("tools/list", Value::Null).await;
    for _ in 0..3 {
        let listed = server.request("tools/list", Value::Null).await;
        assert_eq!(listed.earlier, Vec::<Value>::new());
    }
}

#[tokio::test]
async fn cancelling_what_is_not_there_is_no_matter() {
    for version in ["2024-11-05", NEWEST_LEGACY, MODERN] {
        let mut server = Program::Fixture.stdio();
        server.open(version).await;
        for id in [
            json!("never"),
            json!(-1),
            Value::Null,
            json!({ "x": 1 }),
            json!(1.5),
        ] {
            let cancelled = json!({ "requestId": id });
            server.notify("notifications/cancelled", cancelled).await;
        }
        server.notify("notifications/cancelled", json!({})).await;
        let listed = server.request("tools/list", Value::Null).await;
        assert_eq!(listed.earlier, Vec::<Value>::new(), "{version}");
    }
}
