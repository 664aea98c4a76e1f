//! The thread that writes.

use crate::{
    schema, table,
    waiting::{Change, Waiting},
};
use rusqlite::Connection;
use sqlite_file::FileLock;
use std::{
    error::Error,
    path::PathBuf,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// Pause before a failed write is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// State shared by the writing thread and its callers.
#[derive(Debug)]
pub(crate) struct Desk {
    state: Mutex<State>,
    bell: Condvar,
    /// Number of requests that are written.
    pub(crate) written: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Waiting,
    /// Number of requests so far.
    asked: u64,
    is_closing: bool,
    trouble: Option<String>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            bell: Condvar::new(),
            written: watch::Sender::new(0),
        }
    }

    pub(crate) fn ask(&self, ask: impl FnOnce(&mut Waiting)) {
        let mut state = self.lock();
        ask(&mut state.waiting);
        state.asked += 1;
        drop(state);
        self.bell.notify_one();
    }

    pub(crate) fn asked(&self) -> u64 {
        self.lock().asked
    }

    pub(crate) fn close(&self) {
        self.lock().is_closing = true;
        self.bell.notify_one();
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    /// Takes all waiting changes, with the number of requests until then; `None` at the end.
    fn take(&self) -> Option<(Waiting, u64)> {
        let state = self.lock();
        let mut state = self
            .bell
            .wait_while(state, |state| state.waiting.is_empty() && !state.is_closing)
            .unwrap_or_else(PoisonError::into_inner);
        let waiting = std::mem::take(&mut state.waiting);
        (!waiting.is_empty()).then_some((waiting, state.asked))
    }

    /// Notes what has failed, and waits; false if there is no time to try again.
    fn failed(&self, waiting: Waiting, error: &(dyn Error + Send + Sync + 'static)) -> bool {
        let mut state = self.lock();
        if state.trouble.is_none() {
            tracing::warn!(
                error = error as &dyn Error,
                "the session store cannot be written"
            );
        }
        state.trouble = Some(error.to_string());
        state.waiting.take_back(waiting);
        let (state, _) = self
            .bell
            .wait_timeout_while(state, RETRY, |state| !state.is_closing)
            .unwrap_or_else(PoisonError::into_inner);
        !state.is_closing
    }

    fn succeeded(&self, asked: u64) {
        if self.lock().trouble.take().is_some() {
            tracing::info!("the session store can be written again");
        }
        self.written.send_replace(asked);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file, and the right to it.
pub(crate) struct Writer {
    pub(crate) path: PathBuf,
    /// Connection; `None` after a failure: it is opened anew, since its state is unknown.
    pub(crate) connection: Option<Connection>,
    pub(crate) _lock: FileLock,
}

impl Writer {
    /// Writes what is asked for until nothing more will be.
    pub(crate) fn run(mut self, desk: &Desk) {
        while let Some((waiting, asked)) = desk.take() {
            match self.write(&waiting) {
                Ok(()) => desk.succeeded(asked),
                Err(error) => {
                    self.connection = None;
                    if !desk.failed(waiting, &*error) && !self.write_last(desk) {
                        return;
                    }
                }
            }
        }
    }

    /// At the end there is no other time.
    fn write_last(&mut self, desk: &Desk) -> bool {
        let Some((waiting, asked)) = desk.take() else {
            return true;
        };
        let written = self.write(&waiting);
        match &written {
            Ok(()) => desk.succeeded(asked),
            Err(error) => {
                let error = &**error as &dyn Error;
                tracing::error!(error, "sessions were not stored when the server ended");
            }
        }
        written.is_ok()
    }

    fn write(&mut self, waiting: &Waiting) -> Result<(), Box<dyn Error + Send + Sync>> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => empty.insert(schema::open(&self.path)?),
        };
        // Who begins a session waits for no disk, and it survives the process, though not the
        // machine. An end is to survive that as well.
        let has_ends = waiting.forget_all
            || (waiting.changes.values()).any(|change| matches!(change, Change::Remove));
        let synchronous = if has_ends { "FULL" } else { "NORMAL" };
        connection.pragma_update(None, "synchronous", synchronous)?;
        let transaction = connection.transaction()?;
        if waiting.forget_all {
            table::forget_all(&transaction)?;
        }
        for (id, change) in &waiting.changes {
            table::change(&transaction, id, change)?;
        }
        Ok(transaction.commit()?)
    }
}
