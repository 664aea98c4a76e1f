//! State of one peer while it stays connected.

use crate::{
    giving_up::GivingUp,
    outgoing::{outbox::Outbox, server_requests::Questions, subscriptions::Subscription},
    principal::Principal,
    session::state::{Elsewhere, Watcher},
    told::Told,
};
use foldhash::HashMap;
use jsonrpc_core::Id;
use mcp_protocol::{Session, model::LoggingLevel};
use std::{
    collections::hash_map::Entry,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// Transport of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportKind {
    /// Over the standard streams, or another pair of byte streams.
    Stdio,
    /// Over HTTP.
    Http,
    /// Over a WebSocket.
    WebSocket,
}

impl TransportKind {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Stdio, Self::Http, Self::WebSocket];

    /// Name in configuration, logs and the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::WebSocket => "websocket",
        }
    }
}

/// State of one peer while it stays connected: a process on stdio, a WebSocket, or a legacy session
/// on HTTP. A modern HTTP request has none.
#[derive(Debug)]
pub struct Connection {
    pub(crate) principal: Principal,
    /// As it was when it sent something last.
    seen: Mutex<Principal>,
    pub(crate) transport: TransportKind,
    pub(crate) session_id: Option<Arc<str>>,
    outbox: Outbox,
    session: Mutex<Session>,
    in_flight: Mutex<HashMap<Id, Arc<Told>>>,
    subscription: Mutex<Option<Subscription>>,
    questions: Questions,
    log_level: Mutex<LoggingLevel>,
    winding_down: watch::Sender<bool>,
    pub(crate) giving_up: GivingUp,
    pub(crate) watcher: Watcher,
    pub(crate) elsewhere: Elsewhere,
}

impl Connection {
    /// A connection on which nothing has been agreed yet. `session_id` names it in the ledger and in
    /// logs; `outbox` takes what is said without having been asked.
    pub fn new(
        principal: Principal,
        transport: TransportKind,
        session_id: Option<Arc<str>>,
        outbox: Outbox,
    ) -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::new(principal.clone()),
            principal,
            transport,
            session_id,
            outbox,
            session: Mutex::default(),
            in_flight: Mutex::default(),
            subscription: Mutex::default(),
            questions: Questions::default(),
            log_level: Mutex::new(LoggingLevel::Info),
            winding_down: watch::Sender::new(false),
            giving_up: GivingUp::default(),
            watcher: Watcher::default(),
            elsewhere: Elsewhere::default(),
        })
    }

    /// Principal at the other end. This is the connection's owner and no more: the roles are those
    /// that it had when the connection was made.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Outbox for messages that belong to no request.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Result of the handshake.
    pub fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of requests that have been read and not yet answered.
    pub fn in_flight(&self) -> usize {
        self.requests().len()
    }

    /// Ends this connection's subscriptions gracefully, because its peer sends nothing more. They
    /// would never end by themselves, and a server that waits for requests to end would wait for
    /// them; and questions to the peer have no answer any more.
    pub fn wind_down(&self) {
        self.winding_down.send_replace(true);
        self.questions.close();
    }

    pub(crate) async fn wound_down(&self) {
        // The sender lives as long as `self`.
        let _ = self.winding_down.subscribe().wait_for(|it| *it).await;
    }

    /// Has the service answer all running calls of this connection now. Transports call it at the end of
    /// the time for running calls, after the client has left or the server was told to stop, and continue
    /// for [`crate::giving_up::LAST_ANSWERS`].
    pub fn give_up(&self) {
        self.giving_up.give_up();
    }

    /// Cancels every request and says nothing more.
    pub fn close(&self) {
        for request in self.requests().values() {
            request.abort();
        }
        *self.subscription() = None;
        self.questions.close();
        self.outbox.close();
    }

    /// Notes that `principal`, whose connection this is, has sent something, or is there, with the
    /// roles that it has now: what it may hear of from here on depends on them.
    pub fn seen_as(&self, principal: &Principal) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.is_exactly(principal) {
            *seen = principal.clone();
            if let Some(subscription) = &*self.subscription() {
                subscription.now_of(principal);
            }
        }
    }

    /// Questions that the client has not answered yet.
    pub(crate) fn questions(&self) -> &Questions {
        &self.questions
    }

    /// From which severity on a legacy client hears log messages; `info` unless it says otherwise.
    pub(crate) fn log_level(&self) -> LoggingLevel {
        *self
            .log_level
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_log_level(&self, level: LoggingLevel) {
        self.align_log_level(level);
        self.watcher.tell();
    }

    /// The same, as another process says.
    pub(crate) fn align_log_level(&self, level: LoggingLevel) {
        *self
            .log_level
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = level;
    }

    pub(crate) fn subscription(&self) -> MutexGuard<'_, Option<Subscription>> {
        self.subscription
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request until the returned guard is dropped; `None` if its id is taken.
    pub(crate) fn begin(self: &Arc<Self>, id: &Id, told: &Arc<Told>) -> Option<InFlight> {
        match self.requests().entry(id.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(entry) => {
                entry.insert(Arc::clone(told));
                Some(InFlight {
                    connection: Arc::clone(self),
                    id: id.clone(),
                })
            }
        }
    }

    /// Cancels a request; one that is unknown or done is ignored, as the protocol asks. Returns true if it is
    /// known.
    pub(crate) fn cancel(&self, id: &Id) -> bool {
        let requests = self.requests();
        let request = requests.get(id);
        if let Some(request) = request {
            request.abort();
        }
        request.is_some()
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<Id, Arc<Told>>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that has been read and not yet answered.
pub(crate) struct InFlight {
    connection: Arc<Connection>,
    id: Id,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.connection.requests().remove(&self.id);
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").field(&self.id).finish()
    }
}
