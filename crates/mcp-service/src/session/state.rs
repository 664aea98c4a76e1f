//! Legacy sessions that outlive the process they began in.

use crate::{principal::Principal, session::connection::Connection};
use bytes::Bytes;
use jsonrpc_core::{Frame, Message};
use mcp_protocol::{
    ProtocolVersion, Session,
    model::{ClientCapabilities, LoggingLevel},
};
use std::{fmt, sync::OnceLock};

/// State of a legacy session that another process needs to continue it. The principal is kept by
/// the session's store.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionState {
    /// The revision that was agreed on.
    pub version: ProtocolVersion,
    /// True if the session has agreed on [`mcp_protocol::FOUNDING`].
    pub is_founding: bool,
    /// Capabilities that the client declared.
    pub capabilities: ClientCapabilities,
    /// From which severity on it wants to hear log messages.
    pub log_level: LoggingLevel,
    /// The URIs of the resources that it has subscribed to, at most
    /// [`SubscriptionLimits::max_resources`](crate::outgoing::subscriptions::SubscriptionLimits::max_resources).
    pub resources: Vec<String>,
    /// The tasks that it hears of, as many at most.
    pub tasks: Vec<String>,
}

/// Callback for changes of a [`SessionState`].
#[derive(Default)]
pub(crate) struct Watcher(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl Watcher {
    pub(crate) fn tell(&self) {
        if let Some(told) = self.0.get() {
            told();
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watcher")
            .field(&self.0.get().is_some())
            .finish()
    }
}

/// Way to other processes that have the same session.
#[derive(Default)]
pub(crate) struct Elsewhere(OnceLock<Box<dyn Fn(Bytes) + Send + Sync>>);

impl Elsewhere {
    /// Passes on what concerns nothing here; false where there is nobody else.
    pub(crate) fn pass_on(&self, message: Message) -> bool {
        let Some(others) = self.0.get() else {
            return false;
        };
        others(Frame::message(&message).into_bytes());
        true
    }
}

impl fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Elsewhere")
            .field(&self.0.get().is_some())
            .finish()
    }
}

impl Connection {
    /// Has `others` called with what the client sends that concerns nothing here: answers to unknown
    /// questions, and cancellations of unknown requests. Only the first callback is kept.
    pub fn pass_on_by(&self, others: impl Fn(Bytes) + Send + Sync + 'static) {
        // An error means that there is one already.
        let _ = self.elsewhere.0.set(Box::new(others));
    }

    /// State with which another process can continue; `None` before `initialize`.
    pub fn state(&self) -> Option<SessionState> {
        let (version, is_founding, capabilities) = match &*self.session() {
            Session::Unopened => return None,
            Session::Legacy {
                version,
                is_founding,
                capabilities,
            } => (*version, *is_founding, capabilities.clone()),
        };
        let (resources, tasks) = match &*self.subscription() {
            Some(subscription) => subscription.watched(),
            None => Default::default(),
        };
        Some(SessionState {
            version,
            is_founding,
            capabilities,
            log_level: self.log_level(),
            resources,
            tasks,
        })
    }

    /// Has `told` called whenever [`Connection::state`] differs from before, on the thread that
    /// changed it, which waits meanwhile. Not for `initialize`, whose end the transport sees. Only
    /// the first callback is kept.
    pub fn on_change(&self, told: impl Fn() + Send + Sync + 'static) {
        // An error means that somebody is told already.
        let _ = self.watcher.0.set(Box::new(told));
    }

    /// Has a connection that goes on hear of what `principal` may know, if it is the connection's:
    /// which roles that principal has is known only when it comes back.
    pub fn come_back(&self, principal: &Principal) {
        if self.principal == *principal {
            self.seen_as(principal);
        }
    }
}
