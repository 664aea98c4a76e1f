//! Handlers that fail.

use crate::house::{Program, WAYS, call};
use serde_json::json;
use testkit::{MODERN, REVISIONS};

#[tokio::test]
async fn a_panicking_handler_is_answered() {
    for way in WAYS {
        for version in REVISIONS {
            let mut peer = Program::Fixture.open(way, version, "{}").await;
            for _ in 0..3 {
                let answer = peer.call("panic", json!({})).await;
                answer.is_error(-32603, 200, version);
                // What it panicked with is nobody's business.
                assert!(!answer.response.to_string().contains("as the test"));
            }
            assert_eq!(peer.call("few", json!({ "b": 3 })).await.text(), "3");
        }
    }
}

/// A panic costs one request, whoever shares its connection.
#[tokio::test]
async fn a_panic_leaves_the_neighbours_alone() {
    let mut server = Program::Fixture.stdio();
    server.voice.speak(MODERN);
    let waiting = call("wait", json!({ "key": "neighbour" }));
    let waiting = server.voice.request("tools/call", waiting);
    server.send(&waiting).await;
    for _ in 0..10 {
        let panicking = call("panic", json!({}));
        let panicking = server.voice.request("tools/call", panicking);
        server.send(&panicking).await;
        let answer = server.receive_answer(&panicking["id"]).await;
        assert_eq!(answer["error"]["code"], -32603);
    }
    let release = call("release", json!({ "key": "neighbour" }));
    let release = server.voice.request("tools/call", release);
    server.send(&release).await;
    let ended = server.receive_answer(&waiting["id"]).await;
    assert_eq!(ended["result"]["content"][0]["text"], "It was released.");
}
