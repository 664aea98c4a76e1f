//! One client, over standard input and output.

use std::io::{IsTerminal, stdin};
use std::time::Duration;

use jsonrpc_core::{ErrorCode, ErrorObject};
use mcp_service::Principal;
use serde_json::json;
use transport_stdio::{End, StdioOptions, refuse, standard_streams};

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

/// How long a client has to ask why there is no server.
const REFUSING: Duration = Duration::from_secs(5);

/// The most characters of what it is told.
const MAX_TOLD_CHARACTERS: usize = 2_048;

/// Tells the client that has started this program why it does not serve. A terminal is no client.
pub(crate) fn tell_client(why: &str) {
    if stdin().is_terminal() {
        return;
    }
    // Causes come from databases and from handlers' code, too.
    let why = gateway::redactor_of_this_process().text(why).into_owned();
    let why: String = why.chars().take(MAX_TOLD_CHARACTERS).collect();
    let error = ErrorObject::new(
        ErrorCode::INTERNAL_ERROR,
        format!("the server cannot start: {why}"),
    );
    let error = error.with(&json!({ "details": why, "retryable": false }));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return;
    };
    runtime.block_on(async {
        if let Ok((input, output)) = standard_streams() {
            // A client that has gone hears nothing.
            let _ = refuse(input, output, &error, REFUSING).await;
        }
    });
    // A thread that still reads standard input would hold the program up.
    runtime.shutdown_background();
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
