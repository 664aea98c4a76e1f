//! A server around one Rust function: `embedded-server [PORT]` serves `http://127.0.0.1:PORT/mcp`.

use adapter_tools::{Tool, ToolCx, ToolError, ToolSet};
use schemars::JsonSchema;
use serde::Deserialize;
use server::{Failure, Server};
use std::{process::ExitCode, time::Duration};

/// Arguments of the tool: fields are its schema, and their comments what the model reads.
#[derive(Deserialize, JsonSchema)]
struct Reservation {
    /// The article, such as `tea`. Clients repeat it in the header `Mcp-Param-Article`.
    #[schemars(extend("x-mcp-header" = "Article"))]
    article: String,
    /// The number of pieces.
    #[schemars(range(min = 1, max = 1000))]
    count: u32,
    /// The password of the customer; not in the ledger.
    #[serde(default)]
    password: String,
}

async fn reserve(_: ToolCx, asked: Reservation) -> Result<String, ToolError> {
    if asked.password.is_empty() {
        return Err(ToolError::failed("the customer must sign in first"));
    }
    let Reservation { article, count, .. } = asked;
    // The warehouse takes its time.
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(format!("{count} of {article} are reserved"))
}

fn main() -> Result<ExitCode, Failure> {
    let port = std::env::args().nth(1);
    let port: u16 = port.as_deref().unwrap_or("8080").parse()?;
    let reserve = Tool::native("reserve-stock", reserve).describe("Reserves articles in stock.");
    let server = Server::builder("warehouse", env!("CARGO_PKG_VERSION"))
        .tools(ToolSet::new([reserve])?)
        .skills("skills")
        .settings(include_str!("rules.yaml"))
        .ledger("data/ledger.db")
        .http(([127, 0, 0, 1], port));
    Ok(server.run())
}
