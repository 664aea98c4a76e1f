//! Agreement of `/metrics` with its documentation, the dashboard and the alert rules.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use testkit::{Conversation, HttpClient, HttpRequest, HttpServer, MODERN};

use crate::support::{Site, call};

const DASHBOARD: &str = include_str!("../../../../deploy/grafana/owlclaw-mcp.json");
const ALERTS: &str = include_str!("../../../../deploy/prometheus/alerts.yml");
const UPSTREAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../crates/gateway/tests/upstream.py"
);
const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

/// Metrics that only exist where clients must authenticate, or traces go to a collector; the
/// program has no prompts.
const SELDOM: [&str; 5] = [
    "owlclaw_mcp_authentications_total",
    "owlclaw_mcp_authentication_failures_total",
    "owlclaw_mcp_prompt_gets_total",
    "owlclaw_mcp_spans_total",
    "owlclaw_mcp_spans_queued",
];

async fn metrics(server: &HttpServer) -> String {
    let client = HttpClient::new(server.address());
    let answer = client.exchange(&HttpRequest::get("/metrics")).await;
    assert_eq!(answer.status, 200);
    answer.text().to_owned()
}

/// The labels of each metric of a running server, by its name.
fn told(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
        let labels = told.entry(name.to_owned()).or_default();
        labels.extend(labels_in(rest));
    }
    told
}

/// The names before `=` in `{…}` at the beginning.
fn labels_in(text: &str) -> Vec<String> {
    let Some(inner) = text.strip_prefix('{') else {
        return Vec::new();
    };
    let mut names = Vec::new();
    let mut rest = inner;
    while let Some(end) = rest.find(['=', '!']) {
        names.push(rest[..end].trim_matches([',', ' ']).to_owned());
        let Some(quoted) = rest[end..].split_once('"').map(|(_, quoted)| quoted) else {
            break;
        };
        let Some((_, after)) = quoted.split_once('"') else {
            break;
        };
        if after.starts_with('}') {
            break;
        }
        rest = after;
    }
    names
}

/// Every metric that an expression of Prometheus names, with the labels it selects by.
fn named(expression: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find("owlclaw_mcp_") {
        rest = &rest[at..];
        let end = rest
            .find(|it: char| !(it.is_ascii_alphanumeric() || it == '_'))
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        found.push((name.to_owned(), labels_in(after)));
        rest = after;
    }
    found
}

/// Labels that an expression groups by.
fn grouped(expression: &str) -> Vec<String> {
    let mut labels = Vec::new();
    for part in expression.split("by (").skip(1) {
        let list = part.split(')').next().unwrap();
        labels.extend(list.split(',').map(|it| it.trim().to_owned()));
    }
    labels
}

fn expressions() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    match value.as_str() {
                        Some(text) if name == "expr" => found.push(text.to_owned()),
                        _ => collect(value, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|it| collect(it, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(&serde_json::from_str(DASHBOARD).unwrap(), &mut found);
    let rules = ALERTS
        .lines()
        .filter_map(|it| it.trim().strip_prefix("expr: "));
    found.extend(rules.map(str::to_owned));
    found
}

/// Server in which, when this returns, every metric has a value.
async fn busy_server(site: &Site) -> HttpServer {
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    for (tool, arguments) in [
        ("echo", json!({"text": "x"})),
        ("fail", json!({"why": "x"})),
        ("spin", json!({})),
        ("no-such", json!({})),
    ] {
        client.request("tools/call", call(tool, arguments)).await;
    }
    let read = json!({"uri": "skill://stock/counting"});
    client.request("resources/read", read).await;
    server
}

fn site() -> Site {
    let site = Site::new(json!({
        "http": {"websocket": {"enabled": true}},
        "ledger": {"verification": {"every_seconds": 60}},
        "upstreams": {
            "dead": {"command": "/no/such/program"},
            "up": {"command": "python3", "args": [UPSTREAM, "stdio", "up"]},
        },
        "governance": {
            "default": {"tools": {"deny": ["spin"], "hide": ["meet"]}},
            "clients": {"ana": {"quota": {"max_calls_per_day": 10, "monthly_budget": "1.00"}}},
        },
    }));
    site.write("up/.keep", "");
    site.skill("stock", "counting", "");
    site
}

#[tokio::test]
async fn every_metric_and_label_of_dashboard_and_alerts_is_told_by_a_running_server() {
    let site = site();
    let server = busy_server(&site).await;
    let told = told(&metrics(&server).await);
    let expressions = expressions();
    assert!(40 < expressions.len(), "{}", expressions.len());
    // What Prometheus adds by itself.
    let added = ["instance", "job", "le"].map(str::to_owned);
    // Nobody asks for a prompt in the program, which has none.
    let quiet = ["owlclaw_mcp_prompt_gets_total"];
    for expression in &expressions {
        for (name, labels) in named(expression) {
            if quiet.contains(&name.as_str()) {
                continue;
            }
            let known = told
                .get(&name)
                .unwrap_or_else(|| panic!("no {name}, which `{expression}` asks for"));
            for label in labels.iter().chain(&grouped(expression)) {
                assert!(
                    known.contains(label) || added.contains(label),
                    "{name} has no label {label}, which `{expression}` asks for"
                );
            }
        }
    }
}

#[tokio::test]
async fn calls_states_and_attempts_of_upstreams_are_counted() {
    let site = site();
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    for tool in ["mcp_up_echo", "mcp_up_fail", "mcp_up_die", "mcp_up_echo"] {
        client.request("tools/call", call(tool, json!({}))).await;
    }
    let text = metrics(&server).await;
    for line in [
        r#"owlclaw_mcp_upstream_state{upstream="dead",state="degraded"} 1"#,
        r#"owlclaw_mcp_upstream_state{upstream="up",state="ready"} 1"#,
        r#"owlclaw_mcp_upstream_state{upstream="up",state="login_needed"} 0"#,
        r#"owlclaw_mcp_upstream_calls_total{upstream="up",outcome="ok"} 2"#,
        r#"owlclaw_mcp_upstream_calls_total{upstream="up",outcome="error"} 1"#,
        r#"owlclaw_mcp_upstream_calls_total{upstream="up",outcome="unknown"} 1"#,
        r#"owlclaw_mcp_upstream_call_seconds_count{upstream="up"} 4"#,
        r#"owlclaw_mcp_upstream_call_seconds_count{upstream="dead"} 0"#,
        r#"owlclaw_mcp_upstream_connection_attempts_total{upstream="up",result="ok"} 2"#,
        r#"owlclaw_mcp_upstream_reconnects_total{upstream="up"} 1"#,
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}: {text}");
    }
    let failed =
        r#"owlclaw_mcp_upstream_connection_attempts_total{upstream="dead",result="failed"} 0"#;
    assert!(!text.contains(failed), "{text}");
}

#[tokio::test]
async fn alerts_ask_for_parts_that_there_are() {
    let site = site();
    let server = site.http().await;
    let text = metrics(&server).await;
    let mut asked = 0;
    for part in ALERTS.split("component").skip(1) {
        let Some(name) = part.trim_start_matches(['!', '=', '~']).strip_prefix('"') else {
            continue;
        };
        for name in name.split('"').next().unwrap().split('|') {
            let line = format!("owlclaw_mcp_component_up{{component=\"{name}\"}}");
            assert!(text.contains(&line), "there is no part `{name}`: {text}");
            asked += 1;
        }
    }
    assert!(asked > 0);
}

#[tokio::test]
async fn what_is_documented_is_told_and_what_is_told_is_documented() {
    let site = site();
    let server = busy_server(&site).await;
    let text = metrics(&server).await;
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        kinds.insert(name, kind);
    }
    let told = told(&text);
    let mut documented = BTreeSet::new();
    for row in DOCUMENT
        .lines()
        .filter_map(|it| it.strip_prefix("| `owlclaw_mcp_"))
    {
        let (name, rest) = row.split_once('`').unwrap();
        let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
        let name = format!("owlclaw_mcp_{name}");
        let kind = rest.split('|').nth(1).unwrap().trim();
        documented.insert(name.clone());
        if SELDOM.contains(&name.as_str()) {
            continue;
        }
        assert_eq!(kinds.get(name.as_str()), Some(&kind), "{name}");
        let sample = if kind == "histogram" {
            format!("{name}_count")
        } else {
            name.clone()
        };
        let labels: BTreeSet<String> = labels
            .trim_end_matches('}')
            .split(',')
            .filter(|it| !it.is_empty())
            .map(str::to_owned)
            .collect();
        assert_eq!(told.get(&sample), Some(&labels), "{sample}");
    }
    for name in kinds.keys() {
        assert!(
            documented.contains(*name),
            "{name} is not in docs/metrics.md"
        );
    }
}

#[tokio::test]
async fn who_probes_a_hidden_tool_learns_nothing_from_metrics() {
    let site = site();
    let server = busy_server(&site).await;
    let mut client = server.client();
    client.open(MODERN).await;
    let refused = client.request("tools/call", call("meet", json!({}))).await;
    assert_eq!(refused.code(), -32602);
    let text = metrics(&server).await;
    assert!(!text.contains("\"meet\""), "{text}");
    assert!(!text.contains("no-such"), "{text}");
    // One that exists and is hidden, and one that does not exist.
    assert!(
        text.contains("owlclaw_mcp_denials_total{reason=\"unknown\"} 2\n"),
        "{text}"
    );
    assert!(!text.contains("not_visible"), "{text}");
    assert!(
        text.contains("owlclaw_mcp_tool_calls_total{outcome=\"refused\",tool=\"spin\"} 1\n"),
        "{text}"
    );
}

#[tokio::test]
async fn quotas_are_told_of_those_whom_the_configuration_names() {
    let site = site();
    let server = site.http().await;
    for _ in 0..3 {
        let mut client = server.client().with_header("X-MCP-Client-ID", "ana");
        let answer = client
            .post_modern("tools/call", call("echo", json!({"text": "x"})))
            .await;
        let _ = answer.result();
    }
    let text = metrics(&server).await;
    let line = "owlclaw_mcp_quota_used_ratio{client=\"ana\",limit=\"calls_day\"} ";
    let value = text.lines().find_map(|it| it.strip_prefix(line));
    let value: f64 = value.unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    assert!((value - 0.3).abs() < 1e-9, "{value}");
}
