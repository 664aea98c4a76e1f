//! How the server ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the server ends once it was told to: by a signal, or by the end of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// For so long it goes on taking requests over HTTP while it says that it is not ready, so that
    /// balancers look elsewhere before they are turned away.
    #[schemars(range(max = 600))]
    pub ready_delay_seconds: u64,
    /// How long what was asked before may go on; what is not done then is cancelled.
    #[schemars(range(max = 3_600))]
    pub drain_seconds: u64,
}

impl Default for Shutdown {
    /// With what ending the application and the ledger takes besides, less than five seconds.
    fn default() -> Self {
        Self {
            ready_delay_seconds: 0,
            drain_seconds: 3,
        }
    }
}
