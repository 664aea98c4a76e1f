//! A thousand calls at once on one child, answered and given up.

use crate::support::{LEGACY, MODERN, options, until};
use futures_util::future::join_all;
use mcp_client::{CallOptions, Connection, Dial, Error, Options, Speak};
use mcp_protocol::model::Content;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MANY: usize = 1000;

fn child(how: &str) -> Dial {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/connections/child.py");
    Dial::child("python3", [script, how])
}

async fn open(how: &str, version: &str) -> Connection {
    let mut options = Options {
        speak: Speak::Only(version.parse().unwrap()),
        ..options()
    };
    options.bounds.timeout = Duration::from_secs(60);
    Connection::open(&child(how), options).await.unwrap()
}

async fn call(connection: &Connection, tool: &str, at: usize) -> Result<String, Error> {
    let arguments = mcp_client::json(&json!({ "at": at })).unwrap();
    let options = CallOptions::default();
    let result = connection.call(tool, arguments, &options).await?;
    match &result.content[..] {
        [Content::Text { text, .. }] => Ok(text.clone()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_thousand_calls_that_are_answered_in_another_order() {
    for version in [LEGACY, MODERN] {
        let connection = open("", version).await;
        let calls = (0..MANY).map(|at| call(&connection, "reversed", at));
        let all = async {
            let results = join_all(calls).await;
            for (at, result) in results.into_iter().enumerate() {
                assert_eq!(result.unwrap(), format!("at {at}"));
            }
        };
        let watched = async {
            until("all are under way", || {
                connection.requests_under_way() == MANY
            })
            .await;
        };
        tokio::join!(all, watched);
        assert_eq!(connection.requests_under_way(), 0);
        connection.close().await;
    }
}

#[tokio::test]
async fn a_thousand_calls_that_are_given_up_are_cancelled_one_by_one() {
    for version in [LEGACY, MODERN] {
        let connection = open("", version).await;
        // Of each two calls, one is dropped while the other one waits on.
        let kept = (0..MANY / 2).map(|at| call(&connection, "kept", at));
        let kept = async { join_all(kept).await };
        let given_up = async {
            let calls = (0..MANY / 2).map(|at| call(&connection, "never", at));
            let expected = format!("{} never", MANY / 2);
            let all = async {
                while call(&connection, "count", 0).await.unwrap() != expected {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                assert_eq!(connection.requests_under_way(), MANY);
            };
            tokio::select! {
                _ = join_all(calls) => panic!("they are answered"),
                () = all => {}
            }
            assert_eq!(call(&connection, "release", 0).await.unwrap(), expected);
        };
        let (kept, ()) = tokio::join!(kept, given_up);
        for (at, result) in kept.into_iter().enumerate() {
            assert_eq!(result.unwrap(), format!("at {at}"));
        }
        assert_eq!(connection.requests_under_way(), 0);
        let cancelled = call(&connection, "cancelled", 0).await.unwrap();
        assert_eq!(cancelled, format!("{} of never, 0 of others", MANY / 2));
        connection.close().await;
    }
}

#[tokio::test]
async fn a_thousand_questions_of_a_child_are_all_answered() {
    let connection = open("", LEGACY).await;
    let answered = call(&connection, "questions", 0).await.unwrap();
    assert_eq!(answered, "1000 answered");
}

#[tokio::test]
async fn a_child_that_asks_and_never_reads_is_left() {
    let connection = open("", LEGACY).await;
    let error = call(&connection, "asks and never reads", 0)
        .await
        .unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("the server does not read what it is answered"),
        "{error}"
    );
}

/// A server behind a pair of streams that is initialized, reads no more than `reads` bytes of requests, and is
/// gone. What it has read.
async fn gone_after(mut stream: tokio::io::DuplexStream, reads: usize) -> String {
    let mut read = String::new();
    let mut line = Vec::new();
    while read.lines().count() < 2 {
        line.push(stream.read_u8().await.unwrap());
        if line.ends_with(b"\n") {
            let message: serde_json::Value = serde_json::from_slice(&line).unwrap();
            if message["method"] == "initialize" {
                let info = json!({"name": "gone", "version": "1"});
                let result = json!({"protocolVersion": LEGACY, "serverInfo": info, "capabilities": {"tools": {}}});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                stream
                    .write_all(format!("{answer}\n").as_bytes())
                    .await
                    .unwrap();
            }
            read.push_str(&String::from_utf8(std::mem::take(&mut line)).unwrap());
        }
    }
    let mut rest = vec![0; reads];
    stream.read_exact(&mut rest).await.unwrap();
    String::from_utf8(rest).unwrap()
}

#[tokio::test]
async fn calls_that_were_not_written_are_told_from_those_that_were() {
    let (ours, theirs) = tokio::io::duplex(512);
    let server = tokio::spawn(gone_after(theirs, 2048));
    let options = Options {
        speak: Speak::Only(LEGACY.parse().unwrap()),
        ..options()
    };
    let connection = Connection::open(&Dial::pair(ours), options).await.unwrap();
    let calls = (0..MANY / 10).map(|at| call(&connection, "mark", at));
    let (outcomes, read) = tokio::join!(join_all(calls), server);
    let read = read.unwrap();
    let (mut sent, mut unsent) = (0, 0);
    for (at, outcome) in outcomes.into_iter().enumerate() {
        let error = outcome.unwrap_err();
        let was_read = read.contains(&format!("\"at\":{at}}}"));
        match &error {
            Error::NotSent { .. } => {
                assert!(!was_read && !error.may_have_run(), "{at}: {error}");
                unsent += 1;
            }
            Error::Closed { .. } => {
                assert!(error.may_have_run());
                sent += 1;
            }
            other => panic!("{other}"),
        }
    }
    // The bytes that were read, those in the pair, and one batch of writing.
    assert!(0 < sent && 10 < unsent, "{sent} and {unsent}");
    let late = call(&connection, "mark", 0).await.unwrap_err();
    assert!(matches!(late, Error::NotSent { .. }), "{late}");
}

#[tokio::test]
async fn calls_beyond_the_bound_are_not_begun() {
    let mut options = Options {
        speak: Speak::Only(LEGACY.parse().unwrap()),
        ..options()
    };
    options.bounds.max_open = 2;
    let connection = Connection::open(&child(""), options).await.unwrap();
    let kept = (0..2).map(|at| call(&connection, "kept", at));
    let refused = async {
        until("two are under way", || connection.requests_under_way() == 2).await;
        call(&connection, "kept", 2).await.unwrap_err()
    };
    tokio::select! {
        _ = join_all(kept) => panic!("they are answered"),
        error = refused => assert!(!error.may_have_run(), "{error}"),
    }
}
