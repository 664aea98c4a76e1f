//! Requests of the server that a legacy client has not answered yet.

use crate::outgoing::outbox::OutboxError;
use jsonrpc_core::{ErrorObject, Id, RawJson};
use mcp_protocol::model::ClientCapabilities;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::sync::oneshot;

/// The most questions a connection may have open; a client that answers none must not pile them up.
pub(crate) const MAX_OPEN_QUESTIONS: usize = 64;

/// Reason why a question to the client was not answered.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The client has not declared that it can be asked this. It must not be (all revisions).
    #[error("the client has not declared what this question needs")]
    NotDeclared(Box<ClientCapabilities>),
    /// No client can be asked: the request is a modern one, whose questions are results, or there
    /// is no connection.
    #[error("the client cannot be asked on this connection")]
    NoWay,
    /// The client has too many open questions, or reads too slowly.
    #[error("the client cannot keep up")]
    Overrun(#[source] Option<OutboxError>),
    /// The client has refused to answer.
    #[error("the client refused: {}", .0.message)]
    Refused(ErrorObject),
    /// The connection ended before the answer.
    #[error("the connection ended before the client answered")]
    Gone,
}

type Answered = Result<RawJson, ErrorObject>;

/// The open questions of a connection.
#[derive(Debug, Default)]
pub(crate) struct Questions(Mutex<Open>);

#[derive(Debug)]
struct Open {
    /// The id of the question asked last. The first is the time in microseconds: an answer to a question
    /// of an earlier process, on a connection that outlives processes, must not be one to this one's.
    last: i64,
    waiting: HashMap<Id, oneshot::Sender<Answered>>,
    /// True once the client can answer no more.
    closed: bool,
}

impl Default for Open {
    fn default() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_micros());
        Self {
            // Less than 2^53, so that every client can echo it.
            last: i64::try_from(now).unwrap_or(0),
            waiting: HashMap::new(),
            closed: false,
        }
    }
}

impl Questions {
    pub(crate) fn open(&self) -> Result<(Id, oneshot::Receiver<Answered>), AskError> {
        let mut open = self.lock();
        if open.closed {
            return Err(AskError::Gone);
        }
        if MAX_OPEN_QUESTIONS <= open.waiting.len() {
            return Err(AskError::Overrun(None));
        }
        open.last += 1;
        let id = Id::Number(open.last);
        let (sender, receiver) = oneshot::channel();
        open.waiting.insert(id.clone(), sender);
        Ok((id, receiver))
    }

    /// Returns true if there is such a question.
    pub(crate) fn has(&self, id: &Id) -> bool {
        self.lock().waiting.contains_key(id)
    }

    /// Passes an answer on; returns true if a handler waits for it.
    pub(crate) fn answer(&self, id: &Id, outcome: Answered) -> bool {
        let waiting = self.lock().waiting.remove(id);
        waiting.is_some_and(|waiting| waiting.send(outcome).is_ok())
    }

    pub(crate) fn withdraw(&self, id: &Id) -> bool {
        self.lock().waiting.remove(id).is_some()
    }

    /// Ends all open questions, and those still to be asked, without an answer.
    pub(crate) fn close(&self) {
        let mut open = self.lock();
        open.closed = true;
        open.waiting.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
