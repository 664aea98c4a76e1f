//! Applications in the styles that users of OwlClaw write them in, loaded as they are.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use adapter_tools::{ToolSet, python::PythonOptions};
use bytes::Bytes;
use common::{Running, fixtures};
use serde_json::{Value, json};

/// Loads `app` of the fixture in `directory`; all of its tools can be offered.
async fn load(directory: &str, app: &str) -> (Running, ToolSet) {
    let root = fixtures().join("apps").join(directory);
    let mut options = PythonOptions::new(app, root);
    // Tests leave no files beside the fixtures.
    options
        .env
        .push(("PYTHONDONTWRITEBYTECODE".into(), "1".into()));
    let running = Running::start(options).await;
    let (tools, problems) = ToolSet::collect(running.python.tools());
    assert_eq!(problems, []);
    (running, tools)
}

fn names(tools: &ToolSet) -> Vec<&str> {
    let mut names: Vec<_> = tools.iter().map(adapter_tools::Tool::name).collect();
    names.sort_unstable();
    names
}

fn refusal(tools: &ToolSet, name: &str, arguments: &Value) -> String {
    let refused = tools
        .get(name)
        .unwrap()
        .check(Bytes::from(arguments.to_string()));
    refused.unwrap_err().violations()[0].to_string()
}

#[tokio::test]
async fn an_application_that_is_a_global() {
    let (app, tools) = load("globals", "app.py").await;
    assert_eq!(app.python.info().app, "inventory");
    assert_eq!(names(&tools), ["inventory-check", "reorder-decision"]);
    assert_eq!(
        app.json("inventory-check", json!({"below": 10})).await,
        json!({"low": ["rice", "tea"]})
    );
    // Called with nothing, a handler of nothing but `session` gets OwlClaw's own.
    assert_eq!(
        app.json("inventory-check", json!({})).await["low"],
        json!(["rice", "tea"])
    );
    // All arguments are the session, and those that the handler names are given besides.
    assert_eq!(
        app.json("reorder-decision", json!({"sku": "tea", "count": 10}))
            .await,
        json!({"sku": "tea", "order": 7, "asked": ["count", "sku"]})
    );
    let schema = tools.get("reorder-decision").unwrap().input_schema();
    assert_eq!(
        schema["properties"]["sku"]["description"],
        "Which of the goods."
    );
    assert_eq!(
        refusal(&tools, "reorder-decision", &json!({"count": 1})),
        r#"arguments: expected the member "sku", which is missing"#
    );
    app.python.shutdown().await;
}

#[tokio::test]
async fn an_application_that_a_factory_makes() {
    for spec in ["app.py", "app.py:_create_app()"] {
        let (app, tools) = load("factory", spec).await;
        assert_eq!(app.python.info().app, "trading");
        assert_eq!(names(&tools), ["entry-monitor", "exit-monitor"]);
        let order = json!({"symbol": "600519", "side": "sell", "limit": 1500});
        assert_eq!(
            app.json("entry-monitor", json!({"order": order})).await,
            json!({"symbol": "600519", "side": "SELL", "limit": 1500, "dry_run": true})
        );
        let entry = tools.get("entry-monitor").unwrap();
        // Clients are told in the author's order.
        let text = entry.input_schema_text();
        let places: Vec<_> = [
            "\"order\":",
            "\"dry_run\":",
            "\"symbol\":",
            "\"side\":",
            "\"limit\":",
        ]
        .map(|name| text.find(name).expect(name))
        .into();
        assert!(places.is_sorted(), "{text}");
        assert!(!entry.is_async());
        assert_eq!(entry.description(), "下单前检查。");
        let schema = entry.input_schema();
        assert_eq!(
            schema["properties"]["dry_run"]["description"],
            "只检查，不下单"
        );
        assert_eq!(
            schema["$defs"]["Order"]["properties"]["limit"]["description"],
            "The worst price."
        );
        assert_eq!(
            refusal(
                &tools,
                "entry-monitor",
                &json!({"order": {"symbol": "1", "side": "hold"}})
            ),
            r#"/order/side: expected one of "buy", "sell", found string "hold""#
        );
        assert_eq!(
            app.json("exit-monitor", json!({"a": [1]})).await,
            json!({"signal": {"a": [1]}})
        );
        app.python.shutdown().await;
    }
}

#[tokio::test]
async fn an_application_that_is_local_to_main() {
    let (app, tools) = load("local_to_main", "basic_usage.py").await;
    assert_eq!(app.python.info().app, "basic");
    assert_eq!(names(&tools), ["greet"]);
    assert_eq!(
        app.json("greet", json!({"name": "Anna"})).await,
        json!({"text": "hello Anna", "times": 1})
    );
    // What main() holds is held on to.
    assert_eq!(app.json("greet", json!({"name": "Bo"})).await["times"], 2);
    app.python.shutdown().await;
}

#[tokio::test]
async fn an_application_that_is_local_to_an_asynchronous_main() {
    let (app, tools) = load("local_to_async_main", "app.py").await;
    assert_eq!(names(&tools), ["count"]);
    // Calls beside each other share the lock that main() made.
    let calls: Vec<_> = (0..8)
        .map(|_| app.text("count", json!({"by": 1})))
        .collect();
    let mut counts: Vec<u32> = futures_util::future::join_all(calls)
        .await
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=8).collect::<Vec<_>>());
    let schema = tools.get("count").unwrap().input_schema();
    assert_eq!(
        schema["properties"]["by"],
        json!({"type": "integer", "default": 1, "description": "How far."})
    );
    app.python.shutdown().await;
}

#[tokio::test]
async fn an_application_spread_over_modules() {
    // As a file, and as a module of the repository whose root is the working directory.
    for spec in ["examples/warehouse/app.py", "examples.warehouse.app:app"] {
        let (app, tools) = load("spread", spec).await;
        assert_eq!(app.python.info().app, "warehouse");
        assert_eq!(names(&tools), ["label", "pick", "where"]);
        let picks = json!([{"shelf": [3], "count": 2}, {"shelf": [4, 1], "count": 5}]);
        let output = app
            .call("pick", json!({"picks": picks, "mode": "fast"}))
            .await
            .unwrap();
        let structured: Value = serde_json::from_str(output.structured.unwrap().get()).unwrap();
        assert_eq!(
            structured,
            json!({"total": 7, "shelves": ["3.0", "4.1"], "mode": "fast"})
        );
        assert_eq!(
            app.json("label", json!({"shelf": [7], "copies": 2})).await,
            json!(["S-7.0", "S-7.0"])
        );
        assert_eq!(app.json("where", json!({})).await, json!({"site": "north"}));

        let pick = tools.get("pick").unwrap();
        assert_eq!(pick.description(), "Fetch goods from their shelves.");
        assert_eq!(
            pick.input_schema()["properties"]["mode"]["enum"],
            json!(["fast", "cheap"])
        );
        assert_eq!(
            pick.output_schema().unwrap()["required"],
            json!(["total", "shelves", "mode"])
        );
        assert_eq!(
            refusal(
                &tools,
                "pick",
                &json!({"picks": [{"shelf": [1, 2, 3], "count": 1}]})
            ),
            "/picks/0/shelf: expected at most 2 items, found array of 3 items"
        );
        // A type that only checkers know costs nothing but itself.
        assert_eq!(
            tools.get("where").unwrap().input_schema()["properties"],
            json!({"trace": {"default": null}})
        );
        app.python.shutdown().await;
    }
}
