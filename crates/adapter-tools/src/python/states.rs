use super::{executor::read_state, scheduler::Scheduler};
use crate::{Annotations, Arguments, Executor, Tool, ToolCx, ToolError, ToolKind, ToolOutput};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// Asks for a state by its name.
struct QueryState(Arc<Scheduler>);

#[derive(Deserialize)]
struct Query {
    state_name: String,
}

impl Executor for QueryState {
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            // They fit the schema, so this cannot fail.
            let query: Query =
                serde_json::from_slice(arguments.raw()).map_err(ToolError::broken)?;
            read_state(&self.0, &query.state_name, cx).await
        })
    }
}

/// The tool for these states, if there are any.
pub(super) fn query_state(names: &[String], scheduler: &Arc<Scheduler>) -> Option<Tool> {
    if names.is_empty() {
        return None;
    }
    let schema = json!({
        "type": "object",
        "properties": {
            "state_name": {
                "type": "string",
                "enum": names,
                "description": "Which state."
            }
        },
        "required": ["state_name"],
        "additionalProperties": false
    });
    let annotations = Annotations {
        read_only: Some(true),
        destructive: Some(false),
        idempotent: Some(true),
        open_world: Some(false),
    };
    let tool = Tool::new("query_state", schema, QueryState(Arc::clone(scheduler)))
        .describe("Read a state of the business: what the application knows right now.")
        .with_annotations(annotations)
        .with_async(false)
        .with_kind(ToolKind::Python);
    Some(tool)
}
