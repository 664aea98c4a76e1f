//! Input that is not a message, or nearly not.

use crate::house::{LEGACY, NEWEST_LEGACY, Peer, Program, WAYS, Way, has_batches};
use serde_json::{Value, json};
use testkit::{MODERN, REVISIONS};

/// Deeper than any JSON a server should follow.
const DEPTH: usize = 10_000;

/// Frames that are no message in any revision, and what each is answered with.
fn frames() -> Vec<(&'static str, Vec<u8>, i64)> {
    let text = |what, text: &str, code| (what, text.as_bytes().to_vec(), code);
    let id = |what, id: &str| {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
        (what, frame.into_bytes(), -32600)
    };
    let no_text = b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}".to_vec();
    vec![
        text("no JSON", "hello", -32700),
        text("half a message", r#"{"jsonrpc":"2.0","id":1"#, -32700),
        text("two messages", r#"{"jsonrpc":"2.0"}{}"#, -32700),
        ("no UTF-8", b"\xff\xfe\xfd".to_vec(), -32700),
        ("a text that is no UTF-8", no_text, -32700),
        text("a number", "42", -32600),
        text("a text", r#""ping""#, -32600),
        text("an empty object", "{}", -32600),
        text("an empty array", "[]", -32600),
        text(
            "another JSON-RPC",
            r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#,
            -32600,
        ),
        text(
            "a method that is no text",
            r#"{"jsonrpc":"2.0","id":7,"method":5}"#,
            -32600,
        ),
        text(
            "params that are a text",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":"x"}"#,
            -32600,
        ),
        ("open brackets", "[".repeat(DEPTH).into_bytes(), -32600),
        id("null as id", "null"),
        id("a fraction as id", "1.5"),
        id("truth as id", "true"),
        id("an object as id", "{}"),
        id("an array as id", "[1]"),
    ]
}

#[tokio::test]
async fn what_is_no_message_is_answered_with_an_error() {
    for way in WAYS {
        for version in [NEWEST_LEGACY, MODERN] {
            let mut peer = Program::Suite.open(way, version, "{}").await;
            let head = peer.request("tools/list", Value::Null);
            for (what, frame, code) in frames() {
                let (answer, _) = peer.say_bytes(&head, &frame).await;
                answer.is_error(code, 400, what);
                // Where there is an id, it is that of the message.
                let id = answer.response.get("id");
                assert!(id.is_none_or(|id| *id == 7), "{what}: {answer:?}");
                peer.is_served(what).await;
            }
        }
    }
}

#[tokio::test]
async fn ids_come_back_as_they_were_written() {
    let ids = [
        "0",
        "-1",
        "9007199254740993",
        "-9007199254740993",
        "9223372036854775808",
        "18446744073709551616",
        "123456789012345678901234567890",
        r#""""#,
        r#""92""#,
        r#""größe 🦀""#,
    ];
    for way in WAYS {
        for version in REVISIONS {
            let mut peer = Program::Suite.open(way, version, "{}").await;
            let message = peer.request("tools/call", json!({ "name": "test_simple_text" }));
            for id in ids {
                let own = format!(r#""id":{},"#, message["id"]);
                let text = message.to_string();
                assert!(text.contains(&own), "{text}");
                let text = text.replace(&own, &format!(r#""id":{id},"#));
                let (_, answer) = peer.say_bytes(&message, text.as_bytes()).await;
                let is_echoed = answer.contains(&format!(r#""id":{id},"#));
                assert!(is_echoed, "{way:?} {version} {id}: {answer}");
            }
        }
    }
}

/// Two requests, and between them what needs no answer and what is no request.
fn batch(peer: &mut Peer) -> (Value, Value) {
    let first = peer.request("tools/list", Value::Null);
    let second = peer.request("tools/call", json!({ "name": "test_simple_text" }));
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let broken = json!({ "jsonrpc": "2.0", "id": null, "method": "ping" });
    (json!([first, notification, broken, second]), first)
}

#[tokio::test]
async fn batches_are_answered_where_there_are_batches() {
    for way in WAYS {
        for version in LEGACY {
            let mut peer = Program::Suite.open(way, version, "{}").await;
            let (batch, first) = batch(&mut peer);
            let (answer, _) = peer.say_bytes(&first, batch.to_string().as_bytes()).await;
            if has_batches(version) {
                let answers = answer.response.as_array().unwrap();
                assert_eq!(answers.len(), 3, "{way:?} {version}: {answers:?}");
                let of = |id: &Value| answers.iter().find(|it| it["id"] == *id).unwrap();
                assert!(of(&batch[0]["id"])["result"]["tools"].is_array());
                assert!(of(&batch[3]["id"])["result"]["content"].is_array());
                assert_eq!(of(&Value::Null)["error"]["code"], -32600);
                assert!(answer.status.is_none_or(|status| status == 200));
            } else {
                answer.is_error(-32600, 400, version);
            }
            peer.is_served("a batch").await;
        }
    }
}

#[tokio::test]
async fn modern_requests_are_not_run_in_batches() {
    for way in WAYS {
        let mut peer = Program::Suite.start(way).await;
        match &mut peer {
            Peer::Http(_, client) => client.speak(MODERN),
            // Nothing was agreed on, so the batch is answered; its requests are refused.
            Peer::Stdio(server) => server.voice.speak(MODERN),
        }
        let (batch, first) = batch(&mut peer);
        let (answer, _) = peer.say_bytes(&first, batch.to_string().as_bytes()).await;
        match way {
            Way::Http => answer.is_error(-32600, 400, "a batch"),
            Way::Stdio => {
                let answers = answer.response.as_array().unwrap();
                assert_eq!(answers.len(), 3, "{answers:?}");
                let is_refused = |it: &Value| it["error"]["code"] == -32600;
                assert!(answers.iter().all(is_refused), "{answers:?}");
            }
        }
        peer.is_served("a batch").await;
    }
}

#[tokio::test]
async fn batches_without_requests_are_not_answered() {
    for way in WAYS {
        for version in LEGACY.iter().filter(|version| has_batches(version)) {
            let mut peer = Program::Suite.open(way, version, "{}").await;
            let batch = json!([
                { "jsonrpc": "2.0", "method": "notifications/initialized" },
                { "jsonrpc": "2.0", "id": 99, "result": {} },
            ]);
            peer.tell(&batch).await;
            peer.is_served("a silent batch").await;
        }
    }
}
