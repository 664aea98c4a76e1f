//! Input of a broken or hostile peer: each is answered clearly, and the next call is served.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpClient, HttpConnection, HttpRequest, MODERN, StdioServer,
};

use crate::support::{END, Site, call, text};

const DEPTH: usize = 100_000;

/// Frames that are no good in any revision, and the code that each is answered with.
fn frames() -> Vec<(&'static str, Vec<u8>, i64)> {
    let of = |id: &str, rest: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}}}"#).into_bytes();
    let method = |rest: &str| of("7", rest);
    let nested = [r#"{"a":"#.repeat(DEPTH), "1".to_owned(), "}".repeat(DEPTH)].concat();
    vec![
        ("no JSON", b"hello".to_vec(), -32700),
        (
            "half a message",
            br#"{"jsonrpc":"2.0","id":1,"meth"#.to_vec(),
            -32700,
        ),
        (
            "two messages",
            br#"{"jsonrpc":"2.0"}{"jsonrpc":"2.0"}"#.to_vec(),
            -32700,
        ),
        (
            "wrong UTF-8",
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}".to_vec(),
            -32700,
        ),
        ("open brackets", "[".repeat(DEPTH).into_bytes(), -32600),
        (
            "deep params",
            method(&format!(r#""method":"ping","params":{nested}"#)),
            -32600,
        ),
        ("a number", b"42".to_vec(), -32600),
        ("an empty object", b"{}".to_vec(), -32600),
        ("an empty batch", b"[]".to_vec(), -32600),
        (
            "another version",
            br#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#.to_vec(),
            -32600,
        ),
        ("null as id", of("null", r#""method":"ping""#), -32600),
        ("a fraction as id", of("1.5", r#""method":"ping""#), -32600),
        ("an object as id", of("{}", r#""method":"ping""#), -32600),
        ("a method that is no text", method(r#""method":5"#), -32600),
        (
            "params that are text",
            method(r#""method":"tools/list","params":"x""#),
            -32600,
        ),
        ("an unknown method", method(r#""method":"no/such""#), -32601),
        (
            "a capability not offered",
            method(r#""method":"prompts/list""#),
            -32601,
        ),
        (
            "no tool named",
            method(r#""method":"tools/call","params":{}"#),
            -32602,
        ),
        (
            "a tool that is no text",
            method(r#""method":"tools/call","params":{"name":1}"#),
            -32602,
        ),
        (
            "arguments that are a list",
            method(r#""method":"tools/call","params":{"name":"echo","arguments":[1]}"#),
            -32602,
        ),
        (
            "a cursor of ours?",
            method(r#""method":"tools/list","params":{"cursor":"x"}"#),
            -32602,
        ),
        (
            "a cursor that is no text",
            method(r#""method":"tools/list","params":{"cursor":1}"#),
            -32602,
        ),
        (
            "no resource named",
            method(r#""method":"resources/read","params":{}"#),
            -32602,
        ),
        (
            "an unknown tool",
            method(r#""method":"tools/call","params":{"name":"no-such"}"#),
            -32001,
        ),
        (
            "an unknown resource",
            method(r#""method":"resources/read","params":{"uri":"skill://no/such"}"#),
            -32002,
        ),
        (
            "a path out of the directory",
            method(r#""method":"resources/read","params":{"uri":"skill://../../etc/passwd"}"#),
            -32002,
        ),
        (
            "another scheme",
            method(r#""method":"resources/read","params":{"uri":"file:///etc/passwd"}"#),
            -32002,
        ),
    ]
}

async fn is_served(peer: &mut impl Conversation, after: &str) {
    let echoed = peer
        .request("tools/call", call("echo", json!({"text": after})))
        .await;
    let expected = json!({"text": after}).to_string();
    assert_eq!(text(echoed.result()), expected, "after {after}");
}

async fn answers_clearly(peer: &mut impl Conversation) {
    peer.open("2025-06-18").await;
    for (what, frame, code) in frames() {
        let answer = peer.ask_raw(&frame).await;
        assert_eq!(answer["jsonrpc"], "2.0");
        assert_eq!(answer["error"]["code"], code, "{what}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(!message.is_empty(), "{what}");
        // The id of what is no request may not be legible.
        let needs_id = !matches!(code, -32700 | -32600);
        let is_right = answer.get("id").map_or(!needs_id, |id| *id == 7);
        assert!(is_right, "{what}: {answer}");
        if code == -32700 {
            assert!(message.contains("line 1, column"), "{what}: {message}");
        }
        is_served(peer, what).await;
    }
}

#[tokio::test]
async fn bad_frames_are_answered_clearly_over_stdio() {
    let site = Site::new(json!({}));
    let mut server = site.stdio();
    answers_clearly(&mut server).await;
    server.close_input();
    assert!(server.wait_exit(END).await.success());
}

#[tokio::test]
async fn bad_frames_are_answered_clearly_over_http() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    answers_clearly(&mut server.client()).await;
    assert!(server.process().id().is_some());
}

#[tokio::test]
async fn what_a_modern_client_does_not_find_is_in_its_own_codes() {
    let site = Site::new(json!({}));
    let (mut stdio, http) = (site.stdio(), Site::new(json!({})));
    let http = http.http().await;
    check_modern(&mut stdio).await;
    check_modern(&mut http.client()).await;
}

async fn check_modern(peer: &mut impl Conversation) {
    peer.open(MODERN).await;
    let tool = peer.request("tools/call", call("no-such", json!({}))).await;
    assert_eq!(
        (tool.code(), &tool.error()["data"]["code"]),
        (-32602, &json!(-32001))
    );
    let uri = "skill://no/such";
    let resource = peer.request("resources/read", json!({"uri": uri})).await;
    assert_eq!(
        (resource.code(), &resource.error()["data"]["code"]),
        (-32602, &json!(-32002))
    );
    assert_eq!(resource.error()["data"]["uri"], uri);
    for removed in [
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "initialize",
    ] {
        assert_eq!(
            peer.request(removed, json!({})).await.code(),
            -32601,
            "{removed}"
        );
    }
    is_served(peer, "all that").await;
}

#[tokio::test]
async fn batches_are_answered_where_the_revision_has_them() {
    let site = Site::new(json!({}));
    let http = site.http().await;
    let other = Site::new(json!({}));
    for (version, has_batches) in [
        ("1.0", true),
        ("2024-11-05", true),
        ("2025-03-26", true),
        ("2025-06-18", false),
        ("2025-11-25", false),
    ] {
        let mut stdio = other.stdio();
        check_batch(&mut stdio, version, has_batches).await;
        stdio.close_input();
        assert!(stdio.wait_exit(END).await.success());
        check_batch(&mut http.client(), version, has_batches).await;
    }
}

async fn check_batch(peer: &mut impl Conversation, version: &str, has_batches: bool) {
    peer.open(version).await;
    let called = call("echo", json!({"text": "in a batch"}));
    let batch = json!([
        {"jsonrpc": "2.0", "id": "a", "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nobody"}},
        {"jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": called},
        {"jsonrpc": "2.0", "id": 1.5, "method": "ping"},
        17,
    ]);
    let answer = peer.ask_raw(batch.to_string().as_bytes()).await;
    if !has_batches {
        assert_eq!(answer["error"]["code"], -32600, "{version}: {answer}");
        return is_served(peer, version).await;
    }
    let answers = answer
        .as_array()
        .unwrap_or_else(|| panic!("{version}: {answer}"));
    let of = |id: Value| answers.iter().find(|it| it.get("id") == Some(&id)).unwrap();
    assert_eq!(of(json!("a"))["result"], json!({}), "{version}");
    assert_eq!(
        text(&of(json!("b"))["result"]),
        r#"{"text":"in a batch"}"#,
        "{version}"
    );
    let without_id: Vec<&Value> = answers
        .iter()
        .filter(|it| it.get("error").is_some())
        .collect();
    let codes: Vec<&Value> = without_id.iter().map(|it| &it["error"]["code"]).collect();
    assert_eq!(
        (codes, answers.len()),
        (vec![&json!(-32600); 2], 4),
        "{version}: {answer}"
    );
    is_served(peer, version).await;
}

/// A line of 100 MB that takes no memory to speak of.
#[tokio::test]
async fn a_line_of_a_hundred_megabytes_is_refused_and_not_kept() {
    let site = Site::new(json!({}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let before = memory_kb(&server);
    server
        .send_bytes(br#"{"jsonrpc":"2.0","id":6,"method":"ping","params":{"x":""#)
        .await;
    let piece = vec![b'y'; 1_000_000];
    for _ in 0..100 {
        server.send_bytes(&piece).await;
    }
    server.send_bytes(b"\"}}\n").await;
    let answer = server.receive().await;
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("4194304"), "{message}");
    let grown = memory_kb(&server).saturating_sub(before);
    assert!(grown < 30_000, "{grown} kB more than before");
    is_served(&mut server, "a long line").await;
}

/// The most memory the process has ever had.
fn memory_kb(server: &StdioServer) -> u64 {
    let id = server.process().id().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn a_body_of_a_hundred_megabytes_is_refused() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let mut client = server.client();
    client.open("2025-06-18").await;
    // One that says how long it is, and one that does not.
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        accept: application/json, text/event-stream\r\n";
    let announced = format!("{head}content-length: 100000000\r\n\r\n");
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
    for (head, chunk) in [(announced, false), (chunked, true)] {
        let mut connection = HttpConnection::connect(server.address()).await.unwrap();
        connection.send_bytes(head.as_bytes()).await.unwrap();
        let piece = vec![b'y'; 0x100000];
        for _ in 0..96 {
            let sent = async {
                if chunk {
                    connection.send_bytes(b"100000\r\n").await?;
                }
                connection.send_bytes(&piece).await?;
                if chunk {
                    connection.send_bytes(b"\r\n").await?;
                }
                Ok::<_, std::io::Error>(())
            };
            // The server need not take all of it.
            match tokio::time::timeout(Duration::from_secs(2), sent).await {
                Ok(Ok(())) => {}
                _ => break,
            }
        }
        // Where the rest was refused the answer may be lost with it; what counts is that it ends.
        let answer = tokio::time::timeout(GENEROUS, connection.read_head()).await;
        if let Ok(head) = answer.expect("it does not hang") {
            assert_eq!(head.status, 413, "{head:?}");
        }
        is_served(&mut client, "a long body").await;
    }
}

#[tokio::test]
async fn a_body_that_never_comes_holds_nobody_else_up() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let mut client = server.client();
    client.open("2025-06-18").await;
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let mut connection = HttpConnection::connect(server.address()).await.unwrap();
        let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
            content-length: 100\r\n\r\n{\"json";
        connection.send_bytes(head.as_bytes()).await.unwrap();
        waiting.push(connection);
    }
    is_served(&mut client, "twenty halves of a body").await;
    // Half a body and then the end is no request.
    let mut connection = waiting.pop().unwrap();
    connection.finish_sending().await.unwrap();
    drop(waiting);
    is_served(&mut client, "broken connections").await;
}

#[tokio::test]
async fn http_says_with_its_status_what_was_wrong() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let mut client: HttpClient = server.client();
    for (frame, status, code) in [
        ("{", 400, -32700),
        ("[]", 400, -32600),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            400,
            -32600,
        ),
    ] {
        let answer = client.post(&HttpRequest::post("/mcp", frame)).await;
        assert_eq!(
            (answer.http.status, answer.code()),
            (status, code),
            "{frame}"
        );
        assert_eq!(answer.http.media_type(), Some("application/json"));
    }
    let unknown = client.post_modern("no/such", json!({})).await;
    assert_eq!((unknown.http.status, unknown.code()), (404, -32601));
    let tool = client
        .post_modern("tools/call", call("no-such", json!({})))
        .await;
    assert_eq!((tool.http.status, tool.code()), (200, -32602));
    let elsewhere = client.exchange(&HttpRequest::get("/no/such")).await;
    assert_eq!(elsewhere.status, 404);
}
