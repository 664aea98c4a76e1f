//! A request whose stream can be resumed, as long as the connection it came on carries it. Its
//! client may lose that connection and come back on another before we notice, and even be unable to
//! let us notice: a stream that its client does not read is not polled.

use crate::session::in_flight::InFlight;
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering, fence},
    },
    task::Waker,
};

/// The request, until another connection takes over.
pub(crate) struct Resumable {
    running: Mutex<Option<InFlight>>,
    taken_over: AtomicBool,
    /// Waker of the task to tell of it.
    waker: Mutex<Option<Waker>>,
}

impl Resumable {
    /// Lets `running` be taken over, whose stream has begun.
    pub(crate) fn new(running: InFlight) -> Arc<Self> {
        let this = Arc::new(Self {
            running: Mutex::default(),
            taken_over: AtomicBool::new(false),
            waker: Mutex::default(),
        });
        running.carried_by(&this);
        *lock(&this.running) = Some(running);
        this
    }

    /// Lets the request go on, in the task of `waker`; `None` once another connection has taken
    /// over, which then has what was said meanwhile.
    pub(crate) fn with<T>(
        &self,
        waker: Waker,
        go_on: impl FnOnce(&mut InFlight) -> T,
    ) -> Option<T> {
        *lock(&self.waker) = Some(waker);
        let said = lock(&self.running).as_mut().map(go_on);
        // Whoever takes over does not wait for the request, and leaves it to us while we have it.
        // With the other fence, at least one of us sees what the other has done.
        fence(Ordering::SeqCst);
        if self.taken_over.load(Ordering::Relaxed) {
            self.let_go();
            return None;
        }
        said
    }

    /// Ends the stream here. The request goes on by itself.
    pub(crate) fn take_over(&self) {
        self.taken_over.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.let_go();
        if let Some(waker) = lock(&self.waker).take() {
            waker.wake();
        }
    }

    fn let_go(&self) {
        let running = match self.running.try_lock() {
            Ok(mut running) => running.take(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        };
        // Dropped, it is carried on.
        drop(running);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Resumable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resumable")
            .field("taken_over", &self.taken_over)
            .finish_non_exhaustive()
    }
}
