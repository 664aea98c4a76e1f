//! Counts of one upstream: its calls by outcome, their times, and attempts to connect.

use adapter_tools::ToolError;
use mcp_protocol::client::Answer;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

/// Upper bounds of the times of requests, in seconds.
pub const SECONDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0,
];
/// Names of the outcomes of requests, in the order of [`Outcome`].
const OUTCOMES: [&str; 8] = [
    "ok",
    "error",
    "invalid",
    "timed_out",
    "unavailable",
    "unknown",
    "asked",
    "cancelled",
];

/// Outcome of a request to an upstream.
#[derive(Clone, Copy)]
enum Outcome {
    Ok,
    Error,
    Invalid,
    TimedOut,
    Unavailable,
    Unknown,
    Asked,
    Cancelled,
}

/// Counts of an upstream since it was configured as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Name of the upstream.
    pub upstream: String,
    /// The upstream's state.
    pub state: crate::State,
    /// Requests to it that have ended, by outcome.
    pub calls: Vec<(&'static str, u64)>,
    /// Requests in each bucket of [`SECONDS`] alone, and then those that took longer.
    pub times: Vec<u64>,
    /// Seconds of all requests together.
    pub seconds: f64,
    /// Attempts to connect that have succeeded.
    pub connected: u64,
    /// Attempts to connect that have failed.
    pub failed: u64,
    /// Connections that were opened after another one had ended.
    pub reconnected: u64,
}

/// Counters of one upstream.
#[derive(Default)]
pub(crate) struct Meter {
    outcomes: [AtomicU64; OUTCOMES.len()],
    times: [AtomicU64; SECONDS.len() + 1],
    micros: AtomicU64,
    pub(crate) connected: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) reconnected: AtomicU64,
}

/// A request that is under way; dropped, it was given up.
pub(crate) struct Timing<'a> {
    meter: &'a Meter,
    since: Instant,
    outcome: Outcome,
}

impl Meter {
    pub(crate) fn begin(&self) -> Timing<'_> {
        Timing {
            meter: self,
            since: Instant::now(),
            outcome: Outcome::Cancelled,
        }
    }

    pub(crate) fn figures(&self, upstream: &str, state: crate::State) -> Figures {
        let read = |it: &AtomicU64| it.load(Ordering::Relaxed);
        let counts = OUTCOMES.iter().zip(&self.outcomes);
        Figures {
            upstream: upstream.to_owned(),
            state,
            calls: counts.map(|(name, it)| (*name, read(it))).collect(),
            times: self.times.iter().map(read).collect(),
            #[expect(clippy::cast_precision_loss, reason = "a sum for a diagram")]
            seconds: read(&self.micros) as f64 / 1e6,
            connected: read(&self.connected),
            failed: read(&self.failed),
            reconnected: read(&self.reconnected),
        }
    }
}

impl Timing<'_> {
    pub(crate) fn end(mut self, result: &Result<Answer, ToolError>) {
        self.outcome = match result {
            Ok(Answer::CallTool(result)) if result.is_error => Outcome::Error,
            Ok(_) => Outcome::Ok,
            Err(ToolError::Rejected(_)) => Outcome::Invalid,
            Err(ToolError::TimedOut) => Outcome::TimedOut,
            Err(ToolError::Unavailable { .. }) => Outcome::Unavailable,
            Err(ToolError::Lost { .. }) => Outcome::Unknown,
            Err(ToolError::NeedsInput(_)) => Outcome::Asked,
            Err(_) => Outcome::Error,
        };
    }
}

impl Drop for Timing<'_> {
    fn drop(&mut self) {
        let took = self.since.elapsed();
        let seconds = took.as_secs_f64();
        let bucket = SECONDS.partition_point(|bound| *bound < seconds);
        self.meter.times[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.meter.micros.fetch_add(micros, Ordering::Relaxed);
        self.meter.outcomes[self.outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}
