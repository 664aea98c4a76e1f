//! Databases as resources: what is read, what is refused, and which changes are told.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use adapter_tools::{ToolCx, ToolError};
use mcp_protocol::model::{Complete, CompletionReference, ReadResource};
use mcp_server::{ReadFailure, ToolSource};
use resources::{DatabaseOptions, Databases, NamedQuery};
use rusqlite::Connection;
use serde_json::{Value, json};
use support::MayRead;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(10);

const TABLES: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE item (sku TEXT PRIMARY KEY, name TEXT NOT NULL, price REAL, picture BLOB, cost REAL);
    INSERT INTO item VALUES ('TEA-1', 'Assam', 4.5, x'00ff', 1.0), ('TEA-2', 'Zoë''s \"best\"', NULL, NULL, 2.0);
    CREATE TABLE sale (id INTEGER PRIMARY KEY, sku TEXT, month TEXT, pieces INTEGER);
    INSERT INTO sale SELECT value, 'TEA-' || (value % 2 + 1), '2026-0' || (value % 9 + 1), value FROM generate_series(1, 250);
    CREATE TABLE secret (token TEXT);
    INSERT INTO secret VALUES ('SECRET');
    CREATE TABLE \"odd \"\"name; --\" (\"a b\" TEXT, PRIMARY KEY (\"a b\"));
    INSERT INTO \"odd \"\"name; --\" VALUES ('x/y');
    CREATE VIEW cheap AS SELECT sku, price FROM item WHERE price < 5;
";

fn options(place: &Path) -> DatabaseOptions {
    let query = |sql: &str| NamedQuery {
        sql: sql.to_owned(),
        description: Some("Pieces sold.".to_owned()),
    };
    DatabaseOptions {
        exclude: vec!["secret".to_owned(), "item.cost".to_owned()],
        queries: BTreeMap::from([
            (
                "sold".to_owned(),
                query(
                    "SELECT sku, sum(pieces) AS pieces FROM sale WHERE month = :month GROUP BY sku",
                ),
            ),
            (
                "all".to_owned(),
                query("SELECT count(*) AS sales FROM sale"),
            ),
            (
                "endless".to_owned(),
                query(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
                ),
            ),
        ]),
        timeout: Duration::from_millis(400),
        ..DatabaseOptions::new(place.join("shop.db"))
    }
}

fn shop() -> (TempDir, Connection, Databases) {
    let place = tempfile::tempdir().unwrap();
    let writer = Connection::open(place.path().join("shop.db")).unwrap();
    // The bundled library has no `generate_series`.
    let tables = TABLES.replace(
        "FROM generate_series(1, 250)",
        "FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 250) SELECT value FROM n)",
    );
    writer.execute_batch(&tables).unwrap();
    let databases = Databases::open([("shop".to_owned(), options(place.path()))].into()).unwrap();
    (place, writer, databases)
}

async fn read(databases: &Databases, uri: &str) -> Result<Value, ReadFailure> {
    let read = ReadResource {
        uri: uri.to_owned(),
        ..ReadResource::default()
    };
    let result = databases.resources().unwrap().read(read).await?;
    Ok(serde_json::from_str(result.contents[0].text.as_deref().unwrap()).unwrap())
}

#[tokio::test]
async fn tables_rows_and_queries_are_read() {
    let (_place, _writer, shop) = shop();
    let offered = shop.resources().unwrap();
    let uris: Vec<_> = offered
        .entries()
        .iter()
        .map(|it| it.resource.uri.as_str())
        .collect();
    let expected = [
        "db://shop/schema",
        "db://shop/tables/cheap",
        "db://shop/tables/item",
        "db://shop/tables/odd%20%22name%3B%20--",
        "db://shop/tables/sale",
        "db://shop/queries/all",
        "db://shop/queries/endless",
    ];
    assert_eq!(uris, expected);
    let templates: Vec<_> = offered
        .templates()
        .iter()
        .map(|it| it.uri_template.as_str())
        .collect();
    let expected = [
        "db://shop/tables/{table}{?offset}",
        "db://shop/tables/{table}/{key}",
        "db://shop/queries/sold{?month}",
    ];
    assert_eq!(templates, expected);
    let items = read(&shop, "db://shop/tables/item").await.unwrap();
    assert_eq!(
        items,
        json!({"rows": [
        {"sku": "TEA-1", "name": "Assam", "price": 4.5, "picture": {"base64": "AP8="}},
        {"sku": "TEA-2", "name": "Zoë's \"best\"", "price": null, "picture": null},
    ], "next": null})
    );
    let mut next = json!("db://shop/tables/sale");
    let mut ids = Vec::new();
    while let Some(uri) = next.as_str() {
        let page = read(&shop, uri).await.unwrap();
        ids.extend(
            page["rows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it["id"].as_i64().unwrap()),
        );
        next = page["next"].clone();
    }
    assert_eq!(ids, (1..=250).collect::<Vec<_>>());
    assert_eq!(
        read(&shop, "db://shop/tables/sale/7").await.unwrap()["pieces"],
        7
    );
    assert_eq!(
        read(&shop, "db://shop/tables/odd%20%22name%3B%20--/x%2Fy")
            .await
            .unwrap()["a b"],
        "x/y"
    );
    let sold = read(&shop, "db://shop/queries/sold?month=2026-03")
        .await
        .unwrap();
    assert_eq!(sold["rows"].as_array().unwrap().len(), 2);
    assert_eq!(
        read(&shop, "db://shop/queries/all").await.unwrap()["rows"],
        json!([{"sales": 250}])
    );
    let schema = read(&shop, "db://shop/schema").await.unwrap();
    assert!(
        !schema.to_string().contains("secret") && !schema.to_string().contains("cost"),
        "{schema}"
    );
    assert_eq!(
        schema["tables"][1]["columns"][0],
        json!({"name": "sku", "type": "TEXT", "required": false, "key": true})
    );
    assert_eq!(schema["queries"][2]["parameters"], json!(["month"]));
    assert_eq!(
        offered
            .governed_by("db://shop/queries/sold?month=x")
            .unwrap(),
        "db://shop/queries/sold"
    );
    assert_eq!(
        offered
            .governed_by("db://shop/tables/sale?offset=9")
            .unwrap(),
        "db://shop/tables/sale"
    );
}

#[tokio::test]
async fn generated_columns_are_read_and_hidden_as_others_are() {
    let (place, writer, _) = shop();
    writer
        .execute_batch(
            "CREATE TABLE line (id INTEGER PRIMARY KEY, pieces INTEGER, price REAL, \
             total REAL GENERATED ALWAYS AS (pieces * price) VIRTUAL, \
             kept REAL AS (total + 1) STORED, cost REAL AS (price / 2)); \
             INSERT INTO line (id, pieces, price) VALUES (1, 2, 1.5);",
        )
        .unwrap();
    let mut options = options(place.path());
    options.exclude.push("line.cost".to_owned());
    let shop = Databases::open([("shop".to_owned(), options)].into()).unwrap();
    assert_eq!(
        read(&shop, "db://shop/tables/line/1").await.unwrap(),
        json!({"id": 1, "pieces": 2, "price": 1.5, "total": 3.0, "kept": 4.0})
    );
    let schema = read(&shop, "db://shop/schema").await.unwrap();
    assert!(schema.to_string().contains("\"total\""), "{schema}");
    assert_eq!(shop.unmatched_patterns().count(), 0);
}

#[tokio::test]
async fn patterns_compare_names_as_the_database_does_and_idle_ones_are_told() {
    let (place, writer, _) = shop();
    let listed = |databases: &Databases| {
        let resources = databases.resources().unwrap();
        let entries = resources.entries().iter();
        let uris = entries.map(|it| it.resource.uri.clone());
        let tables = uris.filter(|it| it.contains("/tables/"));
        tables.collect::<Vec<_>>()
    };
    let with = |include: &[&str], exclude: &[&str]| {
        let texts = |all: &[&str]| all.iter().map(|&it| it.to_owned()).collect();
        let options = DatabaseOptions {
            include: texts(include),
            exclude: texts(exclude),
            ..DatabaseOptions::new(place.path().join("shop.db"))
        };
        Databases::open([("shop".to_owned(), options)].into()).unwrap()
    };
    let idle = |databases: &Databases| {
        let idle = databases.unmatched_patterns();
        let idle = idle.map(|it| format!("{}.{} {}", it.database, it.list, it.pattern));
        idle.collect::<Vec<_>>()
    };
    let shop = with(
        &["ITEM", "Sal?", "CHEAP"],
        &["SALE", "Item.COST", "cheap.Price"],
    );
    assert_eq!(
        listed(&shop),
        ["db://shop/tables/cheap", "db://shop/tables/item"]
    );
    let items = read(&shop, "db://shop/tables/item").await.unwrap();
    assert!(
        items["rows"][0].get("name").is_some() && items["rows"][0].get("cost").is_none(),
        "{items}"
    );
    // Columns of a view are excluded by the view's name.
    let cheap = read(&shop, "db://shop/tables/cheap").await.unwrap();
    assert_eq!(cheap["rows"], json!([{"sku": "TEA-1"}]));
    assert_eq!(idle(&shop), [""; 0]);

    let shop = with(
        &["item", "itme", "item.sku"],
        &["secrets", "item.cots", "item.*x"],
    );
    let expected = [
        "shop.include itme",
        "shop.include item.sku",
        "shop.exclude secrets",
        "shop.exclude item.cots",
        "shop.exclude item.*x",
    ];
    assert_eq!(idle(&shop), expected);
    // What comes later is compared as well, and lists are made anew for it.
    let mut changes = shop.changes().unwrap();
    writer
        .execute_batch("CREATE TABLE Secrets (token TEXT)")
        .unwrap();
    tokio::time::timeout(PATIENCE, changes.changed())
        .await
        .unwrap()
        .unwrap();
    assert!(!idle(&shop).contains(&"shop.exclude secrets".to_owned()));
}

#[tokio::test]
async fn nothing_that_a_caller_sends_is_a_statement() {
    let (_place, writer, shop) = shop();
    let hostile = [
        "' OR '1'='1",
        "'; DROP TABLE sale; --",
        "\" OR 1=1 --",
        "1 UNION SELECT token FROM secret",
        "x') UNION SELECT token, 1 FROM secret --",
        "%27%20OR%201%3D1",
        "(SELECT token FROM secret)",
        ":month",
        "?1",
        "\\' OR 1=1",
        "2026-03\u{0}",
        "'||(SELECT token FROM secret)||'",
        "secret",
        "main.secret",
        "item\" UNION SELECT token FROM secret --",
        "sqlite_schema",
        "SALE; ATTACH 'x' AS y",
        "$(id)",
        "{{7*7}}",
        "${secret}",
    ];
    let encoded = |text: &str| {
        text.bytes()
            .map(|it| format!("%{it:02X}"))
            .collect::<String>()
    };
    for text in hostile {
        let text = encoded(text);
        let sold = read(&shop, &format!("db://shop/queries/sold?month={text}")).await;
        assert!(
            sold.as_ref().is_ok_and(|it| it["rows"] == json!([]))
                || matches!(sold, Err(ReadFailure::NotFound)),
            "{text}: {sold:?}"
        );
        for uri in [
            format!("db://shop/tables/{text}"),
            format!("db://shop/tables/{text}/x"),
            format!("db://shop/tables/sale/{text}"),
            format!("db://shop/queries/{text}"),
            format!("db://{text}/schema"),
            format!("db://shop/tables/sale?offset={text}"),
            format!("db://shop/tables/item/{text}"),
            format!("db://shop/schema?{text}={text}"),
        ] {
            let found = read(&shop, &uri).await;
            assert!(
                matches!(found, Err(ReadFailure::NotFound)),
                "{uri}: {found:?}"
            );
        }
    }
    for uri in [
        "db://shop/queries/sold",
        "db://shop/queries/sold?month=x&token=y",
        "db://shop/queries/all?month=x",
    ] {
        assert!(
            matches!(read(&shop, uri).await, Err(ReadFailure::Values(_))),
            "{uri}"
        );
    }
    let left: i64 = writer
        .query_row("SELECT count(*) FROM sale", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 250);
}

#[tokio::test]
async fn a_query_that_takes_too_long_is_ended_and_others_go_on() {
    let (_place, _writer, shop) = shop();
    let began = Instant::now();
    let endless = read(&shop, "db://shop/queries/endless").await;
    assert!(
        matches!(endless, Err(ReadFailure::TimedOut(limit)) if limit == Duration::from_millis(400)),
        "{endless:?}"
    );
    assert!(began.elapsed() < PATIENCE);
    let resources = shop.resources().unwrap();
    let asked = ReadResource {
        uri: "db://shop/queries/endless".to_owned(),
        ..ReadResource::default()
    };
    // Nobody waits for this one any more, and its thread ends all the same: the runtime could not be left else.
    let given_up = tokio::time::timeout(Duration::from_millis(50), resources.read(asked)).await;
    assert!(given_up.is_err());
    assert!(read(&shop, "db://shop/queries/all").await.is_ok());
}

#[test]
fn queries_that_write_or_cannot_be_prepared_are_mistakes() {
    let place = tempfile::tempdir().unwrap();
    let writer = Connection::open(place.path().join("shop.db")).unwrap();
    writer
        .execute_batch("CREATE TABLE sale (id INTEGER PRIMARY KEY)")
        .unwrap();
    for (sql, expected) in [
        ("DELETE FROM sale", "would change something"),
        (
            "INSERT INTO sale VALUES (1) RETURNING id",
            "would change something",
        ),
        ("SELECT 1; DELETE FROM sale", ""),
        ("SELECT * FROM absent", "no such table"),
        ("SELECT * FROM sale WHERE id = ?", "must have names"),
        ("SELEKT", "syntax error"),
        ("SELECT 1 AS a, 2 AS a", "two of its columns are called `a`"),
        ("SELECT \"absent\" FROM sale", "no such column"),
        ("", ""),
        ("ATTACH 'other.db' AS other", "has no result"),
        ("PRAGMA query_only = 0", ""),
    ] {
        let query = NamedQuery {
            sql: sql.to_owned(),
            description: None,
        };
        let options = DatabaseOptions {
            queries: [("q".to_owned(), query)].into(),
            ..DatabaseOptions::new(place.path().join("shop.db"))
        };
        let error = Databases::open([("shop".to_owned(), options)].into())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("resources.databases.shop: `queries.q.sql`")
                && error.contains(expected),
            "{sql}: {error}"
        );
    }
    let missing = DatabaseOptions::new(place.path().join("missing.db"));
    assert!(Databases::open([("shop".to_owned(), missing)].into()).is_err());
    assert!(!place.path().join("missing.db").exists());
    std::fs::write(place.path().join("text.db"), "no database ".repeat(100)).unwrap();
    let text = DatabaseOptions::new(place.path().join("text.db"));
    assert!(Databases::open([("shop".to_owned(), text)].into()).is_err());
    let pipe = place.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for no_file in [pipe.as_path(), place.path(), Path::new("/dev/zero")] {
        let options = DatabaseOptions::new(no_file);
        let error = Databases::open([("shop".to_owned(), options)].into()).unwrap_err();
        let told = format!(
            "{} cannot be read: it is not a regular file",
            no_file.display()
        );
        assert!(error.to_string().contains(&told), "{error}");
    }
}

#[tokio::test]
async fn a_row_has_one_address() {
    let (place, writer, _) = shop();
    writer
        .execute_batch(
            "CREATE TABLE any_case (word TEXT COLLATE NOCASE PRIMARY KEY); INSERT INTO any_case VALUES ('Abc'); \
             CREATE TABLE weight (kg REAL PRIMARY KEY); INSERT INTO weight VALUES (4.5); \
             CREATE TABLE pair (a, b, PRIMARY KEY (a, b)); INSERT INTO pair VALUES (1, 2);",
        )
        .unwrap();
    let shop = Databases::open([("shop".to_owned(), options(place.path()))].into()).unwrap();
    for (row, others) in [
        (
            "sale/7",
            &[
                "sale/07",
                "sale/7.0",
                "sale/%207",
                "sale/7%20",
                "sale/+7",
                "sale/7e0",
                "Sale/7",
            ][..],
        ),
        (
            "any_case/Abc",
            &["any_case/abc", "any_case/ABC", "Any_Case/Abc"],
        ),
        (
            "weight/4.5",
            &["weight/4.50", "weight/04.5", "weight/45e-1"],
        ),
    ] {
        let found = read(&shop, &format!("db://shop/tables/{row}")).await;
        assert!(found.is_ok(), "{row}: {found:?}");
        for other in others.iter().chain(&["pair/1", "pair/1%202"]) {
            let found = read(&shop, &format!("db://shop/tables/{other}")).await;
            assert!(
                matches!(found, Err(ReadFailure::NotFound)),
                "{other}: {found:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_column_that_is_gone_is_no_text() {
    let (place, writer, _) = shop();
    let mut options = DatabaseOptions {
        // Nothing looks for changes, so that each read meets what it does not know of.
        watch: false,
        ..options(place.path())
    };
    let sold = NamedQuery {
        sql: "SELECT \"pieces\" FROM sale WHERE id = 7".to_owned(),
        description: None,
    };
    options.queries.insert("pieces".to_owned(), sold);
    let shop = Databases::open([("shop".to_owned(), options)].into()).unwrap();
    let query = "db://shop/queries/pieces";
    let found = read(&shop, query).await.unwrap();
    assert_eq!(found["rows"], json!([{"pieces": 7}]));
    writer
        .execute_batch("ALTER TABLE sale RENAME COLUMN pieces TO items")
        .unwrap();
    let row = read(&shop, "db://shop/tables/sale/7").await.unwrap();
    assert_eq!((&row["items"], row.get("pieces")), (&json!(7), None));
    let rows = read(&shop, "db://shop/tables/sale?offset=6").await.unwrap();
    assert_eq!(rows["rows"][0]["items"], 7);
    let gone = read(&shop, query).await;
    assert!(matches!(gone, Err(ReadFailure::Unreadable(_))), "{gone:?}");
    writer.execute_batch("DROP TABLE sale").unwrap();
    let gone = read(&shop, "db://shop/tables/sale/7").await;
    assert!(matches!(gone, Err(ReadFailure::NotFound)), "{gone:?}");
}

#[tokio::test]
async fn columns_of_one_name_that_come_later_are_an_error() {
    let (place, writer, _) = shop();
    writer
        .execute_batch("CREATE TABLE one (a INTEGER); INSERT INTO one VALUES (1)")
        .unwrap();
    let mut options = options(place.path());
    let both = NamedQuery {
        sql: "SELECT one.*, sale.id FROM one, sale WHERE sale.id = 7".to_owned(),
        description: None,
    };
    options.queries.insert("both".to_owned(), both);
    let shop = Databases::open([("shop".to_owned(), options)].into()).unwrap();
    let uri = "db://shop/queries/both";
    let found = read(&shop, uri).await.unwrap();
    assert_eq!(found["rows"], json!([{"a": 1, "id": 7}]));
    writer
        .execute_batch("ALTER TABLE one RENAME COLUMN a TO id")
        .unwrap();
    let double = read(&shop, uri).await;
    let Err(ReadFailure::Handler(ToolError::Failed(double))) = double else {
        panic!("{double:?}");
    };
    assert!(
        double
            .message
            .contains("two of its columns are called `id`"),
        "{double}"
    );
}

#[tokio::test]
async fn what_is_broken_is_left_out_and_named_and_the_rest_is_followed() {
    let (place, writer, _) = shop();
    writer
        .execute_batch("CREATE VIEW broken AS SELECT absent FROM item; CREATE VIEW odd AS SELECT absent(1) AS x")
        .unwrap();
    let mut options = options(place.path());
    options.exclude.push("odd".to_owned());
    let shop = Databases::open([("shop".to_owned(), options)].into()).unwrap();
    assert_eq!(shop.unmatched_patterns().count(), 0);
    let health = shop.health().unwrap();
    let detail = health.detail.unwrap();
    assert!(
        health.ok && detail.contains("`broken` cannot be read") && !detail.contains("odd"),
        "{detail}"
    );
    assert!(read(&shop, "db://shop/tables/item").await.is_ok());
    let broken = read(&shop, "db://shop/tables/broken").await;
    assert!(matches!(broken, Err(ReadFailure::NotFound)), "{broken:?}");
    let mut lists = shop.changes().unwrap();
    writer
        .execute_batch("CREATE TABLE fresh (id INTEGER PRIMARY KEY); INSERT INTO fresh VALUES (1)")
        .unwrap();
    let told = tokio::time::timeout(PATIENCE, lists.changed()).await;
    told.unwrap().unwrap();
    assert!(read(&shop, "db://shop/tables/fresh/1").await.is_ok());
    writer
        .execute_batch("ALTER TABLE item ADD COLUMN absent")
        .unwrap();
    let told = tokio::time::timeout(PATIENCE, lists.changed()).await;
    told.unwrap().unwrap();
    assert!(read(&shop, "db://shop/tables/broken").await.is_ok());
    assert_eq!(shop.health().unwrap().detail, None);
}

/// Tries to write for a while, without waiting for locks: how often it could, and how often not.
fn write_for(writer: &Connection, time: Duration) -> (u32, u32) {
    writer.busy_timeout(Duration::ZERO).unwrap();
    let (mut written, mut locked) = (0, 0);
    let began = Instant::now();
    while began.elapsed() < time {
        match writer.execute("UPDATE sale SET pieces = pieces + 1 WHERE id = 7", []) {
            Ok(_) => written += 1,
            Err(_) => locked += 1,
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    (written, locked)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_listens_to_locks_no_writer_out() {
    let (place, writer, before) = shop();
    drop(before);
    let end = Instant::now() + PATIENCE;
    // Once nobody else has it open.
    while writer
        .query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))
        .map_or(true, |it: String| it != "delete")
    {
        assert!(Instant::now() < end);
    }
    let mut options = DatabaseOptions {
        timeout: Duration::from_secs(60),
        ..options(place.path())
    };
    // It holds a lock while it runs.
    let endless = "WITH RECURSIVE n(i) AS (SELECT max(id) FROM sale UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS c FROM n";
    options.queries.get_mut("endless").unwrap().sql = endless.to_owned();
    let shop = Databases::open([("shop".to_owned(), options)].into()).unwrap();
    let (slow, row) = (
        "db://shop/queries/endless".to_owned(),
        "db://shop/tables/sale/7".to_owned(),
    );
    let resources = shop.resources().unwrap();
    let refused = resources.hear(&slow).await.unwrap_err();
    assert!(refused.contains("takes longer than the 1s"), "{refused}");
    resources.hear(&row).await.unwrap();
    // As if it had become slow after it was subscribed to.
    shop.listen_to([&slow, &row]);
    let (written, locked) = write_for(&writer, Duration::from_secs(6));
    assert!(
        locked < written,
        "{locked} of {} writes failed",
        written + locked
    );
    let told = tokio::time::timeout(PATIENCE, shop.changed()).await;
    assert_eq!(told.unwrap(), [row].into());
    let health = shop.health().unwrap();
    assert!(
        health.ok
            && health
                .detail
                .as_deref()
                .is_some_and(|it| it.contains("is told late")),
        "{health:?}"
    );
    shop.listen_to([]);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (_, locked) = write_for(&writer, Duration::from_secs(1));
    assert!(locked < 5, "{locked}");
}

#[tokio::test]
async fn changes_are_told_to_those_whom_they_concern() {
    let (_place, writer, shop) = shop();
    let listened = [
        "db://shop/tables/item".to_owned(),
        "db://shop/queries/sold?month=2026-03".to_owned(),
    ];
    let mut lists = shop.changes().unwrap();
    let resources = shop.resources().unwrap();
    for uri in &listened {
        resources.hear(uri).await.unwrap();
    }
    shop.listen_to(&listened);
    writer
        .execute("INSERT INTO secret VALUES ('another')", [])
        .unwrap();
    writer
        .execute("UPDATE item SET price = 5 WHERE sku = 'TEA-1'", [])
        .unwrap();
    let told = tokio::time::timeout(PATIENCE, shop.changed())
        .await
        .unwrap();
    assert_eq!(told, [listened[0].clone()].into());
    writer
        .execute("INSERT INTO sale VALUES (300, 'TEA-1', '2026-03', 1)", [])
        .unwrap();
    let told = tokio::time::timeout(PATIENCE, shop.changed())
        .await
        .unwrap();
    assert_eq!(told, [listened[1].clone()].into());
    assert!(!lists.has_changed().unwrap());
    writer.execute_batch("CREATE TABLE fresh (a TEXT)").unwrap();
    tokio::time::timeout(PATIENCE, lists.changed())
        .await
        .unwrap()
        .unwrap();
    assert!(
        shop.resources()
            .unwrap()
            .canonical("db://shop/tables/fresh")
            .is_some()
    );
    assert!(shop.health().unwrap().ok);
}

#[tokio::test]
async fn a_file_that_is_replaced_is_read_and_followed() {
    let (place, _writer, shop) = shop();
    let uri = "db://shop/tables/item".to_owned();
    shop.resources().unwrap().hear(&uri).await.unwrap();
    shop.listen_to([&uri]);
    let other = place.path().join("other.db");
    let tables = "CREATE TABLE item (sku TEXT PRIMARY KEY); INSERT INTO item VALUES ('NEW')";
    Connection::open(&other)
        .unwrap()
        .execute_batch(tables)
        .unwrap();
    for rest in ["shop.db-wal", "shop.db-shm"] {
        let _absent = std::fs::remove_file(place.path().join(rest));
    }
    std::fs::rename(other, place.path().join("shop.db")).unwrap();
    let told = tokio::time::timeout(PATIENCE, shop.changed())
        .await
        .unwrap();
    assert_eq!(told, [uri.clone()].into());
    assert_eq!(
        read(&shop, &uri).await.unwrap()["rows"],
        json!([{"sku": "NEW"}])
    );
}

#[tokio::test]
async fn tables_are_completed_with_what_the_caller_may_read() {
    let (_place, _writer, shop) = shop();
    let suggested = async |may: &'static str| {
        let cx = ToolCx::new("ada", "1").with_resources(Arc::new(MayRead(vec![may])));
        let asked = Complete {
            reference: CompletionReference::Resource {
                uri: "db://shop/tables/{table}/{key}".to_owned(),
            },
            argument: "table".to_owned(),
            value: String::new(),
            context: BTreeMap::new(),
        };
        shop.prompts()
            .unwrap()
            .suggest(cx, &asked)
            .await
            .unwrap()
            .values
    };
    assert_eq!(
        suggested("db:").await,
        ["cheap", "item", "odd \"name; --", "sale"]
    );
    assert_eq!(suggested("db://shop/tables/sale").await, ["sale"]);
}
