//! Log entries for requests, decisions and failures (R9.8, R11.2 to R11.5, R11.9).

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpClient, HttpServer, StdioServer, wait_until};

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
