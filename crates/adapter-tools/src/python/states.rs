use super::{
    executor::carry_out,
    frames::Ready,
    scheduler::{Kind, Scheduler},
};
use crate::{Annotations, Arguments, Executor, Tool, ToolCx, ToolError, ToolKind, ToolOutput};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::watch;

/// Asks for a state by its name.
struct QueryState {
    scheduler: Arc<Scheduler>,
    ready: watch::Receiver<Arc<Ready>>,
}

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
            let is_async = is_async(&self.ready, &query.state_name);
            let subject = (Kind::State, query.state_name.into(), is_async);
            carry_out(&self.scheduler, subject, Bytes::new(), cx).await
        })
    }
}

/// Returns true if the provider of a state is asynchronous, in the application as it was loaded
/// last. An unknown provider counts as synchronous: it may hold the worker's only thread.
pub(super) fn is_async(ready: &watch::Receiver<Arc<Ready>>, name: &str) -> bool {
    let ready = ready.borrow();
    let found = ready.states.iter().find(|state| state.name == name);
    found.is_some_and(|state| state.is_async)
}

/// The tool for the states of an application, if it has any. It is asynchronous if all of them are.
pub(super) fn query_state(
    ready: &watch::Receiver<Arc<Ready>>,
    scheduler: &Arc<Scheduler>,
) -> Option<Tool> {
    let states = ready.borrow().states.clone();
    if states.is_empty() {
        return None;
    }
    let names: Vec<_> = states.iter().map(|state| state.name.as_str()).collect();
    let is_async = states.iter().all(|state| state.is_async);
    let query = QueryState {
        scheduler: Arc::clone(scheduler),
        ready: ready.clone(),
    };
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
    let tool = Tool::new("query_state", schema, query)
        .describe("Read a state of the business: what the application knows right now.")
        .with_annotations(annotations)
        .with_async(is_async)
        .with_kind(ToolKind::Python);
    Some(tool)
}
