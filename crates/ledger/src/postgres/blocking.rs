//! Waiting for futures in functions that block, wherever they are called.

use super::PostgresOpenError;
use std::{panic, thread};
use tokio::runtime::{Builder, Handle, Runtime};

/// A runtime for one connection, which may be used, and dropped, inside of another.
#[derive(Debug)]
pub(super) struct Blocking(Option<Runtime>);

impl Blocking {
    pub(super) fn new() -> Result<Self, PostgresOpenError> {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().build();
        Ok(Self(Some(runtime.map_err(PostgresOpenError::Thread)?)))
    }

    /// Waits for the future here, or, where that is not allowed, in another thread.
    pub(super) fn wait<T: Send>(&self, future: impl AsyncFnOnce() -> T + Send) -> T {
        let runtime = self.0.as_ref().expect("it is there until it is dropped");
        if Handle::try_current().is_err() {
            return runtime.block_on(future());
        }
        thread::scope(|scope| {
            let waiting = scope.spawn(|| runtime.block_on(future()));
            waiting
                .join()
                .unwrap_or_else(|panicked| panic::resume_unwind(panicked))
        })
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        // Dropped by itself it would wait for its threads, which another runtime does not allow.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
