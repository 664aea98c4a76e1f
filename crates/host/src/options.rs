//! Options and bounds of a host.

use std::{path::PathBuf, time::Duration};

/// Options of a host, with its bounds for each session (rows 34, 52 and 134 of document 004).
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Time without a request or an event stream after which a session ends. Zero is not sensible.
    pub session_timeout: Duration,
    /// Time without a request after which a session is called idle.
    pub idle_after: Duration,
    /// The most sessions at once.
    pub max_sessions: usize,
    /// The most sessions of one client.
    pub max_sessions_per_principal: usize,
    /// Requests of a session in a minute.
    pub max_requests_per_minute: usize,
    /// Requests of a session that run at once.
    pub max_concurrent_requests: usize,
    /// Bytes of notifications that wait for a session's stream; the oldest go first.
    pub max_queued_bytes: usize,
    /// Watchers of a session.
    pub max_watchers: usize,
    /// The file with the sessions, written when the host stops and once a minute. `None`: they end with the process.
    pub state_file: Option<PathBuf>,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            session_timeout: Duration::from_secs(3_600),
            idle_after: Duration::from_secs(60),
            max_sessions: 1_000,
            max_sessions_per_principal: 32,
            max_requests_per_minute: 600,
            max_concurrent_requests: 16,
            max_queued_bytes: 256 * 1024,
            max_watchers: 32,
            state_file: None,
        }
    }
}
