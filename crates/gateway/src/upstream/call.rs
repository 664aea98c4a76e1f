//! Requests to upstreams on behalf of a caller: calls of tools, prompts and reads.

mod answer;
pub(super) mod failure;
pub(super) mod parked;
mod questions;

use self::{
    answer::output,
    failure::{is_outcome, kind_of},
    parked::Waiting,
    questions::question,
};
use crate::{
    Reach, UpstreamSpec,
    store::with_causes,
    text::{self, OURS},
    upstream::{
        Upstream,
        desk::{Asked, Caller, Desk, Place, can, capabilities_of},
        slot::{Down, Live, Wants},
    },
};
use adapter_tools::{
    Answers, Arguments, Executor, Hop, Needed, OpenErrand, ToolCx, ToolError, ToolOutput,
};
use futures_util::future::BoxFuture;
use mcp_client::{CallOptions, Error, OnTask, Progress};
use mcp_protocol::{
    Era, Method, ProtocolVersion, RawJson,
    client::Answer,
    model::{
        self, CallTool, ClientRequest, InputRequired, InputResponse, InputRetry, ResultMeta,
        TASKS_EXTENSION, Task,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{broadcast, mpsc},
    time::{sleep, timeout},
};

/// Time that a call waits for answers of its client, and is forgotten after.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Key of the question by which a client's person is asked for a credential.
const SIGN_IN: &str = "io.owlclaw/sign-in";
/// Member of the state of a call whose client was asked for a credential.
const SIGNING_IN: &str = "signing_in";
/// The most time that is left of a call, for telling so, when there is no connection or nobody has given a credential.
const GRACE: Duration = Duration::from_secs(1);
/// The shortest pause between two attempts to reach the upstream that carries out a task.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
/// Time after which to try again an upstream that says nothing of it.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Carries out calls of one tool of an upstream.
pub(crate) struct UpstreamTool {
    pub(crate) upstream: Arc<Upstream>,
    /// The tool's own name.
    pub(crate) tool: String,
}

impl Executor for UpstreamTool {
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let request = ClientRequest::CallTool(CallTool {
                name: self.tool.clone(),
                arguments: RawJson::from_serialized(arguments.raw().to_vec()),
                ..CallTool::default()
            });
            let item = Item {
                upstream: &self.upstream,
                name: &self.tool,
                kind: "tool",
            };
            match item.ask(&cx, request).await? {
                Answer::CallTool(result) => Ok(output(result, &self.upstream)),
                _ => Err(item.lost("a call was answered with something else", "")),
            }
        })
    }
}

/// A tool, prompt or resource of an upstream that is asked for.
pub(crate) struct Item<'a> {
    pub(crate) upstream: &'a Arc<Upstream>,
    /// Name that the upstream has for it.
    pub(crate) name: &'a str,
    /// `tool`, `prompt` or `resource`.
    pub(crate) kind: &'static str,
}

/// A request to an upstream.
enum Work {
    Request(ClientRequest),
    /// Wait for a task that the upstream has made of a call.
    Task(String),
}

/// The task that an upstream has made of a call, as the task of ours keeps it.
#[derive(Serialize, Deserialize)]
struct Elsewhere {
    upstream: String,
    /// Digits of the program or address that has made it: another server may give the same id to another's task.
    #[serde(default)]
    identity: String,
    task: String,
}

impl Elsewhere {
    fn is_of(&self, spec: &UpstreamSpec) -> bool {
        self.upstream == spec.name && self.identity == spec.identity()
    }
}

/// A request that is under way, with what the upstream asks meanwhile.
pub(crate) struct Flight {
    /// The upstream's task that the call has become.
    task: Arc<OnceLock<String>>,
    reply: BoxFuture<'static, Result<Answer, Error>>,
    questions: mpsc::UnboundedReceiver<Asked>,
    place: Place,
    live: Arc<Live>,
    span: Option<Box<dyn OpenErrand>>,
}

impl Item<'_> {
    /// Makes a request on behalf of the caller of `cx`, or goes on with it once its client has answered.
    pub(crate) async fn ask(
        &self,
        cx: &ToolCx,
        request: ClientRequest,
    ) -> Result<Answer, ToolError> {
        let timing = self.upstream.meter.begin();
        let mut answer = self.asked(cx, request).await;
        timing.end(&answer);
        if let Ok(answer) = &mut answer {
            self.clean(answer, cx);
        }
        answer
    }

    async fn asked(&self, cx: &ToolCx, request: ClientRequest) -> Result<Answer, ToolError> {
        let upstream = self.upstream;
        let (name, spec) = (&upstream.spec.name, &upstream.spec);
        if spec.unresolved.is_some() {
            // The reason names what is configured, which is not the caller's to know.
            return Err(ToolError::Held(format!(
                "upstream `{name}` is held: a secret of its configuration is missing, which `owlclaw-mcp upstream \
                 list` names"
            )));
        }
        if spec.held_by().is_some() {
            return Err(ToolError::Held(format!(
                "upstream `{name}` is held back by its operator (`upstreams.{name}.hold`)"
            )));
        }
        let answers = cx.answers().clone();
        let mut retry = InputRetry::default();
        let mut resumed = None;
        match &answers.state {
            Some(Value::Object(state)) if let Some(Value::String(id)) = state.get("waiting") => {
                let Some(waiting) = upstream.parked.take(id) else {
                    return Err(self.lost("the call no longer waits for answers", ""));
                };
                resumed = Some(waiting);
            }
            Some(Value::Object(state)) if state.contains_key("again") => {}
            // What answers are worth that were not asked for is the upstream's to say; those to questions of this
            // server are its own.
            state => {
                let state = state.as_ref().and_then(|it| it.get("state")?.as_str());
                retry.state = state.map(str::to_owned);
                let responses = answers.responses.iter();
                retry.responses = responses
                    .filter(|(key, _)| !key.starts_with(OURS))
                    .map(|(key, raw)| (key.clone(), raw_json(raw)))
                    .collect();
            }
        }
        let flight = match resumed {
            Some(waiting) => {
                self.note_place(&waiting.flight.live, cx);
                resume(waiting, &answers, cx)
            }
            None => match cx.resume() {
                Some(resume) => self.resume(resume, cx).await?,
                None => self.begin(request, retry, cx).await?,
            },
        };
        self.drive(flight, cx).await
    }

    /// Goes on with a call that was begun before this process: it is not made again.
    async fn resume(&self, resume: &Value, cx: &ToolCx) -> Result<Flight, ToolError> {
        match Elsewhere::deserialize(resume) {
            Ok(it) if it.is_of(&self.upstream.spec) => self.rejoin(it.task, cx).await,
            _ => Err(self.lost("where the call is carried out is not known any more", "")),
        }
    }

    /// Waits for a task of the upstream on whichever connection there is next, for as long as the call has time.
    async fn rejoin(&self, task: String, cx: &ToolCx) -> Result<Flight, ToolError> {
        loop {
            let slot = self.upstream.slot(cx);
            let slot = slot.map_err(|down| self.unreachable(&down))?;
            match slot.connected().await {
                Ok(live) => return Ok(self.fly(live, Work::Task(task), cx)),
                Err(down) => match down.retry_after {
                    Some(pause) => sleep(pause.max(SHORTEST_PAUSE)).await,
                    None => return Err(self.unreachable(&down)),
                },
            }
        }
    }

    async fn begin(
        &self,
        mut request: ClientRequest,
        retry: InputRetry,
        cx: &ToolCx,
    ) -> Result<Flight, ToolError> {
        let upstream = self.upstream;
        let live = self.connected(cx).await?;
        // The call was admitted by what was known before the connection was opened.
        if let Some(why) = upstream.holds(&live, self.kind, self.name) {
            return Err(ToolError::Held(why));
        }
        let version = live.connection.agreed().version;
        // A legacy upstream has asked nothing that a request could answer.
        if version.era() == Era::Modern {
            match &mut request {
                ClientRequest::CallTool(call) => call.retry = retry,
                ClientRequest::GetPrompt(get) => get.retry = retry,
                ClientRequest::ReadResource(read) => read.retry = retry,
                _ => {}
            }
        }
        upstream.called();
        Ok(self.fly(live, Work::Request(request), cx))
    }

    /// The connection for a call. Without the client's own credential its person is asked for one, and waited for.
    async fn connected(&self, cx: &ToolCx) -> Result<Arc<Live>, ToolError> {
        let upstream = self.upstream;
        // Before the first look, so that nothing is missed.
        let bindings = was_asked(cx).then(|| upstream.bindings.subscribe());
        let time = |most: Duration| {
            let left = cx
                .deadline
                .map_or(most, |it| it.saturating_duration_since(Instant::now()));
            (left - GRACE.min(left / 10)).min(most)
        };
        let look = || async {
            let slot = upstream.slot(cx)?;
            // Beyond the call's time it would be unknown that nothing was sent.
            let connected = timeout(time(Duration::MAX), slot.connected()).await;
            connected.unwrap_or_else(|_| {
                Err(Down {
                    reason: "it is still being connected to; the call has no more time".to_owned(),
                    retry_after: Some(RETRY_AFTER),
                    wants: Wants::Nothing,
                })
            })
        };
        let down = match look().await {
            Ok(live) => return Ok(live),
            Err(down) => down,
        };
        let Some(mut bindings) = bindings.filter(|_| matches!(down.wants, Wants::Own(_))) else {
            return Err(self.refused(&down, cx));
        };
        let answer = cx.answers().responses.get(SIGN_IN);
        let answer = answer.and_then(|it| serde_json::from_str::<Value>(it.get()).ok());
        if answer.is_none_or(|it| it["action"] != "accept") {
            return Err(ToolError::failed(format!(
                "upstream `{}` needs a credential of this client's own, which its user has declined to give; the \
                 call was not begun",
                upstream.spec.name
            )));
        }
        let given = async {
            loop {
                match bindings.recv().await {
                    Ok(client) if client != cx.principal => {}
                    // Too many have come to be told of each.
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return,
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        match timeout(time(PATIENCE), given).await {
            Ok(()) => look().await.map_err(|down| self.refused(&down, cx)),
            Err(_) => Err(self.refused(&down, cx)),
        }
    }

    /// Notes where a call is carried out, for its record.
    fn note_place(&self, live: &Live, cx: &ToolCx) {
        cx.meter().note_place(&format!(
            "upstream {}, {} {}, revision {}",
            self.upstream.spec.name,
            self.kind,
            self.name,
            live.connection.agreed().version.as_str()
        ));
    }

    fn fly(&self, live: Arc<Live>, work: Work, cx: &ToolCx) -> Flight {
        let upstream = self.upstream;
        let version = live.connection.agreed().version;
        self.note_place(&live, cx);
        let (caller, questions) = Caller::new(cx.clone());
        let place = live.desk.enter(Arc::clone(&caller));
        let mut meta = ResultMeta::default();
        let span = cx.begin_hop(&Hop {
            method: match &work {
                Work::Request(request) => Method::of(request).name(),
                Work::Task(_) => Method::GetTask.name(),
            },
            upstream: &upstream.spec.name,
            // Addresses of resources may hold anything.
            item: (self.kind != "resource").then_some(self.name),
            revision: version.as_str(),
            is_child: matches!(upstream.spec.reach, Reach::Child { .. }),
        });
        let (parent, state) = match &span {
            Some(span) => (Some(span.traceparent()), span.tracestate()),
            None => (
                cx.traceparent.as_deref().map(str::to_owned),
                cx.tracestate.as_deref().map(str::to_owned),
            ),
        };
        if let Some(trace) = parent.filter(|it| !it.is_empty()) {
            meta.insert("traceparent", &trace);
        }
        if let Some(state) = state {
            meta.insert("tracestate", &state);
        }
        let task = Arc::<OnceLock<String>>::default();
        // A server without tasks makes none of a call.
        let agreed = live.connection.agreed();
        let (is_tool, has_legacy_tasks) = (self.kind == "tool", agreed.offer.has_legacy_tasks());
        let has_tasks = has_legacy_tasks || agreed.offer.extensions.contains_key(TASKS_EXTENSION);
        let on_task = (is_tool && has_tasks).then(|| self.on_task(&caller, &task, version));
        let desk = Arc::clone(&live.desk);
        let reports = Progress::new(move |progress, total, message| {
            desk.hear();
            caller.progress(progress, total, message);
        });
        let askable = cx.askable();
        let options = CallOptions {
            // Waiting for the client's answers is not the upstream's time.
            timeout: Some(match askable.is_any() {
                true => upstream.spec.timeout + PATIENCE,
                false => upstream.spec.timeout,
            }),
            progress: Some(reports),
            meta,
            capabilities: Some(capabilities_of(askable)),
            hands_over_questions: true,
            // A server of 2025-11-25 does not make a task of a call by itself.
            as_task: is_tool && has_legacy_tasks && cx.can_be_task() && self.can_be_task(),
            on_task,
        };
        let connection = live.connection.clone();
        let reply = Box::pin(async move {
            match work {
                Work::Request(ClientRequest::CallTool(call)) => {
                    connection.call_or_ask(call, &options).await
                }
                Work::Request(request) => connection.request(request, &options).await,
                Work::Task(id) => {
                    let resumed = connection.resume_task(id, &options).await;
                    resumed.map(Answer::CallTool)
                }
            }
        });
        Flight {
            task,
            reply,
            questions,
            place,
            live,
            span,
        }
    }

    /// Makes a task of ours of what becomes a task of the upstream, and passes on what it tells of it.
    fn on_task(
        &self,
        caller: &Arc<Caller>,
        known: &Arc<OnceLock<String>>,
        version: ProtocolVersion,
    ) -> OnTask {
        let (left, caller, known) = (Arc::clone(caller), Arc::clone(caller), Arc::clone(known));
        let spec = &self.upstream.spec;
        let (upstream, identity) = (spec.name.clone(), spec.identity());
        let told = Mutex::new((0.0, None));
        let tell = move |task: &Task| {
            if known.set(task.id.clone()).is_ok() {
                let elsewhere = json!(Elsewhere {
                    upstream: upstream.clone(),
                    identity: identity.clone(),
                    task: task.id.clone(),
                });
                caller.with(|cx| {
                    cx.keep_elsewhere(elsewhere);
                    // A modern upstream says by it that the call takes long; a legacy one was asked for it.
                    if version.era() == Era::Modern {
                        cx.continue_as_task();
                    }
                });
            }
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.1 != task.status_message {
                told.0 += 1.0;
                told.1.clone_from(&task.status_message);
                caller.progress(told.0, None, task.status_message.as_deref());
            }
        };
        OnTask::new(tell).left_if(move || left.with(ToolCx::is_left).unwrap_or_default())
    }

    /// True if the tool is one of 2025-11-25 that can be called as a task.
    fn can_be_task(&self) -> bool {
        self.upstream.catalogue().is_some_and(|known| {
            let tool = known.tools.iter().find(|it| it.name == self.name);
            tool.is_some_and(|it| it.task_support == model::TaskSupport::Optional)
        })
    }

    /// Waits until the upstream has answered, or asks.
    async fn drive(&self, mut flight: Flight, cx: &ToolCx) -> Result<Answer, ToolError> {
        let asked = loop {
            let wait = Wait {
                upstream: self.upstream,
                desk: Arc::clone(&flight.live.desk),
                since: Instant::now(),
                deadline: cx.deadline,
            };
            let reply = tokio::select! {
                biased;
                reply = &mut flight.reply => Ok(reply),
                Some(asked) = flight.questions.recv() => Err(asked),
            };
            let reply = match (wait.over(), reply) {
                (since, Ok(Err(error @ Error::TimedOut { .. }))) => {
                    self.upstream.silent(&flight.live.desk, since);
                    Err(error)
                }
                (_, Ok(reply)) => reply,
                (_, Err(asked)) => break asked,
            };
            if let Some(span) = flight.span.take() {
                match &reply {
                    Ok(_) => span.answered(0),
                    Err(error) => span.failed(kind_of(error)),
                }
            }
            match (reply, flight.task.get()) {
                // The connection is gone, and the task may not be.
                (Err(error), Some(task)) if error.is_loss() => {
                    let task = task.clone();
                    self.upstream.failed(&with_causes(&error), false);
                    self.upstream.leave(cx, &flight.live);
                    // Until it is left, the connection seems to be open.
                    sleep(SHORTEST_PAUSE).await;
                    flight = self.rejoin(task, cx).await?;
                }
                // The task may run on, and is asked for as soon as there is a token again.
                (
                    Err(Error::AuthorizationUnavailable {
                        reason,
                        retry_after,
                    }),
                    Some(task),
                ) => {
                    let task = task.clone();
                    self.upstream.failed(&reason, false);
                    sleep(retry_after.unwrap_or(RETRY_AFTER)).await;
                    flight = self.rejoin(task, cx).await?;
                }
                // It has begun, whatever became of the question for it.
                (Err(error), Some(_)) if !is_outcome(&error) => {
                    self.upstream.failed(&with_causes(&error), false);
                    let why = "it cannot be asked for the result of its task";
                    return Err(self.lost(why, &with_causes(&error)));
                }
                (reply, _) => return self.replied(reply, &flight, cx),
            }
        };
        let mut asked = vec![("question".to_owned(), asked)];
        while let Ok(another) = flight.questions.try_recv() {
            asked.push((format!("question-{}", asked.len() + 1), another));
        }
        let questions = asked
            .iter()
            .map(|(key, asked)| (key.clone(), question(asked.question.clone())));
        let mut needed = Needed {
            questions: questions.collect(),
            ..Needed::default()
        };
        // What is kept of the call while it waits must not count as the call itself.
        flight.place.caller.set(None);
        let waiting = Waiting {
            flight,
            asked,
            since: Instant::now(),
            principal: Arc::clone(&cx.principal),
        };
        let Some(id) = self.upstream.parked.put(waiting) else {
            return Err(self.lost("too many calls wait for answers of their clients", ""));
        };
        needed.state = Some(json!({ "waiting": id }));
        let upstream = Arc::downgrade(self.upstream);
        needed.waiting = Some(adapter_tools::Waiting::new(move || {
            // Nobody asks the client any more, or it will not answer.
            if let Some(upstream) = upstream.upgrade() {
                drop(upstream.parked.take(&id));
            }
        }));
        Err(ToolError::NeedsInput(needed))
    }

    fn replied(
        &self,
        reply: Result<Answer, Error>,
        flight: &Flight,
        cx: &ToolCx,
    ) -> Result<Answer, ToolError> {
        match reply {
            Ok(Answer::InputRequired(InputRequired { requests, state })) => {
                flight.live.desk.hear();
                self.upstream.answered();
                let declared = cx.askable();
                if let Some(undeclared) = requests.values().find(|it| !can(declared, it)) {
                    return Err(ToolError::failed(format!(
                        "upstream `{}` asks by {}, which the client has not declared, as it was told",
                        self.upstream.spec.name,
                        undeclared.method(),
                    )));
                }
                // Answered under such a key, a question of the upstream would be taken for one of ours.
                if let Some(key) = requests.keys().find(|it| it.starts_with(OURS)) {
                    return Err(ToolError::failed(format!(
                        "upstream `{}` asks under the key `{}`, which is the gateway's",
                        self.upstream.spec.name,
                        text::clean(key),
                    )));
                }
                if let Some(error) = self.unfit(requests.values()) {
                    return Err(error);
                }
                let questions = requests.into_iter().map(|(key, it)| (key, question(it)));
                Err(ToolError::NeedsInput(Needed {
                    questions: questions.collect(),
                    state: Some(json!({ "state": state })),
                    ..Needed::default()
                }))
            }
            Ok(answer) => {
                flight.live.desk.hear();
                self.upstream.answered();
                Ok(answer)
            }
            Err(error) => {
                if !matches!(error, Error::TimedOut { .. }) {
                    flight.live.desk.hear();
                }
                Err(self.failed(error, flight, cx))
            }
        }
    }
}

/// Wait of a call for its answer. If it is given up at the call's deadline, the upstream may be silent.
struct Wait<'a> {
    upstream: &'a Upstream,
    desk: Arc<Desk>,
    since: Instant,
    deadline: Option<Instant>,
}

impl Wait<'_> {
    /// Ends it with something that was heard. Returns when it began.
    fn over(mut self) -> Instant {
        self.deadline = None;
        self.since
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        // Timers are coarser than clocks. A client that cancels says nothing of the upstream.
        let now = Instant::now() + Duration::from_millis(5);
        if self.deadline.is_some_and(|it| it <= now) {
            self.upstream.silent(&self.desk, self.since);
        }
    }
}

/// Gives the upstream the answers that a call was waiting for.
fn resume(waiting: Waiting, answers: &Answers, cx: &ToolCx) -> Flight {
    let Waiting { flight, asked, .. } = waiting;
    flight.place.caller.set(Some(cx.clone()));
    for (key, Asked { question, reply }) in asked {
        let answer = match answers.responses.get(&key) {
            Some(raw) => InputResponse::of(&question, &raw_json(raw))
                .map_err(|error| format!("the client's answer cannot be used: {error}")),
            None => Err("the client has not answered".to_owned()),
        };
        // The upstream may have taken its question back.
        let _ = reply.send(answer);
    }
    flight
}

/// True for a call whose client was asked for a credential.
fn was_asked(cx: &ToolCx) -> bool {
    let state = cx.answers().state.as_ref();
    state.is_some_and(|it| it.get(SIGNING_IN).is_some())
}

fn raw_json(raw: &RawValue) -> RawJson {
    RawJson::from_serialized(raw.get().as_bytes().to_vec())
}
