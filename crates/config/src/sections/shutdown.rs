//! Shutdown of the server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Shutdown of the server after a signal, or after the end of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// Seconds for which the server still takes requests over HTTP while it reports that it is not
    /// ready, so that load balancers turn elsewhere before requests are refused.
    #[schemars(range(max = 600))]
    pub ready_delay_seconds: u64,
    /// Seconds for which calls may go on after the shutdown began; then they are cancelled.
    #[schemars(range(max = 3_600))]
    pub drain_seconds: u64,
}

impl Default for Shutdown {
    /// Defaults with which the whole shutdown, the end of the application and of the ledger
    /// included, takes less than five seconds.
    fn default() -> Self {
        Self {
            ready_delay_seconds: 0,
            drain_seconds: 3,
        }
    }
}
