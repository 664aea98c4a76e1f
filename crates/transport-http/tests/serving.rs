//! Starting, stopping, and threads.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{A_WHILE, Seen, engine, start};
use serde_json::json;
use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use testkit::{GENEROUS, HttpClient, HttpRequest, MODERN, wait_until};
use tokio::time::timeout;
use transport_http::{HttpOptions, StartError, serve_on_threads};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

#[tokio::test]
async fn requests_in_flight_are_answered_before_the_end() {
    let mut running = start(HttpOptions::default()).await;
    let seen = Arc::clone(&running.seen);
    let mut client = running.client();
    client.speak(MODERN);
    let (_, mut idle) = client
        .connect()
        .await
        .exchange(&HttpRequest::post("/mcp", PING))
        .await;
    let message = client
        .voice
        .request("tools/call", json!({ "name": "stuck" }));
    let mut busy = client.connect().await;
    busy.send_bytes(&client.post_of(&message).to_bytes())
        .await
        .unwrap();
    seen.wait(&seen.begun, 1).await;
    running.stop();
    // Who waits for nothing is let go at once, and nobody new is let in.
    assert!(idle.read_head().await.is_err());
    assert!(
        tokio::net::TcpStream::connect(client.address())
            .await
            .is_err()
    );
    seen.release.notify_one();
    assert_eq!(busy.read_head().await.unwrap().status, 200);
    running.stopped().await;
    assert_eq!(running.server.connections(), 0);
}

#[tokio::test]
async fn a_session_s_request_is_carried_on_to_the_end() {
    let mut running = start(HttpOptions::default()).await;
    let seen = Arc::clone(&running.seen);
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let message = client
        .voice
        .request("tools/call", json!({ "name": "stuck" }));
    let mut connection = client.connect().await;
    connection
        .send_bytes(&client.post_of(&message).to_bytes())
        .await
        .unwrap();
    seen.wait(&seen.begun, 1).await;
    drop(connection);
    wait_until("the server knows", GENEROUS, || {
        running.server.connections() == 0
    })
    .await;
    running.stop();
    assert!(!running.stops_within(A_WHILE).await);
    seen.release.notify_one();
    running.stopped().await;
    assert_eq!(seen.finished.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_does_not_end_is_dropped() {
    let mut running = start(HttpOptions {
        drain: Duration::from_millis(100),
        ..HttpOptions::default()
    })
    .await;
    let seen = Arc::clone(&running.seen);
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    // One whose client waits, and one whose client has gone: a legacy one is carried on.
    let mut connections = Vec::new();
    for _ in 0..2 {
        let message = client
            .voice
            .request("tools/call", json!({ "name": "stuck" }));
        let mut connection = client.connect().await;
        connection
            .send_bytes(&client.post_of(&message).to_bytes())
            .await
            .unwrap();
        connections.push(connection);
    }
    seen.wait(&seen.begun, 2).await;
    connections.pop();
    wait_until("the server knows", GENEROUS, || {
        running.server.connections() == 1
    })
    .await;
    running.stop();
    running.stopped().await;
    seen.wait(&seen.dropped, 2).await;
    assert_eq!(seen.finished.load(Ordering::SeqCst), 0);
    assert_eq!(running.engine.in_flight(), 0);
    assert_eq!(running.server.sessions(), 0);
}

#[tokio::test]
async fn threads_share_a_port_and_sessions() {
    let seen = Arc::<Seen>::default();
    let two = NonZeroUsize::new(2).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let running = serve_on_threads(engine(&seen), HttpOptions::default(), any, two).unwrap();
    let address = running.address();
    let taken = serve_on_threads(engine(&seen), HttpOptions::default(), address, two);
    assert!(matches!(taken, Err(StartError::Listen { address: a, .. }) if a == address));

    let mut client = HttpClient::new(address);
    client.initialize("2025-11-25").await;
    for _ in 0..32 {
        // Each on a connection of its own, and so on either thread.
        assert_eq!(client.post_legacy("ping", json!({})).await.http.status, 200);
    }
    let mut stream = client.listen().await;
    assert_eq!(running.server().sessions(), 1);
    running.stop();
    assert!(stream.rest().await.is_empty());
    let server = running.server().clone();
    timeout(GENEROUS, running.stopped()).await.unwrap();
    assert_eq!((server.connections(), server.sessions()), (0, 0));
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn dropping_it_stops_it() {
    let seen = Arc::<Seen>::default();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let running = serve_on_threads(
        engine(&seen),
        HttpOptions::default(),
        any,
        NonZeroUsize::MIN,
    )
    .unwrap();
    let address = running.address();
    let (_, mut connection) = HttpClient::new(address)
        .connect()
        .await
        .exchange(&HttpRequest::post("/mcp", PING))
        .await;
    drop(running);
    assert!(connection.read_head().await.is_err());
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_that_stops_leaves_its_socket_to_its_successor() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listen = transport_http::Listen {
        tcp: None,
        unix: Some(transport_http::UnixSocket {
            path: path.clone(),
            mode: 0o600,
        }),
    };
    let serve = || {
        let options = HttpOptions::default();
        let engine = engine(&Arc::default());
        serve_on_threads(engine, options, listen.clone(), NonZeroUsize::MIN).unwrap()
    };
    let old = serve();
    old.stop();
    assert!(!path.exists(), "nothing is let in that is not served");
    let new = serve();
    timeout(GENEROUS, old.stopped()).await.unwrap();
    tokio::net::UnixStream::connect(&path).await.unwrap();
    drop(new);
    assert!(!path.exists());
}
