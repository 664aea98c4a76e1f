//! Sessions that outlive the process: what is told to the keeper, and when.
//!
//! A request in a session tells it nothing. When the session was last used is told with the next
//! sweep, in so far as it was.

use super::{Session, SessionKind, Sessions, lock};
use crate::seams::persistence::{PersistSessions, PersistedSession, ShareSessions, Unavailable};
use bytes::Bytes;
use mcp_service::{Engine, McpService, Principal, SessionState};
use std::{
    cmp::Reverse,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

/// Time that storing the end of a session may take before its client is told that it is over.
const SETTLING: Duration = Duration::from_secs(1);

impl Sessions {
    /// Goes on with what was kept, those used last first, as long as there is room. The others are
    /// kept no longer.
    pub(crate) fn restore<S>(&self, engine: &Engine<S>)
    where
        S: McpService,
    {
        let Some(keeper) = &self.keeper else { return };
        let mut kept = keeper.load();
        kept.sort_by_key(|session| Reverse(session.last_used));
        let (found, now) = (kept.len(), SystemTime::now());
        for session in kept {
            let id = Arc::clone(&session.id);
            if let Err(why) = self.resume(engine, session, now) {
                tracing::debug!(why, "a session was not restored");
                keeper.remove(&id);
            }
        }
        if 0 < found {
            tracing::info!(found, restored = self.len(), "sessions were restored");
        }
    }

    /// True if other processes have the same sessions.
    pub(super) fn is_shared(&self) -> bool {
        self.shared().is_some()
    }

    fn shared(&self) -> Option<&dyn ShareSessions> {
        self.keeper.as_ref()?.shared()
    }

    /// Takes a session up that other processes have, if it is not here and is this principal's.
    pub(crate) async fn take_up<S>(
        &self,
        engine: &Engine<S>,
        id: &str,
        principal: &Principal,
    ) -> Result<(), Unavailable>
    where
        S: McpService,
    {
        let Some(shared) = self.shared() else {
            return Ok(());
        };
        if self.is_here(id) {
            return Ok(());
        }
        let Some(kept) = shared.take_up(id, principal.as_str()).await? else {
            return Ok(());
        };
        // Two requests may have come at once, and one of them was first.
        if self.is_here(id) {
            return Ok(());
        }
        if let Err(why) = self.insert_kept(engine, kept, principal) {
            tracing::warn!(why, "a session of another server was not taken up");
            return Err(Unavailable);
        }
        Ok(())
    }

    pub(crate) fn is_here(&self, id: &str) -> bool {
        self.shard(id).contains_key(id)
    }

    fn insert_kept<S>(
        &self,
        engine: &Engine<S>,
        kept: PersistedSession,
        principal: &Principal,
    ) -> Result<(), &'static str>
    where
        S: McpService,
    {
        self.count(principal)
            .or_else(|_| {
                self.sweep();
                self.count_after_eviction(principal)
            })
            .map_err(|_| "there are too many")?;
        let lives = kept.lives;
        let session = Arc::new(self.make(SessionKind::Streamable, kept.id, principal, lives));
        if engine.resume(&session.connection, kept.state).is_err() {
            self.uncount(principal);
            return Err("there are too many subscriptions");
        }
        {
            let mut shard = self.shard(&session.id);
            if shard.contains_key(&session.id) {
                drop(shard);
                self.uncount(principal);
                session.connection.close();
                return Ok(());
            }
            shard.insert(Arc::clone(&session.id), Arc::clone(&session));
        }
        self.watch(&session);
        Ok(())
    }

    /// Has the keeper hear of what becomes of a session, from now on.
    fn watch(&self, session: &Arc<Session>) {
        let Some(keeper) = &self.keeper else { return };
        *lock(&session.is_kept) = true;
        let last = session.last_used.load(Ordering::Relaxed);
        session.last_kept.store(last, Ordering::Relaxed);
        let (weak, told) = (Arc::downgrade(session), Arc::clone(keeper));
        session.connection.on_change(move || {
            if let Some(session) = weak.upgrade() {
                session.put(&*told, SystemTime::now());
            }
        });
        if keeper.shared().is_some() {
            let (id, keeper) = (Arc::clone(&session.id), Arc::clone(keeper));
            session.connection.pass_on_by(move |message| {
                if let Some(shared) = keeper.shared() {
                    shared.pass_on(&id, message);
                }
            });
        }
    }

    /// Ids of the sessions that the keeper knows.
    pub(crate) fn kept_ids(&self) -> Vec<Arc<str>> {
        let all = self.shards.iter().flat_map(|shard| {
            let kept = lock(shard);
            let kept = kept.values().filter(|it| *lock(&it.is_kept));
            kept.map(|it| Arc::clone(&it.id)).collect::<Vec<_>>()
        });
        all.collect()
    }

    /// Takes over what another process has made of a session.
    pub(crate) fn changed_elsewhere<S>(
        &self,
        engine: &Engine<S>,
        id: &str,
        now: Option<SessionState>,
    ) where
        S: McpService,
    {
        let session = self.shard(id).get(id).cloned();
        let Some(session) = session.filter(|it| it.kind == SessionKind::Streamable) else {
            return;
        };
        match now {
            Some(state) if session.connection.state().as_ref() == Some(&state) => {}
            Some(state) => engine.align(&session.connection, state),
            None => {
                *lock(&session.is_kept) = false;
                self.close(&session);
            }
        }
    }

    /// Takes what the client of a session has sent to another process.
    pub(crate) fn said_elsewhere<S>(&self, engine: &Engine<S>, id: &str, message: &Bytes)
    where
        S: McpService,
    {
        let session = self.shard(id).get(id).cloned();
        if let Some(session) = session {
            engine.said_elsewhere(&session.connection, message);
        }
    }

    fn resume<S>(
        &self,
        engine: &Engine<S>,
        kept: PersistedSession,
        now: SystemTime,
    ) -> Result<(), &'static str>
    where
        S: McpService,
    {
        // Of a clock that was set back nothing can be concluded.
        let age = now.duration_since(kept.last_used).unwrap_or_default();
        if self.limits.session_idle <= age {
            return Err("it was unused for too long");
        }
        let principal = Principal::new(kept.principal);
        self.count(&principal).map_err(|_| "there are too many")?;
        let lives = kept.lives.saturating_add(1);
        let session = self.make(SessionKind::Streamable, kept.id, &principal, lives);
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let last_used = self.now().saturating_sub(age);
        session.last_used.store(last_used, Ordering::Relaxed);
        let session = Arc::new(session);
        if engine.resume(&session.connection, kept.state).is_err() {
            self.uncount(&principal);
            return Err("there are too many subscriptions");
        }
        self.insert(&session);
        // With one more life, so that the next process does not number its events like this one.
        self.keep_since(&session, kept.last_used.min(now));
        Ok(())
    }

    /// Keeps a session on which something has been agreed, from now on until its end.
    pub(crate) fn keep(&self, session: &Arc<Session>) {
        self.keep_since(session, SystemTime::now());
    }

    fn keep_since(&self, session: &Arc<Session>, last_used: SystemTime) {
        let Some(keeper) = &self.keeper else { return };
        self.watch(session);
        session.put(&**keeper, last_used);
    }

    /// Has a session end with its end, and not come back with the next process.
    pub(super) fn keep_no_longer(&self, session: &Session) {
        let Some(keeper) = &self.keeper else { return };
        let mut is_kept = lock(&session.is_kept);
        if std::mem::take(&mut *is_kept) {
            keeper.remove(&session.id);
        }
    }

    /// Waits, for a while at most, until other processes know of a session that has begun here.
    pub(crate) async fn shared_by_now(&self) {
        if self.is_shared() {
            self.settled().await;
        }
    }

    /// Waits, for a while at most, until what has ended would stay so if the process ended now.
    pub(crate) async fn settled(&self) {
        if let Some(keeper) = &self.keeper
            && tokio::time::timeout(SETTLING, keeper.settled())
                .await
                .is_err()
        {
            tracing::warn!("a session has begun or ended, which could not be stored in time");
        }
    }

    /// Tells the keeper when sessions were last used, of which it does not know that yet.
    pub(super) fn touch(&self) {
        let least = u64::try_from(self.sweep_interval().as_millis() / 2).unwrap_or(u64::MAX);
        self.touch_after(least);
    }

    fn touch_after(&self, least: u64) {
        let Some(keeper) = &self.keeper else { return };
        let (now, wall) = (self.now(), SystemTime::now());
        for shard in &self.shards {
            for session in lock(shard).values() {
                let last = session.last_used(now);
                let known = session.last_kept.load(Ordering::Relaxed);
                if last < known.saturating_add(least) || !*lock(&session.is_kept) {
                    continue;
                }
                session.last_kept.store(last, Ordering::Relaxed);
                let age = Duration::from_millis(now.saturating_sub(last));
                keeper.touch(&session.id, wall.checked_sub(age).unwrap_or(wall));
            }
        }
    }

    /// Ends all sessions here. Those that are kept go on in the next process.
    pub(crate) fn shut_down(&self) {
        self.touch_after(1);
        self.close_all(|session| {
            *lock(&session.is_kept) = false;
            true
        });
    }
}

impl Session {
    /// Time of its last use: now, if it is in use.
    fn last_used(&self, now: u64) -> u64 {
        match self.is_in_use() {
            true => now,
            false => self.last_used.load(Ordering::Relaxed),
        }
    }

    /// Stores the session. Its lock is held meanwhile: a task that has ended the session must not
    /// see it come back.
    fn put(&self, keeper: &dyn PersistSessions, last_used: SystemTime) {
        let is_kept = lock(&self.is_kept);
        if !*is_kept {
            return;
        }
        if let Some(state) = self.connection.state() {
            keeper.put(&PersistedSession {
                id: Arc::clone(&self.id),
                principal: self.connection.principal().as_str().into(),
                state,
                lives: self.lives,
                last_used,
            });
        }
    }
}
