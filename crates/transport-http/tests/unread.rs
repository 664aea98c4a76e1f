//! Streams whose clients do not read: the calls they belong to go on all the same.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{A_WHILE, AN_HOUR, FLOODED, MUCH, Running, start};
use serde_json::{Value, json};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use testkit::{GENEROUS, HttpClient, HttpConnection, MODERN, SseParser, wait_until};
use tokio::net::TcpSocket;
use transport_http::{HttpLimits, HttpOptions};

/// A client of every kind: modern, in a session, and without one.
async fn clients(running: &Running) -> [HttpClient; 3] {
    let mut modern = running.client();
    modern.speak(MODERN);
    let mut legacy = running.client();
    legacy.initialize("2025-11-25").await;
    let mut sessionless = running.client();
    sessionless.speak("2025-11-25");
    [modern, legacy, sessionless]
}

/// Calls `tool`, and reads nothing of what it says.
async fn call_unread(client: &mut HttpClient, tool: &str) -> HttpConnection {
    let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": "t" } });
    let message = client.voice.request("tools/call", params);
    let socket = TcpSocket::new_v4().unwrap();
    // Else the system would take dozens of megabytes for a client that reads nothing.
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    let stream = socket.connect(client.address()).await.unwrap();
    let mut connection = HttpConnection::over(stream);
    let bytes = client.post_of(&message).to_bytes();
    connection.send_bytes(&bytes).await.unwrap();
    connection
}

/// The same, until more was said than all buffers hold. That is so after `rounds`, which are counted
/// together with those of earlier calls.
async fn flooded(
    running: &Running,
    client: &mut HttpClient,
    tool: &str,
    rounds: usize,
) -> HttpConnection {
    let connection = call_unread(client, tool).await;
    running.seen.wait(&running.seen.floods, rounds).await;
    connection
}

/// Step that a progress report names; none if it is no report.
fn step(report: &str) -> Option<f64> {
    let report: Value = serde_json::from_str(report).ok()?;
    report["params"]["progress"].as_f64()
}

async fn all_is_given_back(running: &Running) {
    wait_until("its place is given back", GENEROUS, || {
        running.engine.in_flight() == 0
    })
    .await;
}

#[tokio::test]
async fn a_call_ends_in_time_although_nobody_reads() {
    let running = start(HttpOptions::default()).await;
    let seen = &running.seen;
    let mut open = Vec::new();
    for (mut client, round) in clients(&running).await.into_iter().zip(1..) {
        let connection = flooded(&running, &mut client, "flood_in_time", round * FLOODED).await;
        open.push(connection);
        seen.wait(&seen.finished, round).await;
        all_is_given_back(&running).await;
        assert_eq!(running.server.connections(), round, "nobody hung up");
    }
}

#[tokio::test]
async fn what_was_not_read_in_time_is_read_later() {
    let running = start(HttpOptions::default()).await;
    let seen = &running.seen;
    for (mut client, round) in clients(&running).await.into_iter().zip(1..) {
        let mut connection = flooded(&running, &mut client, "flood", round * FLOODED).await;
        seen.release.notify_one();
        all_is_given_back(&running).await;
        let head = connection.read_head().await.unwrap();
        let mut body = connection.into_body(&head, false);
        let (mut parser, mut rest) = (SseParser::default(), Vec::new());
        while let Some(bytes) = body.next().await {
            rest.extend(parser.push(&bytes).unwrap());
        }
        let answer = rest.pop().unwrap().data;
        assert!(answer.contains("result"), "{answer}");
        // What was reported while there was no room for it is missing.
        assert!(!rest.is_empty() && rest.len() < FLOODED * MUCH);
        let steps: Vec<_> = rest
            .iter()
            .filter_map(|report| step(&report.data))
            .collect();
        assert!(steps.is_sorted_by(|one, other| one < other));
        assert!(rest.len() - steps.len() <= 1, "a beginning says nothing");
    }
}

#[tokio::test]
async fn hanging_up_unread_cancels_a_modern_call_only() {
    // No comment finds out.
    let running = start(HttpOptions {
        keep_alive: AN_HOUR,
        ..HttpOptions::default()
    })
    .await;
    let seen = &running.seen;
    let [mut modern, mut legacy, mut sessionless] = clients(&running).await;
    drop(flooded(&running, &mut modern, "flood", FLOODED).await);
    seen.wait(&seen.dropped, 1).await;
    assert_eq!(seen.finished.load(Ordering::SeqCst), 0);
    all_is_given_back(&running).await;
    for (client, round) in [&mut legacy, &mut sessionless].into_iter().zip(1..) {
        let before = seen.floods.load(Ordering::SeqCst);
        drop(flooded(&running, client, "flood", before + FLOODED).await);
        wait_until("the server knows", GENEROUS, || {
            running.server.connections() == 0
        })
        .await;
        let known = seen.floods.load(Ordering::SeqCst);
        seen.wait(&seen.floods, known + 10).await;
        seen.release.notify_one();
        seen.wait(&seen.dropped, 1 + round).await;
        assert_eq!(seen.finished.load(Ordering::SeqCst), round);
        all_is_given_back(&running).await;
    }
}

#[tokio::test]
async fn a_server_that_stops_waits_for_such_calls_and_not_for_ever() {
    let drain = Duration::from_millis(3000);
    let mut running = start(HttpOptions {
        drain,
        ..HttpOptions::default()
    })
    .await;
    let mut open = Vec::new();
    for (mut client, round) in clients(&running).await.into_iter().zip(1..) {
        open.push(flooded(&running, &mut client, "flood", round * FLOODED).await);
    }
    let told = Instant::now();
    running.stop();
    let seen = &running.seen;
    let then = seen.floods.load(Ordering::SeqCst);
    seen.wait(&seen.floods, then + 10).await;
    assert_eq!(seen.dropped.load(Ordering::SeqCst), 0, "they go on");
    running.stopped().await;
    assert!(drain <= told.elapsed());
    // Nothing is left to be dropped after the server has stopped.
    assert_eq!(running.seen.dropped.load(Ordering::SeqCst), 3);
    assert_eq!(running.seen.finished.load(Ordering::SeqCst), 0);
    assert_eq!(running.engine.in_flight(), 0);
    assert_eq!(running.server.connections(), 0);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_hung_up_on() {
    let running = start(HttpOptions {
        limits: HttpLimits {
            write_timeout: A_WHILE,
            ..HttpLimits::default()
        },
        ..HttpOptions::default()
    })
    .await;
    let seen = &running.seen;
    let [mut modern, mut legacy, _] = clients(&running).await;
    // This one may say nothing for longer than that.
    let mut silent = legacy.listen().await;
    silent.next_event().await.unwrap();
    let modern = call_unread(&mut modern, "flood").await;
    seen.wait(&seen.dropped, 1).await;
    assert_eq!(seen.finished.load(Ordering::SeqCst), 0);
    let legacy = call_unread(&mut legacy, "flood").await;
    seen.wait(&seen.begun, 2).await;
    wait_until("both are hung up on", GENEROUS, || {
        running.server.connections() == 1
    })
    .await;
    assert_eq!(seen.dropped.load(Ordering::SeqCst), 1, "one is carried on");
    seen.release.notify_one();
    seen.wait(&seen.finished, 1).await;
    all_is_given_back(&running).await;
    silent.expect_silence(A_WHILE).await;
    assert_eq!(running.server.connections(), 1);
    drop((modern, legacy));
}
