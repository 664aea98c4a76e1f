//! The tasks of one server: made, kept, ended and forgotten.

use crate::{
    clock::Clock,
    tasks::{
        convert,
        runner::{RunHere, TaskRunner},
        running::{AnswersTooLarge, Responses, RunningTask, Stop, Visible},
    },
};
use jsonrpc_core::ErrorCode;
use mcp_protocol::model::{InputRequest, Task, TaskState};
use mcp_service::{Change, FairShare, McpError, RequestCx, Subscriptions};
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use task_store::{
    Begun, CreateError, Lease, MAX_RECORD_BYTES, StoreError, TaskId, TaskLimits, TaskRecord,
    TaskState as Stored, TaskStore,
};
use tokio::{runtime::Handle, sync::watch};

/// Settings of tasks.
#[derive(Clone, Copy, Debug)]
pub struct TaskOptions {
    /// After how long a call becomes a task by itself, where its client knows the Tasks extension
    /// and its tool allows it.
    pub after: Duration,
    /// The time for which the outcome of a task is kept: it expires this long after the time that its tool
    /// has, counted from its creation.
    pub keep: Duration,
    /// The longest a client of revision 2025-11-25 can have a task kept.
    pub max_keep: Duration,
    /// The shortest interval of polling that clients are told.
    pub poll_interval: Duration,
    /// The most tasks that run.
    pub max_running: usize,
    /// The most tasks that run for one principal.
    pub max_running_per_principal: usize,
    /// The most times a task is begun, the first time included: it is begun again when the process that
    /// ran it has ended, and may be what ended it.
    pub max_attempts: u32,
    /// The time after which another process may take a task that is not renewed. Processes renew theirs
    /// after a third of it.
    pub lease: Duration,
    /// The most requests for the result of a task (`tasks/result`), which wait for it to end.
    pub max_waiting: usize,
    /// The most such requests of one principal.
    pub max_waiting_per_principal: usize,
    /// The most tasks that are kept, running or not.
    pub records: TaskLimits,
    /// True if clients of revision 2025-11-25 can list theirs. Only where principals are known to be
    /// different clients: others would see each other's.
    pub list: bool,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            after: Duration::from_secs(10),
            keep: Duration::from_secs(60 * 60),
            max_keep: Duration::from_secs(24 * 60 * 60),
            poll_interval: Duration::from_millis(500),
            max_running: 1_000,
            max_running_per_principal: 100,
            max_attempts: 3,
            lease: Duration::from_secs(30),
            max_waiting: 1_000,
            max_waiting_per_principal: 100,
            records: TaskLimits::default(),
            list: false,
        }
    }
}

/// The shortest interval of looks for expired tasks, in microseconds.
const SWEEP_EVERY_US: u64 = 60_000_000;

/// Pause before the store is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Status of a task that waits for a worker.
const QUEUED: &str = "the call waits for a worker";

/// The most bytes that come of a task: 16 MiB. The store takes more than that, with whatever belongs
/// to it.
const MAX_OUTCOME_BYTES: usize = MAX_RECORD_BYTES / 4;

/// The tasks of one server.
pub struct Tasks {
    pub(crate) store: Arc<dyn TaskStore>,
    pub(crate) options: TaskOptions,
    pub(crate) clock: Clock,
    pub(crate) runner: Arc<dyn TaskRunner>,
    /// Name of this process in the store.
    pub(crate) owner: String,
    /// The runtime of tasks: requests come from runtimes that may end before them.
    pub(crate) runtime: Handle,
    pub(crate) live: Mutex<HashMap<TaskId, Arc<RunningTask>>>,
    pub(crate) count: watch::Sender<usize>,
    /// Number of calls under way that are tasks or may become some.
    pub(crate) calls: watch::Sender<usize>,
    pub(crate) running: Arc<FairShare>,
    pub(crate) waiting: Arc<FairShare>,
    pub(crate) subscriptions: OnceLock<Arc<Subscriptions>>,
    /// Tasks that are known to be queued, and since when.
    pub(crate) queued: Mutex<HashMap<TaskId, Instant>>,
    pub(crate) swept_us: AtomicU64,
    pub(crate) closing: watch::Sender<bool>,
}

impl Tasks {
    /// The tasks in `store`, which run on the runtime this is called on. What becomes of those that
    /// other processes have left is up to [`McpServer::keep_tasks`](crate::mcp_server::McpServer::keep_tasks).
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store cannot be read or written.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn open(
        store: Arc<dyn TaskStore>,
        options: TaskOptions,
        clock: Clock,
    ) -> Result<Arc<Self>, StoreError> {
        Self::open_with(store, options, clock, Arc::new(RunHere)).await
    }

    /// The same, with calls carried out by `runner`.
    ///
    /// # Errors
    ///
    /// As [`Tasks::open`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn open_with(
        store: Arc<dyn TaskStore>,
        options: TaskOptions,
        clock: Clock,
        runner: Arc<dyn TaskRunner>,
    ) -> Result<Arc<Self>, StoreError> {
        let now_us = clock();
        let owner = uuid::Uuid::new_v4().to_string();
        // A name that nobody had before has nothing to give up: this finds out about the store.
        let nothing = Lease {
            owner: owner.clone(),
            until_us: 0,
        };
        store.renew(nothing).await?;
        let tasks = Arc::new(Self {
            store,
            options,
            clock,
            runner,
            owner,
            runtime: Handle::current(),
            live: Mutex::default(),
            count: watch::Sender::new(0),
            calls: watch::Sender::new(0),
            running: FairShare::new(options.max_running, options.max_running_per_principal),
            waiting: FairShare::new(options.max_waiting, options.max_waiting_per_principal),
            subscriptions: OnceLock::new(),
            queued: Mutex::default(),
            swept_us: AtomicU64::new(0),
            closing: watch::Sender::new(false),
        });
        tasks.sweep(now_us);
        Ok(tasks)
    }

    /// The settings.
    pub fn options(&self) -> &TaskOptions {
        &self.options
    }

    /// Number of running tasks.
    pub fn running(&self) -> usize {
        *self.count.borrow()
    }

    /// Lets no task begin any more, gives those that run until `drain` has passed, and ends the rest:
    /// they are recorded as cancelled, and failed, unless the next process can begin them again.
    pub async fn close(&self, drain: Duration) {
        {
            // Whoever has the lock before has a task to wait for, and whoever has it later none.
            let _all = self.lock();
            self.closing.send_replace(true);
        }
        let mut count = self.count.subscribe();
        let none = async {
            // The sender lives as long as `self`.
            let _ = count.wait_for(|count| *count == 0).await;
        };
        if tokio::time::timeout(drain, none).await.is_err() {
            let running: Vec<_> = self.lock().values().cloned().collect();
            for live in &running {
                live.stop(Stop::Shutdown);
            }
        }
        // Ending one takes a write to the store; a store that fails is not waited for. Calls that
        // were given up have to be let go of too, for the record to have their ends.
        let mut calls = self.calls.subscribe();
        let ended = async {
            let _ = calls.wait_for(|calls| *calls == 0).await;
        };
        if tokio::time::timeout(TRY_AGAIN, ended).await.is_err() && 0 < self.running() {
            tracing::error!(
                running = self.running(),
                "tasks could not be ended in the store; they will be when the server starts again"
            );
        }
        // Whoever can take over what is left need not wait.
        let nothing_more = Lease {
            owner: self.owner.clone(),
            until_us: 0,
        };
        match tokio::time::timeout(TRY_AGAIN, self.store.renew(nothing_more)).await {
            Ok(Ok(left)) if left.is_empty() => {}
            Ok(Ok(left)) => tracing::info!(tasks = left.len(), "tasks are left to be begun again"),
            Ok(Err(error)) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "tasks could not be given up; others take them once their leases have run out"
            ),
            Err(_elapsed) => {}
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// The right to tasks from now on.
    pub(crate) fn lease(&self) -> Lease {
        let lease_us = u64::try_from(self.options.lease.as_micros()).unwrap_or(u64::MAX);
        let until_us = (self.clock)().saturating_add(lease_us);
        Lease {
            owner: self.owner.clone(),
            // As large as a store can have it.
            until_us: until_us.min(i64::MAX.unsigned_abs()),
        }
    }

    /// Counts a call until what it returns is dropped.
    pub(crate) fn under_way(self: &Arc<Self>) -> UnderWay {
        self.calls.send_modify(|calls| *calls += 1);
        UnderWay(Arc::clone(self))
    }

    /// Sets the subscribers of changes; once.
    pub(crate) fn attach(&self, subscriptions: Arc<Subscriptions>) {
        // Tasks belong to one server; a second one would only miss its notifications.
        let _ = self.subscriptions.set(subscriptions);
    }

    /// A new task, in the store. `ttl` is how long it is kept from now on, and `call` what it takes to
    /// begin it again, if it may be.
    pub(crate) async fn create(
        self: &Arc<Self>,
        cx: &RequestCx,
        capability: &str,
        ttl: Duration,
        visible: Visible,
        call: Option<String>,
    ) -> Result<Arc<RunningTask>, NotCreated> {
        if self.is_closing() {
            return Err(NotCreated::Closing);
        }
        let slot = self.running.take(&cx.principal);
        let slot = slot.ok_or(NotCreated::TooManyRunning)?;
        let now_us = (self.clock)();
        self.sweep(now_us);
        let record = self.new_record(cx, capability, ttl, now_us);
        let run = (1, call.is_some() && 1 < self.options.max_attempts);
        let begun = Begun {
            lease: self.lease(),
            call,
        };
        let created = self
            .store
            .create(record.clone(), begun, self.options.records)
            .await;
        let live = RunningTask::new(record, self.poll_interval_ms(), visible, Some(slot), run);
        if let Err(error) = created {
            // Stored all the same, perhaps: a task that no client knows must not be begun by another server.
            if matches!(error, CreateError::Store(_)) {
                let (tasks, live) = (Arc::clone(self), Arc::clone(&live));
                self.runtime.spawn(async move { tasks.forget(&live).await });
            }
            return Err(error.into());
        }
        if self.enter(&live) {
            return Ok(live);
        }
        // Nobody would wait for it to end.
        self.forget(&live).await;
        Err(NotCreated::Closing)
    }

    /// A new task that waits for a worker, in the store: as one that its owner has given up.
    pub(crate) async fn create_queued(
        self: &Arc<Self>,
        cx: &RequestCx,
        capability: &str,
        ttl: Duration,
        call: String,
    ) -> Result<Arc<RunningTask>, NotCreated> {
        if self.is_closing() {
            return Err(NotCreated::Closing);
        }
        let now_us = (self.clock)();
        self.sweep(now_us);
        let mut record = self.new_record(cx, capability, ttl, now_us);
        record.message = Some(QUEUED.to_owned());
        let begun = Begun {
            lease: Lease {
                owner: self.owner.clone(),
                until_us: 0,
            },
            call: Some(call),
        };
        let limits = self.options.records;
        let created = self.store.create(record.clone(), begun, limits).await;
        let poll_interval_ms = self.poll_interval_ms();
        let live = RunningTask::new(
            record,
            poll_interval_ms,
            Arc::new(|_: &_| true),
            None,
            (1, true),
        );
        match created {
            Ok(()) => Ok(live),
            Err(error) => {
                // As in `create`: it may be stored all the same.
                if matches!(error, CreateError::Store(_)) {
                    let (tasks, live) = (Arc::clone(self), Arc::clone(&live));
                    self.runtime.spawn(async move { tasks.forget(&live).await });
                }
                Err(error.into())
            }
        }
    }

    fn new_record(
        &self,
        cx: &RequestCx,
        capability: &str,
        ttl: Duration,
        now_us: u64,
    ) -> TaskRecord {
        let ttl_us = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
        TaskRecord {
            id: TaskId::random(),
            principal: cx.principal.as_str().to_owned(),
            capability: capability.to_owned(),
            protocol_version: cx.version.as_str().to_owned(),
            created_us: now_us,
            updated_us: now_us,
            expires_us: now_us.saturating_add(ttl_us),
            sequence: 1,
            state: Stored::Working,
            message: None,
        }
    }

    /// Makes a task one of those that run, unless none may begin any more.
    pub(crate) fn enter(&self, live: &Arc<RunningTask>) -> bool {
        let mut all = self.lock();
        let may_begin = !self.is_closing();
        if may_begin {
            all.insert(live.record.id.clone(), Arc::clone(live));
            self.count.send_replace(all.len());
        }
        may_begin
    }

    /// Asks a task's client.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        live: &Arc<RunningTask>,
        requests: BTreeMap<String, InputRequest>,
    ) -> Result<Responses, McpError> {
        let answers = live.ask(requests, (self.clock)());
        self.publish(live);
        answers.await.unwrap_or_else(|_| {
            let why = "the task's questions can no longer be answered";
            Err(McpError::new(ErrorCode::INTERNAL_ERROR, why))
        })
    }

    pub(crate) fn answer(
        self: &Arc<Self>,
        live: &Arc<RunningTask>,
        responses: Responses,
    ) -> Result<(), AnswersTooLarge> {
        live.answer(responses, (self.clock)())?;
        self.publish(live);
        Ok(())
    }

    pub(crate) fn refuse(self: &Arc<Self>, live: &Arc<RunningTask>, error: McpError) {
        live.refuse(error, (self.clock)());
        self.publish(live);
    }

    /// Ends a task: in the store, then visibly for all waiting clients. While the store fails it is
    /// tried again, until the task has expired.
    pub(crate) async fn end(
        self: &Arc<Self>,
        live: &Arc<RunningTask>,
        state: TaskState,
        message: Option<String>,
    ) {
        let (state, message) = if convert::size(&state) <= MAX_OUTCOME_BYTES {
            (state, message)
        } else {
            let why = "what has come of the call is too large to be kept";
            let error = McpError::new(ErrorCode::INTERNAL_ERROR, why);
            let error = convert::error_json(&error);
            (TaskState::Failed { error }, Some(why.to_owned()))
        };
        // A clock may be set back, and what was said of the task may not.
        let now_us = (self.clock)().max(live.updated_us());
        let record = TaskRecord {
            updated_us: now_us,
            sequence: live.record.sequence + 1,
            state: convert::stored(&state),
            message: message
                .as_deref()
                .map(|it| redaction::without_known(it).into_owned()),
            ..live.record.clone()
        };
        while (self.clock)() < live.record.expires_us {
            match self.store.update(record.clone()).await {
                Ok(true) => break,
                // Another server has taken the cancellation, and stopped it here.
                Ok(false) if self.is_cancelled_elsewhere(&record).await => break,
                // Somebody else has taken it, or ended it: what they say of it is what holds.
                Ok(false) => {
                    tracing::warn!(task = ?live.record.id, "a task has ended that was not ours any more");
                    return self.lose(live);
                }
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        task = ?live.record.id,
                        "what has come of a task could not be stored"
                    );
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        }
        live.end(state, message, now_us);
        self.publish(live);
        self.retire(live);
    }

    /// Lets go of a task that another process carries on, or will.
    pub(crate) fn lose(&self, live: &RunningTask) {
        self.retire(live);
        live.lose();
    }

    /// Forgets a task whose id no client knows. While the store fails it stays one of those that
    /// run here, and is tried again: another process would begin it again once its lease has run
    /// out.
    pub(crate) async fn forget(self: &Arc<Self>, live: &Arc<RunningTask>) {
        if self.is_forgotten(live).await {
            return self.retire(live);
        }
        let (tasks, live) = (Arc::clone(self), Arc::clone(live));
        self.runtime.spawn(async move {
            while (tasks.clock)() < live.record.expires_us && !tasks.is_closing() {
                tokio::time::sleep(TRY_AGAIN).await;
                if tasks.is_forgotten(&live).await {
                    break;
                }
            }
            tasks.retire(&live);
        });
    }

    /// The task as clients see it, and the number of the change: by any server the same, where several share
    /// the store.
    pub(crate) fn seen(&self, live: &RunningTask) -> (u64, Task) {
        let (changes, task) = live.seen();
        match self.store.shared() {
            None => (changes, task),
            Some(_) if task.state.is_terminal() => (u64::MAX, task),
            Some(_) => (live.updated_us(), task),
        }
    }

    async fn is_forgotten(&self, live: &RunningTask) -> bool {
        let removed = self.store.remove(live.record.id.clone()).await;
        if let Err(error) = &removed {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                task = ?live.record.id,
                "a task whose id no client knows could not be forgotten"
            );
        }
        removed.is_ok()
    }

    pub(crate) fn retire(&self, live: &RunningTask) {
        let mut all = self.lock();
        all.remove(&live.record.id);
        self.count.send_replace(all.len());
    }

    /// Tells subscribers here how a task stands, and, where other servers share the store, them.
    pub(crate) fn publish(self: &Arc<Self>, live: &Arc<RunningTask>) {
        if let Some(subscriptions) = self.subscriptions.get() {
            let (number, task) = self.seen(live);
            subscriptions.publish(&Change::Task(number, task), |principal| {
                principal.as_str() == live.record.principal && (live.visible)(principal)
            });
        }
        self.show(live);
    }

    pub(crate) fn live(&self, id: &TaskId) -> Option<Arc<RunningTask>> {
        self.lock().get(id).cloned()
    }

    /// Forgets expired tasks, now and then. No caller waits for it: they may be many, and each
    /// request for a task checks whether it has expired.
    pub(crate) fn sweep(&self, now_us: u64) {
        let swept_us = self.swept_us.load(Ordering::Relaxed);
        if now_us < swept_us.saturating_add(SWEEP_EVERY_US) {
            return;
        }
        self.swept_us.store(now_us, Ordering::Relaxed);
        let store = Arc::clone(&self.store);
        self.runtime.spawn(async move {
            if let Err(error) = store.remove_expired(now_us).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "expired tasks could not be forgotten"
                );
            }
        });
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<RunningTask>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("store", &self.store)
            .field("options", &self.options)
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}

/// A call that is a task or may become one, until it is dropped.
pub(crate) struct UnderWay(Arc<Tasks>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.calls.send_modify(|calls| *calls -= 1);
    }
}

/// Reason why a call cannot be a task.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotCreated {
    #[error("the server is stopping")]
    Closing,
    #[error("too many tasks are running")]
    TooManyRunning,
    #[error("the task could not be stored")]
    Store(#[from] CreateError),
}

impl NotCreated {
    pub(crate) fn to_client(&self) -> McpError {
        let message = match self {
            Self::Store(CreateError::TooMany { .. }) => "too many tasks are kept".to_owned(),
            other => other.to_string(),
        };
        let error = McpError::new(ErrorCode::INTERNAL_ERROR, message);
        McpError(error.0.with(&json!({ "retryable": true })))
    }
}
