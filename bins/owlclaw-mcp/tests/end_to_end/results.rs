//! Results that are too long for a client: of a real upstream, read on by a real client.
#![allow(clippy::print_stdout, reason = "the figures are for those who run it")]

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::{Conversation, MODERN, StdioServer};

use crate::{
    gateway::site,
    support::{Site, call, names, run, text},
};

const BULKY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/bulky.py");
const MEGABYTE: u64 = 1_000_000;

fn bulky(more: Value) -> Value {
    let mut upstream = json!({"command": "python3", "args": [BULKY]});
    for (key, value) in more.as_object().unwrap() {
        upstream[key] = value.clone();
    }
    json!({ "bulky": upstream })
}

fn limited() -> Value {
    json!({"results": {"limits": {"cline": {"host": "cline"}}}})
}

/// The text of the upstream.
fn whole(length: u64) -> String {
    let lines = (0..=length / 100).map(|number| format!("{:.<99}\n", format!("line {number} ")));
    let mut text: String = lines.collect();
    text.truncate(length as usize);
    text
}

fn memory_kb(server: &StdioServer) -> u64 {
    let id = server.process().id().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

async fn ask(server: &mut StdioServer, method: &str, params: Value) -> Value {
    server.request(method, params).await.result().clone()
}

/// The call whose result was shortened.
fn shortened(site: &Site) -> ledger::Ended {
    let calls = site.calls();
    let found = calls
        .into_iter()
        .find_map(|it| it.ended.filter(|it| it.whole.is_some()));
    found.expect("a call was shortened")
}

#[tokio::test]
async fn fifty_megabytes_of_an_upstream_are_shortened_and_can_all_be_read() {
    let size = 50 * MEGABYTE;
    let site = site(
        bulky(json!({"max_message_bytes": 64 * 1024 * 1024, "timeout_seconds": 300})),
        limited(),
    );
    let mut server = site.stdio();
    server.open(MODERN).await;
    ask(&mut server, "tools/call", call("mcp_bulky_bulk", json!({}))).await;
    let before = memory_kb(&server);
    let arguments = json!({ "bytes": size });
    let result = ask(&mut server, "tools/call", call("mcp_bulky_bulk", arguments)).await;
    let grown = memory_kb(&server) - before;
    println!("memory: {grown} kB more than the {before} kB before");
    let texts = result["content"].as_array().unwrap().iter();
    let characters: usize = texts
        .filter_map(|it| it["text"].as_str())
        .map(|it| it.chars().count())
        .sum();
    assert!((6_000..=8_000).contains(&characters), "{characters}");
    let link = result["content"].as_array().unwrap().last().unwrap();
    assert_eq!(link["type"], "resource_link");
    let uri = link["uri"].as_str().unwrap();

    // The whole, by ranges.
    let (mut digest, mut offset) = (Sha256::new(), 0);
    while offset < size {
        let range = json!({ "offset": offset, "length": 8 * 1024 * 1024 });
        let read = ask(
            &mut server,
            "resources/read",
            json!({ "uri": uri, "range": range }),
        )
        .await;
        let part = read["contents"][0]["text"].as_str().unwrap();
        offset += part.len() as u64;
        digest.update(part);
    }
    let expected = Sha256::digest(whole(size));
    assert_eq!(digest.finalize(), expected);
    let all_at_once = server
        .request("resources/read", json!({ "uri": uri }))
        .await;
    let told = all_at_once.response["error"]["data"]["details"]
        .as_str()
        .unwrap();
    assert!(told.contains("50000000 bytes"), "{told}");
    // By the tool, somewhere in the middle, and by lines.
    let arguments = json!({ "uri": uri, "offset": 40_000_000 });
    let read = ask(&mut server, "tools/call", call("read_result", arguments)).await;
    assert!(
        text(&read).starts_with("line 400000 ..."),
        "{}",
        text(&read)
    );
    let arguments = json!({ "uri": uri, "line": 300_001, "lines": 1 });
    let read = ask(&mut server, "tools/call", call("read_result", arguments)).await;
    assert!(
        text(&read).starts_with("line 300000 ..."),
        "{}",
        text(&read)
    );
    // The message is read and parsed, and the text of it hashed, searched for secrets and written: not five times.
    assert!(grown < 5 * size / 1_000, "{grown} kB more than before");

    drop(server);
    let ended = shortened(&site);
    let cut = ended.whole.unwrap();
    assert_eq!(cut.whole_bytes, size);
    assert_eq!(cut.digest[..], expected[..]);
    let shown = run(site.command(&[
        "ledger",
        "query",
        "--tool",
        "mcp_bulky_bulk",
        "--format",
        "json",
    ]))
    .await;
    let hex: String = expected.iter().map(|it| format!("{it:02x}")).collect();
    assert!(shown.output.contains(&hex), "{}", shown.output);
}

#[tokio::test]
async fn an_answer_beyond_the_bound_of_messages_is_refused_with_words() {
    let site = site(bulky(json!({"max_message_bytes": 1024 * 1024})), limited());
    let mut server = site.stdio();
    server.open(MODERN).await;
    let arguments = json!({ "bytes": 3 * MEGABYTE });
    let result = ask(&mut server, "tools/call", call("mcp_bulky_bulk", arguments)).await;
    assert_eq!(result["isError"], true);
    let told = text(&result);
    assert!(told.contains("upstreams.bulky.max_message_bytes"), "{told}");
    assert!(told.contains("1048576"), "{told}");
    // The next call has a new connection.
    let result = ask(&mut server, "tools/call", call("mcp_bulky_bulk", json!({}))).await;
    assert_eq!(text(&result), "line 0 ...");
    // So has a long error, within the bound, its limit.
    let arguments = json!({ "bytes": 500_000 });
    let result = ask(&mut server, "tools/call", call("mcp_bulky_fail", arguments)).await;
    assert_eq!(result["isError"], true);
    assert!(result.to_string().len() < 20_000);
}

#[tokio::test]
async fn rules_for_results_that_are_wrong_are_told() {
    let wrong = |limits: Value| site(bulky(json!({})), json!({"results": {"limits": limits}}));
    for (limits, told) in [
        (
            json!({"a": {"tools": ["*"]}}),
            "`results.limits.a` limits nothing",
        ),
        (json!({"a": {"host": "clin"}}), "cline"),
        (json!({"a": {"max_characters": 10}}), "1000"),
        (json!({"a": {"max_character": 8000}}), "max_characters"),
    ] {
        let said = run(wrong(limits).command(&["config", "validate"])).await;
        let text = format!("{}{}", said.output, said.messages);
        assert_ne!(said.code, Some(0), "{text}");
        assert!(text.contains(told), "{text}");
    }
    let site = wrong(
        json!({"a": {"host": "cline", "tools": ["mcp_bulky_bulc"], "except": ["reed_result"]}}),
    );
    let mut server = site.stdio();
    server.open(MODERN).await;
    let listed = ask(&mut server, "tools/list", json!({})).await;
    assert!(names(&listed, "tools", "name").contains(&"read_result".to_owned()));
    drop(server);
    let said = run(site.command(&["config", "validate", "--import"])).await;
    let said = format!("{}{}", said.output, said.messages);
    assert!(said.contains("results.limits.a.tools"), "{said}");
    assert!(said.contains("results.limits.a.except"), "{said}");
}
