//! Legacy sessions that all servers have, in the ledger's database.
//!
//! The transport does not wait for what it says of sessions; a task carries it out in order. What cannot be
//! written is tried again, and what waits has a bound.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use cluster::{
    Cluster, Difference, Failed, MAX_PASSED_ON_LISTED, News, PASSED_ON_KEPT, SharedSession,
};
use mcp_service::SessionState;
use tokio::{
    sync::{broadcast::error::RecvError, mpsc, oneshot},
    task::JoinHandle,
    time,
};
use transport_http::{PersistedSession, SessionFollower, ShareSessions, TakingUp, Unavailable};

use super::session_state::{read_state, written_state};

/// The most that waits to be written.
const MAX_WAITING: usize = 4_096;

/// The longest message that is passed on to other servers: answers of clients are as long as bodies may be.
const MAX_PASSED_ON: usize = 4 * 1024 * 1024;

/// Pause before the database is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The most times that a session is read which changes here meanwhile; its next change has it read again.
const MAX_LOOKS: usize = 4;

/// Interval at which sessions that nobody uses are forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Sessions in the database.
#[derive(Debug)]
pub(super) struct SharedSessions {
    cluster: Cluster,
    idle: Duration,
    jobs: mpsc::Sender<Job>,
    is_failing: Arc<AtomicBool>,
    /// Names that each session is known to hear of: what differs has changed.
    heard: Arc<Mutex<HashMap<Arc<str>, Heard>>>,
    writer: JoinHandle<()>,
}

/// State of a session that was last said or read.
#[derive(Clone, Debug, Default, PartialEq)]
struct Heard {
    state: String,
    resources: Vec<String>,
    tasks: Vec<String>,
}

/// Messages of other servers that were taken over here.
struct Said {
    /// Numbers of the messages that can still be read, and when they were taken over.
    numbers: HashMap<i64, Instant>,
    /// True if some may have been missed.
    is_behind: bool,
    /// Time of the next attempt to read them.
    try_again: Instant,
}

impl Said {
    fn new() -> Self {
        Self {
            numbers: HashMap::new(),
            is_behind: false,
            try_again: Instant::now(),
        }
    }

    /// Notes that a message is taken over; false if it was before.
    fn is_new(&mut self, number: i64) -> bool {
        self.numbers.insert(number, Instant::now()).is_none()
    }

    fn fall_behind(&mut self, error: &Failed) {
        self.try_again = Instant::now() + TRY_AGAIN;
        if !std::mem::replace(&mut self.is_behind, true) {
            let what = "what clients have sent to other servers cannot be read; it is tried again";
            note(error, what);
        }
    }

    /// Forgets the numbers of messages that were removed.
    fn forget(&mut self) {
        // They are removed by the clock of the database, some time after they could be.
        let kept = 2 * PASSED_ON_KEPT;
        self.numbers.retain(|_, since| since.elapsed() < kept);
    }
}

impl Heard {
    fn of(state: &SessionState) -> Self {
        Self {
            state: written_state(&without_names(state)),
            resources: state.resources.clone(),
            tasks: state.tasks.clone(),
        }
    }
}

#[derive(Debug)]
enum Job {
    Put {
        id: Arc<str>,
        principal: Arc<str>,
        state: String,
        resources: Difference,
        tasks: Difference,
    },
    Touch(String, i64),
    End(String),
    PassOn(String, Bytes),
    Flush(oneshot::Sender<()>),
}

impl SharedSessions {
    pub(super) fn open(cluster: &Cluster, idle: Duration) -> Self {
        let (jobs, waiting) = mpsc::channel(MAX_WAITING);
        let is_failing = Arc::<AtomicBool>::default();
        let writer = tokio::spawn(write(
            cluster.clone(),
            idle,
            waiting,
            Arc::clone(&is_failing),
        ));
        Self {
            cluster: cluster.clone(),
            idle,
            jobs,
            is_failing,
            heard: Arc::default(),
            writer,
        }
    }

    /// Reason why sessions cannot be written at the moment.
    pub(super) fn trouble(&self) -> Option<String> {
        let failing = self.is_failing.load(Ordering::Relaxed);
        failing.then(|| "the database of sessions cannot be written".to_owned())
    }

    pub(super) fn put(&self, session: &PersistedSession) {
        let now = Heard::of(&session.state);
        let mut heard = self.heard();
        let before = heard.insert(Arc::clone(&session.id), now.clone());
        let before = before.unwrap_or_default();
        // Under the lock, so that differences are written in the order in which they were found.
        self.ask(Job::Put {
            id: Arc::clone(&session.id),
            principal: Arc::clone(&session.principal),
            state: now.state,
            resources: Difference::between(&before.resources, &now.resources),
            tasks: Difference::between(&before.tasks, &now.tasks),
        });
    }

    pub(super) fn touch(&self, id: &str, last_used: SystemTime) {
        let age = SystemTime::now().duration_since(last_used);
        let age = i64::try_from(age.unwrap_or_default().as_millis()).unwrap_or(i64::MAX);
        self.ask(Job::Touch(id.to_owned(), age));
    }

    pub(super) fn remove(&self, id: &str) {
        self.heard().remove(id);
        self.ask(Job::End(id.to_owned()));
    }

    pub(super) async fn settled(&self) {
        let (done, written) = oneshot::channel();
        if self.jobs.send(Job::Flush(done)).await.is_ok() {
            // An error is the end of the server.
            let _ = written.await;
        }
    }

    /// Tells `sessions` what other servers do to them, for as long as it is awaited.
    pub(super) async fn follow(&self, sessions: &dyn SessionFollower) {
        let mut news = self.cluster.news();
        let mut forget = time::interval(SWEEP_EVERY);
        let mut said = Said::new();
        loop {
            let told = tokio::select! {
                told = news.recv() => told,
                _ = forget.tick() => {
                    self.heard().retain(|id, _| sessions.has(id));
                    said.forget();
                    continue;
                }
                () = time::sleep_until(said.try_again.into()), if said.is_behind => {
                    self.catch_up(sessions, &mut said).await;
                    continue;
                }
            };
            match told {
                Ok(News::Session(id)) => self.look(sessions, &id).await,
                Ok(News::Said(number, id)) if sessions.has(&id) => {
                    match self.cluster.passed_on(number).await {
                        Ok(Some(body)) if said.is_new(number) => sessions.said(&id, &body.into()),
                        Ok(_) => {}
                        Err(error) => said.fall_behind(&error),
                    }
                }
                Ok(News::Missed) | Err(RecvError::Lagged(_)) => {
                    self.catch_up(sessions, &mut said).await;
                    for id in sessions.ids() {
                        self.look(sessions, &id).await;
                    }
                }
                Ok(_) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Takes over what clients have sent to other servers while nothing was heard of them: an answer or a cancellation
    /// that was accepted there is not lost.
    async fn catch_up(&self, sessions: &dyn SessionFollower, said: &mut Said) {
        match self.take_missed(sessions, said).await {
            Ok(()) => said.is_behind = false,
            Err(error) => said.fall_behind(&error),
        }
    }

    async fn take_missed(
        &self,
        sessions: &dyn SessionFollower,
        said: &mut Said,
    ) -> Result<(), Failed> {
        let (ids, mut after) = (sessions.ids(), 0);
        loop {
            let all = self.cluster.all_passed_on(&ids, after).await?;
            for (number, session) in &all {
                after = *number;
                if said.numbers.contains_key(number) {
                    continue;
                }
                // One after the other: each may be large.
                let body = self.cluster.passed_on(*number).await?;
                if let Some(body) = body.filter(|_| said.is_new(*number)) {
                    sessions.said(session, &body.into());
                }
            }
            if all.len() < MAX_PASSED_ON_LISTED {
                return Ok(());
            }
        }
    }

    /// Has a session here become what it is now.
    async fn look(&self, sessions: &dyn SessionFollower, id: &str) {
        if !sessions.has(id) {
            self.heard().remove(id);
            return;
        }
        for _ in 0..MAX_LOOKS {
            // What was changed here is to be in what is read.
            self.settled().await;
            let before = self.heard().get(id).cloned();
            let session = match self.cluster.session(id).await {
                Ok(session) => session,
                // The news that come with the next connection have it looked at again.
                Err(error) => {
                    return note(&error, "it cannot be read what has become of a session");
                }
            };
            let Some(session) = session else {
                self.heard().remove(id);
                return sessions.changed(id, None);
            };
            let Some(state) = state_of(&session) else {
                return tracing::warn!("a session of another server cannot be read");
            };
            {
                let mut heard = self.heard();
                if heard.get(id) != before.as_ref() {
                    continue; // changed here meanwhile
                }
                heard.insert(id.into(), Heard::of(&state));
            }
            return sessions.changed(id, Some(state));
        }
    }

    fn ask(&self, job: Job) {
        if self.jobs.try_send(job).is_err() {
            self.is_failing.store(true, Ordering::Relaxed);
            tracing::error!(
                "what has become of a session cannot be told to other servers: too much waits"
            );
        }
    }

    fn heard(&self) -> MutexGuard<'_, HashMap<Arc<str>, Heard>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedSessions {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

impl ShareSessions for SharedSessions {
    fn take_up<'a>(&'a self, id: &'a str, principal: &'a str) -> TakingUp<'a> {
        Box::pin(async move {
            // No id of ours is longer, and what is looked up should be worth it.
            if 64 < id.len() {
                return Ok(None);
            }
            let taken = self.cluster.take_session_up(id, principal, self.idle).await;
            let taken = taken.map_err(|error| {
                note(&error, "it cannot be told if another server has a session");
                Unavailable
            })?;
            let Some(session) = taken else {
                return Ok(None);
            };
            let state = state_of(&session).ok_or(Unavailable)?;
            self.heard().insert(id.into(), Heard::of(&state));
            Ok(Some(PersistedSession {
                id: id.into(),
                principal: session.principal.into(),
                state,
                lives: session.lives,
                last_used: SystemTime::now(),
            }))
        })
    }

    fn pass_on(&self, id: &str, message: Bytes) {
        if message.len() <= MAX_PASSED_ON {
            self.ask(Job::PassOn(id.to_owned(), message));
        }
    }
}

/// The state without the names that are stored by themselves.
fn without_names(state: &SessionState) -> SessionState {
    SessionState {
        resources: Vec::new(),
        tasks: Vec::new(),
        ..state.clone()
    }
}

fn state_of(session: &SharedSession) -> Option<SessionState> {
    Some(SessionState {
        resources: session.resources.clone(),
        tasks: session.tasks.clone(),
        ..read_state(&session.state)?
    })
}

async fn write(
    cluster: Cluster,
    idle: Duration,
    mut jobs: mpsc::Receiver<Job>,
    is_failing: Arc<AtomicBool>,
) {
    let mut sweep = time::interval(SWEEP_EVERY);
    loop {
        let job = tokio::select! {
            job = jobs.recv() => job,
            _ = sweep.tick() => {
                if let Err(error) = cluster.sweep_sessions(idle).await {
                    note(&error, "expired sessions could not be removed");
                }
                continue;
            }
        };
        let Some(job) = job else { return };
        let job = match job {
            Job::Flush(done) => {
                let _ = done.send(());
                continue;
            }
            job => job,
        };
        while let Err(error) = carry_out(&cluster, &job).await {
            if error.is_lasting() {
                note(&error, "what has become of a session cannot be stored");
                break;
            }
            if !is_failing.swap(true, Ordering::Relaxed) {
                note(&error, "sessions cannot be written; it is tried again");
            }
            time::sleep(TRY_AGAIN).await;
        }
        if is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!("sessions can be written again");
        }
    }
}

async fn carry_out(cluster: &Cluster, job: &Job) -> Result<(), Failed> {
    match job {
        Job::Put {
            id,
            principal,
            state,
            resources,
            tasks,
        } => {
            let session = (&**principal, state.as_str());
            cluster.keep_session(id, session, resources, tasks).await
        }
        Job::Touch(id, age) => {
            let ids = std::slice::from_ref(id);
            cluster.touch_sessions(ids, &[*age]).await
        }
        Job::End(id) => cluster.end_session(id).await,
        Job::PassOn(id, message) => cluster.pass_on(id, message).await,
        Job::Flush(_) => Ok(()),
    }
}

fn note(error: &Failed, what: &'static str) {
    tracing::warn!(error = error as &dyn std::error::Error, "{what}");
}
