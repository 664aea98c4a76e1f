//! Metrics and log lines of calls and of decisions about them.

use crate::{
    invocation::{
        Invocation, Invoked, Target,
        call_report::CallReport,
        failure::InvocationError,
        outcome,
        verdict::{Ended, Fault, Severity, Verdict},
    },
    observe::{log, metrics::Metrics},
    offer::tool_numbers::ToolNumbers,
};
use governance::{Micros, Remaining};
use ledger::UNKNOWN_CAPABILITY;
use mcp_service::RequestCx;
use redaction::Redactor;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Instant,
};

/// Choice of requests, and of decisions about them, that have a line in the log. Lines below the log's
/// level are left out whatever this says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestLog {
    /// All of them.
    #[default]
    All,
    /// Requests that were refused or failed.
    Errors,
    /// None but those that failed by a fault that is not the caller's.
    None,
}

/// Refusal of a call, for metrics and the log.
pub(crate) struct Refused {
    pub(crate) verdict: Verdict,
    /// True if the capability does not exist as far as its caller may know.
    pub(crate) is_unknown: bool,
    /// The fault; `None` if the call is answered as before.
    pub(crate) fault: Option<Fault>,
    pub(crate) outcome: Ended,
}

/// Counts and logs; clones do so together.
#[derive(Clone)]
pub(crate) struct Observer {
    metrics: Metrics,
    redactor: Arc<Redactor>,
    log: Arc<AtomicU8>,
    development: bool,
}

impl Observer {
    pub(crate) fn new(metrics: Metrics, redactor: Arc<Redactor>, development: bool) -> Self {
        Self {
            metrics,
            redactor,
            log: Arc::new(AtomicU8::new(RequestLog::All as u8)),
            development,
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    pub(crate) fn set_log(&self, log: RequestLog) {
        self.log.store(log as u8, Ordering::Relaxed);
    }

    /// True if a line of this severity is written.
    pub(crate) fn wants(&self, severity: Severity) -> bool {
        // The order of the variants of both.
        self.log.load(Ordering::Relaxed) <= severity as u8 && log::is_enabled(severity)
    }

    /// Takes note that a call has come. What is known of it in the end is left in `cx`.
    pub(crate) fn called<'a>(&'a self, cx: &'a RequestCx, invocation: &Invocation) -> Called<'a> {
        let report = Arc::clone(&invocation.report);
        cx.attach(Arc::clone(&report) as Arc<_>);
        Called {
            observer: self,
            cx,
            report,
            numbers: Numbers::None,
            task: None,
            began: Instant::now(),
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}

/// Counters of a call; none for a caller who may not know of the target.
enum Numbers {
    None,
    Tool(Arc<ToolNumbers>),
    Read,
    Prompt,
}

/// A call on its way. Dropping it says that it was given up.
pub(crate) struct Called<'a> {
    observer: &'a Observer,
    cx: &'a RequestCx,
    report: Arc<CallReport>,
    numbers: Numbers,
    /// The call as a task, if it may outlive its request.
    task: Option<Outliving>,
    began: Instant,
}

struct Outliving {
    capability: Arc<str>,
    handover: Option<Arc<crate::invocation::handover::Handover>>,
    task: Option<Arc<str>>,
}

impl Called<'_> {
    /// Notes that the call is let through, for now.
    pub(crate) fn allowed(
        &mut self,
        invocation: &Invocation,
        policy_version: u64,
        estimate: Micros,
        remaining: impl FnOnce() -> Remaining,
    ) {
        self.counts_for(invocation);
        if invocation.handover.is_some() || invocation.task.is_some() {
            self.task = Some(Outliving {
                capability: invocation.capability.clone(),
                handover: invocation.handover.clone(),
                task: invocation.task.clone(),
            });
        }
        let mut verdict = Verdict {
            decision: "allow",
            reason: None,
            remaining: None,
            call: None,
        };
        if self.observer.wants(Severity::Info) {
            verdict.remaining = Some(Box::new(remaining()));
            log::allowed(self.cx, invocation, &verdict, policy_version, estimate);
        }
        self.report.decide(verdict);
    }

    /// Notes that the call is refused, at once or later.
    pub(crate) fn refused(mut self, invocation: &Invocation, policy_version: u64, why: Refused) {
        if !why.is_unknown {
            self.counts_for(invocation);
        }
        self.refused_after_all(&invocation.capability, policy_version, why);
    }

    /// Notes that a call which was let through is refused.
    pub(crate) fn refused_after_all(mut self, capability: &str, policy_version: u64, why: Refused) {
        let Refused {
            verdict,
            is_unknown,
            fault,
            outcome,
        } = why;
        let severity = fault
            .as_ref()
            .map_or(Severity::Info, |fault| fault.severity);
        if fault.is_some() {
            // Metrics may be open to those who call.
            let reason = match is_unknown {
                true => UNKNOWN_CAPABILITY,
                false => verdict.reason.unwrap_or("none"),
            };
            self.observer.metrics.denied(reason);
        }
        if self.observer.wants(severity) {
            let redactor = &self.observer.redactor;
            log::refused(
                self.cx,
                capability,
                &verdict,
                policy_version,
                severity,
                redactor,
            );
            if let Some(fault) = fault {
                let message = redactor.text(&fault.message).into_owned();
                self.report.fail(Fault { message, ..fault });
            }
        }
        self.report.decide(verdict);
        self.ended_as(outcome);
    }

    /// Notes the end of the call.
    pub(crate) fn ended(mut self, outcome: &Result<Invoked, InvocationError>) {
        if let Err(error) = outcome {
            self.failed(error);
        }
        self.ended_as(outcome::ended_as(outcome));
    }

    fn failed(&self, error: &InvocationError) {
        if self.observer.wants(error.meaning().severity) {
            let redactor = &self.observer.redactor;
            let fault = Fault::of(error);
            let stack = fault.stack.filter(|_| self.observer.development);
            self.report.fail(Fault {
                message: redactor.text(&fault.message).into_owned(),
                stack: stack.map(|stack| redactor.text(&stack).into_owned()),
                ..fault
            });
        }
    }

    fn counts_for(&mut self, invocation: &Invocation) {
        if !matches!(self.numbers, Numbers::None) {
            return;
        }
        self.numbers = match &invocation.target {
            Target::Tool(name) => Numbers::Tool(match &invocation.tool {
                Some(tool) => {
                    let numbers = tool
                        .numbers
                        .get_or_init(|| self.observer.metrics.tool(name));
                    Arc::clone(numbers)
                }
                None => self.observer.metrics.tool(name),
            }),
            Target::Resource(_) => Numbers::Read,
            Target::Prompt(..) => Numbers::Prompt,
        };
    }

    fn ended_as(&mut self, outcome: Ended) {
        let began = self.began;
        let seconds = || began.elapsed().as_secs_f64();
        let metrics = &self.observer.metrics;
        match std::mem::replace(&mut self.numbers, Numbers::None) {
            Numbers::None => {}
            Numbers::Tool(numbers) => {
                numbers.ended(outcome.numbered(), seconds(), self.cost().unwrap_or(0.0));
            }
            Numbers::Read => metrics.read_ended(outcome),
            Numbers::Prompt => metrics.prompt_ended(outcome),
        }
        let Some(outliving) = self.task.take() else {
            return;
        };
        let handover = outliving.handover.as_deref();
        let task = outliving.task.as_deref();
        if let Some(task) = task.or_else(|| handover?.task()) {
            let fault = self.report.fault();
            let severity = fault.map_or(Severity::Info, |fault| fault.severity);
            if self.observer.wants(severity) {
                let capability = &outliving.capability;
                log::task_ended(self.cx, &self.report, capability, task, outcome, seconds());
            }
        }
    }

    /// The cost in units of the currency.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sum for a diagram, and nothing is decided by it"
    )]
    fn cost(&self) -> Option<f64> {
        let Micros(cost) = self.report.settled_cost()?;
        Some(cost as f64 / 1_000_000.0)
    }
}

impl Drop for Called<'_> {
    fn drop(&mut self) {
        let outcome = if std::thread::panicking() {
            Ended::Crashed
        } else {
            Ended::Cancelled
        };
        self.ended_as(outcome);
    }
}
