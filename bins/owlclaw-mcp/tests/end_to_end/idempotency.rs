//! Calls that are sent again under the same key, by clients that have not heard of the first.

use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpClient, HttpServer, MODERN, failure_of, succeeded, wait_until,
};

use crate::support::{Site, outcome, text};

const REPLAY: &str = "io.owlclaw/replay";

fn keyed(tool: &str, arguments: Value, key: &str) -> Value {
    json!({
        "name": tool,
        "arguments": arguments,
        "_meta": {"io.owlclaw/idempotencyKey": key},
    })
}

async fn client(server: &HttpServer, name: &str, version: &str) -> HttpClient {
    let mut client = server.client().with_header("x-mcp-client-id", name);
    client.open(version).await;
    client
}

fn runs(site: &Site) -> usize {
    site.read("executed").lines().count()
}

/// The state of a key that is taken.
fn taken(response: &Value) -> String {
    let error = failure_of(response);
    assert_eq!(error["code"], -32003, "{response}");
    assert_eq!(error["data"]["reason"], "idempotency", "{response}");
    assert!(error["data"]["call"].is_string(), "{response}");
    error["data"]["state"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_call_that_is_sent_again_is_answered_as_before_and_not_done_again() {
    let site = Site::new(json!({"governance": {
        "clients": {"anna": {"quota": {"max_calls_per_minute": 1}}},
    }}));
    let server = site.http().await;
    let params = keyed("append", json!({"mark": "one"}), "k-1");
    let mut first = None;
    // Over other connections, and in other revisions.
    for version in [MODERN, "2025-11-25", "2025-03-26", "2024-11-05", MODERN] {
        let mut anna = client(&server, "anna", version).await;
        let reply = anna.request("tools/call", params.clone()).await;
        assert_eq!(text(reply.result()), "one", "{version}");
        let replay = &reply.result()["_meta"][REPLAY];
        match &first {
            None => assert!(replay.is_null(), "{replay}"),
            Some(call) => {
                assert_eq!(replay["call"], *call);
                assert!(replay["at"].is_string());
            }
        }
        first.get_or_insert_with(|| site.calls()[0].call.to_string());
    }
    assert_eq!(runs(&site), 1);
    // Whoever sends something new has none left.
    let mut anna = client(&server, "anna", MODERN).await;
    let other = anna
        .request("tools/call", keyed("append", json!({"mark": "two"}), "k-2"))
        .await;
    assert_eq!(
        other.failure()["data"]["reason"],
        "rate_minute",
        "{other:?}"
    );
    let calls = site.calls();
    let ran = calls.iter().filter(|it| outcome(it) == "succeeded").count();
    assert_eq!(ran, 1, "a replay is no second call");
    let replays = calls.iter().filter(|it| it.started.replay_of.is_some());
    assert_eq!(replays.count(), 4);
}

#[tokio::test]
async fn a_key_is_for_one_call_of_one_client() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let mut anna = client(&server, "anna", MODERN).await;
    let params = keyed("append", json!({"mark": "one"}), "k-1");
    assert_eq!(
        text(anna.request("tools/call", params.clone()).await.result()),
        "one"
    );
    for other in [
        keyed("append", json!({"mark": "two"}), "k-1"),
        keyed("echo", json!({"text": "one"}), "k-1"),
    ] {
        let reply = anna.request("tools/call", other).await;
        assert_eq!(taken(&reply.response), "another_call");
    }
    // Another client's key of the same name is another key.
    let mut bob = client(&server, "bob", MODERN).await;
    let reply = bob.request("tools/call", params).await;
    assert!(reply.result()["_meta"][REPLAY].is_null());
    assert_eq!(runs(&site), 2);
    for bad in [
        json!(""),
        json!("a b"),
        json!(7),
        json!("k".repeat(256)),
        json!("\u{e9}"),
    ] {
        let mut params = keyed("append", json!({"mark": "bad"}), "");
        params["_meta"]["io.owlclaw/idempotencyKey"] = bad;
        let reply = anna.request("tools/call", params).await;
        assert_eq!(reply.code(), -32602, "{reply:?}");
    }
    // What never ran does not keep its key.
    let wrong = keyed("append", json!({"mark": 7}), "k-3");
    let reply = anna.request("tools/call", wrong).await;
    assert_eq!(reply.result()["isError"], true);
    let right = keyed("append", json!({"mark": "three"}), "k-3");
    assert_eq!(
        text(anna.request("tools/call", right).await.result()),
        "three"
    );
    assert_eq!(runs(&site), 3);
}

#[tokio::test]
async fn of_many_at_once_one_is_done() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let anna = client(&server, "anna", MODERN).await;
    let mut sent = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let mut anna = anna.clone();
        let params = keyed("linger", json!({"mark": "one"}), "k-1");
        sent.spawn(async move { anna.request("tools/call", params).await.response });
    }
    for response in sent.join_all().await {
        if succeeded(&response) {
            assert_eq!(text(&response["result"]), "one");
        } else {
            assert_eq!(taken(&response), "in_flight");
            assert_eq!(failure_of(&response)["data"]["retryable"], true);
        }
    }
    assert_eq!(runs(&site), 1);
}

#[tokio::test]
async fn a_failure_is_answered_again_and_what_nobody_knows_is_not_done_again() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let mut anna = client(&server, "anna", MODERN).await;
    let params = keyed("fail", json!({"why": "it is gone"}), "k-1");
    let first = anna.request("tools/call", params.clone()).await;
    let again = anna.request("tools/call", params).await;
    assert_eq!(again.result()["isError"], true, "{again:?}");
    assert_eq!(text(again.result()), text(first.result()));
    assert_eq!(site.outcomes("fail"), ["failed", "denied"]);

    // The worker dies in the middle of it.
    let params = keyed("die", json!({"status": 3}), "k-2");
    let first = anna.request("tools/call", params.clone()).await;
    assert_eq!(first.failure()["code"], -32005, "{first:?}");
    let again = anna.request("tools/call", params).await;
    assert_eq!(taken(&again.response), "unknown");
}

#[tokio::test]
async fn keys_outlive_a_crash() {
    let site = Site::new(json!({}));
    let done = keyed("append", json!({"mark": "done"}), "k-done");
    let cut_short = keyed("nap", json!({"seconds": 60}), "k-cut");
    let mut server = site.http().await;
    {
        let mut anna = client(&server, "anna", MODERN).await;
        assert_eq!(
            text(anna.request("tools/call", done.clone()).await.result()),
            "done"
        );
        let mut other = anna.clone();
        let params = cut_short.clone();
        let napping = tokio::spawn(async move {
            let message = other.voice.request("tools/call", params);
            let request = other.post_of(&message);
            let mut connection = other.connect().await;
            let _ = connection.send_bytes(&request.to_bytes()).await;
            connection
        });
        let _connection = napping.await.unwrap();
        wait_until("the nap has begun", GENEROUS, || {
            site.outcomes("nap") == ["open"]
        })
        .await;
        let busy = anna.request("tools/call", cut_short.clone()).await;
        assert_eq!(taken(&busy.response), "in_flight");
        server.process().signal("KILL").await;
        server.wait_exit(GENEROUS).await;
    }
    let server = site.http().await;
    let mut anna = client(&server, "anna", "2025-06-18").await;
    let reply = anna.request("tools/call", done).await;
    assert_eq!(text(reply.result()), "done");
    assert!(reply.result()["_meta"][REPLAY]["call"].is_string());
    assert_eq!(runs(&site), 1);
    for _ in 0..2 {
        let reply = anna.request("tools/call", cut_short.clone()).await;
        assert_eq!(taken(&reply.response), "unknown");
    }
    assert_eq!(site.outcomes("nap")[0], "unknown");
}
