//! How the Python application is run, and what of it is offered besides its handlers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The processes that run the application's handlers. They share nothing: what a handler keeps in
/// memory, only later calls in the same process see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Workers {
    /// How many there are. With one, handlers share their memory, and one that blocks holds up all
    /// others.
    #[schemars(range(min = 1, max = 64))]
    pub count: usize,
    /// How they are started.
    pub start: WorkerStart,
    /// Load the application anew when its code changes on disk.
    pub watch: bool,
    /// How long a handler may go on after its call was cancelled or has timed out before its worker is
    /// killed, and with it whatever else runs there.
    #[schemars(range(min = 1, max = 3_600))]
    pub grace_seconds: u64,
    /// How much memory each may address, in bytes; a handler that wants more gets a `MemoryError`.
    /// Without it there is no bound but the machine's.
    #[schemars(range(min = 67_108_864))]
    pub max_memory_bytes: Option<u64>,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            count: 4,
            start: WorkerStart::default(),
            watch: true,
            grace_seconds: 2,
            max_memory_bytes: None,
        }
    }
}

/// How workers are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkerStart {
    /// By `fork` where that is safe for the application, else by `spawn`.
    #[default]
    Auto,
    /// The application is imported once, and workers are copies of that process: they are there at
    /// once and share the memory of what was imported.
    Fork,
    /// Each worker imports the application for itself.
    Spawn,
}

/// The application's states (`@app.state`), which are offered in neither way unless asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct States {
    /// As a tool, `query_state`.
    pub tool: bool,
    /// As resources, `state://NAME`.
    pub resources: bool,
}
