use jsonrpc_core::Limits;
use std::time::Duration;

/// Bounds on what a server can make its client store, do and wait for.
///
/// Each has a default that no honest server known to us reaches.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Most bytes of one message, of one event of a stream, and of one body.
    pub max_message: usize,
    /// Deepest nesting of one message.
    pub max_depth: usize,
    /// Most messages of one batch (2025-03-26 and before).
    pub max_batch: usize,
    /// Most requests of ours that are under way at once; further ones are refused.
    pub max_open: usize,
    /// Most notifications that a server may send for one request, listening excepted.
    pub max_notifications: u64,
    /// Most questions of a legacy server that are answered at once; further ones are refused.
    pub max_questions: usize,
    /// Most rounds in which one request may ask for input, of either era.
    pub max_rounds: usize,
    /// Most pages of one list.
    pub max_pages: usize,
    /// Most items of one list.
    pub max_items: usize,
    /// Most bytes of all pages of one list together, as they were sent; what is left out of them counts.
    pub max_list_bytes: usize,
    /// Most changes that wait in a subscription to be read; further ones are counted and dropped.
    pub max_waiting_changes: usize,
    /// Most answers to ids that are not under way before the server is left.
    pub max_unexpected: u64,
    /// Most lines on standard output (or frames) that are no messages, between two answers, before the server is left.
    pub max_rubbish: u64,
    /// Most bytes kept of a child's standard error: the last ones.
    pub max_stderr: usize,
    /// Most times that the stream of one answer is resumed.
    pub max_resumptions: usize,
    /// Most redirections of one request; they must stay on the same origin.
    pub max_redirects: usize,
    /// Most times that one request is repeated because of authorization.
    pub max_authorizations: usize,
    /// Longest pause before a stream is resumed that a server may ask for (`retry:`).
    pub max_retry: Duration,
    /// Time for the answer to `server/discover`; silence beyond it means a legacy server.
    pub probe: Duration,
    /// The same over HTTP, where connecting takes its time; signing in may take a whole
    /// [`timeout`](Self::timeout).
    pub probe_http: Duration,
    /// Time for one request, unless its [`CallOptions`](crate::CallOptions) say otherwise.
    pub timeout: Duration,
    /// Time that a child has to end after its input was closed, and again after SIGTERM.
    pub close_patience: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_message: 16 << 20,
            max_depth: 128,
            max_batch: 1024,
            max_open: 4096,
            max_notifications: 100_000,
            max_questions: 16,
            max_rounds: 16,
            max_pages: 1000,
            max_items: 100_000,
            max_list_bytes: 32 << 20,
            max_waiting_changes: 1024,
            max_unexpected: 1000,
            max_rubbish: 10_000,
            max_stderr: 64 << 10,
            max_resumptions: 16,
            max_redirects: 3,
            max_authorizations: 8,
            max_retry: Duration::from_secs(30),
            probe: Duration::from_secs(2),
            probe_http: Duration::from_secs(10),
            timeout: Duration::from_secs(60),
            close_patience: Duration::from_secs(2),
        }
    }
}

impl Bounds {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_frame: self.max_message,
            max_batch: self.max_batch,
            max_depth: self.max_depth,
        }
    }
}
