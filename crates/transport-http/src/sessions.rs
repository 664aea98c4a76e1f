//! The sessions of the legacy era.

mod survival;

use crate::{
    HttpLimits, KeepSessions,
    replay::{Replay, Room},
};
use mcp_service::{Connection, Outbox, Principal, TransportKind};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// Which transport a session belongs to. What is one's is unknown to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionKind {
    /// Streamable HTTP: requests are answered where they were posted.
    Streamable,
    /// HTTP with SSE of 2024-11-05: requests are answered on the session's stream, and the session
    /// ends with it.
    OldSse,
}

/// One client's session: belongs to the principal that opened it.
pub(crate) struct Session {
    pub(crate) id: Arc<str>,
    kind: SessionKind,
    owed: Mutex<Owed>,
    pub(crate) connection: Arc<Connection>,
    /// What its streams have said.
    pub(crate) replay: Arc<Replay>,
    /// The number of its own stream that is open, 0 for none. A client has at most one of those:
    /// every message is on exactly one.
    streaming: AtomicU64,
    /// As [`Sessions::now`] tells it.
    last_used: AtomicU64,
    /// What of that is kept, if the session is.
    last_kept: AtomicU64,
    /// Whether the keeper knows of it, and is to. Held while it is told.
    is_kept: Mutex<bool>,
    /// How many processes it has been through before this one.
    lives: u32,
    /// Whether its client has not been seen since it was restored.
    is_awaited: AtomicBool,
}

/// What an old session's stream is still to carry before it may end.
#[derive(Default)]
struct Owed {
    answers: usize,
    ending: bool,
}

/// Something that is owed on an old session's stream, until it is dropped.
pub(crate) struct Debt {
    session: Arc<Session>,
}

/// A session's stream, until it is dropped.
pub(crate) struct Streaming {
    pub(crate) session: Arc<Session>,
    number: u64,
    sessions: Arc<Sessions>,
}

/// All sessions. In shards, since every legacy request looks here, from every thread.
pub(crate) struct Sessions {
    shards: [Mutex<HashMap<Arc<str>, Arc<Session>>>; SHARDS],
    counts: Mutex<Counts>,
    limits: HttpLimits,
    keeper: Option<Arc<dyn KeepSessions>>,
    began: Instant,
    room: Arc<Room>,
    streams: AtomicU64,
}

const SHARDS: usize = 16;

#[derive(Default)]
struct Counts {
    total: usize,
    per_principal: HashMap<Principal, usize>,
}

/// Why there is no further session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooManySessions {
    #[error("too many sessions; at most {0} are open at once")]
    InAll(usize),
    #[error("too many sessions; at most {0} per client are open at once")]
    OfPrincipal(usize),
}

impl Sessions {
    pub(crate) fn new(limits: HttpLimits, keeper: Option<Arc<dyn KeepSessions>>) -> Arc<Self> {
        Arc::new(Self {
            shards: Default::default(),
            counts: Mutex::default(),
            limits,
            keeper,
            began: Instant::now(),
            room: Arc::new(Room {
                max_events: limits.max_session_replay_events,
                max_bytes: limits.max_session_replay_bytes,
                max_total: limits.max_replay_bytes,
                total: AtomicUsize::new(0),
            }),
            streams: AtomicU64::new(0),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.counts().total
    }

    /// Opens a session for `principal`, on which nothing has been agreed yet.
    pub(crate) fn open(
        &self,
        kind: SessionKind,
        principal: &Principal,
    ) -> Result<Arc<Session>, TooManySessions> {
        self.count(principal).or_else(|_| {
            // Room may be taken by sessions that have ended and were not yet swept away.
            self.sweep();
            self.count(principal)
        })?;
        let id: Arc<str> = uuid::Uuid::new_v4().to_string().into();
        let session = Arc::new(self.make(kind, id, principal, 0));
        self.insert(&session);
        Ok(session)
    }

    fn make(&self, kind: SessionKind, id: Arc<str>, principal: &Principal, lives: u32) -> Session {
        Session {
            connection: Connection::new(
                principal.clone(),
                TransportKind::Http,
                Some(Arc::clone(&id)),
                Outbox::new(self.limits.max_session_queue_bytes),
            ),
            id,
            kind,
            owed: Mutex::default(),
            replay: Replay::after_lives(Arc::clone(&self.room), lives),
            streaming: AtomicU64::new(0),
            last_used: AtomicU64::new(self.now()),
            last_kept: AtomicU64::new(0),
            is_kept: Mutex::new(false),
            lives,
            is_awaited: AtomicBool::new(0 < lives),
        }
    }

    fn insert(&self, session: &Arc<Session>) {
        self.shard(&session.id)
            .insert(Arc::clone(&session.id), Arc::clone(session));
    }

    /// The session `id`, if it is `principal`'s and of this kind: any other is as unknown as one that
    /// never was.
    pub(crate) fn find(
        &self,
        kind: SessionKind,
        id: &str,
        principal: &Principal,
    ) -> Option<Arc<Session>> {
        let session = self.shard(id).get(id).cloned()?;
        if session.kind != kind || session.connection.principal() != principal {
            return None;
        }
        session.last_used.store(self.now(), Ordering::Relaxed);
        if session.is_awaited.load(Ordering::Relaxed) {
            session.is_awaited.store(false, Ordering::Relaxed);
            session.connection.come_back(principal);
        }
        Some(session)
    }

    /// Ends a session: cancels its requests and closes its stream.
    pub(crate) fn close(&self, session: &Session) {
        let Some(session) = self.shard(&session.id).remove(&session.id) else {
            return;
        };
        self.keep_no_longer(&session);
        session.connection.close();
        self.uncount(session.connection.principal());
    }

    fn uncount(&self, principal: &Principal) {
        let mut counts = self.counts();
        counts.total -= 1;
        if let Some(count) = counts.per_principal.get_mut(principal) {
            *count -= 1;
            if *count == 0 {
                counts.per_principal.remove(principal);
            }
        }
    }

    /// Begins the session's stream; `None` while there is one.
    pub(crate) fn stream(self: &Arc<Self>, session: Arc<Session>) -> Option<Streaming> {
        let number = self.next_stream();
        session
            .streaming
            .compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        Some(Streaming {
            session,
            number,
            sessions: Arc::clone(self),
        })
    }

    /// Continues the session's stream, instead of one that may be open: its client says that it has
    /// lost that, and often knows before we do.
    pub(crate) fn take_over(self: &Arc<Self>, session: Arc<Session>) -> Streaming {
        let number = self.next_stream();
        session.streaming.store(number, Ordering::Release);
        Streaming {
            session,
            number,
            sessions: Arc::clone(self),
        }
    }

    fn next_stream(&self) -> u64 {
        self.streams.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Ends the sessions that nobody has used for too long.
    pub(crate) fn sweep(&self) {
        let idle = u64::try_from(self.limits.session_idle.as_millis()).unwrap_or(u64::MAX);
        let now = self.now();
        self.close_all(|session| {
            idle <= now.saturating_sub(session.last_used.load(Ordering::Relaxed))
                && !session.is_in_use()
        });
        self.touch();
    }

    /// How often [`Sessions::sweep`] is worth the while.
    pub(crate) fn sweep_interval(&self) -> Duration {
        let shortest = Duration::from_millis(10);
        (self.limits.session_idle / 4).clamp(shortest, Duration::from_secs(60))
    }

    /// Ends every stream, but neither sessions nor the requests in them. A stream that requests are
    /// answered on ends with the last of those answers.
    pub(crate) fn end_streams(&self) {
        for shard in &self.shards {
            for session in lock(shard).values() {
                session.end_stream();
            }
        }
    }

    pub(crate) fn close_all(&self, is_meant: impl Fn(&Session) -> bool) {
        for shard in &self.shards {
            let meant: Vec<_> = lock(shard)
                .values()
                .filter(|session| is_meant(session))
                .cloned()
                .collect();
            for session in meant {
                self.close(&session);
            }
        }
    }

    fn count(&self, principal: &Principal) -> Result<(), TooManySessions> {
        let mut counts = self.counts();
        if self.limits.max_sessions <= counts.total {
            return Err(TooManySessions::InAll(self.limits.max_sessions));
        }
        let most = self.limits.max_sessions_per_principal;
        let known = counts.per_principal.get(principal).copied().unwrap_or(0);
        if most <= known {
            return Err(TooManySessions::OfPrincipal(most));
        }
        counts.per_principal.insert(principal.clone(), known + 1);
        counts.total += 1;
        Ok(())
    }

    /// Milliseconds since the longest time before the server began at which a session that is alive
    /// can have been used last.
    fn now(&self) -> u64 {
        let elapsed = self.limits.session_idle + self.began.elapsed();
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }

    fn shard(&self, id: &str) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Session>>> {
        // The last characters of our ids are random; whose are not finds nothing in any shard.
        let last = id.as_bytes().last().copied().unwrap_or(0);
        lock(&self.shards[usize::from(last) % SHARDS])
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        lock(&self.counts)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Whether it has a stream, or requests that are not answered yet.
    fn is_in_use(&self) -> bool {
        self.streaming.load(Ordering::Acquire) != 0 || self.connection.in_flight() != 0
    }

    /// Keeps the stream from ending before an answer is on it; `None` once it is to end.
    pub(crate) fn owe(self: &Arc<Self>) -> Option<Debt> {
        let mut owed = lock(&self.owed);
        if owed.ending {
            return None;
        }
        owed.answers += 1;
        Some(Debt {
            session: Arc::clone(self),
        })
    }

    fn end_stream(&self) {
        let mut owed = lock(&self.owed);
        owed.ending = true;
        if owed.answers == 0 {
            self.connection.outbox().close();
        }
    }
}

impl Debt {
    /// The session it is owed in.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        let mut owed = lock(&self.session.owed);
        owed.answers -= 1;
        if owed.ending && owed.answers == 0 {
            self.session.connection.outbox().close();
        }
    }
}

impl Streaming {
    /// Whether the client has not continued it elsewhere.
    pub(crate) fn is_current(&self) -> bool {
        self.session.streaming.load(Ordering::Acquire) == self.number
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        if self.session.kind == SessionKind::OldSse {
            // Nobody can hear its answers any more.
            self.sessions.close(&self.session);
            return;
        }
        let now = self.sessions.now();
        self.session.last_used.store(now, Ordering::Relaxed);
        // Unless it was taken over, in which case there is another.
        let _ = self.session.streaming.compare_exchange(
            self.number,
            0,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(in_all: usize, of_principal: usize) -> Arc<Sessions> {
        let limits = HttpLimits {
            max_sessions: in_all,
            max_sessions_per_principal: of_principal,
            session_idle: Duration::from_secs(10),
            ..HttpLimits::default()
        };
        Sessions::new(limits, None)
    }

    #[tokio::test(start_paused = true)]
    async fn both_bounds_hold_and_closing_makes_room() {
        let (a, b, c) = (
            Principal::new("a"),
            Principal::new("b"),
            Principal::new("c"),
        );
        let sessions = sessions(3, 2);
        let first = sessions.open(SessionKind::Streamable, &a).unwrap();
        sessions.open(SessionKind::Streamable, &a).unwrap();
        assert_eq!(
            sessions.open(SessionKind::Streamable, &a).err(),
            Some(TooManySessions::OfPrincipal(2))
        );
        sessions.open(SessionKind::Streamable, &b).unwrap();
        assert_eq!(
            sessions.open(SessionKind::Streamable, &c).err(),
            Some(TooManySessions::InAll(3))
        );
        sessions.close(&first);
        sessions.close(&first);
        assert_eq!(sessions.len(), 2, "closed once");
        sessions.open(SessionKind::Streamable, &c).unwrap();
        assert!(
            sessions
                .find(SessionKind::Streamable, &first.id, &a)
                .is_none()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_used_does_not_end() {
        let a = Principal::new("a");
        let sessions = sessions(10, 10);
        let used = sessions.open(SessionKind::Streamable, &a).unwrap();
        let streamed = sessions.open(SessionKind::Streamable, &a).unwrap();
        let idle = sessions.open(SessionKind::Streamable, &a).unwrap();
        let stream = sessions.stream(Arc::clone(&streamed)).unwrap();
        assert!(
            sessions.stream(Arc::clone(&streamed)).is_none(),
            "one at a time"
        );
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(6)).await;
            sessions
                .find(SessionKind::Streamable, &used.id, &a)
                .unwrap();
            sessions.sweep();
        }
        assert_eq!(sessions.len(), 2);
        assert!(
            sessions
                .find(SessionKind::Streamable, &idle.id, &a)
                .is_none()
        );
        assert!(idle.connection.outbox().is_closed());
        drop(stream);
        tokio::time::advance(Duration::from_secs(9)).await;
        sessions.sweep();
        assert_eq!(sessions.len(), 2, "idle since the stream ended");
        tokio::time::advance(Duration::from_secs(2)).await;
        sessions.sweep();
        assert_eq!(sessions.len(), 0);
        assert!(sessions.counts().per_principal.is_empty());
    }
}
