//! Sessions of the dialect (rows 31 to 35 of document 004).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use mcp_service::{Connection, Principal};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    dialect::{events::Events, watching::Watcher},
    failure::{Failure, TOO_MANY},
    options::HostOptions,
};

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionState {
    /// No request has come yet.
    Created,
    /// A request runs, or came lately.
    Active,
    /// No request has come for a while.
    Idle,
}

/// A session: belongs to the principal that has created it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: Arc<str>,
    pub(crate) connection: Arc<Connection>,
    pub(crate) created: SystemTime,
    pub(crate) events: Events,
    /// Streams that are open.
    pub(crate) streams: AtomicUsize,
    /// Requests under way.
    pub(crate) running: AtomicUsize,
    /// Held by whoever makes subscriptions those that watchers need.
    pub(crate) settling: tokio::sync::Mutex<()>,
    next: AtomicU64,
    used: Mutex<Used>,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Used {
    last: Instant,
    wall: SystemTime,
    has_asked: bool,
    /// The minute that requests are counted in.
    minute: Instant,
    count: usize,
}

/// Facts about a session that its requests change.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The principal with the roles that it had when it was here last.
    pub(crate) principal: Option<Principal>,
    pub(crate) connected: BTreeSet<String>,
    pub(crate) watchers: BTreeMap<String, Watcher>,
    /// Addresses that are subscribed to.
    pub(crate) subscribed: BTreeSet<String>,
    /// Addresses that watchers look at and that may not be subscribed to.
    pub(crate) refused: BTreeSet<String>,
    /// Tasks by the token of their progress.
    pub(crate) tasks: HashMap<String, String>,
}

/// A request of a session that is under way, until it is dropped.
pub(crate) struct Running<'s>(&'s Session);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
        self.0.touch();
    }
}

/// Seconds since the epoch.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

impl Session {
    pub(crate) fn new(
        id: Arc<str>,
        connection: Arc<Connection>,
        created: SystemTime,
        options: &HostOptions,
    ) -> Self {
        let now = Instant::now();
        Self {
            id,
            connection,
            created,
            events: Events::new(options.max_queued_bytes),
            streams: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            settling: tokio::sync::Mutex::default(),
            next: AtomicU64::new(0),
            used: Mutex::new(Used {
                last: now,
                wall: SystemTime::now(),
                has_asked: false,
                minute: now,
                count: 0,
            }),
            known: Mutex::default(),
        }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no other request of this session has.
    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn touch(&self) {
        let mut used = self.used();
        used.last = Instant::now();
        used.wall = SystemTime::now();
    }

    /// Sets the time of the last use, of a session that was taken up again.
    pub(crate) fn was_used(&self, at: SystemTime) {
        let mut used = self.used();
        let since = SystemTime::now().duration_since(at).unwrap_or_default();
        used.last = Instant::now().checked_sub(since).unwrap_or(used.last);
        used.wall = at;
        used.has_asked = true;
    }

    /// Begins a request.
    ///
    /// # Errors
    ///
    /// -32429 where the session has as many as it may have.
    pub(crate) fn begin(
        &self,
        principal: &Principal,
        options: &HostOptions,
    ) -> Result<Running<'_>, Failure> {
        const MINUTE: Duration = Duration::from_secs(60);
        {
            let mut used = self.used();
            let now = Instant::now();
            if MINUTE <= now.duration_since(used.minute) {
                (used.minute, used.count) = (now, 0);
            }
            if options.max_requests_per_minute <= used.count {
                let left = MINUTE.saturating_sub(now.duration_since(used.minute));
                let most = options.max_requests_per_minute;
                let why = format!("too many requests: {most} in a minute for each session");
                let failure = Failure::new(TOO_MANY, why).with("retryable", true);
                return Err(failure.with("retry_after", left.as_secs() + 1));
            }
            used.count += 1;
            used.has_asked = true;
        }
        self.touch();
        if options.max_concurrent_requests <= self.running.fetch_add(1, Ordering::AcqRel) {
            self.running.fetch_sub(1, Ordering::AcqRel);
            let most = options.max_concurrent_requests;
            let why = format!("too many requests: {most} at once for each session");
            return Err(Failure::new(TOO_MANY, why).with("retryable", true));
        }
        self.known().principal = Some(principal.clone());
        Ok(Running(self))
    }

    pub(crate) fn idle(&self) -> Duration {
        if 0 < self.running.load(Ordering::Acquire) || 0 < self.streams.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        self.used().last.elapsed()
    }

    pub(crate) fn last_activity(&self) -> SystemTime {
        self.used().wall
    }

    pub(crate) fn state(&self, options: &HostOptions) -> SessionState {
        let (has_asked, last) = {
            let used = self.used();
            (used.has_asked, used.last)
        };
        if 0 < self.running.load(Ordering::Acquire) {
            SessionState::Active
        } else if !has_asked {
            SessionState::Created
        } else if last.elapsed() < options.idle_after {
            SessionState::Active
        } else {
            SessionState::Idle
        }
    }

    /// The time at which the session ends if nothing is asked until then.
    pub(crate) fn expires(&self, options: &HostOptions) -> SystemTime {
        self.last_activity() + options.session_timeout
    }

    /// Queues a notification.
    pub(crate) fn tell(&self, method: &str, params: Value, source: Option<&str>) {
        let mut told = json!({
            "jsonrpc": "2.0", "method": method, "params": params, "session": &*self.id,
        });
        if let Some(source) = source {
            told["source"] = source.into();
        }
        self.events.push(&told);
    }

    /// Ends it: its requests are cancelled, its stream ends.
    pub(crate) fn close(&self) {
        self.connection.close();
        self.events.close();
    }
}
