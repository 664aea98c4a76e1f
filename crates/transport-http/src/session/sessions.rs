//! The sessions of the legacy era.

mod overview;
mod survival;

pub use overview::{SessionDesk, SessionOverview, SessionRow};

use crate::{
    options::HttpLimits,
    seams::persistence::PersistSessions,
    session::replay::{Replay, Room},
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

/// Transport that a session belongs to. A session of one is unknown to the other.
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
    /// Events of its streams.
    pub(crate) replay: Arc<Replay>,
    /// The number of its own stream that is open, 0 for none. A client has at most one of those:
    /// every message is on exactly one.
    streaming: AtomicU64,
    /// As [`Sessions::now`] tells it.
    last_used: AtomicU64,
    /// Time of last use that is stored, if the session is.
    last_kept: AtomicU64,
    /// True if the keeper knows of it, and is to. Held while it is told.
    is_kept: Mutex<bool>,
    /// Number of processes it has been through before this one.
    lives: u32,
    /// True if its client has not been seen since it was restored.
    is_awaited: AtomicBool,
}

/// Messages that an old session's stream is still to carry before it may end.
#[derive(Default)]
struct Owed {
    answers: usize,
    ending: bool,
}

/// Message owed on an old session's stream, until it is dropped.
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
    counts: Mutex<Stats>,
    limits: HttpLimits,
    keeper: Option<Arc<dyn PersistSessions>>,
    began: Instant,
    room: Arc<Room>,
    streams: AtomicU64,
    evicted: AtomicU64,
    /// Number of sessions refused because no other one could be ended.
    refused: AtomicU64,
    /// Time of the last refusal, as [`Sessions::now`] gives it; 0 if there was none.
    full_at: AtomicU64,
}

const SHARDS: usize = 16;

#[derive(Default)]
struct Stats {
    total: usize,
    per_principal: HashMap<Principal, usize>,
}

/// Reason why no further session may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooManySessions {
    #[error("too many sessions; at most {0} are open at once")]
    InAll(usize),
    #[error("too many sessions; at most {0} per client are open at once")]
    OfPrincipal(usize),
}

impl Sessions {
    pub(crate) fn new(limits: HttpLimits, keeper: Option<Arc<dyn PersistSessions>>) -> Arc<Self> {
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
            evicted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            full_at: AtomicU64::new(0),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.counts().total
    }

    /// Opens a session for `principal`, on which nothing has been agreed yet. If there are too many, the
    /// one that was idle longest makes room: of the principal if it has too many, else of all. One that
    /// has a stream or a request that is not answered stays.
    pub(crate) fn open(
        &self,
        kind: SessionKind,
        principal: &Principal,
    ) -> Result<Arc<Session>, TooManySessions> {
        self.count(principal).or_else(|_| {
            // Room may be taken by sessions that have ended and were not yet swept away.
            self.sweep();
            self.count_after_eviction(principal)
        })?;
        let id: Arc<str> = uuid::Uuid::new_v4().to_string().into();
        let session = Arc::new(self.make(kind, id, principal, 0));
        self.insert(&session);
        Ok(session)
    }

    fn count_after_eviction(&self, principal: &Principal) -> Result<(), TooManySessions> {
        loop {
            let Err(full) = self.count(principal) else {
                return Ok(());
            };
            self.full_at.store(self.now(), Ordering::Relaxed);
            let of = match full {
                TooManySessions::InAll(_) => None,
                TooManySessions::OfPrincipal(_) => Some(principal),
            };
            // Another may have come to be used or to its end meanwhile; then there is a next one.
            let Some(idle) = self.idle_longest(of) else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Err(full);
            };
            if !idle.is_in_use() && self.let_go(&idle) {
                let evicted = self.evicted.fetch_add(1, Ordering::Relaxed) + 1;
                // Told often, it would fill the log.
                if evicted.is_power_of_two() {
                    tracing::warn!(
                        principal = %idle.connection.principal(),
                        idle_seconds = self.idle(&idle).as_secs(),
                        evicted,
                        reason = %full,
                        "the session that was idle longest was ended to make room for a new one; told at the \
                         first, second, fourth, eighth… of them"
                    );
                }
            }
        }
    }

    /// The least recently used session without a stream or a running request: of `principal`, or of all.
    fn idle_longest(&self, principal: Option<&Principal>) -> Option<Arc<Session>> {
        let mut found: Option<(u64, Arc<Session>)> = None;
        for shard in &self.shards {
            for session in lock(shard).values() {
                let last_used = session.last_used.load(Ordering::Relaxed);
                if found
                    .as_ref()
                    .is_none_or(|(earliest, _)| last_used < *earliest)
                    && principal.is_none_or(|it| session.connection.principal() == it)
                    && !session.is_in_use()
                {
                    found = Some((last_used, Arc::clone(session)));
                }
            }
        }
        found.map(|(_, session)| session)
    }

    /// Time since the last use of a session.
    fn idle(&self, session: &Session) -> Duration {
        let last_used = session.last_used.load(Ordering::Relaxed);
        Duration::from_millis(self.now().saturating_sub(last_used))
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
        self.remove(session);
    }

    /// Ends a session that is not used here: where processes share sessions, here alone.
    fn let_go(&self, session: &Session) -> bool {
        if self.is_shared() {
            *lock(&session.is_kept) = false;
        }
        self.remove(session)
    }

    /// The same; whether it had not ended before.
    fn remove(&self, session: &Session) -> bool {
        let Some(session) = self.shard(&session.id).remove(&session.id) else {
            return false;
        };
        self.keep_no_longer(&session);
        session.connection.close();
        self.uncount(session.connection.principal());
        true
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

    /// Begins or continues the session's stream, instead of one that may be open: its client often
    /// knows before we do that it has lost that one, and a network that is gone does not say so.
    pub(crate) fn stream(self: &Arc<Self>, session: Arc<Session>) -> Streaming {
        let number = self.next_stream();
        if session.streaming.swap(number, Ordering::AcqRel) != 0 {
            session.connection.outbox().wake_reader();
        }
        Streaming {
            session,
            number,
            sessions: Arc::clone(self),
        }
    }

    fn next_stream(&self) -> u64 {
        self.streams.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Ends the sessions that have been unused for too long.
    pub(crate) fn sweep(&self) {
        let idle = u64::try_from(self.limits.session_idle.as_millis()).unwrap_or(u64::MAX);
        let now = self.now();
        let shared = self.is_shared();
        self.touch();
        self.close_all(|session| {
            let is_idle = idle <= now.saturating_sub(session.last_used.load(Ordering::Relaxed))
                && !session.is_in_use();
            if is_idle && shared {
                // It may be used elsewhere.
                *lock(&session.is_kept) = false;
            }
            is_idle
        });
    }

    /// Interval at which [`Sessions::sweep`] is worth the while.
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
        let most = self.limits.max_sessions_per_principal;
        let known = counts.per_principal.get(principal).copied().unwrap_or(0);
        // First, so that whoever has too many makes room among its own.
        if most <= known {
            return Err(TooManySessions::OfPrincipal(most));
        }
        if self.limits.max_sessions <= counts.total {
            return Err(TooManySessions::InAll(self.limits.max_sessions));
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

    fn counts(&self) -> MutexGuard<'_, Stats> {
        lock(&self.counts)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Returns true if it has a stream, or requests that are not answered yet.
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
    /// Returns true if the client has not continued it elsewhere.
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
    async fn both_bounds_hold_and_who_is_idle_longest_makes_room() {
        let [a, b, c] = ["a", "b", "c"].map(Principal::new);
        let sessions = sessions(3, 2);
        let open = async |principal: &Principal| {
            tokio::time::advance(Duration::from_millis(5)).await;
            sessions.open(SessionKind::Streamable, principal).unwrap()
        };
        let is_open = |session: &Session| {
            let principal = session.connection.principal();
            sessions
                .find(SessionKind::Streamable, &session.id, principal)
                .is_some()
        };
        let (of_b, first, second) = (open(&b).await, open(&a).await, open(&a).await);
        tokio::time::advance(Duration::from_millis(5)).await;
        assert!(is_open(&first), "used again, and so idle for less long");
        let third = open(&a).await;
        assert!(
            !is_open(&second),
            "the principal's own, although another's is idle for longer"
        );
        let of_c = open(&c).await;
        assert!(!is_open(&of_b), "of all, where there are too many of all");
        assert_eq!((sessions.len(), sessions.overview().evicted), (3, 2));
        // What is used stays: only then is a new one refused.
        let streams = [&first, &third].map(|it| sessions.stream(Arc::clone(it)));
        assert_eq!(
            sessions.open(SessionKind::Streamable, &a).err(),
            Some(TooManySessions::OfPrincipal(2))
        );
        let _streams = (streams, sessions.stream(of_c));
        assert_eq!(
            sessions.open(SessionKind::Streamable, &b).err(),
            Some(TooManySessions::InAll(3))
        );
        let overview = sessions.overview();
        assert_eq!((overview.refused, overview.open), (2, 3));
        assert!(overview.full_since.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn operators_list_and_end_sessions() {
        let [a, b] = ["a", "b"].map(Principal::new);
        let sessions = sessions(10, 10);
        let first = sessions.open(SessionKind::Streamable, &a).unwrap();
        tokio::time::advance(Duration::from_secs(2)).await;
        let second = sessions.open(SessionKind::Streamable, &a).unwrap();
        sessions.open(SessionKind::OldSse, &b).unwrap();
        let _stream = sessions.stream(Arc::clone(&second));
        let rows = sessions.rows(Some("a"));
        let idle: Vec<_> = rows.iter().map(|it| (&*it.id, it.idle.as_secs())).collect();
        assert_eq!(idle, [(&*first.id, 2), (&*second.id, 0)]);
        assert_eq!((rows[0].is_streaming, rows[1].is_streaming), (false, true));
        assert_eq!(sessions.rows(None).len(), 3);
        assert!(sessions.end(&second.id) && !sessions.end(&second.id));
        assert_eq!((sessions.end_all_of("a"), sessions.end_all_of("a")), (1, 0));
        assert_eq!(sessions.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_makes_room() {
        let a = Principal::new("a");
        let sessions = sessions(3, 2);
        let first = sessions.open(SessionKind::Streamable, &a).unwrap();
        sessions.open(SessionKind::Streamable, &a).unwrap();
        sessions.close(&first);
        sessions.close(&first);
        assert_eq!(sessions.len(), 1, "closed once");
        sessions.open(SessionKind::Streamable, &a).unwrap();
        assert_eq!(sessions.overview().evicted, 0);
        let found = sessions.find(SessionKind::Streamable, &first.id, &a);
        assert!(found.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_used_does_not_end() {
        let a = Principal::new("a");
        let sessions = sessions(10, 10);
        let used = sessions.open(SessionKind::Streamable, &a).unwrap();
        let streamed = sessions.open(SessionKind::Streamable, &a).unwrap();
        let idle = sessions.open(SessionKind::Streamable, &a).unwrap();
        let lost = sessions.stream(Arc::clone(&streamed));
        let stream = sessions.stream(Arc::clone(&streamed));
        assert!(
            !lost.is_current() && stream.is_current(),
            "one at a time, which is the last"
        );
        drop(lost);
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
