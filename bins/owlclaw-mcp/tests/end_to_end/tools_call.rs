//! `tools call`: a call from the command line is governed and recorded like any other.

use serde_json::{Value, json};

use crate::support::{Said, Site, outcome, run};

fn shop() -> Site {
    Site::new(json!({"governance": {
        "clients": {"reader": {"tools": {"allow": ["echo"]}}},
        "tools": {"spend": {"estimated_cost": "0.40", "max_calls_per_day": 2}},
    }}))
}

async fn call(site: &Site, words: &[&str]) -> Said {
    let words = [&["tools", "call"], words].concat();
    run(site.command(&words)).await
}

#[tokio::test]
async fn a_call_is_made_and_recorded() {
    let site = shop();
    let arguments = r#"{"text": "é"}"#;
    let said = call(&site, &["echo", "--args", arguments, "--as", "reader"]).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    let printed: Value = serde_json::from_str(&said.output).unwrap();
    let given: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(printed, given);
    assert_eq!(said.messages, "");

    site.write("arguments.json", arguments);
    let words = ["echo", "--args", "@arguments.json", "--format", "json"];
    let said = call(&site, &words).await;
    let printed: Value = serde_json::from_str(&said.output).unwrap();
    assert_eq!(printed["result"]["structuredContent"], given);

    let calls = site.calls();
    let of: Vec<(&str, String)> = calls
        .iter()
        .map(|call| (&*call.started.principal, outcome(call)))
        .collect();
    let succeeded = "succeeded".to_owned();
    assert_eq!(
        of,
        [("reader", succeeded.clone()), ("stdio-client", succeeded)]
    );
}

#[tokio::test]
async fn rules_and_schemas_hold_for_operators_too() {
    let site = shop();
    let rows: [(&[&str], &str); 4] = [
        (&["spend", "--as", "reader"], "-32602"),
        (&["no-such-tool"], "no-such-tool"),
        (&["spend", "--args", r#"{"usd": 7}"#], "/usd"),
        (&["fail", "--args", r#"{"why": "it rains"}"#], "it rains"),
    ];
    for (words, why) in rows {
        let said = call(&site, words).await;
        assert_eq!(
            (said.code, said.output.as_str()),
            (Some(1), ""),
            "{words:?}"
        );
        assert!(said.messages.contains(why), "{words:?}: {}", said.messages);
    }
    let spend = ["spend", "--args", r#"{"usd": "0.1"}"#];
    assert_eq!(call(&site, &spend).await.code, Some(0));
    // Wrong arguments count too, and what one has used up is used up for the next.
    let said = call(&site, &spend).await;
    assert_eq!(said.code, Some(1));
    assert!(
        said.messages.contains("reason: rate_day"),
        "{}",
        said.messages
    );
    for (words, why) in [
        (["echo", "--args", "[1]"], "must be a JSON object"),
        (["echo", "--args", "{"], "--args is not JSON"),
        (
            ["echo", "--args", r#"{"text": "a", "text": "b"}"#],
            "the member `text` twice",
        ),
        (["echo", "--as", "é"], "printable ASCII"),
        (
            ["echo", "--url", "http://127.0.0.1:99999/mcp"],
            "its port is no number",
        ),
    ] {
        let said = call(&site, &words).await;
        assert_eq!(said.code, Some(2), "{words:?}");
        assert!(said.messages.contains(why), "{}", said.messages);
    }
}

#[tokio::test]
async fn an_unknown_tool_is_answered_with_the_nearest_name() {
    let site = shop();
    let server = site.http().await;
    let url = format!("http://{}/mcp", server.address());
    let elsewhere = Site::new(json!({"governance": {
        "clients": {"reader": {"tools": {"hide": ["append"]}}},
    }}));
    let rows: [(&Site, &[&str], &str); 4] = [
        (
            &site,
            &["ehco", "--url", &url],
            "hint: did you mean `echo`?",
        ),
        (&elsewhere, &["apend"], "hint: did you mean `append`?"),
        // What a client may not see is nothing that it may have meant.
        (
            &elsewhere,
            &["apend", "--as", "reader"],
            "hint: did you mean `spend`?",
        ),
        (&elsewhere, &["quite-another-thing"], "tools list"),
    ];
    for (site, words, hint) in rows {
        let said = call(site, words).await;
        assert_eq!(said.code, Some(1));
        assert!(said.messages.contains(hint), "{}", said.messages);
        assert!(
            said.messages.starts_with("error: unknown tool"),
            "{}",
            said.messages
        );
    }
}

#[tokio::test]
async fn a_running_server_is_called_where_it_is() {
    let site = shop();
    let server = site.http().await;
    let said = call(&site, &["echo", "--args", r#"{"text": "x"}"#]).await;
    assert_eq!(said.code, Some(1));
    assert!(said.messages.contains("--url"), "{}", said.messages);

    let url = format!("http://{}/mcp", server.address());
    let words = [
        "echo",
        "--args",
        r#"{"text": "here"}"#,
        "--url",
        &url,
        "--as",
        "reader",
    ];
    let said = call(&site, &words).await;
    assert_eq!(
        (said.code, said.output.as_str()),
        (Some(0), "{\n  \"text\": \"here\"\n}\n"),
        "{}",
        said.messages
    );
    let call_of = site.calls().pop().unwrap();
    assert_eq!(&*call_of.started.principal, "reader");

    let elsewhere = url.replace("/mcp", "/elsewhere");
    let said = call(&site, &["echo", "--url", &elsewhere]).await;
    assert_eq!(said.code, Some(1));
    assert!(
        said.messages.contains("MCP is spoken at /mcp"),
        "{}",
        said.messages
    );
    let said = call(&site, &["echo", "--url", "http://127.0.0.1:1/mcp"]).await;
    assert_eq!(said.code, Some(1));
    assert!(
        said.messages.contains("gives no answer"),
        "{}",
        said.messages
    );
}

#[tokio::test]
async fn a_call_under_a_key_is_done_once() {
    let site = shop();
    let words = [
        "spend",
        "--args",
        r#"{"usd": "0.1"}"#,
        "--idempotency-key",
        "order-7",
    ];
    let first = call(&site, &words).await;
    assert_eq!(first.code, Some(0), "{}", first.messages);
    let second = call(&site, &words).await;
    assert_eq!(
        (second.code, second.output),
        (Some(0), first.output),
        "{}",
        second.messages
    );
}
