//! Context of a request.

pub(crate) mod ask;

use crate::{
    outgoing::outbox::{HeldAnswer, Outbox},
    principal::Principal,
    session::connection::{Connection, TransportKind},
    told::{Remarks, Told, lock},
};
use bytes::Bytes;
use jsonrpc_core::{Frame, Id, Message, RawJson};
use mcp_protocol::{
    Era, ProtocolVersion, TraceContext, encode_notification,
    model::{ClientCapabilities, LoggingLevel, RequestMeta, ServerNotification},
};
use std::{
    any::Any,
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};

/// Context of a request: everything about it except its parameters.
#[derive(Debug)]
pub struct RequestCx {
    /// The revision this request is written in.
    pub version: ProtocolVersion,
    /// Principal of the request, with the roles that this very request proves; in a session, roles
    /// that another request proved do not count.
    pub principal: Principal,
    /// Transport of the request.
    pub transport: TransportKind,
    /// The legacy session it came in, if there is one.
    pub session: Option<Arc<str>>,
    /// The id its sender gave it.
    pub id: Id,
    /// Time at which it was read.
    pub began: Instant,
    /// Metadata of the request, but for what the client has declared, which [`capabilities`](Self::capabilities) are.
    pub meta: Box<RequestMeta>,
    /// Capabilities of the client that the server may use: declared by this request in the modern
    /// era, by `initialize` in the legacy era.
    pub capabilities: ClientCapabilities,
    /// Place in a distributed trace of the transport's own message, such as an HTTP request: one of
    /// them may carry many requests, and one request may need many of them.
    pub carrier: Option<Box<TraceContext>>,
    span: OnceLock<Box<(TraceContext, Arc<dyn Any + Send + Sync>)>>,
    connection: Option<Arc<Connection>>,
    log_from: Option<LoggingLevel>,
    outbox: Option<Outbox>,
    /// True if the work it starts may outlive the answer, so that it goes on even if the client
    /// does not read.
    is_fork: bool,
    /// Made when somebody shares it.
    told: OnceLock<Arc<Told>>,
    /// Remarks until then.
    remarks: Mutex<Remarks>,
}

/// Origin of a request.
pub(crate) struct Origin {
    pub(crate) principal: Principal,
    pub(crate) transport: TransportKind,
    pub(crate) session: Option<Arc<str>>,
    /// See [`RequestCx::carrier`].
    pub(crate) carrier: Option<TraceContext>,
    /// Connection on which the client can be asked, and whose session sets the client's log level;
    /// modern requests set it themselves.
    pub(crate) connection: Option<Arc<Connection>>,
    /// From which severity on the client wants to hear log messages about the request.
    pub(crate) log_from: Option<LoggingLevel>,
}

impl RequestCx {
    pub(crate) fn new(
        version: ProtocolVersion,
        origin: Origin,
        id: Id,
        meta: Box<RequestMeta>,
        capabilities: ClientCapabilities,
        outbox: Option<Outbox>,
        told: Option<Arc<Told>>,
    ) -> Self {
        Self {
            version,
            principal: origin.principal,
            transport: origin.transport,
            session: origin.session,
            carrier: origin.carrier.map(Box::new),
            span: OnceLock::new(),
            connection: origin.connection,
            log_from: origin.log_from,
            id,
            began: Instant::now(),
            meta,
            capabilities,
            outbox,
            is_fork: false,
            told: told.map(OnceLock::from).unwrap_or_default(),
            remarks: Mutex::default(),
        }
    }

    /// The same request, for what may outlive its answer. Until then, both report on it and leave
    /// remarks; afterwards neither does.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {
            version: self.version,
            principal: self.principal.clone(),
            transport: self.transport,
            session: self.session.clone(),
            carrier: self.carrier.clone(),
            span: self.span.clone(),
            connection: self.connection.clone(),
            log_from: self.log_from,
            id: self.id.clone(),
            began: self.began,
            meta: self.meta.clone(),
            capabilities: self.capabilities.clone(),
            outbox: self.outbox.clone(),
            is_fork: true,
            told: Arc::clone(self.told()).into(),
            remarks: Mutex::default(),
        }
    }

    /// The same request, for something else that is done on its behalf, such as a read of a resource by a
    /// handler: it reports nothing to the client, and leaves no remarks.
    #[must_use]
    pub fn within(&self) -> Self {
        let mut within = self.fork();
        within.told = OnceLock::new();
        within.outbox = None;
        within.meta.progress_token = None;
        within.meta.idempotency_key = None;
        within.meta.whole = None;
        within
    }

    /// True if the connection has agreed on [`mcp_protocol::FOUNDING`].
    pub fn is_founding(&self) -> bool {
        let connection = self.connection.as_ref();
        self.version.era() == Era::Legacy && connection.is_some_and(|it| it.session().is_founding())
    }

    /// Has the client of a legacy session told of what becomes of a task, until it is over. Clients
    /// must not rely on it (2025-11-25, tasks), and modern ones ask for it.
    pub fn announce_task(&self, id: &str) {
        if let Some(connection) = &self.connection
            && self.version.era() == Era::Legacy
        {
            if let Some(subscription) = &*connection.subscription()
                && let Err(error) = subscription.watch_task(id)
            {
                tracing::debug!(principal = %self.principal, %error, "a task is not announced");
            }
            connection.watcher.tell();
        }
    }

    /// A context without a peer, for tests of services.
    pub fn detached(version: ProtocolVersion, principal: &str) -> Self {
        Self::new(
            version,
            Origin {
                principal: Principal::new(principal),
                transport: TransportKind::Stdio,
                session: None,
                carrier: None,
                connection: None,
                log_from: None,
            },
            Id::Number(1),
            Box::default(),
            ClientCapabilities::default(),
            None,
            None,
        )
    }

    /// Place in a distributed trace where the request is handled: that of the span made of it here,
    /// once there is one, and else its caller's. Metadata of the request come before those of its
    /// transport (SEP-414).
    pub fn trace(&self) -> Option<&TraceContext> {
        let own = self.span.get().map(|it| &it.0);
        own.or_else(|| self.parent_trace())
    }

    /// Place in a distributed trace where its caller makes the request.
    pub fn parent_trace(&self) -> Option<&TraceContext> {
        self.meta.trace.as_deref().or(self.carrier.as_deref())
    }

    /// Says which span is made of the request here, and where it is. The first stays; forks know it
    /// too, if they are made afterwards.
    pub fn enter_span(&self, place: TraceContext, span: Arc<dyn Any + Send + Sync>) {
        let _ = self.span.set(Box::new((place, span)));
    }

    /// The span that is made of the request here, if it is a `T`.
    pub fn span<T: Any>(&self) -> Option<&T> {
        self.span.get()?.1.downcast_ref()
    }

    /// Reports how far the request has come, if the client wants to know.
    pub fn progress_reporter(&self) -> Option<ProgressReporter> {
        Some(ProgressReporter {
            token: self.meta.progress_token.clone()?,
            version: self.version,
            outbox: self.outbox.clone()?,
            told: Arc::clone(self.told()),
        })
    }

    /// Reporter of log messages about the request to the client, if the client wants any. Modern
    /// clients get none unless the request itself names the severity from which on (2026-07-28,
    /// logging).
    pub fn log_reporter(&self) -> Option<LogReporter> {
        Some(LogReporter {
            from: self.log_from?,
            version: self.version,
            outbox: self.outbox.clone()?,
            told: Arc::clone(self.told()),
        })
    }

    /// Lets go of the client's connection while the request is handled: the client comes back for
    /// what is said from here on, the answer included (2025-11-25, Streamable HTTP). For requests
    /// that take long, whose connections are in the way. Does nothing for clients that would not come
    /// back: in other revisions, outside of sessions, and on other transports.
    pub fn close_stream(&self) {
        if let Some(release) = self.stream_release() {
            release.close_stream();
        }
    }

    /// Does [`RequestCx::close_stream`] from elsewhere, such as a thread of the handler's own.
    pub fn stream_release(&self) -> Option<StreamRelease> {
        let may_come_back = self.transport == TransportKind::Http && self.session.is_some();
        let outbox = self.outbox.as_ref().filter(|_| may_come_back);
        outbox.cloned().map(StreamRelease)
    }

    /// Resolves when the request is to be answered at once, because the time of its connection is over
    /// ([`Connection::give_up`]). Never for a request that belongs to no connection.
    pub async fn given_up(&self) {
        match &self.connection {
            Some(connection) => connection.giving_up.given_up().await,
            None => std::future::pending().await,
        }
    }

    /// Polls `making` only while few answers to the same peer are made and wait for something else
    /// than the peer ([`RequestCx::hold_answer`]): less than 4 MiB of them. A fork is polled in any
    /// case: it goes on even if the client does not read.
    pub async fn with_room<T>(&self, making: impl Future<Output = T>) -> T {
        match &self.outbox {
            Some(outbox) if !self.is_fork => outbox.with_room(making).await,
            _ => making.await,
        }
    }

    /// Counts an answer of about `bytes` as made and waiting, for its record for instance, until the
    /// returned guard is dropped. What waits without being counted is not bounded: the transport
    /// counts what it is given, and nothing before.
    pub fn hold_answer(&self, bytes: usize) -> Option<HeldAnswer> {
        let outbox = self.outbox.as_ref().filter(|_| !self.is_fork);
        outbox.map(|outbox| outbox.hold(bytes))
    }

    /// Leaves a remark for the transport to put beside the answer where it can: on HTTP, a header.
    pub fn hint(&self, name: &'static str, value: impl Into<Bytes>) {
        let value = value.into();
        self.with_remarks(|remarks| remarks.left.push((name, value)));
    }

    /// Leaves what a layer knows of the request for the layers around it, such as who logs it. What
    /// was left before is forgotten.
    pub fn attach(&self, known: Arc<dyn Any + Send + Sync>) {
        self.with_remarks(|remarks| remarks.attached = Some(known));
    }

    /// Value that was attached last, if it is a `T`.
    pub fn attached<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let attached = self.with_remarks(|remarks| remarks.attached.clone());
        attached?.downcast().ok()
    }

    /// Hints left so far, for tests of services.
    pub fn hints(&self) -> Vec<(&'static str, String)> {
        let text = |value: &Bytes| String::from_utf8_lossy(value).into_owned();
        self.with_remarks(|remarks| {
            let left = remarks.left.iter();
            left.map(|(name, value)| (*name, text(value))).collect()
        })
    }

    /// As if it had come by `transport`, for tests of services.
    #[must_use]
    pub fn with_transport(mut self, transport: TransportKind) -> Self {
        self.transport = transport;
        self
    }

    /// As if `principal` had sent it, for tests of services.
    #[must_use]
    pub fn with_principal(mut self, principal: Principal) -> Self {
        self.principal = principal;
        self
    }

    pub(crate) fn take_hints(&self) -> Vec<(&'static str, Bytes)> {
        self.with_remarks(|remarks| std::mem::take(&mut remarks.left))
    }

    /// State that forks and reporters share.
    fn told(&self) -> &Arc<Told> {
        // Locked first, as in `with_remarks`: a remark is left in the one place or in the other.
        let mut own = lock(&self.remarks);
        self.told
            .get_or_init(|| Arc::new(Told::after(std::mem::take(&mut *own))))
    }

    fn with_remarks<T>(&self, look: impl FnOnce(&mut Remarks) -> T) -> T {
        let mut own = lock(&self.remarks);
        match self.told.get() {
            Some(told) => look(&mut lock(&told.remarks)),
            None => look(&mut own),
        }
    }

    pub(crate) fn connection(&self) -> Option<&Arc<Connection>> {
        self.connection.as_ref()
    }

    pub(crate) fn outbox(&self) -> Option<&Outbox> {
        self.outbox.as_ref()
    }
}

impl Drop for RequestCx {
    /// Answered or given up: from here on nothing more is said about the request.
    fn drop(&mut self) {
        if let Some(told) = self.told.get() {
            *told.progress() = None;
        }
    }
}

/// Lets go of the connection of one request, from wherever the request is handled.
#[derive(Clone, Debug)]
pub struct StreamRelease(Outbox);

impl StreamRelease {
    /// As [`RequestCx::close_stream`]. Never blocks.
    pub fn close_stream(&self) {
        self.0.interrupt();
    }
}

/// Reports how far one request has come. Clones report on the same request.
#[derive(Clone, Debug)]
pub struct ProgressReporter {
    token: Id,
    version: ProtocolVersion,
    outbox: Outbox,
    told: Arc<Told>,
}

impl ProgressReporter {
    /// Sends one notification; returns true if it did. Left out, as the protocol asks: a value that
    /// is no number or does not exceed the last one, and any value once the request is answered or
    /// cancelled. Left out as well when the peer reads too slowly: the next one reports more
    /// anyway.
    pub fn report(&self, progress: f64, total: Option<f64>, message: Option<&str>) -> bool {
        // Held until the notification is queued: a handler's own thread may still report while the
        // request is being answered, and must not come after the answer.
        let mut state = self.told.progress();
        let Some(last) = state.as_mut() else {
            return false;
        };
        if !progress.is_finite() || progress <= *last {
            return false;
        }
        let notification = ServerNotification::Progress {
            token: self.token.clone(),
            progress,
            total: total.filter(|total| total.is_finite()),
            message: message.map(str::to_owned),
        };
        let notification = encode_notification(self.version, &notification, None);
        let frame = Frame::message(&Message::Notification(notification)).into_bytes();
        match self.outbox.push(frame) {
            Ok(()) => {
                *last = progress;
                true
            }
            Err(error) => {
                tracing::debug!(token = ?self.token, %error, "progress left out");
                false
            }
        }
    }
}

/// Sends a client log messages about one of its requests.
#[derive(Clone, Debug)]
pub struct LogReporter {
    from: LoggingLevel,
    version: ProtocolVersion,
    outbox: Outbox,
    told: Arc<Told>,
}

impl LogReporter {
    /// Sends one message. Left out when it is milder than the client wants to hear, once the request
    /// is answered or cancelled, and when the peer reads too slowly.
    pub fn log(&self, level: LoggingLevel, logger: Option<&str>, data: RawJson) {
        // Held until the message is queued, as for progress.
        let state = self.told.progress();
        if state.is_none() || level < self.from {
            return;
        }
        let notification = ServerNotification::Log {
            level,
            logger: logger.map(str::to_owned),
            data,
        };
        let notification = encode_notification(self.version, &notification, None);
        let frame = Frame::message(&Message::Notification(notification)).into_bytes();
        if let Err(error) = self.outbox.push(frame) {
            tracing::debug!(%error, "a log message was left out");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// A task goes on although its client reads nothing, and its deadline is looked at.
    #[test]
    fn a_fork_waits_for_no_reader() {
        let mut cx = RequestCx::detached(ProtocolVersion::V2025_11_25, "anna");
        cx.outbox = Some(Outbox::default());
        let fork = cx.fork();
        let held = cx.hold_answer(64 * 1024 * 1024);
        assert!(held.is_some() && fork.hold_answer(1).is_none());
        assert_eq!(cx.with_room(async { 1 }).now_or_never(), None);
        assert_eq!(fork.with_room(async { 2 }).now_or_never(), Some(2));
        drop(held);
        assert_eq!(cx.with_room(async { 3 }).now_or_never(), Some(3));
    }
}
