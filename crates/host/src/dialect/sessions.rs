//! The host: all sessions, and the way of their requests into MCP.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use jsonrpc_core::{Id, Message, Payload, RawJson, Request as McpRequest};
use mcp_service::{
    Accepted, Connection, Engine, McpService, Outbox, Principal, Reply, TransportKind,
};
use serde_json::{Value, json};
use tokio::{runtime::Handle, time::Instant};

use crate::{
    dialect::{
        events::{EventStream, unsaid},
        methods,
        session::{Session, seconds},
    },
    failure::{Failure, INVALID_REQUEST, NO_SESSION, PARSE, SERVER, SESSION_REFUSED},
    message::{Request, answer},
    options::HostOptions,
};

/// The most messages of a batch.
const MAX_BATCH: usize = 100;
/// The most items of a list of MCP that are read for one request.
const MAX_LISTED: usize = 100_000;
/// Revision of MCP that sessions speak.
const REVISION: &str = "2025-11-25";
/// Pause between two looks at what is to be waited for.
const LOOK: Duration = Duration::from_millis(20);

/// Answers clients of document 004.
#[derive(Debug)]
pub struct Host<S> {
    engine: Arc<Engine<S>>,
    pub(crate) options: HostOptions,
    runtime: Handle,
    sessions: Mutex<HashMap<Arc<str>, Arc<Session>>>,
    is_closing: AtomicBool,
    /// The reason why sessions could not be stored the last time.
    pub(crate) unstored: Mutex<Option<String>>,
}

/// Reason why there is no stream: the session does not exist, or is another client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such session")]
pub struct NoSession;

impl<S: McpService> Host<S> {
    /// A host in front of `engine`. Sessions live on `runtime`. Those of the state file go on.
    ///
    /// # Errors
    ///
    /// [`StateError`](crate::StateError) when there is a state file that cannot be read.
    pub fn new(
        engine: Arc<Engine<S>>,
        options: HostOptions,
        runtime: Handle,
    ) -> Result<Arc<Self>, crate::StateError> {
        let host = Arc::new(Self {
            engine,
            options,
            runtime,
            sessions: Mutex::default(),
            is_closing: AtomicBool::new(false),
            unstored: Mutex::default(),
        });
        host.restore()?;
        host.runtime.spawn(sweep(Arc::downgrade(&host)));
        Ok(host)
    }

    pub(crate) fn all(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a message or a batch of `principal`. `session` is the one that a header names; a message that names
    /// another is refused. `None` where nothing is to be answered.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels what runs.
    pub async fn answer(
        self: &Arc<Self>,
        principal: &Principal,
        session: Option<&str>,
        body: &[u8],
    ) -> Option<Bytes> {
        let alone = |failure| answer(None, Err(failure), None, None);
        let answered = match serde_json::from_slice(body) {
            Err(error) => Some(alone(Failure::new(PARSE, format!("not JSON: {error}")))),
            Ok(Value::Array(messages)) if messages.is_empty() || MAX_BATCH < messages.len() => {
                let why = format!("a batch has 1 to {MAX_BATCH} messages");
                Some(alone(Failure::new(INVALID_REQUEST, why)))
            }
            Ok(Value::Array(messages)) => {
                let mut answers = Vec::new();
                for message in messages {
                    answers.extend(self.one(principal, session, message).await);
                }
                (!answers.is_empty()).then_some(Value::Array(answers))
            }
            Ok(message) => self.one(principal, session, message).await,
        };
        answered.map(|it| unsaid(it.to_string()).into())
    }

    async fn one(
        self: &Arc<Self>,
        principal: &Principal,
        header: Option<&str>,
        message: Value,
    ) -> Option<Value> {
        let mut request = match Request::read(message) {
            Ok(request) => request,
            Err(answer) => return Some(answer),
        };
        // The document has no notification that a client sends.
        request.id.as_ref()?;
        match (&request.session, header) {
            (Some(named), Some(header)) if named != header => {
                let why = "`session` and `X-Session-Id` name two sessions: give one of them, or the same twice";
                let failure = Failure::new(INVALID_REQUEST, why);
                return Some(answer(request.id, Err(failure), None, None));
            }
            (None, Some(header)) => request.session = Some(header.to_owned()),
            _ => {}
        }
        let (outcome, source) = match self.is_closing.load(Ordering::Acquire) {
            true => {
                let stopping = Failure::new(SERVER, "the host stops").with("retryable", true);
                (Err(stopping), None)
            }
            false => methods::carry_out(self, principal, &request).await,
        };
        let Request { id, session, .. } = request;
        Some(answer(id, outcome, session.as_deref(), source.as_deref()))
    }

    /// The session of a request.
    ///
    /// # Errors
    ///
    /// -32501 where there is none; another's is none.
    pub(crate) fn session(
        &self,
        principal: &Principal,
        id: Option<&str>,
    ) -> Result<Arc<Session>, Failure> {
        let id = id.ok_or_else(|| {
            Failure::new(
                NO_SESSION,
                "a session is required: begin with `create_session`",
            )
        })?;
        let found = self.all().get(id).cloned();
        let own = found.filter(|it| it.connection.principal() == principal);
        own.ok_or_else(|| Failure::new(NO_SESSION, NoSession.to_string()))
    }

    /// Creates a session.
    ///
    /// # Errors
    ///
    /// -32502 where there are as many as there may be.
    pub(crate) async fn create(
        self: &Arc<Self>,
        principal: &Principal,
    ) -> Result<Arc<Session>, Failure> {
        self.check_room(&self.all(), principal)?;
        // Rows 31 and 124: an id that cannot be guessed.
        let id: Arc<str> = format!("session-{}", uuid::Uuid::new_v4()).into();
        let session = self.open(id, principal, SystemTime::now()).await?;
        {
            let mut all = self.all();
            // Others may have come meanwhile.
            self.check_room(&all, principal)
                .inspect_err(|_| session.close())?;
            all.insert(Arc::clone(&session.id), Arc::clone(&session));
        }
        self.keep(&session);
        Ok(session)
    }

    fn check_room(
        &self,
        sessions: &HashMap<Arc<str>, Arc<Session>>,
        principal: &Principal,
    ) -> Result<(), Failure> {
        let of_principal = sessions
            .values()
            .filter(|it| it.connection.principal() == principal);
        let (most, of_each) = (
            self.options.max_sessions,
            self.options.max_sessions_per_principal,
        );
        let why = if most <= sessions.len() {
            format!("there are {most} sessions already")
        } else if of_each <= of_principal.count() {
            format!("this client has {of_each} sessions already")
        } else {
            return Ok(());
        };
        Err(Failure::new(SESSION_REFUSED, why).with("retryable", true))
    }

    /// A session that nobody knows of yet.
    pub(crate) async fn open(
        &self,
        id: Arc<str>,
        principal: &Principal,
        created: SystemTime,
    ) -> Result<Arc<Session>, Failure> {
        let connection = Connection::new(
            principal.clone(),
            TransportKind::Http,
            Some(Arc::clone(&id)),
            Outbox::default(),
        );
        let session = Arc::new(Session::new(id, connection, created, &self.options));
        let hello = json!({
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": { "name": "document-004", "version": "1" },
        });
        let opened = self.ask(&session, principal, "initialize", hello).await;
        opened.map_err(|failure| {
            session.close();
            failure.but(SERVER, SESSION_REFUSED)
        })?;
        Ok(session)
    }

    /// Makes a session known, and begins to pass on what MCP says in it.
    pub(crate) fn keep(self: &Arc<Self>, session: &Arc<Session>) {
        self.all()
            .insert(Arc::clone(&session.id), Arc::clone(session));
        let (host, session) = (Arc::downgrade(self), Arc::clone(session));
        self.runtime.spawn(async move {
            let outbox = session.connection.outbox().clone();
            while let Some(frame) = poll_fn(|cx| outbox.poll_next(cx)).await {
                let Some(host) = host.upgrade() else { return };
                if let Ok(message) = serde_json::from_slice(&frame) {
                    host.pass_on(&session, message).await;
                }
            }
        });
    }

    /// Ends a session.
    pub(crate) fn end(&self, session: &Session) {
        self.all().remove(&session.id);
        session.close();
    }

    /// Makes a request of MCP on behalf of a session's client.
    pub(crate) async fn ask(
        &self,
        session: &Session,
        principal: &Principal,
        method: &str,
        params: Value,
    ) -> Result<Value, Failure> {
        let broken = |_| Failure::new(SERVER, "internal error");
        let request = McpRequest {
            id: Id::String(format!("host-{}", session.next()).into()),
            method: method.to_owned(),
            params: RawJson::from_value(&params).map_err(broken)?,
        };
        let payload = Payload::Single(Ok(Message::Request(request)));
        let (connection, outbox) = (&session.connection, session.connection.outbox());
        let engine = &self.engine;
        let reply = match engine.accept_payload(connection, principal, payload, outbox, None) {
            Accepted::Done(reply) => reply,
            Accepted::Pending(exchange) => exchange.await,
        };
        match reply {
            Reply::One(answer) => match answer.response.outcome {
                Ok(result) => serde_json::from_str(result.as_str()).map_err(broken),
                Err(error) => Err(Failure::of_error(&error)),
            },
            // The session has ended meanwhile.
            Reply::Nothing | Reply::Batch(_) => {
                Err(Failure::new(NO_SESSION, "the session has ended"))
            }
        }
    }

    /// All items of a list of MCP.
    pub(crate) async fn list(
        &self,
        session: &Session,
        principal: &Principal,
        method: &str,
        key: &str,
        mut params: Value,
    ) -> Result<Vec<Value>, Failure> {
        let mut items = Vec::new();
        loop {
            let page = self.ask(session, principal, method, params.clone()).await;
            let mut page = match page {
                // A server that has nothing of a kind has no list of it either.
                Err(failure) if failure.is_missing_method() => return Ok(items),
                page => page?,
            };
            if let Value::Array(more) = page[key].take() {
                items.extend(more);
            }
            match page["nextCursor"].take() {
                Value::String(cursor) if items.len() < MAX_LISTED => {
                    params["cursor"] = cursor.into();
                }
                Value::String(_) => {
                    let why = format!("the list has more than {MAX_LISTED} items: narrow it");
                    return Err(Failure::params(why));
                }
                _ => return Ok(items),
            }
        }
    }

    /// The notifications of a session, as a stream.
    ///
    /// # Errors
    ///
    /// [`NoSession`].
    pub fn events(
        &self,
        principal: &Principal,
        session: Option<&str>,
    ) -> Result<EventStream, NoSession> {
        let session = self.session(principal, session).map_err(|_| NoSession)?;
        session.touch();
        Ok(EventStream::new(session, principal))
    }

    /// Sends a notification to all sessions.
    fn broadcast(&self, method: &str, params: &Value) {
        for session in self.all().values() {
            session.tell(method, params.clone(), None);
        }
    }

    /// Stops (rows 133 and 135): tells all sessions that running requests have `drain` to end (`prepare_shutdown`), takes no
    /// more of them, waits until they have ended, for `most` at the longest, says goodbye (`host_shutdown`), stores the
    /// sessions and ends their streams. What still runs then goes on.
    pub async fn shut_down(&self, drain: Duration, most: Duration) {
        let end = Instant::now() + most;
        let timestamp = seconds(SystemTime::now());
        let params = json!({ "timeout": drain.as_secs(), "timestamp": timestamp });
        self.broadcast("prepare_shutdown", &params);
        self.is_closing.store(true, Ordering::Release);
        let is_busy = |it: &Session| 0 < it.running.load(Ordering::Acquire);
        while self.all().values().any(|it| is_busy(it)) && Instant::now() < end {
            tokio::time::sleep(LOOK).await;
        }
        let timestamp = seconds(SystemTime::now());
        let params = json!({ "reason": "normal_shutdown", "timestamp": timestamp });
        self.broadcast("host_shutdown", &params);
        self.store_state();
        let all: Vec<_> = self.all().values().cloned().collect();
        all.iter().for_each(|it| it.events.close());
        // A stream that is read is given the last words.
        let listens = |it: &Session| 0 < it.streams.load(Ordering::Acquire);
        let last_words = Instant::now() + LOOK * 10;
        while all.iter().any(|it| listens(it)) && Instant::now() < last_words {
            tokio::time::sleep(LOOK).await;
        }
        let at_rest = all.iter().filter(|it| !is_busy(it));
        at_rest.for_each(|it| it.close());
    }
}

/// Ends sessions that nobody uses any more, and stores the others, for as long as there is a host.
async fn sweep<S: McpService>(host: Weak<Host<S>>) {
    const STORED: Duration = Duration::from_secs(60);
    let mut stored = Instant::now();
    loop {
        let Some(pause) = host.upgrade().map(|it| it.options.session_timeout / 4) else {
            return;
        };
        tokio::time::sleep(pause.clamp(LOOK, STORED)).await;
        let Some(host) = host.upgrade() else { return };
        let timeout = host.options.session_timeout;
        let all: Vec<_> = host.all().values().cloned().collect();
        for session in all.iter().filter(|it| timeout <= it.idle()) {
            tracing::debug!(session = %session.id, "a session of the host has expired");
            session.tell(
                "session_closed",
                json!({ "session_id": &*session.id, "reason": "timeout" }),
                None,
            );
            host.end(session);
        }
        if STORED <= stored.elapsed() && !host.is_closing.load(Ordering::Acquire) {
            stored = Instant::now();
            host.store_state();
        }
    }
}
