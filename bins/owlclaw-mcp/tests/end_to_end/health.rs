//! Health turns red while something is wrong, and green when it is over, whether anybody calls or
//! not.
#![cfg(target_os = "linux")]

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpClient, HttpRequest, HttpServer, MODERN, Postgres, failure_of,
    succeeded,
};
use tokio::time::{Instant, sleep};

use crate::support::{Site, call, run};

/// Between two looks: nothing tells that health has changed.
const PAUSE: Duration = Duration::from_millis(50);

async fn look(server: &HttpServer, path: &str) -> (u16, Value) {
    let answer = HttpClient::new(server.address())
        .exchange(&HttpRequest::get(path))
        .await;
    (answer.status, answer.json())
}

/// Waits until `/health` is answered with this status, and this component is in that state, in
/// `/metrics` too.
async fn until(server: &HttpServer, component: &str, works: bool) -> Value {
    let end = Instant::now() + GENEROUS;
    loop {
        let (status, told) = look(server, "/health").await;
        let parts = told["components"].as_array().unwrap();
        let part = parts.iter().find(|part| part["name"] == component);
        let part = part
            .unwrap_or_else(|| panic!("no {component} in {told}"))
            .clone();
        let metrics = HttpClient::new(server.address())
            .exchange(&HttpRequest::get("/metrics"))
            .await;
        let up = format!(
            "owlclaw_mcp_component_up{{component=\"{component}\"}} {}\n",
            u8::from(works)
        );
        let is_so = part["ok"] == works && metrics.text().contains(&up);
        if is_so && (status == 200) == works {
            return part;
        }
        assert!(Instant::now() < end, "never {works}: {status} {told}");
        sleep(PAUSE).await;
    }
}

async fn append(server: &HttpServer, mark: &str) -> Option<String> {
    let mut client = HttpClient::new(server.address());
    let answer = client
        .post_modern("tools/call", call("append", json!({"mark": mark})))
        .await;
    let answer = answer.response();
    if succeeded(answer) {
        return None;
    }
    Some(
        failure_of(answer)["data"]["reason"]
            .as_str()
            .unwrap_or("?")
            .to_owned(),
    )
}

#[tokio::test]
async fn a_ledger_that_is_taken_away_is_seen_before_anybody_calls() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    assert_eq!(append(&server, "before").await, None);
    until(&server, "ledger", true).await;
    std::fs::rename(site.path("ledger.db"), site.path("away.db")).unwrap();
    let told = until(&server, "ledger", false).await;
    assert!(told["detail"].is_string(), "{told}");
    assert_eq!(look(&server, "/health/ready").await.0, 503);
    assert_eq!(look(&server, "/health/live").await.0, 200);
    std::fs::rename(site.path("away.db"), site.path("ledger.db")).unwrap();
    until(&server, "ledger", true).await;
    assert_eq!(append(&server, "after").await, None);
}

#[tokio::test]
async fn a_database_that_is_stopped_and_started_is_seen_without_a_call() {
    let Some(mut postgres) = Postgres::start() else {
        return;
    };
    let site = Site::new(json!({
        "ledger": {"path": null, "url": postgres.url(), "max_wait_seconds": 1},
        "tasks": {"path": "tasks.db"},
    }));
    let server = site.http().await;
    assert_eq!(append(&server, "before").await, None);
    until(&server, "ledger", true).await;
    postgres.stop();
    until(&server, "ledger", false).await;
    let reason = append(&server, "meanwhile").await;
    assert!(reason.is_some(), "nothing runs that is not recorded");
    until(&server, "quotas", false).await;
    postgres.restart();
    until(&server, "ledger", true).await;
    until(&server, "quotas", true).await;
    let at_last = async {
        while append(&server, "after").await.is_some() {
            sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(GENEROUS, at_last).await.unwrap();
}

#[tokio::test]
async fn workers_that_do_not_come_back_are_seen_until_they_do() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    until(&server, "application", true).await;
    site.write("app.py", "import no_such_module\n");
    let mut client = server.client();
    client.open(MODERN).await;
    let died = client
        .request("tools/call", call("die_with_all", json!({})))
        .await;
    assert_eq!(died.failure()["code"], -32005);
    let told = until(&server, "application", false).await;
    assert!(told["detail"].is_string(), "{told}");
    site.write("app.py", crate::support::WORKSHOP);
    until(&server, "application", true).await;
}

#[tokio::test]
async fn strangers_are_told_less_and_no_numbers_where_clients_prove_who_they_are() {
    let site = Site::new(json!({"identity": {"api_keys": {"file": "keys.json"}}}));
    let mut keys = Vec::new();
    for role in ["metrics", "other"] {
        let words = ["keys", "create", "--principal", role, "--role", role];
        let made = run(site.command(&words)).await;
        assert_eq!(made.code, Some(0), "{}", made.messages);
        let mut words = made.output.split_whitespace();
        let key = words.find(|word| word.starts_with("owl_"));
        keys.push(key.expect("the key is printed").to_owned());
    }
    let server = site.http().await;
    let ask = async |path: &str, key: Option<&str>| {
        let mut request = HttpRequest::get(path);
        if let Some(key) = key {
            request = request.header("Authorization", &format!("Bearer {key}"));
        }
        HttpClient::new(server.address()).exchange(&request).await
    };
    assert_eq!(ask("/metrics", None).await.status, 401);
    assert_eq!(ask("/metrics", Some(&keys[1])).await.status, 403);
    let numbers = ask("/metrics", Some(&keys[0])).await;
    assert_eq!(numbers.status, 200);
    assert!(
        numbers
            .text()
            .contains("owlclaw_mcp_authentications_total{means=\"api_key\"}")
    );
    for key in [None, Some(keys[1].as_str())] {
        let told = ask("/health", key).await;
        assert_eq!(told.status, 200);
        assert_eq!(told.json(), json!({"status": "ok", "components": []}));
    }
    let told = ask("/health", Some(&keys[0])).await.json();
    assert!(told["version"].is_string(), "{told}");
    assert!(told["components"].as_array().unwrap().len() > 1, "{told}");
    assert_eq!(ask("/health/live", None).await.status, 200);
}

#[tokio::test]
async fn clients_refused_for_want_of_counters_and_the_operator_are_told_why() {
    let site = Site::new(json!({"governance": {"max_clients": 2}}));
    let call_as = async |server: &HttpServer, name: &str| {
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": call("append", json!({"mark": name})),
        });
        let request =
            HttpRequest::post("/mcp", message.to_string()).header("X-MCP-Client-ID", name);
        let answer = HttpClient::new(server.address()).exchange(&request).await;
        let answer = answer.json();
        (!succeeded(&answer)).then(|| {
            let reason = &failure_of(&answer)["data"]["reason"];
            reason.as_str().unwrap_or("?").to_owned()
        })
    };
    for is_again in [false, true] {
        let mut server = site.http().await;
        assert_eq!(look(&server, "/health").await.0, 200);
        for name in ["anna", "bert"] {
            assert_eq!(call_as(&server, name).await, None, "{is_again}");
        }
        let refused = call_as(&server, "carl").await;
        assert_eq!(refused.as_deref(), Some("too_many_clients"), "{is_again}");
        let (status, told) = look(&server, "/health").await;
        assert_eq!(status, 200, "those who are counted are served");
        assert_eq!(told["status"], "degraded");
        let parts = told["components"].as_array().unwrap();
        let part = parts.iter().find(|part| part["name"] == "clients").unwrap();
        assert_eq!(part["ok"], false);
        let detail = part["detail"].as_str().unwrap();
        assert!(detail.contains("governance.max_clients"), "{detail}");
        let metrics = look_at_metrics(&server).await;
        let counted = "owlclaw_mcp_quota_newcomers_refused_total 1\n";
        assert!(metrics.contains(counted), "{metrics}");
        server.process().signal("TERM").await;
        server.wait_exit(GENEROUS).await;
    }
}

async fn look_at_metrics(server: &HttpServer) -> String {
    let request = HttpRequest::get("/metrics");
    let answer = HttpClient::new(server.address()).exchange(&request).await;
    answer.text().to_owned()
}
