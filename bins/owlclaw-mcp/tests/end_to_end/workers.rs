//! Effects of the configuration on an application: number of processes, states, schemas.

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, MODERN, wait_until};

use crate::support::{Site, call, names, run, text};

const APP: &str = r#"
import asyncio
import os
import time
from pathlib import Path

from owlclaw import OwlClaw

app = OwlClaw("works")
app.mount_skills("skills")
counted = 0


@app.handler("count")
def count() -> dict:
    """Counts, in memory."""
    global counted
    counted += 1
    return {"counted": counted, "process": os.getpid()}


@app.handler("wait")
def wait(file: str) -> str:
    """Waits for a file."""
    while not Path(file).exists():
        time.sleep(0.01)
    return "generation 1"


@app.handler("weigh")
def weigh(session: dict) -> dict:
    """Takes anything, as far as its code says."""
    return session


@app.state("till")
async def till() -> dict:
    return {"open": True, "counted": counted}


@app.state("broken")
def broken() -> dict:
    raise RuntimeError("no till")
"#;

fn site(settings: Value) -> Site {
    let site = Site::new(settings);
    site.write("app.py", APP);
    site
}

#[tokio::test]
async fn states_are_offered_if_asked_for_and_governed() {
    let site = site(json!({}));
    let mut server = site.stdio();
    server.open(MODERN).await;
    let tools = server.request("tools/list", Value::Null).await;
    assert_eq!(
        names(tools.result(), "tools", "name"),
        ["count", "wait", "weigh"]
    );
    let unknown = server
        .request("resources/read", json!({"uri": "state://till"}))
        .await;
    assert_eq!(unknown.error()["data"]["code"], -32002);

    let site = self::site(json!({
        "workers": {"count": 1},
        "states": {"tool": true, "resources": true},
        "governance": {"clients": {"cashier": {
            "tools": {"allow": ["*"]}, "resources": {"allow": ["state://till"]},
        }}},
    }));
    let mut server = site.stdio_as("cashier");
    server.open("2025-11-25").await;
    server.request("tools/call", call("count", json!({}))).await;
    let now = json!({"open": true, "counted": 1});
    let asked = call("query_state", json!({"state_name": "till"}));
    let told = server.request("tools/call", asked).await;
    assert_eq!(told.result()["structuredContent"], now);
    let asked = call("query_state", json!({"state_name": "no-such"}));
    let refused = server.request("tools/call", asked).await;
    assert_eq!(refused.result()["isError"], true);

    let list = server.request("resources/list", Value::Null).await;
    assert_eq!(names(list.result(), "resources", "uri"), ["state://till"]);
    let read = server
        .request("resources/read", json!({"uri": "state://till"}))
        .await;
    let contents = &read.result()["contents"][0];
    assert_eq!(contents["mimeType"], "application/json");
    let state: Value = serde_json::from_str(contents["text"].as_str().unwrap()).unwrap();
    assert_eq!(state, now);
    // One that it may not see is as one that does not exist.
    for uri in ["state://broken", "state://no-such"] {
        let unknown = server.request("resources/read", json!({"uri": uri})).await;
        assert_eq!(unknown.code(), -32002, "{uri}");
    }
}

#[tokio::test]
async fn a_state_that_cannot_be_read_is_an_error_and_not_a_word_of_why() {
    let site = site(json!({"states": {"resources": true}}));
    let mut server = site.stdio();
    server.open("2025-11-25").await;
    let failed = server
        .request("resources/read", json!({"uri": "state://broken"}))
        .await;
    assert_eq!(failed.code(), -32603);
    assert!(!failed.error().to_string().contains("no till"));
}

#[tokio::test]
async fn what_a_skill_declares_takes_the_place_of_what_code_hints_at() {
    let site = site(json!({}));
    site.write(
        "skills/stock/weigh/SKILL.md",
        "---\nname: weigh\ndescription: Weighs.\nmetadata:\n  tools_schema:\n    weigh:\n      \
         parameters:\n        type: object\n        additionalProperties: false\n        \
         required: [grams]\n        properties: {grams: {type: integer, minimum: 1}}\n---\n",
    );
    // What nothing can be made of leaves nothing to check arguments by.
    site.write(
        "skills/stock/count/SKILL.md",
        "---\nname: count\ndescription: Counts.\nmetadata:\n  tools_schema:\n    count:\n      \
         parameters: {type: object, properties: {x: {$ref: 'https://example.com/x'}}}\n---\n",
    );
    let mut server = site.stdio();
    server.open("2025-11-25").await;
    let list = server.request("tools/list", Value::Null).await;
    assert_eq!(names(list.result(), "tools", "name"), ["wait", "weigh"]);
    let weigh = &list.result()["tools"][1]["inputSchema"];
    assert_eq!(weigh["required"], json!(["grams"]), "{weigh}");
    let refused = server
        .request("tools/call", call("weigh", json!({"grams": 0})))
        .await;
    assert_eq!(refused.result()["isError"], true);
    let weighed = server
        .request("tools/call", call("weigh", json!({"grams": 5})))
        .await;
    assert_eq!(weighed.result()["structuredContent"], json!({"grams": 5}));
    server
        .process()
        .wait_stderr("cannot be offered: the schema of its arguments")
        .await;
}

#[tokio::test]
async fn one_worker_shares_its_memory_among_all_calls() {
    let site = site(json!({"workers": {"count": 1}}));
    let mut server = site.stdio();
    server.open(MODERN).await;
    let mut processes = Vec::new();
    for expected in 1..=20 {
        let counted = server.request("tools/call", call("count", json!({}))).await;
        let counted = &counted.result()["structuredContent"];
        assert_eq!(counted["counted"], expected);
        processes.push(counted["process"].as_u64().unwrap());
    }
    processes.dedup();
    assert_eq!(processes.len(), 1);
}

#[tokio::test]
async fn synchronous_handlers_run_beside_each_other() {
    let site = site(json!({"workers": {"count": 4}}));
    let server = site.http().await;
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..2 {
        let mut client = server.client();
        let file = site.path(&format!("file-{number}"));
        waiting.spawn(async move {
            client.open("2025-11-25").await;
            let arguments = json!({"file": file});
            client.request("tools/call", call("wait", arguments)).await
        });
    }
    wait_until("both have begun", GENEROUS, || {
        let calls = site.calls();
        2 == calls
            .iter()
            .filter(|call| call.started.capability == "tool/wait")
            .count()
    })
    .await;
    let mut client = server.client();
    client.open("2025-11-25").await;
    // Two are held up and one is kept for asynchronous handlers, of which the application has a
    // state; the fourth runs it.
    let counted = client.request("tools/call", call("count", json!({}))).await;
    assert_eq!(counted.result()["structuredContent"]["counted"], 1);
    for number in 0..2 {
        site.write(&format!("file-{number}"), "");
    }
    while let Some(reply) = waiting.join_next().await {
        assert_eq!(text(reply.unwrap().result()), "generation 1");
    }
}

#[tokio::test]
async fn code_that_changes_is_served_and_what_runs_ends_where_it_began() {
    let site = site(json!({}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let file = site.path("file");
    let waiting = server
        .voice
        .request("tools/call", call("wait", json!({"file": file})));
    server.send(&waiting).await;
    wait_until("it has begun", GENEROUS, || !site.calls().is_empty()).await;

    // One that cannot be loaded changes nothing.
    site.write("app.py", format!("{APP}\nimport no_such_module\n"));
    server.process().wait_stderr("no_such_module").await;
    let counted = server.request("tools/call", call("count", json!({}))).await;
    assert_eq!(counted.result()["structuredContent"]["counted"], 1);

    let changed = APP.replace("generation 1", "generation 2");
    let more = "\n@app.handler(\"more\")\ndef more() -> str:\n    return \"more\"\n";
    site.write("app.py", format!("{changed}{more}"));
    while server.receive().await["method"] != "notifications/tools/list_changed" {}
    let list = server.request("tools/list", Value::Null).await;
    assert_eq!(
        names(list.result(), "tools", "name"),
        ["count", "wait", "weigh", "more"]
    );
    site.write("file", "");
    let again = server
        .request("tools/call", call("wait", json!({"file": file})))
        .await;
    assert_eq!(text(again.result()), "generation 2");
    let before = again.earlier.into_iter();
    let old = match before.into_iter().find(|it| it["id"] == waiting["id"]) {
        Some(old) => old,
        None => server.receive_answer(&waiting["id"]).await,
    };
    assert_eq!(text(&old["result"]), "generation 1");
}

#[tokio::test]
async fn an_application_imports_from_the_directory_it_is_run_from() {
    let site = Site::new(json!({}));
    site.write("shop/__init__.py", "");
    site.write(
        "shop/handlers.py",
        "def greet(name: str) -> str:\n    return f'Good day, {name}.'\n",
    );
    site.write(
        "shop/app.py",
        "from owlclaw import OwlClaw\nfrom shop.handlers import greet\n\
         app = OwlClaw('shop')\napp.mount_skills('skills')\napp.handler('greet')(greet)\n",
    );
    let said =
        run(site.command(&["tools", "list", "--app", "shop/app.py", "--format", "json"])).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    assert!(said.output.contains("\"greet\""), "{}", said.output);
    // Workers that are not wanted any more say nothing about it.
    assert!(!said.messages.contains("Traceback"), "{}", said.messages);
}
