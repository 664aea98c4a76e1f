//! The life of a server on pipes.

use crate::house::{Program, call};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit::{Conversation, GENEROUS, MODERN};

/// Time that R2.7 gives a server whose input has ended.
const END: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_first_request_without_metadata_is_answered_and_the_server_lives() {
    let mut server = Program::Suite.stdio();
    server.speak("2025-03-26");
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} }),
    ] {
        server.send(&message).await;
        assert!(server.receive().await["result"]["tools"].is_array());
    }
    // Whatever came first, each revision is still to be had.
    let listed = {
        server.speak(MODERN);
        server.request("tools/list", Value::Null).await
    };
    assert_eq!(listed.result()["resultType"], "complete");
    assert!(server.process().id().is_some());
}

#[tokio::test]
async fn a_first_line_that_is_nothing_is_answered_and_the_server_lives() {
    for first in [
        "",
        " ",
        "\u{feff}",
        "Content-Length: 7",
        "hello",
        "[]",
        "{}",
        "\0",
    ] {
        let mut server = Program::Suite.stdio();
        server.send_line(first.as_bytes()).await;
        let listed = server.open("2025-06-18").await;
        assert!(listed["capabilities"].is_object(), "{first:?}");
        server.close_input();
        let status = server.wait_exit(GENEROUS).await;
        assert!(status.success(), "{first:?}: {status}");
    }
}

#[tokio::test]
async fn the_end_of_the_input_is_the_end_of_an_idle_server() {
    for version in ["2024-11-05", "2025-11-25", MODERN] {
        let mut server = Program::Suite.stdio();
        server.open(version).await;
        let began = Instant::now();
        server.close_input();
        let status = server.wait_exit(END).await;
        assert!(status.success(), "{version}: {status}");
        // It has nothing to wait for, and so does not wait for as long as it might.
        assert!(
            began.elapsed() < END / 2,
            "{version}: {:?}",
            began.elapsed()
        );
        assert_eq!(server.receive_rest().await, Vec::<Value>::new());
    }
}

/// A call that ends is answered; one that does not is answered with an error, and holds nothing up for
/// longer than R2.7 allows.
#[tokio::test]
async fn the_end_of_the_input_waits_for_what_runs_but_not_for_ever() {
    let mut server = Program::Fixture.stdio();
    server.open(MODERN).await;
    for key in ["ends", "stays"] {
        let waiting = call("wait", json!({ "key": key }));
        let waiting = server.voice.request("tools/call", waiting);
        server.send(&waiting).await;
    }
    // Not before it waits: calls are begun in no certain order.
    let runs = call("fate", json!({ "key": "ends", "fate": "running" }));
    let _ = server.request("tools/call", runs).await;
    let release = call("release", json!({ "key": "ends" }));
    let release = server.voice.request("tools/call", release);
    server.send(&release).await;
    let began = Instant::now();
    server.close_input();
    let rest = server.receive_rest().await;
    let answered: Vec<_> = rest
        .iter()
        .map(|it| it["result"]["content"][0]["text"].clone())
        .collect();
    assert_eq!(answered.len(), 3, "{rest:?}");
    assert!(answered.contains(&json!("It was released.")), "{rest:?}");
    let given_up = rest.iter().filter(|it| !testkit::succeeded(it));
    let given_up: Vec<_> = given_up.map(testkit::failure_of).collect();
    assert_eq!(given_up.len(), 1, "{rest:?}");
    assert_eq!(given_up[0]["code"], -32004, "{rest:?}");
    server.wait_exit(END).await;
    assert!(began.elapsed() < END, "{:?}", began.elapsed());
}

#[tokio::test]
async fn nothing_but_messages_goes_to_the_output() {
    let mut server = Program::Fixture.stdio();
    server.open("2025-06-18").await;
    server.send_line(b"{").await;
    let _ = server.receive().await;
    let _ = server.request("tools/call", call("panic", json!({}))).await;
    server.close_input();
    // Each line was read as a message, or the client would have said so.
    assert_eq!(server.receive_rest().await, Vec::<Value>::new());
    assert!(server.wait_exit(GENEROUS).await.success());
    assert!(
        server.stderr().contains("as the test wants it"),
        "{}",
        server.stderr()
    );
}
