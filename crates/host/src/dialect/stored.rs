//! The state file: sessions that outlive a restart (row 134 of document 004).

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use mcp_service::{McpService, Principal};
use serde::{Deserialize, Serialize};

use crate::dialect::{
    session::{SessionState, seconds},
    sessions::Host,
};

/// The state file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct StateError {
    path: PathBuf,
    why: String,
}

/// The longest state file that is read.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct State {
    timestamp: u64,
    sessions: BTreeMap<String, Stored>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    client_id: String,
    created_at: u64,
    last_activity: u64,
    #[serde(skip_deserializing)]
    state: Option<SessionState>,
    connected_servers: BTreeSet<String>,
}

fn time(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

impl<S: McpService> Host<S> {
    /// Stores the sessions, where there is a state file.
    pub(crate) fn store_state(&self) {
        let Some(path) = &self.options.state_file else {
            return;
        };
        let sessions = self.all().values().map(Arc::clone).collect::<Vec<_>>();
        let sessions = sessions.iter().map(|it| {
            let stored = Stored {
                client_id: it.connection.principal().as_str().to_owned(),
                created_at: seconds(it.created),
                last_activity: seconds(it.last_activity()),
                state: Some(it.state(&self.options)),
                connected_servers: it.known().connected.clone(),
            };
            (it.id.to_string(), stored)
        });
        let state = State {
            timestamp: seconds(SystemTime::now()),
            sessions: sessions.collect(),
        };
        let written = serde_json::to_vec(&state).map_err(std::io::Error::from);
        let written = written.and_then(|it| regular_file::replace_private(path, &it));
        let failure = written.err().map(|error| {
            let path = path.display();
            tracing::error!(%path, %error, "the sessions of the host cannot be stored");
            format!("sessions cannot be stored in {path}: {error}")
        });
        *self.unstored.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// The reason why sessions could not be stored the last time.
    #[must_use]
    pub fn unstored(&self) -> Option<String> {
        let unstored = self.unstored.lock().unwrap_or_else(PoisonError::into_inner);
        unstored.clone()
    }

    /// Takes up the sessions of the state file that are not over. Their clients come back with their ids; watchers have to
    /// be set up again.
    pub(crate) fn restore(self: &Arc<Self>) -> Result<(), StateError> {
        let Some(path) = &self.options.state_file else {
            return Ok(());
        };
        let failed = |why: String| StateError {
            path: path.clone(),
            why,
        };
        let content = match regular_file::read(path, MAX_BYTES) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            read => read.map_err(|error| failed(error.to_string()))?,
        };
        let state: State = serde_json::from_slice(&content)
            .map_err(|error| failed(format!("it is no state file: {error}")))?;
        let now = SystemTime::now();
        for (id, stored) in state.sessions {
            let (Some(created), Some(used)) = (time(stored.created_at), time(stored.last_activity))
            else {
                return Err(failed(format!("times of `{id}` cannot be")));
            };
            let idle = now.duration_since(used).unwrap_or_default();
            if self.options.session_timeout <= idle || self.options.max_sessions <= self.all().len()
            {
                continue;
            }
            let principal = Principal::new(stored.client_id);
            let host = Arc::clone(self);
            // Opening asks nothing but the engine, which answers at once.
            let opened = futures_util::FutureExt::now_or_never(async move {
                host.open(id.into(), &principal, created).await
            });
            let Some(Ok(session)) = opened else {
                tracing::warn!("a session of the host could not be taken up again");
                continue;
            };
            session.was_used(used);
            session.known().connected = stored.connected_servers;
            self.keep(&session);
        }
        Ok(())
    }
}
