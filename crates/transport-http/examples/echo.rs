//! A server with two tools, `echo` and `add`: `cargo run --release --example echo -- 127.0.0.1:8080`.
//!
//! The second argument is how many threads serve; one if there is none. Runs until it is killed.

use jsonrpc_core::{ErrorCode, RawJson};
use mcp_protocol::model::{
    CallToolResult, ClientRequest, Content, Implementation, ListToolsResult, ServerCapabilities,
    ServerResult, Tool,
};
use mcp_service::{Engine, EngineLimits, McpError, RequestCx, ServerIdentity, Service};
use serde::Deserialize;
use std::{borrow::Cow, error::Error, num::NonZeroUsize};
use transport_http::{HttpLimits, HttpOptions, serve_on_threads};

struct Echo;

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    message: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Summands {
    a: f64,
    b: f64,
}

impl Service<ClientRequest> for Echo {
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, _: &RequestCx, request: ClientRequest) -> Result<ServerResult, McpError> {
        let call = match request {
            ClientRequest::CallTool(call) => call,
            ClientRequest::ListTools(_) => {
                return Ok(ServerResult::ListTools(ListToolsResult {
                    tools: vec![tool("echo"), tool("add")],
                    ..ListToolsResult::default()
                }));
            }
            _ => return Ok(ServerResult::Empty),
        };
        let invalid =
            |error: serde_json::Error| McpError::new(ErrorCode::INVALID_PARAMS, error.to_string());
        let text = match call.name.as_str() {
            "echo" => {
                let message: Message<'_> = call.arguments.parse().map_err(invalid)?;
                message.message.into_owned()
            }
            "add" => {
                let Summands { a, b } = call.arguments.parse().map_err(invalid)?;
                (a + b).to_string()
            }
            _ => return Err(McpError::new(ErrorCode::INVALID_PARAMS, "no such tool")),
        };
        Ok(ServerResult::CallTool(CallToolResult {
            content: vec![Content::text(text)],
            ..CallToolResult::default()
        }))
    }
}

fn tool(name: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        title: None,
        description: None,
        input_schema: RawJson::from_serialized(br#"{"type":"object"}"#.to_vec()),
        output_schema: None,
        annotations: None,
        icons: Vec::new(),
        task_support: Default::default(),
        meta: Default::default(),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let threads = match arguments.next() {
        Some(threads) => threads.parse()?,
        None => NonZeroUsize::MIN,
    };
    let identity = ServerIdentity {
        info: Implementation {
            name: "echo".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Implementation::default()
        },
        capabilities: ServerCapabilities {
            tools: true,
            ..ServerCapabilities::default()
        },
        instructions: None,
        discover_ttl_ms: 60_000,
    };
    let options = HttpOptions {
        limits: HttpLimits {
            // Everybody is the same address when a machine talks with itself.
            max_sessions_per_principal: 10_000,
            ..HttpLimits::default()
        },
        ..HttpOptions::default()
    };
    let engine = Engine::new(Echo, identity, EngineLimits::default());
    let server = serve_on_threads(
        engine,
        options,
        address.parse::<std::net::SocketAddr>()?,
        threads,
    )?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(server.stopped());
    Ok(())
}
