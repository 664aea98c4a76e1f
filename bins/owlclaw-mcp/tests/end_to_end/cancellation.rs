//! A client that gives up on a call stops it.

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, MODERN, wait_until};

use crate::support::{Site, call, call_with_progress, text};

#[tokio::test]
async fn a_cancelled_call_is_stopped_and_never_answered() {
    for version in ["2024-11-05", "2025-06-18", MODERN] {
        let site = Site::new(json!({}));
        let mut server = site.stdio();
        server.open(version).await;
        for (tool, file, mark) in [
            ("nap", "naps", "cancelled"),
            ("block", "blocks", "interrupted"),
        ] {
            let request = server
                .voice
                .request("tools/call", call(tool, json!({"seconds": 600})));
            server.send(&request).await;
            wait_until("it runs", GENEROUS, || site.read(file).contains("begun")).await;
            let cancel = json!({"requestId": request["id"], "reason": "changed my mind"});
            server.notify("notifications/cancelled", cancel).await;
            wait_until("it was stopped", GENEROUS, || {
                site.read(file).contains(mark)
            })
            .await;
            let next = server
                .request("tools/call", call("echo", json!({"text": "next"})))
                .await;
            assert_eq!(text(next.result()), r#"{"text":"next"}"#);
            assert!(next.earlier.is_empty(), "{version}: {:?}", next.earlier);
            assert_eq!(site.outcomes(tool), ["cancelled"], "{version}");
        }
        assert_eq!(server.waiting(), 2, "{version}: neither was answered");
    }
}

#[tokio::test]
async fn cancellation_stops_progress() {
    let site = Site::new(json!({}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let asked = call_with_progress("report-forever", json!({}), "p");
    let request = server.voice.request("tools/call", asked);
    server.send(&request).await;
    assert_eq!(server.receive().await["method"], "notifications/progress");
    server
        .notify(
            "notifications/cancelled",
            json!({"requestId": request["id"]}),
        )
        .await;
    wait_until("it was stopped", GENEROUS, || {
        site.read("reports").contains("cancelled")
    })
    .await;
    server.request("ping", Value::Null).await;
    let next = server.request("ping", Value::Null).await;
    assert!(
        next.earlier.is_empty(),
        "nothing more is said: {:?}",
        next.earlier
    );
}

#[tokio::test]
async fn cancelling_what_is_not_there_is_no_matter() {
    let site = Site::new(json!({}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    for id in [
        json!("never"),
        json!(-1),
        Value::Null,
        json!({"x": 1}),
        json!(1.5),
    ] {
        let frame = json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id},
        });
        server.send(&frame).await;
    }
    let pong = server.request("ping", Value::Null).await;
    assert!(pong.earlier.is_empty(), "{:?}", pong.earlier);
}

#[tokio::test]
async fn over_http_a_modern_client_cancels_by_hanging_up() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let mut client = server.client();
    client.speak(MODERN);
    for (tool, file, mark) in [
        ("nap", "naps", "cancelled"),
        ("block", "blocks", "interrupted"),
    ] {
        let request = client
            .voice
            .request("tools/call", call(tool, json!({"seconds": 600})));
        let mut connection = client.connect().await;
        connection
            .send_bytes(&client.post_of(&request).to_bytes())
            .await
            .unwrap();
        wait_until("it runs", GENEROUS, || site.read(file).contains("begun")).await;
        drop(connection);
        wait_until("it was stopped", GENEROUS, || {
            site.read(file).contains(mark)
        })
        .await;
        wait_until("it is in the ledger", GENEROUS, || {
            site.outcomes(tool) == ["cancelled"]
        })
        .await;
    }
    // In the middle of a stream as well.
    let asked = call_with_progress("report-forever", json!({}), "p");
    let request = client.voice.request("tools/call", asked);
    let mut stream = client.stream(&client.post_of(&request)).await;
    assert_eq!(stream.message().await["method"], "notifications/progress");
    drop(stream);
    wait_until("it was stopped", GENEROUS, || {
        site.read("reports").contains("cancelled")
    })
    .await;
}

#[tokio::test]
async fn over_http_a_legacy_client_that_hangs_up_has_not_cancelled() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let mut client = server.client();
    client.open("2025-06-18").await;
    let request = client
        .voice
        .request("tools/call", call("nap", json!({"seconds": 0.6})));
    let mut connection = client.connect().await;
    connection
        .send_bytes(&client.post_of(&request).to_bytes())
        .await
        .unwrap();
    wait_until("it runs", GENEROUS, || site.read("naps").contains("begun")).await;
    drop(connection);
    wait_until("it goes on to its end", GENEROUS, || {
        site.read("naps").contains("over")
    })
    .await;

    // It has to say so.
    let request = client
        .voice
        .request("tools/call", call("block", json!({"seconds": 600})));
    let mut connection = client.connect().await;
    connection
        .send_bytes(&client.post_of(&request).to_bytes())
        .await
        .unwrap();
    wait_until("it runs", GENEROUS, || {
        site.read("blocks").contains("begun")
    })
    .await;
    client
        .notify(
            "notifications/cancelled",
            json!({"requestId": request["id"]}),
        )
        .await;
    wait_until("it was stopped", GENEROUS, || {
        site.read("blocks").contains("interrupted")
    })
    .await;
}
