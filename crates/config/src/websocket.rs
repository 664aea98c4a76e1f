//! WebSockets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// WebSockets, at `/mcp/ws`, for clients that speak MCP over them. No revision of the protocol
/// describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebSocket {
    /// Whether there are any.
    pub enabled: bool,
    /// How many are open at once; one more is answered with 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_open: usize,
    /// How many of them one client has.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_open_per_client: usize,
    /// How often a client is looked after: whether it is still there, and still may be. One that
    /// gives no sign of life for as long again is gone.
    #[schemars(range(min = 1, max = 3_600))]
    pub ping_seconds: u64,
    /// How many bytes of messages that have not come as a whole are held, of all clients together.
    /// There is always room for one of `max_body_bytes`.
    #[schemars(range(min = 65_536, max = 1_099_511_627_776_u64))]
    pub max_unfinished_bytes: usize,
}

impl Default for WebSocket {
    fn default() -> Self {
        Self {
            enabled: false,
            max_open: 256,
            max_open_per_client: 32,
            ping_seconds: 30,
            max_unfinished_bytes: 64 * 1024 * 1024,
        }
    }
}
