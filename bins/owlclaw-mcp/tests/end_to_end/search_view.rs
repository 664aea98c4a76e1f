//! The search view, as a configuration has it: who has it, and that calls through it reach handlers as others do.

use serde_json::{Value, json};
use testkit::{Conversation, HttpClient, HttpServer, MODERN, failure_of};

use crate::support::{Site, names, run, text};

fn shop() -> Site {
    let site = Site::new(json!({
        "tools": {"search_view": {"clients": ["agent-*"], "direct": ["spend"]}},
        "governance": {
            "clients": {"agent-7": {"tools": {"hide": ["die"], "deny": ["fail"]}}},
            "tools": {"echo": {"risk": ["read_only"]}},
        },
    }));
    site.skill("stock", "append", "tags: [zebra]\n");
    site
}

async fn client(server: &HttpServer, name: &str, version: &str) -> HttpClient {
    let mut client = server.client().with_header("x-mcp-client-id", name);
    client.open(version).await;
    client
}

async fn through(client: &mut HttpClient, by: &str, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": by, "arguments": {"name": tool, "arguments": arguments}});
    client.request("tools/call", params).await.response
}

#[tokio::test]
async fn a_configured_client_finds_and_calls_tools_by_the_view() {
    let site = shop();
    let server = site.http().await;
    let own = [
        "search_tools",
        "describe_tools",
        "call_tool_read",
        "call_tool_write",
        "call_tool_destructive",
    ];
    for version in [MODERN, "2025-11-25", "2025-03-26"] {
        let mut agent = client(&server, "agent-7", version).await;
        let listed = agent.request("tools/list", json!({})).await;
        let expected: Vec<_> = own.into_iter().chain(["spend"]).collect();
        assert_eq!(
            names(listed.result(), "tools", "name"),
            expected,
            "{version}"
        );
        let mut other = client(&server, "anna", version).await;
        let listed = other.request("tools/list", json!({})).await;
        assert!(names(listed.result(), "tools", "name").contains(&"append".to_owned()));
        // By a word of its skill.
        let query = json!({"name": "search_tools", "arguments": {"query": "zebra"}});
        let found = agent.request("tools/call", query).await;
        assert!(text(found.result()).starts_with("append("), "{found:?}");
        let query = json!({"name": "search_tools", "arguments": {"query": "die", "limit": 25}});
        let found = agent.request("tools/call", query).await;
        assert!(!text(found.result()).contains("die("), "{found:?}");
        let before = site.calls().len();
        let mark = json!({"mark": version});
        let done = through(&mut agent, "call_tool_destructive", "append", mark.clone()).await;
        assert_eq!(text(&done["result"]), version);
        let refused = through(&mut agent, "call_tool_read", "append", mark).await;
        assert_eq!(failure_of(&refused)["code"], -32602, "{refused}");
        let denied = through(&mut agent, "call_tool_destructive", "fail", json!({})).await;
        assert_eq!(
            failure_of(&denied)["data"]["reason"],
            "permission",
            "{denied}"
        );
        let hidden = through(&mut agent, "call_tool_destructive", "die", json!({})).await;
        assert_eq!(hidden["error"]["message"], "unknown tool: die", "{hidden}");
        let calls = site.calls();
        let on_record: Vec<_> = calls[before..]
            .iter()
            .map(|it| it.started.capability.as_str())
            .collect();
        assert_eq!(
            on_record,
            ["tool/append", "tool/append", "tool/fail", "tool/die"]
        );
    }
    // Each time once.
    assert_eq!(site.read("executed").lines().count(), 3);
}

#[tokio::test]
async fn the_cost_of_each_view_is_told() {
    let site = shop();
    let words = [
        "tools", "list", "--tokens", "--as", "agent-7", "--format", "json",
    ];
    let said = run(site.command(&words)).await;
    let views: Value = serde_json::from_str(&said.output).unwrap();
    assert_eq!(
        (&views[0]["view"], &views[1]["view"]),
        (&json!("direct"), &json!("search"))
    );
    assert_eq!(
        (&views[0]["in_force"], &views[1]["in_force"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(views[1]["tools"], 6);
    let tokens = views[1]["estimated_tokens"].as_u64().unwrap();
    assert!((300..1_000).contains(&tokens), "{views}");
    let table = run(site.command(&["tools", "list", "--tokens"])).await;
    assert!(
        table.output.contains("IN FORCE") && table.output.lines().count() == 3,
        "{}",
        table.output
    );
    // A pattern that lists no tool is told.
    let site =
        Site::new(json!({"tools": {"search_view": {"clients": ["*"], "direct": ["spned"]}}}));
    let said = run(site.command(&["config", "validate", "--import"])).await;
    let told = format!("{}{}", said.output, said.messages);
    assert!(
        told.contains("tools.search_view.direct") && told.contains("did you mean `spend`?"),
        "{told}"
    );
}
