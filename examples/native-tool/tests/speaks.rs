//! The example as a client sees it: its prompt, its question, and what it logs.

#![allow(clippy::unwrap_used)]

use serde_json::json;
use testkit::{Conversation, StdioServer};
use tokio::process::Command;

#[tokio::test]
async fn a_prompt_a_question_and_a_line_of_the_log_in_rust() {
    let mut server = StdioServer::spawn(Command::new(env!("CARGO_BIN_EXE_native-tool")));
    server.voice.capabilities = json!({"elicitation": {}});
    server.open("2025-06-18").await;
    let listed = server.request("prompts/list", json!({})).await;
    assert_eq!(listed.result()["prompts"][0]["name"], "shopping");
    let params = json!({"name": "shopping", "arguments": {"item": "cups"}});
    let filled = server.request("prompts/get", params).await;
    let text = &filled.result()["messages"][0]["content"]["text"];
    assert!(
        text.as_str().unwrap().contains("the price of cups"),
        "{text}"
    );
    let reference = json!({"type": "ref/prompt", "name": "shopping"});
    let params = json!({"ref": reference, "argument": {"name": "item", "value": "t"}});
    let completed = server.request("completion/complete", params).await;
    assert_eq!(completed.result()["completion"]["values"], json!(["tea"]));

    server
        .request("logging/setLevel", json!({"level": "info"}))
        .await;
    let call = json!({"name": "order", "arguments": {"item": "tea", "count": 2}});
    let request = server.voice.request("tools/call", call);
    server.send(&request).await;
    let (mut is_asked, mut is_logged) = (false, false);
    loop {
        let message = server.receive().await;
        match message["method"].as_str() {
            Some("elicitation/create") => {
                assert_eq!(message["params"]["message"], "Order 2 × tea?");
                is_asked = true;
                let answer = json!({"action": "accept", "content": {}});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": answer});
                server.send(&answer).await;
            }
            Some("notifications/message") => {
                assert_eq!(message["params"]["data"]["count"], 2);
                assert_eq!(message["params"]["logger"], "orders");
                is_logged = true;
            }
            _ if message["id"] == request["id"] => {
                assert_eq!(message["result"]["content"][0]["text"], "2 × tea ordered");
                break;
            }
            _ => {}
        }
    }
    assert!(is_asked && is_logged);
}
