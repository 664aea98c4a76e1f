//! Calls that let go of the client's connection and are answered when it comes back.

use adapter_tools::{NoArguments, Tool, ToolCx, ToolError};
use std::time::Duration;

pub(crate) fn tools() -> Vec<Tool> {
    vec![
        Tool::native("test_reconnection", hang_up)
            .describe("Closes the connection and answers on the next one."),
        Tool::native_blocking("test_reconnection_blocking", hang_up_blocking)
            .describe("The same, from a thread of its own."),
    ]
}

/// The client finds the connection closed while the call is still being handled.
const PAUSE: Duration = Duration::from_millis(200);

async fn hang_up(cx: ToolCx, _: NoArguments) -> Result<&'static str, ToolError> {
    cx.progress(1.0, Some(3.0), Some("about to hang up".to_owned()));
    cx.close_stream();
    tokio::time::sleep(PAUSE).await;
    cx.progress(2.0, Some(3.0), Some("nobody listens".to_owned()));
    Ok("The client has come back.")
}

fn hang_up_blocking(cx: ToolCx, _: NoArguments) -> Result<&'static str, ToolError> {
    cx.progress(1.0, Some(3.0), Some("about to hang up".to_owned()));
    cx.close_stream();
    std::thread::sleep(PAUSE);
    cx.progress(2.0, Some(3.0), Some("nobody listens".to_owned()));
    Ok("The client has come back.")
}
