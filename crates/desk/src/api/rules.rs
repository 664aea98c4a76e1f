//! Rules in force, and what is used of their limits.

use ledger::system_now_us;
use operator::look::{Cell, shown};
use schemars::JsonSchema;
use serde::Serialize;
use server::with_causes;

use crate::call::Call;
use crate::reply::{Problem, Reply};

/// Rules in force.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Rules {
    /// Version, a digest of what they say.
    version: String,
    /// The section `governance` of the configuration with its defaults; secrets are left out.
    governance: Cell,
    /// Time at which they were asked for, RFC 3339.
    at: String,
}

pub(crate) async fn show(call: Call<'_>) -> Result<Reply, Problem> {
    let server = &call.desk.server;
    let governance = serde_json::to_string(&server.governance())
        .map_err(|error| Problem::unavailable(&error))?;
    Ok(Reply::json(&Rules {
        version: format!("{:016x}", server.rules_version()),
        governance: Cell::of_json(&governance),
        at: shown(system_now_us()),
    }))
}

pub(crate) async fn limits(call: Call<'_>) -> Result<Reply, Problem> {
    match call.desk.server.usage().await {
        Ok(usage) => Ok(Reply::json(&usage)),
        Err(failure) => {
            tracing::error!(error = with_causes(&*failure), "use cannot be told");
            let why = "the counters cannot be reached, so what is used is unknown";
            Err(Problem::new(http::StatusCode::SERVICE_UNAVAILABLE, why))
        }
    }
}
