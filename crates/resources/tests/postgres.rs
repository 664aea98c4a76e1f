//! `PostgreSQL` databases as resources: what is read, what is refused, and which changes are told.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use adapter_tools::ToolError;
use mcp_protocol::model::ReadResource;
use mcp_server::{ReadFailure, ToolSource};
use resources::{DatabaseOptions, Databases, NamedQuery};
use serde_json::{Value, json};
use testkit::Postgres;

const PATIENCE: Duration = Duration::from_secs(10);
const PASSWORD: &str = "reader-8841";

const TABLES: &str = "
    CREATE TABLE item (sku text PRIMARY KEY, name text NOT NULL, price numeric, picture bytea, cost int, tags text[]);
    INSERT INTO item VALUES ('TEA-1', 'Assam', 4.50, '\\x00ff', 1, '{hot,black}'),
        ('TEA-2', E'Zoë''s \"best\"', 12345678901234567890.123456789, NULL, 2, NULL);
    CREATE TABLE sale (id bigint PRIMARY KEY, sku text, month date, pieces int);
    INSERT INTO sale SELECT i, 'TEA-' || (i % 2 + 1), make_date(2026, i % 9 + 1, 1), i FROM generate_series(1, 250) i;
    CREATE TABLE secret (token text);
    INSERT INTO secret VALUES ('SECRET');
    CREATE TABLE locked (token text);
    INSERT INTO locked VALUES ('SECRET');
    CREATE TABLE \"odd \"\"name; --\" (\"a b\" text PRIMARY KEY);
    INSERT INTO \"odd \"\"name; --\" VALUES ('x/y');
    CREATE VIEW cheap AS SELECT sku, price FROM item WHERE price < 5;
    CREATE SCHEMA store;
    CREATE TABLE store.shelf (floor int, place int, sku text, PRIMARY KEY (floor, place));
    INSERT INTO store.shelf VALUES (1, 2, 'TEA-1');
    CREATE SCHEMA closed;
    CREATE TABLE closed.till (cents int);
    CREATE SEQUENCE counter;
    GRANT USAGE ON SCHEMA store TO reader;
    GRANT SELECT ON item, sale, secret, \"odd \"\"name; --\", cheap, store.shelf TO reader;
    GRANT ALL ON counter TO reader;
    -- It might write, if it were let.
    GRANT INSERT, UPDATE, DELETE ON sale TO reader;
";

/// A shop of its own, and the address with which a reader connects.
struct Shop {
    server: &'static Postgres,
    database: String,
    address: String,
}

impl Shop {
    fn open() -> Option<Self> {
        let server = Postgres::shared()?;
        let database = server.fresh_database();
        let database = database.rsplit('/').next().unwrap().to_owned();
        let made = format!(
            "DO $$ BEGIN CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'; EXCEPTION WHEN OTHERS THEN NULL; END $$"
        );
        server.sql(&made);
        server.sql_in(&database, TABLES);
        let address = server.url_as("reader", PASSWORD, &database);
        Some(Self {
            server,
            database,
            address,
        })
    }

    fn sql(&self, statements: &str) -> String {
        self.server.sql_in(&self.database, statements)
    }

    fn options(&self) -> DatabaseOptions {
        let query = |sql: &str| NamedQuery {
            sql: sql.to_owned(),
            description: Some("Pieces sold.".to_owned()),
        };
        let sold = "SELECT sku, sum(pieces) AS pieces FROM sale WHERE month = :month::date AND ':x' <> '' \
                    GROUP BY sku ORDER BY sku /* of :month */;";
        DatabaseOptions {
            exclude: vec!["secret".to_owned(), "item.cost".to_owned()],
            queries: BTreeMap::from([
                ("sold".to_owned(), query(sold)),
                (
                    "all".to_owned(),
                    query("SELECT count(*) AS sales FROM sale"),
                ),
                ("slow".to_owned(), query("SELECT pg_sleep(600)::text")),
                ("next".to_owned(), query("SELECT nextval('counter')")),
                (
                    "any".to_owned(),
                    query("SELECT :a::text || :b::text || :a::text AS it"),
                ),
            ]),
            timeout: Duration::from_millis(500),
            ..DatabaseOptions::postgres(&self.address).unwrap()
        }
    }

    fn databases(&self, options: DatabaseOptions) -> Databases {
        Databases::open([("shop".to_owned(), options)].into()).unwrap()
    }
}

async fn raw(databases: &Databases, uri: &str) -> Result<String, ReadFailure> {
    let read = ReadResource {
        uri: uri.to_owned(),
        ..ReadResource::default()
    };
    let result = databases.resources().unwrap().read(read).await?;
    Ok(result.contents[0].text.clone().unwrap())
}

async fn read(databases: &Databases, uri: &str) -> Result<Value, ReadFailure> {
    Ok(serde_json::from_str(&raw(databases, uri).await?).unwrap())
}

#[test]
fn a_pattern_that_matches_in_another_case_alone_is_told() {
    let Some(at) = Shop::open() else { return };
    let exclude = ["SECRET", "Item.Cost", "item.cost", "store.*"];
    let shop = at.databases(DatabaseOptions {
        exclude: exclude.map(str::to_owned).into(),
        ..at.options()
    });
    let idle: Vec<_> = shop.unmatched_patterns().map(|it| it.pattern).collect();
    assert_eq!(idle, ["SECRET", "Item.Cost"]);
}

#[tokio::test]
async fn tables_rows_and_queries_of_a_server_are_read() {
    let Some(at) = Shop::open() else { return };
    let shop = at.databases(at.options());
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
        "db://shop/tables/store.shelf",
        "db://shop/queries/all",
        "db://shop/queries/next",
        "db://shop/queries/slow",
    ];
    assert_eq!(uris, expected);
    let items = raw(&shop, "db://shop/tables/item").await.unwrap();
    // All digits are there.
    assert!(items.contains("12345678901234567890.123456789"), "{items}");
    let items: Value = serde_json::from_str(&items).unwrap();
    assert_eq!(
        items["rows"][0],
        json!({"sku": "TEA-1", "name": "Assam", "price": 4.5, "picture": "\\x00ff", "tags": ["hot", "black"]})
    );
    assert_eq!(items["next"], Value::Null);
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
    let odd = read(&shop, "db://shop/tables/odd%20%22name%3B%20--/x%2Fy")
        .await
        .unwrap();
    assert_eq!(odd["a b"], "x/y");
    assert_eq!(
        read(&shop, "db://shop/tables/store.shelf").await.unwrap()["rows"][0]["place"],
        2
    );
    let sold = read(&shop, "db://shop/queries/sold?month=2026-03-01")
        .await
        .unwrap();
    assert_eq!(sold["rows"].as_array().unwrap().len(), 2);
    assert_eq!(sold["isCut"], false);
    assert_eq!(
        read(&shop, "db://shop/queries/any?a=x&b=%27")
            .await
            .unwrap()["rows"],
        json!([{"it": "x'x"}])
    );
    let schema = read(&shop, "db://shop/schema").await.unwrap();
    let text = schema.to_string();
    for hidden in ["secret", "cost", "locked", "till", "closed"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    assert_eq!(
        schema["tables"][1]["columns"][0],
        json!({"name": "sku", "type": "text", "required": true, "key": true})
    );
    assert_eq!(schema["queries"][1]["parameters"], json!(["a", "b"]));
    for uri in [
        "db://shop/tables/locked",
        "db://shop/tables/closed.till",
        "db://shop/tables/public.item",
        "db://shop/tables/pg_catalog.pg_authid",
        "db://shop/tables/store.shelf/1",
        "db://shop/tables/sale/251",
        "db://shop/tables/sale/seven",
    ] {
        assert!(
            matches!(read(&shop, uri).await, Err(ReadFailure::NotFound)),
            "{uri}"
        );
    }
    let few = DatabaseOptions {
        max_rows: 3,
        max_bytes: 200,
        ..at.options()
    };
    let few = at.databases(few);
    assert_eq!(
        read(&few, "db://shop/tables/sale").await.unwrap()["next"],
        "db://shop/tables/sale?offset=3"
    );
    at.sql("UPDATE item SET name = repeat('x', 1000000) WHERE sku = 'TEA-1'");
    let large = read(&few, "db://shop/tables/item/TEA-1").await.unwrap_err();
    let ReadFailure::Handler(ToolError::Failed(large)) = large else {
        panic!("{large:?}");
    };
    assert_eq!(large.message, "the result has more than 200 bytes");
}

#[tokio::test]
async fn nothing_that_a_caller_sends_is_a_statement_of_a_server() {
    let Some(at) = Shop::open() else { return };
    let shop = at.databases(at.options());
    let hostile = [
        "' OR '1'='1",
        "'; DROP TABLE sale; --",
        "\" OR 1=1 --",
        "1 UNION SELECT token FROM secret",
        "x') UNION SELECT token, 1 FROM secret --",
        "%27%20OR%201%3D1",
        "(SELECT token FROM secret)",
        ":month",
        "$1",
        "$$; DELETE FROM sale; $$",
        "\\'; DELETE FROM sale; --",
        "E'\\x27'",
        "2026-03-01\u{0}",
        "'||(SELECT token FROM secret)||'",
        "secret",
        "public.secret",
        "item\" UNION SELECT token FROM secret --",
        "pg_authid",
        "SALE; COPY sale TO PROGRAM 'id'",
        "$(id)",
        "{{7*7}}",
        "\u{ff07} OR 1=1",
        "1;SELECT pg_sleep(9)",
        "pg_sleep(9)",
        "now",
        "infinity",
    ];
    let encoded = |text: &str| {
        text.bytes()
            .map(|it| format!("%{it:02X}"))
            .collect::<String>()
    };
    for text in hostile {
        let spelt = encoded(text);
        let sold = read(&shop, &format!("db://shop/queries/sold?month={spelt}")).await;
        match &sold {
            Ok(found) => assert_eq!(found["rows"], json!([]), "{text}"),
            Err(ReadFailure::Values(why)) => {
                assert!(why.contains("does not take these values"), "{why}")
            }
            Err(ReadFailure::NotFound) => assert!(text.contains('\0')),
            Err(error) => panic!("{text}: {error:?}"),
        }
        let any = read(&shop, &format!("db://shop/queries/any?a={spelt}&b=.")).await;
        if let Ok(any) = any {
            assert_eq!(any["rows"], json!([{"it": format!("{text}.{text}")}]));
        }
        for uri in [
            format!("db://shop/tables/{spelt}"),
            format!("db://shop/tables/{spelt}/x"),
            format!("db://shop/tables/sale/{spelt}"),
            format!("db://shop/queries/{spelt}"),
            format!("db://{spelt}/schema"),
            format!("db://shop/tables/sale?offset={spelt}"),
            format!("db://shop/tables/item/{spelt}"),
            format!("db://shop/schema?{spelt}={spelt}"),
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
        "db://shop/queries/sold?month=2026-01-01&token=y",
        "db://shop/queries/all?month=x",
    ] {
        assert!(
            matches!(read(&shop, uri).await, Err(ReadFailure::Values(_))),
            "{uri}"
        );
    }
    // A function with effects is none of those that may be called.
    let next = read(&shop, "db://shop/queries/next").await.unwrap_err();
    assert!(matches!(next, ReadFailure::Unreadable(_)), "{next:?}");
    assert_eq!(at.sql("SELECT count(*) FROM sale"), "250");
    assert_eq!(at.sql("SELECT is_called FROM counter"), "f");
}

#[tokio::test]
async fn what_takes_too_long_or_is_given_up_ends_at_the_server() {
    let Some(at) = Shop::open() else { return };
    let shop = at.databases(at.options());
    let began = Instant::now();
    let slow = read(&shop, "db://shop/queries/slow").await.unwrap_err();
    assert!(
        matches!(slow, ReadFailure::TimedOut(limit) if limit == Duration::from_millis(500)),
        "{slow:?}"
    );
    assert!(began.elapsed() < PATIENCE);
    // Its own timeout would end it after a minute, and nobody waits for that.
    let patient = DatabaseOptions {
        timeout: Duration::from_secs(60),
        watch: false,
        ..at.options()
    };
    let patient = at.databases(patient);
    let given_up = tokio::time::timeout(
        Duration::from_millis(200),
        read(&patient, "db://shop/queries/slow"),
    );
    assert!(given_up.await.is_err());
    let running = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'reader' AND state = 'active' \
                   AND datname = current_database()";
    let end = Instant::now() + PATIENCE;
    while at.sql(running) != "0" {
        assert!(
            Instant::now() < end,
            "{}",
            at.sql("SELECT * FROM pg_stat_activity")
        );
    }
    assert!(read(&patient, "db://shop/queries/all").await.is_ok());
    // Connections that the server has closed are not the readers' affair.
    at.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader' \
            AND datname = current_database()",
    );
    assert!(read(&patient, "db://shop/queries/all").await.is_ok());
}

#[test]
fn queries_that_write_or_cannot_be_prepared_are_mistakes_at_a_server_too() {
    let Some(at) = Shop::open() else { return };
    for (sql, expected) in [
        ("DELETE FROM sale", "syntax error"),
        ("INSERT INTO sale VALUES (1) RETURNING id", "syntax error"),
        (
            "WITH gone AS (DELETE FROM sale RETURNING id) SELECT * FROM gone",
            "data-modifying statement must be at the top level",
        ),
        ("SELECT 1; DELETE FROM sale", "syntax error"),
        ("SELECT 1) AS q) AS r; DELETE FROM sale; --", "syntax error"),
        ("SELECT * FROM absent", "does not exist"),
        ("SELECT * FROM sale WHERE id = $1", "must have names"),
        ("SELEKT", "syntax error"),
        ("SELECT 1 AS a, 2 AS a", "two of its columns are called `a`"),
        ("", "is empty"),
        ("COPY sale TO PROGRAM 'id'", "syntax error"),
        ("SET default_transaction_read_only = off", "syntax error"),
    ] {
        let query = NamedQuery {
            sql: sql.to_owned(),
            description: None,
        };
        let options = DatabaseOptions {
            queries: [("q".to_owned(), query)].into(),
            ..DatabaseOptions::postgres(&at.address).unwrap()
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
    assert_eq!(at.sql("SELECT count(*) FROM sale"), "250");
    let wrong = at.address.replace(PASSWORD, "wrong-password");
    let options = DatabaseOptions::postgres(&wrong).unwrap();
    assert!(!format!("{options:?}").contains("wrong-password"));
    let error = Databases::open([("shop".to_owned(), options)].into())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cannot be read")
            && error.contains("password authentication failed")
            && !error.contains(&wrong),
        "{error}"
    );
}

#[tokio::test]
async fn a_row_of_a_server_has_one_address() {
    let Some(at) = Shop::open() else { return };
    at.sql(
        "CREATE TABLE label (id uuid PRIMARY KEY); \
         INSERT INTO label VALUES ('11111111-1111-1111-1111-11111111111a'); \
         CREATE TABLE code (id char(4) PRIMARY KEY); INSERT INTO code VALUES ('ab'); \
         CREATE TABLE moment (id timestamptz PRIMARY KEY); INSERT INTO moment VALUES ('2026-01-02 03:04:05+00'); \
         CREATE TABLE amount (id numeric PRIMARY KEY); INSERT INTO amount VALUES (1.50); \
         GRANT SELECT ON label, code, moment, amount TO reader; ALTER ROLE reader SET TimeZone = 'UTC'",
    );
    let shop = at.databases(at.options());
    for (row, others) in [
        (
            "sale/7",
            &[
                "sale/07",
                "sale/%207",
                "sale/7%20",
                "sale/+7",
                "sale/x",
                "Sale/7",
                "public.sale/7",
            ][..],
        ),
        (
            "label/11111111-1111-1111-1111-11111111111a",
            &[
                "label/1111111111111111111111111111111a",
                "label/11111111-1111-1111-1111-11111111111A",
                "label/%7B11111111-1111-1111-1111-11111111111a%7D",
            ],
        ),
        ("code/ab", &["code/ab%20", "code/ab%20%20", "code/AB"]),
        (
            "moment/2026-01-02T03%3A04%3A05%2B00%3A00",
            &[
                "moment/2026-01-02%2003%3A04%3A05%2B00",
                "moment/2026-01-02T04%3A04%3A05%2B01%3A00",
            ],
        ),
        (
            "amount/1.50",
            &["amount/1.5", "amount/01.50", "amount/1.500"],
        ),
    ] {
        let found = read(&shop, &format!("db://shop/tables/{row}")).await;
        assert!(found.is_ok(), "{row}: {found:?}");
        for other in others {
            let found = read(&shop, &format!("db://shop/tables/{other}")).await;
            assert!(
                matches!(found, Err(ReadFailure::NotFound)),
                "{other}: {found:?}"
            );
        }
    }
}

#[tokio::test]
async fn columns_of_one_name_that_come_later_are_an_error_of_a_server() {
    let Some(at) = Shop::open() else { return };
    at.sql("CREATE TABLE one (a int); INSERT INTO one VALUES (1); GRANT SELECT ON one TO reader");
    let mut options = at.options();
    let both = NamedQuery {
        sql: "SELECT one.*, sale.id FROM one, sale WHERE sale.id = 7".to_owned(),
        description: None,
    };
    options.queries.insert("both".to_owned(), both);
    let shop = at.databases(options);
    let uri = "db://shop/queries/both";
    assert_eq!(
        raw(&shop, uri).await.unwrap(),
        r#"{"rows":[{"a":1,"id":7}],"isCut":false}"#
    );
    at.sql("ALTER TABLE one RENAME a TO id");
    let mut told = String::new();
    let end = Instant::now() + PATIENCE;
    while !told.contains("two of its columns are called `id`") {
        assert!(Instant::now() < end, "{told}");
        // A prepared statement keeps its columns, and fails once they are others.
        told = format!("{:?}", raw(&shop, uri).await);
    }
}

#[tokio::test]
async fn slow_subscriptions_are_refused_or_wait_for_quick_ones_at_a_server() {
    let Some(at) = Shop::open() else { return };
    let mut options = DatabaseOptions {
        timeout: Duration::from_secs(30),
        ..at.options()
    };
    let nap = NamedQuery {
        sql: "SELECT pg_sleep(:s::float8)::text AS x, :k AS k".to_owned(),
        description: None,
    };
    options.queries.insert("nap".to_owned(), nap);
    let shop = at.databases(options);
    let resources = shop.resources().unwrap();
    let refused = resources.hear("db://shop/queries/nap?k=x&s=20").await;
    assert!(refused.unwrap_err().contains("takes longer than the 1s"));
    let row = "db://shop/tables/sale/7".to_owned();
    resources.hear(&row).await.unwrap();
    // As if they had become slow after they were subscribed to.
    let naps = (0..20).map(|k| format!("db://shop/queries/nap?k={k}&s=20"));
    let all: Vec<_> = naps.chain([row.clone()]).collect();
    shop.listen_to(&all);
    tokio::time::sleep(Duration::from_millis(500)).await;
    for pieces in 1000..1003 {
        at.sql(&format!("UPDATE sale SET pieces = {pieces} WHERE id = 7"));
        let told = tokio::time::timeout(PATIENCE, shop.changed()).await;
        assert_eq!(told.unwrap(), [row.clone()].into());
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let health = shop.health().unwrap();
        assert!(health.ok, "{health:?}");
        if health.detail.is_some_and(|it| it.contains("is told late")) {
            break;
        }
        assert!(Instant::now() < end, "what is slow is told of");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    shop.listen_to([]);
    let running = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'reader' AND state = 'active' \
                   AND query LIKE '%pg_sleep%' AND datname = current_database()";
    let end = Instant::now() + PATIENCE;
    while at.sql(running) != "0" {
        assert!(Instant::now() < end, "{}", at.sql(running));
    }
}

#[tokio::test]
async fn changes_of_a_server_are_told_to_those_whom_they_concern() {
    let Some(at) = Shop::open() else { return };
    let shop = at.databases(at.options());
    let listened = [
        "db://shop/tables/item".to_owned(),
        "db://shop/queries/sold?month=2026-03-01".to_owned(),
    ];
    let mut lists = shop.changes().unwrap();
    let resources = shop.resources().unwrap();
    for uri in &listened {
        resources.hear(uri).await.unwrap();
    }
    shop.listen_to(&listened);
    let told = async || {
        tokio::time::timeout(PATIENCE, shop.changed())
            .await
            .unwrap()
    };
    at.sql("INSERT INTO secret VALUES ('another')");
    at.sql("UPDATE item SET price = 5 WHERE sku = 'TEA-1'");
    assert_eq!(told().await, [listened[0].clone()].into());
    at.sql("BEGIN; INSERT INTO sale VALUES (300, 'TEA-1', '2026-03-01', 1); ROLLBACK");
    at.sql("INSERT INTO sale VALUES (301, 'TEA-1', '2026-03-01', 1)");
    assert_eq!(told().await, [listened[1].clone()].into());
    assert!(!lists.has_changed().unwrap());
    at.sql("CREATE TABLE fresh (a text); GRANT SELECT ON fresh TO reader");
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
    // A break tells nothing, and what came meanwhile is told after it.
    at.server.sql(&format!(
        "ALTER DATABASE {} ALLOW_CONNECTIONS off",
        at.database
    ));
    at.server.sql(&format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'",
        at.database
    ));
    let end = Instant::now() + PATIENCE;
    while shop.health().unwrap().ok {
        assert!(Instant::now() < end, "the break is told of");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let detail = shop.health().unwrap().detail.unwrap();
    assert!(
        detail.contains("changes of `shop`") && !detail.contains(PASSWORD),
        "{detail}"
    );
    at.server.sql(&format!(
        "ALTER DATABASE {} ALLOW_CONNECTIONS on",
        at.database
    ));
    at.sql("UPDATE item SET price = 6 WHERE sku = 'TEA-1'");
    assert_eq!(told().await, [listened[0].clone()].into());
    while !shop.health().unwrap().ok {
        assert!(Instant::now() < end + PATIENCE, "it is well again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_a_trigger_notifies_of_is_told_at_once_and_what_it_does_not_within_seconds() {
    let Some(at) = Shop::open() else { return };
    at.sql(
        "CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_notify('Shop''s news', ''); RETURN NULL; END $$; \
         CREATE TRIGGER say AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON item \
         FOR EACH STATEMENT EXECUTE FUNCTION say()",
    );
    let shop = at.databases(DatabaseOptions {
        notify: Some("Shop's news".to_owned()),
        ..at.options()
    });
    let listened = [
        "db://shop/tables/item".to_owned(),
        "db://shop/queries/all".to_owned(),
    ];
    let resources = shop.resources().unwrap();
    for uri in &listened {
        resources.hear(uri).await.unwrap();
    }
    shop.listen_to(&listened);
    let told = async || {
        let told = tokio::time::timeout(PATIENCE, shop.changed()).await;
        (told.unwrap(), Instant::now())
    };
    let (item, all) = (listened[0].clone(), listened[1].clone());
    let is_heard = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()";
    let until_heard = || {
        let end = Instant::now() + PATIENCE;
        while at.sql(is_heard).trim() != "1" {
            assert!(Instant::now() < end, "nobody listens");
        }
    };
    until_heard();
    let mut times = Vec::new();
    for price in 1..=20 {
        at.sql(&format!(
            "UPDATE item SET price = {price} WHERE sku = 'TEA-1'"
        ));
        let changed = Instant::now();
        let (uris, heard) = told().await;
        assert_eq!(uris, [item.clone()].into());
        times.push(heard.saturating_duration_since(changed));
    }
    times.sort();
    // With a look every two seconds most of them would take longer.
    assert!(times[15] < Duration::from_millis(200), "{times:?}");
    // No trigger says so: the look finds it.
    at.sql("INSERT INTO sale VALUES (302, 'TEA-1', '2026-03-01', 1)");
    assert_eq!(told().await.0, [all].into());
    // The connection that listens is cut: changes are told all the same, and it is made anew.
    at.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE query LIKE 'LISTEN%' AND datname = current_database()",
    );
    at.sql("UPDATE item SET price = 100 WHERE sku = 'TEA-1'");
    assert_eq!(told().await.0, [item].into());
    until_heard();
}
