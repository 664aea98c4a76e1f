//! The wire peers, against a server that answers right or wrong as they ask.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Poll,
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpRequest, HttpServer, LinePeer, MODERN, Port, REVISIONS,
    StdioServer, free_port,
};
use tokio::process::Command;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testkit-peer"));
    command.args(arguments);
    command
}

fn announced(line: &str) -> Option<u16> {
    line.strip_prefix("listening on port ")?.parse().ok()
}

async fn http() -> HttpServer {
    HttpServer::spawn(command(&["http"]), Port::Announced(announced)).await
}

/// Message of the panic in `work`.
async fn complaint(work: impl Future<Output = ()>) -> String {
    let mut work = std::pin::pin!(work);
    poll_fn(|context| {
        let poll = AssertUnwindSafe(|| work.as_mut().poll(context));
        let panic = match catch_unwind(poll) {
            Ok(poll) => return poll.map(|()| panic!("a complaint was expected")),
            Err(panic) => panic,
        };
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Poll::Ready(text.expect("a panic has a text").to_owned())
    })
    .await
}

async fn converses(mut peer: impl Conversation, version: &str) {
    let opened = peer.open(version).await;
    match version {
        MODERN => assert_eq!(opened["supportedVersions"], json!([MODERN])),
        _ => assert_eq!(opened["protocolVersion"], version),
    }
    peer.notify("notifications/cancelled", json!({"requestId": 99}))
        .await;
    let reply = peer.request("tools/list", Value::Null).await;
    assert_eq!(reply.result()["tools"], json!([]));
    let reply = peer.request("tools/call", json!({"name": "a"})).await;
    assert_eq!(reply.earlier[0]["method"], "notifications/progress");
    assert_eq!(reply.earlier.len(), 1);
    assert_eq!(peer.request("nonsense", json!({})).await.code(), -32601);
    let raw = br#"{"jsonrpc":"2.0","id":"raw","method":"nonsense"}"#;
    assert_eq!(peer.ask_raw(raw).await["id"], "raw");
}

async fn complains(mut peer: impl Conversation) {
    let version = "2025-06-18";
    peer.open(version).await;
    let said = complaint(async {
        peer.request("resources/list", Value::Null).await;
    });
    let said = said.await;
    assert!(said.contains("/result/resources: "), "{said}");
    assert!(said.contains("ListResourcesResult"), "{said}");
}

#[tokio::test]
async fn one_conversation_runs_on_both_transports_in_every_revision() {
    let server = http().await;
    for version in REVISIONS {
        converses(StdioServer::spawn(command(&["stdio"])), version).await;
        converses(server.client(), version).await;
    }
}

#[tokio::test]
async fn an_invalid_answer_is_noticed_on_both_transports() {
    complains(StdioServer::spawn(command(&["stdio"]))).await;
    complains(http().await.client()).await;
}

#[tokio::test]
async fn a_second_answer_and_what_is_no_message_are_noticed_on_stdio() {
    for (method, says) in [("twice", "nothing waits"), ("json", "not a message")] {
        let mut server = StdioServer::spawn(command(&["stdio"]));
        server
            .send(&json!({"jsonrpc": "2.0", "id": 1, "method": format!("break/{method}")}))
            .await;
        let said = complaint(async {
            server.receive_many(2).await;
        });
        let said = said.await;
        assert!(said.contains(says), "{said}");
        assert!(said.contains("stderr:\nreading"), "{said}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_noticed_on_both_transports() {
    let broken = json!({"jsonrpc": "2.0", "id": 1, "method": "break/off"});
    let mut stdio = StdioServer::spawn(command(&["stdio"]));
    stdio.send(&broken).await;
    let said = complaint(async {
        stdio.receive().await;
    });
    assert!(said.await.contains("ends within a line"));
    let client = http().await;
    let client = client.client();
    let said = complaint(async {
        client.post(&client.post_of(&broken)).await;
    });
    assert!(said.await.contains("breaks off"));
}

#[tokio::test]
async fn the_end_of_the_input_ends_the_child_and_its_stderr_is_whole() {
    let mut server = StdioServer::spawn(command(&["stdio"]));
    let last = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    server.send(&last).await;
    server.close_input();
    assert_eq!(server.receive_rest().await.len(), 1);
    assert!(server.wait_exit(GENEROUS).await.success());
    assert_eq!(server.stderr(), "reading\ninput ended\n");
}

#[tokio::test]
async fn a_signal_reaches_the_child() {
    let mut server = StdioServer::spawn(command(&["stdio"]));
    server.process().wait_stderr("reading").await;
    server.process().signal("TERM").await;
    assert!(!server.wait_exit(GENEROUS).await.success());
}

#[tokio::test]
async fn a_server_that_does_not_listen_is_quoted() {
    let said = complaint(async {
        let port = free_port();
        HttpServer::spawn(command(&["nonsense"]), Port::Fixed(port)).await;
    });
    let said = said.await;
    assert!(
        said.contains("exit status: 3") && said.contains("cannot do"),
        "{said}"
    );
}

#[tokio::test]
async fn a_server_at_a_chosen_port_is_found() {
    let port = free_port();
    let server = HttpServer::spawn(command(&["http", &port.to_string()]), Port::Fixed(port)).await;
    assert_eq!(server.address().port(), port);
    let answer = server.client().post_modern("tools/list", Value::Null).await;
    assert_eq!(answer.http.status, 200);
    assert_eq!(answer.result()["resultType"], "complete");
}

#[tokio::test]
async fn answers_are_found_by_id_and_others_stay() {
    let (near, far) = tokio::io::duplex(1024);
    let (output, input) = tokio::io::split(near);
    let mut peer = LinePeer::over(output, input);
    peer.speak("2025-06-18");
    let (mut far_output, mut far_input) = tokio::io::split(far);
    for id in 1..=3 {
        peer.send(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}))
            .await;
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {}}).to_string() + "\n";
        tokio::io::AsyncWriteExt::write_all(&mut far_input, answer.as_bytes())
            .await
            .unwrap();
    }
    let mut read = [0; 64];
    tokio::io::AsyncReadExt::read_exact(&mut far_output, &mut read)
        .await
        .unwrap();
    assert_eq!(peer.receive_answer(&json!(3)).await["id"], 3);
    assert_eq!(peer.receive_answer(&json!(1)).await["id"], 1);
    assert_eq!(peer.receive().await["id"], 2);
    assert_eq!(peer.waiting(), 0);
    peer.expect_silence(Duration::from_millis(1)).await;
}

#[tokio::test]
async fn silence_that_is_broken_is_noticed() {
    let mut server = StdioServer::spawn(command(&["stdio"]));
    server
        .send(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        .await;
    let said = complaint(async {
        server.expect_silence(GENEROUS).await;
    });
    assert!(said.await.contains("expected silence, got"));
}

#[tokio::test]
async fn a_stream_is_read_event_by_event() {
    let server = http().await;
    let mut client = server.client();
    client.initialize("2025-06-18").await;
    assert_eq!(client.session(), Some("s1"));
    let mut stream = client.listen().await;
    let first = stream.next_event().await.unwrap();
    assert_eq!(
        (first.event.as_deref(), first.data.as_str()),
        (Some("endpoint"), "/messages")
    );
    let said = complaint(async {
        stream.message().await;
    });
    assert!(said.await.contains("not a message"));
    assert_eq!(stream.comments(), 1);
    assert_eq!(client.open_old_sse("/mcp/sse").await.endpoint, "/messages");
}

#[tokio::test]
async fn requests_can_be_as_broken_as_one_likes() {
    let server = http().await;
    let client = server.client();
    let request = HttpRequest::post("/mcp", "{}").with("content-length", "5");
    let mut connection = client.connect().await;
    connection.send_bytes(&request.to_bytes()).await.unwrap();
    connection.finish_sending().await.unwrap();
    // The peer waits for three bytes more, and finds the end instead.
    assert_eq!(connection.read_to_end().await, b"");
}
