//! The fixture of the official conformance suite, on public API only: a tour of the crates.
//!
//! `conformance-server --port N` serves `http://127.0.0.1:N/mcp`; without `--port` it speaks stdio.

mod fixture;

use gateway::{Gateway, Offer, Options, Parts};
use governance::{Governor, MemoryQuota, Policy, PolicySpec};
use ledger::{MemoryLedger, Recorder, RecorderOptions};
use mcp_protocol::model::Implementation;
use mcp_service::Principal;
use std::{error::Error, net::SocketAddr, num::NonZeroUsize, sync::Arc};
use transport_http::{HttpOptions, serve_on_threads};
use transport_stdio::{StdioOptions, standard_streams};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let gateway = gateway()?;
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
            let running = serve_on_threads(engine, HttpOptions::default(), address, threads)?;
            running.stopped().await;
        }
    }
    Ok(())
}

/// Everything may be done, nothing is limited, and the record is kept in memory.
fn gateway() -> Result<Arc<Gateway<MemoryQuota>>, Box<dyn Error>> {
    let policy = Policy::new(PolicySpec::default())?;
    let offer = Offer::new(
        fixture::tools()?,
        Arc::new(fixture::resources()),
        None,
        gateway::IncludeSkill::None,
        Options::default().default_timeout,
    );
    let parts = Parts {
        info: Implementation {
            name: "conformance-server".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            title: None,
        },
        instructions: None,
        offer,
        governor: Arc::new(Governor::new(policy, Arc::new(MemoryQuota::default()))),
        recorder: Recorder::spawn(MemoryLedger::default(), RecorderOptions::default())?,
        components: Vec::new(),
    };
    Ok(Gateway::new(parts, Options::default()))
}

fn port() -> Result<Option<u16>, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => Ok(None),
        (Some("--port"), Some(port)) => Ok(Some(port.parse()?)),
        _ => Err("usage: conformance-server [--port N]".into()),
    }
}
