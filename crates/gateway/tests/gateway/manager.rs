//! The manager of founding document 002.

use crate::support::{SCRIPT, Site, is_alive, spec};
use gateway::{ManagerOptions, McpManager, PinApproval, Pins, ToolDef};
use serde_json::json;
use std::{fs, path::Path};

/// Properties 3 and 6 of document 002: all tools of the servers that can be connected are registered, and no
/// other server hinders that.
#[tokio::test]
async fn a_manager_registers_the_tools_of_the_servers_that_are_there() {
    let site = Site::new();
    let dead = Site::new();
    dead.set("broken", true);
    let python = |directory: &Path| json!({"transport": "stdio", "command": "python3", "args": [SCRIPT, "stdio", directory]});
    let config = json!({"mcpServers": {
        "one": python(site.upstream.path()),
        "dead": python(dead.upstream.path()),
        "gone": {"transport": "stdio", "command": "/no/such/program"},
        "bad": {"transport": "pigeon"},
        "two": python(site.upstream.path()),
    }});
    site.set("mcp.json", true);
    fs::write(site.path("mcp.json"), config.to_string()).unwrap();
    let mut manager = McpManager::new(ManagerOptions {
        config_path: Some(site.path("mcp.json")),
        ..ManagerOptions::default()
    });
    let mut registry: Vec<ToolDef> = Vec::new();
    let registered = manager.initialize(&mut registry).await;
    assert_eq!(manager.connected_servers(), ["one", "two"]);
    assert_eq!((registered, registry.len()), (46, 46));
    for server in ["one", "two"] {
        let name = format!("mcp_{server}_echo");
        let echo = registry.iter().find(|it| it.name == name).unwrap();
        assert_eq!(echo.description, format!("[MCP:{server}] Does echo."));
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "number"}}});
        assert_eq!(echo.input_schema, schema);
        let arguments = json!({"text": "x".repeat(6_000)});
        let said = echo
            .call(arguments.as_object().unwrap().clone())
            .await
            .unwrap();
        assert_eq!(said.len(), 5_000);
    }
    let fail = registry
        .iter()
        .find(|it| it.name == "mcp_one_fail")
        .unwrap();
    let failed = fail.call(serde_json::Map::new()).await.unwrap_err();
    assert!(failed.to_string().contains("it failed"), "{failed}");
    // By the names of servers, and in the form that models are given.
    let of_one = manager.tools_of(&["one"]).unwrap();
    assert_eq!(of_one.len(), 23);
    assert!(of_one.iter().all(|it| it.name.starts_with("mcp_one_")));
    let unknown = manager.tools_of(&["one", "onne"]).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no tool of a server `onne`");
    let echo = of_one.iter().find(|it| it.name == "mcp_one_echo").unwrap();
    assert_eq!(echo.openai()["function"]["parameters"], echo.input_schema);
    assert_eq!(echo.anthropic()["name"], "mcp_one_echo");
    // A name that is taken is not taken away.
    assert_eq!(manager.initialize(&mut registry).await, 0);
    manager.shutdown().await;
    assert!(manager.connected_servers().is_empty());
    assert!(!site.read("started").lines().any(is_alive));
}

#[tokio::test]
async fn a_manager_registers_servers_that_are_known_and_calls_nothing_that_is_held() {
    let site = Site::new();
    let known = || vec![spec("up", site.upstream.path())];
    let mut manager = McpManager::new(ManagerOptions {
        gateway: site.options(),
        ..ManagerOptions::default()
    });
    let arguments = || json!({"n": 0}).as_object().unwrap().clone();
    let mut registry: Vec<ToolDef> = Vec::new();
    assert!(manager.status().is_empty() && manager.connected_servers().is_empty());
    assert_eq!(manager.initialize_with(known(), &mut registry).await, 23);
    let count = |registry: &Vec<ToolDef>| {
        let found = registry.iter().find(|it| it.name == "mcp_up_count");
        found.unwrap().clone()
    };
    count(&registry).call(arguments()).await.unwrap();
    assert_eq!(site.read("count"), "x");
    let mut pins = Pins::new(Some(site.stored()));
    let decision = PinApproval {
        by: "ana".to_owned(),
        reason: "under review".to_owned(),
        at: 1,
    };
    pins.hold("up", "tool/count", &decision).unwrap();
    registry.clear();
    assert_eq!(manager.initialize_with(known(), &mut registry).await, 23);
    let refused = count(&registry).call(arguments()).await.unwrap_err();
    assert!(refused.to_string().contains("held"), "{refused}");
    assert_eq!(site.read("count"), "x", "nothing was called");
    let held = &manager.status()[0].held;
    assert!(
        matches!(&held[..], [why] if why.contains("ana holds `tool/count` of `up` (under review)")),
        "{held:?}"
    );
    manager.shutdown().await;
    assert!(manager.status().is_empty());
    assert!(!site.read("started").lines().any(is_alive));
}
