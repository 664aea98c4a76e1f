//! Settings of a server.

use crate::{
    clock::{Clock, system_clock},
    invocation::answer::AnswerOptions,
    observe::calls::RequestLog,
};
use mcp_service::EngineLimits;
use std::time::Duration;

/// Settings of a server.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The longest time of a call, unless its tool says otherwise.
    pub default_timeout: Duration,
    /// After how long a call that says nothing reports progress by itself.
    pub progress_after: Duration,
    /// The most tools on a page.
    pub tools_page: usize,
    /// The most resources on a page.
    pub resources_page: usize,
    /// The longest time clients may keep the list of tools.
    pub tools_ttl: Duration,
    /// The longest time clients may keep the list of resources, and the content of one.
    pub resources_ttl: Duration,
    /// Options for the answers to callers of tools.
    pub answering: AnswerOptions,
    /// Bounds of the engine.
    pub limits: EngineLimits,
    /// True if handlers may send log messages to clients. The protocol advises new servers against it
    /// since 2026-07-28.
    pub client_logging: bool,
    /// The time in which an approval can be decided and used after it was asked for; a denial holds as
    /// long.
    pub approvals_expire: Duration,
    /// The time for which idempotency keys and the answers of their calls are kept.
    pub keep_keys: Duration,
    /// True if tools that change nothing, as the policy knows them, may be called while the ledger
    /// cannot be written. Those calls are on no record.
    pub read_only_exempt: bool,
    /// The requests that have a line in the log, to begin with.
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
