mod negotiate;
mod skills;
pub(crate) mod subscription;
mod tasks;

use crate::{
    CallOptions, Dial, Error, Options, Subscription,
    wire::link::{Link, Out},
    wire::shared::{Agreed, Listener, Open, Shared},
};
use jsonrpc_core::{Id, Message, RawJson};
use mcp_protocol::{
    Era, Method, MirroredParams, ProtocolVersion,
    client::{
        Answer, Answered, OutgoingMeta, ServerError, decode_result, encode_client_notification,
        encode_input_response, encode_request, mirrored_headers,
    },
    model::{
        CallTool, CallToolResult, ClientCapabilities, ClientNotification, ClientRequest, Complete,
        Completion, GetPrompt, GetPromptResult, InputRequired, InputRetry, ListResources,
        LoggingLevel, Page, Prompt, ReadResource, ReadResourceResult, Resource, ResourceTemplate,
        SubscriptionFilter, Tool,
    },
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
};
use tokio::{
    sync::{Mutex as AsyncMutex, mpsc, oneshot},
    time::{Instant, timeout_at},
};

/// A connection to one server. Cheap to clone; it is closed when the last clone is dropped, and a child
/// is then ended in the background.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: Options,
    /// Headers that repeat arguments, by tool; from the last list.
    mirrored: Mutex<HashMap<String, MirroredParams>>,
    /// State that a new legacy session must be told again.
    session: AsyncMutex<Session>,
}

#[derive(Debug, Default)]
struct Session {
    level: Option<LoggingLevel>,
    subscribed: Vec<String>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close("it was closed");
    }
}

/// A request that is under way. Dropping it cancels the request.
pub(crate) struct Flight {
    shared: Arc<Shared>,
    pub(crate) id: i64,
    kind: Method,
    version: ProtocolVersion,
    pub(crate) answer: oneshot::Receiver<crate::wire::shared::Outcome>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.shared.forget(self.id) || self.kind == Method::Initialize {
            return;
        }
        let link = self.shared.link();
        // Over HTTP, the modern era cancels by closing the connection, which is done.
        if link.http().is_some() && self.version.era() == Era::Modern {
            return;
        }
        let cancelled = ClientNotification::Cancelled {
            request: Id::Number(self.id),
            reason: None,
        };
        if let Ok(notification) = encode_client_notification(self.version, &cancelled) {
            link.reply(&self.shared, Message::Notification(notification));
        }
    }
}

impl Connection {
    /// Connects: opens the way, finds out which revision the server speaks, and opens a session if that
    /// is a legacy one.
    ///
    /// # Errors
    ///
    /// [`Error`] when the server cannot be reached, or no revision can be agreed on.
    pub async fn open(dial: &Dial, options: Options) -> Result<Self, Error> {
        match Self::over(dial, options.clone()).await {
            Err(error) => match dial.falls_back(&error) {
                Some(dial) => Self::over(&dial, options).await.map_err(|_| error),
                None => Err(error),
            },
            opened => opened,
        }
    }

    async fn over(dial: &Dial, options: Options) -> Result<Self, Error> {
        let shared = Shared::new(options.bounds.clone(), Arc::clone(&options.handlers));
        let link = dial.open(&shared).await?;
        if shared.link.set(link).is_err() {
            return Err(Error::closed("it was opened twice"));
        }
        let connection = Self(Arc::new(Inner {
            shared,
            options,
            mirrored: Mutex::default(),
            session: AsyncMutex::default(),
        }));
        connection.negotiate().await?;
        Ok(connection)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    /// The agreement on how client and server speak, and what the server has said about itself.
    #[must_use]
    pub fn agreed(&self) -> Arc<Agreed> {
        self.0.shared.agreed()
    }

    /// True once the connection has ended. An ended connection stays so; dial again.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.shared.is_closed()
    }

    /// The last lines that a child has written to standard error; empty for other servers.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.0.shared.link().stderr()
    }

    /// Closes the connection as the protocol says, and waits until that is done: a child has ended, a
    /// legacy session was given back. Requests that are under way fail.
    pub async fn close(self) {
        let shared = Arc::clone(&self.0.shared);
        shared.close("it was closed");
        shared.link().closed(&shared).await;
    }

    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        let mut capabilities = self.options().handlers.capabilities();
        if self.options().tasks {
            capabilities
                .extensions
                .extend(ClientCapabilities::of_tasks().extensions);
        }
        capabilities
    }

    /// Sends a request in revision `version`, without waiting for the answer.
    pub(crate) async fn start(
        &self,
        version: ProtocolVersion,
        request: &ClientRequest,
        options: &CallOptions,
        until: Instant,
        changes: Option<Arc<Listener>>,
    ) -> Result<Flight, Error> {
        let shared = self.shared();
        let id = shared.next_id();
        let meta = OutgoingMeta {
            client_info: Some(self.options().client_info.clone()),
            capabilities: match version.era() {
                Era::Modern => self.capabilities(),
                Era::Legacy => ClientCapabilities::default(),
            },
            log_level: self.options().log_level,
            progress_token: options.progress.as_ref().map(|_| Id::Number(id)),
            entries: options.meta.clone(),
        };
        let outgoing = encode_request(version, request, &meta)?;
        let mut headers = Vec::new();
        if shared.link().http().is_some() {
            let mirrored = mirrored_headers(version, request);
            headers.extend(
                mirrored
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value.into_owned())),
            );
            if let ClientRequest::CallTool(call) = request
                && version.era() == Era::Modern
            {
                let mirrored = self.mirrored();
                let params = mirrored.get(&call.name);
                headers.extend(
                    params
                        .map(|it| it.headers_of(&call.arguments))
                        .unwrap_or_default(),
                );
            }
        }
        let (answer, answered) = oneshot::channel();
        shared.open(
            id,
            Open {
                answer,
                progress: options.progress.clone(),
                changes,
                notifications: 0,
                task: None,
            },
        )?;
        let flight = Flight {
            shared: Arc::clone(shared),
            id,
            kind: outgoing.kind,
            version,
            answer: answered,
        };
        let out = Out {
            message: Message::Request(outgoing.into_request(Id::Number(id))),
            id: Some(id),
            headers,
            until,
            opens: matches!(request, ClientRequest::Initialize(_)),
        };
        match timeout_at(until, shared.link().send(shared, out)).await {
            Ok(sent) => sent?,
            Err(_) => return Err(self.timed_out(flight.kind, until)),
        }
        Ok(flight)
    }

    pub(crate) fn timed_out(&self, kind: Method, until: Instant) -> Error {
        let _ = until;
        Error::TimedOut {
            method: kind.name(),
            within: self.options().bounds.timeout,
            note: self.shared().note(),
        }
    }

    /// Waits for the answer to what was started.
    pub(crate) async fn finish(
        &self,
        mut flight: Flight,
        until: Instant,
    ) -> Result<Answered, Error> {
        let outcome = match timeout_at(until, &mut flight.answer).await {
            Ok(Ok(outcome)) => outcome?,
            Ok(Err(_)) => return Err(Error::closed("it was closed")),
            Err(_) => return Err(self.timed_out(flight.kind, until)),
        };
        match outcome {
            Ok(result) => Ok(decode_result(flight.version, flight.kind, &result)?),
            Err(error) => Err(Error::Server {
                meaning: ServerError::of(flight.version, &error),
                error,
            }),
        }
    }

    pub(crate) async fn once(
        &self,
        version: ProtocolVersion,
        request: &ClientRequest,
        options: &CallOptions,
        until: Instant,
    ) -> Result<Answered, Error> {
        let flight = self.start(version, request, options, until, None).await?;
        self.finish(flight, until).await
    }

    pub(crate) fn until(&self, options: &CallOptions) -> Instant {
        Instant::now() + options.timeout.unwrap_or(self.options().bounds.timeout)
    }

    /// Sends a request of any kind and waits for its answer. What the server asks on the way is answered
    /// by the handlers, a legacy session that was lost is opened anew once, and headers that were out of
    /// date are brought up to date once.
    ///
    /// # Errors
    ///
    /// [`Error`] when there is no result.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub async fn request(
        &self,
        request: ClientRequest,
        options: &CallOptions,
    ) -> Result<Answer, Error> {
        let until = self.until(options);
        self.request_until(request, options, until).await
    }

    pub(crate) async fn request_until(
        &self,
        mut request: ClientRequest,
        options: &CallOptions,
        until: Instant,
    ) -> Result<Answer, Error> {
        let (mut reopened, mut listed) = (false, false);
        let mut rounds = 0;
        loop {
            let version = self.shared().version();
            let session = self.shared().link().http().and_then(|it| it.session());
            let required = match self.once(version, &request, options, until).await {
                Ok(answered) => match answered.answer {
                    Answer::InputRequired(required) => required,
                    answer => return Ok(answer),
                },
                Err(Error::SessionLost) if !reopened => {
                    reopened = true;
                    self.reopen(session).await?;
                    continue;
                }
                Err(Error::Server {
                    meaning: ServerError::HeaderMismatch,
                    ..
                }) if !listed && matches!(request, ClientRequest::CallTool(_)) => {
                    listed = true;
                    Box::pin(self.tools()).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            rounds += 1;
            if self.options().bounds.max_rounds < rounds {
                let most = self.options().bounds.max_rounds as u64;
                return Err(Error::bound("max_rounds", most));
            }
            let retry = timeout_at(until, self.answers(version, required)).await;
            let retry = retry.map_err(|_| self.timed_out(Method::of(&request), until))??;
            match &mut request {
                ClientRequest::CallTool(call) => call.retry = retry,
                ClientRequest::GetPrompt(get) => get.retry = retry,
                ClientRequest::ReadResource(read) => read.retry = retry,
                _ => return Err(Error::Protocol("it asks where it must not".to_owned())),
            }
        }
    }

    async fn answers(
        &self,
        version: ProtocolVersion,
        required: InputRequired,
    ) -> Result<InputRetry, Error> {
        Ok(InputRetry {
            responses: self.answer_all(version, required.requests).await?,
            state: required.state,
        })
    }

    /// Has the handlers answer questions of a modern server's.
    pub(crate) async fn answer_all(
        &self,
        version: ProtocolVersion,
        questions: BTreeMap<String, mcp_protocol::model::InputRequest>,
    ) -> Result<BTreeMap<String, RawJson>, Error> {
        let declared = self.options().handlers.capabilities();
        let mut responses = BTreeMap::new();
        for (key, question) in questions {
            if !question.is_declared_by(&declared) {
                let text = format!("it asks for {}, which was not declared", question.method());
                return Err(Error::Protocol(text));
            }
            let answer = self.options().handlers.answer(question).await;
            let answer = answer.map_err(Error::Unanswered)?;
            responses.insert(key, encode_input_response(version, &answer)?);
        }
        Ok(responses)
    }

    pub(crate) async fn notify(&self, notification: &ClientNotification) -> Result<(), Error> {
        let shared = self.shared();
        let notification = encode_client_notification(shared.version(), notification)?;
        let out = Out {
            message: Message::Notification(notification),
            id: None,
            headers: Vec::new(),
            until: Instant::now() + self.options().bounds.timeout,
            opens: false,
        };
        shared.link().send(shared, out).await
    }

    /// Opens a new legacy session in place of `lost`, and tells it what the old one was told. However many
    /// requests find the session lost, one is opened.
    async fn reopen(&self, lost: Option<http::HeaderValue>) -> Result<(), Error> {
        let Link::Http(link) = self.shared().link() else {
            return Err(Error::SessionLost);
        };
        let session = self.0.session.lock().await;
        if link.session() != lost {
            return Ok(());
        }
        link.forget_session();
        self.initialize(self.shared().version()).await?;
        let options = CallOptions::default();
        let version = self.shared().version();
        let level = session.level.map(ClientRequest::SetLevel);
        let subscribed = session.subscribed.iter().cloned();
        for request in level
            .into_iter()
            .chain(subscribed.map(ClientRequest::Subscribe))
        {
            self.once(version, &request, &options, self.until(&options))
                .await?;
        }
        Ok(())
    }

    /// Tells the server that the roots have changed. Modern servers ask anew each time, and are not told.
    ///
    /// # Errors
    ///
    /// [`Error`] when it cannot be sent.
    pub async fn roots_changed(&self) -> Result<(), Error> {
        match self.shared().version().era() {
            Era::Modern => Ok(()),
            Era::Legacy => self.notify(&ClientNotification::RootsListChanged).await,
        }
    }

    /// Asks whether the server is there: `ping`, and in the modern era `server/discover`.
    ///
    /// # Errors
    ///
    /// [`Error`] when it is not.
    pub async fn ping(&self) -> Result<(), Error> {
        let request = match self.shared().version().era() {
            Era::Modern => ClientRequest::Discover,
            Era::Legacy => ClientRequest::Ping,
        };
        self.request(request, &CallOptions::default()).await?;
        Ok(())
    }

    /// All tools. Over HTTP, tools of the modern era whose `x-mcp-header` annotations break the rules are
    /// left out, as the revision demands.
    ///
    /// # Errors
    ///
    /// [`Error`], also when the list has more pages or items than the bounds allow.
    pub async fn tools(&self) -> Result<Vec<Tool>, Error> {
        let mut tools = self
            .all(
                |cursor| ClientRequest::ListTools(Page { cursor }),
                |answer| match answer {
                    Answer::ListTools(page) => Some((page.tools, page.next_cursor)),
                    _ => None,
                },
            )
            .await?;
        if self.shared().link().http().is_some() && self.shared().version().era() == Era::Modern {
            let mut mirrored = HashMap::new();
            tools.retain(|tool| {
                let schema = tool.input_schema.parse::<serde_json::Value>();
                let params = match schema.map(|it| MirroredParams::of_schema(&it)) {
                    Ok(Ok(params)) => params,
                    Ok(Err(error)) => {
                        tracing::warn!(tool = tool.name, %error, "a tool was left out");
                        return false;
                    }
                    Err(_) => return false,
                };
                if !params.is_empty() {
                    mirrored.insert(tool.name.clone(), params);
                }
                true
            });
            *self.mirrored() = mirrored;
        }
        Ok(tools)
    }

    fn mirrored(&self) -> std::sync::MutexGuard<'_, HashMap<String, MirroredParams>> {
        self.0
            .mirrored
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// All resources.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`].
    pub async fn resources(&self) -> Result<Vec<Resource>, Error> {
        let ask = |cursor| {
            ClientRequest::ListResources(ListResources {
                cursor,
                ..ListResources::default()
            })
        };
        self.all(ask, |answer| match answer {
            Answer::ListResources(page) => Some((page.resources, page.next_cursor)),
            _ => None,
        })
        .await
    }

    /// All templates of resources.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`].
    pub async fn resource_templates(&self) -> Result<Vec<ResourceTemplate>, Error> {
        let ask = |cursor| ClientRequest::ListResourceTemplates(Page { cursor });
        self.all(ask, |answer| match answer {
            Answer::ListResourceTemplates(page) => {
                Some((page.resource_templates, page.next_cursor))
            }
            _ => None,
        })
        .await
    }

    /// All prompts.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`].
    pub async fn prompts(&self) -> Result<Vec<Prompt>, Error> {
        let ask = |cursor| ClientRequest::ListPrompts(Page { cursor });
        self.all(ask, |answer| match answer {
            Answer::ListPrompts(page) => Some((page.prompts, page.next_cursor)),
            _ => None,
        })
        .await
    }

    /// Reads a list to its end.
    pub(crate) async fn all<T>(
        &self,
        ask: impl Fn(Option<String>) -> ClientRequest,
        page: impl Fn(Answer) -> Option<(Vec<T>, Option<String>)>,
    ) -> Result<Vec<T>, Error> {
        let bounds = &self.options().bounds;
        let options = CallOptions::default();
        let until = self.until(&options);
        let mut items = Vec::new();
        let mut cursor = None;
        for _ in 0..bounds.max_pages {
            let answer = self
                .request_until(ask(cursor.clone()), &options, until)
                .await?;
            let unfit = || Error::Protocol("a list was answered with something else".to_owned());
            let (more, next) = page(answer).ok_or_else(unfit)?;
            items.extend(more);
            if bounds.max_items < items.len() {
                return Err(Error::bound("max_items", bounds.max_items as u64));
            }
            match next {
                None => return Ok(items),
                Some(next) if Some(&next) == cursor.as_ref() => {
                    return Err(Error::Protocol("a page leads to itself".to_owned()));
                }
                next => cursor = next,
            }
        }
        Err(Error::bound("max_pages", bounds.max_pages as u64))
    }

    /// Calls a tool, and waits for its result: also if the server makes a task of the call.
    ///
    /// # Errors
    ///
    /// [`Error`] when there is no result. A tool that ran and failed has one, with `is_error`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call.
    pub async fn call(
        &self,
        tool: impl Into<String>,
        arguments: RawJson,
        options: &CallOptions,
    ) -> Result<CallToolResult, Error> {
        let until = self.until(options);
        let call = ClientRequest::CallTool(CallTool {
            name: tool.into(),
            arguments,
            ..CallTool::default()
        });
        match self.request_until(call, options, until).await? {
            Answer::CallTool(result) => Ok(result),
            Answer::CreateTask(task) => self.wait_for_task(task, options, until).await,
            _ => Err(Error::Protocol(
                "a call was answered with something else".to_owned(),
            )),
        }
    }

    /// Reads a resource.
    ///
    /// # Errors
    ///
    /// [`Error`] when there is no result.
    pub async fn read(&self, uri: impl Into<String>) -> Result<ReadResourceResult, Error> {
        let read = ClientRequest::ReadResource(ReadResource {
            uri: uri.into(),
            range: None,
            if_none_match: None,
            retry: InputRetry::default(),
        });
        match self.request(read, &CallOptions::default()).await? {
            Answer::ReadResource(result) => Ok(result),
            _ => Err(Error::Protocol(
                "a read was answered with something else".to_owned(),
            )),
        }
    }

    /// Gets a prompt.
    ///
    /// # Errors
    ///
    /// [`Error`] when there is no result.
    pub async fn prompt(
        &self,
        name: impl Into<String>,
        arguments: BTreeMap<String, String>,
    ) -> Result<GetPromptResult, Error> {
        let get = ClientRequest::GetPrompt(GetPrompt {
            name: name.into(),
            arguments,
            retry: InputRetry::default(),
        });
        match self.request(get, &CallOptions::default()).await? {
            Answer::GetPrompt(result) => Ok(result),
            _ => Err(Error::Protocol(
                "a prompt was answered with something else".to_owned(),
            )),
        }
    }

    /// Completes an argument.
    ///
    /// # Errors
    ///
    /// [`Error`] when there is no result.
    pub async fn complete(&self, complete: Complete) -> Result<Completion, Error> {
        let request = ClientRequest::Complete(complete);
        match self.request(request, &CallOptions::default()).await? {
            Answer::Complete(completion) => Ok(completion),
            _ => Err(Error::Protocol(
                "a completion was answered with something else".to_owned(),
            )),
        }
    }

    /// Tells a legacy server from which severity on log messages are wanted. Modern servers are told with
    /// each request; see [`Options::log_level`](crate::Options).
    ///
    /// # Errors
    ///
    /// [`Error`] when the server does not take it.
    pub async fn set_level(&self, level: LoggingLevel) -> Result<(), Error> {
        let request = ClientRequest::SetLevel(level);
        self.request(request, &CallOptions::default()).await?;
        self.0.session.lock().await.level = Some(level);
        Ok(())
    }

    /// Subscribes to changes, in whichever way the server's revision has.
    ///
    /// # Errors
    ///
    /// [`Error`] when the server does not agree.
    pub async fn listen(&self, filter: SubscriptionFilter) -> Result<Subscription, Error> {
        let (changes, heard) = mpsc::channel(self.options().bounds.max_waiting_changes.max(1));
        let listener = Arc::new(Listener {
            filter: filter.clone(),
            changes,
            dropped: AtomicU64::new(0),
        });
        let shared = self.shared();
        let version = shared.version();
        if version.era() == Era::Modern {
            let options = CallOptions::default();
            let forever = Instant::now() + std::time::Duration::from_secs(365 * 86_400);
            let request = ClientRequest::Listen(filter);
            let listening = Arc::clone(&listener);
            let flight = self
                .start(version, &request, &options, forever, Some(listening))
                .await?;
            return Subscription::modern(self.clone(), flight, listener, heard).await;
        }
        shared.listen(Arc::clone(&listener));
        let subscription = Subscription::legacy(self.clone(), listener, heard);
        for uri in filter.resource_subscriptions {
            let request = ClientRequest::Subscribe(uri.clone());
            self.request(request, &CallOptions::default()).await?;
            self.0.session.lock().await.subscribed.push(uri);
        }
        Ok(subscription)
    }

    /// Forgets subscriptions of a legacy session's; the server is told in the background.
    pub(crate) fn unsubscribe(&self, uris: Vec<String>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if uris.is_empty() || self.is_closed() {
            return;
        }
        let connection = self.clone();
        runtime.spawn(async move {
            for uri in uris {
                let mut session = connection.0.session.lock().await;
                if let Some(at) = session.subscribed.iter().position(|it| *it == uri) {
                    session.subscribed.swap_remove(at);
                }
                let is_wanted = session.subscribed.contains(&uri);
                drop(session);
                if !is_wanted {
                    let request = ClientRequest::Unsubscribe(uri);
                    let sent = connection.request(request, &CallOptions::default()).await;
                    if let Err(error) = sent {
                        tracing::debug!(%error, "a subscription was not ended");
                    }
                }
            }
        });
    }
}
