//! Calls of Python handlers that go well, or badly in ways that the worker survives.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use adapter_tools::{Content, Progress, ToolCx, ToolError, ToolSet};
use bytes::Bytes;
use common::{App, LONG, Running, text};
use serde_json::json;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

#[tokio::test]
async fn handlers_are_tools() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let (tools, problems) = ToolSet::collect(shop.python.tools());
    assert_eq!(problems, []);
    let echo = tools.get("echo").unwrap();
    assert_eq!(echo.description(), "Give back what was given.");
    assert_eq!(echo.input_schema()["required"], json!(["value"]));
    assert!(
        echo.source().unwrap().starts_with("app.py:"),
        "{:?}",
        echo.source()
    );
    assert!(!echo.is_async());
    assert!(echo.has_derived_schema());
    assert!(tools.get("text").unwrap().is_async());
    assert_eq!(
        tools.get("text").unwrap().input_schema()["properties"]["name"]["type"],
        "string"
    );
    let info = shop.python.info();
    assert_eq!(info.app, "shop");
    assert!(info.python.starts_with('3'));
    shop.python.shutdown().await;
}

#[tokio::test]
async fn what_a_handler_returns_is_the_answer() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    assert_eq!(
        shop.text("text", json!({"name": "Anna"})).await,
        "hello Anna"
    );
    assert_eq!(shop.text("text", json!({})).await, "hello you");
    assert_eq!(shop.text("nothing", json!({})).await, "null");
    let output = shop
        .call("echo", json!({"value": [1, {"ä": "\u{1F989}"}]}))
        .await
        .unwrap();
    let expected = r#"{"value":[1,{"ä":"🦉"}]}"#;
    assert_eq!(output.content, [Content::text(expected)]);
    assert_eq!(output.structured.unwrap().get(), expected);
    let who = shop.json("who", json!({})).await;
    assert_eq!(who["session"]["agent_id"], "anna");
    assert_eq!(who["session"]["run_id"], "call-1");
}

#[tokio::test]
async fn arguments_reach_the_handler_to_the_letter() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let echo = shop.tool("echo");
    assert_eq!(echo.kind().as_str(), "python");
    for raw in [
        r#"{"value":123456789012345678901234567890}"#,
        r#"{"value":1.0}"#,
        r#"{"value":"\u0000\u2028"}"#,
    ] {
        let arguments = echo.check(Bytes::from_static(raw.as_bytes())).unwrap();
        let output = echo
            .execute(ToolCx::new("anna", "1"), arguments)
            .await
            .unwrap();
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&text(&output)), value(raw));
        if !raw.contains("\\u") {
            assert_eq!(text(&output), raw);
        }
    }
}

#[tokio::test]
async fn a_schema_that_somebody_wrote_takes_the_place_of_one_from_hints() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let written = json!({"type": "object", "properties": {"value": {"maximum": 5}}});
    let echo = shop.tool("echo").with_input_schema(written);
    assert!(!echo.has_derived_schema());
    assert!(echo.check(Bytes::from_static(b"{\"value\": 6}")).is_err());
    let arguments = echo.check(Bytes::from_static(b"{\"value\": 5}")).unwrap();
    let output = echo
        .execute(ToolCx::new("anna", "1"), arguments)
        .await
        .unwrap();
    assert_eq!(text(&output), r#"{"value":5}"#);
}

#[tokio::test]
async fn what_a_handler_raises_is_told_with_its_traceback_apart() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let error = shop
        .call("raise", json!({"how": "no tea left"}))
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "ValueError: no tea left");
    assert!(
        error.traceback().unwrap().contains("app.py\", line"),
        "{error:?}"
    );
    let ToolError::Failed(failure) = error else {
        panic!("{error:?}")
    };
    assert_eq!(failure.details.unwrap()["exception"], "ValueError");
    let error = shop
        .call("large", json!({"megabytes": 17}))
        .await
        .unwrap_err();
    assert!(matches!(error, ToolError::Failed(_)), "{error:?}");
    assert!(error.to_string().contains("too large"), "{error}");
    assert_eq!(
        shop.text("large", json!({"megabytes": 15})).await.len(),
        15 * 1024 * 1024
    );
}

#[tokio::test]
async fn a_promise_about_the_answer_is_held_or_the_call_fails() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    assert!(shop.tool("promise").output_schema().is_some());
    assert!(shop.call("promise", json!({"how": "kept"})).await.is_ok());
    let error = shop
        .call("promise", json!({"how": "bent"}))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("/kept: expected boolean"),
        "{error}"
    );
    let error = shop
        .call("promise", json!({"how": "broken"}))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("promises an object"), "{error}");
}

#[tokio::test]
async fn whatever_a_handler_prints_does_not_disturb() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let pid = shop.pid().await;
    for _ in 0..3 {
        assert_eq!(shop.text("noise", json!({})).await, "done");
    }
    assert_eq!(shop.pid().await, pid);
}

#[tokio::test]
async fn progress_and_cost_arrive_before_the_answer() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let cx = ToolCx::new("anna", "1").with_progress(Arc::new(move |progress| {
        sink.lock().unwrap().push(progress)
    }));
    let meter = Arc::clone(cx.meter());
    shop.call_with(cx, "report", json!({})).await.unwrap();
    let half = Progress {
        progress: 1.0,
        total: Some(2.0),
        message: Some("half".to_owned()),
    };
    let more = Progress {
        progress: 2.5,
        total: None,
        message: None,
    };
    assert_eq!(*seen.lock().unwrap(), [half, more]);
    assert_eq!(meter.cost_micros(), Some(12_501));
    assert_eq!(meter.tokens(), (11, 2));
    assert_eq!(meter.model(), Some("small"));
}

#[tokio::test]
async fn asynchronous_handlers_run_beside_each_other() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let (first, second) = tokio::join!(shop.text("meet", json!({})), shop.text("meet", json!({})));
    assert_eq!((first.as_str(), second.as_str()), ("met", "met"));
}

#[tokio::test]
async fn nothing_begins_while_a_synchronous_handler_runs_and_everything_does_afterwards() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let block = |mark: &'static str| shop.text("block", json!({"seconds": 0.05, "mark": mark}));
    let sleep = |mark: &'static str| shop.text("sleep", json!({"seconds": 0, "mark": mark}));
    tokio::join!(block("a"), block("b"), sleep("c"), sleep("d"), block("e"));
    let seen = shop.json("seen", json!({})).await;
    let seen: Vec<_> = seen
        .as_array()
        .unwrap()
        .iter()
        .map(|mark| mark.as_str().unwrap())
        .collect();
    assert_eq!(seen.len(), 8);
    for mark in ["a", "b", "e"] {
        let at = seen.iter().position(|one| *one == mark).unwrap();
        assert_eq!(seen[at + 1], format!("{mark} done"), "{seen:?}");
    }
}

#[tokio::test]
async fn a_long_asynchronous_call_holds_up_no_synchronous_one() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let long = shop.call("sleep", json!({"seconds": 600}));
    tokio::select! {
        _ = long => panic!("it sleeps"),
        () = async {
            shop.has_seen("slept").await;
            assert_eq!(shop.text("echo", json!({"value": 1})).await, r#"{"value":1}"#);
        } => {}
    }
}

#[tokio::test]
async fn a_deadline_ends_a_call_and_not_the_worker() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let pid = shop.pid().await;
    for (name, noticed) in [("sleep", "x cancelled"), ("block", "x interrupted")] {
        // A handler that has not begun by then notices nothing.
        let noticing = async {
            while !shop.sees(noticed).await {
                let deadline = Instant::now() + Duration::from_millis(300);
                let cx = ToolCx::new("anna", "1").with_deadline(deadline);
                let error = shop
                    .call_with(cx, name, json!({"seconds": 600, "mark": "x"}))
                    .await;
                assert!(matches!(error, Err(ToolError::TimedOut)), "{error:?}");
            }
        };
        tokio::time::timeout(LONG, noticing).await.expect(noticed);
    }
    assert_eq!(shop.pid().await, pid);
}

#[tokio::test]
async fn giving_a_call_up_cancels_its_handler() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let pid = shop.pid().await;
    {
        let call = shop.call("sleep", json!({"seconds": 600, "mark": "x"}));
        tokio::select! {
            _ = call => panic!("it sleeps"),
            () = shop.has_seen("x") => {}
        }
    }
    shop.has_seen("x cancelled").await;
    let noticing = async {
        while !shop.sees("y interrupted").await {
            let call = shop.call("block", json!({"seconds": 600, "mark": "y"}));
            // Nobody can be asked whether it has begun, since what comes after a synchronous call is
            // answered only once that one has ended.
            tokio::select! {
                _ = call => panic!("it blocks"),
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
            }
        }
    };
    tokio::time::timeout(LONG, noticing)
        .await
        .expect("it is interrupted");
    assert_eq!(shop.pid().await, pid);
}

/// The signal for handlers that block may come when one that awaits has been told already.
#[tokio::test]
async fn who_was_told_at_an_await_cleans_up_undisturbed() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    tokio::select! {
        _ = shop.call("tidy", json!({})) => panic!("it waits"),
        () = shop.has_seen("to be tidied") => {}
    }
    shop.has_seen("tidied").await;
}

/// An interruption just before a handler waits in the kernel goes unnoticed.
#[tokio::test]
async fn who_missed_the_first_interruption_notices_the_next() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let pid = shop.pid().await;
    let begins = Arc::new(Notify::new());
    let sink = Arc::clone(&begins);
    let cx = ToolCx::new("anna", "1").with_progress(Arc::new(move |_| sink.notify_one()));
    tokio::select! {
        _ = shop.call_with(cx, "miss", json!({})) => panic!("it waits"),
        () = begins.notified() => {}
    }
    shop.has_seen("miss interrupted").await;
    assert_eq!(shop.pid().await, pid);
}

#[tokio::test]
async fn calls_beyond_what_may_wait_are_refused() {
    let app = App::shop();
    let mut options = app.options();
    options.max_waiting = 1;
    let shop = Running::start(options).await;
    let first = shop.call("block", json!({"seconds": 0.3}));
    let second = shop.call("echo", json!({"value": 2}));
    let third = shop.call("echo", json!({"value": 3}));
    let (first, second, third) = tokio::join!(first, second, third);
    assert!(first.is_ok() && second.is_ok());
    let error = third.unwrap_err();
    assert!(matches!(error, ToolError::Busy { .. }), "{error:?}");
    assert!(error.is_retryable() && error.retry_after().is_some());
}

#[tokio::test]
async fn many_calls_at_once_are_each_answered_with_their_own() {
    let app = App::shop();
    let mut options = app.options();
    options.max_concurrent = 7;
    let shop = Running::start(options).await;
    let calls = (0..500).map(|i| {
        let shop = &shop;
        async move {
            let name = i.to_string();
            if i % 5 == 0 {
                assert_eq!(
                    shop.json("echo", json!({"value": i})).await,
                    json!({"value": i})
                );
            } else {
                assert_eq!(
                    shop.text("text", json!({"name": name})).await,
                    format!("hello {i}")
                );
            }
        }
    });
    futures_util::future::join_all(calls).await;
}
