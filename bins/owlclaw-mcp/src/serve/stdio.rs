//! One client, over standard input and output.

use mcp_service::Principal;
use transport_stdio::{End, StdioOptions, standard_streams};

use super::build::Server;
use super::identity::StdioKey;
use crate::Failure;

/// What the client is called unless `MCP_CLIENT_ID` says otherwise (decision D7).
const DEFAULT_CLIENT: &str = "stdio-client";

pub(super) async fn serve(server: &Server) -> Result<(), Failure> {
    let key = StdioKey::of(&server.config, server.identification.as_ref())?;
    let principal = match &key {
        Some(key) => key.principal(),
        None => principal()?,
    };
    let (input, output) = standard_streams()?;
    tracing::info!(transport = "stdio", principal = %principal, "serving");
    server.gateway.keep_tasks();
    let lifecycle = &server.lifecycle;
    lifecycle.serving();
    lifecycle.ready();
    let stop = async {
        match &key {
            None => lifecycle.asked().await,
            Some(key) => tokio::select! {
                () = lifecycle.asked() => {}
                () = key.ended() => {}
            },
        }
    };
    let engine = server.gateway.engine();
    let end = transport_stdio::serve(
        engine,
        principal,
        input,
        output,
        stop,
        StdioOptions {
            drain: lifecycle.drain(),
            ..StdioOptions::default()
        },
    )
    .await?;
    match end {
        End::DrainTimedOut { given_up } => {
            lifecycle.begin_after(lifecycle.drain());
            tracing::warn!(given_up, "some requests were not done in time");
        }
        End::InputEnded | End::Stopped => tracing::info!(?end, "served"),
    }
    Ok(())
}

/// Who calls over standard input, and on the command line.
pub(super) fn principal() -> Result<Principal, Failure> {
    match std::env::var("MCP_CLIENT_ID") {
        Ok(name) if name.trim().is_empty() => Ok(Principal::new(DEFAULT_CLIENT)),
        Ok(name) if Principal::MAX_LENGTH < name.len() => Err(format!(
            "MCP_CLIENT_ID is longer than {} bytes",
            Principal::MAX_LENGTH
        )
        .into()),
        Ok(name) if !name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
            Err("MCP_CLIENT_ID must be printable ASCII".into())
        }
        Ok(name) => Ok(Principal::new(name.trim())),
        Err(std::env::VarError::NotPresent) => Ok(Principal::new(DEFAULT_CLIENT)),
        Err(std::env::VarError::NotUnicode(_)) => Err("MCP_CLIENT_ID is not UTF-8".into()),
    }
}
