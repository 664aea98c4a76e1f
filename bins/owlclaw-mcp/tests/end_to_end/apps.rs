//! Pages of apps (`io.modelcontextprotocol/ui`) of upstreams: their tools, and what pages call.

use serde_json::{Value, json};
use testkit::{Conversation, HttpClient, HttpServer, MODERN, StdioServer, failure_of};

use crate::{
    gateway::{UPSTREAM, site},
    support::{Site, call, names, text},
};

const EXTENSION: &str = "io.modelcontextprotocol/ui";

fn host() -> Value {
    json!({"extensions": {EXTENSION: {"mimeTypes": ["text/html;profile=mcp-app"]}}})
}

/// A gateway to two upstreams, of which `up` has apps.
fn with_apps(more: Value) -> Site {
    let child = |name: &str| json!({"command": "python3", "args": [UPSTREAM, "stdio", name]});
    let mut other = child("other");
    other["deny"] = json!(["ui://*", "file://*"]);
    let site = site(json!({"up": child("up"), "other": other}), more);
    site.write("up/apps", "");
    site.write("other/.keep", "");
    site
}

async fn client(server: &HttpServer, name: &str, version: &str, capabilities: Value) -> HttpClient {
    let mut client = server.client().with_header("x-mcp-client-id", name);
    client.voice.capabilities = capabilities;
    client.open(version).await;
    client
}

#[tokio::test]
async fn tools_for_pages_alone_are_shown_to_hosts_with_pages_and_called_by_their_own_names() {
    let site = with_apps(json!({}));
    let server = site.http().await;
    for version in ["2025-06-18", "2025-11-25", MODERN] {
        let mut model = client(&server, "model", version, json!({})).await;
        let listed = model.request("tools/list", json!({})).await;
        let tools = names(listed.result(), "tools", "name");
        assert!(tools.contains(&"mcp_up_show".to_owned()), "{tools:?}");
        assert!(tools.contains(&"mcp_up_plan".to_owned()));
        assert!(!tools.contains(&"mcp_up_refresh".to_owned()), "{version}");
        // What is not listed is not there, by any name.
        for name in ["mcp_up_refresh", "refresh", "show", "nothing"] {
            let refused = model.request("tools/call", call(name, json!({}))).await;
            let message = format!("unknown tool: {name}");
            assert_eq!(failure_of(&refused.response)["message"], message);
        }

        let mut host = client(&server, "host", version, host()).await;
        let listed = host.request("tools/list", json!({})).await;
        let listed = listed.result().clone();
        let tools = names(&listed, "tools", "name");
        assert!(tools.contains(&"mcp_up_refresh".to_owned()), "{tools:?}");
        let show = listed["tools"].as_array().unwrap().iter();
        let show = show.clone().find(|it| it["name"] == "mcp_up_show").unwrap();
        let page = "ui://mcp.up/app/x";
        assert_eq!(show["_meta"]["ui"]["resourceUri"], page);
        assert_eq!(show["_meta"]["ui/resourceUri"], page);
        let before = site.calls().len();
        for name in ["refresh", "mcp_up_refresh", "show"] {
            let answer = host.request("tools/call", call(name, json!({}))).await;
            assert_eq!(text(answer.result()), name.trim_start_matches("mcp_up_"));
            assert_eq!(answer.result()["_meta"]["ui"]["resourceUri"], page);
        }
        let on_record: Vec<_> = site.calls()[before..]
            .iter()
            .map(|it| it.started.capability.clone())
            .collect();
        assert_eq!(
            on_record,
            ["refresh", "refresh", "show"].map(|it| format!("tool/mcp_up_{it}"))
        );
        // A tool that is the model's alone, and one of an upstream that has no apps.
        for name in ["plan", "nothing"] {
            let refused = host.request("tools/call", call(name, json!({}))).await;
            let message = format!("unknown tool: {name}");
            assert_eq!(failure_of(&refused.response)["message"], message);
        }
        for uri in ["ui://app/x", "file:///a.txt"] {
            let read = host.request("resources/read", json!({ "uri": uri })).await;
            let content = format!("content of {uri}");
            assert_eq!(read.result()["contents"][0]["text"], content);
        }
        let read = json!({"uri": "file:///a.txt"});
        let unknown = model.request("resources/read", read).await;
        assert!(unknown.response["error"].is_object(), "{unknown:?}");
    }
    let hidden = site.calls().into_iter();
    let hidden: Vec<_> = hidden
        .filter(|it| it.started.principal == "model" && it.started.capability.contains("mcp_up_"))
        .map(|it| it.ended.unwrap().outcome.to_string())
        .collect();
    assert!(!hidden.is_empty());
    assert!(hidden.iter().all(|it| it == "denied"), "{hidden:?}");
}

#[tokio::test]
async fn calls_of_pages_are_governed_and_ambiguous_names_call_nothing() {
    let site = with_apps(json!({"governance": {
        "roles": {"guest": {"tools": {"allow": ["*"], "deny": ["mcp_up_refresh"], "hide": ["mcp_up_show"]}}},
        "clients": {"guest": {"roles": ["guest"]}},
    }}));
    let server = site.http().await;
    let mut guest = client(&server, "guest", MODERN, host()).await;
    let denied = guest
        .request("tools/call", call("refresh", json!({})))
        .await;
    assert_eq!(failure_of(&denied.response)["data"]["reason"], "permission");
    let hidden = guest.request("tools/call", call("show", json!({}))).await;
    let none = guest.request("tools/call", call("shew", json!({}))).await;
    let without_name = |it: &Value, name: &str| failure_of(it).to_string().replace(name, "NAME");
    assert_eq!(
        without_name(&hidden.response, "show"),
        without_name(&none.response, "shew")
    );
    assert_eq!(site.read("up/count"), "");

    let site = with_apps(json!({}));
    site.write("other/apps", "");
    let server = site.http().await;
    let mut host = client(&server, "host", MODERN, host()).await;
    let refused = host.request("tools/call", call("refresh", json!({}))).await;
    let message = "unknown tool: refresh";
    assert_eq!(failure_of(&refused.response)["message"], message);
    let done = host
        .request("tools/call", call("mcp_up_refresh", json!({})))
        .await;
    assert_eq!(text(done.result()), "refresh");
}

#[tokio::test]
async fn a_search_view_finds_no_tool_that_is_for_pages_alone() {
    let site = with_apps(json!({"tools": {"search_view": {"clients": ["*"]}}}));
    let server = site.http().await;
    for (name, capabilities) in [("host", host()), ("model", json!({}))] {
        let mut client = client(&server, name, MODERN, capabilities).await;
        let listed = client.request("tools/list", json!({})).await;
        let tools = names(listed.result(), "tools", "name");
        // Its host may let a page call it, and shows it to no model.
        let is_listed = tools.contains(&"mcp_up_refresh".to_owned());
        assert_eq!(is_listed, name == "host", "{tools:?}");
        let query = call("search_tools", json!({"query": "mcp_up_refresh"}));
        let found = client.request("tools/call", query).await;
        assert!(
            !text(found.result()).contains("mcp_up_refresh("),
            "{found:?}"
        );
        let query = call("describe_tools", json!({"names": ["mcp_up_refresh"]}));
        let described = client.request("tools/call", query).await;
        assert!(text(described.result()).contains("unknown tool"));
        for tool in ["mcp_up_refresh", "refresh"] {
            let through = call(
                "call_tool_destructive",
                json!({"name": tool, "arguments": {}}),
            );
            let refused = client.request("tools/call", through).await;
            let message = format!("unknown tool: {tool}");
            assert_eq!(failure_of(&refused.response)["message"], message, "{name}");
        }
    }
    assert_eq!(site.read("up/count"), "");
}

#[tokio::test]
async fn the_extension_is_declared_where_there_are_apps_and_upstreams_hear_of_hosts() {
    let site = with_apps(json!({}));
    let mut server = site.stdio();
    let opened = server.open("2025-11-25").await;
    assert!(
        opened["capabilities"]["extensions"][EXTENSION].is_object(),
        "{opened}"
    );
    let told = server
        .request("tools/call", call("mcp_up_who_asks", json!({})))
        .await;
    let told: Value = serde_json::from_str(text(told.result())).unwrap();
    assert!(
        told["capabilities"]["extensions"][EXTENSION]["mimeTypes"].is_array(),
        "{told}"
    );
    drop(server);
    std::fs::remove_file(site.path("up/apps")).unwrap();
    let other =
        json!({"command": "python3", "args": [UPSTREAM, "stdio", "bare"], "deny": ["ui://*"]});
    let bare = crate::gateway::site(json!({"bare": other}), json!({}));
    bare.write("bare/.keep", "");
    let mut server: StdioServer = bare.stdio();
    let opened = server.open("2025-11-25").await;
    assert!(opened["capabilities"]["extensions"].is_null(), "{opened}");
}
