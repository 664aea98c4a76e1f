//! Notifications and requests that a tool sends to its caller before it answers.

use adapter_tools::{LogLevel, NoArguments, Tool, ToolCx, ToolError};
use serde_json::json;
use std::time::Duration;

pub(crate) fn tools() -> Vec<Tool> {
    vec![
        Tool::native("test_tool_with_progress", report).describe("Reports progress three times."),
        Tool::native("test_tool_with_logging", log_three_times).describe("Logs three messages."),
        Tool::native("test_logging_tool", log_once)
            .describe("Logs a message for those who want to hear it."),
    ]
}

/// The suite wants to see that each is sent when it happens.
const PAUSE: Duration = Duration::from_millis(50);

async fn report(cx: ToolCx, _: NoArguments) -> Result<&'static str, ToolError> {
    for percent in [0.0, 50.0, 100.0] {
        cx.progress(percent, Some(100.0), Some(format!("{percent} of 100")));
        tokio::time::sleep(PAUSE).await;
    }
    Ok("Progress has been reported.")
}

async fn log_three_times(cx: ToolCx, _: NoArguments) -> Result<&'static str, ToolError> {
    let info = |text| cx.log(LogLevel::Info, None, &json!(text));
    info("Tool execution started");
    tokio::time::sleep(PAUSE).await;
    info("Tool processing data");
    tokio::time::sleep(PAUSE).await;
    info("Tool execution completed");
    Ok("Three messages have been logged.")
}

async fn log_once(cx: ToolCx, _: NoArguments) -> Result<&'static str, ToolError> {
    let data = json!({ "said": "This message is for those who asked for it." });
    cx.log(LogLevel::Info, Some("test_logging_tool"), &data);
    Ok("A message has been logged.")
}
