//! Settings of a server.

use crate::{
    clock::{Clock, system_clock},
    invocation::answer::AnswerOptions,
    observe::calls::RequestLog,
};
use mcp_service::EngineLimits;
use std::time::Duration;

/// How a server behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a call may take unless its tool says otherwise.
    pub default_timeout: Duration,
    /// After how long a call that says nothing reports progress by itself.
    pub progress_after: Duration,
    /// The most tools on a page.
    pub tools_page: usize,
    /// The most resources on a page.
    pub resources_page: usize,
    /// How long clients may keep the list of tools.
    pub tools_ttl: Duration,
    /// How long clients may keep the list of resources, and what they read.
    pub resources_ttl: Duration,
    /// Options for the answers to callers of tools.
    pub answering: AnswerOptions,
    /// Bounds of the engine.
    pub limits: EngineLimits,
    /// Whether handlers may send log messages to clients. The protocol advises new servers against
    /// it since 2026-07-28.
    pub client_logging: bool,
    /// How long an approval can be decided and used after it was asked for; as long, what was denied
    /// is refused.
    pub approvals_expire: Duration,
    /// How long idempotency keys are remembered, and what their calls were answered.
    pub keep_keys: Duration,
    /// Whether tools that change nothing, as the policy knows them, may be called while the ledger
    /// cannot be written. Those calls are on no record.
    pub read_only_exempt: bool,
    /// Which requests have a line in the log, to begin with.
    pub request_log: RequestLog,
    /// Tells the time.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            default_timeout: Duration::from_secs(300),
            progress_after: Duration::from_secs(30),
            tools_page: 100,
            resources_page: 50,
            tools_ttl: Duration::from_secs(300),
            resources_ttl: Duration::from_secs(600),
            answering: AnswerOptions::default(),
            limits: EngineLimits::default(),
            client_logging: false,
            approvals_expire: Duration::from_secs(60 * 60),
            keep_keys: Duration::from_secs(24 * 60 * 60),
            read_only_exempt: false,
            request_log: RequestLog::All,
            clock: system_clock,
        }
    }
}
