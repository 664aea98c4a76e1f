//! Server that the load generator drives (`docs/performance.md`): two Rust tools behind everything
//! that a governed call passes, with limits that are counted and never reached.
//!
//! ```text
//! bench-server http --port N [--threads N] [OPTION...]
//! bench-server stdio [OPTION...]
//! ```
//!
//! Options: `--tools N`, `--rules N` of every caller and `--principals N` with rules of their own, none of which
//! are about `echo` and its caller, `--ledger none|relaxed|strict`, `--file PATH` of the ledger.

use adapter_tools::{NoArguments, Tool, ToolSet};
use governance::{
    Condition, Effect, Governor, MemoryQuota, Micros, Policy, PolicySpec, Quota, Rules,
};
use ledger::{
    Appended, Durability, Group, LedgerStore, Recorder, RecorderOptions, SqliteLedger, StoreError,
    Tail,
};
use mcp_protocol::model::Implementation;
use mcp_server::{Filters, McpServer, Offer, Options, Parts, redactor_of_this_process};
use mcp_service::Principal;
use schemars::JsonSchema;
use serde::Deserialize;
use std::{error::Error, net::SocketAddr, num::NonZeroUsize, sync::Arc};
use transport_http::{HttpLimits, HttpOptions, serve_on_threads};
use transport_stdio::{StdioOptions, standard_streams};

#[derive(Deserialize, JsonSchema)]
struct Echo {
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Add {
    a: f64,
    b: f64,
}

/// Takes entries and keeps none: what everything but the disk costs.
#[derive(Debug, Default)]
struct Nowhere(u64);

impl LedgerStore for Nowhere {
    fn tail(&self) -> Tail {
        Tail::default()
    }

    fn keeps_entries(&self) -> bool {
        false
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        self.0 += group.count;
        Ok(Appended::at(Tail::default()))
    }
}

fn tools(count: usize) -> Result<ToolSet, adapter_tools::ToolProblem> {
    let echo = Tool::native("echo", |_cx, Echo { message }| async move { Ok(message) })
        .describe("Says what it is told.");
    let add = Tool::native(
        "add",
        |_cx, Add { a, b }| async move { Ok((a + b).to_string()) },
    )
    .describe("Adds two numbers.");
    let others = (2..count).map(|n| {
        Tool::native(format!("tool_{n}"), |_cx, _: NoArguments| async { Ok("") })
            .describe("Is only listed.")
    });
    ToolSet::new([echo, add].into_iter().chain(others))
}

/// Limits that are counted and never reached, and `count` patterns and conditions for other tools than those
/// that are called.
fn rules(count: usize) -> Rules {
    let mut rules = Rules {
        quota: Quota {
            monthly_budget: Some(Micros::MAX),
            max_calls_per_minute: Some(u32::MAX),
            max_calls_per_day: Some(u32::MAX),
            max_cost_per_call: Some(Micros::MAX),
        },
        ..Rules::default()
    };
    for n in 0..count {
        let capability = format!("tool/other_{n}");
        match n % 4 {
            0 => rules.hidden.push(format!("{capability}.*")),
            1 => rules.deny.push(capability),
            2 => rules.confirm.push(format!("{capability}.*")),
            _ => rules.conditions.push(Condition {
                name: format!("condition {n}"),
                capability,
                when: "args.amount > 500".to_owned(),
                effect: Effect::Deny,
            }),
        }
    }
    rules
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: &'static str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1))
            .map_or(default, String::as_str)
    };
    let durability = match option("--ledger", "strict") {
        "strict" => Durability::Strict,
        _ => Durability::Relaxed,
    };
    let record = RecorderOptions {
        durability,
        ..RecorderOptions::default()
    };
    let recorder = match option("--ledger", "strict") {
        "none" => Recorder::spawn(Nowhere::default(), record)?,
        _ => Recorder::spawn(
            SqliteLedger::open(option("--file", "bench.db"), durability)?,
            record,
        )?,
    };
    let principals: usize = option("--principals", "0").parse()?;
    let policy = Policy::new(PolicySpec {
        default: rules(option("--rules", "0").parse()?),
        principals: (0..principals)
            .map(|n| (format!("principal-{n}"), rules(0)))
            .collect(),
        default_estimated_cost: Micros(1),
        ..PolicySpec::default()
    })?;
    let options = Options {
        tools_page: usize::MAX,
        ..Options::default()
    };
    let gateway = McpServer::new(
        Parts {
            info: Implementation {
                name: "bench-server".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..Implementation::default()
            },
            instructions: None,
            offer: Offer::of_tools(
                tools(option("--tools", "2").parse()?)?,
                options.default_timeout,
            ),
            governor: Arc::new(Governor::new(policy, Arc::new(MemoryQuota::default()))),
            recorder,
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
    if arguments.first().is_some_and(|it| it == "stdio") {
        let (input, output) = standard_streams()?;
        let forever = std::future::pending();
        let caller = Principal::new("bench");
        transport_stdio::serve(
            &engine,
            caller,
            input,
            output,
            forever,
            StdioOptions::default(),
        )
        .await?;
        return Ok(());
    }
    let address = SocketAddr::from(([127, 0, 0, 1], option("--port", "8080").parse()?));
    let threads: NonZeroUsize = option("--threads", "1").parse()?;
    let options = HttpOptions {
        // All load comes from one address.
        limits: HttpLimits {
            max_connections_per_address: usize::MAX,
            ..HttpLimits::default()
        },
        ..HttpOptions::default()
    };
    serve_on_threads(engine, options, address, threads)?
        .stopped()
        .await;
    Ok(())
}
