//! Requests to upstreams on behalf of a caller: calls of tools, prompts and reads.

use crate::{
    Reach, UpstreamSpec,
    catalogue::is_page,
    pins::cleaned_definition,
    store::with_causes,
    text::{self, Cleaner, OURS, without_ours},
    upstream::{
        Upstream,
        desk::{Asked, Caller, Desk, Place, can, capabilities_of, unfit},
        has_room,
        slot::{Down, Live, Wants},
    },
};
use adapter_tools::{
    About, Answers, Arguments, Askable, Content, EmbeddedResource, Executor, FormSchema, Hop,
    InvalidArguments, Needed, OpenErrand, Question, ResourceBody, ResourceLink, ToolCx, ToolError,
    ToolOutput,
};
use data_encoding::HEXLOWER;
use futures_util::future::BoxFuture;
use mcp_client::{CallOptions, Error, OnTask, Progress};
use mcp_protocol::{
    Era, Method, ProtocolVersion, RawJson,
    client::{Answer, ServerError},
    model::{
        self, Annotations, CallTool, CallToolResult, ClientCapabilities, ClientRequest,
        InputRequest, InputRequired, InputResponse, InputRetry, ResultMeta, TASKS_EXTENSION, Task,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};
use std::{
    collections::HashMap,
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
/// Member of the metadata of what was read that is about the resource.
const RESOURCE_META: &str = "io.owlclaw/resource";
/// The most time that is left of a call, for telling so, when there is no connection or nobody has given a credential.
const GRACE: Duration = Duration::from_secs(1);
/// The shortest pause between two attempts to reach the upstream that carries out a task.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
/// Time after which to try again an upstream that says nothing of it.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Most calls of one upstream that wait for answers.
const MAX_PARKED: usize = 1024;

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

/// A call that waits for answers of its client.
struct Waiting<F = Flight> {
    flight: F,
    asked: Vec<(String, Asked)>,
    since: Instant,
    principal: Arc<str>,
}

/// Calls that wait for answers of their clients, by a name that is hard to guess.
pub(crate) struct Parked<F = Flight>(Mutex<HashMap<String, Waiting<F>>>);

impl<F> Default for Parked<F> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<F> Parked<F> {
    fn put(&self, waiting: Waiting<F>) -> Option<String> {
        let mut parked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|_, it| it.since.elapsed() < PATIENCE);
        let own = parked
            .values()
            .filter(|it| it.principal == waiting.principal);
        if !has_room(MAX_PARKED, parked.len(), own.count()) {
            return None;
        }
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).ok()?;
        let id = HEXLOWER.encode(&bytes);
        parked.insert(id.clone(), waiting);
        Some(id)
    }

    fn take(&self, id: &str) -> Option<Waiting<F>> {
        let mut parked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parked.remove(id)
    }

    /// Gives up calls whose clients have not answered.
    pub(crate) fn sweep(&self) {
        let mut parked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|_, it| it.since.elapsed() < PATIENCE);
    }

    pub(crate) fn clear(&self) {
        let mut parked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = std::mem::take(&mut *parked);
        drop(parked);
        drop(gone);
    }
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

    /// Takes out of the texts of an answer what nobody sees, and notes so on record. Pages of apps are as they were pinned.
    fn clean(&self, answer: &mut Answer, cx: &ToolCx) {
        let mut cleaner = Cleaner::new(self.upstream.spec.cleans_results);
        match answer {
            Answer::CallTool(result) => {
                result
                    .content
                    .iter_mut()
                    .for_each(|it| clean(it, &mut cleaner));
                result
                    .structured_content
                    .iter_mut()
                    .for_each(|it| cleaner.json(it));
                cleaner.meta(&mut result.meta);
            }
            Answer::GetPrompt(result) => {
                cleaner.maybe(&mut result.description);
                let contents = result.messages.iter_mut().map(|it| &mut it.content);
                contents.for_each(|it| clean(it, &mut cleaner));
                cleaner.meta(&mut result.meta);
            }
            Answer::ReadResource(result) if !is_page(self.name) => {
                let contents = result.contents.iter_mut();
                contents.for_each(|it| clean_contents(it, &mut cleaner));
                cleaner.meta(&mut result.meta);
                without_ours(&mut result.meta);
                if cleaner.taken != 0 {
                    // The text is not byte for byte what the upstream has.
                    result
                        .meta
                        .insert(RESOURCE_META, &json!({ "takenOut": cleaner.taken }));
                }
            }
            Answer::ReadResource(result) => without_ours(&mut result.meta),
            Answer::Complete(completion) => {
                completion.values.iter_mut().for_each(|it| cleaner.text(it));
            }
            _ => {}
        }
        if let Some(told) = cleaner.told() {
            cx.meter().note(told);
        }
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

    /// Error of a call that has begun elsewhere, whose outcome cannot be asked for.
    fn unreachable(&self, down: &Down) -> ToolError {
        self.lost(
            "it cannot be asked for the result of its task",
            &down.reason,
        )
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

    /// Error of a call that was not begun; the question for a credential where the client can be asked, and was not yet.
    fn refused(&self, down: &Down, cx: &ToolCx) -> ToolError {
        let name = &self.upstream.spec.name;
        let Wants::Own(why) = &down.wants else {
            return self.unavailable(down);
        };
        let Some(url) = self.upstream.sign_in_address(&cx.principal) else {
            return self.unavailable(down);
        };
        if cx.askable().url && cx.answers().state.is_none() {
            let message = format!(
                "`{name}` needs an account or a secret of your own, which you give on a page of this server. The call \
                 goes on afterwards"
            );
            return ToolError::NeedsInput(Needed {
                questions: [(SIGN_IN.to_owned(), Question::Url { message, url })].into(),
                state: Some(json!({ SIGNING_IN: true })),
                ..Needed::default()
            });
        }
        ToolError::Unavailable {
            message: format!(
                "upstream `{name}` {why}, or open {url} in a browser; the call was not begun"
            ),
            retry_after: None,
            detail: down.reason.clone(),
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

    /// Error of a call whose upstream asks what is put to no client.
    fn unfit<'q>(
        &self,
        questions: impl IntoIterator<Item = &'q InputRequest>,
    ) -> Option<ToolError> {
        let upstream = &self.upstream.spec.name;
        let (method, why) = questions
            .into_iter()
            .find_map(|it| Some((it.method(), unfit(it)?)))?;
        tracing::warn!(
            upstream,
            method,
            why,
            "a question of an upstream was refused"
        );
        Some(ToolError::failed(format!(
            "upstream `{upstream}` asks what is put to no client: {why}"
        )))
    }

    fn failed(&self, error: Error, flight: &Flight, cx: &ToolCx) -> ToolError {
        let upstream = self.upstream;
        let name = &upstream.spec.name;
        let text = text::clean(&with_causes(&error)).into_owned();
        match error {
            Error::TaskUntold { error } => {
                upstream.answered();
                self.lost(
                    "it does not tell what has become of its task",
                    &text::clean(&error.message),
                )
            }
            Error::Server { meaning, error } => {
                upstream.answered();
                match meaning {
                    ServerError::InvalidParams => ToolError::Rejected(InvalidArguments::because(
                        format!("upstream `{name}`: {}", text::clean(&error.message)),
                    )),
                    ServerError::UrlElicitationRequired { elicitations }
                        if cx.askable().url && !elicitations.is_empty() =>
                    {
                        if let Some(error) = self.unfit(&elicitations) {
                            return error;
                        }
                        let elicitations = elicitations.into_iter().enumerate();
                        let questions =
                            elicitations.map(|(at, it)| (format!("url-{}", at + 1), question(it)));
                        ToolError::NeedsInput(Needed {
                            questions: questions.collect(),
                            state: Some(json!({ "again": true })),
                            ..Needed::default()
                        })
                    }
                    ServerError::MissingClientCapability { required }
                        if let Some(question) = undeclared(&required, cx.askable()) =>
                    {
                        // It is not asked: the client is told what it would have to declare.
                        ToolError::NeedsInput(Needed::default().and("undeclared", question))
                    }
                    _ => ToolError::failed_with(
                        format!("upstream `{name}`: {}", text::clean(&error.message)),
                        json!({
                            "upstream": name,
                            "code": error.code.0,
                            "data": error.data.as_ref().and_then(|it| {
                                let mut data = it.parse::<Value>().ok()?;
                                Cleaner::new(true).value(&mut data);
                                Some(data)
                            }),
                        }),
                    ),
                }
            }
            Error::TimedOut { .. } => ToolError::TimedOut,
            Error::Unanswered(_) | Error::TaskCancelled { .. } => {
                ToolError::failed(format!("upstream `{name}`: {text}"))
            }
            Error::Unauthorized { .. } if upstream.has_own() => {
                let down = upstream.refused(&cx.principal, &text);
                upstream.leave(cx, &flight.live);
                self.refused(&down, cx)
            }
            Error::Unauthorized { .. } => {
                upstream.failed(&text, true);
                // The next connection uses what somebody has signed in for meanwhile.
                upstream.leave(cx, &flight.live);
                self.unavailable(&Down {
                    reason: "it wants authorization".to_owned(),
                    retry_after: None,
                    wants: Wants::Login,
                })
            }
            Error::AuthorizationMisconfigured { cure, .. } => {
                upstream.misconfigured(&text, &cure);
                upstream.leave(cx, &flight.live);
                self.unavailable(&Down {
                    reason: text,
                    retry_after: None,
                    wants: Wants::Setting,
                })
            }
            Error::AuthorizationUnavailable { retry_after, .. } => {
                upstream.failed(&text, false);
                self.unavailable(&Down {
                    reason: text,
                    retry_after: Some(retry_after.unwrap_or(RETRY_AFTER)),
                    wants: Wants::Authority,
                })
            }
            error if error.has_reached("max_message") => {
                let most = upstream.spec.max_message;
                upstream.failed(&text, false);
                upstream.leave(cx, &flight.live);
                let why = format!(
                    "its answer is longer than {most} bytes (`upstreams.{name}.max_message_bytes`)"
                );
                self.lost(&why, &text)
            }
            _ if !error.may_have_run() => {
                upstream.failed(&text, false);
                ToolError::Unavailable {
                    message: format!("upstream `{name}` cannot be reached; the call was not begun"),
                    retry_after: Some(RETRY_AFTER),
                    detail: text,
                }
            }
            // It was not begun (RFC 6585, section 4), and the connection is as good as before.
            Error::Status {
                status: 429,
                retry_after,
                ..
            } => ToolError::Unavailable {
                message: format!(
                    "upstream `{name}` is asked too often (HTTP 429); the call was not begun"
                ),
                retry_after: Some(retry_after.unwrap_or(RETRY_AFTER)),
                detail: text,
            },
            Error::Status { status, .. } if (400..500).contains(&status) => {
                // Some answer 400 for a session that they have forgotten: the next call has a new one.
                upstream.leave(cx, &flight.live);
                ToolError::failed(format!("upstream `{name}`: {text}"))
            }
            Error::Status { status, .. } => {
                upstream.failed(&text, false);
                upstream.leave(cx, &flight.live);
                self.lost(&format!("it answered with HTTP {status}"), &text)
            }
            // Of no use is this answer; the connection is, to others.
            Error::Protocol(_) | Error::Result(_) => {
                upstream.answered();
                self.lost("its answer cannot be used", &text)
            }
            _ => {
                upstream.failed(&text, false);
                upstream.leave(cx, &flight.live);
                self.lost("the connection was lost", &text)
            }
        }
    }

    fn unavailable(&self, down: &Down) -> ToolError {
        unavailable(&self.upstream.spec.name, down)
    }

    pub(crate) fn lost(&self, why: &str, detail: &str) -> ToolError {
        self.upstream.lost();
        let name = &self.upstream.spec.name;
        ToolError::Lost {
            message: format!(
                "upstream `{name}`: {why}. The outcome of the call is unknown: it may have been done. \
                 It is not repeated by the server"
            ),
            detail: detail.to_owned(),
        }
    }
}

/// Error of a call that was not begun, since there is no connection.
pub(crate) fn unavailable(name: &str, down: &Down) -> ToolError {
    let why = match &down.wants {
        Wants::Login => "needs a login: its operator has to sign in",
        Wants::Own(why) => why,
        Wants::Setting => {
            "cannot be used until what its tokens come from is set right: its operator has the reason"
        }
        Wants::Authority => {
            "cannot be used at the moment: its authorization server is out of order"
        }
        Wants::Room => "has no room for another connection of this client, all of whose are in use",
        Wants::Nothing => "cannot be reached",
    };
    ToolError::Unavailable {
        message: format!("upstream `{name}` {why}; the call was not begun"),
        retry_after: down.retry_after,
        detail: down.reason.clone(),
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

/// Kind of an error, for tracing.
fn kind_of(error: &Error) -> &'static str {
    match error {
        Error::Server { .. } => "server_error",
        Error::TimedOut { .. } => "timed_out",
        Error::Unauthorized { .. } => "unauthorized",
        Error::AuthorizationMisconfigured { .. } => "authorization_misconfigured",
        Error::AuthorizationUnavailable { .. } => "authorization_unavailable",
        Error::Closed { .. } => "closed",
        _ => "failed",
    }
}

/// True if an error says what became of a task, and not of the question for it.
fn is_outcome(error: &Error) -> bool {
    matches!(
        error,
        Error::Server { .. }
            | Error::TimedOut { .. }
            | Error::Unanswered(_)
            | Error::TaskCancelled { .. }
            | Error::TaskUntold { .. }
    )
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

/// A question of an upstream, cleaned of what nobody sees.
fn question(request: InputRequest) -> Question {
    let mut cleaner = Cleaner::new(true);
    match request {
        InputRequest::ElicitForm {
            mut message,
            requested_schema,
        } => {
            cleaner.text(&mut message);
            Question::Form {
                message,
                schema: FormSchema::from(
                    requested_schema
                        .parse::<Box<RawValue>>()
                        .unwrap_or_default(),
                )
                .changed(cleaned_definition),
            }
        }
        InputRequest::ElicitUrl {
            mut message, url, ..
        } => {
            cleaner.text(&mut message);
            Question::Url { message, url }
        }
        InputRequest::CreateMessage(mut params) => {
            cleaner.value(&mut params);
            Question::Sample(params)
        }
        InputRequest::ListRoots => Question::Roots,
    }
}

/// A question that needs one of the `required` capabilities and cannot be put to a client.
fn undeclared(required: &ClientCapabilities, askable: Askable) -> Option<Question> {
    let elicitation = required.elicitation.unwrap_or_default();
    let message = String::new();
    let questions = [
        (required.sampling.is_some(), Question::Sample(Value::Null)),
        (required.roots, Question::Roots),
        (
            elicitation.url,
            Question::Url {
                message: message.clone(),
                url: String::new(),
            },
        ),
        (
            elicitation.form,
            Question::Form {
                message,
                schema: Value::Null.into(),
            },
        ),
    ];
    let mut questions = questions.into_iter();
    let (_, question) =
        questions.find(|(is_required, question)| *is_required && !question.is_askable(askable))?;
    Some(question)
}

/// Cleans the texts of a block of content.
fn clean(content: &mut model::Content, cleaner: &mut Cleaner) {
    match content {
        model::Content::Text { text, meta, .. } => {
            cleaner.text(text);
            cleaner.meta(meta);
        }
        model::Content::Image {
            mime_type, meta, ..
        }
        | model::Content::Audio {
            mime_type, meta, ..
        } => {
            cleaner.text(mime_type);
            cleaner.meta(meta);
        }
        model::Content::ResourceLink(link) => {
            cleaner.listed(link);
        }
        model::Content::Resource { resource, meta, .. } => {
            clean_contents(resource, cleaner);
            cleaner.meta(meta);
        }
    }
}

fn clean_contents(contents: &mut model::ResourceContents, cleaner: &mut Cleaner) {
    cleaner.maybe(&mut contents.text);
    cleaner.maybe(&mut contents.mime_type);
    contents.meta.iter_mut().for_each(|it| cleaner.json(it));
}

/// The answer of an upstream as that of a tool. Addresses of its resources are those under which they are
/// offered. Structured content is passed on as it is, objects and others.
fn output(result: CallToolResult, upstream: &Upstream) -> ToolOutput {
    // Clients of revisions that know no such value are to see it too.
    let has_content = !result.content.is_empty();
    let only = result.structured_content.as_ref().filter(|_| !has_content);
    let only = only.map(|it| Content::text(it.as_str()));
    let content = result.content.into_iter().map(|it| block(it, upstream));
    let mut output = ToolOutput {
        content: content.chain(only).collect(),
        structured: result
            .structured_content
            .and_then(|it| RawValue::from_string(it.as_str().to_owned()).ok()),
        is_error: result.is_error,
        ..ToolOutput::default()
    };
    let meta = passed_on(members(&result.meta), upstream);
    for (name, value) in meta.into_iter().flat_map(|it| *it) {
        output = output.with_meta(name, value);
    }
    output
}

fn block(content: model::Content, upstream: &Upstream) -> Content {
    let about = |annotations: Option<Box<Annotations>>, meta| About {
        annotations: annotations.and_then(|it| annotated(*it)),
        meta: passed_on(members(&meta), upstream),
    };
    match content {
        model::Content::Text {
            text,
            annotations,
            meta,
        } => Content::Text {
            text,
            about: about(annotations, meta),
        },
        model::Content::Image {
            data,
            mime_type,
            annotations,
            meta,
        } => Content::Image {
            data,
            mime_type,
            about: about(annotations, meta),
        },
        model::Content::Audio {
            data,
            mime_type,
            annotations,
            meta,
        } => Content::Audio {
            data,
            mime_type,
            about: about(annotations, meta),
        },
        model::Content::ResourceLink(link) => {
            let annotations = Annotations {
                audience: link.audience,
                priority: link.priority,
                last_modified: link.last_modified,
            };
            Content::ResourceLink(Box::new(ResourceLink {
                uri: upstream.offered_uri(&link.uri),
                name: link.name,
                title: link.title,
                description: link.description,
                mime_type: link.mime_type,
                size: link.size,
                icons: Vec::new(),
                about: about(Some(Box::new(annotations)), link.meta),
            }))
        }
        model::Content::Resource {
            resource,
            annotations,
            meta,
        } => Content::Resource {
            resource: EmbeddedResource {
                uri: upstream.offered_uri(&resource.uri),
                mime_type: resource.mime_type,
                body: match (resource.text, resource.blob) {
                    (Some(text), _) => ResourceBody::Text(text),
                    (None, blob) => ResourceBody::Blob(blob.unwrap_or_default()),
                },
                meta: resource.meta.and_then(|it| {
                    let meta = it.parse::<Map<String, Value>>().ok()?;
                    passed_on(meta, upstream)
                }),
            },
            about: about(annotations, meta),
        },
    }
}

/// Annotations of a block, of bounded length; `None` if they say nothing.
fn annotated(mut annotations: Annotations) -> Option<Box<Map<String, Value>>> {
    const MAX_TIME: usize = 64;
    annotations.audience.dedup();
    annotations.audience.truncate(2);
    annotations.last_modified.take_if(|it| it.len() > MAX_TIME);
    match serde_json::to_value(annotations) {
        Ok(Value::Object(members)) if !members.is_empty() => Some(Box::new(members)),
        _ => None,
    }
}

/// Members of metadata whose values are JSON.
fn members(meta: &ResultMeta) -> impl Iterator<Item = (String, Value)> {
    meta.iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
}

/// Metadata of an upstream without what only this server says; `None` if there is none.
fn passed_on(
    meta: impl IntoIterator<Item = (String, Value)>,
    upstream: &Upstream,
) -> Option<Box<Map<String, Value>>> {
    let meta: Map<String, Value> = meta
        .into_iter()
        .filter(|(name, _)| !name.starts_with(OURS))
        .map(|(name, value)| (name, upstream.with_offered_ui(value)))
        .collect();
    (!meta.is_empty()).then(|| Box::new(meta))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_client_that_wait_leave_room_for_those_of_others() {
        let parked = Parked::default();
        let put = |principal: &str| {
            parked.put(Waiting {
                flight: (),
                asked: Vec::new(),
                since: Instant::now(),
                principal: principal.into(),
            })
        };
        let first = put("greedy").unwrap();
        let more = (0..MAX_PARKED).filter(|_| put("greedy").is_some()).count();
        assert_eq!(more + 1, MAX_PARKED / 2);
        assert!((0..MAX_PARKED / 8).all(|_| put("modest").is_some()));
        assert!(put("greedy").is_none());
        assert!(parked.take(&first).is_some());
        assert!(put("third").is_some());
    }
}
