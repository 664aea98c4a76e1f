//! Operators' view of sessions: listing and ending them.

use super::{SessionKind, Sessions, lock};
use std::{
    fmt,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

/// The sessions of a server, for its operators. Does not keep the server alive; without it there are
/// none.
#[derive(Clone)]
pub struct SessionDesk(Weak<Sessions>);

/// Stats of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionOverview {
    /// Open ones.
    pub open: usize,
    /// Most sessions at once.
    pub max: usize,
    /// Most sessions of one principal.
    pub max_per_principal: usize,
    /// Number of sessions that were ended to make room for another.
    pub evicted: u64,
    /// Number of sessions that were refused because all others were in use.
    pub refused: u64,
    /// Time since the last refusal; `None` if there was none.
    pub full_since: Option<Duration>,
}

/// One session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Id of the session, as its client and the ledger name it.
    pub id: Arc<str>,
    /// Principal that began it.
    pub principal: Arc<str>,
    /// The revision that was agreed on.
    pub version: &'static str,
    /// True for sessions of the 2024-11-05 transport, HTTP with SSE.
    pub is_old_sse: bool,
    /// Time since its last use.
    pub idle: Duration,
    /// True while the session's own stream is open.
    pub is_streaming: bool,
    /// Requests that are not answered yet.
    pub in_flight: usize,
}

impl SessionDesk {
    pub(crate) fn of(sessions: &Arc<Sessions>) -> Self {
        Self(Arc::downgrade(sessions))
    }

    /// The counts of sessions.
    pub fn overview(&self) -> SessionOverview {
        let sessions = self.0.upgrade();
        sessions.map(|it| it.overview()).unwrap_or_default()
    }

    /// Each by itself, of one principal or of all; what was idle longest comes first.
    pub fn rows(&self, principal: Option<&str>) -> Vec<SessionRow> {
        let sessions = self.0.upgrade();
        sessions.map(|it| it.rows(principal)).unwrap_or_default()
    }

    /// Ends a session, whatever it does: cancels its requests and closes its streams. Whether there was
    /// one.
    pub fn end(&self, id: &str) -> bool {
        self.0.upgrade().is_some_and(|it| it.end(id))
    }

    /// Ends all of a principal; how many there were.
    pub fn end_all_of(&self, principal: &str) -> usize {
        let sessions = self.0.upgrade();
        sessions.map_or(0, |it| it.end_all_of(principal))
    }
}

impl fmt::Debug for SessionDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionDesk").field(&self.0).finish()
    }
}

impl Sessions {
    pub(super) fn overview(&self) -> SessionOverview {
        let full_at = self.full_at.load(Ordering::Relaxed);
        let since = self.now().saturating_sub(full_at);
        SessionOverview {
            open: self.len(),
            max: self.limits.max_sessions,
            max_per_principal: self.limits.max_sessions_per_principal,
            evicted: self.evicted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            full_since: (full_at != 0).then(|| Duration::from_millis(since)),
        }
    }

    pub(super) fn rows(&self, principal: Option<&str>) -> Vec<SessionRow> {
        let mut rows = Vec::new();
        for shard in &self.shards {
            for session in lock(shard).values() {
                let connection = &session.connection;
                let of = connection.principal().name();
                if principal.is_some_and(|it| *it != **of) {
                    continue;
                }
                rows.push(SessionRow {
                    id: Arc::clone(&session.id),
                    principal: Arc::clone(of),
                    version: connection.session().version().as_str(),
                    is_old_sse: session.kind == SessionKind::OldSse,
                    idle: self.idle(session),
                    is_streaming: session.streaming.load(Ordering::Relaxed) != 0,
                    in_flight: connection.in_flight(),
                });
            }
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.idle));
        rows
    }

    pub(super) fn end(&self, id: &str) -> bool {
        let found = self.shard(id).get(id).cloned();
        found.is_some_and(|session| self.remove(&session))
    }

    pub(super) fn end_all_of(&self, principal: &str) -> usize {
        let rows = self.rows(Some(principal));
        rows.iter().filter(|row| self.end(&row.id)).count()
    }
}
