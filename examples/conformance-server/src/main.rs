//! The fixture of the official conformance suite, on public API only: a tour of the crates.
//!
//! `conformance-server --port N` serves `http://127.0.0.1:N/mcp`; without `--port` it speaks stdio.
//!
//! What is on offer is in one file per feature: [`content`] answers and resources, [`telling`]
//! progress and log messages, [`reconnecting`] calls that outlive their connection, [`input`]
//! questions to the client, [`prompts`], [`skills`], [`changes`] what clients listen for,
//! [`headers`] arguments that are repeated in headers, [`tasks`] calls whose results are fetched
//! later.

mod changes;
mod content;
mod headers;
mod input;
mod prompts;
mod reconnecting;
mod skills;
mod tasks;
mod telling;

use changes::Changes;
use governance::{Governor, MemoryQuota, Policy, PolicySpec};
use ledger::{MemoryLedger, Recorder, RecorderOptions};
use mcp_protocol::model::Implementation;
use mcp_server::{
    McpServer, Options, Parts, TaskOptions, Tasks, redactor_of_this_process, system_clock,
};
use mcp_service::Principal;
use std::{error::Error, net::SocketAddr, num::NonZeroUsize, sync::Arc};
use task_store::MemoryTaskStore;
use transport_http::{HttpLimits, HttpOptions, serve_on_threads};
use transport_stdio::{StdioOptions, standard_streams};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let gateway = gateway().await?;
    let engine = Arc::clone(gateway.engine());
    match port()? {
        None => {
            let (input, output) = standard_streams()?;
            let forever = std::future::pending();
            let principal = Principal::new("suite");
            transport_stdio::serve(
                &engine,
                principal,
                input,
                output,
                forever,
                StdioOptions::default(),
            )
            .await?;
        }
        Some(port) => {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
            let options = HttpOptions {
                header_params: Some(Arc::new(headers::Compared(gateway))),
                // All clients of a test are on one machine.
                limits: HttpLimits {
                    max_connections_per_address: usize::MAX,
                    ..HttpLimits::default()
                },
                ..HttpOptions::default()
            };
            let running = serve_on_threads(engine, options, address, threads)?;
            running.stopped().await;
        }
    }
    Ok(())
}

/// Server that allows everything, limits nothing, and keeps the ledger in memory.
async fn gateway() -> Result<Arc<McpServer<MemoryQuota>>, Box<dyn Error>> {
    let policy = Policy::new(PolicySpec::default())?;
    let changes = Changes::new();
    let tasks = TaskOptions {
        list: true,
        ..TaskOptions::default()
    };
    let parts = Parts {
        info: Implementation {
            name: "conformance-server".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Implementation::default()
        },
        instructions: None,
        offer: changes.offer()?,
        governor: Arc::new(Governor::new(policy, Arc::new(MemoryQuota::default()))),
        recorder: Recorder::spawn(MemoryLedger::default(), RecorderOptions::default())?,
        redactor: redactor_of_this_process(),
        tasks: Some(Tasks::open(Arc::new(MemoryTaskStore::default()), tasks, system_clock).await?),
        tracing: None,
        components: Vec::new(),
        filters: Default::default(),
        late_costs: None,
    };
    let options = Options {
        // Deprecated since 2026-07-28, and part of what the suite looks at.
        client_logging: true,
        ..Options::default()
    };
    let gateway = McpServer::new(parts, options);
    changes.watch(&gateway);
    Ok(gateway)
}

fn port() -> Result<Option<u16>, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => Ok(None),
        (Some("--port"), Some(port)) => Ok(Some(port.parse()?)),
        _ => Err("usage: conformance-server [--port N]".into()),
    }
}
