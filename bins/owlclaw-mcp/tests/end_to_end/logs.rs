//! Log entries for requests, decisions and failures (R9.8, R11.2 to R11.5, R11.9).

use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpClient, HttpRequest, HttpServer, StdioServer, wait_until,
};

use crate::support::{END, Site, call, log};

const REQUESTS: &str = "owlclaw_mcp::requests";
const DECISIONS: &str = "owlclaw_mcp::decisions";

/// Calls one tool after the other on stdio, and tells what the log had from each target.
async fn lines_of(site: &Site, calls: &[(&str, Value)]) -> (Vec<Value>, Vec<Value>) {
    let mut server: StdioServer = site.stdio();
    server.open("2025-11-25").await;
    for (tool, arguments) in calls {
        server
            .request("tools/call", call(tool, arguments.clone()))
            .await;
    }
    server.close_input();
    assert!(server.wait_exit(END).await.success());
    let all = log(&server.stderr());
    let of = |target: &str| {
        let lines = all.iter().filter(|line| line["target"] == target);
        lines.cloned().collect::<Vec<_>>()
    };
    (of(REQUESTS), of(DECISIONS))
}

fn of_calls(lines: &[Value]) -> Vec<&Value> {
    let calls = lines.iter().filter(|it| it["method"] == "tools/call");
    calls.collect()
}

#[tokio::test]
async fn every_request_has_a_line_with_all_that_is_known_of_it() {
    let site = Site::new(json!({
        "governance": {
            "default_quota": {"max_calls_per_day": 10, "monthly_budget": "5.00"},
            "tools": {"echo": {"estimated_cost": "0.25"}},
        },
    }));
    let server: HttpServer = site.http().await;
    let mut client = HttpClient::new(server.address()).with_header("X-MCP-Client-ID", "ana");
    let mut params = call("echo", json!({"text": "pay with 4012 8888 8888 1881"}));
    params["_meta"] = json!({
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    });
    client.post_modern("tools/call", params).await;
    let listed = client.post_modern("tools/list", json!({})).await;
    let _ = listed.result();
    wait_until("both lines are there", GENEROUS, || {
        server.stderr().contains("tools/list")
    })
    .await;
    let text = server.stderr();
    // A time may have four eights, too.
    assert!(!text.contains("8888 8888"), "{text}");
    let all = log(&text);
    let line = all
        .iter()
        .find(|it| it["target"] == REQUESTS && it["method"] == "tools/call");
    let line = line.unwrap_or_else(|| panic!("{text}"));
    for (member, expected) in [
        ("level", json!("INFO")),
        ("message", json!("request")),
        ("principal", json!("ana")),
        ("transport", json!("http")),
        ("version", json!("2026-07-28")),
        ("name", json!("echo")),
        ("decision", json!("allow")),
        ("cost", json!("0.25")),
        ("trace_id", json!("0af7651916cd43dd8448eb211c80319c")),
    ] {
        assert_eq!(line[member], expected, "{member} of {line}");
    }
    assert!(
        line["id"].is_string() && line["duration_ms"].is_number(),
        "{line}"
    );
    let params: Value = serde_json::from_str(line["params"].as_str().unwrap()).unwrap();
    let text = params["text"].as_str().unwrap();
    assert!(text.starts_with("pay with [redacted"), "{text}");
    let left: Value = serde_json::from_str(line["remaining"].as_str().unwrap()).unwrap();
    assert_eq!(left["day"], 9, "{line}");
    assert_eq!(left["budget"], "4.75", "{line}");
    // The ledger has the call under the same name.
    let calls = site.calls();
    assert_eq!(line["call"], json!(calls[0].call.to_string()), "{line}");
    let decision = all.iter().find(|it| it["target"] == DECISIONS).unwrap();
    for (member, expected) in [
        ("decision", json!("allow")),
        ("capability", json!("tool/echo")),
        ("principal", json!("ana")),
        ("trace_id", line["trace_id"].clone()),
        ("id", line["id"].clone()),
    ] {
        assert_eq!(decision[member], expected, "{member} of {decision}");
    }
    let list = all.iter().find(|it| it["method"] == "tools/list").unwrap();
    assert_eq!(
        (&list["outcome"], &list["result"]),
        (&json!("ok"), &json!("list"))
    );
    assert_eq!(
        list["decision"],
        Value::Null,
        "nothing is decided about lists"
    );
}

#[tokio::test]
async fn what_is_refused_or_fails_says_why_and_how_much_that_matters() {
    let site = Site::new(json!({
        "development": true,
        "governance": {"default": {"tools": {"deny": ["spin"], "hide": ["meet"]}}},
    }));
    let calls = [
        ("echo", json!({"text": "x"})),
        ("echo", json!({"text": 1})),
        ("fail", json!({"why": "for want of a nail"})),
        ("spin", json!({})),
        ("meet", json!({})),
        ("die", json!({"status": 3})),
    ];
    let (requests, decisions) = lines_of(&site, &calls).await;
    let seen: Vec<_> = of_calls(&requests)
        .iter()
        .map(|it| {
            let text = |member: &str| it[member].as_str().unwrap_or("-").to_owned();
            (
                text("level"),
                text("outcome"),
                text("error_type"),
                text("reason"),
            )
        })
        .collect();
    let expected = [
        ("INFO", "ok", "-", "-"),
        ("WARN", "error", "invalid_arguments", "-"),
        ("WARN", "error", "handler", "-"),
        ("WARN", "refused", "denied", "permission"),
        ("WARN", "refused", "unknown", "not_visible"),
        ("ERROR", "error", "crashed", "-"),
    ];
    let seen: Vec<_> = seen
        .iter()
        .map(|(a, b, c, d)| (a.as_str(), b.as_str(), c.as_str(), d.as_str()))
        .collect();
    assert_eq!(seen, expected, "{requests:#?}");
    let failed = of_calls(&requests)[2];
    assert!(
        failed["error"].as_str().unwrap().contains("nail"),
        "{failed}"
    );
    let stack = failed["stack"].as_str().unwrap_or_default();
    assert!(
        stack.contains("Traceback") && stack.contains("app.py"),
        "{failed}"
    );
    assert_eq!(of_calls(&requests)[3]["code"], -32003);
    assert_eq!(of_calls(&requests)[5]["code"], -32005);
    let decided: Vec<_> = decisions.iter().map(|it| &it["decision"]).collect();
    assert_eq!(
        decided,
        ["allow", "allow", "allow", "deny", "deny", "allow"]
    );
    assert!(
        decisions[3]["call"].is_string(),
        "refusals are on record: {}",
        decisions[3]
    );
}

#[tokio::test]
async fn a_stack_is_for_development_alone() {
    let site = Site::new(json!({}));
    let (requests, _) = lines_of(&site, &[("fail", json!({"why": "x"}))]).await;
    let failed = of_calls(&requests)[0];
    assert_eq!(failed["error_type"], "handler");
    assert_eq!(failed["stack"], Value::Null, "{failed}");
}

#[tokio::test]
async fn what_the_engine_answers_itself_has_a_line_too() {
    let site = Site::new(json!({}));
    let mut server = site.stdio();
    server.open("2025-11-25").await;
    server.request("no/such/method", json!({})).await;
    server.send_line(b"{").await;
    server.receive().await;
    server.close_input();
    assert!(server.wait_exit(END).await.success());
    let lines = log(&server.stderr());
    let lines: Vec<_> = lines.iter().filter(|it| it["target"] == REQUESTS).collect();
    let seen: Vec<_> = lines
        .iter()
        .map(|it| {
            (
                it["method"].as_str(),
                it["code"].as_i64(),
                it["level"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        (Some("initialize"), None, "INFO"),
        (Some("no/such/method"), Some(-32601), "WARN"),
        (None, Some(-32700), "WARN"),
    ];
    assert_eq!(seen, expected, "{lines:#?}");
}

#[tokio::test]
async fn which_lines_there_are_is_for_the_operator_to_say() {
    let calls = [
        ("echo", json!({"text": "x"})),
        ("fail", json!({"why": "x"})),
        ("die", json!({"status": 3})),
    ];
    // Of the calls: all, those that failed, those that operators must look after.
    for (logging, expected) in [
        (json!({"level": "DEBUG"}), 3),
        (json!({}), 3),
        (json!({"requests": "errors"}), 2),
        (json!({"level": "WARNING"}), 2),
        (json!({"requests": "none"}), 1),
        (json!({"level": "ERROR"}), 1),
    ] {
        let site = Site::new(json!({"logging": logging}));
        let (requests, _) = lines_of(&site, &calls).await;
        let seen = of_calls(&requests);
        assert_eq!(seen.len(), expected, "{logging}: {seen:#?}");
    }
}

#[tokio::test]
async fn all_lines_of_a_request_and_its_record_have_one_trace_id_without_a_collector() {
    let site = Site::new(json!({}));
    let calls = [
        ("echo", json!({"text": "a"})),
        ("echo", json!({"text": "b"})),
        ("no_such_tool", json!({})),
    ];
    let (requests, decisions) = lines_of(&site, &calls).await;
    let trace_of = |line: &Value| line["trace_id"].as_str().unwrap_or_default().to_owned();
    for line in requests.iter().chain(&decisions) {
        assert_eq!(trace_of(line).len(), 32, "{line}");
    }
    let of_calls = of_calls(&requests);
    let traces: Vec<_> = of_calls.iter().map(|line| trace_of(line)).collect();
    assert_eq!(traces.len(), 3, "{requests:?}");
    assert_ne!(traces[0], traces[1], "each request has its own");
    let decided: Vec<_> = decisions.iter().map(trace_of).collect();
    assert_eq!(decided, traces);
    let recorded = site.calls().into_iter();
    let recorded: Vec<_> = recorded.filter_map(|it| it.started.trace_id).collect();
    assert_eq!(recorded, traces);
}

#[tokio::test]
async fn a_request_that_http_refuses_has_a_line() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let client = HttpClient::new(server.address());
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (request, status) in [
        (
            HttpRequest::get("/nowhere").header("traceparent", trace),
            404,
        ),
        (
            HttpRequest::get("/mcp").header("origin", "https://evil.example"),
            403,
        ),
        (HttpRequest::new("PUT", "/mcp"), 405),
        (HttpRequest::get("/mcp"), 400),
    ] {
        let answer = client.exchange(&request).await;
        assert_eq!(answer.status, status);
    }
    let lines = || {
        let all = log(&server.stderr());
        let refused = all.into_iter();
        let refused = refused.filter(|it| it["message"] == "request refused by HTTP");
        refused.collect::<Vec<_>>()
    };
    wait_until("there are four lines", GENEROUS, || lines().len() == 4).await;
    let lines = lines();
    let told = |line: &Value| (line["status"].as_u64(), line["path"].clone());
    let told: Vec<_> = lines.iter().map(told).collect();
    let expected = [
        (404, "/nowhere"),
        (403, "/mcp"),
        (405, "/mcp"),
        (400, "/mcp"),
    ];
    assert_eq!(
        told,
        expected.map(|(status, path)| (Some(status), json!(path)))
    );
    assert_eq!(lines[0]["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    assert!(
        lines
            .iter()
            .all(|it| it["level"] == "WARN" && it["peer"].is_string()),
        "{lines:?}"
    );
    assert!(
        lines[0]["error"]
            .as_str()
            .unwrap()
            .contains("there is nothing here"),
        "{lines:?}"
    );
}
