//! Legacy sessions that outlive the process.

use bytes::Bytes;
use mcp_service::SessionState;
use std::{pin::Pin, sync::Arc, time::SystemTime};

/// A legacy session, as far as it is kept. What was said on its streams is not: see
/// [`PersistSessions`].
#[derive(Clone, Debug, PartialEq)]
pub struct PersistedSession {
    /// Id by which its client names it. A caller that has it and the principal's name may use the
    /// session.
    pub id: Arc<str>,
    /// Principal that the session belongs to.
    pub principal: Arc<str>,
    /// Result of the handshake.
    pub state: SessionState,
    /// Number of processes it has been through before the present one. Events are numbered from
    /// there on, so that an event of one process is never taken for one of another.
    pub lives: u32,
    /// Time of the last use, as far as is known: not stored with each request, so the time may be
    /// behind by a minute.
    pub last_used: SystemTime,
}

/// Keeps legacy sessions for the next process that serves the same clients.
///
/// What is lost in between is what was under way: requests that had not been answered, and what was
/// said and not read. A client that comes back for the rest of such a request hears that nothing is
/// kept of it, and has to ask again. Sessions of the old transport are not kept, which end with their
/// stream.
///
/// Nothing here may block: it is called from the threads that serve, though not for each request, but
/// when a session begins, changes and ends.
pub trait PersistSessions: Send + Sync + 'static {
    /// Loads the sessions that were stored when the process began, in any order. Called once.
    fn load(&self) -> Vec<PersistedSession>;

    /// Keeps a session that is new or has changed.
    fn put(&self, session: &PersistedSession);

    /// Keeps when a session was last used. One that is not kept stays so.
    fn touch(&self, id: &str, last_used: SystemTime);

    /// Keeps a session no longer.
    fn remove(&self, id: &str);

    /// Resolves once everything asked for so far would survive the process, or cannot.
    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// The part for processes that have the same sessions; `None` if only one process has them.
    fn shared(&self) -> Option<&dyn ShareSessions> {
        None
    }
}

/// The part of keeping sessions that only processes need which share them, at the same time. A process takes a
/// session up when a client names it there, and from then on hears of what others do to it
/// ([`SessionFollower`]).
///
/// To keep a session is to wait for it ([`PersistSessions::settled`]) before its client hears of it; that it
/// was unused here for too long, or had to make room, is no end of it.
pub trait ShareSessions: Send + Sync {
    /// The session of this id, if it is this principal's and has not ended. Each process that takes it up has
    /// another number of [`lives`](PersistedSession::lives). `Err` if it cannot be told.
    fn take_up<'a>(&'a self, id: &'a str, principal: &'a str) -> TakingUp<'a>;

    /// Passes on what a client has sent in a session that concerns nothing here: an answer to a question, or
    /// the cancellation of a request.
    fn pass_on(&self, id: &str, message: Bytes);
}

/// A session that is being taken up.
pub type TakingUp<'a> =
    Pin<Box<dyn Future<Output = Result<Option<PersistedSession>, Unavailable>> + Send + 'a>>;

/// Sessions of other processes cannot be looked up at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sessions cannot be looked up at the moment")]
pub struct Unavailable;

/// Hears of what other processes do to sessions.
pub trait SessionFollower: Send + Sync {
    /// Ids of the sessions that are here, of those that are shared.
    fn ids(&self) -> Vec<Arc<str>>;

    /// Returns true if this session is here.
    fn has(&self, id: &str) -> bool;

    /// Takes over what has become of a session: `None` if it has ended.
    fn changed(&self, id: &str, now: Option<SessionState>);

    /// Takes what its client has sent to another process.
    fn said(&self, id: &str, message: &Bytes);
}
