//! Calls of `echo` by the official Rust SDK: `rmcp-calls VERSION NUMBER (URL | PROGRAM [ARGUMENT]...)`.

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient, ServiceExt,
    model::{CallToolRequestParams, ProtocolVersion},
    service::RunningService,
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};
use serde_json::json;
use std::error::Error;

#[derive(Clone, Default)]
struct Calls;

impl ClientHandler for Calls {}

async fn call(client: RunningService<RoleClient, Calls>, number: usize) -> Result<(), Box<dyn Error>> {
    for _ in 0..number {
        let arguments = json!({ "message": "m100000001xxxxxxxxxxxxxxxxxxxxxx" });
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new("echo").with_arguments(arguments);
        let result = client.call_tool(params).await?;
        assert_eq!(result.content.len(), 1);
    }
    client.cancel().await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [version, number, server @ ..] = arguments.as_slice() else {
        return Err("usage: rmcp-calls VERSION NUMBER (URL | PROGRAM [ARGUMENT]...)".into());
    };
    let number = number.parse()?;
    let modern = ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    };
    let is_modern = version == "2026-07-28";
    let client = match server {
        [url] if url.starts_with("http") => {
            let transport = StreamableHttpClientTransport::from_uri(url.as_str());
            match is_modern {
                true => Calls.serve_with_lifecycle(transport, modern).await?,
                false => Calls.serve(transport).await?,
            }
        }
        [program, arguments @ ..] => {
            let mut command = tokio::process::Command::new(program);
            command.args(arguments);
            let transport = TokioChildProcess::new(command)?;
            match is_modern {
                true => Calls.serve_with_lifecycle(transport, modern).await?,
                false => Calls.serve(transport).await?,
            }
        }
        [] => return Err("name a server".into()),
    };
    call(client, number).await
}
