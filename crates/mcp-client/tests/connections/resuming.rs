//! Streams of events that break, and go on in another.

use crate::support::{LEGACY, MODERN, Raw, Talk, options, text, told};
use mcp_client::{Bounds, CallOptions, Connection, Dial, Error, Options, RawJson, Speak};
use serde_json::Value;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// A server that answers a call with these streams, one after the other.
async fn serve(version: &'static str, streams: Vec<&'static str>) -> Raw {
    let streams = Arc::new(Mutex::new(streams.into_iter()));
    let call = Arc::new(Mutex::new(Value::Null));
    Raw::start(move |asked, mut talk: Talk| {
        let (streams, call) = (Arc::clone(&streams), Arc::clone(&call));
        Box::pin(async move {
            let is_resumed = !asked.header("last-event-id").is_empty();
            if asked.what() != "tools/call" && !is_resumed {
                return match version {
                    MODERN => talk.modern(&asked).await,
                    _ => talk.legacy(&asked).await,
                };
            }
            if !is_resumed {
                *call.lock().unwrap() = asked.answer(text("done"));
            }
            let next = streams.lock().unwrap().next();
            let Some(next) = next else {
                return talk.respond(405, "", "no more").await;
            };
            let answer = call.lock().unwrap().to_string();
            talk.stream().await;
            talk.raw(next.replace("ANSWER", &answer)).await;
        })
    })
    .await
}

async fn call(raw: &Raw, bounds: Bounds) -> Result<String, Error> {
    let options = Options {
        bounds,
        speak: Speak::Probe,
        ..options()
    };
    let connection = Connection::open(&Dial::url(&raw.url), options).await?;
    let options = CallOptions::default();
    let result = connection.call("any", RawJson::EMPTY_OBJECT, &options);
    Ok(format!("{:?}", result.await?.content))
}

/// The ids with which a stream was resumed.
fn resumed(raw: &Raw) -> Vec<String> {
    let asked = raw.asked();
    let ids = asked.iter().map(|it| it.header("last-event-id").to_owned());
    ids.filter(|it| !it.is_empty()).collect()
}

#[tokio::test]
async fn a_broken_stream_is_resumed_after_the_last_event_that_was_whole() {
    let first =
        "retry: 10\nid: 1\ndata:\n\nid: 2\nevent: other\ndata: x\n\nid: 3\ndata: {\"jsonrpc\"";
    let raw = serve(LEGACY, vec![first, "id: 4\ndata:\n\n", "data: ANSWER\n\n"]).await;
    assert!(call(&raw, options().bounds).await.unwrap().contains("done"));
    assert_eq!(resumed(&raw), ["2", "4"]);
}

#[tokio::test]
async fn a_stream_that_cannot_be_resumed_is_an_error_at_once() {
    for (version, stream) in [
        (LEGACY, "data:\n\n"),
        (LEGACY, "id: 1\ndata: {"),
        (LEGACY, "id: a\u{7f}b\ndata:\n\n"),
        (MODERN, "id: 1\ndata:\n\n"),
    ] {
        let raw = serve(version, vec![stream, "data: ANSWER\n\n"]).await;
        let started = Instant::now();
        let error = call(&raw, options().bounds).await.unwrap_err();
        assert!(
            told(&error).contains("the stream ended before the answer"),
            "{stream}: {}",
            told(&error)
        );
        assert!(error.may_have_run());
        assert!(started.elapsed() < Duration::from_secs(2));
        assert_eq!(raw.count("tools/call"), 1);
    }
}

#[tokio::test]
async fn resuming_has_a_bound_and_so_has_the_pause_before_it() {
    let raw = serve(LEGACY, vec!["retry: 0\nid: 1\ndata:\n\n"; 100]).await;
    let error = call(&raw, options().bounds).await.unwrap_err();
    assert!(told(&error).contains("`max_resumptions` (16)"), "{error}");
    assert_eq!(resumed(&raw).len(), 17);

    let endless = "retry: 99999999999999999999\nid: 1\ndata:\n\nretry: 86400000\n\n";
    let raw = serve(LEGACY, vec![endless, "data: ANSWER\n\n"]).await;
    let bounds = Bounds {
        max_retry: Duration::from_millis(20),
        ..options().bounds
    };
    assert!(call(&raw, bounds).await.unwrap().contains("done"));
}

#[tokio::test]
async fn a_stream_that_the_server_does_not_resume_is_no_wrong_address() {
    let raw = serve(LEGACY, vec!["retry: 10\nid: 1\ndata:\n\n"]).await;
    let error = call(&raw, options().bounds).await.unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
    assert!(error.may_have_run());
    let said = told(&error);
    assert!(
        said.ends_with("the server did not resume it (HTTP 405: no more)"),
        "{said}"
    );
}

#[tokio::test]
async fn a_call_that_has_begun_may_have_run_whatever_becomes_of_its_stream() {
    let raw = Raw::start(|asked, mut talk: Talk| {
        Box::pin(async move {
            if !asked.header("last-event-id").is_empty() {
                return talk.respond(401, "", "who are you?").await;
            }
            if asked.what() != "tools/call" {
                return talk.legacy(&asked).await;
            }
            talk.stream().await;
            talk.raw("retry: 10\nid: 1\ndata:\n\n".to_owned()).await;
        })
    })
    .await;
    let error = call(&raw, options().bounds).await.unwrap_err();
    assert!(error.may_have_run(), "{error:?}");
    let said = told(&error);
    assert!(said.contains("could not be resumed"), "{said}");
}
