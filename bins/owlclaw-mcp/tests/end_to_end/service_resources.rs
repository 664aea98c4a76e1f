//! HTTP services as resources: offered, governed, recorded and followed.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};
use testkit::{Conversation, MODERN, StdioServer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::support::{Site, names, outcome, run};

const TOKEN: &str = "tok-YXBpLXJlc291cmNl";

/// A service with a stock of which it says how much there is, to those who have the token.
async fn stock() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let pieces = Arc::new(AtomicUsize::new(7));
    let now = Arc::clone(&pieces);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else {
                    break;
                };
                head.push(byte);
            }
            let head = String::from_utf8(head).unwrap();
            let now = now.load(Ordering::SeqCst);
            let is_known = head.contains(&format!("authorization: Bearer {TOKEN}\r\n"));
            let (status, body) = match head.split(' ').nth(1) {
                _ if !is_known => ("401 Unauthorized", String::new()),
                Some("/api/stock/TEA-1") if head.contains(&format!("\"{now}\"")) => {
                    ("304 Not Modified", String::new())
                }
                Some("/api/stock/TEA-1") => {
                    ("200 OK", json!({"pieces": now, "by": TOKEN}).to_string())
                }
                _ => ("404 Not Found", String::new()),
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\netag: \"{now}\"\r\nconnection: close\r\n\
                 content-length: {length}\r\n\r\n{body}"
            );
            let _hung_up = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, pieces)
}

fn site(port: u16, more: &Value) -> Site {
    let mut settings = json!({
        "app": null,
        "services": {"allow_private": ["127.0.0.1"]},
        "governance": {"clients": {"clerk": {"resources": {"allow": ["api://shop/stock*"]}}}},
        "resources": {"services": {"shop": {
            "base_url": format!("http://127.0.0.1:{port}/api"),
            "headers": {"Authorization": "Bearer ${STOCK_TOKEN}"},
            "resources": {
                "stock": {
                    "path": "/stock/{sku}",
                    "variables": {"sku": {"values": ["TEA-1", "TEA-2"]}},
                    "poll_seconds": 1,
                },
                "books": {"path": "/books"},
            },
        }}},
    });
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    Site::new(settings)
}

fn start(site: &Site, client: &str) -> StdioServer {
    let mut command = site.command(&["start"]);
    command
        .env("STOCK_TOKEN", TOKEN)
        .env("MCP_CLIENT_ID", client);
    StdioServer::spawn(command)
}

async fn read(peer: &mut impl Conversation, uri: &str) -> Value {
    let read = peer.request("resources/read", json!({"uri": uri})).await;
    let text = read.result()["contents"][0]["text"].as_str().unwrap();
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn answers_of_a_service_are_read_governed_and_followed_in_both_eras() {
    let (port, pieces) = stock().await;
    let site = site(port, &json!({}));
    let tea = "api://shop/stock?sku=TEA-1";
    let mut old = start(&site, "clerk");
    old.open("2025-11-25").await;
    let listed = old.request("resources/templates/list", json!({})).await;
    let templates = names(listed.result(), "resourceTemplates", "uriTemplate");
    assert!(
        templates.contains(&"api://shop/stock{?sku}".to_owned()),
        "{templates:?}"
    );
    let complete = json!({
        "ref": {"type": "ref/resource", "uri": "api://shop/stock{?sku}"},
        "argument": {"name": "sku", "value": "TEA"},
    });
    let suggested = old.request("completion/complete", complete).await;
    assert_eq!(
        suggested.result()["completion"]["values"],
        json!(["TEA-1", "TEA-2"])
    );
    let found = read(&mut old, tea).await;
    assert_eq!(found["pieces"], 7);
    assert!(!found.to_string().contains(TOKEN), "{found}");
    for (uri, expected) in [
        ("api://shop/stock?sku=COFFEE", "must be one of TEA-1, TEA-2"),
        ("api://shop/stock", "`sku` is missing"),
        ("api://shop/stock?sku=TEA-2", ""),
        // There is such a resource, and this client may not know.
        ("api://shop/books", ""),
    ] {
        let refused = old.request("resources/read", json!({"uri": uri})).await;
        let error = refused.error().to_string();
        assert!(error.contains(expected), "{uri}: {error}");
    }
    let _ = old
        .request("resources/subscribe", json!({"uri": tea}))
        .await
        .result();
    pieces.store(8, Ordering::SeqCst);
    while old.receive().await["method"] != "notifications/resources/updated" {}
    assert_eq!(read(&mut old, tea).await["pieces"], 8);
    drop(old);

    let mut new = start(&site, "clerk");
    new.speak(MODERN);
    let filter = json!({"notifications": {"resourceSubscriptions": [tea]}});
    let request = new.voice.request("subscriptions/listen", filter);
    new.send(&request).await;
    while new.receive().await["method"] != "notifications/subscriptions/acknowledged" {}
    pieces.store(9, Ordering::SeqCst);
    while new.receive().await["method"] != "notifications/resources/updated" {}
    drop(new);
    let reads = site
        .calls()
        .into_iter()
        .filter(|it| it.started.capability == "resource/api://shop/stock");
    let outcomes: Vec<_> = reads.map(|it| outcome(&it)).collect();
    assert_eq!(
        outcomes,
        ["succeeded", "failed", "failed", "failed", "succeeded"]
    );
}

#[tokio::test]
async fn a_service_that_may_not_be_reached_keeps_the_server_from_starting() {
    let (port, _) = stock().await;
    let site = site(port, &json!({"services": {}}));
    let mut command = site.command(&["start"]);
    command.env("STOCK_TOKEN", TOKEN);
    let said = run(command).await;
    assert_ne!(said.code, Some(0));
    assert!(
        said.messages
            .contains("resources.services.shop: `base_url`: the host `127.0.0.1`")
            && said
                .messages
                .contains("name it in `services.allow_private`"),
        "{}",
        said.messages
    );
}

#[tokio::test]
async fn a_rule_that_names_a_template_holds_for_what_it_yields() {
    let (port, _) = stock().await;
    let rules = json!({"clients": {"clerk": {"resources": {"allow": ["*"], "hide": ["api://shop/stock{?sku}"]}}}});
    let site = site(port, &json!({"governance": rules}));
    let mut clerk = start(&site, "clerk");
    clerk.open("2025-11-25").await;
    let tea = json!({"uri": "api://shop/stock?sku=TEA-1"});
    let refused = clerk.request("resources/read", tea).await;
    assert!(refused.error().is_object());
}
