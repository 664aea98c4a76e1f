//! The thread that owns the database.

use crate::{StoreError, schema};
use rusqlite::Connection;
use sqlite_file::FileLock;
use std::{
    error::Error,
    io,
    path::PathBuf,
    slice,
    thread::{self, JoinHandle},
};
use tokio::sync::{
    mpsc::{self, Receiver, Sender},
    oneshot,
};

/// The most jobs that wait for the thread; who brings more waits to hand them over.
const MAX_QUEUED_JOBS: usize = 256;

/// The most jobs that share a transaction, and so one wait for the disk.
const MAX_GROUPED_JOBS: usize = 64;

/// Queue of jobs.
pub(crate) type Queue = Sender<Box<dyn Job>>;

/// Work on the database, whose result a caller may wait for.
pub(crate) trait Job: Send {
    /// Does it. It is called again if the transaction it was part of has failed.
    fn run(&mut self, connection: &Connection) -> rusqlite::Result<()>;
    /// Gives the answer of the last run: it is durable now.
    fn succeed(self: Box<Self>);
    /// Reports that the work has not been done, as far as is known.
    fn fail(self: Box<Self>, error: StoreError);
}

/// The job of calling a function.
pub(crate) struct Call<F, T> {
    function: F,
    answer: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T> Call<F, T>
where
    F: Fn(&Connection) -> rusqlite::Result<T> + Send,
    T: Send,
{
    pub(crate) fn new(function: F, reply: oneshot::Sender<Result<T, StoreError>>) -> Self {
        Self {
            function,
            answer: None,
            reply,
        }
    }
}

impl<F, T> Job for Call<F, T>
where
    F: Fn(&Connection) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn run(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.answer = Some((self.function)(connection)?);
        Ok(())
    }

    fn succeed(self: Box<Self>) {
        if let Some(answer) = self.answer {
            // Nobody may be waiting any more.
            let _ = self.reply.send(Ok(answer));
        }
    }

    fn fail(self: Box<Self>, error: StoreError) {
        let _ = self.reply.send(Err(error));
    }
}

/// The file, and the right to it.
pub(crate) struct Database {
    path: PathBuf,
    /// Connection; `None` after a failure: it is opened anew, since its state is unknown.
    connection: Option<Connection>,
    _lock: FileLock,
}

impl Database {
    pub(crate) fn new(path: PathBuf, connection: Connection, lock: FileLock) -> Self {
        Self {
            path,
            connection: Some(connection),
            _lock: lock,
        }
    }

    /// Starts the thread. It ends when all senders are gone and everything sent has been done.
    pub(crate) fn spawn(mut self) -> io::Result<(Queue, JoinHandle<()>)> {
        let (sender, mut queue) = mpsc::channel(MAX_QUEUED_JOBS);
        let thread = thread::Builder::new()
            .name("task-store".to_owned())
            .spawn(move || {
                while let Some(first) = queue.blocking_recv() {
                    let group = group(first, &mut queue);
                    self.serve(group);
                }
            })?;
        Ok((sender, thread))
    }

    /// Does all of the jobs, in one transaction if it can be.
    fn serve(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        if 1 < jobs.len() && self.attempt(&mut jobs).is_ok() {
            jobs.into_iter().for_each(Job::succeed);
            return;
        }
        // There is one, or one of them may be to blame: the others need not fail with it.
        for mut job in jobs {
            match self.attempt(slice::from_mut(&mut job)) {
                Ok(()) => job.succeed(),
                Err(error) => job.fail(error),
            }
        }
    }

    fn attempt(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
        let result = self.transact(jobs);
        if result.is_err() {
            self.connection = None;
        }
        result.map_err(StoreError)
    }

    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Box<dyn Error + Send + Sync>> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => empty.insert(schema::open(&self.path, false)?),
        };
        let transaction = connection.transaction()?;
        for job in jobs {
            job.run(&transaction)?;
        }
        Ok(transaction.commit()?)
    }
}

/// Jobs that wait already, up to a bound.
fn group(first: Box<dyn Job>, queue: &mut Receiver<Box<dyn Job>>) -> Vec<Box<dyn Job>> {
    let mut jobs = vec![first];
    while jobs.len() < MAX_GROUPED_JOBS
        && let Ok(next) = queue.try_recv()
    {
        jobs.push(next);
    }
    jobs
}

#[cfg(test)]
mod tests;
