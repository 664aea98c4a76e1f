//! An agent: its planner chooses tools of several MCP servers until it has an answer.
//!
//! `agent QUESTION SERVER...`, where a server is an address or a command in quotes. The planner is the
//! model behind `OPENAI_BASE_URL`, or, without it, a script (`script.json`).

mod planner;

use mcp_client::{CallOptions, Connection, Dial, Options, RawJson};
use mcp_protocol::model::{CallToolResult, Content};
use planner::Planner;
use serde_json::{Value, json};
use std::{error::Error, io::Write as _};

/// Turns of the planner before the agent gives up.
const MAX_TURNS: usize = 16;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let question = words.next().ok_or("usage: agent QUESTION SERVER...")?;
    let (mut servers, mut tools) = (Vec::new(), Vec::new());
    for server in words {
        let mut parts = server.split(' ');
        let dial = match server.contains("://") {
            true => Dial::url(&server),
            false => Dial::child(parts.next().unwrap_or_default(), parts),
        };
        let connection = Connection::open(&dial, Options::default()).await?;
        let offered = connection.tools().await?;
        tools.extend(offered.into_iter().map(|tool| (servers.len(), tool)));
        servers.push(connection);
    }

    let mut planner = Planner::choose(tools.iter().map(|(_, tool)| tool))?;
    let mut messages = vec![json!({ "role": "user", "content": question })];
    for _ in 0..MAX_TURNS {
        let message = planner.next(&messages).await?;
        let calls = message["tool_calls"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        messages.push(message);
        for call in &calls {
            let name = call["function"]["name"].as_str().unwrap_or_default();
            let arguments = call["function"]["arguments"]
                .as_str()
                .unwrap_or("{}")
                .to_owned();
            say(&format!("-> {name} {arguments}"))?;
            let arguments = RawJson::from_bytes(arguments.into())?;
            let text = match tools.iter().find(|(_, tool)| tool.name == name) {
                Some((at, _)) => match servers[*at]
                    .call(name, arguments, &CallOptions::default())
                    .await
                {
                    Ok(result) => text_of(&result),
                    // The planner may know another way.
                    Err(error) => format!("it failed: {error}"),
                },
                None => "there is no such tool".to_owned(),
            };
            say(&format!("<- {text}"))?;
            messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": text }));
        }
        if calls.is_empty() {
            say(messages
                .last()
                .and_then(|it| it["content"].as_str())
                .unwrap_or("no answer"))?;
            break;
        }
    }
    for server in servers {
        server.close().await;
    }
    Ok(())
}

/// Text that a planner reads of a result.
fn text_of(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|part| match part {
        Content::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn say(text: &str) -> std::io::Result<()> {
    let shown: String = text
        .chars()
        .map(|it| if it.is_control() { ' ' } else { it })
        .collect();
    writeln!(std::io::stdout(), "{shown}")
}

/// A call as a planner asks for it.
fn call(id: usize, name: &Value, arguments: &Value) -> Value {
    json!({ "role": "assistant", "content": null, "tool_calls": [
        { "id": format!("call_{id}"), "type": "function",
          "function": { "name": name, "arguments": arguments.to_string() } }
    ]})
}
