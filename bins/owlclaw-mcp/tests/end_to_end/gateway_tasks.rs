//! Calls that upstreams make tasks of.

use serde_json::{Value, json};
use testkit::{GENEROUS, wait_until};

use super::gateway::{UPSTREAM, site};
use super::tasks::{created, ended, knowing, task};
use crate::support::{END, Site, text};

/// A server of ours that makes a task of every call, and a gateway to it.
async fn shop() -> (Site, testkit::HttpServer, Site) {
    let shop = Site::new(json!({"tasks": {"after_seconds": 0}}));
    shop.skill("c", "look-up", "owlclaw: {idempotent: true}\n");
    let listening = shop.http().await;
    let url = format!("http://{}/mcp", listening.address());
    let upstream = json!({"url": url, "headers": {"X-MCP-Client-ID": "gateway"}});
    let gateway = site(
        json!({ "shop": upstream }),
        json!({"shutdown": {"drain_seconds": 1}}),
    );
    (shop, listening, gateway)
}

#[tokio::test]
async fn a_task_of_an_upstream_outlives_the_gateway_and_is_run_once() {
    let (shop, _listening, site) = shop().await;
    for (signal, seconds) in [("KILL", 8.0), ("TERM", 8.0)] {
        let mut gateway = site.http().await;
        let mut client = knowing(gateway.client());
        let id = created(&mut client, "mcp_shop_nap", json!({ "seconds": seconds })).await;
        let stored = || {
            let bytes = std::fs::read(site.path("ledger-tasks.db-wal")).unwrap_or_default();
            bytes.windows(8).any(|it| it == b"upstream")
        };
        wait_until("it is stored where the task is", GENEROUS, stored).await;
        gateway.process().signal(signal).await;
        gateway.wait_exit(END).await;

        let mut gateway = site.http().await;
        let mut client = knowing(gateway.client());
        let task = ended(&mut client, &id).await;
        assert_eq!(task["status"], "completed", "{task}");
        assert_eq!(text(&task["result"]), "rested");
        gateway.process().signal("TERM").await;
        gateway.wait_exit(END).await;
    }
    assert_eq!(shop.outcomes("nap"), ["succeeded", "succeeded"]);
    assert_eq!(shop.read("naps").matches("begun").count(), 2);
    assert_eq!(
        site.outcomes("mcp_shop_nap"),
        ["unknown", "succeeded", "cancelled", "succeeded"]
    );
}

#[tokio::test]
async fn a_task_is_cancelled_at_its_upstream_and_one_that_is_lost_there_is_unknown() {
    let (shop, mut listening, site) = shop().await;
    let mut gateway = site.http().await;
    let mut client = knowing(gateway.client());
    let id = created(&mut client, "mcp_shop_nap", json!({"seconds": 600})).await;
    wait_until("it runs", GENEROUS, || {
        shop.read("naps").matches("begun").count() == 1
    })
    .await;
    let done = client
        .post_modern("tasks/cancel", json!({"taskId": id}))
        .await;
    assert_eq!(done.result()["resultType"], "complete");
    wait_until("it is cancelled there", GENEROUS, || {
        shop.outcomes("nap") == ["cancelled"]
    })
    .await;
    // The gateway is away while the upstream loses what it knew.
    let id = created(&mut client, "mcp_shop_nap", json!({"seconds": 600})).await;
    wait_until("it runs", GENEROUS, || {
        shop.read("naps").matches("begun").count() == 2
    })
    .await;
    gateway.process().signal("KILL").await;
    gateway.wait_exit(GENEROUS).await;
    let address = listening.address();
    listening.process().signal("KILL").await;
    listening.wait_exit(GENEROUS).await;
    for file in [
        "ledger-tasks.db",
        "ledger-tasks.db-wal",
        "ledger-tasks.db-shm",
    ] {
        let _ = std::fs::remove_file(shop.path(file));
    }
    let port = address.port().to_string();
    let _listening = shop
        .http_by(&["start", "--transport", "http", "--port", &port])
        .await;
    let gateway = site.http().await;
    let mut client = knowing(gateway.client());
    let failed = ended(&mut client, &id).await;
    assert!(failed.to_string().contains("unknown"), "{failed}");
    assert_eq!(
        site.outcomes("mcp_shop_nap"),
        ["cancelled", "unknown", "unknown"]
    );
    assert_eq!(shop.read("naps").matches("begun").count(), 2);
}

/// Another server may have a task of the same id, which is somebody else's.
#[tokio::test]
async fn a_task_is_asked_for_at_the_server_alone_that_has_made_it() {
    let (_shop, _listening, site) = shop().await;
    let mut gateway = site.http().await;
    let mut client = knowing(gateway.client());
    let id = created(&mut client, "mcp_shop_nap", json!({"seconds": 600})).await;
    let stored = || {
        let bytes = std::fs::read(site.path("ledger-tasks.db-wal")).unwrap_or_default();
        bytes.windows(8).any(|it| it == b"upstream")
    };
    wait_until("it is stored where the task is", GENEROUS, stored).await;
    gateway.process().signal("KILL").await;
    gateway.wait_exit(END).await;
    let (other, _other_listening, other_site) = shop().await;
    let other_file: Value = serde_json::from_str(&other_site.read("mcp-server.yaml")).unwrap();
    let mut file: Value = serde_json::from_str(&site.read("mcp-server.yaml")).unwrap();
    file["mcp_server"]["upstreams"] = other_file["mcp_server"]["upstreams"].clone();
    site.write("mcp-server.yaml", file.to_string());
    let gateway = site.http().await;
    let mut client = knowing(gateway.client());
    let failed = ended(&mut client, &id).await;
    assert!(
        failed.to_string().contains("not known any more"),
        "{failed}"
    );
    assert_eq!(site.outcomes("mcp_shop_nap"), ["unknown", "unknown"]);
    assert!(other.outcomes("nap").is_empty());
}

#[tokio::test]
async fn a_task_of_an_upstream_outlives_its_connection() {
    let (shop, mut listening, site) = shop().await;
    shop.skill("c", "look-up", "owlclaw: {idempotent: true}\n");
    let gateway = site.http().await;
    let mut client = knowing(gateway.client());
    let id = created(
        &mut client,
        "mcp_shop_look-up",
        json!({"what": "her order"}),
    )
    .await;
    let address = listening.address();
    listening.process().signal("KILL").await;
    listening.wait_exit(GENEROUS).await;
    let port = address.port().to_string();
    let _listening = shop
        .http_by(&["start", "--transport", "http", "--port", &port])
        .await;
    assert_eq!(task(&mut client, &id).await["status"], "working");
    shop.write("gate", "");
    let done = ended(&mut client, &id).await;
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(site.outcomes("mcp_shop_look-up"), ["succeeded"]);
}

#[tokio::test]
async fn a_call_of_a_legacy_upstream_is_its_task_where_the_client_knows_tasks() {
    let upstream = json!({
        "command": "python3", "args": [UPSTREAM, "stdio", "up"], "env": {"REVISION": "2025-11-25"},
    });
    let site = site(
        json!({ "up": upstream }),
        json!({"tasks": {"after_seconds": 0}}),
    );
    site.write("up/.keep", "");
    let gateway = site.http().await;
    let mut client = knowing(gateway.client());
    let call =
        async |client: &mut _, n: Value| created(client, "mcp_up_slow", json!({ "n": n })).await;
    let id = call(&mut client, json!(0.1)).await;
    let done = ended(&mut client, &id).await;
    assert_eq!(text(&done["result"]), "done", "{done}");
    let id = call(&mut client, json!(600)).await;
    wait_until("it is a task there", GENEROUS, || {
        site.read("up/tasks").lines().count() == 2
    })
    .await;
    client
        .post_modern("tasks/cancel", json!({"taskId": id}))
        .await;
    wait_until("it is cancelled there", GENEROUS, || {
        site.read("up/tasks").contains("cancelled task-2")
    })
    .await;
}
