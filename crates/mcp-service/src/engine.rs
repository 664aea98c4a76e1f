//! The engine: decodes, correlates, cancels, bounds and encodes.

pub(crate) mod exchange;
pub(crate) mod observe;

mod handle;
mod listen;
mod resume;
mod ticket;

pub use self::handle::panic_text;

use crate::{
    context::{Origin, RequestCx},
    engine::{
        exchange::{Accepted, Answer, Exchange, Reply},
        observe::{Answered, Observe},
        ticket::Ticket,
    },
    error::McpError,
    fair_share::FairShare,
    giving_up::GivingUp,
    outgoing::{
        outbox::Outbox,
        subscriptions::{Change, SubscriptionLimits, Subscriptions, TooManySubscriptions},
    },
    principal::Principal,
    service::McpService,
    session::connection::{Connection, TransportKind},
};
use bytes::Bytes;
use futures_util::future::join_all;
use jsonrpc_core::{
    ErrorCode, ErrorObject, Id, Invalid, Limits, Message, Notification, Payload, RawJson, Request,
    Response,
};
use mcp_protocol::{
    Encoder, Era, ProtocolError, ProtocolVersion, Received, Session, TraceContext,
    decode_notification, decode_request_with,
    model::{
        CacheHint, CacheScope, ClientNotification, ClientRequest, DiscoverResult, Implementation,
        Initialize, InitializeResult, LoggingLevel, RequestMeta, ServerCapabilities, ServerResult,
        SubscriptionFilter,
    },
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Semaphore, watch};

/// Bounds on what one engine does at once.
#[derive(Clone, Copy, Debug)]
pub struct EngineLimits {
    /// Limits of a frame.
    pub frames: Limits,
    /// Most requests being handled. A quarter of the places is reserved for principals that have
    /// few: no principal can have all.
    pub max_in_flight: usize,
    /// The most requests waiting for one of those places; more are refused at once. A quarter is
    /// kept here, too.
    pub max_waiting: usize,
    /// Reserved places that one principal can have, of either kind.
    pub max_reserved_per_principal: usize,
    /// Limits of subscriptions.
    pub subscriptions: SubscriptionLimits,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self {
            frames: Limits::default(),
            max_in_flight: 1_024,
            max_waiting: 4_096,
            max_reserved_per_principal: 16,
            subscriptions: SubscriptionLimits::default(),
        }
    }
}

/// Identity of the server, and its offer.
#[derive(Clone, Debug)]
pub struct ServerIdentity {
    /// Name and version.
    pub info: Implementation,
    /// Capabilities that the server offers.
    pub capabilities: ServerCapabilities,
    /// Instructions for the model on how to use the server.
    pub instructions: Option<String>,
    /// Milliseconds for which a client may keep the result of `server/discover`.
    pub discover_ttl_ms: u64,
}

/// Capabilities as clients are told of them.
#[derive(Debug)]
struct Told {
    capabilities: ServerCapabilities,
    /// Result of `server/discover`, the same for every client.
    discover: RawJson,
}

impl Told {
    fn new(
        identity: &ServerIdentity,
        encoder: &Encoder,
        extensions: BTreeMap<String, Value>,
    ) -> Self {
        let capabilities = ServerCapabilities {
            extensions,
            ..identity.capabilities.clone()
        };
        let discover = ServerResult::Discover(DiscoverResult {
            capabilities: capabilities.clone(),
            instructions: identity.instructions.clone(),
            cache: CacheHint {
                ttl_ms: identity.discover_ttl_ms,
                scope: CacheScope::Public,
            },
        });
        let discover = encoder
            .result(ProtocolVersion::V2026_07_28, &discover)
            .expect("a tree of values serializes");
        Self {
            capabilities,
            discover,
        }
    }
}

/// Drives a service: decodes, correlates, cancels, bounds and encodes.
#[derive(Debug)]
pub struct Engine<S> {
    service: S,
    identity: ServerIdentity,
    encoder: Encoder,
    told: RwLock<Told>,
    limits: EngineLimits,
    /// Places for every principal.
    places: Semaphore,
    /// Places that are reserved for principals that have few.
    reserved_places: Arc<FairShare>,
    accepted: AtomicUsize,
    reserved_waiting: Arc<FairShare>,
    subscriptions: Arc<Subscriptions>,
    observer: Observer,
    closing: watch::Sender<bool>,
    giving_up: OnceLock<Arc<GivingUp>>,
}

/// Observer of answered requests, if there is one.
#[derive(Default)]
struct Observer(OnceLock<Arc<dyn Observe>>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer")
            .field(&self.0.get().is_some())
            .finish()
    }
}

impl<S> Engine<S>
where
    S: McpService,
{
    /// An engine around `service`.
    pub fn new(service: S, identity: ServerIdentity, limits: EngineLimits) -> Arc<Self> {
        Self::with_subscriptions(
            service,
            identity,
            limits,
            Subscriptions::new(limits.subscriptions),
        )
    }

    /// An engine around `service`, which publishes its changes to `subscriptions`.
    pub fn with_subscriptions(
        service: S,
        identity: ServerIdentity,
        limits: EngineLimits,
        subscriptions: Arc<Subscriptions>,
    ) -> Arc<Self> {
        let encoder = Encoder::new(&identity.info);
        let extensions = identity.capabilities.extensions.clone();
        let told = Told::new(&identity, &encoder, extensions);
        Arc::new(Self {
            service,
            identity,
            encoder,
            told: RwLock::new(told),
            limits,
            places: Semaphore::new(limits.max_in_flight - kept(limits.max_in_flight)),
            reserved_places: FairShare::new(
                kept(limits.max_in_flight),
                limits.max_reserved_per_principal,
            ),
            accepted: AtomicUsize::new(0),
            reserved_waiting: FairShare::new(
                kept(limits.max_waiting),
                limits.max_reserved_per_principal,
            ),
            subscriptions,
            observer: Observer::default(),
            closing: watch::Sender::new(false),
            giving_up: OnceLock::new(),
        })
    }

    /// Sets the signal by which [`Engine::give_up`] reaches the service. The first call counts.
    pub fn give_up_by(&self, giving_up: Arc<GivingUp>) {
        let _ = self.giving_up.set(giving_up);
    }

    /// Has the service answer all running calls of all clients now. A transport whose requests belong to
    /// no connection calls it at the end of the time for running calls when it stops, and continues for
    /// [`crate::giving_up::LAST_ANSWERS`]; others call [`crate::session::connection::Connection::give_up`].
    pub fn give_up(&self) {
        if let Some(giving_up) = self.giving_up.get() {
            giving_up.give_up();
        }
    }

    /// Has `observer` told of what is answered without the service. The first one stays.
    pub fn observe(&self, observer: Arc<dyn Observe>) {
        let _ = self.observer.0.set(observer);
    }

    fn tell(&self, answered: &Answered<'_>) {
        if let Some(observer) = self.observer.0.get() {
            observer.answered(answered);
        }
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// The bounds in force.
    pub fn limits(&self) -> &EngineLimits {
        &self.limits
    }

    /// Encoder that shapes results.
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Subscriptions to which changes are published.
    pub fn subscriptions(&self) -> &Arc<Subscriptions> {
        &self.subscriptions
    }

    /// Announces a change of the lists to all subscribers.
    pub fn publish(&self, change: &Change) {
        self.subscriptions.publish(change, |_| true);
    }

    /// Number of requests that have been accepted and not yet answered.
    pub fn in_flight(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Ends every subscription gracefully. Transports stop reading by themselves.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Resolves when [`Engine::close`] is called, or at once if it has been.
    pub async fn closed(&self) {
        // The sender lives as long as `self`.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Takes one frame of a connection that only its own principal can use.
    ///
    /// Notifications and cancellations have taken effect when this returns, and requests are
    /// registered; nothing has been waited for. What is said about a request before it is answered
    /// goes to `outbox`.
    pub fn accept(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        frame: &Bytes,
        outbox: &Outbox,
    ) -> Accepted {
        self.accept_as(connection, &connection.principal, frame, outbox)
    }

    /// The same of a connection whose peer is asked again who it is: `principal` is who sent this
    /// frame, as for [`Engine::accept_payload`].
    pub fn accept_as(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        principal: &Principal,
        frame: &Bytes,
        outbox: &Outbox,
    ) -> Accepted {
        match Received::decode(frame, self.limits.frames) {
            Err(error) => {
                let from = Sender {
                    connection,
                    principal,
                    carrier: None,
                    outbox,
                };
                let error = error.to_error_object();
                self.tell(&refused(from, None, None, &error));
                Answer::error(None, error, 400).into()
            }
            Ok(received) => self.accept_payload(connection, principal, received, outbox, None),
        }
    }

    /// Takes the content of a frame of a connection; see [`Engine::accept`]. `principal` is the
    /// sender of this frame: the connection's, with the roles that it has now. Any other principal
    /// is refused, as transports do before. `carrier` is the transport's own place in a trace, as
    /// in [`RequestCx::carrier`].
    pub fn accept_payload(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        principal: &Principal,
        received: impl Into<Received>,
        outbox: &Outbox,
        carrier: Option<&TraceContext>,
    ) -> Accepted {
        if *principal != connection.principal {
            let why = "there is no such session";
            let error = ErrorObject::lasting(ErrorCode::INVALID_REQUEST, why);
            return Answer::error(None, error, 404).into();
        }
        connection.seen_as(principal);
        let from = Sender {
            connection,
            principal,
            carrier,
            outbox,
        };
        self.accept_from(from, received.into())
    }

    fn accept_from(self: &Arc<Self>, from: Sender<'_>, received: Received) -> Accepted {
        match received.payload {
            Payload::Single(message) => self.accept_message(from, message, received.meta, false),
            Payload::Batch(messages) => self.accept_batch(from, messages),
        }
    }

    /// Takes one modern request that belongs to no connection: a POST of HTTP. Dropping the exchange
    /// is its cancellation. `carrier` as for [`Engine::accept_payload`].
    pub fn accept_modern(
        self: &Arc<Self>,
        principal: &Principal,
        transport: TransportKind,
        request: Request,
        mut meta: Box<RequestMeta>,
        outbox: Option<Outbox>,
        carrier: Option<TraceContext>,
    ) -> Accepted {
        let Request { id, method, params } = request;
        let version = match Session::default().version_of(&meta) {
            Ok(version) => version,
            Err(error) => {
                let object = error.to_error_object();
                self.tell(&Answered {
                    principal,
                    transport,
                    session: None,
                    id: Some(&id),
                    method: Some(&method),
                    version: None,
                    trace: meta.trace.as_deref().or(carrier.as_ref()),
                    error: Some(&object),
                    took: Duration::ZERO,
                });
                return Answer::error(Some(id), object, error.http_status(Era::Modern)).into();
            }
        };
        let capabilities = meta.client_capabilities.take().unwrap_or_default();
        let cx = RequestCx::new(
            version,
            Origin {
                principal: principal.clone(),
                transport,
                session: None,
                carrier,
                connection: None,
                log_from: self.log_from(&meta, None),
            },
            id,
            meta,
            capabilities,
            outbox,
            None,
        );
        match self.begin(&cx, &method, &params, None) {
            Begun::Done(answer) => answer.into(),
            Begun::Handle(request, place) => {
                let handled = Arc::clone(self).answer(cx, request, place, None);
                Accepted::Pending(Exchange::new(handled))
            }
        }
    }

    /// From which severity on a client wants to hear log messages about a request.
    fn log_from(
        &self,
        meta: &RequestMeta,
        legacy: Option<&Arc<Connection>>,
    ) -> Option<LoggingLevel> {
        if !self.identity.capabilities.logging {
            return None;
        }
        match legacy {
            Some(connection) => Some(connection.log_level()),
            None => meta.log_level,
        }
    }

    /// A batch is nothing but its messages: each goes the way of a single one, so no layer can be
    /// passed by. Only the answers are gathered.
    fn accept_batch(
        self: &Arc<Self>,
        from: Sender<'_>,
        messages: Vec<Result<Message, Invalid>>,
    ) -> Accepted {
        let version = from.connection.session().version();
        if !version.allows_batches() {
            let why = format!("batches are not part of protocol version {version}");
            let error = ErrorObject::lasting(ErrorCode::INVALID_REQUEST, why);
            self.tell(&refused(from, None, None, &error));
            return Answer::error(None, error, 400).into();
        }
        let parts: Vec<_> = messages
            .into_iter()
            .map(|message| self.accept_message(from, message, None, true))
            .filter(|part| !matches!(part, Accepted::Done(Reply::Nothing)))
            .collect();
        if parts.is_empty() {
            return Accepted::Done(Reply::Nothing);
        }
        Accepted::Pending(Exchange::new(Box::pin(async move {
            let replies = join_all(parts.into_iter().map(|part| async move {
                match part {
                    Accepted::Done(reply) => reply,
                    Accepted::Pending(exchange) => exchange.await,
                }
            }));
            let mut answers = Vec::new();
            for reply in replies.await {
                match reply {
                    Reply::Nothing => {}
                    Reply::One(answer) => answers.push(answer),
                    Reply::Batch(more) => answers.extend(more),
                }
            }
            if answers.is_empty() {
                Reply::Nothing
            } else {
                Reply::Batch(answers)
            }
        })))
    }

    fn accept_message(
        self: &Arc<Self>,
        from: Sender<'_>,
        message: Result<Message, Invalid>,
        meta: Option<Box<RequestMeta>>,
        in_batch: bool,
    ) -> Accepted {
        match message {
            Ok(Message::Notification(notification)) => {
                if !on_notification(from.connection, &notification) {
                    let message = Message::Notification(notification);
                    from.connection.elsewhere.pass_on(message);
                }
                Accepted::Done(Reply::Nothing)
            }
            Ok(Message::Response(response)) => {
                let questions = from.connection.questions();
                if response.id.as_ref().is_some_and(|id| questions.has(id)) {
                    let Response { id, outcome } = response;
                    // One that was withdrawn meanwhile has no answer.
                    let _ = id.is_some_and(|id| questions.answer(&id, outcome));
                } else if !from
                    .connection
                    .elsewhere
                    .pass_on(Message::Response(response))
                {
                    tracing::debug!("an answer to nothing we asked");
                }
                Accepted::Done(Reply::Nothing)
            }
            Err(Invalid { id, error }) => {
                self.tell(&refused(from, id.as_ref(), None, &error));
                Answer::error(id, error, 400).into()
            }
            Ok(Message::Request(request)) => self.accept_request(from, request, meta, in_batch),
        }
    }

    fn accept_request(
        self: &Arc<Self>,
        from: Sender<'_>,
        request: Request,
        meta: Option<Box<RequestMeta>>,
        in_batch: bool,
    ) -> Accepted {
        let Sender {
            connection,
            principal,
            carrier,
            outbox,
        } = from;
        let Request { id, method, params } = request;
        let invalid_request = |why| ErrorObject::lasting(ErrorCode::INVALID_REQUEST, why);
        let refuse = |id: Id, error: ErrorObject, http_status| -> Accepted {
            self.tell(&refused(from, Some(&id), Some(&method), &error));
            Answer::error(Some(id), error, http_status).into()
        };
        let mut meta = match Received::meta_of(meta, &params) {
            Ok(meta) => meta,
            Err(error) => {
                let status = error.http_status(Era::Legacy);
                return refuse(id, error.to_error_object(), status);
            }
        };
        let (version, capabilities) = {
            let session = connection.session();
            match session.version_of_request(&method, &meta) {
                Ok(version) if version.era() == Era::Modern => {
                    (version, meta.client_capabilities.take().unwrap_or_default())
                }
                Ok(version) => (version, session.capabilities()),
                Err(error) => {
                    let status = error.http_status(Era::Modern);
                    return refuse(id, error.to_error_object(), status);
                }
            }
        };
        if in_batch && (version.era() == Era::Modern || method == "initialize") {
            let error = invalid_request("this request must not be part of a batch");
            return refuse(id, error, 400);
        }
        let told = Arc::default();
        let Some(in_flight) = connection.begin(&id, &told) else {
            let error = invalid_request("a request with this id is in flight");
            return refuse(id, error, 400);
        };
        let cx = RequestCx::new(
            version,
            Origin {
                principal: principal.clone(),
                transport: connection.transport,
                session: connection.session_id.clone(),
                carrier: carrier.cloned(),
                log_from: self
                    .log_from(&meta, (version.era() == Era::Legacy).then_some(connection)),
                connection: Some(Arc::clone(connection)),
            },
            id,
            meta,
            capabilities,
            Some(outbox.clone()),
            Some(Arc::clone(&told)),
        );
        match self.begin(&cx, &method, &params, Some(connection)) {
            Begun::Done(answer) => answer.into(),
            Begun::Handle(request, place) => {
                let (engine, connection) = (Arc::clone(self), Arc::clone(connection));
                let handled = engine.answer(cx, request, place, Some(connection));
                Accepted::Pending(Exchange::registered(handled, told, in_flight))
            }
        }
    }

    /// Decides everything about a request that needs no waiting.
    fn begin(
        self: &Arc<Self>,
        cx: &RequestCx,
        method: &str,
        params: &RawJson,
        connection: Option<&Arc<Connection>>,
    ) -> Begun<S> {
        let begun = self.settle(cx, method, params, connection);
        if let Begun::Done(answer) = &begun {
            self.tell(&Answered {
                principal: &cx.principal,
                transport: cx.transport,
                session: cx.session.as_deref(),
                id: Some(&cx.id),
                method: Some(method),
                version: Some(cx.version),
                trace: cx.trace(),
                error: answer.response.outcome.as_ref().err(),
                took: cx.began.elapsed(),
            });
        }
        begun
    }

    fn settle(
        self: &Arc<Self>,
        cx: &RequestCx,
        method: &str,
        params: &RawJson,
        connection: Option<&Arc<Connection>>,
    ) -> Begun<S> {
        let era = cx.version.era();
        let offer = &self.identity.capabilities;
        let request = match decode_request_with(cx.version, offer, method, params, &cx.meta) {
            Ok(request) => request,
            Err(error) => {
                let status = error.http_status(era);
                return Begun::Done(Answer::error(
                    Some(cx.id.clone()),
                    error.to_error_object(),
                    status,
                ));
            }
        };
        match request {
            ClientRequest::Initialize(initialize) => {
                Begun::Done(self.initialize(cx, &initialize, connection))
            }
            ClientRequest::Discover => Begun::Done(answered(cx, Ok(self.told().discover.clone()))),
            ClientRequest::Ping => {
                let pong = self.encoder.result(cx.version, &ServerResult::Empty);
                let pong = pong.map_err(|error| McpError::internal(&error).0);
                Begun::Done(answered(cx, pong))
            }
            ClientRequest::SetLevel(level) => {
                if let Some(connection) = connection {
                    connection.set_log_level(level);
                }
                let done = self.encoder.result(cx.version, &ServerResult::Empty);
                let done = done.map_err(|error| McpError::internal(&error).0);
                Begun::Done(answered(cx, done))
            }
            request => match Ticket::take(self, &cx.principal) {
                Some(place) => Begun::Handle(request, place),
                None => {
                    let error = ErrorObject::new(
                        ErrorCode::INTERNAL_ERROR,
                        "the server is busy; too many requests are waiting",
                    )
                    .with(&json!({ "retryable": true, "retry_after": 1 }));
                    Begun::Done(answered(cx, Err(error)))
                }
            },
        }
    }

    fn initialize(
        self: &Arc<Self>,
        cx: &RequestCx,
        initialize: &Initialize,
        connection: Option<&Arc<Connection>>,
    ) -> Answer {
        let Some(connection) = connection else {
            let error =
                ErrorObject::new(ErrorCode::METHOD_NOT_FOUND, "method not found: initialize");
            return Answer::error(Some(cx.id.clone()), error, 404);
        };
        let (protocol_version, version) = {
            let mut session = connection.session();
            match session.open(initialize) {
                Ok(answer) => (answer, session.version()),
                Err(error) => {
                    return Answer::error(Some(cx.id.clone()), error.to_error_object(), 400);
                }
            }
        };
        tracing::debug!(
            principal = %cx.principal,
            client = initialize.client_info.name,
            version = protocol_version,
            "session opened"
        );
        let subscription = self.subscriptions.add(
            cx.principal.clone(),
            self.legacy_filter(),
            version,
            None,
            connection.outbox().clone(),
        );
        match subscription {
            Ok(subscription) => *connection.subscription() = Some(subscription),
            Err(error) => {
                // It was refused, so it has not happened: the client may try again later.
                *connection.session() = Session::default();
                return answered(cx, Err(too_many(error)));
            }
        }
        let result = ServerResult::Initialize(InitializeResult {
            protocol_version,
            capabilities: self.told().capabilities.clone(),
            instructions: self.identity.instructions.clone(),
        });
        let result = self.encoder.result(version, &result);
        answered(cx, result.map_err(|error| McpError::internal(&error).0))
    }

    fn told(&self) -> RwLockReadGuard<'_, Told> {
        self.told.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells clients that connect from now on that the server has an extension, with its settings, or has it not.
    /// Methods of an extension exist if the server began with it.
    pub fn declare(&self, extension: &str, settings: Option<Value>) {
        let mut told = self.told.write().unwrap_or_else(PoisonError::into_inner);
        let mut extensions = told.capabilities.extensions.clone();
        match settings {
            Some(settings) => drop(extensions.insert(extension.to_owned(), settings)),
            None => drop(extensions.remove(extension)),
        }
        *told = Told::new(&self.identity, &self.encoder, extensions);
    }

    /// Filter of changes that legacy clients get without a subscription: changed lists.
    pub(crate) fn legacy_filter(&self) -> SubscriptionFilter {
        let offer = &self.identity.capabilities;
        SubscriptionFilter {
            tools_list_changed: offer.tools,
            prompts_list_changed: offer.prompts,
            resources_list_changed: offer.resources.is_some(),
            resource_subscriptions: Vec::new(),
            task_ids: Vec::new(),
        }
    }
}

/// Sender of a message on a connection.
#[derive(Clone, Copy)]
struct Sender<'a> {
    connection: &'a Arc<Connection>,
    /// The connection's, with the roles that it has now.
    principal: &'a Principal,
    carrier: Option<&'a TraceContext>,
    /// Outbox for messages before an answer.
    outbox: &'a Outbox,
}

/// Number of places, out of `most`, that are reserved for principals that have few.
const fn kept(most: usize) -> usize {
    most / 4
}

/// Outcome of [`Engine::begin`].
enum Begun<S> {
    Done(Answer),
    Handle(ClientRequest, Ticket<S>),
}

/// Facts about a message that was refused before it could become a request.
fn refused<'a>(
    from: Sender<'a>,
    id: Option<&'a Id>,
    method: Option<&'a str>,
    error: &'a ErrorObject,
) -> Answered<'a> {
    Answered {
        principal: from.principal,
        transport: from.connection.transport,
        session: from.connection.session_id.as_deref(),
        id,
        method,
        version: None,
        trace: from.carrier,
        error: Some(error),
        took: Duration::ZERO,
    }
}

/// The answer to a request that was handled: its result, and the whole response where that was encoded with it.
fn handled(cx: &RequestCx, outcome: Result<(RawJson, Option<Bytes>), ErrorObject>) -> Answer {
    let (outcome, encoded) = match outcome {
        Ok((result, encoded)) => (Ok(result), encoded),
        Err(error) => (Err(error), None),
    };
    Answer {
        encoded,
        ..answered(cx, outcome)
    }
}

fn answered(cx: &RequestCx, outcome: Result<RawJson, ErrorObject>) -> Answer {
    // A service may find out late that the client has not declared what a request needs.
    let http_status = match &outcome {
        Err(error)
            if cx.version.era() == Era::Modern
                && error.code == ProtocolError::MISSING_CLIENT_CAPABILITY =>
        {
            400
        }
        _ => 200,
    };
    Answer {
        response: Response {
            id: Some(cx.id.clone()),
            outcome,
        },
        encoded: None,
        http_status,
        hints: cx.take_hints(),
    }
}

fn too_many(error: TooManySubscriptions) -> ErrorObject {
    ErrorObject::new(ErrorCode::INTERNAL_ERROR, error.to_string())
        .with(&json!({ "retryable": true }))
}

/// False for the cancellation of a request that is not here.
fn on_notification(connection: &Connection, notification: &Notification) -> bool {
    match decode_notification(&notification.method, &notification.params) {
        Some(ClientNotification::Cancelled { request, reason }) => {
            tracing::debug!(%request, reason, "cancelled by its sender");
            connection.cancel(&request)
        }
        // Progress of what the client was asked, and other roots than it had, are nobody's concern.
        Some(
            ClientNotification::Initialized
            | ClientNotification::Progress { .. }
            | ClientNotification::RootsListChanged,
        )
        | None => true,
    }
}
