//! Legacy sessions that outlive the server: the transport reports them, and a store keeps them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster::Cluster;
use mcp_server::{Component, ComponentState};
use session_store::{OpenError, SessionRecord, SessionStore};
use transport_http::{
    PersistSessions, PersistedSession, SessionDesk, SessionFollower, SessionOverview, ShareSessions,
};

use super::session_state::{read_state, written_state};
use super::shared_sessions::SharedSessions;
use crate::Failure;
use config::{Config, Transport};

/// The part of `/health` that says whether sessions would survive. Without it everything else works.
pub(super) const COMPONENT: &str = "sessions";

/// The sessions of the server as it runs, once it does.
pub(super) type LiveSessions = OnceLock<SessionDesk>;

/// Time for which `/health` reports that a session was refused.
const FULL: Duration = Duration::from_secs(5 * 60);

/// Time that storing may take at the end. Writes that are missed then only tell when sessions were
/// last used.
const CLOSING: Duration = Duration::from_millis(500);

/// Sessions that outlive this process.
#[derive(Debug)]
pub(super) enum KeptSessions {
    /// Sessions of an earlier process, and those of this one for the next.
    File(FileSessions),
    /// Sessions that all servers have.
    Shared(SharedSessions),
}

/// Sessions in a file.
#[derive(Debug)]
pub(super) struct FileSessions {
    store: SessionStore,
    /// Sessions found in the store, until they are taken.
    found: Mutex<Vec<SessionRecord>>,
}

/// Opens the store, if sessions are to be kept.
pub(super) fn open(
    config: &Config,
    cluster: Option<&Cluster>,
) -> Result<Option<Arc<KeptSessions>>, Failure> {
    if config.transport != Transport::Http || !config.http.keep_sessions {
        return Ok(None);
    }
    if let Some(cluster) = cluster.filter(|_| config.shares_sessions()) {
        let idle = Duration::from_secs(config.http.session_idle_seconds);
        let shared = SharedSessions::open(cluster, idle);
        return Ok(Some(Arc::new(KeptSessions::Shared(shared))));
    }
    let opened = SessionStore::open(config.sessions_path()).map_err(|error| match error {
        OpenError::Locked(_) => Failure::from(format!(
            "{error}; every server needs a session store of its own: set http.sessions_path"
        )),
        OpenError::NotASessionStore(_) => Failure::from(format!(
            "{error}; set http.sessions_path to where one may be, or move the file away"
        )),
        error => error.into(),
    })?;
    if let Some(aside) = &opened.set_aside {
        tracing::warn!(
            moved_to = %aside.path.display(),
            why = aside.why,
            "the session store cannot be used, and another is begun; clients initialize again"
        );
    }
    Ok(Some(Arc::new(KeptSessions::File(FileSessions {
        store: opened.store,
        found: Mutex::new(opened.sessions),
    }))))
}

impl KeptSessions {
    /// Waits, for a while at most, until the next process would find what this one knows.
    pub(super) async fn close(&self) {
        if tokio::time::timeout(CLOSING, self.settled()).await.is_err() {
            tracing::error!("sessions could not be stored; their clients initialize again");
        }
    }

    /// Tells `sessions` what other servers do to them, for as long as it is awaited.
    pub(super) async fn follow(&self, sessions: &dyn SessionFollower) {
        if let Self::Shared(shared) = self {
            shared.follow(sessions).await;
        }
    }

    fn trouble(&self) -> Option<String> {
        match self {
            Self::File(file) => file.store.trouble(),
            Self::Shared(shared) => shared.trouble(),
        }
    }
}

/// The part of `/health` about sessions: problems of their store, and sessions refused lately. Does not
/// hold the store open.
pub(super) fn component(kept: Option<&Arc<KeptSessions>>, live: &Arc<LiveSessions>) -> Component {
    let kept = kept.map(Arc::downgrade);
    let live = Arc::clone(live);
    Component::new(move || {
        let store = kept.as_ref().and_then(|it| it.upgrade()?.trouble());
        let overview = live.get().map(SessionDesk::overview);
        let full = overview.filter(|it| it.full_since.is_some_and(|since| since < FULL));
        let troubles: Vec<_> = store
            .map(|why| format!("cannot be stored: {why}"))
            .into_iter()
            .chain(full.map(too_many))
            .collect();
        ComponentState {
            name: COMPONENT,
            ok: troubles.is_empty(),
            detail: (!troubles.is_empty()).then(|| troubles.join("; ")),
        }
    })
}

fn too_many(of: SessionOverview) -> String {
    let SessionOverview {
        open,
        max,
        max_per_principal,
        evicted,
        refused,
        full_since,
    } = of;
    let ago = full_since.unwrap_or_default().as_secs();
    format!(
        "there was no room for another {ago} s ago: {open} are open, of {max} (`http.max_sessions`) and \
         of {max_per_principal} of one client (`http.limits.max_sessions_per_client`); since the start \
         {evicted} that were idle longest were ended for others, and {refused} were refused"
    )
}

impl PersistSessions for KeptSessions {
    fn load(&self) -> Vec<PersistedSession> {
        let Self::File(file) = self else {
            // Those that are shared are taken up when their clients come.
            return Vec::new();
        };
        let found = std::mem::take(&mut *file.found.lock().unwrap_or_else(PoisonError::into_inner));
        let (all, mut kept) = (found.len(), Vec::with_capacity(found.len()));
        for record in found {
            let id = record.id.clone();
            match decode(record) {
                Some(session) => kept.push(session),
                None => file.store.remove(&id),
            }
        }
        if kept.len() < all {
            let unreadable = all - kept.len();
            tracing::warn!(unreadable, "sessions were not restored");
        }
        kept
    }

    fn put(&self, session: &PersistedSession) {
        let file = match self {
            Self::File(file) => file,
            Self::Shared(shared) => return shared.put(session),
        };
        file.store.put(SessionRecord {
            id: session.id.to_string(),
            principal: session.principal.to_string(),
            state: written_state(&session.state),
            lives: session.lives,
            last_used_ms: milliseconds(session.last_used),
        });
    }

    fn touch(&self, id: &str, last_used: SystemTime) {
        match self {
            Self::File(file) => file.store.touch(id, milliseconds(last_used)),
            Self::Shared(shared) => shared.touch(id, last_used),
        }
    }

    fn remove(&self, id: &str) {
        match self {
            Self::File(file) => file.store.remove(id),
            Self::Shared(shared) => shared.remove(id),
        }
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        match self {
            Self::File(file) => Box::pin(file.store.settled()),
            Self::Shared(shared) => Box::pin(shared.settled()),
        }
    }

    fn shared(&self) -> Option<&dyn ShareSessions> {
        match self {
            Self::File(_) => None,
            Self::Shared(shared) => Some(shared),
        }
    }
}

fn decode(record: SessionRecord) -> Option<PersistedSession> {
    Some(PersistedSession {
        id: record.id.into(),
        principal: record.principal.into(),
        state: read_state(&record.state)?,
        lives: record.lives,
        last_used: UNIX_EPOCH
            .checked_add(Duration::from_millis(record.last_used_ms))
            .unwrap_or(UNIX_EPOCH),
    })
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcp_protocol::model::LoggingLevel;
    use mcp_service::SessionState;

    fn record(state: &str) -> SessionRecord {
        SessionRecord {
            id: "5f2c".to_owned(),
            principal: "alice".to_owned(),
            state: state.to_owned(),
            lives: 7,
            last_used_ms: 1_790_000_000_000,
        }
    }

    #[test]
    fn a_session_is_read_as_it_was_written() {
        let capabilities = r#"{"roots":{"listChanged":true},"elicitation":{"form":{},"url":{}}}"#;
        let founding = ("2024-11-05", true);
        let dated = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"].map(|it| (it, false));
        for (version, is_founding) in dated.into_iter().chain([founding]) {
            let state = SessionState {
                version: version.parse().unwrap(),
                is_founding,
                capabilities: serde_json::from_str(capabilities).unwrap(),
                log_level: LoggingLevel::Warning,
                resources: vec!["skill://a/b".to_owned()],
                tasks: vec!["one".to_owned(), "two".to_owned()],
            };
            let read = decode(record(&written_state(&state))).unwrap();
            assert_eq!(read.state, state);
            assert_eq!(
                (&*read.id, &*read.principal, read.lives),
                ("5f2c", "alice", 7)
            );
            assert_eq!(milliseconds(read.last_used), 1_790_000_000_000);
        }
    }

    #[test]
    fn what_cannot_be_gone_on_with_is_not_read() {
        let good = r#"{"version":"2025-06-18","capabilities":{},"log_level":"info","later":1}"#;
        assert!(
            decode(record(good)).is_some(),
            "whatever else is known of it"
        );
        for bad in [
            "",
            "{}",
            &good.replace("2025-06-18", "2026-07-28"),
            &good.replace("2025-06-18", "2099-01-01"),
            &good.replace("info", "loud"),
            &good.replace("{}", "7"),
        ] {
            assert!(decode(record(bad)).is_none(), "{bad}");
        }
    }
}
