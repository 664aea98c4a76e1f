//! The requests that are under way on one connection, and what becomes of each message of the server's.

use crate::{
    Bounds, Error, Handlers,
    options::Progress,
    wire::link::{Claim, Link},
    wire::outline::Outline,
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use jsonrpc_core::{
    ErrorCode, ErrorObject, Id, Message, Notification, Payload, RawJson, Request, Response, decode,
};
use mcp_protocol::{
    Era, ProtocolVersion,
    client::{
        ServerOffer, ServerRequest, decode_server_notification, decode_server_request,
        encode_input_response,
    },
    model::{Implementation, InputRequest, ServerNotification, SubscriptionFilter},
};
use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch},
    task::AbortHandle,
};

/// The agreement of client and server on how they speak.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreed {
    /// The revision.
    pub version: ProtocolVersion,
    /// The version that the server has named, if it is no revision we know.
    pub named: Option<String>,
    /// Capabilities of the server.
    pub offer: ServerOffer,
    /// Name and version that the server gives itself.
    pub server_info: Option<Implementation>,
    /// Instructions for the model. Whoever believes it trusts the server.
    pub instructions: Option<String>,
}

impl Agreed {
    pub(crate) fn on(version: ProtocolVersion) -> Self {
        Self {
            version,
            named: None,
            offer: ServerOffer::default(),
            server_info: None,
            instructions: None,
        }
    }
}

pub(crate) type Outcome = Result<Result<RawJson, ErrorObject>, Error>;
pub(crate) type Changes = mpsc::Sender<ServerNotification>;

/// One request that is under way.
pub(crate) struct Open {
    /// `None` once it was told of an error, and is still to be cancelled.
    pub(crate) answer: Option<oneshot::Sender<Outcome>>,
    /// On a duplex connection, the right to write it.
    pub(crate) claim: Option<Claim>,
    pub(crate) progress: Option<Progress>,
    pub(crate) changes: Option<Arc<Listener>>,
    pub(crate) notifications: u64,
    pub(crate) task: Option<Carrier>,
}

/// Handle of what carries out a request, by which it is given up.
pub(crate) enum Carrier {
    /// A task.
    Task(AbortHandle),
    /// A part of the future that waits for the answer.
    Part(futures_util::future::AbortHandle),
}

impl Carrier {
    fn abort(&self) {
        match self {
            Self::Task(task) => task.abort(),
            Self::Part(part) => part.abort(),
        }
    }
}

/// Destination of the changes that a subscription is about.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) filter: SubscriptionFilter,
    pub(crate) changes: Changes,
    pub(crate) dropped: Arc<AtomicU64>,
}

impl Listener {
    fn hear(&self, notification: &ServerNotification) {
        if self.changes.try_send(notification.clone()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wants(&self, notification: &ServerNotification) -> bool {
        let filter = &self.filter;
        match notification {
            ServerNotification::ToolsListChanged => filter.tools_list_changed,
            ServerNotification::PromptsListChanged => filter.prompts_list_changed,
            ServerNotification::ResourcesListChanged => filter.resources_list_changed,
            // What has changed may be a part of what was subscribed to.
            ServerNotification::ResourceUpdated { .. } => !filter.resource_subscriptions.is_empty(),
            ServerNotification::TaskChanged(task) => filter.task_ids.contains(&task.id),
            ServerNotification::SubscriptionsAcknowledged { .. } => true,
            _ => false,
        }
    }
}

/// An errand under way; it is done when this is dropped.
pub(crate) struct Errand(Arc<Shared>);

impl Drop for Errand {
    fn drop(&mut self) {
        self.0.errands.send_modify(|it| *it -= 1);
    }
}

#[derive(Default)]
struct State {
    open: HashMap<i64, Open>,
    questions: HashMap<Id, AbortHandle>,
    listeners: Vec<Arc<Listener>>,
    closed: Option<(String, String)>,
    unexpected: u64,
    rubbish: u64,
    /// Log messages since the last answer.
    logs: u64,
    first_rubbish: Option<String>,
}

/// State that the parts of one connection share.
pub(crate) struct Shared {
    pub(crate) bounds: Bounds,
    pub(crate) handlers: Arc<dyn Handlers>,
    pub(crate) link: OnceLock<Link>,
    state: Mutex<State>,
    agreed: RwLock<Arc<Agreed>>,
    next: AtomicI64,
    answering: Arc<Semaphore>,
    /// Number of errands under way.
    errands: watch::Sender<usize>,
    /// Values of headers that no error quotes.
    secrets: Mutex<Vec<String>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Most characters kept of a line that is no message.
const MAX_QUOTED: usize = 200;

/// Bytes of a text that are searched for secrets.
const MAX_SEARCHED: usize = 64 << 10;
/// A shorter value of a header is not taken for a secret: its letters stand in any text.
const MIN_SECRET: usize = 6;
/// Most secrets that are kept; tokens change.
const MAX_SECRETS: usize = 16;
/// The longest time that a server is believed that it wants to be left alone.
const LONGEST_REST: Duration = Duration::from_secs(3600);
/// Stands for a secret.
const HIDDEN: &str = "(secret)";

/// The number of a request of ours. Servers exist that turn numbers into strings.
fn our_id(id: &Id) -> Option<i64> {
    match id {
        Id::Number(id) => Some(*id),
        Id::String(text) => text.parse().ok(),
        Id::BigNumber(_) => None,
    }
}

impl Shared {
    /// The time after which a server that is busy wants to be asked again (RFC 9110, section 10.2.3), in its words and as
    /// a time.
    pub(crate) fn retry_after<B>(
        &self,
        response: &http::Response<B>,
    ) -> (String, Option<Duration>) {
        let is_busy = matches!(
            response.status(),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        let headers = response.headers();
        let named = headers.get(header::RETRY_AFTER);
        match named.filter(|_| is_busy) {
            Some(named) => (
                format!(" (Retry-After: {})", self.quoted(named.as_bytes())),
                http_client::retry_after(headers, SystemTime::now(), LONGEST_REST),
            ),
            None => (String::new(), None),
        }
    }

    pub(crate) fn new(bounds: Bounds, handlers: Arc<dyn Handlers>) -> Arc<Self> {
        let answering = Arc::new(Semaphore::new(bounds.max_questions));
        Arc::new(Self {
            bounds,
            handlers,
            link: OnceLock::new(),
            state: Mutex::default(),
            agreed: RwLock::new(Arc::new(Agreed::on(ProtocolVersion::NEWEST))),
            next: AtomicI64::new(1),
            answering,
            errands: watch::Sender::new(0),
            secrets: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn link(&self) -> &Link {
        self.link.get().expect("set before anything is sent")
    }

    pub(crate) fn agreed(&self) -> Arc<Agreed> {
        let agreed = self.agreed.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&agreed)
    }

    pub(crate) fn agree(&self, agreed: Agreed) {
        let mut place = self.agreed.write().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(agreed);
    }

    pub(crate) fn version(&self) -> ProtocolVersion {
        self.agreed().version
    }

    pub(crate) fn next_id(&self) -> i64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Enters a request; fails when there are too many, or the connection has ended.
    pub(crate) fn open(&self, id: i64, open: Open) -> Result<(), Error> {
        let mut state = self.state();
        if let Some((reason, stderr)) = state.closed.clone() {
            return Err(Error::NotSent { reason, stderr });
        }
        if self.bounds.max_open <= state.open.len() {
            return Err(Error::bound("max_open", self.bounds.max_open as u64));
        }
        state.open.insert(id, open);
        Ok(())
    }

    /// Ties what carries out a request to it; it ends with it.
    pub(crate) fn carried_by(&self, id: i64, task: Carrier) {
        match self.state().open.get_mut(&id) {
            Some(open) => open.task = Some(task),
            None => task.abort(),
        }
    }

    /// Begins an errand: something that the server is to be told before the connection is closed.
    pub(crate) fn errand(self: &Arc<Self>) -> Errand {
        self.errands.send_modify(|it| *it += 1);
        Errand(Arc::clone(self))
    }

    /// Waits until no errand is under way.
    pub(crate) async fn errands_done(&self) {
        // The sender is in `self`.
        let _ = self.errands.subscribe().wait_for(|it| *it == 0).await;
    }

    pub(crate) fn under_way(&self) -> usize {
        self.state().open.len()
    }

    pub(crate) fn is_open(&self, id: i64) -> bool {
        self.state().open.contains_key(&id)
    }

    /// True if the request is a subscription, which may hear of as much as it wants.
    pub(crate) fn is_listening(&self, id: i64) -> bool {
        let state = self.state();
        state
            .open
            .get(&id)
            .is_some_and(|open| open.changes.is_some())
    }

    /// Forgets a request whose answer is not wanted any more; whether it was still under way.
    pub(crate) fn forget(&self, id: i64) -> bool {
        let Some(open) = self.state().open.remove(&id) else {
            return false;
        };
        if let Some(task) = open.task {
            task.abort();
        }
        true
    }

    /// Ends a request with an error. One that the server may still be working on stays entered until it is
    /// forgotten, and is cancelled then.
    pub(crate) fn fail(&self, id: i64, error: Error) {
        let mut state = self.state();
        let answer = match &error {
            Error::Bound { .. } | Error::Protocol(_) => {
                state.open.get_mut(&id).and_then(|it| it.answer.take())
            }
            _ => state.open.remove(&id).and_then(|it| it.answer),
        };
        drop(state);
        if let Some(answer) = answer {
            // Nobody waits any more, which is no concern of the server's.
            let _ = answer.send(Err(error));
        }
    }

    pub(crate) fn listen(&self, listener: Arc<Listener>) {
        self.state().listeners.push(listener);
    }

    /// Forgets listeners; their subscriptions end.
    pub(crate) fn end_listeners(&self, which: impl Fn(&Listener) -> bool) {
        self.state().listeners.retain(|it| !which(it));
    }

    /// The error of a connection that has ended.
    pub(crate) fn reason(&self) -> Option<Error> {
        let closed = self.state().closed.clone();
        closed.map(|(reason, stderr)| Error::Closed { reason, stderr })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().closed.is_some()
    }

    /// Ends the connection: every request fails with `reason`.
    pub(crate) fn close(&self, reason: &str) {
        let stderr = self.link.get().map(Link::stderr).unwrap_or_default();
        let mut state = self.state();
        if state.closed.is_some() {
            return;
        }
        let mut reason = reason.to_owned();
        if let Some(first) = &state.first_rubbish {
            reason = format!("{reason}; it has sent what is no message: {first}");
        }
        state.closed = Some((reason.clone(), stderr.clone()));
        state.listeners.clear();
        let open: Vec<_> = state.open.drain().collect();
        let questions: Vec<_> = state.questions.drain().collect();
        drop(state);
        for (_, question) in questions {
            question.abort();
        }
        for (_, open) in open {
            if let Some(task) = open.task {
                task.abort();
            }
            let (reason, stderr) = (reason.clone(), stderr.clone());
            if let Some(answer) = open.answer {
                let is_unsent = open.claim.is_some_and(|it| it.take());
                let _ = answer.send(Err(match is_unsent {
                    true => Error::NotSent { reason, stderr },
                    false => Error::Closed { reason, stderr },
                }));
            }
        }
        if let Some(link) = self.link.get() {
            link.shut();
        }
    }

    /// Text for an error about silence: rubbish, and the last lines of standard error.
    pub(crate) fn note(&self) -> String {
        let mut note = self.link.get().map(Link::stderr).unwrap_or_default();
        if let Some(first) = &self.state().first_rubbish {
            note = format!("it has sent what is no message: {first}; {note}");
        }
        note
    }

    /// Takes one frame of a duplex connection; an error ends the connection.
    pub(crate) fn frame(self: &Arc<Self>, frame: &Bytes) -> Result<(), Error> {
        let frame = &*unmarked(frame);
        let payload = match decode(frame, self.bounds.limits()) {
            Ok(payload) => payload,
            Err(error) => {
                self.unfit(frame, error.to_error_object());
                return self.rubbish(frame);
            }
        };
        let messages = match payload {
            Payload::Single(message) => vec![message],
            Payload::Batch(messages) => messages,
        };
        for message in messages {
            match message {
                Ok(message) => self.message(message)?,
                Err(invalid) => {
                    self.unfit(frame, invalid.error);
                    self.rubbish(frame)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the request that a frame answers which is no message, or refuses the one that it makes.
    fn unfit(self: &Arc<Self>, frame: &[u8], error: ErrorObject) {
        let outline = Outline::of(frame);
        match outline.id {
            Some(id) if outline.has_method => {
                let error = match outline.has_unfit_params {
                    true => ErrorObject::lasting(
                        ErrorCode::INVALID_PARAMS,
                        "invalid params: they must be an object",
                    ),
                    false => error,
                };
                self.link().reply(self, answer_to(&id, Err(error)));
            }
            Some(id) => {
                let mut state = self.state();
                let open = our_id(&id).and_then(|id| state.open.remove(&id));
                drop(state);
                if let Some(answer) = open.and_then(|open| open.answer) {
                    let what = self.described(frame);
                    // The parser's reason may quote the answer.
                    let reason = self.without_secrets(error).message;
                    let why = format!("its answer is no message ({reason}): {what}");
                    let _ = answer.send(Err(Error::Protocol(why)));
                }
            }
            None => {}
        }
    }

    fn rubbish(&self, frame: &[u8]) -> Result<(), Error> {
        let mut state = self.state();
        state.rubbish += 1;
        if state.first_rubbish.is_none() {
            state.first_rubbish = Some(self.described(frame));
        }
        match self.bounds.max_rubbish < state.rubbish {
            true => Err(Error::bound("max_rubbish", self.bounds.max_rubbish)),
            false => Ok(()),
        }
    }

    /// Takes one message; an error ends the connection.
    pub(crate) fn message(self: &Arc<Self>, message: Message) -> Result<(), Error> {
        match message {
            Message::Response(response) => self.response(response),
            Message::Notification(notification) => self.notification(&notification),
            Message::Request(request) => {
                self.question(request);
                Ok(())
            }
        }
    }

    fn response(&self, response: Response) -> Result<(), Error> {
        let mut state = self.state();
        state.logs = 0;
        let id = match response.id {
            Some(id) => our_id(&id),
            // An error about a request whose id the server could not read: ours, if there is but one.
            None if state.open.len() == 1 => state.open.keys().next().copied(),
            None => None,
        };
        let Some(open) = id.and_then(|id| state.open.remove(&id)) else {
            state.unexpected += 1;
            return match self.bounds.max_unexpected < state.unexpected {
                true => Err(Error::bound("max_unexpected", self.bounds.max_unexpected)),
                false => Ok(()),
            };
        };
        state.rubbish = 0;
        drop(state);
        if let Some(answer) = open.answer {
            let outcome = response
                .outcome
                .map_err(|error| self.without_secrets(error));
            let _ = answer.send(Ok(outcome));
        }
        Ok(())
    }

    /// Keeps the secret ones of these headers, so that no error quotes them. An authorization counts as secret,
    /// whether or not it is marked.
    pub(crate) fn keep_secrets(&self, headers: &HeaderMap) {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, value) in headers {
            if name != header::AUTHORIZATION && !value.is_sensitive() {
                continue;
            }
            let text = String::from_utf8_lossy(value.as_bytes());
            // The credential behind the scheme.
            let text = text.split_once(' ').map_or(&*text, |(_, rest)| rest).trim();
            if MIN_SECRET <= text.len() && !secrets.iter().any(|it| it == text) {
                if MAX_SECRETS <= secrets.len() {
                    secrets.remove(0);
                }
                secrets.push(text.to_owned());
            }
        }
    }

    fn hidden(&self, text: &str) -> Option<String> {
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = secrets
            .iter()
            .filter(|it| text.contains(it.as_str()))
            .peekable();
        found.peek()?;
        Some(found.fold(text.to_owned(), |text, secret| {
            text.replace(secret.as_str(), HIDDEN)
        }))
    }

    /// The error without what was sent in confidence.
    fn without_secrets(&self, mut error: ErrorObject) -> ErrorObject {
        if let Some(hidden) = self.hidden(&error.message) {
            error.message = hidden.into();
        }
        if let Some(data) = &error.data
            && let Some(hidden) = self.hidden(data.as_str())
        {
            // A secret with a character that JSON escapes may have taken a quote away.
            error.data = RawJson::from_bytes(hidden.into()).ok();
        }
        error
    }

    /// The beginning of a text of the server's, for an error: without control characters and without what was
    /// sent in confidence.
    pub(crate) fn quoted(&self, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(&text[..text.len().min(MAX_SEARCHED)]);
        let text = self.hidden(&text).map_or(text, Cow::Owned);
        let printable = |it: char| if it.is_control() { ' ' } else { it };
        text.chars().take(MAX_QUOTED).map(printable).collect()
    }

    /// A text of the server's that is no message, for an error: quoted, unless it may be an answer. What a request was
    /// answered is for its sender alone, and errors are read by others.
    pub(crate) fn described(&self, text: &[u8]) -> String {
        match text.trim_ascii_start().first() {
            Some(b'{' | b'[') => format!("{} bytes that begin as JSON does", text.len()),
            _ => self.quoted(text),
        }
    }

    fn notification(&self, notification: &Notification) -> Result<(), Error> {
        let version = self.version();
        let told = decode_server_notification(version, &notification.method, &notification.params);
        let told = match told {
            Ok(Some(told)) => told,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::debug!(%error, "a notification was ignored");
                return Ok(());
            }
        };
        let mut state = self.state();
        let subscription = match &told.subscription {
            Some(Id::Number(id)) => Some(*id),
            _ => None,
        };
        if let Some(open) = subscription.and_then(|id| state.open.get(&id))
            && let Some(listener) = &open.changes
            && listener.wants(&told.notification)
        {
            listener.hear(&told.notification);
        }
        if version.era() == Era::Legacy {
            for listener in &state.listeners {
                if listener.wants(&told.notification) {
                    listener.hear(&told.notification);
                }
            }
        }
        let mut progress = None;
        match &told.notification {
            ServerNotification::Progress {
                token: Id::Number(id),
                ..
            } => {
                if let Some(open) = state.open.get_mut(id) {
                    open.notifications += 1;
                    if self.bounds.max_notifications < open.notifications {
                        let id = *id;
                        drop(state);
                        let most = self.bounds.max_notifications;
                        self.fail(id, Error::bound("max_notifications", most));
                        return Ok(());
                    }
                    progress.clone_from(&open.progress);
                }
            }
            // Streams of HTTP have a bound each. Here nothing says which request a message is about.
            ServerNotification::Log { .. } if matches!(self.link.get(), Some(Link::Duplex(_))) => {
                state.logs += 1;
                let most = self.bounds.max_notifications;
                if most < state.logs {
                    let waiting = state.open.iter().filter(|(_, it)| it.changes.is_none());
                    let waiting: Vec<_> = waiting.map(|(id, _)| *id).collect();
                    drop(state);
                    for id in waiting {
                        self.fail(id, Error::bound("max_notifications", most));
                    }
                    return Ok(());
                }
            }
            ServerNotification::Cancelled { request, .. } => {
                if let Some(question) = state.questions.remove(request) {
                    question.abort();
                }
            }
            _ => {}
        }
        drop(state);
        if let Some(progress) = progress {
            progress.report(&told.notification);
        }
        self.handlers.notified(&told.notification);
        Ok(())
    }

    /// Answers a request of a legacy server's, in a task of its own.
    fn question(self: &Arc<Self>, request: Request) {
        let Ok(permit) = Arc::clone(&self.answering).try_acquire_owned() else {
            let error = ErrorObject::new(ErrorCode::INTERNAL_ERROR, "too many open questions");
            self.link().reply(self, answer_to(&request.id, Err(error)));
            return;
        };
        let id = request.id.clone();
        let shared = Arc::clone(self);
        let (start, started) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let _ = started.await;
            let outcome = shared.answer(&request).await;
            shared.state().questions.remove(&request.id);
            shared
                .link()
                .reply(&shared, answer_to(&request.id, outcome));
            drop(permit);
        });
        self.state().questions.insert(id, task.abort_handle());
        let _ = start.send(());
    }

    async fn answer(&self, request: &Request) -> Result<RawJson, ErrorObject> {
        let version = self.version();
        let asked = decode_server_request(version, &request.method, &request.params);
        let refused = |text: String| ErrorObject::new(ErrorCode::INTERNAL_ERROR, text);
        let asked = asked.map_err(|error| error.to_error_object())?;
        let ServerRequest::Input(question) = asked.request else {
            return Ok(RawJson::EMPTY_OBJECT);
        };
        if !question.is_declared_by(&self.handlers.capabilities()) {
            // Elicitation, 2025-11-25: the way of asking is a parameter, of a method that there is.
            let has_method = matches!(
                question,
                InputRequest::ElicitForm { .. } | InputRequest::ElicitUrl { .. }
            ) && self.handlers.capabilities().elicitation.is_some();
            let code = match has_method {
                true => ErrorCode::INVALID_PARAMS,
                false => ErrorCode::METHOD_NOT_FOUND,
            };
            let way = match &question {
                InputRequest::ElicitUrl { .. } if has_method => " with a URL",
                InputRequest::ElicitForm { .. } if has_method => " with a form",
                _ => "",
            };
            let text = format!("{}{way} was not declared", question.method());
            return Err(ErrorObject::new(code, text));
        }
        let response = self.handlers.answer(question).await.map_err(refused)?;
        encode_input_response(version, &response).map_err(|error| refused(error.to_string()))
    }
}

fn answer_to(id: &Id, outcome: Result<RawJson, ErrorObject>) -> Message {
    Message::Response(Response {
        id: Some(id.clone()),
        outcome,
    })
}

/// `frame` without the byte order mark that some servers write first.
pub(crate) fn unmarked(frame: &Bytes) -> Cow<'_, Bytes> {
    match frame.starts_with(b"\xef\xbb\xbf") {
        true => Cow::Owned(frame.slice(3..)),
        false => Cow::Borrowed(frame),
    }
}
