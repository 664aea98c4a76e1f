//! An agent: its planner chooses tools of several MCP servers until it has an answer.
//!
//! `agent QUESTION SERVER...`, where a server is an address or a command in quotes. The planner is the
//! model behind `OPENAI_BASE_URL`, or, without it, a script (`script.json`).

mod planner;

use mcp_client::{CallOptions, Dial, Options, Toolbox, text_of};
use planner::{Planner, Turn};
use std::{error::Error, io::Write as _};

/// Turns of the planner before the agent gives up.
const MAX_TURNS: usize = 16;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let question = words.next().ok_or("usage: agent QUESTION SERVER...")?;
    let servers: Result<Vec<Dial>, _> = words.map(|it| it.parse()).collect();
    let toolbox = Toolbox::open(servers?, &Options::default()).await?;
    let mut planner = Planner::choose(&question, toolbox.tools())?;
    for _ in 0..MAX_TURNS {
        match planner.next().await? {
            Turn::Answer(answer) => {
                say(&answer)?;
                break;
            }
            Turn::Calls(calls) => {
                for call in calls {
                    say(&format!("-> {} {}", call.tool, call.arguments))?;
                    let options = CallOptions::default();
                    let text = match toolbox.call(&call.tool, &call.arguments, &options).await {
                        Ok(result) => text_of(&result),
                        // The planner may know another way.
                        Err(error) => format!("it failed: {error}"),
                    };
                    say(&format!("<- {text}"))?;
                    planner.tell(&call, &text);
                }
            }
        }
    }
    toolbox.close().await;
    Ok(())
}

fn say(text: &str) -> std::io::Result<()> {
    let shown = text.replace(char::is_control, " ");
    writeln!(std::io::stdout(), "{shown}")
}
