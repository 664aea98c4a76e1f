//! Streamable HTTP, of both eras.

use crate::{
    Authorize, Bounds, Error,
    wire::link::{Out, replies, written},
    wire::reference::same_origin,
    wire::shared::{Shared, unmarked},
    wire::sse::Events,
};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};
use http_client::{BodyStream, Client, SendError};
use jsonrpc_core::{Id, Message, Payload, decode};
use mcp_protocol::{Era, ProtocolVersion};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, SetOnce},
    task::AbortHandle,
    time::Instant,
};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Most replies that are being sent at once.
const REPLYING: usize = 16;
/// Connections beside those of requests that wait for answers: for replies, the stream of a session and notifications.
pub(crate) const BESIDE_REQUESTS: usize = REPLYING + 2;
/// The pause before a stream is resumed, if the server does not name one.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes after which no more is read of an answer that only says what is wrong.
const MAX_COMPLAINT: usize = 64 << 10;
/// Time for such an answer.
const COMPLAINT_PATIENCE: Duration = Duration::from_secs(1);
/// Time that calls wait for the stream of a session ([`HttpLink::unheard`]). Some servers send the head of that answer
/// with the first event alone.
const HEARING_PATIENCE: Duration = Duration::from_secs(1);
/// Most bytes of a session's id.
const MAX_SESSION_ID: usize = 4096;

/// Opens another session in place of the one that the server has forgotten.
pub(crate) type Lost = Arc<dyn Fn(HeaderValue) -> BoxFuture<'static, ()> + Send + Sync>;

/// An answer that comes as a stream of events.
pub(crate) struct Stream {
    body: BodyStream,
    /// The request that it answers.
    id: i64,
    version: ProtocolVersion,
}

/// One endpoint.
pub(crate) struct HttpLink {
    pub(crate) client: Client,
    pub(crate) url: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) authorize: Option<Arc<dyn Authorize>>,
    /// Places for replies that wait, and for those that are being sent.
    pub(crate) replies: Arc<Semaphore>,
    pub(crate) replying: Semaphore,
    session: Mutex<Option<HeaderValue>>,
    listening: Mutex<Option<Listening>>,
}

/// The reading of the stream on which a legacy server sends what belongs to no request.
struct Listening {
    task: AbortHandle,
    since: Instant,
    /// Set once the server has answered the request for the stream.
    is_answered: Arc<SetOnce<()>>,
}

impl fmt::Debug for HttpLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpLink")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl HttpLink {
    pub(crate) fn new(
        bounds: &Bounds,
        client: Client,
        url: Uri,
        headers: HeaderMap,
        authorize: Option<Arc<dyn Authorize>>,
    ) -> Self {
        Self {
            client,
            url,
            headers,
            authorize,
            replies: replies(bounds),
            replying: Semaphore::new(REPLYING),
            session: Mutex::default(),
            listening: Mutex::default(),
        }
    }

    /// The same at another address of the same server.
    pub(crate) fn at(self, url: Uri) -> Self {
        Self { url, ..self }
    }

    pub(crate) fn session(&self) -> Option<HeaderValue> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.clone()
    }

    pub(crate) fn forget_session(&self) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn shut(&self) {
        let mut listening = self
            .listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(listening) = listening.take() {
            listening.task.abort();
        }
    }

    /// Ends a legacy session, if the server has given us one.
    pub(crate) async fn give_back(&self, shared: &Shared) {
        let Some(session) = self.session() else {
            return;
        };
        self.forget_session();
        let headers = [(SESSION, session)];
        let until = Instant::now() + shared.bounds.close_patience;
        let sent = self.open(shared, Method::DELETE, &headers, Bytes::new(), Some(until));
        if let Err(error) = sent.await {
            tracing::debug!(%error, "the session was not given back");
        }
    }

    /// Sends a message; what answers it is delivered.
    pub(crate) async fn exchange(&self, shared: &Arc<Shared>, out: Out) -> Result<(), Error> {
        let until = Some(out.until);
        match self.begin(shared, out, until).await? {
            Some(stream) => self.follow(shared, stream).await,
            None => Ok(()),
        }
    }

    /// Sends a message. What answers it is delivered, unless that is a stream. Without `until` the caller bounds the time.
    pub(crate) async fn begin(
        &self,
        shared: &Arc<Shared>,
        out: Out,
        until: Option<Instant>,
    ) -> Result<Option<Stream>, Error> {
        let version = shared.version();
        let session = match out.opens {
            true => None,
            false => self.session().filter(|_| version.era() == Era::Legacy),
        };
        let mut headers = out.headers;
        if !out.opens && headers.is_empty() && ProtocolVersion::V2025_06_18 <= version {
            headers.push((VERSION, HeaderValue::from_static(version.as_str())));
        }
        if let Some(session) = &session {
            headers.push((SESSION, session.clone()));
        }
        let body = written(&out.message);
        let opened = self
            .open(shared, Method::POST, &headers, body.clone(), until)
            .await;
        let response = match opened {
            Err(Error::Http(error)) if may_be_sent_again(&error, &out.message) => {
                tracing::debug!(%error, "a message is sent again");
                self.open(shared, Method::POST, &headers, body, until)
                    .await?
            }
            opened => opened?,
        };
        let status = response.status();
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(Error::SessionLost);
        }
        // Streamable HTTP is spoken by posting, so this is another endpoint, whatever its answer says.
        if status == StatusCode::METHOD_NOT_ALLOWED {
            return Err(complaint(shared, status, response).await);
        }
        if out.opens && status.is_success() {
            self.take_session(response.headers())?;
        }
        let Some(id) = out.id else {
            return match status.is_success() {
                true => Ok(None),
                false => Err(complaint(shared, status, response).await),
            };
        };
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            let text = format!(
                "a request was answered with HTTP {} and nothing else",
                status.as_u16()
            );
            return Err(Error::Protocol(text));
        }
        if is_stream(response.headers()) && status.is_success() {
            let body = response.into_body();
            return Ok(Some(Stream { body, id, version }));
        }
        let is_json = is_json(response.headers());
        let (later, retry_after) = shared.retry_after(&response);
        let body = match status.is_success() {
            true => response.into_body().rest(shared.bounds.max_message).await?,
            false => beginning(response.into_body()).await,
        };
        let told = deliver_body(shared, &body, id);
        match told {
            Ok(()) => Ok(None),
            Err(_) if !status.is_success() => Err(Error::Status {
                status: status.as_u16(),
                body: shared.quoted(&body) + &later,
                retry_after,
            }),
            Err(error) if is_json => Err(error),
            Err(_) => Err(Error::Protocol(format!(
                "it sent what is no message: {}",
                shared.described(&body)
            ))),
        }
    }

    fn take_session(&self, headers: &HeaderMap) -> Result<(), Error> {
        let session = headers.get(SESSION).cloned();
        let visible = |it: &HeaderValue| {
            it.len() <= MAX_SESSION_ID && it.as_bytes().iter().all(|it| (0x21..=0x7e).contains(it))
        };
        if session.as_ref().is_some_and(|it| !visible(it)) {
            return Err(Error::Protocol("the id of the session is none".to_owned()));
        }
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
        Ok(())
    }

    /// Reads a stream of events until its request is answered; resumes it if it ends before.
    pub(crate) async fn follow(&self, shared: &Arc<Shared>, stream: Stream) -> Result<(), Error> {
        let Stream {
            mut body,
            id,
            version,
        } = stream;
        let bounds = &shared.bounds;
        let mut events = Events::new(bounds.max_message);
        let mut left = bounds.max_notifications;
        for _ in 0..=bounds.max_resumptions {
            let ended = self
                .read(shared, &mut body, &mut events, Some((id, &mut left)))
                .await;
            if !shared.is_open(id) {
                return Ok(());
            }
            let why = match ended {
                Ok(()) => Error::closed("the stream ended before the answer"),
                Err(error @ Error::Http(_)) => error,
                Err(error) => return Err(error),
            };
            let Some(last) = events
                .last_id
                .clone()
                .filter(|_| version.era() == Era::Legacy)
            else {
                return Err(why);
            };
            tokio::time::sleep(events.retry.unwrap_or(PAUSE).min(bounds.max_retry)).await;
            body = match self.resume(shared, version, Some(&last)).await {
                // The address is right, as it has begun to answer there.
                Err(Error::Status { status, body, .. }) => {
                    let body = match body.trim() {
                        "" => String::new(),
                        body => format!(": {body}"),
                    };
                    return Err(Error::closed(format!(
                        "the stream ended before the answer, and the server did not resume it (HTTP {status}{body})"
                    )));
                }
                // The call has begun, though the request for its stream was not sent or was refused.
                Err(error) if !error.may_have_run() => {
                    return Err(Error::closed(format!(
                        "the stream ended before the answer, and could not be resumed: {}",
                        error.into_reason()
                    )));
                }
                resumed => resumed?,
            };
            events = events.renewed();
        }
        Err(Error::bound(
            "max_resumptions",
            bounds.max_resumptions as u64,
        ))
    }

    async fn resume(
        &self,
        shared: &Shared,
        version: ProtocolVersion,
        last: Option<&str>,
    ) -> Result<BodyStream, Error> {
        let mut headers = Vec::new();
        if let Some(last) = last.and_then(|it| HeaderValue::try_from(it).ok()) {
            headers.push((LAST_EVENT, last));
        }
        if let Some(session) = self.session() {
            headers.push((SESSION, session));
        }
        if ProtocolVersion::V2025_06_18 <= version {
            headers.push((VERSION, HeaderValue::from_static(version.as_str())));
        }
        let until = Instant::now() + shared.bounds.timeout;
        let response = self
            .open(shared, Method::GET, &headers, Bytes::new(), Some(until))
            .await?;
        match response.status() {
            StatusCode::OK if is_stream(response.headers()) => Ok(response.into_body()),
            status => Err(complaint(shared, status, response).await),
        }
    }

    /// Opens the stream on which a legacy server sends what belongs to no request, if it has one. When that
    /// says that the session is forgotten, `lost` is called until it has opened another.
    pub(crate) fn listen(self: &Arc<Self>, shared: &Arc<Shared>, lost: Lost) {
        let (link, carrier) = (Arc::clone(self), Arc::clone(shared));
        let is_answered = Arc::new(SetOnce::new());
        let (since, answered) = (Instant::now(), Arc::clone(&is_answered));
        let task = tokio::spawn(async move {
            let version = carrier.version();
            let max = carrier.bounds.max_message;
            let mut events = Events::new(max);
            let mut failures = 0;
            loop {
                let last = events.last_id.clone();
                let started = Instant::now();
                let opened = link.resume(&carrier, version, last.as_deref()).await;
                let _ = answered.set(());
                match opened {
                    Ok(mut body) => {
                        let read = link.read(&carrier, &mut body, &mut events, None).await;
                        if let Err(error @ (Error::Bound { .. } | Error::Protocol(_))) = read {
                            carrier.close(&error.into_reason());
                            return;
                        }
                    }
                    Err(Error::Status { status: 404, .. }) => {
                        let Some(session) = link.session() else {
                            return;
                        };
                        // In a task of its own: the next session ends this one.
                        let _ = tokio::spawn(lost(session)).await;
                    }
                    // It has no such stream, or does not let us have it.
                    Err(
                        Error::Status {
                            status: 300..=499, ..
                        }
                        | Error::Unauthorized { .. }
                        | Error::AuthorizationMisconfigured { .. },
                    ) => return,
                    Err(_) => {}
                }
                failures = if started.elapsed() < PAUSE {
                    failures + 1
                } else {
                    0
                };
                let pause = events.retry.unwrap_or(PAUSE).min(carrier.bounds.max_retry);
                tokio::time::sleep(
                    pause.max(Duration::from_millis(100)) * 2_u32.pow(failures.min(5)),
                )
                .await;
                events = events.renewed();
            }
        });
        let mut listening = self
            .listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let task = task.abort_handle();
        let begun = Listening {
            task,
            since,
            is_answered,
        };
        if let Some(before) = listening.replace(begun) {
            before.task.abort();
        }
    }

    /// The answer to the request for the stream that [`listen`](Self::listen) reads, while it has not come, and the time until
    /// which a call waits for it. What a server sends on that stream before it is there is lost; among it are questions
    /// without which a call is not answered.
    pub(crate) fn unheard(&self) -> Option<(Arc<SetOnce<()>>, Instant)> {
        let listening = self.listening.lock();
        let listening = listening.unwrap_or_else(PoisonError::into_inner);
        let Listening {
            since, is_answered, ..
        } = listening.as_ref()?;
        (!is_answered.initialized()).then(|| (Arc::clone(is_answered), *since + HEARING_PATIENCE))
    }

    /// Delivers the events of one body; `request` ends it with its answer and bounds its notifications.
    async fn read(
        &self,
        shared: &Arc<Shared>,
        body: &mut BodyStream,
        events: &mut Events,
        mut request: Option<(i64, &mut u64)>,
    ) -> Result<(), Error> {
        while let Some(chunk) = body.chunk().await? {
            events.push(&chunk);
            let too_long = |_| Error::bound("max_message", shared.bounds.max_message as u64);
            while let Some(event) = events.next().map_err(too_long)? {
                if !matches!(event.name.as_str(), "" | "message")
                    || event.data.trim_ascii().is_empty()
                {
                    continue;
                }
                shared.frame(&Bytes::from(event.data))?;
                if let Some((id, left)) = &mut request {
                    if !shared.is_open(*id) {
                        return Ok(());
                    }
                    if !shared.is_listening(*id) {
                        **left = left.checked_sub(1).ok_or_else(|| {
                            Error::bound("max_notifications", shared.bounds.max_notifications)
                        })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends one request, again as redirections and authorization want it, and once if it was not sent or changes nothing
    /// (GET, DELETE) and the connection was closed.
    pub(crate) async fn open(
        &self,
        shared: &Shared,
        method: Method,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
        until: Option<Instant>,
    ) -> Result<Response<BodyStream>, Error> {
        let bounds = &shared.bounds;
        let mut attempt = self.authorize.as_ref().map(|it| it.attempt());
        let refused = |why| Error::unauthorized(401, why);
        let mut url = self.url.clone();
        let (mut redirects, mut repeated) = (0, 0);
        let mut is_again = false;
        loop {
            let mut request = Request::new(body.clone());
            *request.method_mut() = method.clone();
            *request.uri_mut() = url.clone();
            *request.headers_mut() = self.headers_of(&method, headers);
            if let Some(attempt) = &mut attempt {
                let (url, headers) = (url.to_string(), request.headers_mut());
                let authorized = attempt.authorize(&method, &url, headers).await;
                authorized.map_err(refused)?;
                shared.keep_secrets(request.headers());
            }
            let shows = |(name, value): (&HeaderName, &HeaderValue)| {
                name == header::AUTHORIZATION || value.is_sensitive()
            };
            let has_credentials = request.headers().iter().any(shows);
            let response = match self.client.open(request, until).await {
                // Servers close connections that are not used, also when a request is on its way there.
                Err(error)
                    if !is_again
                        && (matches!(error, SendError::Unsent(_))
                            || method != Method::POST && error.is_hang_up()) =>
                {
                    is_again = true;
                    continue;
                }
                opened => opened?,
            };
            let status = response.status();
            if let Some(attempt) = &mut attempt {
                let again = attempt.judge(status, response.headers()).await;
                if again.map_err(|why| Error::unauthorized(status.as_u16(), why))? {
                    repeated += 1;
                    if bounds.max_authorizations < repeated {
                        let most = bounds.max_authorizations as u64;
                        return Err(Error::bound("max_authorizations", most));
                    }
                    continue;
                }
            }
            match status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    let reason = match has_credentials {
                        false => "no key or token was sent",
                        true => "the credentials were refused",
                    };
                    let words = beginning(response.into_body()).await;
                    let words = shared.quoted(told(&words).as_bytes());
                    return Err(Error::Unauthorized {
                        status: status.as_u16(),
                        reason: match words.trim() {
                            "" => reason.to_owned(),
                            words => format!("{reason}: {words}"),
                        },
                    });
                }
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                    let to = response.headers().get(header::LOCATION);
                    let to = to.and_then(|it| it.to_str().ok()).unwrap_or_default();
                    if to.is_empty() {
                        let text = "it redirects and names no place";
                        return Err(Error::Protocol(text.to_owned()));
                    }
                    url = same_origin(&url, to).map_err(|why| {
                        let to = shared.quoted(to.as_bytes());
                        Error::Protocol(format!(
                            "the place that it redirects to cannot be used, since {why}: {to}"
                        ))
                    })?;
                    redirects += 1;
                    if bounds.max_redirects < redirects {
                        return Err(Error::bound("max_redirects", bounds.max_redirects as u64));
                    }
                }
                StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
                    let to = response.headers().get(header::LOCATION);
                    let to = shared.quoted(to.map(HeaderValue::as_bytes).unwrap_or_default());
                    return Err(Error::Status {
                        status: status.as_u16(),
                        body: format!("it redirects to {to}"),
                        retry_after: None,
                    });
                }
                _ => {
                    let coding = response.headers().get(header::CONTENT_ENCODING);
                    return match coding.filter(|it| *it != "identity") {
                        Some(coding) if status.is_success() => {
                            let coding = shared.quoted(coding.as_bytes());
                            let text = format!(
                                "its answer is compressed ({coding}), which was not asked for"
                            );
                            Err(Error::Protocol(text))
                        }
                        _ => Ok(response),
                    };
                }
            }
        }
    }

    fn headers_of(&self, method: &Method, own: &[(HeaderName, HeaderValue)]) -> HeaderMap {
        let mut all = HeaderMap::with_capacity(self.headers.len() + own.len() + MORE_HEADERS);
        for (name, value) in &self.headers {
            all.append(name.clone(), value.clone());
        }
        let accept = match *method {
            Method::GET => "text/event-stream",
            _ => "application/json, text/event-stream",
        };
        all.insert(header::ACCEPT, HeaderValue::from_static(accept));
        if *method == Method::POST {
            let json = HeaderValue::from_static("application/json");
            all.insert(header::CONTENT_TYPE, json);
        }
        for (name, value) in own {
            all.insert(name.clone(), value.clone());
        }
        all
    }
}

/// Headers of a request that are the same in each: `Accept`, `Content-Type`, `User-Agent`, `Host`.
const MORE_HEADERS: usize = 4;

/// The header that repeats a part of a request.
pub(crate) fn mirrored(
    shared: &Shared,
    name: &str,
    value: &str,
) -> Result<(HeaderName, HeaderValue), Error> {
    let known = match name {
        "MCP-Protocol-Version" => Some(VERSION),
        "Mcp-Method" => Some(METHOD),
        "Mcp-Name" => Some(NAME),
        _ => None,
    };
    let header = known.map_or_else(|| HeaderName::try_from(name), Ok);
    match (header, HeaderValue::try_from(value)) {
        (Ok(name), Ok(value)) => Ok((name, value)),
        _ => Err(Error::not_sent(format!(
            "`{name}` cannot be a header",
            name = shared.quoted(value.as_bytes())
        ))),
    }
}

/// True if a message whose connection was closed can be sent once more: the server may have it twice (RFC 9110 §9.2.2),
/// since it changes nothing there. Before a session is agreed on, `initialize` does not either.
fn may_be_sent_again(error: &SendError, message: &Message) -> bool {
    let method = match message {
        Message::Request(request) => &*request.method,
        Message::Notification(notification) => &*notification.method,
        // A question is asked once.
        Message::Response(_) => "",
    };
    let changes_nothing = matches!(
        method,
        "initialize"
            | "notifications/initialized"
            | "notifications/cancelled"
            | "server/discover"
            | "ping"
            | "tools/list"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list"
            | "skills/list"
            | "tasks/get"
            | "logging/setLevel"
    );
    changes_nothing && error.is_hang_up()
}

/// Delivers an answer that is no stream. It can only answer the request that was sent.
fn deliver_body(shared: &Arc<Shared>, body: &Bytes, id: i64) -> Result<(), Error> {
    let bad = || {
        Error::Protocol(match body.trim_ascii() {
            [] => "it sent an empty answer".to_owned(),
            _ => format!("it sent what is no answer: {}", shared.described(body)),
        })
    };
    let payload = decode(&unmarked(body), shared.bounds.limits()).map_err(|_| bad())?;
    let messages = match payload {
        Payload::Single(message) => vec![message],
        Payload::Batch(messages) => messages,
    };
    for message in messages {
        let mut message = message.map_err(|_| bad())?;
        if let Message::Response(response) = &mut message
            && (response.id.is_none() && response.outcome.is_err())
        {
            response.id = Some(Id::Number(id));
        }
        shared.message(message)?;
    }
    match shared.is_open(id) {
        true => Err(Error::Protocol(
            "it answered another request than was sent".to_owned(),
        )),
        false => Ok(()),
    }
}

async fn complaint(shared: &Shared, status: StatusCode, response: Response<BodyStream>) -> Error {
    let (later, retry_after) = shared.retry_after(&response);
    Error::Status {
        status: status.as_u16(),
        body: shared.quoted(&beginning(response.into_body()).await) + &later,
        retry_after,
    }
}

/// As much of a body as is wanted of one that only says what is wrong.
pub(crate) async fn beginning(mut body: BodyStream) -> Bytes {
    let mut bytes = BytesMut::new();
    let reading = async {
        while bytes.len() < MAX_COMPLAINT
            && let Ok(Some(chunk)) = body.chunk().await
        {
            bytes.extend_from_slice(&chunk);
        }
    };
    // The status is known, and says more than that the time is over.
    let _ = tokio::time::timeout(COMPLAINT_PATIENCE, reading).await;
    bytes.freeze()
}

/// Text of a refusal for people: the message of an error of JSON-RPC or OAuth, else all of it.
fn told(body: &[u8]) -> String {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let message = json.pointer("/error/message");
    let message = message.or_else(|| json.get("error_description"));
    match message.and_then(serde_json::Value::as_str) {
        Some(message) => message.to_owned(),
        None => String::from_utf8_lossy(body).into_owned(),
    }
}

fn content_type(headers: &HeaderMap) -> &str {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|it| it.to_str().ok());
    value
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
}

pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    content_type(headers).eq_ignore_ascii_case("text/event-stream")
}

fn is_json(headers: &HeaderMap) -> bool {
    content_type(headers).eq_ignore_ascii_case("application/json")
}
