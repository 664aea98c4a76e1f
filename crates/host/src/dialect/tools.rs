//! Tools in the dialect (rows 96 to 105 of document 004).

use mcp_service::McpService;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    dialect::{
        methods::Call,
        servers::{OWN, upstream},
    },
    failure::{BAD_ARGUMENTS, Failure, INVALID_PARAMS, NO_TASK, NO_TOOL, UNKNOWN_METHOD},
};

/// Tokens of tasks that a session remembers, for their progress alone.
const MAX_TASKS: usize = 1_000;

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Discover {
    category: Option<String>,
    query: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Invoke {
    name: String,
    #[serde(default)]
    parameters: Map<String, Value>,
    #[serde(default, rename = "async")]
    is_async: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    task_id: String,
}

/// A tool of a list, as the document describes it.
pub(crate) fn described(mut tool: Value) -> Value {
    let category = category(&tool).map(str::to_owned);
    let mut told = json!({
        "name": tool["name"].take(),
        "description": tool["description"].take(),
        "parameters": tool["inputSchema"].take(),
    });
    if let Some(returns) = tool.get("outputSchema") {
        told["returns"] = returns.clone();
    }
    if let Some(category) = category {
        told["category"] = category.into();
    }
    told
}

/// The category of a tool: that of its skill, else the server that it comes from.
fn category(tool: &Value) -> Option<&str> {
    let own = tool.pointer("/_meta/io.owlclaw~1category");
    own.and_then(Value::as_str).or_else(|| upstream(tool))
}

/// Output of a tool: what is structured, else its text, else its blocks of content.
pub(crate) fn output(result: &Value) -> Value {
    if let Some(structured) = result.get("structuredContent") {
        return structured.clone();
    }
    let blocks = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    match blocks {
        [only] if only["type"] == "text" => only["text"].clone(),
        _ => result["content"].clone(),
    }
}

/// The document's word for the status of a task.
pub(crate) fn status(status: &Value) -> &'static str {
    match status.as_str() {
        Some("completed") => "completed",
        Some("failed") => "error",
        Some("cancelled") => "cancelled",
        Some("input_required") => "pending",
        _ => "running",
    }
}

/// Failure of a call. MCP calls it an unknown method to call a tool as a task that cannot be one, or the other way round.
fn of_call(failure: Failure) -> Failure {
    match failure.is_missing_method() {
        true => Failure::new(NO_TOOL, "there is no such tool"),
        false => failure.but(UNKNOWN_METHOD, BAD_ARGUMENTS),
    }
}

impl<S: McpService> Call<'_, S> {
    /// `discover_tools`.
    pub(crate) async fn discover_tools(&self) -> Result<Value, Failure> {
        let asked: Discover = self.request.params()?;
        let mut tools = self.list("tools/list", "tools", json!({})).await?;
        let query = asked.query.map(|it| it.to_lowercase());
        let target = self.request.target.as_deref();
        tools.retain(|tool| {
            let has = |it: &str| {
                let text = tool[it].as_str().unwrap_or_default().to_lowercase();
                query.as_ref().is_none_or(|query| text.contains(query))
            };
            (has("name") || has("description"))
                && asked
                    .category
                    .as_deref()
                    .is_none_or(|it| category(tool) == Some(it))
                && target.is_none_or(|it| it == upstream(tool).unwrap_or(OWN))
        });
        let tools: Vec<_> = tools.into_iter().map(described).collect();
        let total = tools.len();
        Ok(json!({ "tools": tools, "total": total }))
    }

    /// The name under which a tool is offered: with a `target`, that server's own name also.
    async fn tool(&self, name: String) -> Result<String, Failure> {
        let Some(target) = self.target() else {
            return Ok(name);
        };
        let tools = self.list("tools/list", "tools", json!({})).await?;
        let is_it = |it: &&Value| {
            let own = it.pointer("/_meta/io.owlclaw~1upstream/tool");
            upstream(it) == Some(target) && (it["name"] == name || own == Some(&json!(name)))
        };
        let found = tools.iter().find(is_it).and_then(|it| it["name"].as_str());
        let unknown = || Failure::new(NO_TOOL, "the target has no such tool");
        found.map(str::to_owned).ok_or_else(unknown)
    }

    /// `invoke_tool`, waited for, or as a task.
    pub(crate) async fn invoke_tool(&self) -> Result<Value, Failure> {
        let asked: Invoke = self.request.params()?;
        let name = self.tool(asked.name).await?;
        let mut call = json!({ "name": name, "arguments": asked.parameters });
        if !asked.is_async {
            let result = self.ask("tools/call", call).await.map_err(of_call)?;
            return match result["isError"] == true {
                true => Err(Failure::of_result(&result)),
                false => Ok(json!({ "output": output(&result) })),
            };
        }
        let token = format!("task-{}", self.session.next());
        call["task"] = json!({});
        call["_meta"] = json!({ "progressToken": token });
        let begun = self.ask("tools/call", call).await.map_err(of_call)?;
        let Some(task) = begun.pointer("/task/taskId").and_then(Value::as_str) else {
            // It was refused before it became a task.
            return Err(Failure::of_result(&begun));
        };
        let mut known = self.session.known();
        // A task that was over before it was known here is forgotten by nothing else.
        if MAX_TASKS <= known.tasks.len() {
            known.tasks.clear();
        }
        known.tasks.insert(token, task.to_owned());
        Ok(json!({ "task_id": task, "status": "running" }))
    }

    /// A request about a task. An unknown one has a code of its own in the document.
    async fn of_task(&self, method: &str, task: &str) -> Result<Value, Failure> {
        let answer = self.ask(method, json!({ "taskId": task })).await;
        answer.map_err(|it| match it.is_missing_method() {
            true => Failure::new(NO_TASK, "there are no tasks here"),
            false => it.but(INVALID_PARAMS, NO_TASK),
        })
    }

    /// `get_tool_status`.
    pub(crate) async fn tool_status(&self) -> Result<Value, Failure> {
        let Named { task_id } = self.request.params()?;
        let task = self.of_task("tasks/get", &task_id).await?;
        let mut told = json!({
            "task_id": task_id,
            "status": status(&task["status"]),
            "started_at": task["createdAt"],
        });
        if let Some(message) = task.get("statusMessage") {
            told["message"] = message.clone();
        }
        let is_over = matches!(told["status"].as_str(), Some("completed" | "error"));
        if is_over {
            told["completed_at"] = task["lastUpdatedAt"].clone();
            match self.of_task("tasks/result", &task_id).await {
                Ok(result) if result["isError"] == true => {
                    told["status"] = "error".into();
                    told["error"] = Failure::of_result(&result).into_json();
                }
                Ok(result) => told["result"] = output(&result),
                Err(failure) => {
                    told["status"] = "error".into();
                    told["error"] = failure.into_json();
                }
            }
        }
        Ok(told)
    }

    /// `cancel_tool`.
    pub(crate) async fn cancel_tool(&self) -> Result<Value, Failure> {
        let Named { task_id } = self.request.params()?;
        let task = self.of_task("tasks/get", &task_id).await?;
        let before = status(&task["status"]);
        if matches!(before, "completed" | "error" | "cancelled") {
            let message = "Task already completed or failed";
            return Ok(json!({ "task_id": task_id, "status": before, "message": message }));
        }
        let task = self.of_task("tasks/cancel", &task_id).await?;
        Ok(json!({ "task_id": task_id, "status": status(&task["status"]) }))
    }
}
