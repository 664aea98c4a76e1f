//! A call that is a task or may become one, from its beginning to its end.

use crate::{
    Invocations,
    input::rounds::{self, MAX_ROUNDS},
    invocation::{
        Invocation, Invoked,
        answer::{AnswerOptions, Called, tool_result, unanswered_result},
        call_report::CallReport,
        failure::InvocationError,
        handover::Handover,
        own_resources::OwnResources,
    },
    names::tool_capability,
    offer::Offer,
    pipeline::confirmed::state,
    tasks::{
        convert,
        registry::{NotCreated, Tasks},
        runner::{CallEnd, NoEnd, TaskCall, TaskQueue},
        running::{RunningTask, Stop, Visible},
        status::StatusMessages,
        stored_call,
    },
};
use adapter_tools::{Answers, ToolError};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Either, select},
};
use governance::{Governor, QuotaStore};
use jsonrpc_core::{ErrorCode, ErrorObject, RawJson};
use ledger::{CallId, Note, NoteKind, Recorder};
use mcp_protocol::{
    Encoder, Era,
    model::{CallToolResult, Content, Effect, RELATED_TASK, ServerResult, Task, TaskState},
};
use mcp_service::{McpError, RequestCx, Service, panic_text};
use serde_json::{Value, json};
use std::{any::Any, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// The most characters of a failed tool's own words in the status of its task.
const MAX_FAILURE_CHARS: usize = 512;

/// Status of a task that was cancelled.
pub(crate) const CANCELLED: &str = "the task was cancelled by its client";

type Call = BoxFuture<'static, CallEnd>;

/// Answer to a call that may become a task.
pub(crate) enum Outcome {
    /// The end of the call.
    Ended(Result<Invoked, InvocationError>, Arc<CallReport>),
    /// A task.
    Created(Task),
    /// The call could not be answered.
    Failed(McpError),
}

/// A call that is a task, or may become one.
pub(crate) struct Run<Q: QuotaStore> {
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) invocations: Arc<Invocations<Q>>,
    pub(crate) governor: Arc<Governor<Q>>,
    pub(crate) recorder: Recorder,
    pub(crate) encoder: Encoder,
    pub(crate) answering: AnswerOptions,
    pub(crate) cx: RequestCx,
    pub(crate) offer: Arc<Offer>,
    pub(crate) tool: String,
    pub(crate) arguments: RawJson,
    /// As in [`Invocation`].
    pub(crate) at_most: Option<Effect>,
    pub(crate) answers: Option<Arc<Answers>>,
    /// Means to go on with the call that an earlier process has begun, if it is carried out elsewhere.
    pub(crate) resume: Option<Value>,
    /// True if an earlier attempt may have begun the call.
    pub(crate) is_rerun: bool,
    /// Test if the client may still know of the task.
    pub(crate) visible: Visible,
}

/// The way in which a caller wants to be answered.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Lifetime of the task from its creation on.
    pub(crate) ttl: Duration,
    /// True if by a task and nothing else; otherwise the call becomes one on the way, or not.
    pub(crate) at_once: bool,
}

impl<Q: QuotaStore> Run<Q> {
    /// Begins the call and waits for its answer; the call itself goes on if that is a task.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the call up, unless its task has been created.
    pub(crate) async fn answer(self, wanted: Wanted) -> Outcome {
        let (reply, answer) = oneshot::channel();
        let runtime = self.tasks.runtime.clone();
        let under_way = self.tasks.under_way();
        runtime.spawn(async move {
            Arc::new(self).run(wanted, reply).await;
            drop(under_way);
        });
        answer.await.unwrap_or_else(|_| {
            // What runs it answers always, unless its runtime is gone.
            Outcome::Failed(internal())
        })
    }

    async fn run(self: Arc<Self>, wanted: Wanted, mut reply: oneshot::Sender<Outcome>) {
        let handover = Arc::new(Handover::default());
        let mut invocation = self.invocation(self.answers.clone());
        invocation.handover = Some(Arc::clone(&handover));
        let report = Arc::clone(&invocation.report);
        let (call, begun) = if wanted.at_once {
            let live = match self.create(wanted.ttl).await {
                Ok(live) => live,
                Err(error) => {
                    let _ = reply.send(Outcome::Failed(error.to_client()));
                    return;
                }
            };
            let mut call = self.call(invocation, Some(&live));
            let begun = self.begin_as_task(live, &mut call, &handover, &mut reply);
            let begun = begun.await;
            (call, begun)
        } else {
            let mut call = self.call(invocation, None);
            let begun = self.begin_as_call(wanted.ttl, &mut call, &handover, &mut reply);
            let begun = begun.await;
            (call, begun)
        };
        let (live, ended) = match begun {
            Begun::Task(live, ended) => (live, ended),
            Begun::Call(called) => {
                let _ = reply.send(outcome(called, report));
                return;
            }
            Begun::Gone => return,
        };
        handover.became(self.status_of(&live));
        if !wanted.at_once {
            self.note_task(&live, &report);
        }
        let (_, task) = live.seen();
        if reply.send(Outcome::Created(task)).is_err() {
            // Its client has left without hearing of it, which is a cancellation.
            drop(call);
            self.tasks.forget(&live).await;
            return;
        }
        self.cx.announce_task(live.record.id.as_str());
        self.finish(&live, call, ended, report).await;
    }

    /// Leaves the call to a worker, and answers with its task. The queue is told in the background: while it
    /// cannot be reached, the task waits in the store.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the call up, unless its task has been created.
    pub(crate) async fn enqueue(self, ttl: Duration, queue: Arc<dyn TaskQueue>) -> Outcome {
        let (reply, answer) = oneshot::channel();
        let runtime = self.tasks.runtime.clone();
        runtime.spawn(async move {
            let answers = self.answers.as_deref();
            let (cx, arguments) = (&self.cx, &self.arguments);
            let call = stored_call::text_to_queue(cx, arguments, self.at_most, answers);
            let Some(call) = call else {
                let why = "the call is too large to be left to a worker";
                let error = McpError::new(ErrorCode::INVALID_PARAMS, why);
                let _ = reply.send(Outcome::Failed(error));
                return;
            };
            let (tasks, capability) = (Arc::clone(&self.tasks), tool_capability(&self.tool));
            let live = tasks.create_queued(cx, &capability, ttl, call).await;
            let live = match live {
                Ok(live) => live,
                Err(error) => {
                    let _ = reply.send(Outcome::Failed(error.to_client()));
                    return;
                }
            };
            let (_, task) = live.seen();
            if reply.send(Outcome::Created(task)).is_err() {
                // Its client has left without hearing of it, which is a cancellation.
                return tasks.forget(&live).await;
            }
            cx.announce_task(live.record.id.as_str());
            if let Err(error) = queue.add(live.record.id.clone(), ttl).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    task = ?live.record.id,
                    "a task waits in the store until its queue can be reached"
                );
            }
        });
        answer.await.unwrap_or_else(|_| {
            // What runs it answers always, unless its runtime is gone.
            Outcome::Failed(internal())
        })
    }

    /// Begins a task that another process has created, and may have begun before.
    pub(crate) async fn again(self: Arc<Self>, live: &Arc<RunningTask>) {
        // What was confirmed was the call that was cut short.
        let answers = self.answers.as_deref();
        let mut invocation = self.invocation(answers.map(|it| Arc::new(state::forget(it))));
        invocation.handover = Some(Handover::of(self.status_of(live), self.resume.clone()));
        invocation.is_rerun = self.is_rerun;
        let report = Arc::clone(&invocation.report);
        let call = self.call(invocation, Some(live));
        self.finish(live, call, None, report).await;
    }

    /// Carries a task on to its end, or until it is stopped, and writes down what has come of it.
    async fn finish(
        self: &Arc<Self>,
        live: &Arc<RunningTask>,
        call: Call,
        ended: Option<CallEnd>,
        report: Arc<CallReport>,
    ) {
        live.calls(&report);
        let (state, message) = {
            let to_end = self.to_end(live, call, ended, Arc::clone(&report));
            let to_end = AssertUnwindSafe(to_end).catch_unwind();
            let until =
                Duration::from_micros(live.record.expires_us.saturating_sub((self.tasks.clock)()));
            let cut_short = pin!(tokio::time::timeout(until, live.stopped()));
            let settled = |ended: std::thread::Result<_>| {
                // A fault of ours; whoever waits for the task is told so, and not left waiting.
                ended.unwrap_or_else(|panic| {
                    self.note_panic("a task could not be carried on", &*panic);
                    failed(&internal())
                })
            };
            match select(pin!(to_end), cut_short).await {
                Either::Left((ended, _)) => settled(ended),
                // The call is carried out, and its end goes on record: it must not be begun again, and has not failed.
                Either::Right((Ok(Stop::Shutdown), to_end)) if live.has_returned() => {
                    settled(to_end.await)
                }
                Either::Right((Ok(Stop::Lost), _)) => {
                    live.leave();
                    return self.tasks.lose(live);
                }
                // The next process begins it again, or goes on with it.
                Either::Right((Ok(Stop::Shutdown), _)) if live.can_be_begun_again() => {
                    live.leave();
                    return self.tasks.lose(live);
                }
                Either::Right((stopped, _)) => cut_short_by(stopped.ok(), report.call()),
            }
        };
        self.tasks.end(live, state, message).await;
    }

    /// Begins the call of a task that was made first, since a call that has begun could not be taken
    /// back for want of a task. One that is refused at once has been no task.
    async fn begin_as_task(
        &self,
        live: Arc<RunningTask>,
        call: &mut Call,
        handover: &Handover,
        reply: &mut oneshot::Sender<Outcome>,
    ) -> Begun {
        match wait(call, handover.begun_or_put_off(), reply).await {
            // What is to be confirmed before it begins is asked by the task as well: there is no
            // other answer that its client takes.
            Waited::Ended(called) if handover.has_begun() || called.is_to_be_confirmed() => {
                Begun::Task(live, Some(called))
            }
            Waited::Ended(called) => {
                self.tasks.forget(&live).await;
                Begun::Call(called)
            }
            Waited::Enough => Begun::Task(live, None),
            Waited::Gone => {
                self.tasks.forget(&live).await;
                Begun::Gone
            }
        }
    }

    /// Waits for the end of the call, and makes a task of it if it says so or takes long.
    async fn begin_as_call(
        &self,
        ttl: Duration,
        call: &mut Call,
        handover: &Handover,
        reply: &mut oneshot::Sender<Outcome>,
    ) -> Begun {
        let long = async {
            // Until it is let through it may be refused, which is no task however long it takes.
            handover.begun_or_put_off().await;
            if handover.has_begun() {
                let _ = tokio::time::timeout(self.tasks.options.after, handover.asked()).await;
            }
        };
        let mut ended = match wait(call, long, reply).await {
            Waited::Ended(CallEnd(Ok(Ok(Invoked::NeedsInput(needed))))) if handover.was_asked() => {
                Some(CallEnd(Ok(Ok(Invoked::NeedsInput(needed)))))
            }
            Waited::Ended(called) => return Begun::Call(called),
            Waited::Enough => None,
            Waited::Gone => return Begun::Gone,
        };
        let created = match ended {
            Some(_) => self.create(ttl).await,
            // It goes on while the store takes its time.
            None => match select(&mut *call, pin!(self.create(ttl))).await {
                Either::Left((called, creating)) => {
                    ended = Some(called);
                    creating.await
                }
                Either::Right((created, _)) => created,
            },
        };
        match created {
            Ok(live) => Begun::Task(live, ended),
            Err(error) => {
                self.stay_a_call(&error);
                match ended {
                    Some(called) => Begun::Call(called),
                    None => match wait(call, std::future::pending(), reply).await {
                        Waited::Ended(called) => Begun::Call(called),
                        Waited::Enough | Waited::Gone => Begun::Gone,
                    },
                }
            }
        }
    }

    async fn create(&self, ttl: Duration) -> Result<Arc<RunningTask>, NotCreated> {
        let capability = tool_capability(&self.tool);
        let visible = Arc::clone(&self.visible);
        let tool = self.offer.tools().get(&self.tool);
        // What is not needed later is not kept.
        let text = || {
            stored_call::text_of(
                &self.cx,
                &self.arguments,
                self.at_most,
                self.answers.as_deref(),
            )
        };
        let call = tool
            .filter(|it| it.can_be_called_again())
            .and_then(|_| text());
        let created = self.tasks.create(&self.cx, &capability, ttl, visible, call);
        created.await
    }

    fn stay_a_call(&self, error: &NotCreated) {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            principal = %self.cx.principal,
            tool = self.tool,
            "a call does not become a task; its client goes on waiting"
        );
    }

    /// Calls until there is an end, asking between.
    async fn to_end(
        self: &Arc<Self>,
        live: &Arc<RunningTask>,
        call: Call,
        ended: Option<CallEnd>,
        mut report: Arc<CallReport>,
    ) -> (TaskState, Option<String>) {
        let mut called = match ended {
            Some(called) => called,
            None => call.await,
        };
        // Held until the call with the answers has been made.
        let mut _waiting = None;
        let mut round = 1;
        loop {
            let needed = match called.0 {
                Ok(Ok(Invoked::NeedsInput(_) | Invoked::NeedsConfirmation(_)))
                    if MAX_ROUNDS <= round =>
                {
                    return self.ended(live, Err(InvocationError::AsksForEver), &report);
                }
                Ok(Ok(Invoked::NeedsInput(needed) | Invoked::NeedsConfirmation(needed))) => needed,
                Ok(outcome) => return self.ended(live, outcome, &report),
                Err(NoEnd) => return failed(&internal()),
            };
            _waiting = needed.waiting.clone();
            let requests = match rounds::declared(&self.cx, needed.questions) {
                Ok(requests) => requests,
                Err(error) => return self.unanswered(live, error, &report),
            };
            let responses = match self.tasks.ask(live, requests).await {
                Ok(responses) => responses,
                Err(error) => return self.unanswered(live, error, &report),
            };
            let mut invocation = self.invocation(Some(Arc::new(Answers {
                responses,
                state: needed.state,
            })));
            invocation.handover = Some(Handover::of(self.status_of(live), self.resume.clone()));
            invocation.is_rerun = self.is_rerun;
            round += 1;
            invocation.may_ask = round < MAX_ROUNDS;
            report = Arc::clone(&invocation.report);
            live.calls(&report);
            called = self.call(invocation, Some(live)).await;
        }
    }

    fn ended(
        &self,
        live: &RunningTask,
        outcome: Result<Invoked, InvocationError>,
        report: &CallReport,
    ) -> (TaskState, Option<String>) {
        // The rest are words of ours, which say by themselves that it came to nothing.
        let is_tools_own = matches!(
            outcome,
            Ok(_) | Err(InvocationError::Tool(ToolError::Failed(_)))
        );
        let called = Called {
            tool: &self.tool,
            offer: &self.offer,
            at_most: self.at_most,
        };
        let result = tool_result(outcome, report, called, &self.cx, self.answering);
        self.answered(live, result, is_tools_own)
    }

    /// End of a task whose client cannot be asked, or has not answered.
    fn unanswered(
        &self,
        live: &RunningTask,
        error: McpError,
        report: &CallReport,
    ) -> (TaskState, Option<String>) {
        let result = unanswered_result(error, report, &self.cx, self.answering);
        self.answered(live, result, false)
    }

    fn answered(
        &self,
        live: &RunningTask,
        result: Result<CallToolResult, McpError>,
        is_tools_own: bool,
    ) -> (TaskState, Option<String>) {
        let mut result = match result {
            Ok(result) => result,
            Err(error) => return failed(&error),
        };
        if self.cx.version.era() == Era::Legacy {
            // It is fetched by a request of its own, and nothing else in it says whose it is.
            let task = json!({ "taskId": live.record.id.as_str() });
            result.meta.insert(RELATED_TASK, &task);
        }
        let is_error = result.is_error;
        let message = is_error.then(|| failure(&result, is_tools_own));
        match self
            .encoder
            .result(self.cx.version, &ServerResult::CallTool(result))
        {
            Ok(result) => (TaskState::Completed { result, is_error }, message),
            Err(error) => failed(&McpError::internal(&error)),
        }
    }

    /// The status of a task of this call, by which it can be gone on with.
    fn status_of(&self, live: &Arc<RunningTask>) -> StatusMessages {
        let (cx, arguments, at_most) = (self.cx.fork(), self.arguments.clone(), self.at_most);
        let text =
            move |resume: &Value| stored_call::text_to_resume(&cx, &arguments, at_most, resume);
        StatusMessages::of(&self.tasks, live, Box::new(text))
    }

    fn invocation(&self, answers: Option<Arc<Answers>>) -> Invocation {
        let mut called =
            Invocation::tool(Arc::clone(&self.offer), &self.tool, self.arguments.clone());
        called.at_most = self.at_most;
        Invocation {
            answers,
            ..OwnResources::for_call(&self.invocations, &self.governor, &self.cx, called)
        }
    }

    /// The call, for the task or request that carries it out; of `live`, if it is a task already.
    fn call(self: &Arc<Self>, mut invocation: Invocation, live: Option<&RunningTask>) -> Call {
        invocation.task = live.map(|live| live.record.id.as_str().into());
        let run = Arc::clone(self);
        let handover = invocation.handover.clone();
        let called = async move {
            let called = run.invocations.call(&run.cx, invocation);
            let caught = AssertUnwindSafe(called).catch_unwind().await;
            CallEnd(caught.map_err(|panic| {
                run.note_panic("a handler panicked", &*panic);
                NoEnd
            }))
        };
        self.tasks.runner.carry_out(TaskCall {
            task: live.map(|live| live.record.id.clone()),
            attempt: live.map_or(1, |live| live.attempt),
            tool: self.tool.clone(),
            principal: self.cx.principal.clone(),
            handover,
            call: called.boxed(),
        })
    }

    /// Puts on record that a call has become a task, if it was on record before. One that begins
    /// later says so itself.
    fn note_task(&self, live: &RunningTask, report: &CallReport) {
        let Some(call) = report.call() else {
            return;
        };
        let detail = json!({ "call": call.to_string(), "capability": live.record.capability });
        let noted = self.recorder.note_later(&Note {
            actor: self.cx.principal.as_str(),
            subject: live.record.id.as_str(),
            detail: &detail.to_string(),
            ..Note::new((self.tasks.clock)(), NoteKind::TASK_CREATED)
        });
        if let Err(error) = noted {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                task = ?live.record.id,
                "it could not be put on record which call a task is"
            );
        }
    }

    fn note_panic(&self, what: &'static str, panic: &(dyn Any + Send)) {
        tracing::error!(
            id = %self.cx.id,
            principal = %self.cx.principal,
            tool = self.tool,
            panic = panic_text(panic),
            "{what}"
        );
    }
}

/// State of a call when its caller is answered.
enum Begun {
    /// A task, and what has come of the call if it is over already.
    Task(Arc<RunningTask>, Option<CallEnd>),
    /// A call, which is over.
    Call(CallEnd),
    /// No further message: its client has left.
    Gone,
}

/// The first of three events.
enum Waited {
    Ended(CallEnd),
    Enough,
    Gone,
}

/// Waits for a call to end, for `enough`, or for its caller to leave.
async fn wait(
    call: &mut Call,
    enough: impl Future<Output = ()>,
    reply: &mut oneshot::Sender<Outcome>,
) -> Waited {
    let (enough, gone) = (pin!(enough), pin!(reply.closed()));
    match select(call, select(enough, gone)).await {
        Either::Left((called, _)) => Waited::Ended(called),
        Either::Right((Either::Left(_), _)) => Waited::Enough,
        Either::Right((Either::Right(_), _)) => Waited::Gone,
    }
}

fn outcome(called: CallEnd, report: Arc<CallReport>) -> Outcome {
    match called.0 {
        Ok(outcome) => Outcome::Ended(outcome, report),
        Err(NoEnd) => Outcome::Failed(internal()),
    }
}

/// The status of a tool that ran and failed: its own words, or the beginning of them. Some clients show
/// nothing else of a task of 2025-11-25.
fn failure(result: &CallToolResult, is_tools_own: bool) -> String {
    let text = result.content.iter().find_map(|it| match it {
        Content::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    match text {
        None => "the tool failed".to_owned(),
        Some(text) => {
            let beginning: String = text.chars().take(MAX_FAILURE_CHARS).collect();
            match is_tools_own {
                true => format!("the tool failed: {beginning}"),
                false => beginning,
            }
        }
    }
}

/// The error that the engine has for a call that is waited for.
fn internal() -> McpError {
    McpError(ErrorObject::new(
        ErrorCode::INTERNAL_ERROR,
        "internal error",
    ))
}

fn failed(error: &McpError) -> (TaskState, Option<String>) {
    let message = error.0.message.clone().into_owned();
    let error = convert::error_json(error);
    (TaskState::Failed { error }, Some(message))
}

/// The outcome of a task that is not let run to its end; without a `stop`, its time is over.
fn cut_short_by(stop: Option<Stop>, call: Option<CallId>) -> (TaskState, Option<String>) {
    let why = match stop {
        Some(Stop::Cancelled) => {
            return (TaskState::Cancelled, Some(CANCELLED.to_owned()));
        }
        Some(Stop::Shutdown | Stop::Lost) => {
            return stored_call::cut_short(
                "it was being carried out, and cannot be begun again",
                call,
            );
        }
        None => "the task has expired",
    };
    failed(&McpError::new(ErrorCode::INTERNAL_ERROR, why))
}
