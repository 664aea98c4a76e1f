//! Legacy sessions that outlive the process.

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
}
