//! Rust functions as MCP tools and a prompt, governed and recorded: the crates without the binary. One tool asks
//! its user a question and logs to the client.
//!
//! `native-tool` speaks stdio, `native-tool --port N` serves `http://127.0.0.1:N/mcp`. `--ledger FILE`
//! keeps the record in a file instead of in memory.

use adapter_tools::{Elicited, LogLevel, Needed, Tool, ToolCx, ToolError, ToolSet};
use governance::{Governor, MemoryQuota, Policy, PolicySpec, Quota, Rules};
use ledger::{Durability, MemoryLedger, Recorder, RecorderOptions, SqliteLedger};
use mcp_protocol::model::{
    CompletionReference, Content, GetPromptResult, Implementation, Prompt, PromptArgument,
    PromptMessage, Role,
};
use mcp_server::{
    Filters, McpServer, Offer, Options, Parts, PromptCx, StaticPrompts, redactor_of_this_process,
};
use mcp_service::Principal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{error::Error, net::SocketAddr, num::NonZeroUsize, sync::Arc};
use transport_http::{HttpOptions, serve_on_threads};
use transport_stdio::{StdioOptions, standard_streams};

/// Arguments of a tool: the fields of the type are the schema, and their comments are what the
/// model reads.
#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first summand.
    a: i64,
    /// The second summand.
    b: i64,
}

#[derive(Deserialize, JsonSchema)]
struct Quote {
    /// Item to buy, such as `tea`.
    item: String,
    /// Number of items.
    #[schemars(range(min = 1, max = 1000))]
    count: u32,
}

/// Result of a tool, also a type; an object becomes structured content too.
#[derive(Serialize, JsonSchema)]
struct Price {
    /// In cents.
    total: u64,
}

/// Items for sale.
const ITEMS: [&str; 2] = ["tea", "cups"];

/// Orders once the user has agreed: the question ends the call, and the answer begins it again.
async fn order(cx: ToolCx, Quote { item, count }: Quote) -> Result<String, ToolError> {
    let form = json!({"type": "object", "properties": {}});
    let question = Needed::form("sure", format!("Order {count} × {item}?"), form);
    match cx.answers().elicited("sure", &question) {
        Some(Elicited::Accepted(_)) => {}
        Some(_) => return Err(ToolError::failed("the user would rather not")),
        None => return Err(ToolError::NeedsInput(question)),
    }
    // Clients that want to hear of it do, in their own log.
    cx.log(
        LogLevel::Info,
        Some("orders"),
        &json!({"item": item, "count": count}),
    );
    Ok(format!("{count} × {item} ordered"))
}

/// A prompt that is a function, with suggestions for its argument.
fn prompts() -> StaticPrompts {
    let prompt = Prompt {
        name: "shopping".to_owned(),
        description: Some("Plans what to buy.".to_owned()),
        arguments: vec![PromptArgument {
            name: "item".to_owned(),
            required: true,
            ..PromptArgument::default()
        }],
        ..Prompt::default()
    };
    let reference = CompletionReference::Prompt {
        name: prompt.name.clone(),
    };
    let fill = |cx: &PromptCx| {
        let item = cx.arguments.get("item").map_or("tea", String::as_str);
        let text = format!("Ask for the price of {item}, and order it if it is fair.");
        Ok(GetPromptResult {
            messages: vec![PromptMessage {
                role: Role::User,
                content: Content::text(text),
            }],
            ..GetPromptResult::default()
        })
    };
    StaticPrompts::new()
        .prompt(prompt, fill)
        .complete(reference, "item", |asked| {
            let items = ITEMS.iter().filter(|it| it.starts_with(&asked.value));
            items.map(|it| (*it).to_owned()).collect()
        })
}

fn tools() -> Result<ToolSet, adapter_tools::ToolProblem> {
    let add = Tool::native("add", |_cx, Add { a, b }| async move {
        a.checked_add(b)
            .ok_or_else(|| ToolError::failed("the sum is out of range"))
    })
    .describe("Adds two integers.");
    let quote = Tool::native("quote", |cx: ToolCx, Quote { item, count }| async move {
        cx.add_cost_micros(1_000); // asking for a price costs a tenth of a cent
        match item.as_str() {
            "tea" => Ok(Price {
                total: u64::from(count) * 450,
            }),
            other => Err(ToolError::failed(format!("we do not sell {other}"))),
        }
    })
    .describe("Says what something costs.");
    let order = Tool::native("order", order).describe("Orders something.");
    ToolSet::new([add, quote, order])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };

    // Everybody may call everything, sixty times a minute, for ten units of money a month.
    let policy = Policy::new(PolicySpec {
        default: Rules {
            quota: Quota {
                monthly_budget: Some("10".parse()?),
                max_calls_per_minute: Some(60),
                ..Quota::default()
            },
            ..Rules::default()
        },
        ..PolicySpec::default()
    })?;
    let record = RecorderOptions::default();
    let recorder = match option("--ledger") {
        Some(path) => Recorder::spawn(SqliteLedger::open(path, Durability::Strict)?, record)?,
        None => Recorder::spawn(MemoryLedger::default(), record)?,
    };
    let options = Options {
        client_logging: true,
        ..Options::default()
    };
    let gateway = McpServer::new(
        Parts {
            info: Implementation {
                name: "native-tool".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..Implementation::default()
            },
            instructions: None,
            offer: Offer::of_tools(tools()?, options.default_timeout)
                .with_prompts(Arc::new(prompts())),
            governor: Arc::new(Governor::new(policy, Arc::new(MemoryQuota::default()))),
            recorder: recorder.clone(),
            redactor: redactor_of_this_process(),
            tasks: None,
            tracing: None,
            components: Vec::new(),
            filters: Filters::default(),
            late_costs: None,
        },
        options,
    );
    let engine = Arc::clone(gateway.engine());
    match option("--port") {
        Some(port) => {
            let address = SocketAddr::from(([127, 0, 0, 1], port.parse()?));
            let threads = NonZeroUsize::MIN;
            serve_on_threads(engine, HttpOptions::default(), address, threads)?
                .stopped()
                .await;
        }
        None => {
            let (input, output) = standard_streams()?;
            let forever = std::future::pending();
            let caller = Principal::new("local");
            let options = StdioOptions::default();
            transport_stdio::serve(&engine, caller, input, output, forever, options).await?;
        }
    }
    recorder.close().await?;
    Ok(())
}
