//! A thousand calls at once on one child, answered and given up.

use crate::support::{LEGACY, MODERN, options, until};
use futures_util::future::join_all;
use mcp_client::{CallOptions, Connection, Dial, Error, Options, Speak};
use mcp_protocol::model::Content;
use serde_json::json;
use std::time::Duration;

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
