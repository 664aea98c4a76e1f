//! Stored form of the state of a legacy session.

use mcp_protocol::model::{ClientCapabilities, LoggingLevel};
use mcp_protocol::{Era, ProtocolVersion};
use mcp_service::SessionState;
use serde::{Deserialize, Serialize};

/// Stored form of a session. Members may be added, and none changed: an older version ignores
/// members it does not know.
#[derive(Serialize, Deserialize)]
struct State {
    version: String,
    /// Asked for as `"1.0"`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    founding: bool,
    capabilities: ClientCapabilities,
    log_level: LoggingLevel,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    resources: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tasks: Vec<String>,
}

pub(super) fn written_state(state: &SessionState) -> String {
    let state = State {
        version: state.version.as_str().to_owned(),
        founding: state.is_founding,
        capabilities: state.capabilities.clone(),
        log_level: state.log_level,
        resources: state.resources.clone(),
        tasks: state.tasks.clone(),
    };
    // A text that cannot be read is a session that is not restored.
    serde_json::to_string(&state).unwrap_or_default()
}

pub(super) fn read_state(text: &str) -> Option<SessionState> {
    let state: State = serde_json::from_str(text).ok()?;
    let version = state.version.parse::<ProtocolVersion>().ok()?;
    (version.era() == Era::Legacy).then_some(SessionState {
        version,
        is_founding: state.founding,
        capabilities: state.capabilities,
        log_level: state.log_level,
        resources: state.resources,
        tasks: state.tasks,
    })
}
