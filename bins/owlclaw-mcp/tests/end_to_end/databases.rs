//! Databases as resources: offered, governed, recorded and followed.

use std::process::Command;

use serde_json::{Value, json};
use testkit::{Conversation, MODERN, Postgres, StdioServer};

use crate::support::{Site, names, outcome, run};

/// Has another program change the database.
fn sql(site: &Site, statements: &str) {
    let program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    let mut python = Command::new("python3");
    python.args(["-c", program]).arg(site.path("shop.db"));
    assert!(python.arg(statements).status().unwrap().success());
}

fn site(settings: Value) -> Site {
    let mut all = json!({"app": null, "resources": {"databases": {"shop": {
        "path": "shop.db",
        "exclude": ["secret"],
        // As a block of YAML has it.
        "queries": {"sold": {"sql": "SELECT sum(pieces) AS pieces\n\tFROM sale -- all of it\nWHERE sku = :sku \n"}},
    }}}});
    for (key, value) in settings.as_object().unwrap() {
        all[key] = value.clone();
    }
    let site = Site::new(all);
    let tables = "CREATE TABLE sale (id INTEGER PRIMARY KEY, sku TEXT, pieces INTEGER); \
                  CREATE TABLE secret (token TEXT); INSERT INTO secret VALUES ('SECRET'); \
                  INSERT INTO sale VALUES (1, 'TEA', 3), (2, 'TEA', 4)";
    sql(&site, tables);
    site
}

async fn read(peer: &mut impl Conversation, uri: &str) -> Value {
    let read = peer.request("resources/read", json!({"uri": uri})).await;
    let text = read.result()["contents"][0]["text"].as_str().unwrap();
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn tables_and_queries_are_read_and_followed_in_both_eras() {
    let site = site(json!({}));
    let sold = "db://shop/queries/sold?sku=TEA";
    let mut old: StdioServer = site.stdio();
    old.open("2025-11-25").await;
    let listed = old.request("resources/list", json!({})).await;
    let uris = names(listed.result(), "resources", "uri");
    assert_eq!(uris, ["db://shop/schema", "db://shop/tables/sale"]);
    assert_eq!(read(&mut old, sold).await["rows"], json!([{"pieces": 7}]));
    assert_eq!(read(&mut old, "db://shop/tables/sale/2").await["pieces"], 4);
    let secret = old
        .request("resources/read", json!({"uri": "db://shop/tables/secret"}))
        .await;
    assert!(secret.code() < 0);
    let _ = old
        .request("resources/subscribe", json!({"uri": sold}))
        .await
        .result();
    sql(&site, "INSERT INTO sale VALUES (3, 'WARE', 9)");
    sql(&site, "INSERT INTO sale VALUES (4, 'TEA', 1)");
    while old.receive().await["method"] != "notifications/resources/updated" {}
    assert_eq!(read(&mut old, sold).await["rows"], json!([{"pieces": 8}]));
    drop(old);

    let mut new: StdioServer = site.stdio();
    new.speak(MODERN);
    let filter = json!({"notifications": {"resourceSubscriptions": [sold]}});
    let request = new.voice.request("subscriptions/listen", filter);
    new.send(&request).await;
    while new.receive().await["method"] != "notifications/subscriptions/acknowledged" {}
    sql(&site, "DELETE FROM sale WHERE id = 4");
    while new.receive().await["method"] != "notifications/resources/updated" {}
    drop(new);
    let reads = site
        .calls()
        .into_iter()
        .filter(|it| it.started.capability == "resource/db://shop/queries/sold");
    assert_eq!(
        reads.map(|it| outcome(&it)).collect::<Vec<_>>(),
        ["succeeded", "succeeded"]
    );
}

#[tokio::test]
async fn a_pattern_that_hides_nothing_is_told_or_keeps_the_server_from_starting() {
    let settings = |treatment: &str| {
        json!({
            "governance": {"unmatched_rules": treatment},
            "resources": {"databases": {"shop": {"path": "shop.db", "exclude": ["SECRET", "sale.sku_"]}}},
        })
    };
    let strict = site(settings("error"));
    let key = "`resources.databases.shop.exclude`: `sale.sku_` matches nothing there is";
    for words in [&["start"][..], &["doctor"]] {
        let said = run(strict.command(words)).await;
        assert_ne!(said.code, Some(0), "{words:?}");
        let all = said.output + &said.messages;
        assert!(
            all.contains(key) && all.contains("did you mean `sale.sku`?"),
            "{words:?}: {all}"
        );
        // Case does not count for SQLite.
        assert!(!all.contains("`SECRET`"), "{words:?}: {all}");
    }
    let free = site(settings("warn"));
    let mut client: StdioServer = free.stdio();
    client.open("2025-11-25").await;
    let listed = client.request("resources/list", json!({})).await;
    let uris = names(listed.result(), "resources", "uri");
    assert_eq!(uris, ["db://shop/schema", "db://shop/tables/sale"]);
}

#[tokio::test]
async fn a_broken_view_is_left_out_and_named() {
    let site = site(json!({"resources": {"databases": {"shop": {"path": "shop.db"}}}}));
    sql(&site, "CREATE VIEW broken AS SELECT absent FROM sale");
    let said = run(site.command(&["doctor"])).await;
    let all = said.output + &said.messages;
    assert!(
        all.contains(
            "`broken` of the database `shop` cannot be read, and is not offered: no such column"
        ),
        "{all}"
    );
    let mut client: StdioServer = site.stdio();
    client.open("2025-11-25").await;
    let listed = client.request("resources/list", json!({})).await;
    let uris = names(listed.result(), "resources", "uri");
    let expected = [
        "db://shop/schema",
        "db://shop/tables/sale",
        "db://shop/tables/secret",
    ];
    assert_eq!(uris, expected);
    let late = client
        .request("resources/read", json!({"uri": "db://shop/tables/broken"}))
        .await;
    assert!(late.code() < 0);
}

#[tokio::test]
async fn a_query_that_writes_keeps_the_server_from_starting() {
    let site = site(json!({"resources": {"databases": {"shop": {
        "path": "shop.db", "queries": {"clear": {"sql": "DELETE FROM sale"}},
    }}}}));
    let said = run(site.command(&["start"])).await;
    assert_ne!(said.code, Some(0));
    assert!(
        said.messages
            .contains("`queries.clear.sql`: it would change something"),
        "{}",
        said.messages
    );
}

#[tokio::test]
async fn a_server_is_read_and_followed_and_its_password_is_shown_nowhere() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let database = url.rsplit('/').next().unwrap();
    let sql = |statements: &str| postgres.sql_in(database, statements);
    sql(
        "CREATE TABLE sale (id int PRIMARY KEY, sku text, pieces int); INSERT INTO sale VALUES (1, 'TEA', 3), (2, 'TEA', 4)",
    );
    let site = Site::new(json!({"app": null, "resources": {"databases": {"shop": {
        "url": "${SHOP_URL}",
        "queries": {"sold": {"sql": "SELECT sum(pieces) AS pieces FROM sale WHERE sku = :sku"}},
    }}}}));
    let command = |words: &[&str]| {
        let mut command = site.command(words);
        command.env("SHOP_URL", &url);
        command
    };
    let mut old = StdioServer::spawn(command(&["start"]));
    old.open("2025-11-25").await;
    let sold = "db://shop/queries/sold?sku=TEA";
    assert_eq!(read(&mut old, sold).await["rows"], json!([{"pieces": 7}]));
    assert_eq!(read(&mut old, "db://shop/tables/sale/2").await["pieces"], 4);
    let _ = old
        .request("resources/subscribe", json!({"uri": sold}))
        .await
        .result();
    sql("INSERT INTO sale VALUES (3, 'WARE', 9)");
    sql("INSERT INTO sale VALUES (4, 'TEA', 1)");
    while old.receive().await["method"] != "notifications/resources/updated" {}
    assert_eq!(read(&mut old, sold).await["rows"], json!([{"pieces": 8}]));
    drop(old);
    let shown = run(command(&["config", "show"])).await;
    assert_eq!(shown.code, Some(0));
    let wrong = url.replace(postgres.password(), "another-password");
    let mut refused = site.command(&["start"]);
    refused.env("SHOP_URL", &wrong);
    let refused = run(refused).await;
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.messages.contains("resources.databases.shop:")
            && refused.messages.contains("password authentication failed"),
        "{}",
        refused.messages
    );
    for said in [shown.output.as_str(), &shown.messages, &refused.messages] {
        assert!(
            !said.contains(postgres.password()) && !said.contains("another-password"),
            "{said}"
        );
    }
}
