//! Adapters for agents (founding document 003, §8): tools by the names of servers, through the gateway and its record.

use std::process::Stdio;

use mcp_client::{CallOptions, Dial, Options, Toolbox, text_of};
use serde_json::{Value, json};

use crate::support::Site;

const UPSTREAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../crates/gateway/tests/upstream.py"
);
const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/owlclaw_tools");

/// Agent that does all it can with the package, as one object of JSON.
const AGENT: &str = r#"
import json, sys
from owlclaw_tools import *

url = sys.argv[1]
told = {}
registry = MCPRegistry(url)
provider = MCPToolProvider(registry)
tools = provider.get_tools(["one"])
told["servers"] = sorted({it.server for it in tools})
told["all"] = sorted({str(it.server) for it in provider.get_tools()})
echo = next(it for it in tools if it.name == "mcp_one_echo")
told["echo"] = echo(text="hello")
told["openai"] = [it for it in provider.openai(["one"]) if it["function"]["name"] == "mcp_one_echo"]
told["anthropic"] = [it for it in provider.anthropic(["one"]) if it["name"] == "mcp_one_echo"]
told["called"] = provider.call("mcp_two_echo", {"text": "again"})
told["failures"] = {}
def failing(name, what):
    try:
        told["failures"][name] = ["no failure", what()]
    except Exception as error:
        told["failures"][name] = [type(error).__name__, str(error)]
failing("unknown server", lambda: provider.get_tools(["onne"]))
failing("unknown tool", lambda: provider.call("nothing"))
failing("denied", lambda: provider.call("mcp_one_die"))
failing("fails", lambda: provider.call("mcp_one_fail"))
failing("nobody", lambda: MCPRegistry("http://127.0.0.1:1/mcp").tools())
failing("no server", lambda: MCPRegistry(url.replace("/mcp", "/health")).tools())
for name, what in {
    "line break": {"api_key": "hunter2\nhunter2"},
    "empty": {"api_key": "Bearer \n"},
    "header": {"headers": {"X-Key": "hunter2\r\n hunter2"}},
    "name": {"headers": {"hunter2\n": "x"}},
    "twice": {"api_key": "hunter2", "headers": {"authorization": "hunter2"}},
}.items():
    failing(name, lambda: MCPRegistry(url, **what))
told["key"] = [
    MCPRegistry(url, api_key=key)._headers["Authorization"] for key in ("k", " k\n", "Bearer k\n", "bearer  k")
]
# A session that is gone is opened anew.
registry._session = "gone"
told["again"] = echo.run({"text": "anew"})
registry.close()
print(json.dumps(told))
"#;

fn site() -> Site {
    let child = |name: &str| json!({"command": "python3", "args": [UPSTREAM, "stdio", name]});
    let site = Site::new(json!({
        "upstreams": {"one": child("a"), "two": child("b")},
        "governance": {"default": {"tools": {"deny": ["*_die"]}}},
    }));
    site.write("a/.keep", "");
    site.write("b/.keep", "");
    site
}

#[tokio::test]
async fn agents_in_python_get_tools_by_servers_and_each_call_is_on_record() {
    let site = site();
    let server = site.http().await;
    let mut command = tokio::process::Command::new("python3");
    command.args(["-c", AGENT, &format!("http://{}/mcp", server.address())]);
    command.env("PYTHONPATH", PACKAGE).stdin(Stdio::null());
    let done = command.output().await.unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    let told: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{errors}"));
    assert_eq!(told["servers"], json!(["one"]), "{told:#}");
    assert_eq!(told["all"], json!(["None", "one", "two"]));
    for (key, said) in [("echo", "hello"), ("called", "again"), ("again", "anew")] {
        assert!(
            told[key].as_str().unwrap().contains(said),
            "{key}: {told:#}"
        );
    }
    let schema = &told["anthropic"][0]["input_schema"];
    assert_eq!(schema["type"], "object");
    assert_eq!(told["openai"][0]["function"]["parameters"], *schema);
    assert_eq!(
        told["key"],
        json!(["Bearer k", "Bearer k", "Bearer k", "Bearer k"]),
        "{told:#}"
    );
    let failures = &told["failures"];
    assert!(!failures.to_string().contains("hunter2"), "{failures:#}");
    for (what, kind, words) in [
        ("unknown server", "UnknownServer", "`onne`"),
        ("unknown tool", "ToolFailed", "nothing"),
        ("denied", "ToolFailed", "permission is missing"),
        ("fails", "ToolFailed", "it failed"),
        ("nobody", "ConnectionFailed", "cannot be reached"),
        ("no server", "ConnectionFailed", ""),
        ("line break", "ValueError", "api_key"),
        ("empty", "ValueError", "empty"),
        ("header", "ValueError", "X-Key"),
        ("name", "ValueError", "no name of a header"),
        ("twice", "ValueError", "keep one of the two"),
    ] {
        let failure = &failures[what];
        assert_eq!(failure[0], kind, "{what}: {failures:#}");
        assert!(
            failure[1].as_str().unwrap().contains(words),
            "{what}: {failures:#}"
        );
    }
    for (tool, outcomes) in [
        ("mcp_one_echo", vec!["succeeded", "succeeded"]),
        ("mcp_two_echo", vec!["succeeded"]),
        ("mcp_one_fail", vec!["failed"]),
        ("nothing", vec!["denied: unknown"]),
    ] {
        let outcome = site.outcomes(tool);
        assert_eq!(outcome.len(), outcomes.len(), "{tool}: {outcome:?}");
        for (found, expected) in outcome.iter().zip(outcomes) {
            assert!(
                found.contains(expected.split(':').next().unwrap()),
                "{tool}: {outcome:?}"
            );
        }
    }
}

#[tokio::test]
async fn agents_in_rust_get_tools_by_servers() {
    let site = site();
    let server = site.http().await;
    let dial: Dial = format!("http://{}/mcp", server.address()).parse().unwrap();
    let toolbox = Toolbox::open([dial], &Options::default()).await.unwrap();
    let tools = toolbox.tools_of(&["two"]).unwrap();
    assert!(!tools.is_empty() && tools.iter().all(|it| it.name.starts_with("mcp_two_")));
    let unknown = toolbox.tools_of(&["two", "owt"]).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no tool of a server `owt`");
    let result = toolbox
        .call(
            "mcp_two_echo",
            r#"{"text": "hello"}"#,
            &CallOptions::default(),
        )
        .await
        .unwrap();
    assert!(text_of(&result).contains("hello"));
    toolbox.close().await;
    assert_eq!(site.outcomes("mcp_two_echo").len(), 1);
}
