//! WebSockets of the real program: what is governed elsewhere is governed here.

use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpRequest, HttpServer, MODERN, WebSocketPeer, succeeded, wait_until,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use crate::support::{Site, call, outcome, run};

const PATH: &str = "/mcp/ws";

fn shop(more: Value) -> Site {
    let mut config = json!({
        "http": {"websocket": {"enabled": true}},
        "governance": {"tools": {"spend": {"max_calls_per_day": 1}}},
    });
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    Site::new(config)
}

async fn open(server: &HttpServer, headers: &[(&str, String)]) -> Result<WebSocketPeer, u16> {
    WebSocketPeer::open_at(server.address(), PATH, headers).await
}

async fn named(server: &HttpServer, name: &str) -> WebSocketPeer {
    let headers = [("x-mcp-client-id", name.to_owned())];
    open(server, &headers).await.unwrap()
}

#[tokio::test]
async fn every_revision_is_spoken_and_each_call_is_governed_and_recorded() {
    let site = shop(json!({}));
    let server = site.http().await;
    for (index, version) in testkit::REVISIONS.iter().enumerate() {
        let name = format!("client-{index}");
        let mut socket = named(&server, &name).await;
        socket.open(version).await;
        let done = socket
            .request("tools/call", call("echo", json!({"text": "é"})))
            .await;
        assert_eq!(done.result()["content"][0]["type"], "text");
        let paid = socket
            .request("tools/call", call("spend", json!({"usd": "0.1"})))
            .await;
        assert!(succeeded(&paid.response), "{paid:?}");
        let refused = socket
            .request("tools/call", call("spend", json!({"usd": "0.1"})))
            .await;
        assert_eq!(refused.failure()["code"], -32003, "{version}: {refused:?}");
        let calls = site.calls();
        let of: Vec<_> = calls
            .iter()
            .filter(|it| *it.started.principal == *name)
            .collect();
        let outcomes: Vec<_> = of.iter().map(|call| outcome(call)).collect();
        assert_eq!(outcomes, ["succeeded", "succeeded", "denied"], "{version}");
        assert!(
            of.iter().all(|call| call.started.session.is_some()),
            "{version}"
        );
    }
}

#[tokio::test]
async fn there_are_none_unless_they_are_wanted_and_so_many_at_most() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    assert_eq!(open(&server, &[]).await.unwrap_err(), 404);

    let site = shop(json!({"http": {"websocket": {
        "enabled": true, "max_open": 3, "max_open_per_client": 2,
    }}}));
    let server = site.http().await;
    let first = named(&server, "ann").await;
    let second = named(&server, "ann").await;
    let ann = [("x-mcp-client-id", "ann".to_owned())];
    assert_eq!(open(&server, &ann).await.unwrap_err(), 503);
    let third = named(&server, "bob").await;
    let bob = [("x-mcp-client-id", "bob".to_owned())];
    assert_eq!(open(&server, &bob).await.unwrap_err(), 503);
    let read = async || {
        let answer = server
            .client()
            .exchange(&HttpRequest::get("/metrics"))
            .await;
        String::from_utf8(answer.body).unwrap()
    };
    let metrics = read().await;
    assert!(metrics.contains("owlclaw_mcp_websockets 3"), "{metrics}");
    assert!(
        metrics.contains("owlclaw_mcp_refused_websockets_total 2"),
        "{metrics}"
    );
    drop((first, second, third));
    let closed = async {
        while !read().await.contains("owlclaw_mcp_websockets 0") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(GENEROUS, closed)
        .await
        .expect("they are closed");
    named(&server, "ann").await.open(MODERN).await;
}

/// A WebSocket by hand, on a socket whose buffer is small.
async fn raw(server: &HttpServer) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut stream = socket.connect(server.address()).await.unwrap();
    let request = format!(
        "GET {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(
        head.starts_with(b"HTTP/1.1 101"),
        "{}",
        String::from_utf8_lossy(&head)
    );
    stream
}

/// A frame of a client, masked with nothing.
fn frame(first: u8, length: u8) -> Vec<u8> {
    let mut frame = vec![first, 0x80 | length, 0, 0, 0, 0];
    frame.resize(6 + usize::from(length), b'x');
    frame
}

/// Sends `piece` until the server has had enough, and says how much that was. What it says is read or not.
async fn flood(stream: TcpStream, piece: &[u8], reads: bool) -> usize {
    let (mut read, mut write) = stream.into_split();
    let reading = tokio::spawn(async move {
        let mut ignored = vec![0; 64 * 1024];
        while reads && read.read(&mut ignored).await.is_ok_and(|length| 0 < length) {}
        // Kept open, so that the server has no other reason to hang up.
        read
    });
    let mut sent = 0;
    let flooding = async {
        while write.write_all(piece).await.is_ok() {
            sent += piece.len();
        }
    };
    tokio::time::timeout(GENEROUS, flooding)
        .await
        .expect("the server hangs up");
    drop(reading);
    sent
}

#[tokio::test]
async fn a_flood_of_pings_ends_its_connection_and_takes_no_memory() {
    let site =
        shop(json!({"http": {"websocket": {"enabled": true}, "limits": {"write_seconds": 2}}}));
    let server = site.http().await;
    let resident = server.process().resident_bytes();
    let floods = [
        ("pings", frame(0x89, 125), false),
        ("pings", frame(0x89, 125), true),
        ("empty pings", frame(0x89, 0), false),
        ("pongs", frame(0x8a, 0), false),
    ];
    for (what, one, reads) in floods {
        let sent = flood(raw(&server).await, &one.repeat(100), reads).await;
        let now = server.process().resident_bytes();
        let grown = now.saturating_sub(resident) >> 20;
        assert!(
            grown < 32,
            "{what}, read: {reads}: {sent} bytes, {grown} MiB"
        );
    }
    // The pieces of a message that never ends.
    let mut stream = raw(&server).await;
    stream.write_all(&frame(0x01, 1)).await.unwrap();
    flood(stream, &frame(0x00, 0).repeat(100), false).await;
    let told = server
        .client()
        .exchange(&HttpRequest::get("/metrics"))
        .await;
    let told = told.text();
    assert!(
        told.contains("owlclaw_mcp_flooded_websockets_total 5"),
        "{told}"
    );
    let said = server.stderr();
    let lines = said
        .matches("a connection was ended: its client sent too many")
        .count();
    assert!((1..=3).contains(&lines), "{lines} lines of the log");
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_not_read_from_either() {
    // As many pings as anybody wants: what bounds them is that their answers are not taken.
    let site = shop(json!({"http": {
        "websocket": {"enabled": true},
        "limits": {"write_seconds": 2, "max_control_frames_per_second": 1_000_000},
    }}));
    let server = site.http().await;
    let resident = server.process().resident_bytes();
    let sent = flood(raw(&server).await, &frame(0x89, 125).repeat(100), false).await;
    let now = server.process().resident_bytes();
    let grown = now.saturating_sub(resident) >> 20;
    assert!(grown < 32, "{sent} bytes: {grown} MiB");
    named(&server, "ann").await.open(MODERN).await;
}

#[tokio::test]
async fn pages_of_strangers_open_none_and_what_is_no_websocket_is_told_so() {
    let site = shop(json!({}));
    let server = site.http().await;
    for (origin, is_let_in) in [
        ("https://evil.example", false),
        ("http://localhost:3000", true),
    ] {
        let opened = open(&server, &[("origin", origin.to_owned())]).await;
        assert_eq!(opened.is_ok(), is_let_in, "{origin}");
        assert!(is_let_in || opened.unwrap_err() == 403);
    }
    let ask = async |request: HttpRequest| server.client().exchange(&request).await;
    let plain = ask(HttpRequest::get(PATH)).await;
    assert_eq!(plain.status, 426);
    assert_eq!(plain.header("upgrade"), Some("websocket"));
    let upgrading = || {
        HttpRequest::get(PATH)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
    };
    let old = ask(upgrading().header("sec-websocket-version", "8")).await;
    assert_eq!(
        (old.status, old.header("sec-websocket-version")),
        (426, Some("13"))
    );
    let chat = upgrading().header("sec-websocket-version", "13");
    let chat = ask(chat.header("sec-websocket-protocol", "chat")).await;
    assert_eq!(chat.status, 400, "{chat:?}");
    // HTTP goes on afterwards, on the same connection too.
    let mut connection = server.client().connect().await;
    for _ in 0..2 {
        let (refused, same) = connection.exchange(&HttpRequest::get(PATH)).await;
        assert_eq!(refused.status, 426);
        connection = same;
    }
}

#[tokio::test]
async fn a_key_that_is_revoked_closes_what_it_opened() {
    let site = shop(json!({
        "http": {"websocket": {"enabled": true, "ping_seconds": 1}},
        "identity": {"api_keys": {}},
    }));
    let create = ["keys", "create", "--principal", "ann", "--format", "json"];
    let made: Value = serde_json::from_str(&run(site.command(&create)).await.output).unwrap();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let server = site.http().await;
    let bearer = [("authorization", format!("Bearer {key}"))];
    let mut busy = open(&server, &bearer).await.unwrap();
    busy.open(MODERN).await;
    let idle = open(&server, &bearer).await.unwrap();

    let said = run(site.command(&["keys", "revoke", id])).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    // Who says nothing is found out by being looked after.
    let (code, why) = idle.closed().await.unwrap();
    assert_eq!(
        (code, &*why),
        (1008, "what this was opened with proves nothing any more")
    );
    assert_eq!(busy.closed().await.unwrap().0, 1008);
    assert_eq!(open(&server, &bearer).await.unwrap_err(), 401);
}

#[tokio::test]
async fn a_server_that_stops_answers_what_runs_and_says_goodbye() {
    let site = shop(json!({}));
    let mut server = site.http().await;
    let mut socket = named(&server, "ann").await;
    socket.open(MODERN).await;
    let request = socket
        .voice
        .request("tools/call", call("nap", json!({"seconds": 1.0})));
    socket.send(&request).await;
    wait_until("it naps", GENEROUS, || site.read("naps").contains("begun")).await;
    server.process().signal("TERM").await;
    let answer = socket.receive_answer(&request["id"]).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(
        socket.closed().await.unwrap(),
        (1001, "the server stops".to_owned())
    );
    assert_eq!(server.wait_exit(GENEROUS).await.code(), Some(0));
    let said = run(site.command(&["ledger", "verify"])).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
}
