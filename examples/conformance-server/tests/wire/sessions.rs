//! Sessions, which legacy clients have over HTTP.

use crate::house::{LEGACY, NEWEST_LEGACY, Program};
use serde_json::{Value, json};
use testkit::{Conversation, HttpRequest};

#[tokio::test]
async fn an_unknown_session_is_not_found() {
    let server = Program::Suite.http().await;
    for version in ["2025-03-26", "2025-06-18", NEWEST_LEGACY] {
        let mut client = server.client();
        client.speak(version);
        client.set_session(Some("never-was"));
        let message = client.voice.request("tools/list", Value::Null);
        for request in [
            client.post_of(&message),
            client.dress(HttpRequest::get("/mcp").header("accept", "text/event-stream")),
            client.dress(HttpRequest::new("DELETE", "/mcp")),
        ] {
            let answer = client.post(&request).await;
            assert_eq!(
                (answer.http.status, answer.code()),
                (404, -32600),
                "{request:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_session_ends_when_it_is_deleted() {
    let server = Program::Suite.http().await;
    for version in LEGACY {
        let mut client = server.client();
        client.open(version).await;
        assert!(client.session().is_some(), "{version}");
        let delete = client.dress(HttpRequest::new("DELETE", "/mcp"));
        let deleted = client.exchange(&delete).await;
        assert_eq!((deleted.status, deleted.body.len()), (204, 0), "{version}");
        let message = client.voice.request("tools/list", Value::Null);
        for request in [client.post_of(&message), delete] {
            assert_eq!(client.post(&request).await.http.status, 404, "{version}");
        }
        client.open(version).await;
        let _ = client.request("tools/list", Value::Null).await.result();
    }
}

#[tokio::test]
async fn a_second_handshake_is_refused_and_changes_nothing() {
    let server = Program::Suite.http().await;
    let mut client = server.client();
    client.open("2025-03-26").await;
    let again = client.voice.initialize(NEWEST_LEGACY);
    let again = client.post(&client.post_of(&again)).await;
    assert_eq!((again.http.status, again.code()), (400, -32600));
    // It still speaks what it spoke: the one revision with batches.
    let batch = json!([client.voice.request("tools/list", Value::Null)]);
    let answers = client.post(&client.post_of(&batch)).await;
    assert_eq!(answers.response().as_array().map(Vec::len), Some(1));

    let mut server = Program::Suite.stdio();
    server.open("2025-03-26").await;
    let again = server.voice.initialize(NEWEST_LEGACY);
    server.send(&again).await;
    assert_eq!(server.receive().await["error"]["code"], -32600);
    let batch = json!([server.voice.request("tools/list", Value::Null)]);
    server.send(&batch).await;
    assert_eq!(server.receive().await.as_array().map(Vec::len), Some(1));
}

/// Sloppy clients exist (decision D14): who names no session is served without one.
#[tokio::test]
async fn who_has_no_session_is_served_without_one() {
    let server = Program::Suite.http().await;
    let mut client = server.client();
    client.speak(NEWEST_LEGACY);
    let listed = client.post_legacy("tools/list", Value::Null).await;
    assert_eq!(listed.http.status, 200);
    assert_eq!(listed.http.header("mcp-session-id"), None);
    assert!(listed.result()["tools"].is_array());
    let nonsense = client.voice.request("tools/list", Value::Null);
    let nonsense = client
        .post_of(&nonsense)
        .with("mcp-protocol-version", "v999");
    assert_eq!(client.exchange(&nonsense).await.status, 400);
}

/// The transport of 2024-11-05: everything comes on one stream.
#[tokio::test]
async fn the_old_transport_is_there() {
    let server = Program::Suite.http().await;
    for path in ["/mcp/sse", "/sse"] {
        let mut old = server.client().open_old_sse(path).await;
        assert_eq!(
            old.open("2024-11-05").await["protocolVersion"],
            "2024-11-05"
        );
        let called = old
            .request("tools/call", json!({ "name": "test_simple_text" }))
            .await;
        let text = &called.result()["content"][0]["text"];
        assert_eq!(text, "This is a simple text response for testing.");
        let broken = old.post(b"{").await;
        assert_eq!(broken.status, 400, "{broken:?}");
        let _ = old.request("tools/list", Value::Null).await.result();
    }
}
