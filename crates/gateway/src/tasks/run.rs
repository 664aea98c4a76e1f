use super::{
    Handover, NotCreated, Tasks,
    live::{Live, Stop, Visible},
    shape,
};
use crate::{
    ErrorOptions, Governed, Invocation, InvocationError, Invoked, Offer, Recorded, Runner, Tally,
    Timed,
    asking::{self, MAX_ROUNDS, asks_for_ever},
    facts::tool_capability,
    server::tool_result,
};
use adapter_tools::Answers;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Either, select},
};
use governance::QuotaStore;
use jsonrpc_core::{ErrorCode, ErrorObject, RawJson};
use mcp_protocol::{
    Encoder, Era,
    model::{CallToolResult, Content, RELATED_TASK, ServerResult, Task, TaskState},
};
use mcp_service::{McpError, RequestCx, Service, panic_text};
use serde_json::json;
use std::{any::Any, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// How much of a failed tool's own words a task says of itself, in characters.
const MAX_FAILURE_CHARS: usize = 512;

type Called = Result<Result<Invoked, InvocationError>, Panicked>;

/// A handler has panicked; it is on record and in the log.
struct Panicked;

/// How a call that may become a task is answered.
pub(crate) enum Outcome {
    /// By what has come of it.
    Ended(Result<Invoked, InvocationError>, Arc<Tally>),
    /// By a task.
    Created(Task),
    /// It could not be answered.
    Failed(McpError),
}

/// A call that is a task, or may become one.
pub(crate) struct Run<Q: QuotaStore> {
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) invocations: Arc<Governed<Recorded<Timed<Runner>>, Q>>,
    pub(crate) encoder: Encoder,
    pub(crate) errors: ErrorOptions,
    pub(crate) cx: RequestCx,
    pub(crate) offer: Arc<Offer>,
    pub(crate) tool: String,
    pub(crate) arguments: RawJson,
    pub(crate) answers: Option<Arc<Answers>>,
    /// How long the task is kept from its creation on.
    pub(crate) ttl: Duration,
    /// Whether its client may still know of it.
    pub(crate) visible: Visible,
    /// Whether its client wants nothing else; otherwise it becomes one on the way, or not.
    pub(crate) at_once: bool,
}

impl<Q: QuotaStore> Run<Q> {
    /// Begins the call and waits for its answer; the call itself goes on if that is a task.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the call up, unless its task has been created.
    pub(crate) async fn answer(self) -> Outcome {
        let (reply, answer) = oneshot::channel();
        let runtime = self.tasks.runtime.clone();
        let under_way = self.tasks.under_way();
        runtime.spawn(async move {
            self.run(reply).await;
            drop(under_way);
        });
        answer.await.unwrap_or_else(|_| {
            // What runs it answers always, unless its runtime is gone.
            Outcome::Failed(internal())
        })
    }

    async fn run(self, mut reply: oneshot::Sender<Outcome>) {
        let handover = Arc::new(Handover::default());
        let mut invocation = self.invocation(self.answers.clone());
        invocation.handover = Some(Arc::clone(&handover));
        let tally = Arc::clone(&invocation.tally);
        let mut call = self.call(invocation);
        let begun = if self.at_once {
            self.begin_as_task(&mut call, &handover, &mut reply).await
        } else {
            self.begin_as_call(&mut call, &handover, &mut reply).await
        };
        let (live, ended) = match begun {
            Begun::Task(live, ended) => (live, ended),
            Begun::Call(called) => {
                let _ = reply.send(outcome(called, tally));
                return;
            }
            Begun::Refused(error) => {
                let _ = reply.send(Outcome::Failed(error));
                return;
            }
            Begun::Gone => return,
        };
        let (_, task) = live.seen();
        if reply.send(Outcome::Created(task)).is_err() {
            // Its client has left without hearing of it, which is a cancellation.
            drop(call);
            self.tasks.forget(&live).await;
            return;
        }
        self.cx.announce_task(live.record.id.as_str());
        let (state, message) = {
            let to_end = AssertUnwindSafe(self.to_end(&live, call, ended, tally)).catch_unwind();
            let until =
                Duration::from_micros(live.record.expires_us.saturating_sub((self.tasks.clock)()));
            let cut_short = pin!(tokio::time::timeout(until, live.stopped()));
            match select(pin!(to_end), cut_short).await {
                Either::Left((Ok(end), _)) => end,
                // A fault of ours; whoever waits for the task is told so, and not left waiting.
                Either::Left((Err(panic), _)) => {
                    self.note_panic("a task could not be carried on", &*panic);
                    failed(&internal())
                }
                Either::Right((stopped, _)) => cut_short_by(stopped.ok()),
            }
        };
        self.tasks.end(&live, state, message).await;
    }

    /// Makes the task first and begins the call then, since a call that has begun could not be taken
    /// back for want of a task. One that is refused has been no task.
    async fn begin_as_task(
        &self,
        call: &mut BoxFuture<'_, Called>,
        handover: &Handover,
        reply: &mut oneshot::Sender<Outcome>,
    ) -> Begun {
        let live = match self.create().await {
            Ok(live) => live,
            Err(error) => return Begun::Refused(error.to_client()),
        };
        match wait(call, handover.begun(), reply).await {
            Waited::Ended(called) if handover.has_begun() => Begun::Task(live, Some(called)),
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
        call: &mut BoxFuture<'_, Called>,
        handover: &Handover,
        reply: &mut oneshot::Sender<Outcome>,
    ) -> Begun {
        let long = async {
            // Until it is let through it may be refused, which is no task however long it takes.
            handover.begun().await;
            let _ = tokio::time::timeout(self.tasks.options.after, handover.asked()).await;
        };
        let mut ended = match wait(call, long, reply).await {
            Waited::Ended(Ok(Ok(Invoked::NeedsInput(needed)))) if handover.was_asked() => {
                Some(Ok(Ok(Invoked::NeedsInput(needed))))
            }
            Waited::Ended(called) => return Begun::Call(called),
            Waited::Enough => None,
            Waited::Gone => return Begun::Gone,
        };
        let created = match ended {
            Some(_) => self.create().await,
            // It goes on while the store takes its time.
            None => match select(&mut *call, pin!(self.create())).await {
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

    async fn create(&self) -> Result<Arc<Live>, NotCreated> {
        let capability = tool_capability(&self.tool);
        let visible = Arc::clone(&self.visible);
        let created = self.tasks.create(&self.cx, &capability, self.ttl, visible);
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
        &self,
        live: &Live,
        call: BoxFuture<'_, Called>,
        ended: Option<Called>,
        mut tally: Arc<Tally>,
    ) -> (TaskState, Option<String>) {
        let mut called = match ended {
            Some(called) => called,
            None => call.await,
        };
        for _ in 0..MAX_ROUNDS {
            let needed = match called {
                Ok(Ok(Invoked::NeedsInput(needed))) => needed,
                Ok(outcome) => return self.ended(live, outcome, &tally),
                Err(Panicked) => return failed(&internal()),
            };
            let requests = match asking::declared(&self.cx, needed.questions) {
                Ok(requests) => requests,
                Err(error) => return failed(&error),
            };
            let responses = match self.tasks.ask(live, requests).await {
                Ok(responses) => responses,
                Err(error) => return failed(&error),
            };
            let invocation = self.invocation(Some(Arc::new(Answers {
                responses,
                state: needed.state,
            })));
            tally = Arc::clone(&invocation.tally);
            called = self.call(invocation).await;
        }
        failed(&asks_for_ever())
    }

    fn ended(
        &self,
        live: &Live,
        outcome: Result<Invoked, InvocationError>,
        tally: &Tally,
    ) -> (TaskState, Option<String>) {
        let result = tool_result(outcome, tally, &self.tool, self.cx.version, self.errors);
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
        let message = is_error.then(|| failure(&result));
        match self
            .encoder
            .result(self.cx.version, &ServerResult::CallTool(result))
        {
            Ok(result) => (TaskState::Completed { result, is_error }, message),
            Err(error) => failed(&McpError::internal(&error)),
        }
    }

    fn invocation(&self, answers: Option<Arc<Answers>>) -> Invocation {
        Invocation {
            answers,
            ..Invocation::tool(
                Arc::clone(&self.offer),
                self.tool.clone(),
                self.arguments.clone(),
            )
        }
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Called> {
        let called = self.invocations.call(&self.cx, invocation);
        AssertUnwindSafe(called)
            .catch_unwind()
            .map(|caught| {
                caught.map_err(|panic| {
                    self.note_panic("a handler panicked", &*panic);
                    Panicked
                })
            })
            .boxed()
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

/// What a call has turned out to be.
enum Begun {
    /// A task, and what has come of the call if it is over already.
    Task(Arc<Live>, Option<Called>),
    /// A call, which is over.
    Call(Called),
    /// Nothing: it was to be a task, and cannot be one.
    Refused(McpError),
    /// Nothing any more: its client has left.
    Gone,
}

/// What came first.
enum Waited {
    Ended(Called),
    Enough,
    Gone,
}

/// Waits for a call to end, for `enough`, or for its caller to leave.
async fn wait(
    call: &mut BoxFuture<'_, Called>,
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

fn outcome(called: Called, tally: Arc<Tally>) -> Outcome {
    match called {
        Ok(outcome) => Outcome::Ended(outcome, tally),
        Err(Panicked) => Outcome::Failed(internal()),
    }
}

/// As the engine says it of a call that is waited for.
/// What people are told of a tool that ran and failed: its own words, or the beginning of them. Of a
/// task of 2025-11-25 some clients show nothing else.
fn failure(result: &CallToolResult) -> String {
    let text = result.content.iter().find_map(|it| match it {
        Content::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    match text {
        None => "the tool failed".to_owned(),
        Some(text) => {
            let beginning: String = text.chars().take(MAX_FAILURE_CHARS).collect();
            format!("the tool failed: {beginning}")
        }
    }
}

fn internal() -> McpError {
    McpError(ErrorObject::new(
        ErrorCode::INTERNAL_ERROR,
        "internal error",
    ))
}

fn failed(error: &McpError) -> (TaskState, Option<String>) {
    let message = error.0.message.clone().into_owned();
    let error = shape::error_json(error);
    (TaskState::Failed { error }, Some(message))
}

/// What a task comes to that is not let run to its end; `None` if its time is over.
fn cut_short_by(stop: Option<Stop>) -> (TaskState, Option<String>) {
    let why = match stop {
        Some(Stop::Cancelled) => {
            let message = "the task was cancelled by its client".to_owned();
            return (TaskState::Cancelled, Some(message));
        }
        Some(Stop::Shutdown) => "the server stopped before the call had ended",
        None => "the task has expired",
    };
    failed(&McpError::new(ErrorCode::INTERNAL_ERROR, why))
}
