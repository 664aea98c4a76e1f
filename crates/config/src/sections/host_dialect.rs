//! The dialect of founding document 004.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The dialect of founding document 004 at `/host`, for clients that know no other: its own methods, envelopes and codes.
/// Requests are governed and recorded like all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostDialect {
    /// Speak it.
    pub enabled: bool,
    /// Seconds without a request or a stream after which a session ends.
    #[schemars(range(min = 1, max = 604_800))]
    pub session_timeout_seconds: u64,
    /// Sessions at once.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions: usize,
    /// Sessions of one client.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions_per_client: usize,
    /// Requests of one session in a minute, refusals included.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_requests_per_minute: usize,
    /// Requests of one session that run at once.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_concurrent_requests: usize,
    /// Bytes of notifications that wait for the stream of one session; the oldest go first.
    #[schemars(range(min = 1_024, max = 67_108_864))]
    pub max_queued_bytes: usize,
    /// Watchers of one session.
    #[schemars(range(min = 1, max = 1_000))]
    pub max_watchers: usize,
    /// The file in which sessions are kept, so that they go on after a restart. Without one they end with the server.
    #[schemars(extend("format" = "path"))]
    pub state_file: Option<PathBuf>,
}

impl Default for HostDialect {
    fn default() -> Self {
        Self {
            enabled: false,
            session_timeout_seconds: 3_600,
            max_sessions: 1_000,
            max_sessions_per_client: 32,
            max_requests_per_minute: 600,
            max_concurrent_requests: 16,
            max_queued_bytes: 256 * 1024,
            max_watchers: 32,
            state_file: None,
        }
    }
}
