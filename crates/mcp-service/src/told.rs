//! State of a request that its context, its forks and its connection share.

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use std::{
    any::Any,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

/// Progress and remarks of one request, shared by its forks and reporters, and its cancellation.
#[derive(Debug)]
pub(crate) struct Told {
    /// The last progress reported; `None` once nothing more is to be said.
    progress: Mutex<Option<f64>>,
    pub(crate) remarks: Mutex<Remarks>,
    is_aborted: AtomicBool,
    /// Task that polls the request.
    polled_by: AtomicWaker,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            progress: Mutex::new(Some(f64::NEG_INFINITY)),
            remarks: Mutex::default(),
            is_aborted: AtomicBool::new(false),
            polled_by: AtomicWaker::new(),
        }
    }
}

impl Told {
    /// The state of a request of which there are `remarks` already.
    pub(crate) fn after(remarks: Remarks) -> Self {
        Self {
            remarks: Mutex::new(remarks),
            ..Self::default()
        }
    }

    /// Cancels the request.
    pub(crate) fn abort(&self) {
        self.is_aborted.store(true, Ordering::Release);
        self.polled_by.wake();
    }

    /// Polls `handled` unless the request is cancelled; `None` if it is.
    pub(crate) fn poll_unless_aborted<F: Future + Unpin>(
        &self,
        handled: &mut F,
        cx: &mut Context<'_>,
    ) -> Poll<Option<F::Output>> {
        if self.is_aborted.load(Ordering::Acquire) {
            return Poll::Ready(None);
        }
        if let Poll::Ready(output) = Pin::new(handled).poll(cx) {
            return Poll::Ready(Some(output));
        }
        self.polled_by.register(cx.waker());
        // It may have been cancelled before the waker was there.
        if self.is_aborted.load(Ordering::Acquire) {
            return Poll::Ready(None);
        }
        Poll::Pending
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Option<f64>> {
        lock(&self.progress)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
pub(crate) struct Remarks {
    /// For the transport.
    pub(crate) left: Vec<(&'static str, Bytes)>,
    /// For layers around.
    pub(crate) attached: Option<Arc<dyn Any + Send + Sync>>,
}
