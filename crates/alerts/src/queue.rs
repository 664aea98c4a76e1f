use crate::Notice;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// The most notices that wait for one webhook. Beyond, the oldest gives way: what is newer says more
/// of how things are.
pub const MAX_WAITING: usize = 256;

/// Notices that wait for one webhook.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    notices: VecDeque<Arc<Notice>>,
    is_closed: bool,
}

impl Queue {
    /// Puts a notice at the end; the one that gave way to it, or itself if nothing is taken any more.
    pub(crate) fn push(&self, notice: Arc<Notice>) -> Option<Arc<Notice>> {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return Some(notice);
        }
        let is_full = MAX_WAITING <= waiting.notices.len();
        let oldest = is_full.then(|| waiting.notices.pop_front()).flatten();
        waiting.notices.push_back(notice);
        drop(waiting);
        self.changed.notify_one();
        oldest
    }

    /// The first one; `None` when the queue is closed and empty. For one reader.
    ///
    /// # Cancel safety
    ///
    /// Nothing is taken unless it is returned.
    pub(crate) async fn next(&self) -> Option<Arc<Notice>> {
        loop {
            {
                let mut waiting = self.lock();
                if let Some(notice) = waiting.notices.pop_front() {
                    return Some(notice);
                }
                if waiting.is_closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Takes nothing more.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().notices.len()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
