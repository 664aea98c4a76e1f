use crate::{
    Begun, Claimed, CreateError, Lapsed, Lease, OpenError, Overseen, StoreError, TaskId,
    TaskLimits, TaskRecord, TaskStore,
    owner::{Call, Database, Queue},
    schema, table,
};
use futures_util::{FutureExt, future::BoxFuture};
use rusqlite::Connection;
use std::{
    fmt,
    path::{Path, PathBuf},
    thread::JoinHandle,
};
use tokio::sync::oneshot;

/// The most expired records that are removed at one go, while which others wait.
const MAX_REMOVED_AT_ONCE: usize = 64;

/// A store in a `SQLite` file, which only this process may have open.
///
/// A thread of its own does the work, and commits what has come in meanwhile together. When the
/// disk fails, so does what was asked for; the store works again as soon as the disk does.
///
/// Room of what has been removed is used again, but not given back to the system.
///
/// Dropping it ends the thread once everything that was asked for is done, and waits for that:
/// then the file is closed and may be opened again.
pub struct SqliteTaskStore {
    path: PathBuf,
    /// `None` only while it is dropped.
    queue: Option<Queue>,
    thread: Option<JoinHandle<()>>,
}

/// Error of a store whose thread has ended.
#[derive(Debug, thiserror::Error)]
#[error("the thread that owns the task store has ended")]
struct StoppedError;

impl SqliteTaskStore {
    /// Opens the store at `path`; makes it and its directories if there is none, for their owner
    /// alone. It blocks while the file is opened. A lock file beside it, named like it with `.lock`
    /// at the end, shows other processes that it is in use.
    ///
    /// # Errors
    ///
    /// [`OpenError`]. A file that is not a store of a known version is left as it is.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let (path, lock) = schema::take(path.as_ref())?;
        let connection = schema::open(&path, true)?;
        // Whoever owned tasks had the lock.
        table::free_all(&connection).map_err(|error| schema::explain(&path, error))?;
        let database = Database::new(path.clone(), connection, lock);
        let (queue, thread) = database.spawn().map_err(OpenError::Thread)?;
        Ok(Self {
            path,
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// Has the thread call a function, and waits for what it returns to be durable.
    async fn ask<T: Send + 'static>(
        &self,
        function: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let stopped = || StoreError(Box::new(StoppedError));
        let (reply, answer) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        let call = Box::new(Call::new(function, reply));
        queue.send(call).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

impl TaskStore for SqliteTaskStore {
    fn create(
        &self,
        task: TaskRecord,
        begun: Begun,
        limits: TaskLimits,
    ) -> BoxFuture<'_, Result<(), CreateError>> {
        async move {
            task.check_first(&begun)?;
            self.ask(move |connection| table::create(connection, &task, &begun, limits))
                .await?
        }
        .boxed()
    }

    fn get(&self, id: TaskId) -> BoxFuture<'_, Result<Option<TaskRecord>, StoreError>> {
        self.ask(move |connection| table::get(connection, &id))
            .boxed()
    }

    fn update(&self, task: TaskRecord) -> BoxFuture<'_, Result<bool, StoreError>> {
        async move {
            task.check()?;
            self.ask(move |connection| table::update(connection, &task))
                .await
        }
        .boxed()
    }

    fn list(
        &self,
        principal: String,
        protocol_version: String,
        after: Option<(u64, TaskId)>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<TaskRecord>, StoreError>> {
        self.ask(move |connection| {
            table::list(
                connection,
                &principal,
                &protocol_version,
                after.as_ref(),
                most,
            )
        })
        .boxed()
    }

    fn oversee(
        &self,
        now_us: u64,
        after: Option<(u64, TaskId)>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<Overseen>, StoreError>> {
        self.ask(move |connection| table::oversee(connection, now_us, after.as_ref(), most))
            .boxed()
    }

    fn remove(&self, id: TaskId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.ask(move |connection| table::remove(connection, &id))
            .boxed()
    }

    fn remove_expired(&self, now_us: u64) -> BoxFuture<'_, Result<usize, StoreError>> {
        async move {
            let mut removed = 0;
            loop {
                let now = self
                    .ask(move |connection| {
                        table::remove_expired(connection, now_us, MAX_REMOVED_AT_ONCE)
                    })
                    .await?;
                removed += now;
                if now < MAX_REMOVED_AT_ONCE {
                    return Ok(removed);
                }
            }
        }
        .boxed()
    }

    fn lapsed(&self, now_us: u64) -> BoxFuture<'_, Result<Vec<Lapsed>, StoreError>> {
        self.ask(move |connection| table::lapsed(connection, now_us))
            .boxed()
    }

    fn claim(
        &self,
        task: TaskRecord,
        lease: Lease,
        now_us: u64,
    ) -> BoxFuture<'_, Result<Option<Claimed>, StoreError>> {
        async move {
            task.check_claim(&lease)?;
            self.ask(move |connection| table::claim(connection, &task, &lease, now_us))
                .await
        }
        .boxed()
    }

    fn keep_call(&self, id: TaskId, call: String) -> BoxFuture<'_, Result<(), StoreError>> {
        self.ask(move |connection| table::keep_call(connection, &id, &call))
            .boxed()
    }

    fn renew(&self, lease: Lease) -> BoxFuture<'_, Result<Vec<TaskId>, StoreError>> {
        self.ask(move |connection| table::renew(connection, &lease))
            .boxed()
    }
}

impl fmt::Debug for SqliteTaskStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SqliteTaskStore")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Drop for SqliteTaskStore {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic of it has been reported where it happened.
            let _ = thread.join();
        }
    }
}
