//! Tools whose calls become tasks: their callers are answered at once and fetch the results later.

use adapter_tools::{
    Elicited, Needed, NoArguments, Question, TaskSupport, Tool, ToolCx, ToolError,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

pub(crate) fn tools() -> Vec<Tool> {
    vec![
        Tool::native("greet", greet)
            .describe("Greets, without any delay.")
            .with_task_support(TaskSupport::Forbidden),
        Tool::native("slow_compute", slow_compute).describe("Computes for some seconds."),
        Tool::native("failing_job", failing_job)
            .describe("Fails after a second.")
            .with_task_support(TaskSupport::Required),
        Tool::native("protocol_error_job", protocol_error_job)
            .describe("Breaks down after a while."),
        Tool::native("confirm_delete", confirm_delete)
            .describe("Asks the user before it deletes a file."),
        Tool::native("multi_input", multi_input).describe("Asks the user two things at once."),
        Tool::native("test_tool_with_task", name_and_work)
            .describe("Asks for a name first, and works on it afterwards.")
            .with_task_support(TaskSupport::Required),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Name of the person to greet.
    name: String,
}

async fn greet(_: ToolCx, Greet { name }: Greet) -> Result<String, ToolError> {
    Ok(format!("Hello, {name}!"))
}

#[derive(Deserialize, JsonSchema)]
struct Compute {
    /// Seconds that the task takes.
    seconds: u64,
    /// Label of the result.
    label: Option<String>,
}

async fn slow_compute(cx: ToolCx, compute: Compute) -> Result<String, ToolError> {
    if 0 < compute.seconds {
        cx.continue_as_task();
    }
    tokio::time::sleep(Duration::from_secs(compute.seconds)).await;
    let label = compute.label.as_deref().unwrap_or("result");
    Ok(format!("{label}: 42"))
}

async fn failing_job(cx: ToolCx, _: NoArguments) -> Result<String, ToolError> {
    cx.continue_as_task();
    tokio::time::sleep(Duration::from_secs(1)).await;
    Err(ToolError::failed("the job has failed, as it always does"))
}

async fn protocol_error_job(cx: ToolCx, _: NoArguments) -> Result<String, ToolError> {
    cx.continue_as_task();
    tokio::time::sleep(Duration::from_millis(100)).await;
    Err(ToolError::broken("it breaks down, as it always does"))
}

#[derive(Deserialize, JsonSchema)]
struct Delete {
    /// Name of the file.
    filename: String,
}

async fn confirm_delete(cx: ToolCx, Delete { filename }: Delete) -> Result<String, ToolError> {
    cx.continue_as_task();
    let schema = json!({
        "type": "object",
        "properties": { "confirm": { "type": "boolean" } },
        "required": ["confirm"],
    });
    let asked = Needed::form("confirm", format!("Delete {filename}?"), schema);
    match cx.answers().elicited("confirm", &asked) {
        None => Err(ToolError::NeedsInput(asked)),
        Some(Elicited::Accepted(content)) if content.get("confirm") == Some(&json!(true)) => {
            Ok(format!("{filename} is deleted."))
        }
        Some(_) => Ok(format!("{filename} is kept.")),
    }
}

async fn multi_input(cx: ToolCx, _: NoArguments) -> Result<String, ToolError> {
    cx.continue_as_task();
    let answers = cx.answers();
    let question = |name: &str| Question::Form {
        message: format!("The {name} value?"),
        schema: json!({
            "type": "object",
            "properties": { "value": { "type": "string" } },
        })
        .into(),
    };
    let asked = Needed::default()
        .and("first", question("first"))
        .and("second", question("second"));
    match ["first", "second"].map(|key| answers.elicited(key, &asked)) {
        [Some(_), Some(_)] => Ok("Both have been answered.".to_owned()),
        _ => Err(ToolError::NeedsInput(asked)),
    }
}

async fn name_and_work(cx: ToolCx, _: NoArguments) -> Result<String, ToolError> {
    let schema = json!({
        "type": "object",
        "properties": { "name": { "type": "string" } },
        "required": ["name"],
    });
    let asked = Needed::form("user_name", "What is your name?", schema);
    let Some(Elicited::Accepted(content)) = cx.answers().elicited("user_name", &asked) else {
        return Err(ToolError::NeedsInput(asked));
    };
    cx.continue_as_task();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let name = content.get("name").and_then(|name| name.as_str());
    Ok(format!("Worked for {}.", name.unwrap_or("nobody")))
}
