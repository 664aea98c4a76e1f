//! Calls that are tasks, or may become some.

use crate::{
    input::rounds::{self, Repeated, declared, sealed},
    invocation::{
        Invocation, Invoked,
        answer::{Called, ErrorStyle, tool_result},
    },
    names::{caller_of, tool_capability},
    offer::Offer,
    pipeline::start_entry::{Labels, start_of},
    server::{Server, task_methods::tasks_missing},
    tasks::{
        registry::Tasks,
        run::{Outcome, Run, Wanted},
    },
};
use adapter_tools::{TaskSupport, Tool};
use governance::QuotaStore;
use jsonrpc_core::ErrorCode;
use ledger::{CallId, End, Start};
use mcp_protocol::{
    Era, Method, ProtocolVersion,
    model::{CallTool, ServerResult},
};
use mcp_service::{McpError, RequestCx};
use std::{sync::Arc, time::Duration};

/// The least time that a task is kept, whatever its client wants.
const MIN_KEEP: Duration = Duration::from_secs(1);

/// The most time that a task is kept, whatever is configured: ten years.
const MAX_KEEP: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The way in which a call is answered as a task.
pub(crate) enum AsTask {
    /// By a task, if the call becomes one.
    Yes {
        tasks: Arc<Tasks>,
        /// True if by a task and nothing else.
        at_once: bool,
        ttl: Duration,
    },
    /// Not at all: the tool cannot be called this way.
    Never {
        error: McpError,
        /// The reason on record.
        reason: &'static str,
    },
}

impl<Q: QuotaStore> Server<Q> {
    /// Decides if a call is a task or may become one; `None` if its caller waits in any case.
    ///
    /// What its caller cannot see is not told from what does not exist: the call itself says so.
    pub(crate) fn as_task(
        &self,
        cx: &RequestCx,
        offer: &Offer,
        call: &CallTool,
    ) -> Result<Option<AsTask>, McpError> {
        let Some(tasks) = &self.tasks else {
            return Ok(None);
        };
        let Some(tool) = offer.tools().get(&call.name) else {
            return Ok(None);
        };
        let knows_tasks = call.task.is_some() || cx.capabilities.has_tasks();
        if !knows_tasks && tool.task_support() != TaskSupport::Required {
            return Ok(None); // as nearly every call, so it is not looked up who may see what
        }
        let capability = tool_capability(&call.name);
        if !self.governor.visible(caller_of(&cx.principal), &capability) {
            return Ok(None);
        }
        let as_task = |at_once, wanted: Option<Duration>| {
            let ttl = self.ttl(tasks, tool, wanted);
            let tasks = Arc::clone(tasks);
            Ok(Some(AsTask::Yes {
                tasks,
                at_once,
                ttl,
            }))
        };
        let never = |error, reason| Ok(Some(AsTask::Never { error, reason }));
        let support = tool.task_support();
        match (cx.version, support, call.task) {
            (ProtocolVersion::V2025_11_25, TaskSupport::Forbidden, Some(_)) => {
                let error = mismatch("this tool cannot be called as a task");
                never(error, "task_forbidden")
            }
            (ProtocolVersion::V2025_11_25, _, Some(wanted)) => {
                as_task(true, wanted.ttl_ms.map(Duration::from_millis))
            }
            (version, TaskSupport::Required, None) if version.era() == Era::Legacy => {
                let error = mismatch("this tool can only be called as a task");
                never(error, "task_required")
            }
            (version, _, _) if version.era() == Era::Legacy => Ok(None),
            (_, TaskSupport::Forbidden, _) => Ok(None),
            _ if cx.capabilities.has_tasks() => as_task(false, None),
            (_, TaskSupport::Required, _) => never(tasks_missing(), "task_required"),
            (_, TaskSupport::Optional, _) => Ok(None),
        }
    }

    /// Lifetime of a task: as long as the call may take and its result is kept, or as long as the client
    /// wants.
    fn ttl(&self, tasks: &Tasks, tool: &Tool, wanted: Option<Duration>) -> Duration {
        match wanted {
            Some(wanted) => wanted.max(MIN_KEEP).min(tasks.options.max_keep),
            None => {
                let timeout = tool.timeout().unwrap_or(self.default_timeout);
                timeout.saturating_add(tasks.options.keep).min(MAX_KEEP)
            }
        }
    }

    /// Puts on record that a call was refused for the way it came, or was to be answered.
    pub(crate) async fn record_mismatch(
        &self,
        cx: &RequestCx,
        invocation: &Invocation,
        error: &McpError,
        reason: &str,
    ) {
        let at_us = (self.clock)();
        let labels = Labels::of(cx, invocation, &self.redactor);
        let start = Start {
            policy_version: self.governor.policy().version(),
            ..start_of(cx, invocation, &labels, CallId::new(at_us), at_us)
        };
        let end = End {
            message: Some(&self.redactor.text(&error.0.message)),
            error_code: Some(error.0.code.0),
            ..End::new(ledger::Outcome::Denied { reason })
        };
        if let Err(error) = self.recorder.refuse(&start, &end).await {
            // Nothing has run, so there is nothing to hold back; but it must not go unseen.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                principal = %cx.principal,
                capability = &*invocation.capability,
                reason,
                "a refusal could not be recorded"
            );
        }
    }

    /// Answers a call that is a task or may become one.
    pub(crate) async fn call_as_task(
        &self,
        cx: &RequestCx,
        offer: Arc<Offer>,
        call: CallTool,
        as_task: AsTask,
    ) -> Result<ServerResult, McpError> {
        let CallTool {
            name,
            arguments,
            retry,
            task: _,
            at_most,
        } = call;
        let (tasks, at_once, ttl) = match as_task {
            AsTask::Yes {
                tasks,
                at_once,
                ttl,
            } => (tasks, at_once, ttl),
            AsTask::Never { error, reason } => {
                let refused = Invocation::tool(offer, &name, arguments);
                self.record_mismatch(cx, &refused, &error, reason).await;
                return Err(error);
            }
        };
        let repeated = Repeated {
            method: Method::CallTool.name(),
            name: &name,
            parameters: &arguments,
        };
        let now_us = (self.clock)();
        let answers = if retry.is_empty() {
            None
        } else {
            let answers = rounds::opened(&self.sealer, now_us, cx, &repeated, retry)?;
            Some(Arc::new(answers))
        };
        let run = Run {
            tasks,
            invocations: Arc::clone(&self.invocations),
            governor: Arc::clone(&self.governor),
            recorder: self.recorder.clone(),
            encoder: self.encoder.clone(),
            answering: self.answering,
            cx: cx.fork(),
            offer: Arc::clone(&offer),
            tool: name.clone(),
            arguments: arguments.clone(),
            at_most,
            answers,
            resume: None,
            is_rerun: false,
            visible: {
                let governor = Arc::clone(&self.governor);
                let capability = tool_capability(&name);
                Arc::new(move |it: &_| governor.visible(caller_of(it), &capability))
            },
        };
        let outcome = match run.tasks.runner.queue(&name) {
            Some(queue) => run.enqueue(ttl, queue).await,
            None => run.answer(Wanted { ttl, at_once }).await,
        };
        match outcome {
            Outcome::Created(task) => Ok(ServerResult::CreateTask(Box::new(task))),
            Outcome::Failed(error) => Err(error),
            // What is asked before there is a task is asked by a result (2026-07-28, multi
            // round-trip requests). Legacy calls do not get here: they are tasks from the start.
            Outcome::Ended(
                Ok(Invoked::NeedsInput(needed) | Invoked::NeedsConfirmation(needed)),
                _,
            ) => {
                let requests = declared(cx, needed.questions)?;
                let required = sealed(&self.sealer, now_us, cx, &repeated, requests, needed.state);
                if let Some(waiting) = &needed.waiting {
                    waiting.go_on();
                }
                Ok(ServerResult::InputRequired(required))
            }
            Outcome::Ended(outcome, report) => {
                let mut answering = self.answering;
                if at_once {
                    // Its client takes a task or an error, and nothing else.
                    answering.style = ErrorStyle::Protocol;
                }
                let called = Called {
                    tool: &name,
                    offer: &offer,
                    at_most,
                };
                let result = tool_result(outcome, &report, called, cx, answering)?;
                Ok(ServerResult::CallTool(result))
            }
        }
    }
}

/// 2025-11-25 wants a tool that is called the wrong way to be answered like a method that does not
/// exist.
fn mismatch(why: &'static str) -> McpError {
    McpError::new(ErrorCode::METHOD_NOT_FOUND, why)
}
