//! WebSockets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// WebSockets, at `/mcp/ws`, for clients that speak MCP over them. No revision of the protocol
/// describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebSocket {
    /// Accept WebSocket connections.
    pub enabled: bool,
    /// Connections open at once; one more is answered with 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_open: usize,
    /// Connections of one client.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_open_per_client: usize,
    /// Seconds between checks of a client: that it still answers, and still may be connected. A
    /// client that gives no sign of life for as long again is disconnected.
    #[schemars(range(min = 1, max = 3_600))]
    pub ping_seconds: u64,
    /// Bytes of incomplete messages that are held, of all clients together. There is always room
    /// for one of `max_body_bytes`.
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
