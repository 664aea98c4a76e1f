//! Connections over HTTP that the server closes: between requests, at the probe, and what is said before the end.

use crate::support::{Asked, LONG, Raw, Talk, discovered, initialized, options, read, told};
use futures_util::future::BoxFuture;
use mcp_client::{CallOptions, Connection, Dial, Error, RawJson};
use serde_json::json;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{io::AsyncWriteExt, net::TcpListener};

/// Answers the first request of each connection, keeps it open, and closes it when the second one has come.
async fn hangs_up_on_the_second(
    asked: Arc<Mutex<Vec<String>>>,
    reused: Arc<AtomicUsize>,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (asked, reused) = (Arc::clone(&asked), Arc::clone(&reused));
            tokio::spawn(async move {
                let Some(first) = read(&mut stream).await else {
                    return;
                };
                asked.lock().unwrap().push(first.what().to_owned());
                let result = match first.what() {
                    "server/discover" => discovered("2026-07-28"),
                    "tools/call" => json!({ "resultType": "complete", "content": [] }),
                    _ => {
                        json!({ "resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private" })
                    }
                };
                let body = first.answer(result).to_string();
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
                );
                let _ = stream.write_all((head + &body).as_bytes()).await;
                if let Some(second) = read(&mut stream).await {
                    asked.lock().unwrap().push(second.what().to_owned());
                    reused.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closes_costs_a_list_nothing_and_a_call_is_not_sent_twice()
 {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let reused = Arc::<AtomicUsize>::default();
    let url = hangs_up_on_the_second(Arc::clone(&asked), Arc::clone(&reused)).await;
    let connection = Connection::open(&Dial::url(&url), options()).await.unwrap();
    for _ in 0..5 {
        connection.tools().await.unwrap();
    }
    assert!(
        3 <= reused.load(Ordering::SeqCst),
        "no connection was used again"
    );
    // The last list has left a connection that is kept.
    let call = CallOptions::default();
    let called = connection.call("any", RawJson::EMPTY_OBJECT, &call).await;
    let error = called.unwrap_err();
    assert!(error.may_have_run(), "{error:?}");
    let calls = asked
        .lock()
        .unwrap()
        .iter()
        .filter(|it| *it == "tools/call")
        .count();
    assert_eq!(calls, 1);
    let said = told(&error);
    assert!(said.contains("`tools/call`"), "{said}");
}

fn at_the_probe(how: &'static str, asked: Asked, mut talk: Talk) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        if asked.what() != "server/discover" {
            return talk.legacy(&asked).await;
        }
        match how {
            "closes" => {}
            "ends the stream" => talk.stream().await,
            "answers too much" => {
                talk.respond(
                    200,
                    "content-type: application/json\r\n",
                    &" ".repeat(3 << 20),
                )
                .await
            }
            "tells too much" => {
                talk.stream().await;
                talk.raw(format!("data: {}\n\n", "x".repeat(3 << 20))).await;
            }
            _ => unreachable!("{how}"),
        }
    })
}

#[tokio::test]
async fn a_probe_over_http_that_has_no_answer_means_a_legacy_server() {
    for how in [
        "closes",
        "ends the stream",
        "answers too much",
        "tells too much",
    ] {
        let raw = Raw::start(move |asked, talk| at_the_probe(how, asked, talk)).await;
        let opened = Connection::open(&Dial::url(&raw.url), options()).await;
        let connection = opened.unwrap_or_else(|error| panic!("{how}: {}", told(&error)));
        assert_eq!(connection.agreed().version.as_str(), "2025-11-25", "{how}");
        connection.tools().await.unwrap();
        connection.close().await;
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_before_the_session_is_given_back() {
    let raw = Raw::start(|asked, mut talk: Talk| {
        Box::pin(async move {
            match asked.what() {
                "initialize" => {
                    let answer = asked.answer(initialized("2025-11-25"));
                    talk.json_with("mcp-session-id: s1\r\n", &answer).await;
                }
                "tools/call" => talk.gone().await,
                "notifications/cancelled" => {
                    // What comes after it has time to overtake it.
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    talk.legacy(&asked).await;
                }
                _ => talk.legacy(&asked).await,
            }
        })
    })
    .await;
    let connection = Connection::open(&Dial::url(&raw.url), options())
        .await
        .unwrap();
    let call = CallOptions {
        timeout: Some(Duration::from_millis(200)),
        ..CallOptions::default()
    };
    let called = connection.call("any", RawJson::EMPTY_OBJECT, &call).await;
    assert!(matches!(called, Err(Error::TimedOut { .. })), "{called:?}");
    tokio::time::timeout(LONG, connection.close())
        .await
        .unwrap();
    let asked = raw.asked();
    let [.., cancelled, deleted] = asked.as_slice() else {
        panic!("{:?}", raw.whats());
    };
    let last = [cancelled, deleted].map(|it| (it.what(), it.header("mcp-session-id")));
    assert_eq!(
        last,
        [("notifications/cancelled", "s1"), ("DELETE", "s1")],
        "{:?}",
        raw.whats()
    );
}
