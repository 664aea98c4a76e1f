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

    /// Number of notices that wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().notices.len()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Condition, Event, Severity, State};
    use std::time::SystemTime;
    use uuid::Uuid;

    fn notice(number: usize) -> Arc<Notice> {
        Arc::new(Notice {
            id: Uuid::now_v7(),
            alert: Uuid::now_v7(),
            condition: Condition::of(Event::LedgerUnavailable),
            state: State::Raised,
            severity: Severity::Critical,
            since: SystemTime::UNIX_EPOCH,
            at: SystemTime::UNIX_EPOCH,
            detail: number.to_string(),
        })
    }

    #[tokio::test]
    async fn the_oldest_gives_way_and_after_the_end_nothing_is_taken() {
        let queue = Queue::default();
        for number in 0..MAX_WAITING {
            assert!(queue.push(notice(number)).is_none());
        }
        let lost = queue.push(notice(MAX_WAITING)).unwrap();
        assert_eq!(lost.detail, "0");
        assert_eq!(queue.len(), MAX_WAITING);
        queue.close();
        let late = queue.push(notice(MAX_WAITING + 1)).unwrap();
        assert_eq!(late.detail, (MAX_WAITING + 1).to_string());
        for number in 1..=MAX_WAITING {
            assert_eq!(queue.next().await.unwrap().detail, number.to_string());
        }
        assert!(queue.next().await.is_none());
    }
}
