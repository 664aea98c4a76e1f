//! Streams of legacy sessions that end before they are over, and clients that come back for the rest.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{A_WHILE, Running, start, start_with};
use mcp_service::Change;
use serde_json::{Value, json};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use testkit::{GENEROUS, HttpClient, HttpRequest, MODERN, SseStream, wait_until};
use tokio::time::timeout;
use transport_http::{HttpLimits, HttpOptions};

fn call(client: &mut HttpClient, tool: &str) -> Value {
    let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": "t" } });
    client.voice.request("tools/call", params)
}

fn comeback(client: &HttpClient, id: &str) -> HttpRequest {
    let get = HttpRequest::get("/mcp")
        .header("accept", "text/event-stream")
        .header("last-event-id", id);
    client.dress(get)
}

/// Comes back for what follows an event, of a stream on which `message` is answered.
async fn resume(client: &HttpClient, id: &str, message: &Value) -> SseStream {
    let mut stream = client.stream(&comeback(client, id)).await;
    stream.dialogue.sent(message.to_string().as_bytes());
    stream
}

/// The names of the events of a stream and what they say, until it ends.
async fn rest(stream: &mut SseStream) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    while let Some(event) = stream.next_event().await {
        if !event.data.is_empty() {
            let data: Value = serde_json::from_str(&event.data).unwrap();
            let says = match data.get("result") {
                Some(result) if result["isError"] == true => {
                    result["_meta"]["io.owlclaw/error"]["reason"].clone()
                }
                Some(_) => json!("answer"),
                None => data["params"]["progress"].clone(),
            };
            events.push((event.id.unwrap(), says));
        }
    }
    events
}

fn report(running: &Running, progress: f64) {
    let reporter = running.seen.reporter.lock().unwrap();
    assert!(reporter.as_ref().unwrap().report(progress, None, None));
}

async fn all_have_gone(running: &Running) {
    wait_until("the server knows", GENEROUS, || {
        running.server.connections() == 0
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_the_server_ends_is_gone_on_with_elsewhere() {
    let running = start(HttpOptions {
        retry: Duration::from_millis(40),
        ..HttpOptions::default()
    })
    .await;
    let seen = &running.seen;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let message = call(&mut client, "away");
    let mut stream = client.stream(&client.post_of(&message)).await;
    let first = stream.next_event().await.unwrap();
    assert_eq!(
        (first.id.as_deref(), first.retry, &*first.data),
        (Some("1-0"), Some(40), "")
    );
    assert_eq!(stream.next_event().await, None);
    assert_eq!(seen.dropped.load(Ordering::SeqCst), 0, "it is carried on");

    // Both before and after the answer is there.
    let mut waiting = resume(&client, "1-0", &message).await;
    assert_eq!(waiting.next_event().await.unwrap(), first);
    waiting.expect_silence(A_WHILE).await;
    seen.release.notify_one();
    let answer = [("1-1".to_owned(), json!("answer"))];
    assert_eq!(rest(&mut waiting).await, answer);
    let mut late = resume(&client, "1-0", &message).await;
    assert_eq!(rest(&mut late).await, answer);
    assert_eq!(running.engine.in_flight(), 0);
}

#[tokio::test]
async fn who_would_not_come_back_is_not_sent_away() {
    let running = start(HttpOptions::default()).await;
    let seen = &running.seen;
    let mut modern = running.client();
    modern.speak(MODERN);
    let mut middle = running.client();
    middle.initialize("2025-06-18").await;
    let mut old = running.client();
    old.initialize("2024-11-05").await;
    let mut sessionless = running.client();
    sessionless.speak("2025-11-25");
    for (round, client) in (1..).zip([&mut modern, &mut middle, &mut old, &mut sessionless]) {
        let message = call(client, "away");
        let post = client.post_of(&message);
        let (answer, ()) = tokio::join!(client.post(&post), async {
            seen.wait(&seen.begun, round).await;
            tokio::time::sleep(A_WHILE).await;
            seen.release.notify_one();
        });
        assert_eq!(answer.http.media_type(), Some("application/json"));
        assert!(answer.result()["content"].is_array());
    }
}

#[tokio::test]
async fn what_a_lost_client_missed_is_kept_for_it() {
    let running = start(HttpOptions::default()).await;
    let seen = &running.seen;
    for (round, version) in [(1, "2025-03-26"), (2, "2025-06-18"), (3, "2025-11-25")] {
        let mut client = running.client();
        client.initialize(version).await;
        let message = call(&mut client, "stuck");
        let post = client.post_of(&message);
        let ((), mut stream) = tokio::join!(
            async {
                seen.wait(&seen.begun, round).await;
                report(&running, 1.0);
            },
            client.stream(&post)
        );
        let mut first = stream.next_event().await.unwrap();
        if version == "2025-11-25" {
            assert_eq!((first.retry, &*first.data), (Some(1_000), ""));
            first = stream.next_event().await.unwrap();
        }
        assert_eq!((first.retry, first.id.as_deref()), (None, Some("1-1")));
        drop(stream);
        all_have_gone(&running).await;
        report(&running, 2.0);
        let mut waiting = resume(&client, "1-1", &message).await;
        report(&running, 3.0);
        seen.release.notify_one();
        let missed = [
            ("1-2".to_owned(), json!(2.0)),
            ("1-3".to_owned(), json!(3.0)),
            ("1-4".to_owned(), json!("answer")),
        ];
        assert_eq!(rest(&mut waiting).await, missed, "{version}");
        for (after, left) in [("1-1", &missed[..]), ("1-3", &missed[2..]), ("1-4", &[])] {
            let mut again = resume(&client, after, &message).await;
            assert_eq!(rest(&mut again).await, left, "{version} {after}");
        }
    }
}

#[tokio::test]
async fn who_waits_for_long_is_given_a_way_back() {
    let running = start(HttpOptions {
        begin_stream_after: Duration::from_millis(20),
        ..HttpOptions::default()
    })
    .await;
    let seen = &running.seen;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    for round in 1..=3 {
        let message = client
            .voice
            .request("tools/call", json!({ "name": "stuck", "arguments": {} }));
        let mut stream = client.stream(&client.post_of(&message)).await;
        let first = stream.next_event().await.unwrap();
        assert_eq!((first.retry, &*first.data), (Some(1_000), ""));
        let id = first.id.unwrap();
        assert_eq!(id, format!("{round}-0"));
        let answer = [(format!("{round}-1"), json!("answer"))];
        if round == 1 {
            // Nothing breaks.
            seen.release.notify_one();
            stream.dialogue.sent(message.to_string().as_bytes());
            assert_eq!(rest(&mut stream).await, answer);
            continue;
        }
        drop(stream);
        all_have_gone(&running).await;
        if round == 2 {
            // It is finished before its client is back.
            seen.release.notify_one();
            seen.wait(&seen.finished, round).await;
        }
        let mut back = resume(&client, &id, &message).await;
        assert_eq!(back.next_event().await.unwrap().id, Some(id));
        if round == 3 {
            back.expect_silence(A_WHILE).await;
            seen.release.notify_one();
        }
        assert_eq!(rest(&mut back).await, answer);
        // Nothing comes after the answer, whoever asks.
        let mut again = resume(&client, &answer[0].0, &message).await;
        assert_eq!(rest(&mut again).await, []);
    }
    assert_eq!(seen.begun.load(Ordering::SeqCst), 3);
    assert_eq!(running.engine.in_flight(), 0);
}

#[tokio::test]
async fn who_would_not_know_how_to_come_back_waits_for_the_answer() {
    let running = start(HttpOptions {
        begin_stream_after: Duration::ZERO,
        ..HttpOptions::default()
    })
    .await;
    let seen = &running.seen;
    let mut modern = running.client();
    modern.speak(MODERN);
    let mut middle = running.client();
    middle.initialize("2025-06-18").await;
    let mut sessionless = running.client();
    sessionless.speak("2025-11-25");
    let mut json_only = running.client();
    json_only.initialize("2025-11-25").await;
    let clients = [&mut modern, &mut middle, &mut sessionless, &mut json_only];
    for (round, client) in (1..).zip(clients) {
        let message = call(client, "stuck");
        let mut post = client.post_of(&message);
        if round == 4 {
            post = post.with("accept", "application/json");
        }
        let (answer, ()) = tokio::join!(client.post(&post), async {
            seen.wait(&seen.begun, round).await;
            tokio::time::sleep(A_WHILE).await;
            seen.release.notify_one();
        });
        assert_eq!(answer.http.media_type(), Some("application/json"));
        assert!(answer.result()["content"].is_array());
    }
    // What is answered at once is no stream, not even for who knows.
    let echo = call(&mut json_only, "echo");
    let answer = json_only.post(&json_only.post_of(&echo)).await;
    assert_eq!(answer.http.media_type(), Some("application/json"));
}

#[tokio::test]
async fn streams_of_several_requests_are_not_mixed() {
    let running = start(HttpOptions::default()).await;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    for stream in 1..=3 {
        let steps = call(&mut client, "steps");
        let answer = client.post(&client.post_of(&steps)).await;
        assert_eq!(answer.messages.len(), 4);
        let ids: Vec<_> = answer
            .events
            .iter()
            .map(|it| it.id.clone().unwrap())
            .collect();
        let expected: Vec<_> = (0..=4).map(|event| format!("{stream}-{event}")).collect();
        assert_eq!(ids, expected);
        let mut again = resume(&client, &ids[2], &steps).await;
        let again = rest(&mut again).await;
        let again: Vec<_> = again.iter().map(|(id, _)| id.clone()).collect();
        assert_eq!(again, expected[3..]);
    }
    // A stream has one reader, who came last.
    let away = call(&mut client, "away");
    let mut stream = client.stream(&client.post_of(&away)).await;
    assert_eq!(rest(&mut stream).await, []);
    let mut first = resume(&client, "4-0", &away).await;
    first.next_event().await.unwrap();
    let mut second = resume(&client, "4-0", &away).await;
    assert_eq!(rest(&mut first).await, []);
    running.seen.release.notify_one();
    assert_eq!(rest(&mut second).await.len(), 1);
}

#[tokio::test]
async fn who_comes_back_is_told_there_and_nowhere_else() {
    let running = start(HttpOptions::default()).await;
    let seen = &running.seen;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let message = call(&mut client, "stuck");
    let post = client.post_of(&message);
    let (mut first, ()) = tokio::join!(client.stream(&post), async {
        seen.wait(&seen.begun, 1).await;
        report(&running, 1.0);
    });
    first.next_event().await.unwrap();
    assert_eq!(first.next_event().await.unwrap().id.as_deref(), Some("1-1"));
    // The connection is as good as ever.
    let mut second = resume(&client, "1-1", &message).await;
    second.next_event().await.unwrap();
    assert_eq!(rest(&mut first).await, []);
    report(&running, 2.0);
    let next = second.next_event().await.unwrap();
    assert_eq!(next.id.as_deref(), Some("1-2"));
    // That was lost on the way, and with it the connection.
    let mut third = resume(&client, "1-1", &message).await;
    assert_eq!(rest(&mut second).await, []);
    report(&running, 3.0);
    seen.release.notify_one();
    let left = [
        ("1-2".to_owned(), json!(2.0)),
        ("1-3".to_owned(), json!(3.0)),
        ("1-4".to_owned(), json!("answer")),
    ];
    assert_eq!(rest(&mut third).await, left);
    assert_eq!(running.engine.in_flight(), 0);
}

#[tokio::test]
async fn a_connection_that_nobody_reads_holds_nothing_up() {
    let running = start_with(HttpLimits {
        max_session_replay_events: 100_000,
        max_session_replay_bytes: 256 * 1024 * 1024,
        max_replay_bytes: 256 * 1024 * 1024,
        ..HttpLimits::default()
    })
    .await;
    let seen = &running.seen;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let message = call(&mut client, "stuck");
    let post = client.post_of(&message);
    let (mut dead, ()) = tokio::join!(client.stream(&post), async {
        seen.wait(&seen.begun, 1).await;
        report(&running, 0.5);
    });
    assert_eq!(dead.next_event().await.unwrap().id.as_deref(), Some("1-0"));
    // Until nothing more fits, neither into the connection nor into what waits for it.
    let long = "x".repeat(100_000);
    let reporter = seen.reporter.lock().unwrap().clone().unwrap();
    let mut said = vec![json!(0.5)];
    let mut refused = 0;
    while refused < 5 {
        let next = said.len() as f64;
        if reporter.report(next, None, Some(&long)) {
            said.push(json!(next));
            refused = 0;
        } else {
            refused += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(said.len() < 2_000, "the connection takes everything");
    seen.release.notify_one();
    let mut alive = resume(&client, "1-0", &message).await;
    said.push(json!("answer"));
    let heard: Vec<_> = rest(&mut alive).await;
    let heard: Vec<_> = heard.into_iter().map(|(_, says)| says).collect();
    assert_eq!(heard, said);
    drop(dead);
}

#[tokio::test]
async fn a_session_s_own_stream_is_continued() {
    let running = start(HttpOptions {
        keep_alive: Duration::from_millis(30),
        ..HttpOptions::default()
    })
    .await;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let mut stream = client.listen().await;
    let first = stream.next_event().await.unwrap();
    assert_eq!((first.id.as_deref(), &*first.data), (Some("0-0"), ""));
    for (event, change) in [(1, Change::Tools), (2, Change::Resources)] {
        running.engine.publish(&change);
        let id = stream.next_event().await.unwrap().id.unwrap();
        assert_eq!(id, format!("0-{event}"));
    }
    // It says that it lost the second, and we do not know yet that the stream is lost.
    let mut continued = client.stream(&comeback(&client, "0-1")).await;
    assert_eq!(
        continued.message().await["method"],
        "notifications/resources/list_changed"
    );
    let end = timeout(GENEROUS, stream.next_event()).await;
    assert_eq!(end.expect("the other one ends"), None);
    drop(stream);
    running.engine.publish(&Change::Tools);
    let next = continued.next_event().await.unwrap();
    assert_eq!(next.id.as_deref(), Some("0-3"));
    drop(continued);
    all_have_gone(&running).await;

    // Who comes back without a word begins where the stream is.
    let mut anew = client.listen().await;
    let first = anew.next_event().await.unwrap();
    assert_eq!((first.id.as_deref(), &*first.data), (Some("0-3"), ""));
    anew.expect_silence(A_WHILE).await;
}

#[tokio::test]
async fn older_clients_see_names_or_nothing_of_it() {
    let running = start(HttpOptions::default()).await;
    for (version, id) in [("2024-11-05", None), ("2025-03-26", Some("0-1"))] {
        let mut client = running.client();
        client.initialize(version).await;
        let mut stream = client.listen().await;
        running.engine.publish(&Change::Tools);
        let event = stream.next_event().await.unwrap();
        assert_eq!((event.id.as_deref(), event.retry), (id, None), "{version}");
        assert!(!event.data.is_empty());
    }
}

#[tokio::test]
async fn what_is_not_kept_is_refused() {
    let running = start_with(HttpLimits {
        max_session_replay_bytes: 300,
        ..HttpLimits::default()
    })
    .await;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    for id in ["", "x", "1", "1-x", "-1-1", "9-0", "1-0"] {
        let response = client.exchange(&comeback(&client, id)).await;
        assert_eq!(
            (response.status, &response.json()["error"]["code"]),
            (400, &json!(-32600))
        );
    }
    // The answer comes to whoever waits for it, and is too long to be kept.
    let big = json!({ "name": "lines", "arguments": { "a": "x".repeat(2_000) },
                      "_meta": { "progressToken": "t" } });
    let message = client.voice.request("tools/call", big);
    let answer = client.post(&client.post_of(&message)).await;
    assert_eq!(answer.events.len(), 3);
    let mut stream = resume(&client, "1-0", &message).await;
    assert_eq!(rest(&mut stream).await, [("1-1".to_owned(), json!(1.0))]);
    // Nothing is left to wait for, and nobody is let wait for it.
    assert_eq!(client.exchange(&comeback(&client, "1-1")).await.status, 400);

    // What is one session's is nothing to another.
    let mut other = running.client();
    other.initialize("2025-11-25").await;
    assert_eq!(other.exchange(&comeback(&other, "1-0")).await.status, 400);
    // What is over and forgotten is not there any more.
    for _ in 0..10 {
        let steps = call(&mut client, "steps");
        client.post(&client.post_of(&steps)).await;
    }
    assert_eq!(client.exchange(&comeback(&client, "1-0")).await.status, 400);
}

#[tokio::test]
async fn an_answer_too_large_to_be_kept_reaches_a_waiting_client() {
    let running = start(HttpOptions {
        limits: HttpLimits {
            max_session_replay_bytes: 2048,
            ..HttpLimits::default()
        },
        ..HttpOptions::default()
    })
    .await;
    let large = "x".repeat(100_000);
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let params = json!({ "name": "away", "arguments": { "text": large } });
    let away = client.voice.request("tools/call", params);
    let mut stream = client.stream(&client.post_of(&away)).await;
    assert_eq!(rest(&mut stream).await, [], "it is sent away");

    let mut waiting = resume(&client, "1-0", &away).await;
    assert_eq!(waiting.next_event().await.unwrap().data, "");
    running.seen.release.notify_one();
    let answer = timeout(GENEROUS, waiting.message())
        .await
        .expect("an answer");
    assert!(answer.to_string().contains(&large));
    assert_eq!(rest(&mut waiting).await, [], "and nothing after it");
    // It was not kept. Whoever comes later is told so, in an answer to the same request.
    for _ in 0..2 {
        let mut late = resume(&client, "1-0", &away).await;
        let told = [("1-1".to_owned(), json!("answer_not_kept"))];
        assert_eq!(rest(&mut late).await, told);
    }
    let mut late = resume(&client, "1-0", &away).await;
    late.next_event().await.unwrap();
    let told = timeout(GENEROUS, late.message()).await.expect("an answer");
    assert_eq!(told["id"], away["id"]);
    let text = told["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("look for a call in the ledger"), "{text}");
    let about = &told["result"]["_meta"]["io.owlclaw/error"];
    assert_eq!(
        (&about["code"], &about["retryable"]),
        (&json!(-32603), &json!(false))
    );
}

#[tokio::test]
async fn a_client_that_lost_its_stream_after_progress_is_told_of_an_answer_too_large_to_be_kept() {
    let running = start_with(HttpLimits {
        max_session_replay_bytes: 2048,
        ..HttpLimits::default()
    })
    .await;
    let seen = &running.seen;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let params = json!({ "name": "stuck", "arguments": { "text": "x".repeat(100_000) },
                         "_meta": { "progressToken": "t" } });
    let stuck = client.voice.request("tools/call", params);
    let post = client.post_of(&stuck);
    let (mut stream, ()) = tokio::join!(client.stream(&post), async {
        seen.wait(&seen.begun, 1).await;
        report(&running, 1.0);
    });
    stream.next_event().await.unwrap();
    assert_eq!(
        stream.next_event().await.unwrap().id.as_deref(),
        Some("1-1")
    );
    drop(stream);
    all_have_gone(&running).await;
    seen.release.notify_one();
    seen.wait(&seen.finished, 1).await;
    for _ in 0..2 {
        let mut back = resume(&client, "1-1", &stuck).await;
        let told = [("1-2".to_owned(), json!("answer_not_kept"))];
        assert_eq!(rest(&mut back).await, told);
    }
}

#[tokio::test]
async fn a_client_on_its_way_back_is_answered_before_the_end() {
    let mut running = start(HttpOptions::default()).await;
    let seen = Arc::clone(&running.seen);
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let away = call(&mut client, "away");
    let mut stream = client.stream(&client.post_of(&away)).await;
    assert_eq!(rest(&mut stream).await, []);
    let mut waiting = resume(&client, "1-0", &away).await;
    waiting.next_event().await.unwrap();
    running.stop();
    assert!(!running.stops_within(A_WHILE).await);
    seen.release.notify_one();
    assert_eq!(rest(&mut waiting).await.len(), 1);
    running.stopped().await;
}

#[tokio::test]
async fn deleting_a_session_ends_what_it_waits_for() {
    let running = start(HttpOptions::default()).await;
    let seen = &running.seen;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let away = call(&mut client, "away");
    let mut stream = client.stream(&client.post_of(&away)).await;
    assert_eq!(rest(&mut stream).await, []);
    let mut waiting = resume(&client, "1-0", &away).await;
    waiting.next_event().await.unwrap();
    let delete = client.dress(HttpRequest::new("DELETE", "/mcp"));
    assert_eq!(client.exchange(&delete).await.status, 204);
    seen.wait(&seen.dropped, 1).await;
    assert_eq!(rest(&mut waiting).await, []);
    assert_eq!(client.exchange(&comeback(&client, "1-0")).await.status, 404);
}
